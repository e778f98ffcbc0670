//! Random messages, valid and invalid.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, EntityRef, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, TracesData};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Short, sometimes long enough for a length of two bytes, and not only ASCII.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![8 => "[a-zé.]{0,12}", 1 => "[a-z ]{120,140}"]
}

/// Nearly always of the right length: a wrong one rejects the whole message.
fn id(length: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![199 => vec(any::<u8>(), length), 1 => vec(any::<u8>(), 0..20)]
}

fn optional_id(length: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => id(length), 1 => Just(vec![])]
}

fn any_value() -> impl Strategy<Value = AnyValue> {
    let scalar = prop_oneof![
        4 => text().prop_map(|text| Some(Value::StringValue(text))),
        1 => any::<bool>().prop_map(|flag| Some(Value::BoolValue(flag))),
        1 => any::<i64>().prop_map(|number| Some(Value::IntValue(number))),
        1 => (0_i64..300).prop_map(|number| Some(Value::IntValue(number))),
        1 => any::<u64>().prop_map(|bits| Some(Value::DoubleValue(f64::from_bits(bits)))),
        1 => vec(any::<u8>(), 0..20).prop_map(|bytes| Some(Value::BytesValue(bytes))),
        1 => any::<i32>().prop_map(|index| Some(Value::StringValueStrindex(index))),
        1 => Just(None),
    ]
    .prop_map(|value| AnyValue { value });
    scalar.prop_recursive(4, 16, 4, |inner| {
        let attribute = (text(), option::of(inner.clone()), 0_i32..2)
            .prop_map(|(key, value, key_strindex)| KeyValue { key, value, key_strindex });
        prop_oneof![
            vec(inner, 0..4).prop_map(|values| Value::ArrayValue(ArrayValue { values })),
            vec(attribute, 0..4).prop_map(|values| Value::KvlistValue(KeyValueList { values })),
        ]
        .prop_map(|value| AnyValue { value: Some(value) })
    })
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    let attribute = (text(), option::weighted(0.9, any_value()), any::<bool>())
        .prop_map(|(key, value, with_index)| KeyValue { key, value, key_strindex: i32::from(with_index) });
    vec(attribute, 0..5)
}

