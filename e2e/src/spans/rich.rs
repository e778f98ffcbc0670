//! The `rich` shape: spans like those of a web shop's services.
//!
//! Job: the first load shape of the throughput figures: 1,000 spans and 461 KB a message; ten traces of 100 spans, each
//! trace in eight services with 14 resource attributes, parents in other services; 5 to 10 span attributes, 7.5 on
//! average; 3 % exception events with stack text, 8 % other events, 1 % links. Place in the flow: one of the three shapes
//! of `spans`. Limits: resources are encoded once when the shop is made; a span allocates nothing.
//!
//! Measured (`cargo bench -p sluice-gateway --bench path -- --spans 100000 --stage lz4-flex`, 21 November 2026): 468 bytes
//! a span on the wire, 932 as a row, 118 and 99 compressed by our encoder in pieces of 64 K and 256 K, 102 by `lz4_flex` in
//! 256 K; the figures to compare with are 462, 926, 112 and 98. What the attributes hold and why: `conventions`.

use std::ops::Range;

use super::dice::{Dice, scramble};
use super::wire::Wire;
use super::{NUMBER_KEY, Run, TRACE_SPANS, field};

mod conventions;
mod exceptions;
mod services;

use conventions::{Draw, Made, OPERATIONS, Operation};

/// Seed of the first trace's visitor: beyond the seeds of services and, from the other end, of spans.
const VISITORS: u64 = 1 << 62;

/// Services that take part in one trace.
const TRACE_SERVICES: u64 = 8;

/// Nanoseconds between the starts of neighbouring traces.
const TRACE_STEP_NS: u64 = 1_000_000;

/// Attributes of one span besides its number: 4 to 9, all counts as likely.
const ATTRIBUTES_MIN: u64 = 4;
const ATTRIBUTES_MAX: u64 = 9;

/// Spans of 1,000 that are of their service's usual kind.
const USUAL_PER_MILLE: u64 = 900;

/// Spans of 1,000 with an exception, with another event, with a link.
const EXCEPTIONS_PER_MILLE: u64 = 30;
const EVENTS_PER_MILLE: u64 = 80;
const LINKS_PER_MILLE: u64 = 10;

/// Status code of a failed span (`trace.proto`, `Status.StatusCode`).
const STATUS_ERROR: u64 = 2;
/// Flags of a sampled span with a local parent (`trace.proto`, `SpanFlags`).
const FLAGS_SAMPLED: u32 = 0x101;

/// The services with their encoded resources.
#[derive(Debug)]
pub(super) struct Shop {
    run: Run,
    /// An encoded `Resource` for each service and instance.
    resources: Vec<Vec<u8>>,
}

/// A span's place in time and whether it failed.
struct Timing {
    start_ns: u64,
    end_ns: u64,
}

impl Shop {
    /// A shop whose spans belong to `run`.
    pub(super) fn new(run: Run) -> Shop {
        let resources = (0..services::COUNT).map(|index| services::encoded(run, index)).collect();
        Shop { run, resources }
    }

    /// Writes the message with the spans of `numbers`: for each trace, the services in turn.
    pub(super) fn message(&self, wire: &mut Wire, numbers: Range<u64>) {
        let mut start = numbers.start;
        while start < numbers.end {
            let end = numbers.end.min((start / TRACE_SPANS + 1) * TRACE_SPANS);
            for service in 0..TRACE_SERVICES {
                let mut mine = (start..end).filter(|number| service_of(*number) == service).peekable();
                if mine.peek().is_some() {
                    wire.nested(field::REQUEST_RESOURCE_SPANS, |w| self.resource_spans(w, service, mine));
                }
            }
            start = end;
        }
    }

    fn resource_spans(
        &self,
        wire: &mut Wire,
        service: u64,
        mut numbers: std::iter::Peekable<impl Iterator<Item = u64>>,
    ) {
        let trace = numbers.peek().copied().unwrap_or(0) / TRACE_SPANS;
        // Which services a trace goes through follows from the trace; neighbours in the list never repeat.
        let first = Dice::new(self.run.id, trace).below(services::COUNT);
        let index = usize::try_from((first + service * 5) % services::COUNT).unwrap_or(0);
        wire.nested(field::RESOURCE_SPANS_RESOURCE, |w| w.encoded(&self.resources[index]));
        wire.nested(field::RESOURCE_SPANS_SCOPE_SPANS, |w| {
            w.nested(field::SCOPE_SPANS_SCOPE, |w| {
                w.text(field::SCOPE_NAME, services::SCOPE);
                w.text(field::SCOPE_VERSION, "2.21.0");
            });
            for number in numbers {
                w.nested(field::SCOPE_SPANS_SPANS, |w| self.span(w, number));
            }
        });
    }

