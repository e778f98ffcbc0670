//! How a worker reads messages: it removes their frame ([`framing`]), reads protobuf directly, and rewrites JSON to protobuf first.
//!
//! Owner: a worker thread. Limits: a message in JSON has at most `source.kafka.recordBatchBytesMax`; the budget counts
//! `JSON_BYTES_PER_MESSAGE_BYTE` of memory for each of its bytes.

use crate::reading::{framing, reject::Reason};
use sluice_gateway_config::{ByteSize, Format, budget::JSON_BYTES_PER_MESSAGE_BYTE};
use sluice_otlp_json::{JsonRewriter, SCRATCH_BYTES_PER_MESSAGE_BYTE};

const _: () = assert!(
    SCRATCH_BYTES_PER_MESSAGE_BYTE <= JSON_BYTES_PER_MESSAGE_BYTE,
    "the rewriter needs more than the budget counts"
);

/// Reads messages of one format.
#[derive(Debug)]
pub enum Reader {
    /// Walks messages as they are.
    OtlpProto,
    /// Rewrites messages first.
    OtlpJson(JsonRewriter),
}

impl Reader {
    /// For messages of this format and up to this size.
    pub fn new(format: Format, message_bytes_max: ByteSize) -> Self {
        match format {
            Format::OtlpProto => Self::OtlpProto,
            Format::OtlpJson => {
                let bytes = usize::try_from(message_bytes_max.get()).unwrap_or(usize::MAX);
                Self::OtlpJson(JsonRewriter::new(bytes))
            }
        }
    }

    /// The message in protobuf, without its frame.
    #[inline]
    pub fn wire<'m>(&'m mut self, message: &'m [u8]) -> Result<&'m [u8], Reason> {
        let message = framing::payload(message, self.format()).map_err(Reason::Framing)?;
        match self {
            Self::OtlpProto => Ok(message),
            Self::OtlpJson(rewriter) => {
                rewriter.rewrite(message).map_err(|malformed| match malformed.reason() {
                    sluice_otlp_json::Reason::TooLong => Reason::MessageTooLong,
                    _ => Reason::MalformedJson(malformed),
                })
            }
        }
    }

    fn format(&self) -> Format {
        match self {
            Self::OtlpProto => Format::OtlpProto,
            Self::OtlpJson(_) => Format::OtlpJson,
        }
    }
}
