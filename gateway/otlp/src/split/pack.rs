//! Which spans share a message.
//!
//! Traces come by partition, and within one by id, so the same request is always split alike. A trace joins the open message if it fits,
//! else it begins the next one. A trace that is larger than the target is cut between spans; its last message may take other traces.
//!
//! The size of a message is estimated from above while it is open: a resource or scope counts with the longest length that it can have. So
//! no message exceeds the target, and some could hold one span more.

use super::index::{Holder, Index, SpanAt};
use super::write::{field_bytes, message_bytes};
use super::{SplitError, SplitLimits, SplitMessage, TooLarge};

/// Bytes in front of a resource or scope, at most: its key, and a length of 32 bits.
const HEAD_BYTES: usize = 1 + 5;

/// Fills `messages`.
pub(super) fn pack(
    index: &mut Index,
    limits: &SplitLimits,
    messages: &mut Vec<SplitMessage>,
) -> Result<TooLarge, SplitError> {
    let base = index.around.map_or(0, |around| around.bytes as usize);
    let mut packing = Packing {
        index,
        limits,
        messages,
        base,
        first: 0,
        end: 0,
        bytes: base,
        number: 1,
        made: 0,
        too_large: TooLarge::default(),
    };
    while let Some(trace_end) = packing.trace_end() {
        packing.add_trace(trace_end)?;
    }
    packing.close()?;
    Ok(packing.too_large)
}

/// The open message, `first..end` of the spans, and what was made before it.
struct Packing<'p> {
    index: &'p mut Index,
    limits: &'p SplitLimits,
    messages: &'p mut Vec<SplitMessage>,
    /// Bytes of a message without spans.
    base: usize,
    first: usize,
    end: usize,
    /// Its size, at most.
    bytes: usize,
    /// Its number, from 1.
    number: u32,
    /// Bytes of the messages before it.
    made: usize,
    too_large: TooLarge,
}

impl Packing<'_> {
    /// The end of the trace that comes next.
    fn trace_end(&self) -> Option<usize> {
        let rest = self.index.spans().get(self.end..)?;
        let next = rest.first()?;
        let length =
            rest.partition_point(|span| (span.partition, span.trace_id) <= (next.partition, next.trace_id));
        Some(self.end.saturating_add(length))
    }

    fn add_trace(&mut self, trace_end: usize) -> Result<(), SplitError> {
        if self.open_partition().is_some_and(|open| Some(open) != self.next_partition()) {
            self.close()?;
        }
        if self.fits(trace_end) {
            self.add(trace_end);
            return Ok(());
        }
        self.close()?;
        if self.fits(trace_end) {
            self.add(trace_end);
            return Ok(());
        }
        while self.end < trace_end {
            self.add_span()?;
        }
        Ok(())
    }

    /// Adds the next span of a trace that is larger than the target.
    fn add_span(&mut self) -> Result<(), SplitError> {
        let span_end = self.end.saturating_add(1);
        if self.fits(span_end) {
            self.add(span_end);
            return Ok(());
        }
        self.close()?;
        let alone = self.bytes.saturating_add(self.cost(span_end));
        if alone > self.limits.message_bytes_max {
            let TooLarge { spans, largest_bytes } = self.too_large;
            self.too_large =
                TooLarge { spans: spans.saturating_add(1), largest_bytes: largest_bytes.max(alone) };
            (self.first, self.end) = (span_end, span_end);
        } else {
            self.add(span_end);
        }
        Ok(())
    }

    /// Whether the spans up to `end` fit into the open message.
    fn fits(&self, end: usize) -> bool {
        self.bytes.saturating_add(self.cost(end)) <= self.limits.target_bytes
    }

    /// Bytes that the spans up to `end` add to the open message, at most. Ends early once these are more than the target.
    fn cost(&self, end: usize) -> usize {
        let (mut bytes, mut last) = (0_usize, None);
        for span in self.index.spans().get(self.end..end).unwrap_or_default() {
            bytes = bytes.saturating_add(field_bytes(span.content.len()));
            if last.is_none_or(|last: &SpanAt| last.scope != span.scope) {
                bytes = bytes.saturating_add(self.cost_of_scope(span, last));
            }
            last = Some(span);
            if bytes > self.limits.target_bytes.max(self.limits.message_bytes_max) {
                break;
            }
        }
        bytes
    }

    /// Bytes of the resource and scope of a span, as far as the open message does not have them yet.
    fn cost_of_scope(&self, span: &SpanAt, last: Option<&SpanAt>) -> usize {
        let Some(scope) = self.index.scopes.get(span.scope as usize) else { return 0 };
        let resource_of =
            |span: &SpanAt| self.index.scopes.get(span.scope as usize).map(|scope| scope.resource);
        let is_new = |holder: &Holder| holder.in_message != self.number;
        let cost = |holder: &Holder| HEAD_BYTES.saturating_add(holder.bytes as usize);
        let of_scope = if is_new(scope) { cost(scope) } else { 0 };
        let is_same = last.is_some_and(|last| resource_of(last) == Some(scope.resource));
        let resource = self.index.resources.get(scope.resource as usize);
        let of_resource = resource.filter(|resource| !is_same && is_new(resource)).map_or(0, cost);
        of_scope.saturating_add(of_resource)
    }

    /// Adds the spans up to `end`.
    fn add(&mut self, end: usize) {
        self.bytes = self.bytes.saturating_add(self.cost(end));
        let mut at = self.end;
        while at < end {
            let scope = self.index.spans().get(at).map_or(0, |span| span.scope as usize);
            if let Some(scope) = self.index.scopes.get_mut(scope) {
                scope.in_message = self.number;
                if let Some(resource) = self.index.resources.get_mut(scope.resource as usize) {
                    resource.in_message = self.number;
                }
            }
            at = at.saturating_add(1);
        }
        self.end = end;
    }

    fn open_partition(&self) -> Option<u32> {
        let open = self.index.spans().get(self.first..self.end)?;
        open.first().map(|span| span.partition)
    }

    fn next_partition(&self) -> Option<u32> {
        self.index.spans().get(self.end).map(|span| span.partition)
    }

    /// Ends the open message, if it has spans.
    fn close(&mut self) -> Result<(), SplitError> {
        let (first, end) = (self.first, self.end);
        if let Some(SpanAt { partition, trace_id, .. }) =
            self.index.spans().get(first..end).and_then(<[_]>::first).copied()
        {
            // The order of the request, so that spans of a scope follow each other.
            self.index.spans_mut(first, end).sort_unstable_by_key(|span| (span.scope, span.content));
            let mut message = SplitMessage { partition, trace_id, bytes: 0, first, end };
            message.bytes = message_bytes(self.index, &message);
            self.made = self.made.saturating_add(message.bytes);
            if self.made > self.limits.made_bytes_max {
                return Err(SplitError::TooManyBytes { made_bytes_max: self.limits.made_bytes_max });
            }
            self.messages.push(message);
        }
        (self.first, self.bytes) = (end, self.base);
        self.number = self.number.saturating_add(1);
        Ok(())
    }
}
