//! Messages of one span, with odd contents.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData};
use prost::Message as _;

/// Start of every span, in ns: 2024-07-03 08:53:20 UTC, another time than that of the Kafka message.
pub const START: u64 = 1_720_000_000_000_000_000;

pub fn text(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

pub fn array(values: Vec<Option<Value>>) -> Value {
    Value::ArrayValue(ArrayValue { values: values.into_iter().map(|value| AnyValue { value }).collect() })
}

pub fn list<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::KvlistValue(KeyValueList { values: key_values(members) })
}

pub fn key_values<'a>(all: impl IntoIterator<Item = (&'a str, Value)>) -> Vec<KeyValue> {
    all.into_iter().map(|(key, value)| attribute(key, value)).collect()
}

pub fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

pub fn span(name: &str, attributes: Vec<KeyValue>) -> Span {
    Span {
        trace_id: (0..16).collect(),
        span_id: (0..8).collect(),
        name: name.to_owned(),
        kind: 2,
        start_time_unix_nano: START,
        end_time_unix_nano: START + 5,
        attributes,
        ..Span::default()
    }
}

pub fn resource() -> Resource {
    Resource { attributes: vec![attribute("service.name", text("shop"))], ..Resource::default() }
}

pub fn scope() -> InstrumentationScope {
    InstrumentationScope { name: "scope".into(), version: "1".into(), ..InstrumentationScope::default() }
}

/// A message of one span, in a resource and a scope.
pub fn message(span: Span) -> Vec<u8> {
    whole(ResourceSpans {
        resource: Some(resource()),
        scope_spans: vec![ScopeSpans { scope: Some(scope()), spans: vec![span], ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    })
}

pub fn whole(resource_spans: ResourceSpans) -> Vec<u8> {
    TracesData { resource_spans: vec![resource_spans] }.encode_to_vec()
}

/// A field of bytes in wire format.
pub fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::bytes::encode(number, &value.to_vec(), &mut bytes);
    bytes
}

/// The same message with `??` replaced by two bytes that are not UTF-8, which a `String` cannot contain.
pub fn with_invalid_utf8(mut message: Vec<u8>) -> Vec<u8> {
    let places: Vec<usize> =
        message.windows(2).enumerate().filter(|(_, pair)| *pair == b"??").map(|(at, _)| at).collect();
    for at in places {
        message[at..at + 2].copy_from_slice(b"\xff\xfe");
    }
    message
}
