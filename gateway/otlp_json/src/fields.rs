//! The fields that are read: their names in JSON, their keys on the wire, the types of their values.
//!
//! Source: opentelemetry-proto 1.x, as in `sluice_otlp`'s table of fields. Only fields that the walk passes to its sink are listed.
//! Others are skipped like unknown names, except for spans in a field that OTLP removed. All keys take one byte but that of
//! `Span.flags`, which is field 16.

use sluice_otlp::OtlpMessage;

/// `Span.trace_id` on the wire.
pub(crate) const TRACE_ID: u8 = bytes(1, Kind::RequiredId(16, "traceId")).key;

/// `Span.start_time_unix_nano` on the wire. No other message has a time in this field.
pub(crate) const START_TIME: u8 = eight_bytes(7, Kind::Fixed64).key;

/// `AnyValue.double_value` on the wire.
pub(crate) const DOUBLE_VALUE: u8 = eight_bytes(4, Kind::Double).key;

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    /// Number and wire type, as they stand on the wire, where a key from 128 on takes two bytes.
    pub(crate) key: u8,
    pub(crate) kind: Kind,
}

/// The type of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A `string`.
    Text,
    /// `bytes` written as hex, of this many bytes, or empty; and its name in errors.
    Id(u8, &'static str),
    /// A required id of a span, of this many bytes; and its name in errors.
    RequiredId(u8, &'static str),
    /// `bytes` written as base64.
    Bytes,
    /// An enumeration with these names, of 0 and up.
    Enumeration(&'static [&'static str]),
    /// A `fixed64`: a time. One that does not fit becomes the nearest that does.
    Fixed64,
    /// The `int64` of an `AnyValue`. A number that does not fit becomes a double there.
    Int64,
    /// A `double`.
    Double,
    /// A `bool`.
    Bool,
    /// A `uint32`. It is a note beside the span: a value that is none is skipped, like an unknown name.
    Count,
    /// A `fixed32`; a value that is none is skipped, too.
    Flags,
    /// A message.
    One(OtlpMessage),
    /// A repeated message.
    List(OtlpMessage),
    /// A repeated message that OTLP removed. It may be empty.
    Superseded,
}

const SPAN_KINDS: &[&str] = &[
    "SPAN_KIND_UNSPECIFIED",
    "SPAN_KIND_INTERNAL",
    "SPAN_KIND_SERVER",
    "SPAN_KIND_CLIENT",
    "SPAN_KIND_PRODUCER",
    "SPAN_KIND_CONSUMER",
];
const STATUS_CODES: &[&str] = &["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"];

const fn varint(number: u8, kind: Kind) -> Field {
    Field { key: number << 3, kind }
}

const fn eight_bytes(number: u8, kind: Kind) -> Field {
    Field { key: number << 3 | 1, kind }
}

const fn bytes(number: u8, kind: Kind) -> Field {
    Field { key: number << 3 | 2, kind }
}

const fn four_bytes(number: u8, kind: Kind) -> Field {
    Field { key: number << 3 | 5, kind }
}

/// The field with this name, if it is read. A name with a lone surrogate is unknown, so any bytes are allowed.
pub(crate) fn field(of: OtlpMessage, name: &[u8]) -> Option<Field> {
    use OtlpMessage as M;
    match of {
        M::Span => span(name),
        M::KeyValue => key_value(name),
        M::AnyValue => any_value(name),
        M::Event => event(name),
        M::Link => link(name),
        M::Status => status(name),
        M::InstrumentationScope => scope(name),
        M::TracesData => {
            one_name(name, (b"resourceSpans", b"resource_spans"), bytes(1, Kind::List(M::ResourceSpans)))
        }
        M::ResourceSpans => match name {
            b"resource" => Some(bytes(1, Kind::One(M::Resource))),
            b"scopeSpans" | b"scope_spans" => Some(bytes(2, Kind::List(M::ScopeSpans))),
            b"schemaUrl" | b"schema_url" => Some(bytes(3, Kind::Text)),
            // Skipping it would silently lose its spans. Nothing is written.
            b"instrumentationLibrarySpans" | b"instrumentation_library_spans" => {
                Some(Field { key: 0, kind: Kind::Superseded })
            }
            _ => None,
        },
        M::ScopeSpans => match name {
            b"scope" => Some(bytes(1, Kind::One(M::InstrumentationScope))),
            b"spans" => Some(bytes(2, Kind::List(M::Span))),
            b"schemaUrl" | b"schema_url" => Some(bytes(3, Kind::Text)),
            _ => None,
        },
        M::Resource => match name {
            b"attributes" => Some(bytes(1, Kind::List(M::KeyValue))),
            b"droppedAttributesCount" | b"dropped_attributes_count" => Some(varint(2, Kind::Count)),
            _ => None,
        },
        M::ArrayValue => one_name(name, (b"values", b"values"), bytes(1, Kind::List(M::AnyValue))),
        M::KeyValueList => one_name(name, (b"values", b"values"), bytes(1, Kind::List(M::KeyValue))),
        _ => None,
    }
}

fn one_name<const N: usize, const M: usize>(
    name: &[u8],
    names: (&[u8; N], &[u8; M]),
    field: Field,
) -> Option<Field> {
    (name == names.0 || name == names.1).then_some(field)
}

