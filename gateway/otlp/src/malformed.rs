//! The one error of this package: why a message cannot be read, and where.

use std::error::Error;
use std::fmt;

use crate::fields::OtlpMessage;

/// The message is not an OTLP trace request, or is truncated.
///
/// Reading it again gives the same result: the caller rejects the message and never retries.
///
/// `reason` and `message` are kept as bytes on purpose. With the enums in here, `Result<_, Malformed>` would be packed
/// into their unused values, and taking it apart again costs the walk 12 % (see Cost in the crate's documentation).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    position: usize,
    field: u32,
    reason: u8,
    message: u8,
}

impl Malformed {
    /// `field` is 0 if the key could not be read.
    pub(crate) const fn new(position: usize, reason: Reason, message: OtlpMessage, field: u32) -> Self {
        Self { position, field, reason: reason as u8, message: message as u8 }
    }

    /// The start of the unreadable key or value, in bytes from the start of the message.
    pub const fn position(&self) -> usize {
        self.position
    }

    pub fn reason(&self) -> Reason {
        let mut reasons = Reason::ALL.into_iter();
        reasons.find(|reason| *reason as u8 == self.reason).expect("made of a reason, and ALL has them all")
    }

    /// The OTLP message that was being read.
    pub fn message(&self) -> OtlpMessage {
        let mut messages = OtlpMessage::ALL.into_iter();
        messages
            .find(|message| *message as u8 == self.message)
            .expect("made of a message, and ALL has them all")
    }

    /// What the message probably is. Logs have the time of a record as field 1, and its severity as field 2. Metrics have a sum as
    /// field 7, where a span has its start.
    fn hint(&self) -> &'static str {
        match (self.reason(), self.message(), self.field) {
            (Reason::WireTypeWrong, OtlpMessage::Span, 1) => {
                "; log records have their time in this field, so these are probably log records"
            }
            (Reason::WireTypeWrong, OtlpMessage::Span, _) => {
                "; this occurs when metrics or logs are read as spans"
            }
            _ => "",
        }
    }

    /// The number of the field in [`Self::message`] that was being read, from 1; 0 if its key could not be read.
    pub const fn field(&self) -> u32 {
        self.field
    }
}

/// Why a message is [`Malformed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A key, value or group runs past the end of the enclosing message.
    Truncated,
    /// A varint is longer than 10 bytes, or its value than 64 bits.
    VarintTooLong,
    /// A key is longer than 32 bits.
    KeyTooLong,
    /// A key names field 0.
    FieldNumberZero,
    /// A key has wire type 6 or 7, which are invalid.
    WireTypeUnknown,
    /// A field of the schema has another wire type than the schema's.
    WireTypeWrong,
    /// The end of a group that was not started.
    GroupNotOpen,
    /// Messages are nested deeper than [`crate::NESTING_DEPTH_MAX`].
    NestedTooDeep,
    /// A span has no trace id or no span id.
    IdMissing,
    /// An id has another length than 16 bytes for a trace and 8 for a span.
    IdLengthWrong,
    /// An id is text: its bytes in hex or in base64.
    IdIsText,
    /// An id is the base64 decoding of its hex digits.
    IdDecodedWrongly,
    /// A span has the data of a gauge in place of its name, and no start: it is a metric.
    Metric,
    /// The message has fields, but no `resource_spans`.
    NotTraces,
    /// Spans in a field that OTLP removed.
    Superseded,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 15] = [
        Self::Truncated,
        Self::VarintTooLong,
        Self::KeyTooLong,
        Self::FieldNumberZero,
        Self::WireTypeUnknown,
        Self::WireTypeWrong,
        Self::GroupNotOpen,
        Self::NestedTooDeep,
        Self::IdMissing,
        Self::IdLengthWrong,
        Self::IdIsText,
        Self::IdDecodedWrongly,
        Self::Metric,
        Self::NotTraces,
        Self::Superseded,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Truncated => "runs past the end of the enclosing message",
            Self::VarintTooLong => "a varint is longer than 64 bits",
            Self::KeyTooLong => "a key is longer than 32 bits",
            Self::FieldNumberZero => "the field number is 0",
            Self::WireTypeUnknown => "the wire type is unknown",
            Self::WireTypeWrong => "the wire type does not match the field",
            Self::GroupNotOpen => "the end of a group that was not started",
            Self::NestedTooDeep => "messages are nested too deep",
            Self::IdMissing => "a span needs this id; it is missing when metrics or logs are read as spans",
            Self::IdLengthWrong => {
                "a trace id has 16 bytes and a span id 8; other lengths occur when metrics or logs are read as spans"
            }
            Self::IdIsText => "an id is hex or base64 text; protobuf needs raw bytes, 16 for a trace and 8 for a span",
            Self::IdDecodedWrongly => {
                "an id is hex digits decoded as base64; a producer that reads OTLP/JSON must decode ids as hex"
            }
            Self::Metric => "the data of a gauge are where a span has its name: the message has metrics",
            Self::NotTraces => "the message has only other fields, so it is not a trace message",
            Self::Superseded => "OTLP removed this field; spans are read from scope_spans",
        })
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "malformed OTLP at byte {}, {}", self.position, self.message().name())?;
        match (self.message().field_name(self.field), self.field) {
            (Some(name), _) => write!(formatter, ".{name}")?,
            (None, 0) => {}
            (None, number) => write!(formatter, " field {number}")?,
        }
        write!(formatter, ": {}{}", self.reason(), self.hint())
    }
}

impl fmt::Debug for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Malformed")
            .field("position", &self.position)
            .field("reason", &self.reason())
            .field("message", &self.message())
            .field("field", &self.field)
            .finish()
    }
}

impl Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_where_and_why() {
        let told = |field| Malformed::new(7, Reason::Truncated, OtlpMessage::Span, field).to_string();
        assert_eq!(
            told(5),
            "malformed OTLP at byte 7, Span.name: runs past the end of the enclosing message"
        );
        assert_eq!(
            told(99),
            "malformed OTLP at byte 7, Span field 99: runs past the end of the enclosing message"
        );
        assert_eq!(told(0), "malformed OTLP at byte 7, Span: runs past the end of the enclosing message");
    }

    #[test]
    fn an_id_as_text_names_the_id_and_what_protobuf_has() {
        let told = Malformed::new(9, Reason::IdIsText, OtlpMessage::Span, 1).to_string();
        assert_eq!(
            told,
            "malformed OTLP at byte 9, Span.trace_id: an id is hex or base64 text; protobuf needs raw bytes, 16 for a trace and 8 for a span"
        );
    }

    #[test]
    fn a_wrong_wire_type_in_a_span_names_what_the_message_may_be() {
        let told = |message, field| Malformed::new(9, Reason::WireTypeWrong, message, field).to_string();
        assert_eq!(
            told(OtlpMessage::Span, 1),
            "malformed OTLP at byte 9, Span.trace_id: the wire type does not match the field; log records have their time in this field, \
             so these are probably log records"
        );
        assert!(told(OtlpMessage::Span, 7).ends_with("when metrics or logs are read as spans"));
        assert!(told(OtlpMessage::Event, 1).ends_with("the wire type does not match the field"));
    }

    #[test]
    fn it_gives_back_what_it_was_made_of() {
        for reason in Reason::ALL {
            for message in OtlpMessage::ALL {
                let malformed = Malformed::new(1, reason, message, 2);
                assert_eq!((malformed.reason(), malformed.message()), (reason, message));
            }
        }
    }

    #[test]
    fn a_result_is_not_packed_into_the_error() {
        assert!(size_of::<Result<(), Malformed>>() > size_of::<Malformed>());
    }
}
