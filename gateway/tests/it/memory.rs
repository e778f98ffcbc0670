//! The memory that a worker uses for rows that are designed to use much.

use crate::{
    encodes::{attribute, message, resource, span},
    rows::{any, text},
};
use opentelemetry_proto::tonic::{
    common::v1::{ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span, Status, TracesData, span::Event, span::Link},
};
use prost::Message as _;
use sluice_clickhouse::{
    column::{AttributeColumns, Layout, TableColumns},
    json_type::JsonType,
    optional::OptionalColumns,
    row_frames::RowFrames,
};
use sluice_gateway::rows::{
    raw_limit::RawLimit,
    span_row::{RowError, Scratch, SpanRows},
};
use sluice_gateway_config::budget::{ROW_BYTES_MAX, WORKER_BYTES};
use sluice_otlp::walk;

const MIB: usize = 1 << 20;

/// A worker's buffers, and how much larger they may become than the row buffer that the budget counts for itself. When nothing grows,
/// nothing is there twice: half a row less.
const BYTES_MAX: u64 = WORKER_BYTES - ROW_BYTES_MAX / 2;

fn list(members: Vec<KeyValue>) -> Value {
    Value::KvlistValue(KeyValueList { values: members })
}

fn array(values: Vec<Value>) -> Value {
    Value::ArrayValue(ArrayValue { values: values.into_iter().map(any).collect() })
}

fn one(value: Value) -> Vec<KeyValue> {
    vec![attribute("k", Some(any(value)))]
}

fn many(count: usize, bytes: usize) -> Vec<KeyValue> {
    (0..count).map(|number| attribute(&format!("{number}"), text(&"x".repeat(bytes)))).collect()
}

/// Attributes that are too much for a row, in one set.
fn hostile_sets() -> Vec<Vec<KeyValue>> {
    let path = |bytes: usize, members| one_under(&"p".repeat(bytes), list(many(members, 1)));
    // Almost all the paths that objects may have while they are open, and within them more than that, and more than a text.
    let objects = |inner: Value| array(vec![list([many(95_000, 1), one(inner)].concat())]);
    let inner = [many(6_000, 1), many(4, MIB)].concat();
    vec![
        one(Value::StringValue("x".repeat(6 * MIB))),
        one(Value::BytesValue(vec![7; 6 * MIB])),
        one(array(vec![Value::StringValue("\u{1}".repeat(3 * MIB))])),
        one(list(vec![attribute("k", Some(any(Value::BytesValue(vec![7; 6 * MIB]))))])),
        one(array((0..200).map(|_| Value::StringValue("\n".repeat(20_000))).collect())),
        path(MIB, 20),
        path(64 << 10, 2_000),
        one(array((0..40).map(|_| list(path(128 << 10, 4))).collect())),
        one(objects(array(vec![list(inner)]))),
        many(200, 100_000),
        many(99_999, 100),
        many(6, MIB),
        vec![attribute(&"k".repeat(6 * MIB), text("v"))],
    ]
}

fn one_under(key: &str, value: Value) -> Vec<KeyValue> {
    vec![attribute(key, Some(any(value)))]
}

fn event(name: &str, attributes: Vec<KeyValue>) -> Event {
    Event { name: name.into(), attributes, ..Event::default() }
}

fn link(attributes: Vec<KeyValue>) -> Link {
    Link { attributes, ..Link::default() }
}

fn with_events(events: Vec<Event>) -> Vec<u8> {
    message(resource(vec![]), vec![Span { events, ..span(vec![]) }])
}

fn with_scope(attributes: Vec<KeyValue>, scope: usize, span: Span) -> Vec<u8> {
    let scope = InstrumentationScope { name: "s".repeat(scope), ..InstrumentationScope::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: vec![span], ..ScopeSpans::default() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    TracesData { resource_spans: vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }] }
        .encode_to_vec()
}

