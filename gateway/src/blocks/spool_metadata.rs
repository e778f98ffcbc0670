//! The metadata of a block on the queue volume: what the next run of this process must know about its range before it takes it over.
//!
//! Place in the flow: created when a block is sealed, written by [`crate::volume::block_table`], read by [`crate::volume::spool`]
//! when the volume is opened.
//!
//! | bytes | field |
//! | --- | --- |
//! | 1 | version: [`VERSION`], or [`VERSION_ENQUEUED`] for one whose offsets may be committed while it is on the volume |
//! | 1 | [`DERIVABLE`], [`DOUBTFUL`] or 0 |
//! | 8 | the offset behind the message that decided its end |
//! | 1 | rule: version; 0 for a range that must not be taken over |
//! | 8 | rule: bytes |
//! | 8 | rule: messages |
//! | 2 | bytes of the Kafka cluster's id |
//! | | that id |
//! | rest | the message of each row: [`MessageRows`] |
//!
//! Numbers are little-endian. A block without metadata, or with another version, is not taken over: its messages are read again.

use crate::blocks::message_rows::MessageRows;
use sluice_ranges::{OffsetRange, Rule, SpooledRange, Version};
use std::sync::Arc;

/// The version that this program writes and reads.
const VERSION: u8 = 1;

/// The version for a block of `delivery.commit: AfterEnqueue`. A program that does not know it must not assume that Kafka has the messages.
const VERSION_ENQUEUED: u8 = 2;

/// The range's end follows from the log or from the plan that its reader found.
const DERIVABLE: u8 = 1;

/// An earlier owner may have sent messages of the range in a longer one. Such a range is never taken over, so programs that read each number
/// but 0 as [`DERIVABLE`] do nothing with it.
const DOUBTFUL: u8 = 2;

/// The metadata of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolMetadata {
    /// The Kafka cluster's id.
    pub cluster: Arc<str>,
    /// Its range; `None` if it must not be taken over.
    pub kept: Option<SpooledRange>,
    /// Whether an earlier owner may have sent some of its messages under another token: its rows then count as possibly doubled once they
    /// are inserted.
    pub is_doubtful: bool,
    /// Whether its offsets may be committed while it is on the volume (`delivery.commit: AfterEnqueue`).
    pub is_enqueued: bool,
}

impl Default for SpoolMetadata {
    fn default() -> Self {
        Self { cluster: "".into(), kept: None, is_doubtful: false, is_enqueued: false }
    }
}

impl SpoolMetadata {
    /// The bytes.
    pub fn encode(&self, messages: &MessageRows) -> Vec<u8> {
        let cluster_bytes = u16::try_from(self.cluster.len()).unwrap_or(0);
        let cluster = &self.cluster.as_bytes()[..usize::from(cluster_bytes)];
        let kept = self.kept.filter(|_| cluster_bytes > 0);
        let is_derivable = kept.is_some_and(|kept| kept.is_derivable);
        let end = if self.is_doubtful { DOUBTFUL } else { DERIVABLE * u8::from(is_derivable) };
        let decided = kept.map_or(0, |kept| kept.decided);
        let (version, rule_bytes, messages_max) = kept.map_or((0, 0, 0), |SpooledRange { rule, .. }| {
            (rule.version.number(), rule.bytes, rule.messages)
        });
        let version_written = if self.is_enqueued { VERSION_ENQUEUED } else { VERSION };
        let mut bytes = vec![version_written, end];
        bytes.extend_from_slice(&decided.to_le_bytes());
        bytes.push(version);
        bytes.extend_from_slice(&rule_bytes.to_le_bytes());
        bytes.extend_from_slice(&messages_max.to_le_bytes());
        bytes.extend_from_slice(&cluster_bytes.to_le_bytes());
        bytes.extend_from_slice(cluster);
        bytes.extend_from_slice(messages.bytes());
        bytes
    }

    /// Decodes the metadata of the block of this range; `None` for an unknown version or damaged bytes.
    pub fn decode(bytes: &[u8], range: OffsetRange) -> Option<(Self, MessageRows)> {
        let ([version, end], rest) = bytes.split_first_chunk()?;
        let is_enqueued = match *version {
            VERSION => false,
            VERSION_ENQUEUED => true,
            _ => return None,
        };
        let (decided, rest) = rest.split_first_chunk()?;
        let (rule_version, rest) = rest.split_first()?;
        let (rule_bytes, rest) = rest.split_first_chunk()?;
        let (messages, rest) = rest.split_first_chunk()?;
        let rule = Version::of_number(*rule_version).map(|version| Rule {
            version,
            bytes: u64::from_le_bytes(*rule_bytes),
            messages: u64::from_le_bytes(*messages),
        });
        let decided = i64::from_le_bytes(*decided);
        let is_doubtful = *end == DOUBTFUL;
        let rule = rule.filter(|_| !is_doubtful);
        let is_derivable = *end != 0;
        let kept = rule.map(|rule| SpooledRange { range, is_derivable, decided, rule, is_renamed: false });
        let (cluster_bytes, rest) = rest.split_first_chunk()?;
        let (cluster, messages) = rest.split_at_checked(usize::from(u16::from_le_bytes(*cluster_bytes)))?;
        let cluster = std::str::from_utf8(cluster).ok()?.into();
        Some((Self { cluster, kept, is_doubtful, is_enqueued }, MessageRows::kept(messages.to_vec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passport_is_read_as_it_was_written_and_another_version_is_not() {
        let range = OffsetRange { first: 5, next: 9 };
        let rule = Rule { version: Version::Before, bytes: 1 << 24, messages: 100_000 };
        let kept = SpooledRange { range, is_derivable: true, decided: 10, rule, is_renamed: false };
        let cluster = "MkU3OEVBNTcwNTJENDM2Qk".into();
        let spool_metadata =
            SpoolMetadata { cluster, kept: Some(kept), is_doubtful: false, is_enqueued: false };
        let messages = MessageRows::kept(vec![5, 6]);
        let bytes = spool_metadata.encode(&messages);
        assert_eq!(SpoolMetadata::decode(&bytes, range), Some((spool_metadata.clone(), messages)));
        assert!((0..51).all(|len| SpoolMetadata::decode(&bytes[..len], range).is_none()));
        assert_eq!(SpoolMetadata::decode(&[&[3], &bytes[1..]].concat(), range), None);
        let enqueued = SpoolMetadata { is_enqueued: true, ..spool_metadata };
        let messages = MessageRows::kept(vec![5, 6]);
        let bytes = enqueued.encode(&messages);
        assert_eq!((bytes[0], SpoolMetadata::decode(&bytes, range)), (2, Some((enqueued, messages))));
        for is_doubtful in [false, true] {
            let none = SpoolMetadata { kept: None, is_doubtful, ..SpoolMetadata::default() };
            let messages = MessageRows::kept(vec![5, 6]);
            let bytes = none.encode(&messages);
            assert_eq!(SpoolMetadata::decode(&bytes, range), Some((none, messages)));
        }
    }
}
