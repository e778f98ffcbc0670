//! Texts about gateways that drain.

use super::{Answer, Seen};
use crate::{ground::words::plural, names::CONTROL_PORT};
use sluice_crds::OnTimeout;
use std::ops::Range;

/// Gateways that a reason names; it counts the others.
const NAMED_MAX: usize = 3;

/// What gateways that are not empty hold, or why that is not known.
pub(super) fn named(held: &[(u32, Answer)], seen: &Seen) -> String {
    let words = held.iter().take(NAMED_MAX).map(|(ordinal, answer)| match (answer, seen.stopped.get(ordinal)) {
        (Answer::Gone | Answer::Away, Some(claim)) => format!(
            "gateway {ordinal} does not run, and only it can insert the requests that may be on its volume {claim}: see why its pod does not \
             run, or give them up with kubectl delete pvc {claim} --wait=false"
        ),
        (Answer::Holds { blocks }, _) => format!("gateway {ordinal} holds {}", in_words(*blocks)),
        (Answer::Away, None) => {
            format!("gateway {ordinal}, which ended, has not said that it is empty")
        }
        (Answer::Gone, None) => format!("gateway {ordinal} does not run, and has not said that it is empty"),
        (Answer::Damaged, _) => format!(
            "gateway {ordinal} has nothing to insert, and its volume stays: it is damaged, has dead letters, or the gateway is too old to \
             say whether"
        ),
        _ => format!("gateway {ordinal} does not answer the operator on port {CONTROL_PORT}"),
    });
    let mut words: Vec<String> = words.collect();
    if held.len() > NAMED_MAX {
        words.push(format!("and {} more", held.len() - NAMED_MAX));
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
    let others: Vec<_> = answers.iter().copied().filter(|(_, answer)| *answer != Answer::Done).collect();
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
