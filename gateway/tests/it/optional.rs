//! The bytes of columns that a table need not have. The tests under `live` check how a server reads them.

use crate::{
    encodes::{Case, attribute, encoded_for, message, resource, span},
    rows::{PLAIN_REST, any, bare, bytes, text},
};
use opentelemetry_proto::tonic::{
    common::v1::{InstrumentationScope, KeyValueList, any_value::Value},
    trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData},
};
use prost::Message as _;
use sluice_clickhouse::{
    column::{AttributeColumns, Layout, TableColumns},
    json_type::JsonType,
    optional::{OptionalColumns, OptionalGroup},
};
use sluice_gateway::{
    reading::encode::Encoded,
    rows::origin::{HEADER_BYTES_MAX, MessageHeaders, Origin, TakeHeader},
};

const START: u64 = 1_700_000_000_000_000_000;

fn with(layout: Layout, groups: &[OptionalGroup]) -> TableColumns {
    TableColumns::of_layout(layout).with_optional(groups.iter().copied().collect())
}

/// A span with flags and counts.
fn counted() -> Span {
    Span {
        flags: 0x101,
        dropped_attributes_count: 1,
        dropped_events_count: 2,
        dropped_links_count: u32::MAX,
        ..span(vec![])
    }
}

/// One span, with everything around it that a column may have, in the order of writers: schema URLs behind.
fn full(span: Span) -> Vec<u8> {
    let scope = InstrumentationScope {
        name: "scope".into(),
        version: "1".into(),
        attributes: vec![attribute("k", text("v"))],
        dropped_attributes_count: 4,
    };
    let resource = opentelemetry_proto::tonic::resource::v1::Resource {
        dropped_attributes_count: 5,
        ..resource(vec![attribute("r", text("x"))])
    };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans: vec![span], schema_url: "url:s".into() }];
    let resource_spans =
        vec![ResourceSpans { resource: Some(resource), scope_spans, schema_url: "url:r".into() }];
    TracesData { resource_spans }.encode_to_vec()
}

#[test]
fn keys_follow_their_attributes_and_are_sorted() {
    let list = Value::KvlistValue(KeyValueList { values: vec![attribute("k", text("1"))] });
    let attributes = || {
        vec![
            attribute("b", text("")),
            attribute("n", Some(any(list.clone()))),
            attribute("a", text("")),
            attribute("b", text("again")),
            attribute("empty", None),
        ]
    };
    let row = |layout| {
        let columns = with(layout, &[OptionalGroup::AttributeKeys]);
        encoded_for(columns, &message(resource(vec![attribute("r", text("x"))]), vec![span(attributes())]))
    };
    let json = bytes(&[b"\x03\x01b\x15\x00\x01a\x15\x00\x03n.k\x15\x011", b"\x03\x01a\x01b\x03n.k"]);
    let resource_json = b"\x00\x01\x01r\x15\x01x\x01\x01r";
    assert_eq!(row(Layout::Json), bare(START, resource_json, &json, PLAIN_REST));
    let map = bytes(&[
        b"\x04\x01b\x00\x01n\x09{\"k\":\"1\"}\x01a\x00\x05empty\x00",
        b"\x04\x01a\x01b\x05empty\x01n",
    ]);
    assert_eq!(row(Layout::Map), bare(START, b"\x00\x01\x01r\x01x\x01\x01r", &map, PLAIN_REST));
    let nested = row(Layout::Nested);
    let expected = b"\x01\x06@map@n\x01\x09{\"k\":\"1\"}\x03\x01a\x01b\x01n\x05\0\0\0\0\0\0\0\x05Unset";
    assert!(nested.windows(expected.len()).any(|bytes| bytes == expected), "{}", nested.escape_ascii());
}

#[test]
fn sets_without_attributes_have_no_keys() {
    for layout in [Layout::Json, Layout::Map, Layout::Nested] {
        let row = |groups| encoded_for(with(layout, groups), &message(resource(vec![]), vec![span(vec![])]));
        let (without, keys) = (row(&[]), row(&[OptionalGroup::AttributeKeys]));
        // An empty array behind each of the two.
        assert_eq!(keys.len(), without.len() + 2, "{layout}");
    }
}

