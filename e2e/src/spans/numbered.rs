//! The `numbered` shape: small spans with every attribute type and every odd value that the table must keep.
//!
//! Job: make the span of a number as plain data, and from that both its bytes and the row it must become. Place in the
//! flow: one of the three shapes of `spans`. Limits: about 1 KB a span and some 60 small allocations; made for checking,
//! not for speed (the load shapes are).
//!
//! What varies with the number, so that ten well picked rows meet all of it: value extremes (`number % 5`, `% 6`), status
//! (`% 3`), kind (`% 6`), resource (`% 3`: two different ones and none), scope (`/ 3 % 2`: one and none), events
//! (`% 3` of them), links (`% 2` of them), a span that ends before it starts (`% 11`).

use std::ops::Range;

use super::row::{EventRow, LinkRow, SpanRow, paths};
use super::value::{Attribute, Value, attribute};
use super::wire::Wire;
use super::{NUMBER_KEY, Run, TRACE_SPANS, field};

/// Nanoseconds between the starts of neighbouring spans: odd, so that every digit of a timestamp is used.
const SPAN_STEP_NS: u64 = 1_003;

/// Different resources in a message; the last one is absent.
const RESOURCES: u64 = 3;
/// Different scopes under each resource; the last one is absent.
const SCOPES: u64 = 2;

const KINDS: [&str; 6] = ["Unspecified", "Internal", "Server", "Client", "Producer", "Consumer"];
const STATUS_CODES: [&str; 3] = ["Unset", "Ok", "Error"];
const TEXTS: [&str; 4] = ["plain", "", "ä ß 漢字 \u{1f680}", "\"quoted\"\n\ttab \\ and 'single'"];
const DOUBLES: [f64; 6] = [0.375, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 5e-324];

struct Event {
    time_ns: u64,
    name: String,
    attributes: Vec<Attribute>,
}

struct Link {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    trace_state: String,
    attributes: Vec<Attribute>,
}

struct Span {
    trace_id: [u8; 16],
    id: [u8; 8],
    parent_id: Option<[u8; 8]>,
    trace_state: String,
    name: String,
    kind: u64,
    start_ns: u64,
    end_ns: u64,
    attributes: Vec<Attribute>,
    events: Vec<Event>,
    links: Vec<Link>,
    status_code: u64,
    status_message: String,
}

/// Writes the message with the spans of `numbers`: three resources, each with two scopes, so that neighbouring numbers
/// are in different ones.
pub(super) fn message(wire: &mut Wire, run: Run, numbers: Range<u64>) {
    for resource in 0..RESOURCES {
        if numbers.clone().any(|number| number % RESOURCES == resource) {
            wire.nested(field::REQUEST_RESOURCE_SPANS, |w| resource_spans(w, run, resource, &numbers));
        }
    }
}

fn resource_spans(wire: &mut Wire, run: Run, resource: u64, numbers: &Range<u64>) {
    let attributes = resource_attributes(resource);
    if !attributes.is_empty() {
        wire.nested(field::RESOURCE_SPANS_RESOURCE, |w| {
            w.attributes(field::RESOURCE_ATTRIBUTES, &attributes);
        });
    }
    for scope in 0..SCOPES {
        let mine = |number: &u64| number % RESOURCES == resource && scope_of(*number) == scope;
        if numbers.clone().any(|number| mine(&number)) {
            wire.nested(field::RESOURCE_SPANS_SCOPE_SPANS, |w| {
                write_scope(w, scope);
                for number in numbers.clone().filter(mine) {
                    w.nested(field::SCOPE_SPANS_SPANS, |w| span(run, number).write(w));
                }
            });
        }
    }
    wire.text(field::RESOURCE_SPANS_SCHEMA_URL, "https://opentelemetry.io/schemas/1.38.0");
}

fn write_scope(wire: &mut Wire, scope: u64) {
    let (name, version) = scope_texts(scope);
    if !name.is_empty() {
        wire.nested(field::SCOPE_SPANS_SCOPE, |w| {
            w.text(field::SCOPE_NAME, name);
            w.text(field::SCOPE_VERSION, version);
            w.text_attribute(field::SCOPE_ATTRIBUTES, "ignored", "no column has it");
        });
    }
}

fn scope_of(number: u64) -> u64 {
    number / RESOURCES % SCOPES
}

fn scope_texts(scope: u64) -> (&'static str, &'static str) {
    if scope == 0 { ("sluice.numbered", "1.2.3-ä") } else { ("", "") }
}

fn resource_attributes(resource: u64) -> Vec<Attribute> {
    match resource {
        0 => vec![
            attribute("host.name", "one"),
            attribute("service.name", "numbered-one"),
            attribute("process.pid", Value::Int(4_711)),
            attribute("host.virtual", Value::Bool(true)),
            attribute("host.load", Value::Double(0.5)),
            attribute("host.key", Value::Bytes(vec![0, 1, 254, 255])),
            attribute("process.args", Value::Array(vec!["run".into(), "--config".into(), "".into()])),
            attribute(
                "k8s",
                Value::List(vec![attribute("pod", Value::List(vec![attribute("name", "one-0")]))]),
            ),
            attribute("host.nothing", Value::Empty),
        ],
        1 => vec![attribute("service.name", "numbered-two"), attribute("service.name", "late")],
        _ => vec![],
    }
}

