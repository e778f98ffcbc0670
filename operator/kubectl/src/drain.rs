//! `kubectl sluice drain`: drains one gateway and reports progress.

use crate::{
    args::DrainArgs,
    cluster::{Cluster, Error},
    exit_codes::{EXIT_NOT_WELL, EXIT_WELL},
    table::size,
    terminal::Terminal,
};
use sluice_gateway_config::Remaining;
use sluice_plan::words::plural;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval between two requests of `/drainz`, in seconds: a person watches the progress.
const LOOK_AGAIN_SECONDS: u64 = 1;

/// Progress of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The gateway still holds something.
    Holds,
    /// The gateway holds nothing, and stays out of the consumer group.
    Drained,
    /// The gateway holds only unreadable data.
    Damaged,
    /// The gateway does not drain: a restart ended the drain.
    TakesPart,
}

impl Standing {
    fn of(held: &Remaining) -> Self {
        if held.draining == Some(false) {
            Self::TakesPart
        } else if held.blocks > 0 || held.uncommitted > 0 || held.unreadable {
            Self::Holds
        } else if held.damaged == Some(true) {
            Self::Damaged
        } else {
            Self::Drained
        }
    }
}

/// What a gateway holds, in words.
fn in_words(held: &Remaining) -> String {
    let unread = "cannot read a log on its volume now, and the requests in it are not inserted";
    if held.blocks == 0 && held.uncommitted == 0 {
        if held.unreadable {
            return unread.to_owned();
        }
        let damaged = if held.damaged == Some(true) { " but unreadable data on its volume" } else { "" };
        return format!("holds nothing{damaged}");
    }
    let unread = if held.unreadable { format!("; it {unread}") } else { String::new() };
    format!(
        "holds {} ({}) and {}{unread}",
        plural(held.blocks, "block"),
        size(held.bytes),
        plural(held.uncommitted, "uncommitted message")
    )
}

/// Drains the gateway and waits until it holds nothing, or resumes it.
pub(super) async fn run(
    cluster: &Cluster,
    asked: &DrainArgs,
    terminal: &mut Terminal<'_>,
) -> Result<u8, Error> {
    let pod = &asked.pod;
    if asked.resume {
        let held = held(pod, &cluster.tell(pod, "/resume").await?)?;
        cluster.keep_out(pod, false).await?;
        terminal.answer(asked.json, &held, &format!("{pod} takes part again; it {}", in_words(&held)))?;
        return Ok(EXIT_WELL);
    }
    let patience = Duration::from_secs(asked.timeout);
    let begun = Instant::now();
    // Before the drain: the operator resumes a gateway that drains without the annotation at once.
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
            Ok(now) => match Standing::of(&now) {
                Standing::Drained => {
                    let held = in_words(&now);
                    let words = format!("{pod} {held}; `kubectl sluice drain {pod} --resume` ends the drain");
                    terminal.answer(asked.json, &now, &words)?;
                    return Ok(EXIT_WELL);
                }
                Standing::Damaged => {
                    let words =
                        format!("{pod} {}: do not delete the volume; {}", in_words(&now), kept_out(pod));
                    terminal.answer(asked.json, &now, &words)?;
                    return Ok(EXIT_NOT_WELL);
                }
                Standing::TakesPart => {
                    let words = format!("{pod} restarted, which ended the drain: run the command again");
                    terminal.answer(asked.json, &now, &words)?;
                    cluster.keep_out(pod, false).await?;
                    return Ok(EXIT_NOT_WELL);
                }
                Standing::Holds if is_over => {
                    let words =
                        format!("{pod} {} after {} s; the drain continues", in_words(&now), asked.timeout);
                    terminal.answer(asked.json, &now, &words)?;
                    return Ok(EXIT_NOT_WELL);
                }
                Standing::Holds => {
                    if told.as_ref() != Some(&now) {
                        terminal.tell(&format!("{pod} {}", in_words(&now)))?;
                        told = Some(now);
                    }
                }
            },
            // A pod that is gone does not come back: one with its name is another gateway.
            Err(error @ Error::Missing { .. }) => return Err(error),
            // The gateway continues the drain while the API server is unreachable.
            Err(error) if is_over || matches!(error, Error::Drain { .. }) => {
                terminal.tell(&kept_out(pod))?;
                return Err(error);
            }
            Err(error) => terminal.tell(&format!("{error}; trying again"))?,
        }
        sleep(Duration::from_secs(LOOK_AGAIN_SECONDS)).await;
        looked = cluster.ask(pod, "/drainz").await.and_then(|text| held(pod, &text));
    }
}

/// The state in which the command leaves the gateway.
fn kept_out(pod: &str) -> String {
    format!(
        "{pod} may still drain, and keeps the annotation sluice.dev/kept-out: `kubectl sluice drain {pod} --resume` ends the drain"
    )
}

/// Without the port for commands, which is for the operator.
fn held(pod: &str, text: &str) -> Result<Remaining, Error> {
    let drain = |source| Error::Drain { pod: pod.to_owned(), source };
    let held: Remaining = serde_json::from_str(text).map_err(drain)?;
    // It would seem to hold nothing only because it does not say so.
    if held.draining.is_none() && !text.contains("\"uncommitted\"") {
        return Err(drain(serde::de::Error::missing_field("uncommitted")));
    }
    Ok(Remaining { control: None, ..held })
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
                "holds nothing but unreadable data on its volume",
                Standing::Damaged,
            ),
            (
                r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":false}"#,
                "holds nothing",
                Standing::TakesPart,
            ),
            (
                r#"{"blocks":3,"bytes":24000000,"uncommitted":40,"more":1}"#,
                "holds 3 blocks (22 MiB) and 40 uncommitted messages",
                Standing::Holds,
            ),
            (
                r#"{"blocks":0,"bytes":0,"uncommitted":2,"damaged":true}"#,
                "holds 0 blocks (0 B) and 2 uncommitted messages",
                Standing::Holds,
            ),
            (
                r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":true,"draining":true,"unreadable":true}"#,
                "cannot read a log on its volume now, and the requests in it are not inserted",
                Standing::Holds,
            ),
        ] {
            let held = held("p", text).unwrap();
            assert_eq!((in_words(&held).as_str(), Standing::of(&held)), (words, standing));
        }
        for wrong in ["no", "{}", r#"{"blocks":0}"#] {
            let wrong = held("p-gateway-0", wrong).unwrap_err().to_string();
            assert!(wrong.starts_with("cannot read the answer of p-gateway-0 about its drain"), "{wrong}");
        }
    }
}
