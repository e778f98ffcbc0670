//! The walk: from the outermost message down to the spans, calling a sink.

use crate::fields::{OtlpMessage, resource_spans, scope_spans, traces_data};
use crate::malformed::Malformed;
use crate::resource::Resource;
use crate::scope::Scope;
use crate::span::Span;
use crate::wire::Reader;

/// What is told the resources, scopes and spans of a message, in wire order.
///
/// The first error that it returns ends the walk.
pub trait SpanSink {
    /// Why the sink stops the walk, or that the message is malformed.
    type Error: From<Malformed>;

    /// Called once for each `ResourceSpans`, before its scopes, wherever the resource stands; if it has none, with an
    /// empty one.
    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Self::Error>;

    /// Called once for each `ScopeSpans`, before its spans, wherever the scope stands; if it has none, with an empty
    /// one.
    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Self::Error>;

    /// Called once for each span.
    fn span(&mut self, span: &Span<'_>) -> Result<(), Self::Error>;
}

/// Walks over a message, an `ExportTraceServiceRequest` or `TracesData`, and tells how many spans it has.
///
/// What is inside attributes, events and links is checked only as far as the sink reads it. When this returns an
/// error the sink has already been told what stands before it, so a caller who wants all or nothing notes where it
/// was and goes back there.
#[inline]
pub fn walk<S: SpanSink>(message: &[u8], sink: &mut S) -> Result<u64, S::Error> {
    let mut spans: u64 = 0;
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let key = reader.key()?;
        if key == traces_data::RESOURCE_SPANS {
            let walked = walk_resource_spans(reader.message(key, OtlpMessage::ResourceSpans)?, sink)?;
            spans = spans.saturating_add(walked);
        } else {
            reader.pass(key)?;
        }
    }
    Ok(spans)
}

fn walk_resource_spans<S: SpanSink>(mut reader: Reader<'_>, sink: &mut S) -> Result<u64, S::Error> {
    sink.resource(&Resource::find(reader)?)?;
    let mut spans: u64 = 0;
    while !reader.is_empty() {
        let key = reader.key()?;
        if key == resource_spans::SCOPE_SPANS {
            let walked = walk_scope_spans(reader.message(key, OtlpMessage::ScopeSpans)?, sink)?;
            spans = spans.saturating_add(walked);
        } else {
            reader.pass(key)?;
        }
    }
    Ok(spans)
}

fn walk_scope_spans<S: SpanSink>(mut reader: Reader<'_>, sink: &mut S) -> Result<u64, S::Error> {
    sink.scope(&Scope::find(reader)?)?;
    let mut spans: u64 = 0;
    while !reader.is_empty() {
        let key = reader.key()?;
        if key == scope_spans::SPANS {
            let mut span = Span::default();
            span.merge(reader.message(key, OtlpMessage::Span)?)?;
            sink.span(&span)?;
            spans = spans.saturating_add(1);
        } else {
            reader.pass(key)?;
        }
    }
    Ok(spans)
}

#[cfg(test)]
mod tests;
