//! A request split into messages by trace.
//!
//! Job: makes messages of one `ExportTraceServiceRequest`, each a valid request of its own, so that all spans of a trace go to one
//! partition. Place in the flow: before the producer of the edge. Owner: a worker thread owns one [`Splitter`]. Pure; total on any bytes.
//!
//! ```text
//! request --> index: checks every field, notes where each span is --> sort by partition and trace --> pack --> messages
//!              |                                                                                                 |
//!              `- malformed, or too large: nothing is made                              write: fields copied unchanged
//! ```
//!
//! # What a message is
//!
//! | property | |
//! | --- | --- |
//! | its spans | all have the partition of the message. A trace that fits into one message is in one message; a larger one is in several |
//! | its trace | [`SplitMessage::trace_id`]: the caller makes the key of it. Small traces of the same partition share a message, which has the id of one of them |
//! | its size | at most the target, or it has a single span |
//! | resource and scope | once for each resource and scope that it has spans of, with schema URL and unknown fields; in front of the spans |
//! | order of spans | that of the request |
//! | unknown fields | kept at every level; those of the request itself are in every message |
//!
//! A `ResourceSpans` or `ScopeSpans` without spans is in no message. The content of a span, a resource and a scope is copied byte for byte.
//!
//! # Limits
//!
//! The index takes at most `index_bytes_max` of [`SplitLimits`], half of that more while it grows, and stays allocated. A request that
//! needs more, or that would become more than `made_bytes_max` of messages because large resources repeat, is refused. A span that is
//! larger than `message_bytes_max` together with its resource and scope is counted as too large and left out. The list of messages has
//! no limit of its own: two messages of a partition that follow each other are together larger than the target.

mod index;
mod pack;
mod write;

use crate::malformed::Malformed;
use index::Index;
use std::{error::Error, fmt};

/// The limits of a [`Splitter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitLimits {
    /// Bytes up to which spans share a message.
    pub target_bytes: usize,
    /// Bytes of the largest message, which has a single span; at least the target.
    pub message_bytes_max: usize,
    /// Bytes of the index of a request.
    pub index_bytes_max: usize,
    /// Bytes of all messages of a request.
    pub made_bytes_max: usize,
}

/// Why a request is refused. Nothing was made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitError {
    /// It cannot be read.
    Malformed(Malformed),
    /// Its index has no room.
    TooManySpans {
        /// The spans up to here.
        spans: usize,
        /// The limit.
        index_bytes_max: usize,
    },
    /// Its messages would be too large together.
    TooManyBytes {
        /// The limit.
        made_bytes_max: usize,
    },
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::TooManySpans { spans, index_bytes_max } => write!(
                f,
                "the request has too many spans to be split by trace: the first {spans} of them, with their resources and scopes, \
                 need more than {index_bytes_max} bytes of memory; send fewer spans in a request"
            ),
            Self::TooManyBytes { made_bytes_max } => write!(
                f,
                "split by trace, the request becomes more than {made_bytes_max} bytes, because each message repeats its resources \
                 and scopes; send fewer traces in a request, or smaller resources"
            ),
        }
    }
}

impl Error for SplitError {}

impl From<Malformed> for SplitError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// A message to be made of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitMessage {
    /// The partition of all its spans.
    pub partition: u32,
    /// One of its traces; the only one if that is larger than the target.
    pub trace_id: [u8; 16],
    /// Its size.
    pub bytes: usize,
    /// Its spans in the index: the first, and the one behind the last.
    first: usize,
    end: usize,
}

impl SplitMessage {
    /// How many spans it has.
    pub const fn spans(&self) -> usize {
        self.end.saturating_sub(self.first)
    }
}

/// Spans that no message can hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TooLarge {
    /// How many.
    pub spans: u64,
    /// Upper bound of the bytes of a message with the largest of these spans, its resource and its scope.
    pub largest_bytes: usize,
}

/// Splits requests one after the other. Its memory is reused.
#[derive(Debug, Default)]
pub struct Splitter {
    index: Index,
    messages: Vec<SplitMessage>,
}

/// A request, split.
#[derive(Debug)]
pub struct Split<'s> {
    request: &'s [u8],
    index: &'s Index,
    messages: &'s [SplitMessage],
    too_large: TooLarge,
}

impl Splitter {
    /// Splits a request. `partition_of` gives the partition of a trace; it is called for each span.
    ///
    /// # Errors
    /// [`SplitError`] if the request is refused as a whole.
    pub fn split<'s>(
        &'s mut self,
        request: &'s [u8],
        limits: &SplitLimits,
        partition_of: impl Fn(&[u8; 16]) -> u32,
    ) -> Result<Split<'s>, SplitError> {
        let Self { index, messages } = self;
        messages.clear();
        index.read(request, limits.index_bytes_max, partition_of)?;
        let too_large = pack::pack(index, limits, messages)?;
        Ok(Split { request, index, messages, too_large })
    }
}

impl Split<'_> {
    /// How many spans the request has.
    pub fn spans(&self) -> u64 {
        self.index.spans().len() as u64
    }

    /// The spans that are in no message.
    pub const fn too_large(&self) -> TooLarge {
        self.too_large
    }

    /// The messages, those of a partition one after the other.
    pub const fn messages(&self) -> &[SplitMessage] {
        self.messages
    }

    /// Replaces `out` by the bytes of a message of this request.
    pub fn write(&self, message: &SplitMessage, out: &mut Vec<u8>) {
        out.clear();
        write::write(self.index, self.request, message, out);
        debug_assert_eq!(out.len(), message.bytes, "the plan knows the size of a message");
    }
}

#[cfg(test)]
mod tests;
