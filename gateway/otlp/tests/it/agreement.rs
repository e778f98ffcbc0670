//! The definition of agreement between the walk and prost.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::Link;
use opentelemetry_proto::tonic::trace::v1::{Span, TracesData};
use proptest::test_runner::TestCaseError;
use prost::Message;

use crate::decoded::{decoded, decoded_in_order};

/// If prost reads the bytes, the walk must read the same, provided they are traces. If prost does not, the walk must not either, unless
/// the only error is missing UTF-8.
pub fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    let validated = sluice_otlp::validate(bytes);
    match TracesData::decode(bytes) {
        Ok(message) if !is_traces(bytes, &message) => {
            check(validated.is_err(), || format!("no traces: {message:?}, validate: {validated:?}"))
        }
        Ok(message) => {
            let expected = as_the_walk_tells(message);
            let spans = expected.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
            let count: usize = spans.map(|scope| scope.spans.len()).sum();
            let told = decoded(bytes);
            // Compared as bytes, because NaN is not equal to itself.
            let equal = told.as_ref().is_ok_and(|(told, spans)| {
                *spans == count as u64 && told.encode_to_vec() == expected.encode_to_vec()
            });
            check(equal, || format!("prost: {expected:?}\nwalk:  {told:?}"))?;
            check(validated == Ok(count as u64), || format!("prost reads it, validate: {validated:?}"))
        }
        Err(error) if error.to_string().contains("UTF-8") => Ok(()),
        Err(error) => check(validated.is_err(), || format!("prost: {error}, validate: {validated:?}")),
    }
    .and_then(|()| agree_in_order(bytes))
    .map_err(|error| TestCaseError::fail(format!("{error}\nbytes: {bytes:02X?}")))
}

/// Whether the message is empty, or has resource spans whose ids all have the right length.
fn is_traces(bytes: &[u8], message: &TracesData) -> bool {
    let scopes = message.resource_spans.iter().flat_map(|resource_spans| &resource_spans.scope_spans);
    let mut spans = scopes.flat_map(|scope_spans| &scope_spans.spans);
    let is_span = |span: &Span| span.trace_id.len() == 16 && span.span_id.len() == 8;
    let is_none_or = |id: &[u8], bytes| id.is_empty() || id.len() == bytes;
    let is_link = |link: &Link| is_none_or(&link.trace_id, 16) && is_none_or(&link.span_id, 8);
    (bytes.is_empty() || !message.resource_spans.is_empty())
        && spans.all(|span| {
            is_span(span) && is_none_or(&span.parent_span_id, 8) && span.links.iter().all(is_link)
        })
}

/// The one-pass walk gives the same result as the other one, but for schema URLs, or reports that the message is out of order.
fn agree_in_order(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (any_order, in_order) = (decoded(bytes), decoded_in_order(bytes));
    let agrees = match (&any_order, &in_order) {
        (_, Ok(None)) | (Err(_), Err(_)) => true,
        (Ok((expected, spans)), Ok(Some((told, told_spans)))) => {
            spans == told_spans
                && without_schema_urls(told).encode_to_vec() == without_schema_urls(expected).encode_to_vec()
        }
        _ => false,
    };
    check(agrees, || format!("any order: {any_order:?}\nin order:  {in_order:?}"))
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), TestCaseError> {
    if holds { Ok(()) } else { Err(TestCaseError::fail(otherwise())) }
}

/// The one-pass walk returns a schema URL only if it comes before what it describes.
fn without_schema_urls(message: &TracesData) -> TracesData {
    let mut message = message.clone();
    for resource_spans in &mut message.resource_spans {
        resource_spans.schema_url.clear();
        resource_spans.scope_spans.iter_mut().for_each(|scope_spans| scope_spans.schema_url.clear());
    }
    message
}

/// The message without fields that the walk does not return, and with the values that it returns for absent fields.
fn as_the_walk_tells(mut message: TracesData) -> TracesData {
    for resource_spans in &mut message.resource_spans {
        let resource = resource_spans.resource.get_or_insert_default();
        resource.entity_refs.clear();
        attributes(&mut resource.attributes);
        for scope_spans in &mut resource_spans.scope_spans {
            let scope = scope_spans.scope.get_or_insert_default();
            attributes(&mut scope.attributes);
            scope_spans.spans.iter_mut().for_each(span);
        }
    }
    message
}

fn span(span: &mut Span) {
    span.status.get_or_insert_default();
    attributes(&mut span.attributes);
    for event in &mut span.events {
        event.dropped_attributes_count = 0;
        attributes(&mut event.attributes);
    }
    for link in &mut span.links {
        link.dropped_attributes_count = 0;
        link.flags = 0;
        attributes(&mut link.attributes);
    }
}

fn attributes(attributes: &mut [KeyValue]) {
    for attribute in attributes {
        attribute.key_strindex = 0;
        any_value(attribute.value.get_or_insert_default());
    }
}

fn any_value(value: &mut AnyValue) {
    match &mut value.value {
        Some(Value::StringValueStrindex(_)) => value.value = None,
        Some(Value::ArrayValue(array)) => array.values.iter_mut().for_each(any_value),
        Some(Value::KvlistValue(list)) => attributes(&mut list.values),
        _ => {}
    }
}
