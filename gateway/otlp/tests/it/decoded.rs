//! A sink that builds prost's structs.

use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, TracesData, span};
use sluice_otlp::{Attributes, Malformed, SpanSink, Value, walk, walk_in_order};

/// The message and the number of spans that the walk counted.
pub fn decoded(bytes: &[u8]) -> Result<(TracesData, u64), Malformed> {
    let mut structs = Structs(TracesData::default());
    let spans = walk(bytes, &mut structs)?;
    Ok((structs.0, spans))
}

/// The same by the one-pass walk; `None` if it reports that the message is out of order.
pub fn decoded_in_order(bytes: &[u8]) -> Result<Option<(TracesData, u64)>, Malformed> {
    let mut structs = Structs(TracesData::default());
    let spans = walk_in_order(bytes, &mut structs)?;
    Ok(spans.map(|spans| (structs.0, spans)))
}

struct Structs(TracesData);

impl SpanSink for Structs {
    type Error = Malformed;

    fn resource(&mut self, resource: &sluice_otlp::Resource<'_>) -> Result<(), Malformed> {
        let schema_url = text(resource.schema_url);
        let resource = Resource {
            attributes: key_values(&resource.attributes)?,
            dropped_attributes_count: resource.dropped_attributes_count,
            ..Resource::default()
        };
        self.0.resource_spans.push(ResourceSpans {
            resource: Some(resource),
            schema_url,
            ..ResourceSpans::default()
        });
        Ok(())
    }

    fn scope(&mut self, scope: &sluice_otlp::Scope<'_>) -> Result<(), Malformed> {
        let schema_url = text(scope.schema_url);
        let scope = InstrumentationScope {
            name: text(scope.name),
            version: text(scope.version),
            attributes: key_values(&scope.attributes)?,
            dropped_attributes_count: scope.dropped_attributes_count,
        };
        let resource_spans = self.0.resource_spans.last_mut().expect("a resource is told before its scopes");
        resource_spans.scope_spans.push(ScopeSpans {
            scope: Some(scope),
            schema_url,
            ..ScopeSpans::default()
        });
        Ok(())
    }

    fn span(&mut self, span: &sluice_otlp::Span<'_>) -> Result<(), Malformed> {
        let resource_spans = self.0.resource_spans.last_mut().expect("a resource is told before its scopes");
        let scope_spans = resource_spans.scope_spans.last_mut().expect("a scope is told before its spans");
        scope_spans.spans.push(Span {
            trace_id: span.trace_id.to_vec(),
            span_id: span.span_id.to_vec(),
            trace_state: text(span.trace_state),
            parent_span_id: optional(span.parent_span_id),
            name: text(span.name),
            kind: span.kind,
            start_time_unix_nano: span.start_time_unix_nano,
            end_time_unix_nano: span.end_time_unix_nano,
            attributes: key_values(&span.attributes)?,
            events: events(&span.events)?,
            links: links(&span.links)?,
            status: Some(Status { message: text(span.status_message), code: span.status_code }),
            flags: span.flags,
            dropped_attributes_count: span.dropped_attributes_count,
            dropped_events_count: span.dropped_events_count,
            dropped_links_count: span.dropped_links_count,
        });
        Ok(())
    }
}

/// An optional id.
fn optional<const N: usize>(id: Option<&[u8; N]>) -> Vec<u8> {
    id.map_or_else(Vec::new, |id| id.to_vec())
}

fn events(events: &sluice_otlp::Events<'_>) -> Result<Vec<span::Event>, Malformed> {
    let read: Vec<_> = events
        .iter()
        .map(|event| {
            let event = event?;
            Ok(span::Event {
                time_unix_nano: event.time_unix_nano,
                name: text(event.name),
                attributes: key_values(&event.attributes)?,
                dropped_attributes_count: 0,
            })
        })
        .collect::<Result<_, _>>()?;
    assert_eq!(read.len(), events.len());
    assert_eq!(read.is_empty(), events.is_empty());
    Ok(read)
}

fn links(links: &sluice_otlp::Links<'_>) -> Result<Vec<span::Link>, Malformed> {
    let read: Vec<_> = links
        .iter()
        .map(|link| {
            let link = link?;
            Ok(span::Link {
                trace_id: optional(link.trace_id),
                span_id: optional(link.span_id),
                trace_state: text(link.trace_state),
                attributes: key_values(&link.attributes)?,
                ..span::Link::default()
            })
        })
        .collect::<Result<_, _>>()?;
    assert_eq!(read.len(), links.len());
    assert_eq!(read.is_empty(), links.is_empty());
    Ok(read)
}

fn key_values(attributes: &Attributes<'_>) -> Result<Vec<KeyValue>, Malformed> {
    let read: Vec<_> = attributes
        .iter()
        .map(|attribute| {
            let attribute = attribute?;
            Ok(KeyValue {
                key: text(attribute.key),
                value: Some(any_value(attribute.value)?),
                key_strindex: 0,
            })
        })
        .collect::<Result<_, _>>()?;
    assert_eq!(read.len(), attributes.len());
    assert_eq!(read.is_empty(), attributes.is_empty());
    Ok(read)
}

fn any_value(value: Value<'_>) -> Result<AnyValue, Malformed> {
    let value = match value {
        Value::Empty => None,
        Value::String(string) => Some(any_value::Value::StringValue(text(string))),
        Value::Bool(flag) => Some(any_value::Value::BoolValue(flag)),
        Value::Int(number) => Some(any_value::Value::IntValue(number)),
        Value::Double(number) => Some(any_value::Value::DoubleValue(number)),
        Value::Bytes(bytes) => Some(any_value::Value::BytesValue(bytes.to_vec())),
        Value::Array(array) => {
            let values: Vec<_> =
                array.iter().map(|element| any_value(element?)).collect::<Result<_, Malformed>>()?;
            assert_eq!(values.len(), array.len());
            assert_eq!(values.is_empty(), array.is_empty());
            Some(any_value::Value::ArrayValue(ArrayValue { values }))
        }
        Value::KeyValues(list) => {
            Some(any_value::Value::KvlistValue(KeyValueList { values: key_values(&list)? }))
        }
    };
    Ok(AnyValue { value })
}

/// In messages that prost can read, strings are UTF-8; of others only the error matters.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
