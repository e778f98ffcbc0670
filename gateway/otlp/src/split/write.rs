//! The bytes of a message.
//!
//! ```text
//! { unknown  ResourceSpans { resource url unknown  ScopeSpans { scope url unknown  Span Span ... } ScopeSpans ... } ResourceSpans ... }
//! ```
//!
//! The spans of a message are in the order of the request, so those of a scope, and the scopes of a resource, follow each other.

use super::SplitMessage;
use super::index::{Holder, Index, SpanAt};
use crate::encode::put_varint;
use crate::fields::{resource_spans, scope_spans, traces_data};

/// Bytes of a field with a key of one byte and a content of this many bytes.
pub(super) const fn field_bytes(content: usize) -> usize {
    let bits = usize::BITS.saturating_sub(content.leading_zeros());
    let length = if bits == 0 { 1 } else { bits.div_ceil(7) as usize };
    content.saturating_add(length).saturating_add(1)
}

/// Exactly the bytes that [`write`] makes.
pub(super) fn message_bytes(index: &Index, message: &SplitMessage) -> usize {
    let around = index.around.map_or(0, |around| around.bytes as usize);
    resources(index, message).fold(around, |sum, (resource, spans)| {
        sum.saturating_add(field_bytes(resource_bytes(index, resource, spans)))
    })
}

/// Appends a message.
pub(super) fn write(index: &Index, request: &[u8], message: &SplitMessage, out: &mut Vec<u8>) {
    out.reserve_exact(message.bytes);
    if let Some(around) = &index.around {
        put_pieces(index, request, around, out);
    }
    for (resource, spans) in resources(index, message) {
        put_head(traces_data::RESOURCE_SPANS, resource_bytes(index, resource, spans), out);
        put_pieces(index, request, resource, out);
        for (scope, spans) in scopes(index, spans) {
            put_head(resource_spans::SCOPE_SPANS, scope_bytes(scope, spans), out);
            put_pieces(index, request, scope, out);
            for span in spans {
                put_head(scope_spans::SPANS, span.content.len(), out);
                out.extend_from_slice(span.content.of(request));
            }
        }
    }
}

/// The resources of a message, with its spans of each.
fn resources<'i>(
    index: &'i Index,
    message: &SplitMessage,
) -> impl Iterator<Item = (&'i Holder, &'i [SpanAt])> {
    let number = |span: &SpanAt| index.scopes.get(span.scope as usize).map(|scope| scope.resource);
    let spans = index.spans().get(message.first..message.end).unwrap_or_default();
    let of_resource = spans.chunk_by(move |one, next| number(one) == number(next));
    of_resource.filter_map(move |spans| {
        let number = number(spans.first()?)?;
        Some((index.resources.get(number as usize)?, spans))
    })
}

/// The scopes of these spans, with the spans of each.
fn scopes<'i>(index: &'i Index, spans: &'i [SpanAt]) -> impl Iterator<Item = (&'i Holder, &'i [SpanAt])> {
    let of_scope = spans.chunk_by(|one, next| one.scope == next.scope);
    of_scope.filter_map(|spans| Some((index.scopes.get(spans.first()?.scope as usize)?, spans)))
}

fn resource_bytes(index: &Index, resource: &Holder, spans: &[SpanAt]) -> usize {
    scopes(index, spans).fold(resource.bytes as usize, |sum, (scope, spans)| {
        sum.saturating_add(field_bytes(scope_bytes(scope, spans)))
    })
}

fn scope_bytes(scope: &Holder, spans: &[SpanAt]) -> usize {
    spans.iter().fold(scope.bytes as usize, |sum, span| sum.saturating_add(field_bytes(span.content.len())))
}

/// A key and a length.
fn put_head(key: u32, length: usize, out: &mut Vec<u8>) {
    put_varint(out, u64::from(key));
    put_varint(out, length as u64);
}

fn put_pieces(index: &Index, request: &[u8], holder: &Holder, out: &mut Vec<u8>) {
    for piece in index.pieces(holder) {
        out.extend_from_slice(piece.of(request));
    }
}
