//! The headers of a letter. The table is in [`crate::dead_letter`].

use rdkafka::message::Headers;
use sluice_gateway_config::Format;

/// The version of the format that is written, and the only one that is read.
pub(super) const VERSION: &str = "1";

const PREFIX: &str = "sluice.dev/";
pub(super) const LETTER: &str = "sluice.dev/letter";
pub(super) const TOPIC: &str = "sluice.dev/topic";
pub(super) const PARTITION: &str = "sluice.dev/partition";
pub(super) const OFFSET: &str = "sluice.dev/offset";
pub(super) const ROW: &str = "sluice.dev/row";
pub(super) const REASON: &str = "sluice.dev/reason";
pub(super) const TEXT: &str = "sluice.dev/text";
pub(super) const CODE: &str = "sluice.dev/code";
pub(super) const GATEWAY_VERSION: &str = "sluice.dev/gateway-version";
pub(super) const TIMESTAMP: &str = "sluice.dev/timestamp";
pub(super) const VALUE: &str = "sluice.dev/value";
pub(super) const VALUE_BYTES: &str = "sluice.dev/value-bytes";
pub(super) const FORMAT: &str = "sluice.dev/format";
pub(super) const HEADERS: &str = "sluice.dev/headers";

/// The header of a replayed message: the letter's topic, partition and offset.
pub const REPLAYED: &str = "sluice.dev/replayed";

pub(super) const MESSAGE: &str = "message";
pub(super) const SPAN: &str = "span";
pub(super) const NULL: &str = "null";
pub(super) const GONE: &str = "gone";
pub(super) const LEFT_OUT: &str = "left-out";

/// Whether a header only holds for a letter, and is not copied to a new one.
pub fn is_own(name: &str) -> bool {
    name.starts_with(PREFIX) && name != REPLAYED
}

/// The name of a format, as the config writes it.
pub(super) fn format_name(format: Format) -> &'static str {
    match format {
        Format::OtlpProto => "OtlpProto",
        Format::OtlpJson => "OtlpJson",
    }
}

/// What a letter is about. Letters with equal coordinates and equal values are duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coordinates {
    /// The topic that the original was read from.
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    /// Which span of the message; none for a whole message.
    pub row: Option<u64>,
}

/// The content of a letter's headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The original's coordinates.
    pub coordinates: Coordinates,
    /// Why, from a closed list.
    pub reason: String,
    /// Why, in words.
    pub text: String,
    /// ClickHouse's code.
    pub code: Option<u32>,
    /// The program that wrote it.
    pub gateway_version: String,
    /// The original's timestamp, ms since 1970.
    pub timestamp_millis: Option<i64>,
    /// What the value is: `message`, `span`, `null`, `left-out`, `gone`.
    pub value: String,
    /// Size of what the value is or would be, in bytes.
    pub value_bytes: Option<u64>,
    /// How the value is encoded; none if the format is unknown here.
    pub format: Option<Format>,
}

/// Why a message of a dead-letter topic is not a letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotALetter {
    /// It has no letter header.
    #[error("it has no header {LETTER}")]
    Unmarked,
    /// Its format version is another one.
    #[error("it is a dead letter of format version {0:?}; this program reads version {VERSION}")]
    Version(String),
    /// A header that every letter has is missing or malformed.
    #[error("its header {0} is missing or cannot be read")]
    Header(&'static str),
}

impl Head {
    /// Reads the headers of a message.
    pub fn read<H: Headers>(headers: &H) -> Result<Self, NotALetter> {
        let text = |name: &str| last(headers, name);
        match text(LETTER) {
            None => return Err(NotALetter::Unmarked),
            Some(version) if version != VERSION => return Err(NotALetter::Version(version)),
            Some(_) => {}
        }
        let required = |name: &'static str| text(name).ok_or(NotALetter::Header(name));
        let coordinates = Coordinates {
            topic: required(TOPIC)?,
            partition: number(&required(PARTITION)?, PARTITION)?,
            offset: number(&required(OFFSET)?, OFFSET)?,
            row: text(ROW).map(|row| number(&row, ROW)).transpose()?,
        };
        Ok(Self {
            coordinates,
            reason: required(REASON)?,
            text: text(TEXT).unwrap_or_default(),
            code: text(CODE).and_then(|code| code.parse().ok()),
            gateway_version: text(GATEWAY_VERSION).unwrap_or_default(),
            timestamp_millis: text(TIMESTAMP).and_then(|millis| millis.parse().ok()),
            value: required(VALUE)?,
            value_bytes: text(VALUE_BYTES).and_then(|bytes| bytes.parse().ok()),
            format: text(FORMAT).and_then(|name| {
                [Format::OtlpProto, Format::OtlpJson].into_iter().find(|format| format_name(*format) == name)
            }),
        })
    }

    /// Whether the letter's value can be produced again: a whole message, or a span of one.
    pub fn has_value(&self) -> bool {
        self.value == MESSAGE || self.value == SPAN
    }
}

/// The last value of a header, as text.
fn last<H: Headers>(headers: &H, name: &str) -> Option<String> {
    let found = (0..headers.count())
        .rev()
        .find_map(|index| headers.try_get(index).filter(|header| header.key == name));
    Some(String::from_utf8_lossy(found?.value?).into_owned())
}

fn number<N: std::str::FromStr>(text: &str, name: &'static str) -> Result<N, NotALetter> {
    text.parse().map_err(|_| NotALetter::Header(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::message::{Header, OwnedHeaders};

    fn headers(entries: &[(&str, &str)]) -> OwnedHeaders {
        let add =
            |all: OwnedHeaders, (key, value): &(&str, &str)| all.insert(Header { key, value: Some(*value) });
        entries.iter().fold(OwnedHeaders::new(), add)
    }

    #[test]
    fn what_is_no_letter_says_why() {
        assert_eq!(Head::read(&headers(&[("a", "b")])), Err(NotALetter::Unmarked));
        assert_eq!(Head::read(&headers(&[(LETTER, "2")])), Err(NotALetter::Version("2".into())));
        assert_eq!(Head::read(&headers(&[(LETTER, "1"), (TOPIC, "t")])), Err(NotALetter::Header(PARTITION)));
        let wrong = [(LETTER, "1"), (TOPIC, "t"), (PARTITION, "0"), (OFFSET, "x")];
        assert_eq!(Head::read(&headers(&wrong)), Err(NotALetter::Header(OFFSET)));
    }

    #[test]
    fn only_the_header_of_a_replay_is_carried_along() {
        assert!(is_own(LETTER) && is_own("sluice.dev/new"));
        assert!(!is_own(REPLAYED) && !is_own("tenant"));
    }
}
