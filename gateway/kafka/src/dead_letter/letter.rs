//! The content of the dead-letter topic.

use crate::dead_letter::{
    LETTER_BYTES_MAX,
    headers::{
        self, CODE, FORMAT, GATEWAY_VERSION, HEADERS, LEFT_OUT, LETTER, OFFSET, PARTITION, REASON, ROW,
    },
    stored,
};
use rdkafka::message::{Header, Headers as _, Message, OwnedHeaders};
use sluice_gateway_config::Format;

/// The longest text of a reason, in bytes. Chosen: ClickHouse's messages are cut at a few hundred characters before.
const TEXT_BYTES_MAX: usize = 1_024;

/// The size of a letter besides key, headers, text and value: header names, numbers, librdkafka's bookkeeping.
const LETTER_OVERHEAD_BYTES: u64 = 1_024;

/// A message, or a span of one, that cannot be delivered.
#[derive(Debug, Clone)]
pub struct Letter<'a> {
    /// The topic that it was read from.
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    /// Which span of the message, from 0 in the order of the walk; none for a whole message.
    pub row: Option<u64>,
    /// Why, from a closed list.
    pub reason: &'static str,
    /// Why, in words. Cut at 1,024 bytes.
    pub text: &'a str,
    /// ClickHouse's exception code, if there is one.
    pub code: Option<u32>,
    /// The original's timestamp, ms since 1970.
    pub timestamp_millis: Option<i64>,
    /// The original's key.
    pub key: Option<&'a [u8]>,
    /// The original's headers.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
    /// The part of the original that is kept.
    pub value: LetterValue<'a>,
}

/// The part of a message that a letter keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterValue<'a> {
    /// The message's value as it was read, in the source's format; none if the message had none.
    Message(Option<&'a [u8]>, Format),
    /// One span of the message, as a protobuf message of its own.
    Span(&'a [u8]),
    /// The message had a value of this many bytes, in this format; it is left out.
    Withheld(u64, Format),
    /// Kafka no longer has the message.
    Gone,
}

impl<'a> Letter<'a> {
    /// A letter for a whole message.
    pub fn of_message<M: Message>(
        message: &'a M,
        format: Format,
        reason: &'static str,
        text: &'a str,
    ) -> Self {
        let headers = message
            .headers()
            .map(|headers| headers.iter().map(|header| (header.key, header.value)).collect());
        Self {
            topic: message.topic(),
            partition: message.partition(),
            offset: message.offset(),
            row: None,
            reason,
            text,
            code: None,
            timestamp_millis: message.timestamp().to_millis(),
            key: message.key(),
            headers: headers.unwrap_or_default(),
            value: LetterValue::Message(message.payload(), format),
        }
    }

    /// The letter for one span of the message, with the span's bytes.
    #[must_use]
    pub fn with_span(self, row: u64, span: &'a [u8]) -> Self {
        Self { row: Some(row), value: LetterValue::Span(span), ..self }
    }

    /// The letter without the message's value, which must not be in it. Its coordinates still point to the message.
    #[must_use]
    pub fn without_value(self) -> Self {
        let value = match self.value {
            LetterValue::Message(Some(value), format) => LetterValue::Withheld(value.len() as u64, format),
            other => other,
        };
        Self { value, ..self }
    }

    /// The letter for the whole message, with these bytes in protobuf in place of its value.
    #[must_use]
    pub fn with_message(self, message: &'a [u8]) -> Self {
        Self { value: LetterValue::Message(Some(message), Format::OtlpProto), ..self }
    }

    /// The letter with ClickHouse's code.
    #[must_use]
    pub fn with_code(self, code: Option<u32>) -> Self {
        Self { code, ..self }
    }

    /// Bytes that it needs on its way, without parts that must be left out.
    pub fn size(&self) -> u64 {
        self.bytes().min(LETTER_BYTES_MAX)
    }

    /// Bytes of the complete letter.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes_without_value() + self.value.bytes().map_or(0, <[u8]>::len) as u64
    }

    fn bytes_without_value(&self) -> u64 {
        let headers: usize =
            self.headers.iter().map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len) + 16).sum();
        let key = self.key.map_or(0, <[u8]>::len);
        let (text, topic) = (self.text.len().min(TEXT_BYTES_MAX), self.topic.len());
        (headers + key + text + topic) as u64 + LETTER_OVERHEAD_BYTES
    }

    /// How much of it fits [`LETTER_BYTES_MAX`].
    pub(super) fn fitting(&self) -> Trim {
        if self.bytes() <= LETTER_BYTES_MAX {
            Trim::All
        } else if self.bytes_without_value() <= LETTER_BYTES_MAX {
            Trim::WithoutValue
        } else {
            Trim::HeadAlone
        }
    }
}