    fn span(&self, wire: &mut Wire, number: u64) {
        let mut dice = Dice::new(self.run.id, !number);
        let operation = operation_of(&mut dice, number);
        let variant = &operation.variants[dice.index(operation.variants.len())];
        let timing = self.timing(&mut dice, number);
        wire.bytes(field::SPAN_TRACE_ID, &self.run.trace_id(number));
        wire.bytes(field::SPAN_SPAN_ID, &scramble(number + 1).to_be_bytes());
        if let Some(parent) = parent_of(&mut dice, number) {
            wire.bytes(field::SPAN_PARENT_SPAN_ID, &scramble(parent + 1).to_be_bytes());
        }
        wire.text(field::SPAN_NAME, variant.name);
        wire.unsigned(field::SPAN_KIND, operation.kind);
        wire.fixed64(field::SPAN_START, timing.start_ns);
        wire.fixed64(field::SPAN_END, timing.end_ns);
        let visitor = Dice::new(self.run.id, VISITORS + number / TRACE_SPANS);
        attributes(
            wire,
            Draw { span: Dice::new(dice.roll(), number), visitor: &visitor, variant },
            operation,
            number,
        );
        events(wire, &mut dice, &timing);
        if dice.chance(LINKS_PER_MILLE) {
            link(wire, self.run, dice.below(number + 1));
        }
        wire.fixed32(field::SPAN_FLAGS, FLAGS_SAMPLED);
    }

    /// Durations from microseconds to a second, most of them short.
    fn timing(&self, dice: &mut Dice, number: u64) -> Timing {
        let in_trace = number % TRACE_SPANS;
        let trace_start_ns = self.run.start_ns + number / TRACE_SPANS * TRACE_STEP_NS;
        let start_ns = trace_start_ns + in_trace * 40_000 + dice.below(40_000);
        let magnitude = 13 + dice.below(17);
        Timing { start_ns, end_ns: start_ns + dice.below(1 << magnitude) }
    }
}

/// Which of a trace's eight services a span belongs to: neighbours are in different ones, so parents are elsewhere.
fn service_of(number: u64) -> u64 {
    number % TRACE_SPANS % TRACE_SERVICES
}

/// A service does mostly one kind of work: three spans of four are of the service's own kind.
fn operation_of(dice: &mut Dice, number: u64) -> &'static Operation {
    let usual = (number / TRACE_SPANS + service_of(number)) % OPERATIONS.len() as u64;
    let usual = OPERATIONS[usize::try_from(usual).unwrap_or(0)];
    if dice.chance(USUAL_PER_MILLE) { usual } else { dice.pick(&OPERATIONS) }
}

/// One of the few spans before in the same trace, so in another service; the first has none.
fn parent_of(dice: &mut Dice, number: u64) -> Option<u64> {
    let in_trace = number % TRACE_SPANS;
    (in_trace > 0).then(|| number - 1 - dice.below(in_trace.min(TRACE_SERVICES - 1)))
}

/// An instrumentation sets the same attributes on all of a service's spans, so the count follows from trace and service.
fn attribute_count(number: u64) -> u64 {
    let counts = ATTRIBUTES_MAX - ATTRIBUTES_MIN + 1;
    ATTRIBUTES_MIN + scramble(number / TRACE_SPANS * TRACE_SERVICES + service_of(number)) % counts
}

fn attributes(wire: &mut Wire, mut draw: Draw<'_>, operation: &Operation, number: u64) {
    wire.int_attribute(field::SPAN_ATTRIBUTES, NUMBER_KEY, number.cast_signed());
    let count = usize::try_from(attribute_count(number)).unwrap_or(0);
    for (key, make) in operation.attributes.iter().take(count) {
        let mut text = conventions::Text::default();
        match make.make(&mut draw, &mut text) {
            Made::Text => wire.text_attribute(field::SPAN_ATTRIBUTES, key, text.as_str()),
            Made::Int(value) => wire.int_attribute(field::SPAN_ATTRIBUTES, key, value),
            Made::Bool(value) => wire.bool_attribute(field::SPAN_ATTRIBUTES, key, value),
        }
    }
}

fn events(wire: &mut Wire, dice: &mut Dice, timing: &Timing) {
    if dice.chance(EXCEPTIONS_PER_MILLE) {
        let exception = dice.pick(&exceptions::EXCEPTIONS);
        wire.nested(field::SPAN_EVENTS, |w| {
            w.fixed64(field::EVENT_TIME, timing.end_ns);
            w.text(field::EVENT_NAME, "exception");
            w.text_attribute(field::EVENT_ATTRIBUTES, "exception.type", exception.kind);
            w.text_attribute(field::EVENT_ATTRIBUTES, "exception.message", exception.message);
            w.text_attribute(field::EVENT_ATTRIBUTES, "exception.stacktrace", exception.stack);
        });
        wire.nested(field::SPAN_STATUS, |w| {
            w.text(field::STATUS_MESSAGE, exception.message);
            w.unsigned(field::STATUS_CODE, STATUS_ERROR);
        });
    }
    if dice.chance(EVENTS_PER_MILLE) {
        wire.nested(field::SPAN_EVENTS, |w| {
            w.fixed64(field::EVENT_TIME, timing.start_ns + 1_000);
            w.text(field::EVENT_NAME, dice.pick(&["cache.miss", "retry", "message.received"]));
            w.text_attribute(field::EVENT_ATTRIBUTES, "component", "connection-pool");
            w.int_attribute(field::EVENT_ATTRIBUTES, "attempt", dice.below(5).cast_signed());
        });
    }
}

fn link(wire: &mut Wire, run: Run, linked: u64) {
    wire.nested(field::SPAN_LINKS, |w| {
        w.bytes(field::LINK_TRACE_ID, &run.trace_id(linked));
        w.bytes(field::LINK_SPAN_ID, &scramble(linked + 1).to_be_bytes());
        w.text_attribute(field::LINK_ATTRIBUTES, "link.reason", "follows_from");
    });
}
