//! Whether a message is malformed depends neither on the table nor on the code that checks it: encoding its rows and
//! `sluice_otlp::validate`, which checks messages that were polled ahead, agree.

use crate::encodes::{Case, attribute, message, resource, span};
use crate::rows::{any, text};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value::Value},
    trace::v1::{ResourceSpans, ScopeSpans, TracesData, span::Event, span::Link},
};
use proptest::{arbitrary, prelude::*};
use prost::Message as _;
use sluice_clickhouse::{
    column::{AttributeColumns, Layout, TableColumns},
    json_type::JsonType,
    optional::OptionalColumns,
};
use sluice_gateway::reading::{encode::Encoded, reject::Reason};
use sluice_otlp::validate;

/// A number that stands nowhere else, and its bytes as an element of an array: field 3 as a varint.
const MARK: i64 = 123;
const MARKED: [u8; 2] = [0x18, 0x7B];

/// The same as the start of a group, which no `AnyValue` has.
const BROKEN: [u8; 2] = [0x1B, 0x7B];

#[expect(clippy::unnecessary_wraps, reason = "an attribute may have no value")]
fn array(number: i64) -> Option<AnyValue> {
    let values = vec![any(Value::IntValue(number)), any(Value::StringValue("s".into()))];
    Some(any(Value::ArrayValue(ArrayValue { values })))
}

#[expect(clippy::unnecessary_wraps, reason = "an attribute may have no value")]
fn list(values: Vec<KeyValue>) -> Option<AnyValue> {
    Some(any(Value::KvlistValue(KeyValueList { values })))
}

/// Tables of every layout, without optional columns and with all of them, and one that declares and skips paths.
fn tables() -> Vec<TableColumns> {
    let json =
        JsonType::parse("JSON(`declared` Int64, `l.declared` String, SKIP `skipped`, SKIP `l.skipped`)");
    let json = AttributeColumns::Json(json.unwrap());
    let ruled = TableColumns { span: json.clone(), resource: json, ..TableColumns::default() };
    let layouts = [Layout::Json, Layout::Map, Layout::Nested];
    let plain = layouts.into_iter().map(TableColumns::of_layout);
    let with_all = plain.clone().map(|columns| columns.with_optional(OptionalColumns::all()));
    plain.chain(with_all).chain([ruled]).collect()
}

/// Whether a message becomes rows in a table; `None` for one whose rows are too large, which only the rows can tell.
fn accepted(columns: TableColumns, bytes: &[u8]) -> Option<bool> {
    match Case::of(64 << 20, columns).add(bytes) {
        Encoded::Whole { .. } => Some(true),
        Encoded::Rejected(Reason::Malformed(_) | Reason::Framing(_)) => Some(false),
        Encoded::Rejected(Reason::RowTooLarge(_)) => None,
        other => panic!("{other:?}"),
    }
}

fn with_scope_attribute(value: Option<AnyValue>) -> Vec<u8> {
    let scope =
        InstrumentationScope { attributes: vec![attribute("a", value)], ..InstrumentationScope::default() };
    let scope_spans =
        vec![ScopeSpans { scope: Some(scope), spans: vec![span(vec![])], ..ScopeSpans::default() }];
    TracesData { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
        .encode_to_vec()
}

#[test]
fn a_message_is_malformed_also_in_what_no_row_takes() {
    let of = |attributes| message(resource(vec![]), vec![span(attributes)]);
    let equal = |first: Option<AnyValue>| of(vec![attribute("k", first), attribute("k", array(MARK))]);
    let in_list = |key: &str| of(vec![attribute("l", list(vec![attribute(key, array(MARK))]))]);
    let table = [
        ("a scope's attribute", with_scope_attribute(array(MARK))),
        ("the later of equal keys", equal(text("v"))),
        ("the later of equal keys, both arrays", equal(array(7))),
        ("a path that is skipped", of(vec![attribute("skipped", array(MARK))])),
        ("a path that is skipped in a list", in_list("skipped")),
        ("a declared path", of(vec![attribute("declared", array(MARK))])),
        (
            "the later of two values of a declared path",
            of(vec![attribute("declared", array(7)), attribute("declared", array(MARK))]),
        ),
        ("a declared path in a list", in_list("declared")),
    ];
    for (what, whole) in table {
        let at = whole.windows(2).position(|bytes| bytes == MARKED).unwrap();
        let mut broken = whole.clone();
        broken[at..at + 2].copy_from_slice(&BROKEN);
        assert!(validate(&whole).is_ok() && validate(&broken).is_err(), "{what}");
        for columns in tables() {
            assert_eq!(accepted(columns.clone(), &whole), Some(true), "{what}");
            assert_eq!(accepted(columns, &broken), Some(false), "{what}");
        }
    }
}

/// A message that has something of everything.
fn full() -> Vec<u8> {
    let nested = list(vec![
        attribute("skipped", array(1)),
        attribute("declared", array(2)),
        attribute("k", list(vec![attribute("k", text("v"))])),
    ]);
    let attributes = || {
        vec![
            attribute("k", text("v")),
            attribute("k", array(3)),
            attribute("skipped", list(vec![attribute("k", array(4))])),
            attribute("declared", array(5)),
            attribute("l", nested.clone()),
            attribute("l.k.k", text("v")),
            attribute("y", Some(any(Value::BytesValue(vec![0xff])))),
        ]
    };
    let mut busy = span(attributes());
    busy.events = vec![Event { attributes: attributes(), ..Event::default() }; 2];
    busy.links = vec![Link { attributes: attributes(), ..Link::default() }];
    let scope = InstrumentationScope {
        name: "scope".into(),
        attributes: attributes(),
        ..InstrumentationScope::default()
    };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: vec![busy], ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans {
        resource: Some(resource(attributes())),
        scope_spans,
        ..ResourceSpans::default()
    }];
    TracesData { resource_spans }.encode_to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// A few bytes of a message are changed, anywhere.
    #[test]
    fn rows_are_made_of_what_validate_accepts(
        changes in prop::collection::vec((arbitrary::any::<prop::sample::Index>(), prop::num::u8::ANY), 0..4)
    ) {
        let mut bytes = full();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        for columns in tables() {
            if let Some(accepted) = accepted(columns, &bytes) {
                prop_assert_eq!(accepted, validate(&bytes).is_ok());
            }
        }
    }
}