impl<'a> LetterValue<'a> {
    fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Message(value, _) => *value,
            Self::Span(value) => Some(value),
            Self::Withheld(..) | Self::Gone => None,
        }
    }

    /// Size of what the value is or would be.
    fn original_bytes(&self) -> Option<u64> {
        match self {
            Self::Withheld(bytes, _) => Some(*bytes),
            other => other.bytes().map(|value| value.len() as u64),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Message(Some(_), _) => headers::MESSAGE,
            Self::Message(None, _) => headers::NULL,
            Self::Span(_) => headers::SPAN,
            Self::Withheld(..) => LEFT_OUT,
            Self::Gone => headers::GONE,
        }
    }

    fn format(&self) -> Format {
        match self {
            Self::Message(_, format) | Self::Withheld(_, format) => *format,
            Self::Span(_) | Self::Gone => Format::OtlpProto,
        }
    }
}

/// How much of a letter is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trim {
    All,
    WithoutValue,
    /// Without key and headers of the original, too.
    HeadAlone,
}

impl Trim {
    /// The next smaller form, after the topic rejected the letter as too large.
    pub(super) fn less(self) -> Option<Self> {
        match self {
            Self::All => Some(Self::WithoutValue),
            Self::WithoutValue => Some(Self::HeadAlone),
            Self::HeadAlone => None,
        }
    }
}

/// A letter that owns its content, to be sent more than once if needed.
#[derive(Debug)]
pub(super) struct Record {
    /// The topic that the original was read from.
    pub source: String,
    /// The source's partition, which determines the letter's.
    pub source_partition: i32,
    /// The headers about the original.
    head: Vec<(&'static str, String)>,
    /// The kind of value, unless it is left out.
    value_kind: &'static str,
    carried: Vec<(String, Option<Vec<u8>>)>,
    key: Option<Vec<u8>>,
    /// `None` while librdkafka has the value.
    pub value: Option<Vec<u8>>,
    pub kept: Trim,
}

impl Record {
    pub(super) fn of(letter: &Letter<'_>) -> Self {
        let kept = letter.fitting();
        let carried = match kept {
            Trim::HeadAlone => Vec::new(),
            Trim::All | Trim::WithoutValue => carried(letter),
        };
        Self {
            source: letter.topic.to_owned(),
            source_partition: letter.partition,
            head: head(letter),
            value_kind: letter.value.kind(),
            carried,
            key: letter.key.filter(|_| kept != Trim::HeadAlone).map(<[u8]>::to_vec),
            value: letter.value.bytes().filter(|_| kept == Trim::All).map(<[u8]>::to_vec),
            kept,
        }
    }

    /// Sends less of it from now on.
    pub(super) fn trim(&mut self, kept: Trim) {
        self.kept = kept;
        self.value = None;
        if kept == Trim::HeadAlone {
            self.key = None;
            self.carried = Vec::new();
        }
    }

    /// All headers and the key, for a log of letters.
    pub(super) fn stored(&self) -> Vec<u8> {
        stored::encode(self.key(), &self.headers(), self.value.as_deref())
    }

    pub(super) fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// All headers, as Kafka has them.
    pub(super) fn headers(&self) -> OwnedHeaders {
        let all = OwnedHeaders::new_with_capacity(self.head.len() + self.carried.len() + 2);
        let add = |all: OwnedHeaders, (key, value): (&str, Option<&[u8]>)| all.insert(Header { key, value });
        let carried = self.carried.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
        let head = self.head.iter().map(|(name, value)| (*name, Some(value.as_bytes())));
        let all = carried.chain(head).fold(all, add);
        let has_value = self.value_kind == headers::MESSAGE || self.value_kind == headers::SPAN;
        let kind = if has_value && self.kept != Trim::All { LEFT_OUT } else { self.value_kind };
        let all = add(all, (headers::VALUE, Some(kind.as_bytes())));
        if self.kept == Trim::HeadAlone { add(all, (HEADERS, Some(LEFT_OUT.as_bytes()))) } else { all }
    }
}

/// The original's headers, without those that only hold for a letter.
fn carried(letter: &Letter<'_>) -> Vec<(String, Option<Vec<u8>>)> {
    let kept = letter.headers.iter().filter(|(name, _)| !headers::is_own(name));
    kept.map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec))).collect()
}

fn head(letter: &Letter<'_>) -> Vec<(&'static str, String)> {
    let mut head = vec![
        (LETTER, headers::VERSION.to_owned()),
        (headers::TOPIC, letter.topic.to_owned()),
        (PARTITION, letter.partition.to_string()),
        (OFFSET, letter.offset.to_string()),
        (REASON, letter.reason.to_owned()),
        (headers::TEXT, cut(letter.text).to_owned()),
        (GATEWAY_VERSION, env!("CARGO_PKG_VERSION").to_owned()),
        (FORMAT, headers::format_name(letter.value.format()).to_owned()),
    ];
    let optional = [
        (ROW, letter.row.map(|row| row.to_string())),
        (CODE, letter.code.map(|code| code.to_string())),
        (headers::TIMESTAMP, letter.timestamp_millis.map(|millis| millis.to_string())),
        (headers::VALUE_BYTES, letter.value.original_bytes().map(|bytes| bytes.to_string())),
    ];
    head.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    head
}

