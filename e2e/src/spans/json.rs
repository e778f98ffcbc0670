//! OTLP/JSON: the same messages as text.
//!
//! Job: turn the bytes of a message into the text that the OTLP specification wants for them, so that every shape, and every odd
//! message of a test, can be produced in both encodings. Place in the flow: behind the shapes. Shares nothing with the gateway's reader.
//! Limits: a text is about three times as long as its bytes. What OTLP/JSON has no words for stays what it is: bytes that are not UTF-8
//! stand in the text, an id has as many digits as it has bytes; a field without a name is called by its number.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>: lowerCamelCase names, ids in hex,
//! enumerations as numbers, 64-bit integers as strings, bytes in base64.

use std::io::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// What the value of a field is.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Id,
    Base64,
    /// An enumeration or a count.
    Number,
    /// A 64-bit integer, which is a string in JSON.
    Int64,
    /// The same without a sign.
    Time,
    Bool,
    Double,
    One(&'static Fields),
    List(&'static Fields),
}

/// Number, name and kind of a field.
type Field = (u64, &'static str, Kind);

/// The fields of a message.
type Fields = [Field];

// Statics, because values hold values, and constants cannot refer to each other in a circle.

static REQUEST: [Field; 1] = [(1, "resourceSpans", Kind::List(&RESOURCE_SPANS))];
static RESOURCE_SPANS: [Field; 3] = [
    (1, "resource", Kind::One(&RESOURCE)),
    (2, "scopeSpans", Kind::List(&SCOPE_SPANS)),
    (3, "schemaUrl", Kind::Text),
];
static RESOURCE: [Field; 1] = [(1, "attributes", Kind::List(&ATTRIBUTE))];
static SCOPE_SPANS: [Field; 3] =
    [(1, "scope", Kind::One(&SCOPE)), (2, "spans", Kind::List(&SPAN)), (3, "schemaUrl", Kind::Text)];
static SCOPE: [Field; 3] =
    [(1, "name", Kind::Text), (2, "version", Kind::Text), (3, "attributes", Kind::List(&ATTRIBUTE))];
static SPAN: [Field; 16] = [
    (1, "traceId", Kind::Id),
    (2, "spanId", Kind::Id),
    (3, "traceState", Kind::Text),
    (4, "parentSpanId", Kind::Id),
    (5, "name", Kind::Text),
    (6, "kind", Kind::Number),
    (7, "startTimeUnixNano", Kind::Time),
    (8, "endTimeUnixNano", Kind::Time),
    (9, "attributes", Kind::List(&ATTRIBUTE)),
    (10, "droppedAttributesCount", Kind::Number),
    (11, "events", Kind::List(&EVENT)),
    (12, "droppedEventsCount", Kind::Number),
    (13, "links", Kind::List(&LINK)),
    (14, "droppedLinksCount", Kind::Number),
    (15, "status", Kind::One(&STATUS)),
    (16, "flags", Kind::Number),
];
static EVENT: [Field; 3] =
    [(1, "timeUnixNano", Kind::Time), (2, "name", Kind::Text), (3, "attributes", Kind::List(&ATTRIBUTE))];
static LINK: [Field; 5] = [
    (1, "traceId", Kind::Id),
    (2, "spanId", Kind::Id),
    (3, "traceState", Kind::Text),
    (4, "attributes", Kind::List(&ATTRIBUTE)),
    (6, "flags", Kind::Number),
];
static STATUS: [Field; 2] = [(2, "message", Kind::Text), (3, "code", Kind::Number)];
static ATTRIBUTE: [Field; 2] = [(1, "key", Kind::Text), (2, "value", Kind::One(&VALUE))];
static VALUE: [Field; 7] = [
    (1, "stringValue", Kind::Text),
    (2, "boolValue", Kind::Bool),
    (3, "intValue", Kind::Int64),
    (4, "doubleValue", Kind::Double),
    (5, "arrayValue", Kind::One(&ARRAY)),
    (6, "kvlistValue", Kind::One(&LIST)),
    (7, "bytesValue", Kind::Base64),
];
static ARRAY: [Field; 1] = [(1, "values", Kind::List(&VALUE))];
static LIST: [Field; 1] = [(1, "values", Kind::List(&ATTRIBUTE))];

/// The text of a message.
pub(super) fn write(message: &[u8], out: &mut Vec<u8>) {
    out.clear();
    object(&REQUEST, message, out);
}

/// A value on the wire.
#[derive(Clone, Copy)]
enum Raw<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn object(fields: &Fields, message: &[u8], out: &mut Vec<u8>) {
    out.push(b'{');
    let mut rest = message;
    let mut open_list = None;
    while let Some((number, raw)) = next(&mut rest) {
        let known = fields.iter().find(|(known, ..)| *known == number).map(|(_, name, kind)| (*name, *kind));
        if open_list == Some(number) {
            out.push(b',');
        } else {
            end_list(&mut open_list, out);
            if !out.ends_with(b"{") {
                out.push(b',');
            }
            match known {
                Some((name, _)) => put(out, format_args!("\"{name}\":")),
                None => put(out, format_args!("\"field{number}\":")),
            }
            if let Some((_, Kind::List(_))) = known {
                out.push(b'[');
                open_list = Some(number);
            }
        }
        value(known.map_or(unnamed(raw), |(_, kind)| kind), raw, out);
    }
    end_list(&mut open_list, out);
    out.push(b'}');
}

/// What a field without a name is taken for.
fn unnamed(raw: Raw<'_>) -> Kind {
    match raw {
        Raw::Number(_) => Kind::Number,
        Raw::Bytes(_) => Kind::Base64,
    }
}

/// Elements of a list stand next to each other, as the generator writes them.
fn end_list(open_list: &mut Option<u64>, out: &mut Vec<u8>) {
    if open_list.take().is_some() {
        out.push(b']');
    }
}

fn value(kind: Kind, raw: Raw<'_>, out: &mut Vec<u8>) {
    match (kind, raw) {
        (Kind::One(fields) | Kind::List(fields), Raw::Bytes(message)) => object(fields, message, out),
        (Kind::Text, Raw::Bytes(text)) => quoted(text, out),
        (Kind::Id, Raw::Bytes(id)) => {
            out.push(b'"');
            for byte in id {
                put(out, format_args!("{byte:02x}"));
            }
            out.push(b'"');
        }
        (Kind::Base64, Raw::Bytes(bytes)) => {
            put(out, format_args!("\"{}\"", BASE64_STANDARD.encode(bytes)));
        }
        // An enumeration may be below zero.
        (Kind::Number, Raw::Number(number)) => put(out, format_args!("{}", number.cast_signed())),
        (Kind::Int64, Raw::Number(number)) => put(out, format_args!("\"{}\"", number.cast_signed())),
        (Kind::Time, Raw::Number(number)) => put(out, format_args!("\"{number}\"")),
        (Kind::Bool, Raw::Number(number)) => put(out, format_args!("{}", number != 0)),
        (Kind::Double, Raw::Number(bits)) => double(f64::from_bits(bits), out),
        _ => panic!("fields are in their wire type"),
    }
}

fn double(number: f64, out: &mut Vec<u8>) {
    match number {
        _ if number.is_nan() => out.extend(b"\"NaN\""),
        f64::INFINITY => out.extend(b"\"Infinity\""),
        f64::NEG_INFINITY => out.extend(b"\"-Infinity\""),
        // Debug writes the shortest text that is read back as the same number.
        _ => put(out, format_args!("{number:?}")),
    }
}

fn quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            ..b' ' => put(out, format_args!("\\u{byte:04x}")),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

fn put(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a vector takes every byte");
}

/// The number and the value of the next field, of whatever wire type.
fn next<'a>(rest: &mut &'a [u8]) -> Option<(u64, Raw<'a>)> {
    if rest.is_empty() {
        return None;
    }
    let key = varint(rest);
    let raw = match key & 7 {
        0 => Raw::Number(varint(rest)),
        1 => Raw::Number(u64::from_le_bytes(take(rest, 8).try_into().expect("eight bytes were taken"))),
        5 => Raw::Number(u32::from_le_bytes(take(rest, 4).try_into().expect("four bytes were taken")).into()),
        _ => {
            let length = usize::try_from(varint(rest)).expect("a length fits memory");
            Raw::Bytes(take(rest, length))
        }
    };
    Some((key >> 3, raw))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, behind) = rest.split_at(length);
    *rest = behind;
    taken
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first().expect("a varint ends before its message");
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::super::{Encoding, Generator, Run, Shape};

    #[test]
    fn a_numbered_span_is_written_as_the_specification_wants() {
        let run = Run { id: 0xAB, start_ns: 1_700_000_000_000_000_000 };
        let mut generator = Generator::new(Shape::Numbered, run).encoded_as(Encoding::OtlpJson);
        let text: serde_json::Value = serde_json::from_slice(generator.message(1..2)).unwrap();
        let span = &text["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(span["traceId"], "00000000000000ab0000000000000000");
        assert_eq!((&span["spanId"], &span["kind"]), (&"0000000000000002".into(), &1.into()));
        assert_eq!(span["startTimeUnixNano"], "1700000000000001003");
        let attributes = span["attributes"].as_array().unwrap();
        let value =
            |key: &str| &attributes.iter().find(|attribute| attribute["key"] == key).unwrap()["value"];
        assert_eq!(value("sluice.seq")["intValue"], "1");
        assert_eq!(value("flag")["boolValue"], false);
        assert_eq!(value("ratio")["doubleValue"], "NaN");
        assert_eq!(value("raw")["bytesValue"], "/w==");
        assert_eq!(value("list.mixed")["arrayValue"]["values"][1]["stringValue"], "x");
        assert_eq!(value("empty").as_object().unwrap().len(), 0);
    }

    #[test]
    fn every_shape_is_json() {
        let run = Run { id: 1, start_ns: 1_700_000_000_000_000_000 };
        for shape in [Shape::Numbered, Shape::Rich, Shape::Loadgen] {
            let mut generator = Generator::new(shape, run).encoded_as(Encoding::OtlpJson);
            let text: serde_json::Value = serde_json::from_slice(generator.message(0..200)).unwrap();
            let resources = text["resourceSpans"].as_array().unwrap().iter();
            let scopes = resources.flat_map(|it| it["scopeSpans"].as_array().unwrap());
            assert_eq!(
                scopes.map(|it| it["spans"].as_array().unwrap().len()).sum::<usize>(),
                200,
                "{shape:?}"
            );
        }
    }
}
