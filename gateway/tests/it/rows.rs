//! The bytes of a row.

use crate::encodes::{Case, attribute, encoded, message, resource, span};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList, any_value::Value},
    trace::v1::{Span, Status, span::Event, span::Link},
};

#[expect(clippy::unnecessary_wraps, reason = "a value is optional in the message")]
pub fn text(value: &str) -> Option<AnyValue> {
    Some(AnyValue { value: Some(Value::StringValue(value.into())) })
}

pub fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

/// Pieces of a row, joined.
pub fn bytes(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.concat()
}

/// The columns of a span without anything, by name: an annotated golden row whose parts the tests below replace.
pub fn bare(timestamp: u64, resource: &[u8], attributes: &[u8], rest: &[u8]) -> Vec<u8> {
    bytes(&[
        &timestamp.to_le_bytes(),                // Timestamp DateTime64(9)
        b"\x20000102030405060708090a0b0c0d0e0f", // TraceId, 32 hex digits
        b"\x100001020304050607",                 // SpanId, 16 hex digits
        b"\x00",                                 // ParentSpanId
        b"\x00",                                 // TraceState
        b"\x04name",                             // SpanName
        b"\x06Server",                           // SpanKind
        resource,                                // ServiceName, ResourceAttributes
        b"\x05scope\x011",                       // ScopeName, ScopeVersion
        attributes,                              // SpanAttributes
        rest,                                    // Duration and what follows
    ])
}

/// Duration 5 ns, status unset, no message, no events (3 empty arrays), no links (4 empty arrays).
pub const PLAIN_REST: &[u8] = b"\x05\0\0\0\0\0\0\0\x05Unset\0\0\0\0\0\0\0\0";

#[test]
fn a_bare_span() {
    let row = encoded(&message(resource(vec![]), vec![span(vec![])]));
    assert_eq!(row, bare(1_700_000_000_000_000_000, b"\x00\x00", b"\x00", PLAIN_REST));
}

#[test]
fn the_service_name_is_a_column_and_stays_an_attribute() {
    let row = encoded(&message(resource(vec![attribute("service.name", text("shop"))]), vec![span(vec![])]));
    let expected = bytes(&[b"\x04shop", b"\x01\x0cservice.name\x15\x04shop"]);
    assert_eq!(row, bare(1_700_000_000_000_000_000, &expected, b"\x00", PLAIN_REST));
}

#[test]
fn each_kind_of_value_has_its_bytes() {
    let list = Value::KvlistValue(KeyValueList { values: vec![attribute("b", text("x"))] });
    let array = |values: Vec<AnyValue>| Value::ArrayValue(ArrayValue { values });
    let ints = array(vec![any(Value::IntValue(1)), any(Value::IntValue(-1))]);
    let mixed = array(vec![any(Value::IntValue(1)), any(Value::StringValue("s".into()))]);
    let lists = array(vec![any(list.clone())]);
    for (value, expected) in [
        (Value::StringValue("hi".into()), bytes(&[b"\x01\x01a\x15\x02hi"])),
        (Value::BoolValue(true), bytes(&[b"\x01\x01a\x2d\x01"])),
        (Value::IntValue(-2), bytes(&[b"\x01\x01a\x0a", &(-2i64).to_le_bytes()])),
        (Value::DoubleValue(0.5), bytes(&[b"\x01\x01a\x0e", &0.5f64.to_le_bytes()])),
        (Value::DoubleValue(f64::INFINITY), bytes(&[b"\x01\x01a\x0e", &f64::INFINITY.to_le_bytes()])),
        (Value::BytesValue(vec![0xff, 0xee]), bytes(&[b"\x01\x01a\x15\x04/+4="])),
        (list.clone(), bytes(&[b"\x01\x03a.b\x15\x01x"])),
        (array(vec![]), bytes(&[b"\x01\x01a\x1e\x23\x15\x00"])),
        (
            ints,
            bytes(&[b"\x01\x01a\x1e\x23\x0a\x02", b"\0", &1i64.to_le_bytes(), b"\0", &(-1i64).to_le_bytes()]),
        ),
        (mixed, bytes(&[b"\x01\x01a\x1e\x2b\x20\x02", b"\x0a", &1i64.to_le_bytes(), b"\x15\x01s"])),
        (lists, bytes(&[b"\x01\x01a\x1e\x30\x00\x80\x02\x10\x00\x00\x00\x01", b"\x01\x01b\x15\x01x"])),
    ] {
        let attributes = vec![attribute("a", Some(any(value.clone())))];
        let row = encoded(&message(resource(vec![]), vec![span(attributes)]));
        assert_eq!(row, bare(1_700_000_000_000_000_000, b"\x00\x00", &expected, PLAIN_REST), "{value:?}");
    }
}