/// The beginning of a text, whole characters, of at most [`TEXT_BYTES_MAX`].
fn cut(text: &str) -> &str {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letter::{Coordinates, Head};

    pub(crate) fn letter(value: LetterValue<'_>) -> Letter<'_> {
        Letter {
            topic: "spans",
            partition: 3,
            offset: 41,
            row: None,
            reason: "malformed",
            text: "it is not an OTLP trace message",
            code: None,
            timestamp_millis: Some(1_700_000_000_000),
            key: Some(b"key"),
            headers: vec![("tenant", Some(b"a")), ("null", None), ("sluice.dev/row", Some(b"9"))],
            value,
        }
    }

    fn names(headers: &OwnedHeaders) -> Vec<String> {
        headers.iter().map(|header| header.key.to_owned()).collect()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let letter = Letter { row: Some(7), code: Some(117), ..letter(LetterValue::Span(b"span")) };
        let headers = Record::of(&letter).headers();
        let head = Head::read(&headers).unwrap();
        assert_eq!(
            head.coordinates,
            Coordinates { topic: "spans".into(), partition: 3, offset: 41, row: Some(7) }
        );
        assert_eq!((head.reason.as_str(), head.code), ("malformed", Some(117)));
        assert_eq!((head.value.as_str(), head.value_bytes), ("span", Some(4)));
        assert_eq!((head.format, head.timestamp_millis), (Some(Format::OtlpProto), Some(1_700_000_000_000)));
        let names = names(&headers);
        assert!(names.contains(&"tenant".to_owned()) && names.contains(&"null".to_owned()));
        assert_eq!(
            names.iter().filter(|name| *name == "sluice.dev/row").count(),
            1,
            "the original's is dropped"
        );
    }

    #[test]
    fn what_is_too_large_is_left_out_and_its_size_kept() {
        let value = vec![7; 2 << 20];
        let mut record = Record::of(&letter(LetterValue::Message(Some(&value), Format::OtlpJson)));
        assert_eq!((record.kept, record.value.is_none()), (Trim::WithoutValue, true));
        let head = Head::read(&record.headers()).unwrap();
        assert_eq!((head.value.as_str(), head.value_bytes), ("left-out", Some(2 << 20)));
        record.trim(Trim::HeadAlone);
        assert!(record.key().is_none());
        let headers = record.headers();
        assert!(names(&headers).iter().all(|name| name.starts_with("sluice.dev/")));
        assert!(names(&headers).contains(&"sluice.dev/headers".to_owned()));
    }

    #[test]
    fn a_header_as_large_as_a_message_is_left_out_too() {
        let large = vec![b'x'; 2 << 20];
        let letter = Letter { headers: vec![("h", Some(&large))], ..letter(LetterValue::Gone) };
        let record = Record::of(&letter);
        assert_eq!(record.kept, Trim::HeadAlone);
        assert_eq!(Head::read(&record.headers()).unwrap().value, "gone");
    }

    #[test]
    fn a_value_that_must_not_be_in_the_letter_is_left_out_and_its_size_kept() {
        let whole = letter(LetterValue::Message(Some(b"secret"), Format::OtlpJson));
        let record = Record::of(&whole.clone().without_value());
        assert_eq!((record.kept, record.value.is_none(), record.key()), (Trim::All, true, Some(&b"key"[..])));
        let head = Head::read(&record.headers()).unwrap();
        assert_eq!((head.value.as_str(), head.value_bytes, head.has_value()), ("left-out", Some(6), false));
        assert_eq!(head.format, Some(Format::OtlpJson));
        let edited = Record::of(&whole.with_message(b"edited"));
        assert_eq!(edited.value.as_deref(), Some(&b"edited"[..]));
        assert_eq!(Head::read(&edited.headers()).unwrap().format, Some(Format::OtlpProto));
        let none = letter(LetterValue::Message(None, Format::OtlpProto)).without_value();
        assert_eq!(Head::read(&Record::of(&none).headers()).unwrap().value, "null");
    }

    #[test]
    fn a_message_without_a_value_has_none_to_leave_out() {
        let mut record = Record::of(&letter(LetterValue::Message(None, Format::OtlpProto)));
        record.trim(Trim::WithoutValue);
        assert_eq!(Head::read(&record.headers()).unwrap().value, "null");
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let text = format!("{}ö", "x".repeat(TEXT_BYTES_MAX - 1));
        assert_eq!(cut(&text).len(), TEXT_BYTES_MAX - 1);
        assert_eq!(cut("short"), "short");
    }
}
