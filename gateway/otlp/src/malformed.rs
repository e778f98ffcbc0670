//! The one error of this package: why a message cannot be read, and where.

use std::error::Error;
use std::fmt;

use crate::fields::OtlpMessage;

/// A message that is not an OTLP trace request, or is cut short.
///
/// Reading it again gives the same answer: the caller rejects the message, it never retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// Where the key or the value starts that cannot be read, in bytes from the start of the message.
    pub position: usize,
    /// What is wrong there.
    pub reason: Reason,
    /// The OTLP message that was being read.
    pub message: OtlpMessage,
    /// The number of the field in `message` that was being read, 1 and up; 0 if its key could not be read.
    pub field: u32,
}

/// What is wrong with a message that is [`Malformed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A key, value or group runs past the end of what holds it.
    Truncated,
    /// A varint is longer than 10 bytes, or its value than 64 bits.
    VarintTooLong,
    /// A key is longer than 32 bits.
    KeyTooLong,
    /// A key names field 0.
    FieldNumberZero,
    /// A key has wire type 6 or 7, which mean nothing.
    WireTypeUnknown,
    /// A field of the schema comes in another wire type than the schema's.
    WireTypeWrong,
    /// A group ends that is not open.
    GroupNotOpen,
    /// Messages are nested deeper than [`crate::NESTING_DEPTH_MAX`].
    NestedTooDeep,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Truncated => "runs past the end of what holds it",
            Self::VarintTooLong => "a varint is longer than 64 bits",
            Self::KeyTooLong => "a key is longer than 32 bits",
            Self::FieldNumberZero => "the field number is 0",
            Self::WireTypeUnknown => "the wire type is unknown",
            Self::WireTypeWrong => "the wire type is not the field's",
            Self::GroupNotOpen => "a group ends that is not open",
            Self::NestedTooDeep => "messages are nested too deep",
        })
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, reason, message, field } = self;
        write!(formatter, "malformed OTLP at byte {position}, {}", message.name())?;
        match (message.field_name(*field), field) {
            (Some(name), _) => write!(formatter, ".{name}")?,
            (None, 0) => {}
            (None, number) => write!(formatter, " field {number}")?,
        }
        write!(formatter, ": {reason}")
    }
}

impl Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_where_and_why() {
        let told = |field| {
            Malformed { position: 7, reason: Reason::Truncated, message: OtlpMessage::Span, field }
                .to_string()
        };
        assert_eq!(told(5), "malformed OTLP at byte 7, Span.name: runs past the end of what holds it");
        assert_eq!(told(99), "malformed OTLP at byte 7, Span field 99: runs past the end of what holds it");
        assert_eq!(told(0), "malformed OTLP at byte 7, Span: runs past the end of what holds it");
    }
}