#[test]
fn a_key_whose_value_does_not_fit_its_declared_path_is_a_key_all_the_same() {
    let json = AttributeColumns::Json(JsonType::parse("JSON(`i` Int64, SKIP `s`)").unwrap());
    let columns = TableColumns { span: json, ..with(Layout::Json, &[OptionalGroup::AttributeKeys]) };
    let attributes =
        vec![attribute("i", text("x")), attribute("s", text("skipped")), attribute("a", text(""))];
    let row = encoded_for(columns, &message(resource(vec![]), vec![span(attributes)]));
    let expected = bytes(&[
        b"\x02\x14sluice.unconverted.i\x15\x01x\x01a\x15\x00",
        b"\x03\x01a\x01i\x14sluice.unconverted.i",
    ]);
    assert_eq!(row, bare(START, b"\0\0\0", &expected, PLAIN_REST));
}

#[test]
fn what_a_resource_a_scope_and_a_span_have_besides_is_in_its_columns() {
    let groups = [
        OptionalGroup::ScopeAttributes,
        OptionalGroup::SchemaUrls,
        OptionalGroup::DroppedCounts,
        OptionalGroup::TraceFlags,
    ];
    let row = encoded_for(with(Layout::Json, &groups), &full(counted()));
    let resource = bytes(&[b"\x00\x01\x01r\x15\x01x", &5_u32.to_le_bytes(), b"\x05url:r"]);
    // `bare` has the scope's name and version between the two.
    let scope = bytes(&[b"\x01\x01k\x15\x01v\x01\x01k", &4_u32.to_le_bytes(), b"\x05url:s\x00"]);
    let numbers = [0x101, 1, 2, u32::MAX].map(u32::to_le_bytes).concat();
    assert_eq!(row, bare(START, &resource, &scope, &bytes(&[PLAIN_REST, &numbers])));
    // Each alone, in the layouts of scope attributes.
    let row = encoded_for(with(Layout::Map, &groups[..1]), &full(counted()));
    assert_eq!(row, bare(START, b"\x00\x01\x01r\x01x", b"\x01\x01k\x01v\x01\x01k\x00", PLAIN_REST));
    let row = encoded_for(with(Layout::Json, &groups[3..]), &full(counted()));
    let flags = bytes(&[PLAIN_REST, &0x101_u32.to_le_bytes()]);
    assert_eq!(row, bare(START, b"\x00\x01\x01r\x15\x01x", b"\x00", &flags));
}

/// Both encodings go through the same walk.
#[test]
fn a_message_in_json_fills_the_same_columns() {
    let json = br#"{"resourceSpans":[{"resource":{"attributes":[{"key":"r","value":{"stringValue":"x"}}],"droppedAttributesCount":5},
        "scopeSpans":[{"scope":{"name":"scope","version":"1","attributes":[{"key":"k","value":{"stringValue":"v"}}],"droppedAttributesCount":4},
        "spans":[{"traceId":"000102030405060708090a0b0c0d0e0f","spanId":"0001020304050607","name":"name","kind":2,
        "startTimeUnixNano":"1700000000000000000","endTimeUnixNano":"1700000000000000005","flags":257,
        "droppedAttributesCount":1,"droppedEventsCount":2,"droppedLinksCount":4294967295}],"schemaUrl":"url:s"}],"schemaUrl":"url:r"}]}"#;
    let all = TableColumns::default().with_optional(OptionalColumns::all());
    let mut case = Case::of_json_for(all.clone());
    assert!(matches!(case.add(json), Encoded::Whole { spans: 1, .. }));
    assert_eq!(case.rows().1, encoded_for(all, &full(counted())));
}

