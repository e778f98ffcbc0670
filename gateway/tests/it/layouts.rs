//! The bytes of a row in other layouts than plain JSON. The tests under `live` check how a server reads them.

use crate::{
    encodes::{attribute, encoded_for, message, resource, span},
    rows::{any, bare, bytes, text},
};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList, any_value::Value},
    trace::v1::{Span, span::Event, span::Link},
};
use sluice_clickhouse::{
    column::{AttributeColumns, Layout, TableColumns},
    json_type::JsonType,
};

const START: u64 = 1_700_000_000_000_000_000;

/// Duration 5 ns, status unset, no message, no events and links: 7 empty arrays with maps, 15 with groups.
const MAP_REST: &[u8] = b"\x05\0\0\0\0\0\0\0\x05Unset\0\0\0\0\0\0\0\0";
const NESTED_REST: &[u8] = b"\x05\0\0\0\0\0\0\0\x05Unset\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

fn attributes() -> Vec<KeyValue> {
    let list =
        Value::KvlistValue(KeyValueList { values: vec![attribute("k", Some(any(Value::IntValue(1))))] });
    vec![
        attribute("s", text("t")),
        attribute("b", Some(any(Value::BoolValue(false)))),
        attribute("i", Some(any(Value::IntValue(-2)))),
        attribute("d", Some(any(Value::DoubleValue(1e21)))),
        attribute("y", Some(any(Value::BytesValue(vec![0xff])))),
        attribute("a", Some(any(Value::ArrayValue(ArrayValue { values: vec![] })))),
        attribute("l", Some(any(list))),
        attribute("e", None),
        attribute("s", Some(any(Value::IntValue(3)))),
    ]
}

fn row(columns: TableColumns, span: Span) -> Vec<u8> {
    encoded_for(columns, &message(resource(vec![]), vec![span]))
}

#[test]
fn a_map_has_every_value_as_text() {
    let expected = bytes(&[
        b"\x08\x01s\x01t\x01b\x05false\x01i\x02-2\x01d\x051e+21\x01y\x04/w==",
        b"\x01a\x02[]\x01l\x07{\"k\":1}\x01e\x00",
    ]);
    let found = row(TableColumns::of_layout(Layout::Map), span(attributes()));
    assert_eq!(found, bare(START, b"\0\0", &expected, MAP_REST));
}

#[test]
fn groups_have_keys_and_values_by_type() {
    let expected = bytes(&[
        b"\x01\x01b\x01\x00",
        b"\x01\x01d\x01",
        &1e21_f64.to_le_bytes(),
        b"\x01\x01i\x01",
        &(-2_i64).to_le_bytes(),
        b"\x01\x01s\x01\x01t",
        b"\x03\x08@bytes@y\x08@slice@a\x06@map@l\x03\x04/w==\x02[]\x07{\"k\":1}",
    ]);
    let found = row(TableColumns::of_layout(Layout::Nested), span(attributes()));
    assert_eq!(found, bare(START, &[0; 11], &expected, NESTED_REST));
}

#[test]
fn groups_of_events_and_links_are_pairs_side_by_side() {
    let mut busy = span(vec![]);
    let event = |attributes| Event { attributes, ..Event::default() };
    busy.events = vec![event(vec![attribute("n", text("1"))]), event(vec![])];
    busy.events.iter_mut().for_each(|event| event.time_unix_nano = START);
    busy.links =
        vec![Link { attributes: vec![attribute("l", Some(any(Value::BoolValue(true))))], ..Link::default() }];
    let rest = bytes(&[
        b"\x05\0\0\0\0\0\0\0\x05Unset\0",
        b"\x02",
        &START.to_le_bytes(),
        &START.to_le_bytes(),        // Events.Timestamp
        b"\x02\0\0",                 // Events.Name
        b"\x02\0\0\x02\0\0\x02\0\0", // Events.AttributesBool, Double, Int: nothing in two events
        b"\x02\x01\x01n\x011\0",     // Events.AttributesString
        b"\x02\0\0",                 // Events.AttributesComplex
        b"\x01\0\x01\0\x01\0",       // Links.TraceId, SpanId, TraceState
        b"\x01\x01\x01l\x01",        // Links.AttributesBool
        b"\x01\0\x01\0\x01\0\x01\0", // Links.AttributesDouble, Int, String, Complex
    ]);
    let found = row(TableColumns::of_layout(Layout::Nested), busy);
    assert_eq!(found, bare(START, &[0; 11], &[0; 10], &rest));
}

