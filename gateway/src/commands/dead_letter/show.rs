//! Prints everything in a letter: its headers, and its value as far as it can be read.

use super::{Error, Found, Use, list, span_text};
use crate::reading::framing;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sluice_gateway_config::Format;
use sluice_kafka::{Headers as _, Message as _, OwnedMessage};
use std::{fmt::Write as _, io::Write};

/// Bytes of a value that are printed. Chosen: a screenful; `--json` prints all of it.
const PRINTED_BYTES_MAX: usize = 4_096;

/// Bytes per line of a value that is not text.
const LINE_BYTES: usize = 16;

pub(super) struct Show {
    pub json: bool,
}

impl Use for Show {
    fn letter(&mut self, letter: &Found, out: &mut dyn Write) -> Result<(), Error> {
        let text = if self.json { format!("{}\n", object(letter)) } else { text(letter) };
        out.write_all(text.as_bytes()).map_err(Error::Write)
    }
}

fn object(letter: &Found) -> Value {
    let mut object = list::object(letter);
    let headers: Vec<Value> = headers(&letter.message)
        .map(|(name, value)| json!({"name": name, "value": value.map(printable)}))
        .collect();
    object["headers"] = Value::Array(headers);
    object["key"] = json!(letter.message.key().map(printable));
    object["valueBase64"] = json!(letter.message.payload().map(|value| BASE64_STANDARD.encode(value)));
    if letter.head.format == Some(Format::OtlpProto) {
        object["decoded"] = json!(letter.message.payload().map(decoded));
    }
    object
}

fn text(letter: &Found) -> String {
    let mut text = format!("letter {} about {}\n", letter.place(), letter.about());
    let mut line = |name: &str, value: &str| {
        writeln!(text, "  {name:<28} {value}").expect("writing to a String cannot fail");
    };
    if let Some(key) = letter.message.key() {
        line("key", &printable(key));
    }
    for (name, value) in headers(&letter.message) {
        line(name, &value.map_or("null".to_owned(), printable));
    }
    text.push_str(&value(letter));
    text.push('\n');
    text
}

fn value(letter: &Found) -> String {
    match (letter.message.payload(), letter.head.format) {
        (None, _) => match letter.head.value.as_str() {
            "left-out" => {
                "  the value was left out: it was too large for the topic, or has what attributes.rules or attributes.unreadableLetters keep \
                 out of letters; the source topic has it at the coordinates above\n"
            }
            "gone" => "  Kafka no longer had the message when the letter was written\n",
            _ => "  the message had no value\n",
        }
        .to_owned(),
        (Some(value), Some(Format::OtlpProto)) => {
            let decoded = decoded(value);
            // A value that cannot be read is also printed as bytes.
            let is_read = !decoded.contains("cannot be read");
            if is_read { decoded } else { decoded + not_protobuf(value) + &bytes(value) }
        }
        (Some(value), _) => match std::str::from_utf8(value) {
            Ok(text) => {
                let end =
                    (0..=PRINTED_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
                let end = end.unwrap_or(0);
                format!("  {}{}\n", &text[..end], more(text.len(), end))
            }
            Err(_) => bytes(value),
        },
    }
}

/// A message in protobuf as text, without its frame.
fn decoded(value: &[u8]) -> String {
    span_text::of_message(framing::payload(value, Format::OtlpProto).unwrap_or(value))
}

/// What a value is that is no protobuf: what its producer writes instead.
fn not_protobuf(value: &[u8]) -> &'static str {
    // RFC 1952 and RFC 8878.
    if value.starts_with(&[0x1F, 0x8B]) || value.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]) {
        return "  the value is compressed with gzip or zstd: let the Kafka client compress (compression.type), not the value\n";
    }
    let is_control = |char: char| char.is_control() && !char.is_whitespace();
    let Some(text) = std::str::from_utf8(value).ok().filter(|text| !text.contains(is_control)) else {
        return "";
    };
    match text.trim_start().chars().next() {
        None => "",
        Some('{' | '[') => {
            "  the value looks like JSON: if the producer writes OTLP in JSON, set source.kafka.format: OtlpJson\n"
        }
        Some(_) => {
            "  the value is text, neither protobuf nor JSON of OTLP: check what writes to this topic\n"
        }
    }
}

/// Bytes in lines, as hexadecimal digits and as text.
fn bytes(value: &[u8]) -> String {
    let printed = &value[..value.len().min(PRINTED_BYTES_MAX)];
    let mut text = String::new();
    for (number, line) in printed.chunks(LINE_BYTES).enumerate() {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' };
        let shown: String = line.iter().map(shown).collect();
        let at = number * LINE_BYTES;
        let width = 3 * LINE_BYTES;
        writeln!(text, "  {at:08x}  {:<width$} {shown}", digits.join(" "))
            .expect("writing to a String cannot fail");
    }
    text + &more(value.len(), printed.len())
}

fn more(all: usize, printed: usize) -> String {
    if all > printed {
        format!("  … {} bytes more (--json prints all)\n", all - printed)
    } else {
        String::new()
    }
}

/// Name and value of every header.
fn headers(message: &OwnedMessage) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
    message.headers().into_iter().flat_map(|headers| headers.iter().map(|header| (header.key, header.value)))
}

/// Text unchanged, other bytes escaped.
fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_rows() {
        assert_eq!(
            bytes(b"\x0a\x00span \xff and more"),
            "  00000000  0a 00 73 70 61 6e 20 ff 20 61 6e 64 20 6d 6f 72  ..span...and.mor\n  \
             00000010  65                                               e\n"
        );
        let long = bytes(&[7; PRINTED_BYTES_MAX + 1]);
        assert!(long.ends_with("  … 1 bytes more (--json prints all)\n"), "{long}");
    }

    #[test]
    fn a_value_that_is_text_is_told() {
        for (value, words) in [
            (b"hello world".as_slice(), "is text, neither protobuf nor JSON"),
            (b" {\"resourceSpans\":[]}", "looks like JSON"),
            (b"\x0a\x00span", ""),
            (b"\xff\xfe", ""),
            (b"\x1f\x8b\x08", "is compressed with gzip or zstd"),
            (b"", ""),
        ] {
            let told = not_protobuf(value);
            assert!(told.contains(words) && told.is_empty() == words.is_empty(), "{told}");
        }
    }

    #[test]
    fn what_is_no_text_is_escaped() {
        assert_eq!(printable("tenant ä".as_bytes()), "tenant ä");
        assert_eq!(printable(b"\xff\n"), "\\xff\\n");
    }
}
