//! Numbered spans: what the tests and the load put into Kafka.
//!
//! Job: make `ExportTraceServiceRequest` bytes whose every span carries a number, so that loss and duplicates in
//! `ClickHouse` are exact counts and not impressions. Place in the flow: before `produce`; `oracle` counts the same
//! numbers on the other side. Owner: whoever produces; a [`Generator`] is single-threaded and reuses one buffer.
//! Limits: one message holds at most [`Shape::message_spans`] spans by convention; the buffer grows to the largest
//! message asked for (1 MB for `loadgen`) and stays.
//!
//! The bytes are written by our own encoder (`wire`), not by prost: the tests check it against prost, so gateway and
//! generator do not share a mistake.
//!
//! Everything follows from the [`Run`], the [`Shape`] and the number; the same three give the same bytes.
//!
//! | carried in | `numbered` | `rich`, `loadgen` |
//! | --- | --- | --- |
//! | attribute `sluice.seq` | the number, as int | the same |
//! | trace id | run id, then number / 100, both big-endian | the same |
//! | span id | number + 1, big-endian | a one-to-one scramble of number + 1 |
//!
//! The load shapes scramble the span id because real ids do not compress and counted-up ones do: with plain numbers
//! every figure of bytes stored or sent would flatter us.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

mod dice;
mod json;
mod loadgen;
mod numbered;
mod numbers;
mod rich;
mod row;
mod value;
mod wire;

pub use dice::Dice;
pub use numbered::expected_row;
pub use numbers::Numbers;
pub use row::{EventRow, Json, LinkRow, Paths, SpanRow};

use wire::Wire;

/// Attribute that carries a span's number, as an int.
pub const NUMBER_KEY: &str = "sluice.seq";

/// Spans in one trace; the trace id carries `number / TRACE_SPANS`. Chosen as in the articles that the load shapes
/// are compared with (about 100 spans a trace).
pub const TRACE_SPANS: u64 = 100;

/// What the spans look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every attribute type, event, link and odd value, for reading back field by field.
    Numbered,
    /// Spans like those of a web shop: 14 resource attributes, 5 to 10 span attributes, 462 bytes a span.
    Rich,
    /// Spans like those of a load generator: one attribute, one event, 121 bytes a span.
    Loadgen,
}

impl Shape {
    /// Spans in one Kafka message of this shape: one trace, ten traces, or a load generator's batch of 8,192.
    pub const fn message_spans(self) -> u64 {
        match self {
            Shape::Numbered => TRACE_SPANS,
            Shape::Rich => 10 * TRACE_SPANS,
            Shape::Loadgen => 8_192,
        }
    }
}

/// How messages are encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// As protobuf.
    #[default]
    OtlpProto,
    /// As OTLP/JSON.
    OtlpJson,
}

/// One producing run: its spans are told from those of other runs by the first half of the trace id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First eight bytes of every trace id, and the seed of the load shapes.
    pub id: u64,
    /// Start of span 0, nanoseconds since 1970.
    pub start_ns: u64,
}

impl Run {
    /// A run that starts now, with the time as its id, so that two runs never share one.
    pub fn fresh() -> Run {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        Run { id: start_ns, start_ns }
    }

    /// The first 16 of the 32 hexadecimal digits of this run's trace ids, as the table stores them.
    pub fn trace_id_prefix(self) -> String {
        format!("{:016x}", self.id)
    }

    fn trace_id(self, number: u64) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.id.to_be_bytes());
        id[8..].copy_from_slice(&(number / TRACE_SPANS).to_be_bytes());
        id
    }
}

/// Makes messages of one shape and run into one reused buffer.
#[derive(Debug)]
pub struct Generator {
    run: Run,
    body: Body,
    wire: Wire,
    encoding: Encoding,
    /// The message as JSON, if that is the encoding.
    text: Vec<u8>,
}

#[derive(Debug)]
enum Body {
    Numbered,
    Rich(rich::Shop),
    Loadgen,
}