/// The span of `number`.
fn span(run: Run, number: u64) -> Span {
    let start_ns = run.start_ns + number * SPAN_STEP_NS;
    let in_trace = number % TRACE_SPANS;
    let status_code = number % 3;
    Span {
        trace_id: run.trace_id(number),
        id: span_id(number),
        parent_id: (in_trace != 0).then(|| span_id(number - in_trace)),
        trace_state: if number.is_multiple_of(4) {
            format!("sluice={number},other=x")
        } else {
            String::new()
        },
        name: format!("numbered {}", number % 16),
        kind: number % 6,
        start_ns,
        end_ns: if number % 11 == 5 { start_ns - 1 } else { start_ns + number % 1_000 * 1_000_001 },
        attributes: span_attributes(number),
        events: (0..number % 3).map(|index| event(number, index, start_ns)).collect(),
        links: (0..number % 2).map(|_| link(run, number)).collect(),
        status_code,
        status_message: if status_code == 2 { format!("failed at {number}") } else { String::new() },
    }
}

fn span_id(number: u64) -> [u8; 8] {
    (number + 1).to_be_bytes()
}

fn span_attributes(number: u64) -> Vec<Attribute> {
    let signed = number.cast_signed();
    let mut attributes = vec![
        attribute(NUMBER_KEY, Value::Int(signed)),
        attribute("text", TEXTS[cycle(number, TEXTS.len())]),
        attribute("flag", Value::Bool(number.is_multiple_of(2))),
        attribute("count", Value::Int([signed, -signed, i64::MIN, i64::MAX, 0][cycle(number, 5)])),
        attribute("ratio", Value::Double(DOUBLES[cycle(number, DOUBLES.len())])),
        attribute("raw", Value::Bytes([0xff, 0x00, 0xfe, 0x3e][..cycle(number, 5)].to_vec())),
        // The same path with another type in the next span.
        attribute("any", [Value::Int(signed), "text".into(), Value::Bool(true)][cycle(number, 3)].clone()),
        attribute("empty", Value::Empty),
        attribute("twice", Value::Int(signed)),
        attribute("twice", "late"),
    ];
    attributes.extend(arrays(number));
    attributes.extend(lists(number));
    attributes
}

fn arrays(number: u64) -> [Attribute; 7] {
    let signed = number.cast_signed();
    let repeat = |value: Value| Value::Array(vec![value; 1 + cycle(number, 3)]);
    let object = |key: &str, value: Value| {
        Value::List(vec![attribute("n", Value::Int(signed)), attribute(key, value)])
    };
    [
        attribute("list.text", repeat(TEXTS[cycle(number, TEXTS.len())].into())),
        attribute("list.int", Value::Array(vec![Value::Int(signed), Value::Int(i64::MIN)])),
        attribute("list.bool", Value::Array(vec![Value::Bool(false), Value::Bool(true)])),
        attribute("list.double", repeat(Value::Double(DOUBLES[cycle(number, DOUBLES.len())]))),
        attribute(
            "list.mixed",
            Value::Array(vec![Value::Int(signed), "x".into(), Value::Bool(false), Value::Double(1.5)]),
        ),
        attribute(
            "list.object",
            Value::Array(vec![
                object("s", "first".into()),
                object("deep", Value::List(vec![attribute("flag", Value::Bool(true))])),
            ]),
        ),
        attribute("list.none", Value::Array(vec![])),
    ]
}

fn lists(number: u64) -> Vec<Attribute> {
    let nested = Value::List(vec![
        attribute("name", "outer"),
        attribute(
            "deep",
            Value::List(vec![attribute("level", Value::Int(2)), attribute("gone", Value::Empty)]),
        ),
        attribute("ids", Value::Array(vec![Value::Int(1), Value::Int(2)])),
    ]);
    let clash = Value::List(vec![attribute("name", "flattened"), attribute("other", Value::Int(1))]);
    let mut lists = vec![
        attribute("nested", nested),
        attribute("hollow", Value::List(vec![])),
        attribute("clash", clash),
        attribute("clash.name", "literal"),
    ];
    if number % 2 == 1 {
        // The literal key before the list that would flatten onto it.
        lists.swap(2, 3);
    }
    lists
}

fn event(number: u64, index: u64, start_ns: u64) -> Event {
    Event {
        time_ns: start_ns + 7 * (index + 1),
        name: format!("event {index}"),
        attributes: vec![
            attribute(NUMBER_KEY, Value::Int(number.cast_signed())),
            attribute("index", Value::Int(index.cast_signed())),
            attribute("final", Value::Bool(index == 1)),
            attribute("exception.message", TEXTS[cycle(number, TEXTS.len())]),
            attribute("weights", Value::Array(vec![Value::Double(0.5), Value::Double(f64::NAN)])),
            attribute("at", Value::List(vec![attribute("line", Value::Int(42))])),
        ],
    }
}

