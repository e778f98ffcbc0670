//! The spans of e2e/stack/clients/README.md, field by field, and their comparison with what was received.

use super::{Language, SPANS, Sent};
use crate::{
    edge::Found,
    messages::{array, attribute, list, string},
};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{
        Span, Status, TracesData,
        span::{Event, Link, SpanKind},
        status::StatusCode,
    },
};
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};

/// A span with what is around it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Received {
    pub resource: Resource,
    pub resource_url: String,
    pub scope: InstrumentationScope,
    pub scope_url: String,
    pub span: Span,
}

impl Received {
    /// With attributes in the order of their keys, values that are equal to themselves, and a status, which is unset by default.
    fn comparable(mut self) -> Self {
        plain(&mut self.resource.attributes);
        plain(&mut self.scope.attributes);
        plain(&mut self.span.attributes);
        self.span.status.get_or_insert_default();
        self.span.events.iter_mut().for_each(|event| plain(&mut event.attributes));
        self.span.links.iter_mut().for_each(|link| plain(&mut link.attributes));
        self
    }
}

/// Sorts by key; equal keys stay in their order. NaN, which equals nothing, becomes a text.
fn plain(attributes: &mut [KeyValue]) {
    attributes.sort_by(|a, b| a.key.cmp(&b.key));
    for value in attributes.iter_mut().filter_map(|attribute| attribute.value.as_mut()) {
        if matches!(value.value, Some(Value::DoubleValue(double)) if double.is_nan()) {
            value.value = Some(string("not a number"));
        }
    }
}

/// The spans of messages.
pub fn received(found: &[Found]) -> Vec<Received> {
    let mut received = Vec::new();
    for of_resource in found.iter().flat_map(|found| &found.data.resource_spans) {
        for of_scope in &of_resource.scope_spans {
            received.extend(of_scope.spans.iter().map(|span| Received {
                resource: of_resource.resource.clone().unwrap_or_default(),
                resource_url: of_resource.schema_url.clone(),
                scope: of_scope.scope.clone().unwrap_or_default(),
                scope_url: of_scope.schema_url.clone(),
                span: span.clone(),
            }));
        }
    }
    received
}

/// Those of one run of a client, by their number.
pub fn of_run(sent: &Sent, received: &[Received]) -> BTreeMap<i64, Vec<Received>> {
    let run = bytes(&sent.run);
    let mut found: BTreeMap<i64, Vec<Received>> = BTreeMap::new();
    for one in received.iter().filter(|one| one.span.trace_id.starts_with(&run)) {
        found.entry(number(one)).or_default().push(one.clone());
    }
    found
}

fn number(received: &Received) -> i64 {
    let attribute = received.span.attributes.iter().find(|attribute| attribute.key == "number");
    match attribute.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Value::IntValue(number)) => *number,
        other => panic!("{other:?} is no number: {received:?}"),
    }
}

/// Checks that every span of a run was received this number of times, and that each of its fields is what the client had to send.
pub fn compare(sent: &Sent, received: &[Received], copies: usize) {
    let found = of_run(sent, received);
    let numbers: Vec<_> = found.iter().map(|(number, copies)| (*number, copies.len())).collect();
    assert_eq!(numbers, (0..SPANS).map(|number| (number, copies)).collect::<Vec<_>>(), "{sent:?}");
    same(sent, &found);
}

/// Checks each field of the spans that were received.
pub fn same(sent: &Sent, found: &BTreeMap<i64, Vec<Received>>) {
    let ids: BTreeMap<_, _> =
        found.iter().map(|(number, copies)| (*number, copies[0].span.span_id.clone())).collect();
    assert_eq!(ids.values().collect::<BTreeSet<_>>().len(), found.len(), "ids of spans occur once");
    for (number, copies) in found {
        let before = number.checked_sub(1).and_then(|before| ids.get(&before));
        // Without the one before nothing tells its id.
        let Some(before) = before.cloned().or_else(|| (*number == 0).then(Vec::new)) else { continue };
        let wanted = sent.wanted(*number, ids[number].clone(), before).comparable();
        for copy in copies {
            let mut wanted = wanted.clone();
            // The edge leaves what no row has out of JSON (EDGE.md).
            if sent.has_json && copy.span.links.iter().all(|link| link.flags == 0) {
                wanted.span.links.iter_mut().for_each(|link| link.flags = 0);
            }
            assert_eq!(copy.clone().comparable(), wanted, "{sent:?}");
        }
    }
}

