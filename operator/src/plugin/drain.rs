//! `kubectl sluice drain`: makes one gateway hold nothing, and tells how far it is.

use super::{
    EXIT_NOT_WELL, EXIT_WELL, Terminal,
    args::DrainArgs,
    cluster::{Cluster, Error},
    table::size,
};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use tokio::time::{Instant, sleep};

/// How often a gateway is asked what it holds, in seconds: a person looks on.
const LOOK_AGAIN_SECONDS: u64 = 1;

/// What a gateway still holds, as `/drainz` says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Held {
    blocks: u64,
    bytes: u64,
    uncommitted: u64,
}

impl Held {
    fn is_nothing(self) -> bool {
        self.blocks == 0 && self.uncommitted == 0
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nothing() {
            return f.write_str("holds nothing");
        }
        write!(
            f,
            "holds {} blocks of {}, {} messages not committed",
            self.blocks,
            size(self.bytes),
            self.uncommitted
        )
    }
}

/// Asks, and waits until nothing is held.
pub(super) async fn run(
    cluster: &Cluster,
    asked: &DrainArgs,
    terminal: &mut Terminal<'_>,
) -> Result<u8, Error> {
    let pod = &asked.pod;
    if asked.resume {
        let held = held(pod, &cluster.tell(pod, "/resume").await?)?;
        cluster.keep_out(pod, false).await?;
        terminal.answer(asked.json, &held, &format!("{pod} takes part again; it {held}"))?;
        return Ok(EXIT_WELL);
    }
    let patience = Duration::from_secs(asked.timeout);
    let begun = Instant::now();
    // First: the operator takes back at once whoever drains without it.
    cluster.keep_out(pod, true).await?;
    let mut now = match cluster.tell(pod, "/drain").await {
        Ok(text) => held(pod, &text)?,
        Err(error) => {
            if !error.may_have_arrived() {
                cluster.keep_out(pod, false).await?;
            }
            return Err(error);
        }
    };
    let mut told = None;
    loop {
        if told != Some(now) && !now.is_nothing() {
            terminal.tell(&format!("{pod} {now}"))?;
            told = Some(now);
        }
        if now.is_nothing() {
            terminal.answer(
                asked.json,
                &now,
                &format!("{pod} {now}; `kubectl sluice drain {pod} --resume` takes it back"),
            )?;
            return Ok(EXIT_WELL);
        }
        if begun.elapsed() >= patience {
            terminal.answer(
                asked.json,
                &now,
                &format!("{pod} {now} after {} s; it goes on draining", asked.timeout),
            )?;
            return Ok(EXIT_NOT_WELL);
        }
        sleep(Duration::from_secs(LOOK_AGAIN_SECONDS)).await;
        now = held(pod, &cluster.ask(pod, "/drainz").await?)?;
    }
}

fn held(pod: &str, text: &str) -> Result<Held, Error> {
    serde_json::from_str(text).map_err(|source| Error::Drain { pod: pod.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_said_in_words() {
        for (text, words, is_nothing) in [
            (r#"{"blocks":0,"bytes":0,"uncommitted":0}"#, "holds nothing", true),
            (
                r#"{"blocks":3,"bytes":24000000,"uncommitted":40,"more":1}"#,
                "holds 3 blocks of 22 MiB, 40 messages not committed",
                false,
            ),
            (
                r#"{"blocks":0,"bytes":0,"uncommitted":2}"#,
                "holds 0 blocks of 0 B, 2 messages not committed",
                false,
            ),
        ] {
            let held = held("p", text).unwrap();
            assert_eq!((held.to_string().as_str(), held.is_nothing()), (words, is_nothing));
        }
        let wrong = held("p-gateway-0", "no").unwrap_err().to_string();
        assert!(wrong.starts_with("cannot understand what p-gateway-0 says of its drain"), "{wrong}");
    }
}
