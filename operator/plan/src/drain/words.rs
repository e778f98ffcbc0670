//! Texts about gateways that drain.

use super::{Answer, Seen, stopped::Stopped};
use crate::{ground::words::plural, names::CONTROL_PORT};
use sluice_crds::OnTimeout;
use std::ops::Range;

/// Gateways that a reason names; it counts the others.
const NAMED_MAX: usize = 3;

/// What gateways that are not empty hold, or why that is not known.
pub(super) fn named(held: &[(u32, Answer)], seen: &Seen) -> String {
    let words = held.iter().map(|(ordinal, answer)| match (answer, seen.stopped(*ordinal)) {
        (Answer::Gone | Answer::Away, Some(stopped)) => not_running(*ordinal, stopped, false),
        (Answer::Unreadable, _) => format!(
            "gateway {ordinal} cannot read a log on its volume now, and the requests in it are not inserted: check the volume and its disk, \
             and see the logs of its pod"
        ),
        (Answer::Holds { blocks }, _) => format!("gateway {ordinal} holds {}", in_words(*blocks)),
        (Answer::Away, None) => {
            format!("gateway {ordinal}, which ended, has not said that it is empty")
        }
        (Answer::Gone, None) => format!("gateway {ordinal} does not run, and has not said that it is empty"),
        (Answer::Damaged, _) => {
            let letters = if seen.has_kafka { "" } else { ", has dead letters" };
            format!(
                "gateway {ordinal} has nothing to insert, and its volume stays: it is damaged{letters}, or the gateway is too old to say \
                 whether"
            )
        }
        (Answer::OtherPod, _) => format!(
            "another pod answers at the address of gateway {ordinal}: compare status.podIP of its pod with the addresses of the others"
        ),
        _ => format!("gateway {ordinal} does not answer the operator on port {CONTROL_PORT}"),
    });
    listed(words)
}

/// Gateways that do not run, and are waited for. Most pods run again: the command that gives requests up comes late.
pub(super) fn waits_for<'a>(stopped: impl Iterator<Item = (u32, &'a Stopped)>, is_late: bool) -> String {
    listed(stopped.map(|(ordinal, stopped)| not_running(ordinal, stopped, is_late)))
}

fn not_running(ordinal: u32, Stopped { claim, .. }: &Stopped, is_late: bool) -> String {
    let then = if is_late {
        format!(
            ": see why its pod does not run, or give them up with kubectl delete pvc {claim} --wait=false (with volumeBindingMode Immediate, \
             the claim may come back: delete it again)"
        )
    } else {
        "; the operator waits for it".to_owned()
    };
    format!(
        "gateway {ordinal} does not run, and only it can insert the requests that may be on its volume {claim}{then}"
    )
}

/// The first of them, and how many more there are.
fn listed(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    let more = words.len().saturating_sub(NAMED_MAX);
    words.truncate(NAMED_MAX);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words.join(", ")
}

/// How gateways are removed: `held` are those that were not empty.
pub(super) fn gone(
    held: &[(u32, Answer)],
    seen: &Seen,
    leaving: Range<u32>,
    on_timeout: OnTimeout,
) -> String {
    if !held.is_empty() {
        let kept = if on_timeout == OnTimeout::Job { ", and their volumes stay" } else { "" };
        return format!("removed before they were empty{kept}: {}", named(held, seen));
    }
    let answers: Vec<(u32, Answer)> =
        leaving.filter_map(|ordinal| Some((ordinal, *seen.answers.get(&ordinal)?))).collect();
    let unknown = answers.iter().filter(|(_, answer)| *answer == Answer::Unknown).count();
    if unknown > 0 {
        let unknown = plural(unknown, "gateway");
        return format!(
            "{unknown} of an older version cannot drain: what is held is inserted when the pods end"
        );
    }
    // With Kafka, other gateways read again what one that is gone did not insert.
    let is_empty = |answer: Answer| answer == Answer::Done || (seen.has_kafka && answer == Answer::Gone);
    let others: Vec<_> = answers.iter().copied().filter(|(_, answer)| !is_empty(*answer)).collect();
    if others.is_empty() {
        return "all are empty".to_owned();
    }
    format!("{} of {} are empty: {}", answers.len() - others.len(), answers.len(), named(&others, seen))
}

/// A number of blocks, by its first digit: gateways answer every few seconds, and each changed text is a write of the status.
pub(crate) fn in_words(blocks: u64) -> String {
    let unit = 10_u64.pow(blocks.checked_ilog10().unwrap_or(0));
    let least = blocks / unit * unit;
    if unit == 1 { plural(blocks, "block") } else { format!("{least} blocks or more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_by_their_first_digit() {
        for (blocks, expected) in [
            (0, "0 blocks"),
            (1, "1 block"),
            (9, "9 blocks"),
            (10, "10 blocks or more"),
            (1_999, "1000 blocks or more"),
        ] {
            assert_eq!(in_words(blocks), expected);
        }
    }
}
