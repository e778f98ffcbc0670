//! The one error of this package: why a text cannot be read, and where.

/// The message is not OTLP/JSON, or is truncated.
///
/// Reading it again gives the same result: the caller rejects the message and never retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed OTLP/JSON at byte {position}: {reason}")]
pub struct Malformed {
    position: usize,
    reason: Reason,
}

impl Malformed {
    pub(crate) const fn new(position: usize, reason: Reason) -> Self {
        Self { position, reason }
    }

    /// How far the text was read, in bytes from the start of the message: up to the end of the unreadable value, or to the unreadable
    /// character.
    pub const fn position(&self) -> usize {
        self.position
    }

    pub const fn reason(&self) -> Reason {
        self.reason
    }
}

/// Why a message is [`Malformed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// It is longer than the rewriter was created for.
    #[error("the message exceeds the maximum size")]
    TooLong,
    /// Bytes that are not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// An unescaped control character in a string.
    #[error("an unescaped control character in a string")]
    ControlCharacter,
    /// Not JSON, or more text after it.
    #[error("not JSON")]
    NotJson,
    /// A number of JSON that no double holds.
    #[error("a number beyond the range of a double, which ends at 1.8e308")]
    NumberOutOfRange,
    /// The text ends within a value.
    #[error("the text ends within a value")]
    Truncated,
    /// A value of another JSON type than the field's.
    #[error("a value of the wrong type")]
    TypeWrong,
    /// A string in place of a number that is not one.
    #[error("a string that is not a number")]
    NotANumber,
    /// An integer that does not fit the field, or is not whole.
    #[error("a number that does not fit the field")]
    NumberDoesNotFit,
    /// An id that is not hex, or has the wrong length.
    #[error("{id} is not {digits} hex digits")]
    IdWrong {
        /// The field of the id.
        id: &'static str,
        /// The digits that it must have.
        digits: u8,
    },
    /// A span without a trace id or without a span id.
    #[error("a span without traceId or spanId")]
    IdMissing,
    /// A span whose name is the data of a gauge in protobuf: it would be read as a metric.
    #[error("a name that is the data of a gauge in protobuf, in a span without startTimeUnixNano")]
    Metric,
    /// An object that has members, but no `resourceSpans`.
    #[error(
        "an object without resourceSpans is not a trace message; metrics, logs and parts of messages are rejected"
    )]
    NotTraces,
    /// Spans in a member that OTLP removed.
    #[error("OTLP removed instrumentationLibrarySpans; spans are read from scopeSpans")]
    Superseded,
    /// Bytes that are not base64.
    #[error("bytes that are not base64")]
    NotBase64,
    /// Messages are nested deeper than [`sluice_otlp::NESTING_DEPTH_MAX`].
    #[error("messages are nested too deep")]
    NestedTooDeep,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_where_and_why() {
        let told = Malformed::new(7, Reason::IdWrong { id: "spanId", digits: 16 }).to_string();
        assert_eq!(told, "malformed OTLP/JSON at byte 7: spanId is not 16 hex digits");
    }
}