fn resource() -> impl Strategy<Value = Resource> {
    let entity_ref = (text(), text(), vec(text(), 0..3)).prop_map(|(schema_url, r#type, id_keys)| {
        EntityRef { schema_url, r#type, id_keys, description_keys: vec![] }
    });
    (attributes(), 0_u32..3, vec(entity_ref, 0..2)).prop_map(
        |(attributes, dropped_attributes_count, entity_refs)| Resource {
            attributes,
            dropped_attributes_count,
            entity_refs,
        },
    )
}

fn scope() -> impl Strategy<Value = InstrumentationScope> {
    (text(), text(), attributes(), 0_u32..3).prop_map(
        |(name, version, attributes, dropped_attributes_count)| InstrumentationScope {
            name,
            version,
            attributes,
            dropped_attributes_count,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    (any::<u64>(), text(), attributes(), 0_u32..3).prop_map(
        |(time_unix_nano, name, attributes, dropped_attributes_count)| Event {
            time_unix_nano,
            name,
            attributes,
            dropped_attributes_count,
        },
    )
}

fn link() -> impl Strategy<Value = Link> {
    (optional_id(16), optional_id(8), text(), attributes(), any::<u32>()).prop_map(
        |(trace_id, span_id, trace_state, attributes, flags)| Link {
            trace_id,
            span_id,
            trace_state,
            attributes,
            dropped_attributes_count: flags % 3,
            flags,
        },
    )
}

fn status() -> impl Strategy<Value = Status> {
    (text(), any::<i32>()).prop_map(|(message, code)| Status { message, code })
}

fn span() -> impl Strategy<Value = Span> {
    let ids = (id(16), id(8), optional_id(8), text(), text());
    let numbers = (any::<i32>(), any::<u64>(), any::<u64>(), any::<u32>());
    let lists = (attributes(), vec(event(), 0..3), vec(link(), 0..3), option::of(status()));
    (ids, numbers, lists).prop_map(|(ids, numbers, lists)| {
        let (trace_id, span_id, parent_span_id, trace_state, name) = ids;
        let (kind, start_time_unix_nano, end_time_unix_nano, flags) = numbers;
        let (attributes, events, links, status) = lists;
        Span {
            trace_id,
            span_id,
            trace_state,
            parent_span_id,
            flags,
            name,
            kind,
            start_time_unix_nano,
            end_time_unix_nano,
            attributes,
            dropped_attributes_count: flags % 3,
            events,
            dropped_events_count: flags % 5,
            links,
            dropped_links_count: flags % 7,
            status,
        }
    })
}

pub fn traces_data() -> impl Strategy<Value = TracesData> {
    let scope_spans = (option::of(scope()), vec(span(), 0..3), text())
        .prop_map(|(scope, spans, schema_url)| ScopeSpans { scope, spans, schema_url });
    let resource_spans = (option::of(resource()), vec(scope_spans, 0..3), text())
        .prop_map(|(resource, scope_spans, schema_url)| ResourceSpans { resource, scope_spans, schema_url });
    vec(resource_spans, 0..3).prop_map(|resource_spans| TracesData { resource_spans })
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), key_strindex: 0 }
}

fn with_span_attributes(attributes: Vec<KeyValue>) -> TracesData {
    let span = Span { trace_id: vec![1; 16], span_id: vec![3; 8], attributes, ..Span::default() };
    let scope_spans = ScopeSpans { spans: vec![span], ..ScopeSpans::default() };
    let resource_spans = ResourceSpans { scope_spans: vec![scope_spans], ..ResourceSpans::default() };
    TracesData { resource_spans: vec![resource_spans] }
}

/// A message in which every kind of field is set.
pub fn sample() -> TracesData {
    let list = KeyValueList { values: vec![attribute("inner", Value::IntValue(-1))] };
    let array = ArrayValue { values: vec![AnyValue { value: Some(Value::DoubleValue(0.5)) }] };
    let attributes = vec![
        attribute("string", Value::StringValue("text".to_owned())),
        attribute("bool", Value::BoolValue(true)),
        attribute("int", Value::IntValue(1 << 40)),
        attribute("bytes", Value::BytesValue(vec![0, 1, 2])),
        attribute("list", Value::KvlistValue(list)),
        attribute("array", Value::ArrayValue(array)),
    ];
    let mut message = with_span_attributes(attributes.clone());
    let resource_spans = &mut message.resource_spans[0];
    resource_spans.resource = Some(Resource { attributes: attributes.clone(), ..Resource::default() });
    let scope_spans = &mut resource_spans.scope_spans[0];
    scope_spans.scope = Some(InstrumentationScope { name: "scope".to_owned(), ..Default::default() });
    let span = &mut scope_spans.spans[0];
    span.start_time_unix_nano = 1;
    span.flags = 0x101;
    span.status = Some(Status { message: "bad".to_owned(), code: 2 });
    span.events = vec![Event { time_unix_nano: 2, attributes: attributes.clone(), ..Event::default() }];
    span.links = vec![Link { span_id: vec![2; 8], attributes, ..Link::default() }];
    message
}

/// A span with this many nested arrays, and one with this many nested lists of attributes.
pub fn nested(depth: usize) -> [TracesData; 2] {
    let mut array = Value::IntValue(1);
    let mut list = Value::IntValue(1);
    for _ in 0..depth {
        array = Value::ArrayValue(ArrayValue { values: vec![AnyValue { value: Some(array) }] });
        list = Value::KvlistValue(KeyValueList { values: vec![attribute("k", list)] });
    }
    [array, list].map(|value| with_span_attributes(vec![attribute("nested", value)]))
}