#[test]
fn paths_are_unique_and_the_literal_one_wins() {
    let list = |key: &str, value: &str| {
        Some(any(Value::KvlistValue(KeyValueList { values: vec![attribute(key, text(value))] })))
    };
    let attributes = vec![
        attribute("a", list("b", "flattened")),
        attribute("a.b", text("literal")),
        attribute("a.b", text("second")),
        attribute("empty", None),
    ];
    let row = encoded(&message(resource(vec![]), vec![span(attributes)]));
    assert_eq!(row, bare(1_700_000_000_000_000_000, b"\x00\x00", b"\x01\x03a.b\x15\x07literal", PLAIN_REST));
}

#[test]
fn what_nests_too_deep_is_text() {
    let mut value = any(Value::IntValue(7));
    for _ in 0..10 {
        value = any(Value::KvlistValue(KeyValueList { values: vec![attribute("k", Some(value))] }));
    }
    let row = encoded(&message(resource(vec![]), vec![span(vec![attribute("a", Some(value))])]));
    let expected = bytes(&[b"\x01\x11a.k.k.k.k.k.k.k.k\x15\x0d", br#"{"k":{"k":7}}"#]);
    assert_eq!(row, bare(1_700_000_000_000_000_000, b"\x00\x00", &expected, PLAIN_REST));
}

#[test]
fn an_unusable_time_becomes_the_messages_and_is_kept() {
    for original in [0, 1, u64::MAX, i64::MAX.unsigned_abs() + 1] {
        let mut late = span(vec![]);
        (late.start_time_unix_nano, late.end_time_unix_nano) = (original, original);
        let row = encoded(&message(resource(vec![]), vec![late]));
        let kept = bytes(&[b"\x01\x1bsluice.start_time_unix_nano\x04", &original.to_le_bytes()]);
        let rest = bytes(&[&[0; 8], b"\x05Unset\0\0\0\0\0\0\0\0"]);
        assert_eq!(row, bare(Case::TIMESTAMP_NANOS.unsigned_abs(), b"\x00\x00", &kept, &rest));
    }
}

#[test]
fn events_and_links_are_arrays_side_by_side() {
    let mut busy = span(vec![]);
    busy.events = vec![
        Event {
            time_unix_nano: 1_700_000_000_000_000_010,
            name: "one".into(),
            attributes: vec![attribute("n", text("1"))],
            ..Event::default()
        },
        Event { time_unix_nano: 1_700_000_000_000_000_020, name: "two".into(), ..Event::default() },
    ];
    busy.links = vec![Link {
        trace_id: vec![0xab; 16],
        span_id: vec![0xcd; 8],
        trace_state: "s".into(),
        attributes: vec![KeyValue { key: "l".into(), ..attribute("l", text("2")) }],
        ..Link::default()
    }];
    busy.status = Some(Status { code: 2, message: "broken".into() });
    let row = encoded(&message(resource(vec![]), vec![busy]));
    let rest = bytes(&[
        b"\x05\0\0\0\0\0\0\0\x05Error\x06broken",
        b"\x02",
        &1_700_000_000_000_000_010_u64.to_le_bytes(),
        &1_700_000_000_000_000_020_u64.to_le_bytes(), // Events.Timestamp
        b"\x02\x03one\x03two",                        // Events.Name
        b"\x02\x01\x01n\x15\x011\x00",                // Events.Attributes
        b"\x01\x20abababababababababababababababab",  // Links.TraceId
        b"\x01\x10cdcdcdcdcdcdcdcd",                  // Links.SpanId
        b"\x01\x01s",                                 // Links.TraceState
        b"\x01\x01\x01l\x15\x012",                    // Links.Attributes
    ]);
    assert_eq!(row, bare(1_700_000_000_000_000_000, b"\x00\x00", b"\x00", &rest));
}

#[test]
fn ids_are_lower_case_hex() {
    for lengths in [[16, 8, 8], [16, 8, 0]] {
        let ids =
            lengths.map(|length: u8| (0..length).map(|n| n.wrapping_mul(37) ^ length).collect::<Vec<u8>>());
        let [trace_id, span_id, parent_span_id] = ids.clone();
        let span = Span { trace_id, span_id, parent_span_id, ..span(vec![]) };
        let mut expected = Vec::new();
        for id in ids {
            prost::encoding::encode_varint(2 * id.len() as u64, &mut expected);
            expected.extend(id.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
        }
        let row = encoded(&message(resource(vec![]), vec![span]));
        assert!(row[8..].starts_with(&expected), "{lengths:?}");
    }
}
