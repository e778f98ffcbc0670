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

/// What a gateway still holds, as `/drainz` says it. Older gateways say nothing of damage, nor whether they drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    blocks: u64,
    bytes: u64,
    uncommitted: u64,
    /// Whether something on its queue volume cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    damaged: Option<bool>,
    /// Whether it was told to drain, and was not started anew since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    draining: Option<bool>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It holds something still.
    Holds,
    /// It holds nothing, and stays out.
    Drained,
    /// It holds nothing that can be read, and something that cannot.
    Damaged,
    /// It takes part: it was started anew, and knows nothing of having been told.
    TakesPart,
}

impl Held {
    fn standing(&self) -> Standing {
        if self.draining == Some(false) {
            Standing::TakesPart
        } else if self.blocks > 0 || self.uncommitted > 0 {
            Standing::Holds
        } else if self.damaged == Some(true) {
            Standing::Damaged
        } else {
            Standing::Drained
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.blocks == 0 && self.uncommitted == 0 {
            let damaged =
                if self.damaged == Some(true) { ", but for what cannot be read of its volume" } else { "" };
            return write!(f, "holds nothing{damaged}");
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
    let mut looked = match cluster.tell(pod, "/drain").await {
        Ok(text) => held(pod, &text),
        Err(error) => {
            if error.may_have_arrived() {
                terminal.tell(&kept_out(pod))?;
            } else {
                cluster.keep_out(pod, false).await?;
            }
            return Err(error);
        }
    };
    let mut told = None;
    loop {
        let is_over = begun.elapsed() >= patience;
        match looked {
            Ok(now) => match now.standing() {
                Standing::Drained => {
                    let words = format!("{pod} {now}; `kubectl sluice drain {pod} --resume` takes it back");
                    terminal.answer(asked.json, &now, &words)?;
                    return Ok(EXIT_WELL);
                }
                Standing::Damaged => {
                    let words = format!("{pod} {now}: do not throw that away; {}", kept_out(pod));
                    terminal.answer(asked.json, &now, &words)?;
                    return Ok(EXIT_NOT_WELL);
                }
                Standing::TakesPart => {
                    let words = format!("{pod} was started anew, and takes part: tell it once more");
                    terminal.answer(asked.json, &now, &words)?;
                    cluster.keep_out(pod, false).await?;
                    return Ok(EXIT_NOT_WELL);
                }
                Standing::Holds if is_over => {
                    let words = format!("{pod} {now} after {} s; it goes on draining", asked.timeout);
                    terminal.answer(asked.json, &now, &words)?;
                    return Ok(EXIT_NOT_WELL);
                }
                Standing::Holds => {
                    if told.as_ref() != Some(&now) {
                        terminal.tell(&format!("{pod} {now}"))?;
                        told = Some(now);
                    }
                }
            },
            // A pod that is gone does not come back as the same one.
            Err(error @ Error::Missing { .. }) => return Err(error),
            // An API server that is away for a moment changes nothing of what the gateway does.
            Err(error) if is_over || matches!(error, Error::Drain { .. }) => {
                terminal.tell(&kept_out(pod))?;
                return Err(error);
            }
            Err(error) => terminal.tell(&format!("{error}; asking again"))?,
        }
        sleep(Duration::from_secs(LOOK_AGAIN_SECONDS)).await;
        looked = cluster.ask(pod, "/drainz").await.and_then(|text| held(pod, &text));
    }
}

/// In which state it is left.
fn kept_out(pod: &str) -> String {
    format!(
        "{pod} may go on draining, and is marked as kept out: `kubectl sluice drain {pod} --resume` takes it back"
    )
}

fn held(pod: &str, text: &str) -> Result<Held, Error> {
    serde_json::from_str(text).map_err(|source| Error::Drain { pod: pod.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_said_in_words() {
        for (text, words, standing) in [
            (r#"{"blocks":0,"bytes":0,"uncommitted":0}"#, "holds nothing", Standing::Drained),
            (
                r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":true,"control":9091}"#,
                "holds nothing",
                Standing::Drained,
            ),
            (
                r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":true,"draining":true}"#,
                "holds nothing, but for what cannot be read of its volume",
                Standing::Damaged,
            ),
            (
                r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":false}"#,
                "holds nothing",
                Standing::TakesPart,
            ),
            (
                r#"{"blocks":3,"bytes":24000000,"uncommitted":40,"more":1}"#,
                "holds 3 blocks of 22 MiB, 40 messages not committed",
                Standing::Holds,
            ),
            (
                r#"{"blocks":0,"bytes":0,"uncommitted":2,"damaged":true}"#,
                "holds 0 blocks of 0 B, 2 messages not committed",
                Standing::Holds,
            ),
        ] {
            let held = held("p", text).unwrap();
            assert_eq!((held.to_string().as_str(), held.standing()), (words, standing));
        }
        for wrong in ["no", "{}", r#"{"blocks":0}"#] {
            let wrong = held("p-gateway-0", wrong).unwrap_err().to_string();
            assert!(wrong.starts_with("cannot understand what p-gateway-0 says of its drain"), "{wrong}");
        }
    }
}