#[test]
fn a_time_that_is_kept_is_text_in_maps_and_groups() {
    let mut late = span(vec![]);
    (late.start_time_unix_nano, late.end_time_unix_nano) = (u64::MAX, u64::MAX);
    let kept = b"\x1bsluice.start_time_unix_nano";
    let number = b"\x1418446744073709551615";
    let fallback = crate::encodes::Case::TIMESTAMP_NANOS.unsigned_abs();
    let rest = |rest: &[u8]| bytes(&[&[0; 8], &rest[8..]]);
    let map = bytes(&[b"\x01", kept, number]);
    assert_eq!(
        row(TableColumns::of_layout(Layout::Map), late.clone()),
        bare(fallback, b"\0\0", &map, &rest(MAP_REST))
    );
    let nested = bytes(&[&[0; 6], b"\x01", kept, b"\x01", number, b"\0\0"]);
    assert_eq!(
        row(TableColumns::of_layout(Layout::Nested), late),
        bare(fallback, &[0; 11], &nested, &rest(NESTED_REST))
    );
}

#[test]
fn declared_paths_have_no_tag_and_what_does_not_fit_is_kept_with_one() {
    let json = JsonType::parse(
        "JSON(`i` Int64, `s` LowCardinality(String), `n.k` Nullable(Int8), `b` Int64, SKIP `d`)",
    );
    let columns = TableColumns { span: AttributeColumns::Json(json.unwrap()), ..TableColumns::default() };
    let number = |value| Some(any(Value::IntValue(value)));
    let list = Value::KvlistValue(KeyValueList {
        values: vec![attribute("k", number(300)), attribute("x", number(1))],
    });
    let attributes = vec![
        attribute("i", text("42")),
        attribute("s", number(7)),
        attribute("b", text("no number")),
        attribute("d", text("skipped")),
        attribute("d.e", text("skipped")),
        attribute("n", Some(any(list))),
        attribute("i", number(43)),
    ];
    let expected = bytes(&[
        b"\x05\x01i",
        &42_i64.to_le_bytes(),
        b"\x01s\x017",
        b"\x14sluice.unconverted.b\x15\x09no number",
        b"\x16sluice.unconverted.n.k\x0a",
        &300_i64.to_le_bytes(),
        b"\x03n.x\x0a",
        &1_i64.to_le_bytes(),
    ]);
    assert_eq!(row(columns, span(attributes)), bare(START, b"\0\0", &expected, MAP_REST));
}

#[test]
fn the_first_of_equal_keys_of_a_declared_path_wins_whether_it_converts_or_not() {
    let json = JsonType::parse("JSON(`a` Int64, `b` Int64, `n.k` Int64, `l.k` Int64)").unwrap();
    let columns = TableColumns { span: AttributeColumns::Json(json), ..TableColumns::default() };
    let number = |value| Some(any(Value::IntValue(value)));
    let list = |key: &str, members: Vec<KeyValue>| {
        attribute(key, Some(any(Value::KvlistValue(KeyValueList { values: members }))))
    };
    let attributes = vec![
        // The first does not convert: the second is not stored, under no path.
        attribute("a", text("none")),
        attribute("a", number(1)),
        attribute("a", text("another")),
        // The first converts.
        attribute("b", number(2)),
        attribute("b", text("none")),
        list("n", vec![attribute("k", text("none")), attribute("k", number(3))]),
        // A literal key wins over a list's, also when it does not convert and stands behind it.
        list("l", vec![attribute("k", number(4))]),
        attribute("l.k", text("literal")),
    ];
    let expected = bytes(&[
        b"\x04\x14sluice.unconverted.a\x15\x04none\x01b",
        &2_i64.to_le_bytes(),
        b"\x16sluice.unconverted.l.k\x15\x07literal\x16sluice.unconverted.n.k\x15\x04none",
    ]);
    assert_eq!(row(columns, span(attributes)), bare(START, b"\0\0", &expected, MAP_REST));
}

