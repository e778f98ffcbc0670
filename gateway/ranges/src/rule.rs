//! Where a range ends by its size: a pure function of the log, so that every reader ends it at the same place.
//!
//! Place in the flow: [`super::Cutter`] asks per message; [`super::Plan`] carries the rule in force.
//!
//! A rule measures raw message values and counts messages. It ignores rows, compressed bytes and other limits of the config: those change
//! with the program and the table, and a range that another version has sent would then be cut differently. [`Rule::bytes`] ensures that
//! the rows fit one block for normal traces. With [`Version::Before`] a range is one message, or at most `bytes` of messages: 16 MiB of
//! messages are about 36,000 rows, 32 MiB of rows and 4 MiB compressed. A block may have 1,048,449 rows, 1 GiB and 24 MiB. A range that
//! does not fit all the same (millions of empty spans, a resource of megabytes in every row) is cut short by a planned cut
//! ([`super::Cut::Split`]). A single message that does not fit is rejected.

use sluice_gateway_config::Insert;

/// How a rule measures. A plan contains the number. Its meaning never changes, and a released version is kept for as long as a group may
/// have plans of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 1: a range ends after the message with which it reaches the bytes or the messages.
    After,
    /// 2: as 1, and also before a message that would exceed the bytes. So a message of that size or more has a range to itself, and no
    /// other range is larger than the bytes.
    Before,
}

impl Version {
    /// The version for new ranges.
    pub const CURRENT: Self = Self::Before;

    /// Every version that can be replayed.
    pub const KNOWN: [Self; 2] = [Self::After, Self::Before];

    /// The number in a plan.
    pub const fn number(self) -> u8 {
        match self {
            Self::After => 1,
            Self::Before => 2,
        }
    }

    /// The version with this number; `None` if this program does not know it.
    pub fn of_number(number: u8) -> Option<Self> {
        Self::KNOWN.into_iter().find(|version| version.number() == number)
    }
}

/// The size rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// How it measures.
    pub version: Version,
    /// Bytes of message values at which a range ends; at least 1.
    pub bytes: u64,
    /// Messages at which a range ends; at least 1.
    pub messages: u64,
}

impl Rule {
    /// The rule of `sink.clickhouse.insert`: `maxBytes`, and `maxRows` as a number of messages, since a message with rows has at least
    /// one.
    pub fn of(insert: &Insert) -> Self {
        Self {
            version: Version::CURRENT,
            bytes: insert.max_bytes.get().max(1),
            messages: u64::from(insert.max_rows).max(1),
        }
    }

    /// Whether a range of this size ends here.
    pub(super) fn ends_after(self, fill: Fill) -> bool {
        fill.bytes >= self.bytes || fill.messages >= self.messages
    }

    /// Whether a range of this size ends before a message of this many bytes.
    pub(super) fn ends_before(self, fill: Fill, bytes: u64) -> bool {
        let passes = fill.messages > 0 && fill.bytes.saturating_add(bytes) > self.bytes;
        self.version == Version::Before && passes
    }
}

/// The size of a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fill {
    pub messages: u64,
    /// Bytes of their values.
    pub bytes: u64,
}

impl Fill {
    pub(super) fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the ranges that a rule makes of messages of these sizes; the last one is open.
    fn ranges(rule: Rule, sizes: &[u64]) -> Vec<Vec<u64>> {
        let mut ranges = vec![Vec::new()];
        let mut fill = Fill::default();
        for size in sizes {
            if rule.ends_before(fill, *size) {
                ranges.push(Vec::new());
                fill = Fill::default();
            }
            ranges.last_mut().unwrap().push(*size);
            fill.add(*size);
            if rule.ends_after(fill) {
                ranges.push(Vec::new());
                fill = Fill::default();
            }
        }
        ranges
    }

    #[test]
    fn a_range_ends_by_bytes_or_by_messages() {
        let after = Rule { version: Version::After, bytes: 10, messages: 3 };
        assert_eq!(ranges(after, &[4, 4, 4, 1, 1, 1, 1]), [vec![4, 4, 4], vec![1, 1, 1], vec![1]]);
        assert_eq!(ranges(after, &[4, 30, 4]), [vec![4, 30], vec![4]]);
        let before = Rule { version: Version::Before, ..after };
        assert_eq!(ranges(before, &[4, 4, 4, 1, 1, 1, 1]), [vec![4, 4], vec![4, 1, 1], vec![1, 1]]);
        assert_eq!(ranges(before, &[4, 6, 1]), [vec![4, 6], vec![1]]);
    }

    #[test]
    fn a_large_message_has_a_range_to_itself() {
        let before = Rule { version: Version::Before, bytes: 10, messages: 3 };
        assert_eq!(ranges(before, &[4, 30, 4]), [vec![4], vec![30], vec![4]]);
        assert_eq!(ranges(before, &[0, 0, 0, 0]), [vec![0, 0, 0], vec![0]]);
    }

    #[test]
    fn the_rule_of_the_defaults_is_sixteen_mib_and_a_hundred_thousand_messages() {
        let rule = Rule::of(&Insert::default());
        assert_eq!(rule, Rule { version: Version::Before, bytes: 16 << 20, messages: 100_000 });
        assert!(rule.bytes < sluice_gateway_config::budget::BLOCK_BYTES_MAX);
    }

    #[test]
    fn every_known_version_has_its_number() {
        for version in Version::KNOWN {
            assert_eq!(Version::of_number(version.number()), Some(version));
        }
        assert_eq!(Version::of_number(0), None);
        assert_eq!(Version::of_number(3), None);
    }
}