#[test]
fn a_resource_that_was_seen_has_the_url_of_its_own_message() {
    let columns = with(Layout::Json, &[OptionalGroup::SchemaUrls, OptionalGroup::DroppedCounts]);
    let message = |url: &str| {
        let mut data = TracesData::decode(&full(span(vec![]))[..]).unwrap();
        data.resource_spans[0].schema_url = url.into();
        data.encode_to_vec()
    };
    let mut case = Case::of(64 << 20, columns);
    for url in ["one", "two"] {
        assert!(matches!(case.add(&message(url)), Encoded::Whole { spans: 1, .. }));
    }
    let rows = String::from_utf8_lossy(&case.rows().1).into_owned();
    assert_eq!((rows.matches("one").count(), rows.matches("two").count()), (1, 1), "{rows:?}");
}

/// Two headers. One is too long.
struct Headers(Vec<u8>);

impl MessageHeaders for Headers {
    fn each(&self, take: &mut TakeHeader<'_>) {
        let headers: [(&str, Option<&[u8]>); 3] =
            [("large", Some(&self.0)), ("k", Some(b"v\xff")), ("none", None)];
        for (name, value) in headers {
            if take(name, value).is_break() {
                return;
            }
        }
    }
}

fn origin(headers: &'static Headers) -> Origin<'static> {
    Origin {
        topic: "spans",
        partition: 3,
        offset: 1 << 40,
        timestamp_millis: Some(1_600_000_000_123),
        headers: Some(headers),
    }
}

#[test]
fn every_row_of_a_message_has_its_coordinates_and_headers() {
    let columns = with(Layout::Json, &[OptionalGroup::KafkaCoordinates, OptionalGroup::KafkaHeaders]);
    let headers: &'static Headers = Box::leak(Box::new(Headers(vec![b'x'; 1 << 20])));
    let encoded = || {
        let mut case = Case::of(64 << 20, columns.clone()).of_origin(origin(headers));
        let message = message(resource(vec![]), vec![span(vec![]), span(vec![])]);
        let Encoded::Whole { spans: 2, headers_cut: true, .. } = case.add(&message) else { panic!() };
        case.rows().1
    };
    let kafka = bytes(&[
        b"\x05spans",
        &3_i32.to_le_bytes(),
        &(1_i64 << 40).to_le_bytes(),
        &1_600_000_000_123_i64.to_le_bytes(),
        b"\x02\x01k\x04v\xef\xbf\xbd\x04none\x00",
    ]);
    let row = bare(START, b"\0\0", b"\0", &bytes(&[PLAIN_REST, &kafka]));
    assert_eq!(encoded(), row.repeat(2));
    assert_eq!(encoded(), encoded(), "a message that is read again gives the same bytes");
}

#[test]
fn coordinates_are_not_kept_for_the_next_message_or_for_tables_without_them() {
    let headers: &'static Headers = Box::leak(Box::new(Headers(vec![])));
    let columns = with(Layout::Json, &[OptionalGroup::KafkaHeaders]);
    let one = message(resource(vec![]), vec![span(vec![])]);
    let mut case = Case::of(64 << 20, columns).of_origin(origin(headers));
    assert!(matches!(case.add(&one), Encoded::Whole { headers_cut: false, .. }));
    let mut case = case.of_origin(Origin::default());
    case.add(&one);
    let rows = case.rows().1;
    assert!(rows.ends_with(&bytes(&[PLAIN_REST, b"\x00"])));
    let mut plain = Case::new(64 << 20).of_origin(origin(headers));
    assert!(matches!(plain.add(&one), Encoded::Whole { headers_cut: false, .. }));
    assert_eq!(plain.rows().1, bare(START, b"\0\0", b"\0", PLAIN_REST));
}

#[test]
fn headers_do_not_make_a_message_of_small_spans_too_large() {
    let headers: &'static Headers = Box::leak(Box::new(Headers(vec![b'x'; HEADER_BYTES_MAX - 8])));
    let columns = with(Layout::Json, &[OptionalGroup::KafkaHeaders]);
    let spans = vec![span(vec![]); 40_000];
    let mut case = Case::of(64 << 20, columns).of_origin(origin(headers));
    let encoded = case.add(&message(resource(vec![]), spans));
    assert!(matches!(encoded, Encoded::Whole { spans: 40_000, .. }), "{encoded:?}");
}
