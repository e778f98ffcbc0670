//! The walk: from the outermost message down to the spans, calling a sink.

use crate::fields::{OtlpMessage, field_number, resource_spans, scope_spans, traces_data};
use crate::malformed::{Malformed, Reason};
use crate::resource::Resource;
use crate::scope::Scope;
use crate::span::Span;
use crate::wire::Reader;

/// Receives the resources, scopes and spans of a message, in wire order.
///
/// The first error that it returns ends the walk.
pub trait SpanSink {
    /// The sink's reason for stopping, or that the message is malformed.
    type Error: From<Malformed>;

    /// Called once for each `ResourceSpans`, before its scopes, at whatever position the resource is; with an empty resource if there is
    /// none.
    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Self::Error>;

    /// Called once for each `ScopeSpans`, before its spans, at whatever position the scope is; with an empty scope if there is none.
    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Self::Error>;

    /// Called once for each span.
    fn span(&mut self, span: &Span<'_>) -> Result<(), Self::Error>;
}

/// Walks over a message, an `ExportTraceServiceRequest` or `TracesData`, and returns the number of its spans.
///
/// The content of attributes, events and links is only checked as far as the sink reads it. When this returns an error, the sink has
/// already received everything before it. A caller that wants all or nothing records its state first, and restores it.
///
/// Resource and scope are also looked for behind their spans, so every span's start is read once more than by [`walk_in_order`].
#[inline]
pub fn walk<S: SpanSink>(message: &[u8], sink: &mut S) -> Result<u64, S::Error> {
    match walk_message(message, Order::Any, sink) {
        Ok(spans) => Ok(spans),
        Err(Ended::BySink(error)) => Err(error),
        Err(Ended::OutOfOrder) => unreachable!("in any order nothing is out of order"),
    }
}

/// [`walk`] in one pass, for messages in which every resource and scope comes before its spans, as in all known SDKs and collectors.
/// `None` if one does not: the sink then received spans with an incomplete resource or scope, so the caller restores its state and uses
/// [`walk`].
///
/// Schema URLs are behind what they describe in nearly all messages. They do not count for the order, and this walk hands over only those
/// that come before: a sink that stores them needs [`walk`].
#[inline]
pub fn walk_in_order<S: SpanSink>(message: &[u8], sink: &mut S) -> Result<Option<u64>, S::Error> {
    match walk_message(message, Order::DescribedFirst, sink) {
        Ok(spans) => Ok(Some(spans)),
        Err(Ended::BySink(error)) => Err(error),
        Err(Ended::OutOfOrder) => Ok(None),
    }
}

/// Where resources and scopes may be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Anywhere, as in protobuf.
    Any,
    /// Before their spans.
    DescribedFirst,
}

/// Why a walk ends early.
enum Ended<E> {
    /// A resource or scope comes after its spans, which is not allowed here.
    OutOfOrder,
    /// The sink's error, which may be that the message is malformed.
    BySink(E),
}

impl<E: From<Malformed>> From<Malformed> for Ended<E> {
    fn from(malformed: Malformed) -> Self {
        Self::BySink(malformed.into())
    }
}

type Walked<S> = Result<u64, Ended<<S as SpanSink>::Error>>;

#[inline]
fn walk_message<S: SpanSink>(message: &[u8], order: Order, sink: &mut S) -> Walked<S> {
    let mut spans: u64 = 0;
    // A request without any field is valid and has no spans.
    let mut is_traces = message.is_empty();
    let mut reader = Reader::new(message);
    while !reader.is_empty() {
        let key = reader.key()?;
        if key == traces_data::RESOURCE_SPANS {
            let walked = walk_resource_spans(reader.message(key, OtlpMessage::ResourceSpans)?, order, sink)?;
            spans = spans.saturating_add(walked);
            is_traces = true;
        } else {
            reader.pass(key)?;
        }
    }
    if is_traces { Ok(spans) } else { Err(not_traces().into()) }
}

#[cold]
#[inline(never)]
pub(crate) fn not_traces() -> Malformed {
    let field = field_number(traces_data::RESOURCE_SPANS);
    Malformed::new(0, Reason::NotTraces, OtlpMessage::TracesData, field)
}

fn walk_resource_spans<S: SpanSink>(mut reader: Reader<'_>, order: Order, sink: &mut S) -> Walked<S> {
    let resource = match order {
        Order::Any => Resource::find(reader)?,
        Order::DescribedFirst => Resource::before_scopes(&mut reader)?,
    };
    sink.resource(&resource).map_err(Ended::BySink)?;
    let mut spans: u64 = 0;
    while !reader.is_empty() {
        let key = reader.key()?;
        match key {
            resource_spans::SCOPE_SPANS => {
                let walked = walk_scope_spans(reader.message(key, OtlpMessage::ScopeSpans)?, order, sink)?;
                spans = spans.saturating_add(walked);
            }
            resource_spans::RESOURCE if order == Order::DescribedFirst => return Err(Ended::OutOfOrder),
            _ => reader.pass(key)?,
        }
    }
    Ok(spans)
}

fn walk_scope_spans<S: SpanSink>(mut reader: Reader<'_>, order: Order, sink: &mut S) -> Walked<S> {
    let scope = match order {
        Order::Any => Scope::find(reader)?,
        Order::DescribedFirst => Scope::before_spans(&mut reader)?,
    };
    sink.scope(&scope).map_err(Ended::BySink)?;
    let mut spans: u64 = 0;
    while !reader.is_empty() {
        let key = reader.key()?;
        match key {
            scope_spans::SPANS => {
                let mut span = Span::default();
                span.read(reader.message(key, OtlpMessage::Span)?)?;
                sink.span(&span).map_err(Ended::BySink)?;
                spans = spans.saturating_add(1);
            }
            scope_spans::SCOPE if order == Order::DescribedFirst => return Err(Ended::OutOfOrder),
            _ => reader.pass(key)?,
        }
    }
    Ok(spans)
}

#[cfg(test)]
mod tests;