impl Generator {
    /// A generator of `shape` for `run`. The `rich` shape encodes its resources here, once.
    pub fn new(shape: Shape, run: Run) -> Generator {
        let body = match shape {
            Shape::Numbered => Body::Numbered,
            Shape::Rich => Body::Rich(rich::Shop::new(run)),
            Shape::Loadgen => Body::Loadgen,
        };
        Generator { run, body, wire: Wire::default(), encoding: Encoding::default(), text: Vec::new() }
    }

    /// The same in another encoding.
    #[must_use]
    pub fn encoded_as(self, encoding: Encoding) -> Generator {
        Generator { encoding, ..self }
    }

    /// One `ExportTraceServiceRequest` with the spans of `numbers`, valid until the next call. The content of a span
    /// does not depend on the cut; an empty range gives an empty message.
    pub fn message(&mut self, numbers: Range<u64>) -> &[u8] {
        self.wire.clear();
        match &self.body {
            Body::Numbered => numbered::message(&mut self.wire, self.run, numbers),
            Body::Rich(shop) => shop.message(&mut self.wire, numbers),
            Body::Loadgen => loadgen::message(&mut self.wire, self.run, numbers),
        }
        match self.encoding {
            Encoding::OtlpProto => self.wire.as_bytes(),
            Encoding::OtlpJson => {
                json::write(self.wire.as_bytes(), &mut self.text);
                &self.text
            }
        }
    }
}

/// A message of traces as OTLP/JSON. What that has no words for stays what it is, and makes a text that is not OTLP/JSON: bytes that
/// are not UTF-8, ids of another length.
pub fn otlp_json(message: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    json::write(message, &mut text);
    text
}

/// Field numbers of `opentelemetry/proto/trace/v1/trace.proto`, those that this generator writes.
mod field {
    pub(super) const REQUEST_RESOURCE_SPANS: u32 = 1;
    pub(super) const RESOURCE_SPANS_RESOURCE: u32 = 1;
    pub(super) const RESOURCE_SPANS_SCOPE_SPANS: u32 = 2;
    pub(super) const RESOURCE_SPANS_SCHEMA_URL: u32 = 3;
    pub(super) const RESOURCE_ATTRIBUTES: u32 = 1;
    pub(super) const SCOPE_SPANS_SCOPE: u32 = 1;
    pub(super) const SCOPE_SPANS_SPANS: u32 = 2;
    pub(super) const SCOPE_NAME: u32 = 1;
    pub(super) const SCOPE_VERSION: u32 = 2;
    pub(super) const SCOPE_ATTRIBUTES: u32 = 3;
    pub(super) const SPAN_TRACE_ID: u32 = 1;
    pub(super) const SPAN_SPAN_ID: u32 = 2;
    pub(super) const SPAN_TRACE_STATE: u32 = 3;
    pub(super) const SPAN_PARENT_SPAN_ID: u32 = 4;
    pub(super) const SPAN_NAME: u32 = 5;
    pub(super) const SPAN_KIND: u32 = 6;
    pub(super) const SPAN_START: u32 = 7;
    pub(super) const SPAN_END: u32 = 8;
    pub(super) const SPAN_ATTRIBUTES: u32 = 9;
    pub(super) const SPAN_DROPPED_ATTRIBUTES: u32 = 10;
    pub(super) const SPAN_EVENTS: u32 = 11;
    pub(super) const SPAN_LINKS: u32 = 13;
    pub(super) const SPAN_STATUS: u32 = 15;
    pub(super) const SPAN_FLAGS: u32 = 16;
    pub(super) const EVENT_TIME: u32 = 1;
    pub(super) const EVENT_NAME: u32 = 2;
    pub(super) const EVENT_ATTRIBUTES: u32 = 3;
    pub(super) const LINK_TRACE_ID: u32 = 1;
    pub(super) const LINK_SPAN_ID: u32 = 2;
    pub(super) const LINK_TRACE_STATE: u32 = 3;
    pub(super) const LINK_ATTRIBUTES: u32 = 4;
    pub(super) const STATUS_MESSAGE: u32 = 2;
    pub(super) const STATUS_CODE: u32 = 3;
}

#[cfg(test)]
mod tests;