fn array(values: Vec<Value>) -> Value {
    Value::ArrayValue(ArrayValue { values: values.into_iter().map(any).collect() })
}

fn list(members: Vec<(&str, Value)>) -> Value {
    let values = members.into_iter().map(|(key, value)| attribute(key, Some(any(value)))).collect();
    Value::KvlistValue(KeyValueList { values })
}

/// Key, value and its JSON text, in maps and groups alike.
fn values_that_become_json_text() -> [(&'static str, Value, &'static str); 6] {
    let number = Value::IntValue;
    let mut mixed = array(vec![Value::BoolValue(true), number(1), Value::StringValue("s".into())]);
    if let Value::ArrayValue(values) = &mut mixed {
        values.values.push(AnyValue { value: None });
        values.values.push(any(Value::BytesValue(vec![0xff])));
        values.values.push(any(array(vec![number(2)])));
    }
    let doubles = [f64::NAN, f64::NEG_INFINITY, f64::INFINITY, -0.0, 0.5].map(Value::DoubleValue);
    let nine = |inner: fn(Value) -> Value| (0..9).fold(number(7), |value, _| inner(value));
    [
        ("n", array(doubles.into()), r#"["NaN","-Infinity","Infinity",-0,0.5]"#),
        ("m", mixed, r#"[true,1,"s",null,"/w==",[2]]"#),
        (
            "l",
            array(vec![list(vec![("k", number(1)), ("k", number(2))]), list(vec![])]),
            r#"[{"k":1,"k":2},{}]"#,
        ),
        ("a", nine(|value| array(vec![value])), "[[[[[[[[[7]]]]]]]]]"),
        (
            "o",
            nine(|value| list(vec![("k", value)])),
            r#"{"k":{"k":{"k":{"k":{"k":{"k":{"k":{"k":{"k":7}}}}}}}}}"#,
        ),
        ("x", list(vec![("n", array(vec![Value::DoubleValue(f64::NAN)]))]), r#"{"n":["NaN"]}"#),
    ]
}

fn put_text(out: &mut Vec<u8>, parts: &[&str]) {
    let text = parts.concat();
    out.push(u8::try_from(text.len()).unwrap());
    out.extend(text.bytes());
}

#[test]
fn what_is_in_arrays_and_lists_is_json_text_in_maps_and_groups_however_deep() {
    let values = values_that_become_json_text();
    let attributes: Vec<_> =
        values.iter().map(|(key, value, _)| attribute(key, Some(any(value.clone())))).collect();
    let mut map = vec![6];
    // Of each of the other four groups no key and no value; of the Complex one all keys, then all values.
    let mut nested = vec![0, 0, 0, 0, 0, 0, 0, 0, 6];
    let mut nested_values = vec![6];
    for (key, value, text) in &values {
        put_text(&mut map, &[key]);
        put_text(&mut map, &[text]);
        let prefix = if matches!(value, Value::ArrayValue(_)) { "@slice@" } else { "@map@" };
        put_text(&mut nested, &[prefix, key]);
        put_text(&mut nested_values, &[text]);
    }
    nested.extend(nested_values);
    let found = row(TableColumns::of_layout(Layout::Map), span(attributes.clone()));
    assert_eq!(found, bare(START, b"\0\0", &map, MAP_REST));
    let found = row(TableColumns::of_layout(Layout::Nested), span(attributes));
    assert_eq!(found, bare(START, &[0; 11], &nested, NESTED_REST));
}