/// Messages with a row that is too large, wherever what is too much stands.
fn each_hostile_message(mut each: impl FnMut(Vec<u8>)) {
    for set in hostile_sets() {
        each(message(resource(vec![]), vec![span(set.clone())]));
        each(message(resource(set.clone()), vec![span(vec![])]));
        each(with_events(vec![event("one", set.clone())]));
        each(with_events(vec![event("first", many(30, 100_000)), event("second", set.clone())]));
        let links = vec![link(many(30, 100_000)), link(set)];
        each(message(resource(vec![]), vec![Span { links, ..span(vec![]) }]));
    }
    let long = "x".repeat(6 * MIB);
    // Each set has room for itself, all together have none; the row has a copy of what the spans share.
    each(message(resource(many(39, 100_000)), vec![span(many(39, 100_000))]));
    each(message(resource(many(20, 100_000)), vec![span(many(30, 100_000))]));
    each(with_scope(many(38, 100_000), 6 * MIB, span(vec![])));
    each(with_scope(many(19, 100_000), 2 * MIB, span(many(9, 100_000))));
    each(with_events((0..50).map(|_| event(&"n".repeat(50_000), many(1, 50_000))).collect()));
    each(with_events(vec![event(&long, vec![])]));
    each(with_events(vec![event(&long, vec![]), event("", vec![])]));
    for odd in [
        Span { name: long.clone(), ..span(vec![]) },
        Span { trace_state: long.clone(), ..span(vec![]) },
        Span { status: Some(Status { message: long.clone(), ..Status::default() }), ..span(vec![]) },
        Span { links: vec![Link { trace_state: long, ..Link::default() }], ..span(vec![]) },
    ] {
        each(message(resource(vec![]), vec![odd]));
    }
}

/// Bytes that the buffers have at the end of a message, beyond those of an empty row buffer; and whether its row was too large.
fn taken(scratch: &mut Scratch, bytes: &[u8]) -> (u64, bool) {
    let mut rows = RowFrames::new();
    let before = rows.memory_bytes();
    let limit = RawLimit::of_message(bytes.len());
    let outcome = walk(bytes, &mut SpanRows::new(scratch, &mut rows, Vec::new(), 1, limit));
    let too_large = matches!(outcome, Err(RowError::RowTooLarge(_)));
    assert!(too_large || outcome.is_ok(), "{outcome:?}");
    ((rows.memory_bytes() - before + scratch.memory_bytes()) as u64, too_large)
}

fn tables() -> Vec<TableColumns> {
    let typed = AttributeColumns::Json(JsonType::parse("JSON(`k` String, `0` Int64)").unwrap());
    let all = |columns: &AttributeColumns| TableColumns {
        resource: columns.clone(),
        span: columns.clone(),
        event: columns.clone(),
        link: columns.clone(),
        ..TableColumns::default()
    };
    let layouts = [Layout::Json, Layout::Map, Layout::Nested].map(TableColumns::of_layout);
    let optional = [Layout::Json, Layout::Nested]
        .map(|layout| TableColumns::of_layout(layout).with_optional(OptionalColumns::all()));
    [layouts.to_vec(), vec![all(&typed)], optional.to_vec()].concat()
}

#[test]
fn a_row_that_is_too_large_takes_no_more_memory_than_the_budget_counts() {
    let mut workers: Vec<_> =
        tables().into_iter().map(|columns| (columns.text(), Scratch::new(columns), 0)).collect();
    let (mut number, mut rejected) = (0, 0);
    each_hostile_message(|bytes| {
        for (columns, scratch, most) in &mut workers {
            let (taken, too_large) = taken(scratch, &bytes);
            assert!(taken <= BYTES_MAX, "message {number} for {columns} takes {taken} bytes");
            *most = taken.max(*most);
            rejected += usize::from(too_large);
        }
        number += 1;
    });
    assert!(rejected * 4 > number * workers.len() * 3, "{rejected} of {number} times {}", workers.len());
    let small = message(resource(many(3, 10)), vec![span(many(3, 10))]);
    for (columns, mut scratch, most) in workers {
        assert!(most > ROW_BYTES_MAX, "{columns}: the messages take {most} bytes at the most");
        let (left, too_large) = taken(&mut scratch, &small);
        assert!(!too_large && left <= 1 << 20, "{columns} leaves {left} bytes behind");
        println!("{columns}: {most} of {BYTES_MAX} bytes");
    }
}

#[test]
fn a_row_up_to_the_limit_is_encoded_and_takes_no_more_either() {
    let room = usize::try_from(ROW_BYTES_MAX).unwrap() - 10_000;
    let long = |bytes: usize| one(Value::StringValue("x".repeat(bytes)));
    let events = (0..4).map(|_| event("e", long(room / 4))).collect();
    for bytes in [
        message(resource(vec![]), vec![span(long(room))]),
        message(resource(long(room / 2)), vec![span(long(room / 2)), span(long(room / 2))]),
        with_events(vec![event("e", long(room))]),
        with_events(events),
        message(resource(vec![]), vec![span(many(40, room / 40)), span(many(1_000, room / 1_000 - 10))]),
    ] {
        for columns in tables() {
            let (taken, too_large) = taken(&mut Scratch::new(columns.clone()), &bytes);
            assert!(!too_large, "{columns}");
            assert!(taken <= BYTES_MAX, "{columns} takes {taken} bytes");
        }
    }
}
