//! The walk: from the outermost message down to the spans, calling a sink.

use crate::fields::{OtlpMessage, field_number, resource_spans, scope_spans, traces_data};
use crate::malformed::{Malformed, Reason};
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
///
/// Resource and scope are looked for behind their spans too, so every span's start is read one time more than
/// [`walk_in_order`] does.
#[inline]
pub fn walk<S: SpanSink>(message: &[u8], sink: &mut S) -> Result<u64, S::Error> {
    match walk_message(message, Order::Any, sink) {
        Ok(spans) => Ok(spans),
        Err(Ended::BySink(error)) => Err(error),
        Err(Ended::OutOfOrder) => unreachable!("in any order nothing is out of order"),
    }
}

/// [`walk`] in one pass, for messages in which every resource and scope stands before its spans, as all known SDKs and
/// collectors write them. `None` when one does not: the sink was then told spans under half of their resource or
/// scope, so the caller goes back to where it was and walks in any order.
#[inline]
pub fn walk_in_order<S: SpanSink>(message: &[u8], sink: &mut S) -> Result<Option<u64>, S::Error> {
    match walk_message(message, Order::DescribedFirst, sink) {
        Ok(spans) => Ok(Some(spans)),
        Err(Ended::BySink(error)) => Err(error),
        Err(Ended::OutOfOrder) => Ok(None),
    }
}

/// Where resources and scopes may stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Anywhere, as protobuf has it.
    Any,
    /// Before what they describe.
    DescribedFirst,
}

/// Why a walk ends early.
enum Ended<E> {
    /// A resource or scope stands behind what it describes, and may not.
    OutOfOrder,
    /// The sink's error, or that the message is malformed in its words.
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
    // A request without any field is a legal one without spans.
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
fn not_traces() -> Malformed {
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