fn span(name: &[u8]) -> Option<Field> {
    use OtlpMessage as M;
    Some(match name {
        b"traceId" | b"trace_id" => bytes(1, Kind::RequiredId(16, "traceId")),
        b"spanId" | b"span_id" => bytes(2, Kind::RequiredId(8, "spanId")),
        b"traceState" | b"trace_state" => bytes(3, Kind::Text),
        b"parentSpanId" | b"parent_span_id" => bytes(4, Kind::Id(8, "parentSpanId")),
        b"name" => bytes(5, Kind::Text),
        b"kind" => varint(6, Kind::Enumeration(SPAN_KINDS)),
        b"startTimeUnixNano" | b"start_time_unix_nano" => eight_bytes(7, Kind::Fixed64),
        b"endTimeUnixNano" | b"end_time_unix_nano" => eight_bytes(8, Kind::Fixed64),
        b"attributes" => bytes(9, Kind::List(M::KeyValue)),
        b"events" => bytes(11, Kind::List(M::Event)),
        b"links" => bytes(13, Kind::List(M::Link)),
        b"status" => bytes(15, Kind::One(M::Status)),
        b"flags" => four_bytes(16, Kind::Flags),
        b"droppedAttributesCount" | b"dropped_attributes_count" => varint(10, Kind::Count),
        b"droppedEventsCount" | b"dropped_events_count" => varint(12, Kind::Count),
        b"droppedLinksCount" | b"dropped_links_count" => varint(14, Kind::Count),
        _ => return None,
    })
}

fn key_value(name: &[u8]) -> Option<Field> {
    Some(match name {
        b"key" => bytes(1, Kind::Text),
        b"value" => bytes(2, Kind::One(OtlpMessage::AnyValue)),
        _ => return None,
    })
}

fn any_value(name: &[u8]) -> Option<Field> {
    use OtlpMessage as M;
    Some(match name {
        b"stringValue" | b"string_value" => bytes(1, Kind::Text),
        b"boolValue" | b"bool_value" => varint(2, Kind::Bool),
        b"intValue" | b"int_value" => varint(3, Kind::Int64),
        b"doubleValue" | b"double_value" => eight_bytes(4, Kind::Double),
        b"arrayValue" | b"array_value" => bytes(5, Kind::One(M::ArrayValue)),
        b"kvlistValue" | b"kvlist_value" => bytes(6, Kind::One(M::KeyValueList)),
        b"bytesValue" | b"bytes_value" => bytes(7, Kind::Bytes),
        _ => return None,
    })
}

fn event(name: &[u8]) -> Option<Field> {
    Some(match name {
        b"timeUnixNano" | b"time_unix_nano" => eight_bytes(1, Kind::Fixed64),
        b"name" => bytes(2, Kind::Text),
        b"attributes" => bytes(3, Kind::List(OtlpMessage::KeyValue)),
        _ => return None,
    })
}

fn link(name: &[u8]) -> Option<Field> {
    Some(match name {
        b"traceId" | b"trace_id" => bytes(1, Kind::Id(16, "traceId of a link")),
        b"spanId" | b"span_id" => bytes(2, Kind::Id(8, "spanId of a link")),
        b"traceState" | b"trace_state" => bytes(3, Kind::Text),
        b"attributes" => bytes(4, Kind::List(OtlpMessage::KeyValue)),
        _ => return None,
    })
}

fn status(name: &[u8]) -> Option<Field> {
    Some(match name {
        b"message" => bytes(2, Kind::Text),
        b"code" => varint(3, Kind::Enumeration(STATUS_CODES)),
        _ => return None,
    })
}

fn scope(name: &[u8]) -> Option<Field> {
    Some(match name {
        b"name" => bytes(1, Kind::Text),
        b"version" => bytes(2, Kind::Text),
        b"attributes" => bytes(3, Kind::List(OtlpMessage::KeyValue)),
        b"droppedAttributesCount" | b"dropped_attributes_count" => varint(4, Kind::Count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use OtlpMessage as M;

    /// lowerCamelCase, as `ProtoJSON` derives it from the name in the schema.
    fn camel(name: &str) -> String {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |camel, word| camel + &word[..1].to_uppercase() + &word[1..])
    }

    #[test]
    fn every_name_is_that_of_the_schema_in_both_cases() {
        // The unused numbers, by message.
        let unread: &[(M, &[u32])] = &[
            (M::Resource, &[3]),
            (M::EntityRef, &[1, 2, 3, 4]),
            (M::Event, &[4]),
            (M::Link, &[5, 6]),
            (M::KeyValue, &[3]),
            (M::AnyValue, &[8]),
        ];
        for of in M::ALL {
            let unread =
                unread.iter().find(|(message, _)| *message == of).map_or(&[][..], |(_, unread)| unread);
            for number in 1..20 {
                let Some(name) = of.field_name(number) else { continue };
                let numbers = [name.to_owned(), camel(name)]
                    .map(|name| field(of, name.as_bytes()).map(|field| u32::from(field.key >> 3)));
                let expected = (!unread.contains(&number)).then_some(number);
                assert_eq!(numbers, [expected; 2], "{}.{name}", of.name());
            }
        }
        assert_eq!(field(M::Span, b"nothing"), None);
    }
}