/// Every span that a client sends, with the ids that its SDK chose.
pub fn with_ids(sent: &Sent, ids: &BTreeMap<i64, Vec<u8>>) -> Vec<Received> {
    let numbers: Vec<_> = ids.keys().copied().collect();
    assert_eq!(numbers, (0..SPANS).collect::<Vec<_>>(), "{sent:?}");
    assert_eq!(ids.values().collect::<BTreeSet<_>>().len(), ids.len(), "ids of spans occur once");
    let before = |number: i64| ids.get(&(number - 1)).cloned().unwrap_or_default();
    ids.iter().map(|(number, id)| sent.wanted(*number, id.clone(), before(*number))).collect()
}

pub fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn double(value: f64) -> Value {
    Value::DoubleValue(value)
}

fn int(value: i64) -> Value {
    Value::IntValue(value)
}

fn of_all<T>(values: impl IntoIterator<Item = T>, value: impl Fn(T) -> Value) -> Value {
    array(values.into_iter().map(|one| Some(value(one))).collect())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of spans are small")]
fn float(number: i64) -> f64 {
    number as f64
}

/// Bits of `flags` beside those of W3C: it is known whether the parent is remote, and it is.
const KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;
const SAMPLED: u32 = 1;

impl Sent {
    fn wanted(&self, n: i64, id: Vec<u8>, before: Vec<u8>) -> Received {
        Received {
            resource: Resource { attributes: self.resource(), ..Resource::default() },
            resource_url: "https://example.com/resource".into(),
            scope: InstrumentationScope {
                name: "sluice.clients".into(),
                version: "1.2.3".into(),
                attributes: self.scope(),
                ..InstrumentationScope::default()
            },
            scope_url: "https://example.com/scope".into(),
            span: self.span(n, id, before),
        }
    }

    fn resource(&self) -> Vec<KeyValue> {
        vec![
            attribute("service.name", string(&format!("orders-{}", self.language.name()))),
            attribute("service.instance.id", string(&self.run)),
            attribute("replica", int(3)),
            attribute("ratio", double(0.25)),
            attribute("canary", Value::BoolValue(true)),
            attribute("zones", of_all(["a", "b"], string)),
        ]
    }

    fn scope(&self) -> Vec<KeyValue> {
        if matches!(self.language, Language::Python | Language::Go) {
            vec![attribute("scope.text", string("orders")), attribute("scope.number", int(7))]
        } else {
            Vec::new()
        }
    }

    fn span(&self, n: i64, span_id: Vec<u8>, before: Vec<u8>) -> Span {
        const KINDS: [SpanKind; 5] =
            [SpanKind::Internal, SpanKind::Server, SpanKind::Client, SpanKind::Producer, SpanKind::Consumer];
        let (trace, place) = (n / 5, n % 5);
        let trace_id = |trace: i64| bytes(&format!("{}{:016x}", self.run, trace + 1));
        let remote = bytes(&format!("5111ce00{:08x}", trace + 1));
        let start = self.start_nanos + u64::try_from(n * 1_000_003).unwrap();
        let event = |i: i64| Event {
            time_unix_nano: start + u64::try_from((i + 1) * 1_001).unwrap(),
            name: format!("event {i}"),
            attributes: vec![
                attribute("event.number", int(i)),
                attribute("event.text", string(&format!("of {n}"))),
            ],
            ..Event::default()
        };
        let link = (n > 0).then(|| Link {
            trace_id: trace_id((n - 1) / 5),
            span_id: before.clone(),
            trace_state: self.state_of_link((n - 1) / 5),
            attributes: vec![attribute("link.number", int(n))],
            flags: self.flags(false),
            ..Link::default()
        });
        let (code, message) = match n % 3 {
            0 => (StatusCode::Unset, String::new()),
            1 => (StatusCode::Ok, String::new()),
            _ => (StatusCode::Error, format!("failed {n}")),
        };
        Span {
            trace_id: trace_id(trace),
            span_id,
            trace_state: format!("sluice=t{trace}"),
            parent_span_id: if place == 0 { remote } else { before },
            flags: self.flags(place == 0),
            name: format!("span {n}"),
            kind: KINDS[usize::try_from(place).unwrap()].into(),
            start_time_unix_nano: start,
            end_time_unix_nano: start + 5_000_000 + u64::try_from(n).unwrap(),
            attributes: self.attributes(n),
            events: (0..n % 3).map(event).collect(),
            links: link.into_iter().collect(),
            status: Some(Status { code: code.into(), message }),
            ..Span::default()
        }
    }

    /// The SDK for Python leaves the flags of W3C out.
    fn flags(&self, is_remote: bool) -> u32 {
        let sampled = if self.language == Language::Python { 0 } else { SAMPLED };
        sampled | KNOWN | if is_remote { REMOTE } else { 0 }
    }

    /// The SDKs for Python and Go leave it out.
    fn state_of_link(&self, trace: i64) -> String {
        let has_it = matches!(self.language, Language::Java | Language::JavaScript);
        if has_it { format!("sluice=t{trace}") } else { String::new() }
    }

    fn attributes(&self, n: i64) -> Vec<KeyValue> {
        let mut attributes = vec![
            attribute("number", int(n)),
            attribute("int.negative", int(-n - 1)),
            attribute("int.large", int((1 << 53) - 1 - n)),
            attribute("double.half", double(float(n) + 0.5)),
            attribute("bool", Value::BoolValue(n % 2 == 0)),
            attribute("text.words", string(&format!("span {n} \"quoted\" \\ ü 日本 🎉"))),
            attribute("text.empty", string("")),
            attribute("list.texts", of_all(["a", "", &format!("ü{n}")], string)),
            attribute("list.ints", of_all([n, -n, 0], int)),
            attribute("list.doubles", of_all([0.5, float(n) + 0.25], double)),
            attribute("list.bools", of_all([true, false], Value::BoolValue)),
            attribute("list.empty", array(vec![])),
        ];
        attributes.extend(self.special(n));
        attributes
    }

    /// Those that not all send.
    fn special(&self, n: i64) -> Vec<KeyValue> {
        if self.language == Language::JavaScript {
            // JSON has no such number.
            let nan = (self.protocol != "http/json").then(|| double(f64::NAN));
            let list = attribute("list.null", array(vec![Some(string("a")), None]));
            return vec![attribute("double.nan", nan), list];
        }
        let mixed = vec![string("one"), int(2), Value::BoolValue(true), double(0.5)];
        let mut attributes = vec![
            attribute("int.max", int(i64::MAX)),
            attribute("double.whole", double(3.0)),
            attribute("value.bytes", Value::BytesValue(vec![0, 255, u8::try_from(n % 256).unwrap()])),
            attribute("value.mixed", array(mixed.into_iter().map(Some).collect())),
        ];
        if self.language != Language::Go {
            let deep = list(vec![attribute("bool", Value::BoolValue(true))]);
            let members =
                vec![attribute("text", string("x")), attribute("number", int(n)), attribute("deep", deep)];
            attributes.push(attribute("value.map", list(members)));
        }
        attributes
    }
}

/// The value of an attribute; none if it is empty.
pub fn value_of(attribute: &KeyValue) -> Option<&Value> {
    attribute.value.as_ref().and_then(|AnyValue { value }| value.as_ref())
}

/// Checks that messages have the spans of a request, each this many times and each field as it was. There may be spans of other traces.
pub fn are_copies(request: &[u8], found: &[Found], copies: usize) {
    let data = TracesData::decode(request).unwrap();
    let sent = received(&[Found { partition: 0, key: Vec::new(), data }]);
    let received = received(found);
    for sent in sent.into_iter().map(Received::comparable) {
        let same = |one: &&Received| one.span.trace_id == sent.span.trace_id;
        for copy in received.iter().filter(same) {
            assert_eq!(copy.clone().comparable(), sent);
        }
        assert_eq!(received.iter().filter(same).count(), copies);
    }
}
