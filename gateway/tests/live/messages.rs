//! Spans with attributes of every shape.

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData, span::Event, span::Link},
};
use prost::Message as _;

pub fn string(text: &str) -> Value {
    Value::StringValue(text.into())
}

pub fn array(values: Vec<Option<Value>>) -> Value {
    Value::ArrayValue(ArrayValue { values: values.into_iter().map(|value| AnyValue { value }).collect() })
}

pub fn list(values: Vec<KeyValue>) -> Value {
    Value::KvlistValue(KeyValueList { values })
}

pub fn attribute(key: &str, value: impl Into<Option<Value>>) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: value.into() }), ..KeyValue::default() }
}

/// One of each.
pub fn every_shape() -> Vec<KeyValue> {
    vec![
        attribute("string", string("it's \"text\"")),
        attribute("string.empty", string("")),
        attribute("bool", Value::BoolValue(true)),
        attribute("int", Value::IntValue(i64::MIN)),
        attribute("double", Value::DoubleValue(0.5)),
        attribute("double.large", Value::DoubleValue(1e300)),
        attribute("nan", Value::DoubleValue(f64::NAN)),
        attribute("infinity", Value::DoubleValue(f64::NEG_INFINITY)),
        attribute("bytes", Value::BytesValue(vec![0xff, 0xee])),
        attribute("array.empty", array(vec![])),
        attribute("array.ints", array(vec![Some(Value::IntValue(1)), None])),
        attribute(
            "array.mixed",
            array(vec![Some(Value::IntValue(1)), Some(string("x")), Some(Value::BoolValue(true))]),
        ),
        attribute("array.lists", array(vec![Some(list(vec![attribute("k", Value::IntValue(2))]))])),
        attribute(
            "list",
            list(vec![
                attribute("a", string("x")),
                attribute("b", list(vec![attribute("c", Value::IntValue(3))])),
            ]),
        ),
        attribute("empty", None),
        attribute("twice", string("first")),
        attribute("twice", Value::IntValue(2)),
        attribute("", string("no key")),
    ]
}

/// A span with these attributes, one event with every shape and one without any, and a link.
pub fn span(attributes: Vec<KeyValue>) -> Span {
    let event = |name: &str, attributes| Event {
        time_unix_nano: 1_700_000_000_000_000_007,
        name: name.into(),
        attributes,
        ..Event::default()
    };
    Span {
        trace_id: (1..17).collect(),
        span_id: (1..9).collect(),
        name: "name".into(),
        start_time_unix_nano: 1_700_000_000_000_000_000,
        end_time_unix_nano: 1_700_000_000_000_000_005,
        attributes,
        events: vec![event("first", every_shape()), event("second", vec![])],
        links: vec![Link {
            trace_id: vec![0xab; 16],
            attributes: vec![attribute("l", Value::IntValue(1))],
            ..Link::default()
        }],
        ..Span::default()
    }
}

/// A message of these spans and one without events, links and attributes.
pub fn message(spans: Vec<Span>) -> Vec<u8> {
    let resource =
        Resource { attributes: vec![attribute("service.name", string("shop"))], ..Resource::default() };
    let bare = Span {
        trace_id: vec![2; 16],
        span_id: vec![3; 8],
        start_time_unix_nano: 1_700_000_000_000_000_001,
        ..Span::default()
    };
    let spans = spans.into_iter().chain([bare]).collect();
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let resource_spans =
        vec![ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() }];
    TracesData { resource_spans }.encode_to_vec()
}