fn link(run: Run, number: u64) -> Link {
    Link {
        trace_id: run.trace_id(number / 2),
        span_id: span_id(number / 2),
        trace_state: format!("linked={number}"),
        attributes: vec![
            attribute("reason", "follows"),
            attribute("weight", Value::Double(0.25)),
            attribute("tags", Value::Array(vec!["a".into(), "b".into()])),
        ],
    }
}

/// `number` modulo `length`, as an index.
fn cycle(number: u64, length: usize) -> usize {
    usize::try_from(number % length as u64).unwrap_or(0)
}

impl Span {
    fn write(&self, wire: &mut Wire) {
        wire.bytes(field::SPAN_TRACE_ID, &self.trace_id);
        wire.bytes(field::SPAN_SPAN_ID, &self.id);
        wire.text_unless_empty(field::SPAN_TRACE_STATE, &self.trace_state);
        if let Some(parent) = &self.parent_id {
            wire.bytes(field::SPAN_PARENT_SPAN_ID, parent);
        }
        wire.text(field::SPAN_NAME, &self.name);
        if self.kind != 0 {
            wire.unsigned(field::SPAN_KIND, self.kind);
        }
        wire.fixed64(field::SPAN_START, self.start_ns);
        wire.fixed64(field::SPAN_END, self.end_ns);
        wire.attributes(field::SPAN_ATTRIBUTES, &self.attributes);
        // Two fields that no column has: they must be passed over.
        wire.unsigned(field::SPAN_DROPPED_ATTRIBUTES, 3);
        wire.fixed32(field::SPAN_FLAGS, 0x101);
        for event in &self.events {
            wire.nested(field::SPAN_EVENTS, |w| event.write(w));
        }
        for link in &self.links {
            wire.nested(field::SPAN_LINKS, |w| link.write(w));
        }
        if self.status_code != 0 {
            wire.nested(field::SPAN_STATUS, |w| {
                w.text_unless_empty(field::STATUS_MESSAGE, &self.status_message);
                w.unsigned(field::STATUS_CODE, self.status_code);
            });
        }
    }
}

impl Event {
    fn write(&self, wire: &mut Wire) {
        wire.fixed64(field::EVENT_TIME, self.time_ns);
        wire.text(field::EVENT_NAME, &self.name);
        wire.attributes(field::EVENT_ATTRIBUTES, &self.attributes);
    }

    fn row(&self) -> EventRow {
        EventRow {
            timestamp_ns: self.time_ns.cast_signed(),
            name: self.name.clone(),
            attributes: paths(&self.attributes),
        }
    }
}

impl Link {
    fn write(&self, wire: &mut Wire) {
        wire.bytes(field::LINK_TRACE_ID, &self.trace_id);
        wire.bytes(field::LINK_SPAN_ID, &self.span_id);
        wire.text(field::LINK_TRACE_STATE, &self.trace_state);
        wire.attributes(field::LINK_ATTRIBUTES, &self.attributes);
    }

    fn row(&self) -> LinkRow {
        LinkRow {
            trace_id: hex16(self.trace_id),
            span_id: hex8(self.span_id),
            trace_state: self.trace_state.clone(),
            attributes: paths(&self.attributes),
        }
    }
}

/// The row that the `numbered` span of `number` must become (`row` has the table of types).
pub fn expected_row(run: Run, number: u64) -> SpanRow {
    let span = span(run, number);
    let resource = number % RESOURCES;
    let (scope_name, scope_version) = scope_texts(scope_of(number));
    let service_name = ["numbered-one", "numbered-two", ""][cycle(number, 3)];
    SpanRow {
        timestamp_ns: span.start_ns.cast_signed(),
        trace_id: hex16(span.trace_id),
        span_id: hex8(span.id),
        parent_span_id: span.parent_id.map(hex8).unwrap_or_default(),
        trace_state: span.trace_state,
        span_name: span.name,
        span_kind: KINDS[cycle(span.kind, KINDS.len())].to_owned(),
        service_name: service_name.to_owned(),
        resource_attributes: paths(&resource_attributes(resource)),
        scope_name: scope_name.to_owned(),
        scope_version: scope_version.to_owned(),
        span_attributes: paths(&span.attributes),
        duration_ns: span.end_ns.saturating_sub(span.start_ns),
        status_code: STATUS_CODES[cycle(span.status_code, STATUS_CODES.len())].to_owned(),
        status_message: span.status_message,
        events: span.events.iter().map(Event::row).collect(),
        links: span.links.iter().map(Link::row).collect(),
    }
}

fn hex16(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

fn hex8(id: [u8; 8]) -> String {
    format!("{:016x}", u64::from_be_bytes(id))
}
