//! A letter in a log: the key, headers and value of the message that it would be in a topic. Reading is total.
//!
//! | bytes | field |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 4 | number of headers, little-endian, as all numbers |
//! | | of each header its name as a text, and its value |
//! | | key |
//! | | value |
//!
//! A text is its length in 4 bytes, then its bytes. Value and key are a text whose length is one more, or 0 without one.

use rdkafka::message::{Header, Headers as _, OwnedHeaders, OwnedMessage, Timestamp};

/// Stands for the topic of letters in a log.
pub const STORED_TOPIC: &str = "dead-letters";

const VERSION: u8 = 1;

/// Headers of a letter. Chosen: more than any client sends; a damaged number must not take memory.
const HEADERS_MAX: usize = 65_536;

pub(super) fn encode(key: Option<&[u8]>, headers: &OwnedHeaders, value: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    let count = u32::try_from(headers.count()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&count.to_le_bytes());
    for header in headers.iter() {
        put(&mut bytes, header.key.as_bytes(), 0);
        put_optional(&mut bytes, header.value);
    }
    put_optional(&mut bytes, key);
    put_optional(&mut bytes, value);
    bytes
}

fn put(bytes: &mut Vec<u8>, text: &[u8], more: u32) {
    let len = u32::try_from(text.len()).expect("a letter has at most LETTER_BYTES_MAX bytes");
    bytes.extend_from_slice(&len.saturating_add(more).to_le_bytes());
    bytes.extend_from_slice(text);
}

fn put_optional(bytes: &mut Vec<u8>, text: Option<&[u8]>) {
    match text {
        Some(text) => put(bytes, text, 1),
        None => bytes.extend_from_slice(&0_u32.to_le_bytes()),
    }
}

/// Reads a letter of a log, as a message of a topic. `None` for anything else.
pub fn read_stored(mut bytes: &[u8], offset: i64, appended_ms: i64) -> Option<OwnedMessage> {
    let from = &mut bytes;
    let version = from.split_off_first()?;
    let count = usize::try_from(number(from)?).ok().filter(|count| *count <= HEADERS_MAX)?;
    if *version != VERSION {
        return None;
    }
    let mut headers = OwnedHeaders::new();
    for _ in 0..count {
        let len = usize::try_from(number(from)?).ok()?;
        let key = std::str::from_utf8(from.split_off(..len)?).ok()?;
        headers = headers.insert(Header { key, value: Text::read(from)?.bytes() });
    }
    let (key, value) = (Text::read(from)?.bytes(), Text::read(from)?.bytes());
    let timestamp = Timestamp::CreateTime(appended_ms);
    let is_all = from.is_empty();
    is_all.then(|| {
        let (key, value) = (key.map(<[u8]>::to_vec), value.map(<[u8]>::to_vec));
        OwnedMessage::new(value, key, STORED_TOPIC.to_owned(), timestamp, 0, offset, Some(headers))
    })
}

fn number(from: &mut &[u8]) -> Option<u32> {
    let (bytes, rest) = from.split_first_chunk::<4>()?;
    *from = rest;
    Some(u32::from_le_bytes(*bytes))
}

/// A text that may be missing.
enum Text<'a> {
    Missing,
    There(&'a [u8]),
}

impl<'a> Text<'a> {
    fn read(from: &mut &'a [u8]) -> Option<Self> {
        Some(match number(from)?.checked_sub(1) {
            None => Self::Missing,
            Some(len) => Self::There(from.split_off(..usize::try_from(len).ok()?)?),
        })
    }

    fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Missing => None,
            Self::There(bytes) => Some(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::message::Message as _;

    #[test]
    fn a_letter_is_read_as_it_is_written_and_in_part_it_is_none() {
        let headers = OwnedHeaders::new()
            .insert(Header { key: "a", value: Some("1") })
            .insert(Header { key: "null", value: None::<&str> });
        for (key, value) in [(None, Some(&b"value"[..])), (Some(&b"key"[..]), None), (Some(b""), Some(b""))] {
            let bytes = encode(key, &headers, value);
            let read = read_stored(&bytes, 7, 1_000).unwrap();
            assert_eq!((read.key(), read.payload(), read.offset()), (key, value, 7));
            let names: Vec<_> =
                read.headers().unwrap().iter().map(|header| (header.key, header.value)).collect();
            assert_eq!(names, [("a", Some(&b"1"[..])), ("null", None)]);
            for len in 0..bytes.len() {
                assert!(read_stored(&bytes[..len], 7, 0).is_none(), "{len}");
            }
            let mut more = bytes.clone();
            more.push(0);
            assert!(read_stored(&more, 7, 0).is_none());
        }
    }
}
