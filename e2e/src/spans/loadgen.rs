//! The `loadgen` shape: what a load generator sends, small and regular.
//!
//! Job: the second load shape of the throughput figures: 8,192 spans and 989 KB a message, 100 spans a resource, four
//! resource attributes, one int attribute, one event and a trace state on every span. Place in the flow: one of the
//! three shapes of `spans`.

use std::ops::Range;

use super::dice::{Dice, scramble};
use super::wire::Wire;
use super::{NUMBER_KEY, Run, TRACE_SPANS, field};

/// Nanoseconds between the starts of neighbouring spans.
const SPAN_STEP_NS: u64 = 10_000;

/// Longest span, nanoseconds.
const DURATION_MAX_NS: u64 = 500_000_000;

/// Writes the message with the spans of `numbers`, one resource for each hundred numbers.
pub(super) fn message(wire: &mut Wire, run: Run, numbers: Range<u64>) {
    let mut start = numbers.start;
    while start < numbers.end {
        let end = numbers.end.min((start / TRACE_SPANS + 1) * TRACE_SPANS);
        wire.nested(field::REQUEST_RESOURCE_SPANS, |w| resource_spans(w, run, start..end));
        start = end;
    }
}

fn resource_spans(wire: &mut Wire, run: Run, numbers: Range<u64>) {
    wire.nested(field::RESOURCE_SPANS_RESOURCE, |w| {
        w.text_attribute(field::RESOURCE_ATTRIBUTES, "service.name", "loadgen");
        w.text_attribute(field::RESOURCE_ATTRIBUTES, "service.version", "1.0.0-load");
        w.text_attribute(field::RESOURCE_ATTRIBUTES, "host.name", "loadgen-7d9c5b-x2k4q");
        w.text_attribute(field::RESOURCE_ATTRIBUTES, "telemetry.sdk.language", "rust");
    });
    wire.nested(field::RESOURCE_SPANS_SCOPE_SPANS, |w| {
        w.nested(field::SCOPE_SPANS_SCOPE, |w| w.text(field::SCOPE_NAME, "loadgen"));
        for number in numbers {
            w.nested(field::SCOPE_SPANS_SPANS, |w| span(w, run, number));
        }
    });
}

fn span(wire: &mut Wire, run: Run, number: u64) {
    let mut dice = Dice::new(run.id, number);
    let start_ns = run.start_ns + number * SPAN_STEP_NS + dice.below(SPAN_STEP_NS);
    let duration_ns = dice.below(DURATION_MAX_NS);
    wire.bytes(field::SPAN_TRACE_ID, &run.trace_id(number));
    wire.bytes(field::SPAN_SPAN_ID, &scramble(number + 1).to_be_bytes());
    wire.text(field::SPAN_TRACE_STATE, "loadgen=00f067");
    wire.text(field::SPAN_NAME, "load-span");
    wire.unsigned(field::SPAN_KIND, 1);
    wire.fixed64(field::SPAN_START, start_ns);
    wire.fixed64(field::SPAN_END, start_ns + duration_ns);
    wire.int_attribute(field::SPAN_ATTRIBUTES, NUMBER_KEY, number.cast_signed());
    wire.nested(field::SPAN_EVENTS, |w| {
        w.fixed64(field::EVENT_TIME, start_ns + dice.below(duration_ns + 1));
        w.text(field::EVENT_NAME, "checkpoint");
    });
}
