//! Texts about gateways that drain.

use super::Answer;
use crate::{ground::words::plural, names::CONTROL_PORT};

/// Gateways that a reason names; it counts the others.
const NAMED_MAX: usize = 3;

/// What gateways that have not carried out a request hold, or why that is not known.
pub(super) fn named(held: &[(u32, Answer)]) -> String {
    let words = held.iter().take(NAMED_MAX).map(|(ordinal, answer)| match answer {
        Answer::Holds { blocks } => format!("gateway {ordinal} holds {}", in_words(*blocks)),
        Answer::Away => {
            format!("gateway {ordinal}, which ended, has not said that it is empty")
        }
        _ => format!("gateway {ordinal} does not answer the operator on port {CONTROL_PORT}"),
    });
    let mut words: Vec<String> = words.collect();
    if held.len() > NAMED_MAX {
        words.push(format!("and {} more", held.len() - NAMED_MAX));
    }
    words.join(", ")
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
