//! Gateways that end: started again, as Kubernetes does, and never without a word.
//!
//! Owner: the round. A gateway that ends by itself does so with a code that its course expects, or the round fails; one that aborts, or that
//! somebody else kills, fails it at once ([`Gateway::ended`](crate::gateway::Gateway::ended)); so does a panic that its log tells of.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::{Member, START_AGAIN, Scene};

/// What the standard library writes of a panic.
const PANICKED: &str = "panicked at";

impl Scene<'_> {
    /// Restarts gateways that have ended, and records the exit codes of those that no scenario ended.
    pub(super) fn tend(&mut self) -> Result<()> {
        for member in self.members.iter_mut().filter(|member| !member.is_retired) {
            if member.started.elapsed() < START_AGAIN {
                continue;
            }
            let Some(status) = member.gateway.ended()? else { continue };
            if !member.gateway.was_told_to_end() {
                self.ends.push(status.code().context("a gateway was ended by a signal")?);
            }
            *member = Member::start(member.gateway.orders().clone())?;
        }
        Ok(())
    }

    /// Where gateways of the round have written.
    pub(super) fn logs(&self) -> Vec<PathBuf> {
        self.members.iter().map(|member| member.gateway.log().to_owned()).collect()
    }
}

/// Fails when one of these logs tells of a panic.
pub(super) fn panics(logs: &[PathBuf]) -> Result<()> {
    for log in logs {
        let text = std::fs::read_to_string(log).with_context(|| format!("read {}", log.display()))?;
        ensure_calm(&text, log)?;
    }
    Ok(())
}

fn ensure_calm(text: &str, log: &Path) -> Result<()> {
    let line = text.lines().find(|line| line.contains(PANICKED));
    ensure!(line.is_none(), "a gateway has panicked: {}; see {}", line.unwrap_or_default(), log.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_a_log_is_found() {
        let log = Path::new("gateway.log");
        ensure_calm("INFO it goes on\n", log).unwrap();
        let text = "INFO it goes on\nthread 'worker-0' (7) panicked at gateway/src/a.rs:1:2:\nno\n";
        let words = ensure_calm(text, log).unwrap_err().to_string();
        assert!(words.contains("thread 'worker-0'") && words.ends_with("see gateway.log"), "{words}");
    }
}
