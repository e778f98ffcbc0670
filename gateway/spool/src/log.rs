//! A log on the queue volume: messages in the order of their offsets, in the segments of the queue.
//!
//! A gateway with `source.otlp` keeps each request here before it answers. A log is a partition: it has offsets, one for each message, a
//! committed offset with the plan of ranges ([`Offsets`]), and readers.
//!
//! ```text
//!  append, append, ... sync      the caller decides how many share a sync; then it answers
//!  LogView -> Cursor             readers, on their threads: the messages up to the last sync
//!  Offsets::store                what is committed, on the thread that commits
//!  remove_below                  segments whose messages are all committed
//! ```
//!
//! Each log has a folder of its own. A record of a segment ([`crate::format`]) is what one append wrote: its offsets are those of the
//! messages, `rows` is their number, and the body begins with a table of them ([`table`]). A large message may be packed ([`packed`]). Marks are
//! not used, but for records that were torn: the committed offset says what is done.
//!
//! Owner of [`Log`]: one thread. Guarantees after a crash at any time:
//!
//! - A message whose append was followed by a sync is there until the committed offset is above it, at its offset, with its bytes.
//! - An offset is never given to a second message, whatever is damaged, as long as [`Offsets`] can be read. If the last commit may have rotted, new
//!   offsets begin 2³² above the end: the log does not know which messages that commit has removed.
//! - What was appended and not synced is there or not; a message never is in part.
//!
//! Limits: [`RECORD_MESSAGES_MAX`], [`LOG_SEGMENTS_MAX`], and the bytes that the caller allows at each append.

mod cursor;
mod offsets;
mod opening;
pub mod packed;
mod sealed;
pub mod table;
mod view;
mod volume_id;
mod writer;

pub use cursor::{Cursor, Message, Read};
pub use offsets::{Committed, METADATA_BYTES_MAX, Offsets, OffsetsFound};
pub use opening::{LogFound, LogOpenError, LogOptions, has_uncommitted};
pub use view::LogView;
pub use volume_id::{VOLUME_ID_FILE, VolumeIdError, volume_id};
pub use writer::{Appended, Log, LogError, Payload};

/// Messages of an append. Chosen: more requests than a server has under way; the table of a record has 48 KiB.
pub const RECORD_MESSAGES_MAX: usize = 4_096;

/// Segments of a log. Chosen: 4 million small records, which are 5.8 hours of 200 a second; 1 MiB of memory. With larger records, bytes are the
/// limit.
pub const LOG_SEGMENTS_MAX: usize = 4_096;

/// Offsets that are passed over if it is in doubt which commit was the last: messages that a later one has removed may have had them. Chosen: more
/// than a disk takes between two commits.
pub(crate) const DOUBT_STEP: i64 = 1 << 32;

/// In place of the fingerprint of columns, so that a log's record is never taken for a block.
pub(crate) const LOG_COLUMNS: u64 = u64::from_le_bytes(*b"slucelog");

/// The same for a record that has packed messages: its table has longer entries.
pub(crate) const LOG_COLUMNS_PACKED: u64 = u64::from_le_bytes(*b"slucelz4");

/// Offsets of messages that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostMessages {
    /// The first offset.
    pub first: i64,
    /// One past the last.
    pub next: i64,
    /// Whether each of the offsets had a message. Otherwise the header that says how many there were is damaged too.
    pub is_exact: bool,
}

impl LostMessages {
    /// Number of offsets.
    pub fn count(&self) -> u64 {
        u64::try_from(self.next.saturating_sub(self.first)).unwrap_or(0)
    }
}
