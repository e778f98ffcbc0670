//! Gateways that exit: restarted, as Kubernetes does, and always checked.
//!
//! Owner: the round. A gateway that exits without being told to must do so with a code that its course expects, or the round fails. If a
//! gateway aborts or another program kills it, the round fails at once ([`Gateway::ended`](crate::gateway::Gateway::ended)). The same holds
//! for a panic in its log.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::{Member, START_AGAIN, Scene};

/// What the standard library logs for a panic.
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

    /// The log files of the round's gateways.
    pub(super) fn logs(&self) -> Vec<PathBuf> {
        self.members.iter().map(|member| member.gateway.log().to_owned()).collect()
    }
}

/// Fails if one of these logs has a panic.
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
