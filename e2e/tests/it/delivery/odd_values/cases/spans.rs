//! Cases of spans: the stored form of a span's fields, and of its resource and scope.

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::common::v1::any_value::Value::{BoolValue, IntValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Status};
use prost::Message as _;

use super::super::messages::{
    START, array, attribute, field, message, resource, scope, span, text, whole, with_invalid_utf8,
};
use super::{Case, PATHS, TIMESTAMP, groups};

pub fn bytes_that_are_not_text() -> Vec<Case> {
    let mut odd = span("??name", vec![attribute("??key", text("??value"))]);
    odd.span_id = b"not text".to_vec();
    odd.trace_state = "??".into();
    odd.status = Some(Status { code: 2, message: "??".into() });
    odd.events = vec![Event { name: "??".into(), time_unix_nano: START, ..Event::default() }];
    let mut value = span("value that is not text", vec![attribute("k", text("??value"))]);
    value.span_id = b"not txt2".to_vec();
    let replaced = vec![attribute("k", array(vec![Some(text("??value"))]))];
    // Two replacement characters, then `key` and `value`.
    let (key, value_hex) = ("EFBFBDEFBFBD6B6579", "EFBFBDEFBFBD76616C7565");
    vec![
        Case::new("bytes that are not text", with_invalid_utf8(message(odd)))
            .found_by("SpanId = '6e6f742074657874'")
            .only_in_protobuf()
            .everywhere(&[
                ("hex(SpanName)", "EFBFBDEFBFBD6E616D65"),
                ("hex(TraceState)", "EFBFBDEFBFBD"),
                ("hex(StatusMessage)", "EFBFBDEFBFBD"),
                ("hex(Events.Name[1])", "EFBFBDEFBFBD"),
            ])
            .json(&[("hex(JSONAllPaths(SpanAttributes)[1])", key)])
            .map(&[("arrayMap(x -> hex(x), mapKeys(SpanAttributes))", &format!("['{key}']"))])
            .nested(&[("arrayMap(x -> hex(x), SpanAttributesString.Key)", &format!("['{key}']"))]),
        Case::new("value that is not text", with_invalid_utf8(message(value)))
            .only_in_protobuf()
            .json(&[("hex(assumeNotNull(SpanAttributes.k.:String))", value_hex)])
            .map(&[("hex(SpanAttributes['k'])", value_hex)])
            .nested(&[("hex(SpanAttributesString.Value[1])", value_hex)]),
        // In JSON text and in an array.
        Case::new(
            "text of what is not text",
            with_invalid_utf8(message(span("text of what is not text", replaced))),
        )
        .only_in_protobuf()
        .json(&[("hex(assumeNotNull(SpanAttributes.k.:`Array(Nullable(String))`[1]))", value_hex)])
        .span_as_text(
            "{'k':'[\"\u{fffd}\u{fffd}value\"]'}",
            "Complex {'@slice@k':'[\"\u{fffd}\u{fffd}value\"]'}",
        ),
    ]
}

/// Timestamp of the Kafka message, `process::MESSAGE_MILLIS`, in ns.
const MESSAGE_NANOS: &str = "1700000000000000000";

const START_TEXT: &str = "1720000000000000000";

/// Times of a span, and their form in its row.
#[derive(Clone, Copy)]
struct Times {
    start: u64,
    end: u64,
    timestamp: &'static str,
    duration: u64,
    /// The attribute has the original end.
    keeps_end: bool,
}

/// A span with these times; the row keeps the originals that it does not show.
fn at(name: &'static str, times: Times) -> Case {
    let Times { start, end, timestamp, duration, keeps_end } = times;
    let start_kept = (timestamp == MESSAGE_NANOS).then(|| start.to_string());
    let end_kept = keeps_end.then(|| end.to_string());
    let kept = [("sluice.start_time_unix_nano", &start_kept), ("sluice.end_time_unix_nano", &end_kept)];
    let pairs: Vec<String> = kept
        .iter()
        .filter_map(|(key, nanos)| nanos.as_ref().map(|nanos| format!("'{key}':'{nanos}'")))
        .collect();
    let (pairs, is_any) = (pairs.join(","), !pairs.is_empty());
    let text = |key: &str| format!("ifNull(toString(SpanAttributes.{key}.:UInt64), '')");
    let nested = if is_any { format!("String {{{pairs}}}") } else { String::new() };
    Case::span(name, |span| (span.start_time_unix_nano, span.end_time_unix_nano) = (start, end))
        .everywhere(&[
            (TIMESTAMP, timestamp),
            ("Duration", &duration.to_string()),
            ("toString(addNanoseconds(Timestamp, Duration) >= Timestamp)", "1"),
        ])
        .json(
            &kept
                .map(|(key, nanos)| (text(key), nanos.clone().unwrap_or_default()))
                .each_ref()
                .map(|(expression, nanos)| (expression.as_str(), nanos.as_str())),
        )
        .map(&[("SpanAttributes", &format!("{{{pairs}}}"))])
        .nested(&[(&groups("SpanAttributes"), &nested)])
}

pub fn times() -> Vec<Case> {
    const BOOT: u64 = 44_511_913_730_532;
    const TEN_YEARS: u64 = 315_360_000_000_000_000;
    const PAST_THE_END: u64 = i64::MAX.unsigned_abs();
    let own = |start, end, timestamp, duration| Times { start, end, timestamp, duration, keeps_end: false };
    let ended = |start, end, timestamp| Times { start, end, timestamp, duration: 0, keeps_end: true };
    vec![
        at("time, end before start", own(START, START - 1, START_TEXT, 0)),
        at("time, no end", own(START, 0, START_TEXT, 0)),
        at("time, ten years", own(START, START + TEN_YEARS, START_TEXT, TEN_YEARS)),
        at("time, more than ten years", ended(START, START + TEN_YEARS + 1, START_TEXT)),
        at("time, the largest end", ended(START, u64::MAX, START_TEXT)),
        at("time, zero", ended(0, START, MESSAGE_NANOS)),
        at("time, both zero", own(0, 0, MESSAGE_NANOS, 0)),
        at("time, from boot", own(BOOT, BOOT + 7, MESSAGE_NANOS, 7)),
        at("time, start from boot", ended(BOOT, START, MESSAGE_NANOS)),
        at("time, the last", own(PAST_THE_END - 2, PAST_THE_END - 1, "9223372036854775805", 1)),
        at("time, beyond the last", ended(PAST_THE_END - 1, PAST_THE_END + 8, "9223372036854775806")),
        at("time, behind the last", own(PAST_THE_END, PAST_THE_END, MESSAGE_NANOS, 0)),
        at("time, the largest", own(u64::MAX, u64::MAX, MESSAGE_NANOS, 0)),
        of_events(),
    ]
}

fn of_events() -> Case {
    let event = |time_unix_nano| Event { name: "e".into(), time_unix_nano, ..Event::default() };
    let (key, last) = ("'sluice.time_unix_nano'", u64::MAX);
    Case::span("time, of events", |span| span.events = vec![event(0), event(START), event(last)])
        .everywhere(&[(
            "arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp)",
            &format!("[{MESSAGE_NANOS},{START},{MESSAGE_NANOS}]"),
        )])
        .json(&[("Events.Attributes.sluice.time_unix_nano.:UInt64", &format!("[0,NULL,{last}]"))])
        .map(&[("Events.Attributes", &format!("[{{{key}:'0'}},{{}},{{{key}:'{last}'}}]"))])
        .nested(&[("Events.AttributesString", &format!("[[({key},'0')],[],[({key},'{last}')]]"))])
}

pub fn fields() -> Vec<Case> {
    vec![
        Case::span("ids, a span id of 3 bytes", |span| span.span_id = vec![1, 2, 3]).rejected("malformed"),
        Case::span("ids, a parent of 20 bytes", |span| span.parent_span_id = vec![0xab; 20])
            .rejected("malformed"),
        Case::span("ids, a linked trace of 1 byte", |span| {
            span.links = vec![Link { trace_id: vec![0xab], ..Link::default() }];
        })
        .rejected("malformed"),
        Case::span("ids, no trace id", |span| span.trace_id.clear()).rejected("malformed"),
        Case::span("ids, no span id", |span| span.span_id.clear()).rejected("malformed"),
        Case::span("ids, zero", |span| {
            (span.trace_id, span.parent_span_id) = (vec![0; 16], vec![0; 8]);
        })
        .everywhere(&[("TraceId", ""), ("ParentSpanId", "")]),
        Case::span("numbers, unknown", |span| {
            (span.kind, span.status) = (99, Some(Status { code: 7, message: "m".into() }));
        })
        .everywhere(&[("SpanKind", "Unspecified"), ("StatusCode", "Unset"), ("StatusMessage", "m")]),
        Case::span("numbers, negative", |span| {
            (span.kind, span.status) = (-1, Some(Status { code: -1, message: String::new() }));
        })
        .everywhere(&[("SpanKind", "Unspecified"), ("StatusCode", "Unset")]),
        Case::span("links, odd", |span| {
            let attributes = vec![attribute("l", array(vec![]))];
            span.links = vec![
                Link { trace_id: vec![], attributes, flags: 0x301, ..Link::default() },
                Link { trace_id: vec![0xab; 16], trace_state: "s=1".into(), ..Link::default() },
            ];
        })
        .everywhere(&[
            ("Links.TraceId", &format!("['','{}']", "ab".repeat(16))),
            ("Links.TraceState", "['','s=1']"),
        ])
        .json(&[
            ("Links.Attributes.l.:`Array(Nullable(String))`", "[[],[]]"),
            ("arrayMap(a -> length(JSONAllPaths(a)), Links.Attributes)", "[1,0]"),
        ])
        .map(&[("Links.Attributes", "[{'l':'[]'},{}]")])
        .nested(&[("Links.AttributesComplex", "[[('@slice@l','[]')],[]]")]),
    ]
}

/// A message with every field of OTLP that has no column.
fn with_what_has_no_column(name: &str) -> Vec<u8> {
    let mut stored_nowhere = span(name, vec![]);
    stored_nowhere.flags = 0x101;
    stored_nowhere.dropped_attributes_count = 1;
    stored_nowhere.dropped_events_count = 2;
    stored_nowhere.dropped_links_count = 3;
    let mut scope_with_attributes = scope();
    scope_with_attributes.attributes = vec![attribute("scope.attribute", text("x"))];
    whole(ResourceSpans {
        resource: Some(resource()),
        scope_spans: vec![ScopeSpans {
            scope: Some(scope_with_attributes),
            spans: vec![stored_nowhere],
            schema_url: "https://example.com/scope".into(),
        }],
        schema_url: "https://example.com/resource".into(),
    })
}

fn scope_spans(name: &str, scope: Option<InstrumentationScope>) -> ScopeSpans {
    ScopeSpans { scope, spans: vec![span(name, vec![])], ..ScopeSpans::default() }
}

/// A resource in pieces with one attribute each, and a scope with its name in one piece and its version in the next.
fn in_pieces(name: &str) -> Vec<u8> {
    let second = Resource { attributes: vec![attribute("second", IntValue(4))], ..Resource::default() };
    let scope_name = InstrumentationScope { version: String::new(), ..scope() };
    let version = InstrumentationScope { version: "2".into(), ..InstrumentationScope::default() };
    let [scope_name, version] = [scope_name, version].map(|piece| field(1, &piece.encode_to_vec()));
    let spans = field(2, &span(name, vec![]).encode_to_vec());
    [
        field(1, &resource().encode_to_vec()),
        field(2, &[scope_name, spans, version].concat()),
        field(1, &second.encode_to_vec()),
    ]
    .concat()
}

pub fn parts() -> Vec<Case> {
    // Fields of ResourceSpans: scope_spans is 2, resource is 1. Resources stand before and behind the spans.
    let scoped = |name| field(2, &scope_spans(name, Some(scope())).encode_to_vec());
    let behind = [scoped("parts, resource behind"), field(1, &resource().encode_to_vec())].concat();
    let pieces = in_pieces("parts, in pieces");
    let mut unknown = span("parts, unknown fields", vec![]).encode_to_vec();
    unknown.extend(field(2_000, b"new"));
    prost::encoding::fixed32::encode(2_001, &1, &mut unknown);
    let unknown = [field(999, b"new"), field(2, &[field(2, &unknown), field(99, b"new")].concat())].concat();
    let paths = "arrayConcat(JSONAllPaths(SpanAttributes), JSONAllPaths(ResourceAttributes))";
    let shop = ("{'service.name':'shop'}", "String {'service.name':'shop'}");
    vec![
        Case::new("parts, resource behind", field(1, &behind))
            .everywhere(&[("ServiceName", "shop"), ("ScopeName", "scope")])
            .json(&[("ResourceAttributes.service.name", "shop")])
            .resource_as_text(shop.0, shop.1),
        Case::new("parts, in pieces", field(1, &pieces))
            .everywhere(&[("ServiceName", "shop"), ("ScopeName", "scope"), ("ScopeVersion", "2")])
            .json(&[("ResourceAttributes.service.name", "shop"), ("ResourceAttributes.second.:Int64", "4")])
            .resource_as_text(
                "{'service.name':'shop','second':'4'}",
                "Int {'second':4} String {'service.name':'shop'}",
            ),
        Case::new(
            "parts, no resource and no scope",
            whole(ResourceSpans {
                scope_spans: vec![scope_spans("parts, no resource and no scope", None)],
                ..ResourceSpans::default()
            }),
        )
        .everywhere(&[("ServiceName", ""), ("ScopeName", ""), ("ScopeVersion", "")])
        .json(&[
            ("ResourceAttributes.service.name IS NULL", "1"),
            ("JSONDynamicPaths(ResourceAttributes)", "[]"),
        ])
        .resource_as_text("{}", ""),
        Case::new("parts, unknown fields", field(1, &unknown))
            .everywhere(&[("TraceId", "000102030405060708090a0b0c0d0e0f")])
            .json(&[(PATHS, "[]")])
            .span_as_text("{}", ""),
        Case::new("parts, without a column", with_what_has_no_column("parts, without a column"))
            .everywhere(&[("ScopeName", "scope")])
            .json(&[(paths, "['service.name']"), ("ResourceAttributes.service.name", "shop")])
            .span_as_text("{}", "")
            .resource_as_text(shop.0, shop.1),
        Case::new(
            "parts, a service name that is no string",
            whole(ResourceSpans {
                resource: Some(Resource {
                    attributes: vec![attribute("service.name", IntValue(4))],
                    ..Resource::default()
                }),
                scope_spans: vec![scope_spans("parts, a service name that is no string", None)],
                ..ResourceSpans::default()
            }),
        )
        .everywhere(&[("ServiceName", "4")])
        .json(&[("ResourceAttributes.service.name", "4")])
        .resource_as_text("{'service.name':'4'}", "Int {'service.name':4}"),
    ]
}

/// Bytes of the huge string.
const STRING_BYTES: usize = 1 << 20;

/// Attributes of the span that has many.
const ATTRIBUTES: i64 = 5_000;

pub fn large() -> Vec<Case> {
    let keys: Vec<String> = (0..ATTRIBUTES).map(|number| format!("key.{number}")).collect();
    let many = keys.iter().zip(0..).map(|(key, number)| (key.as_str(), IntValue(number)));
    let huge = "x".repeat(STRING_BYTES);
    let all_of = |column: &str| format!("(length({column}), replaceAll({column}, 'x', ''))");
    vec![
        Case::attributes("large, a string of 1 MiB", [("k", text(&huge)), ("behind", BoolValue(true))])
            .json(&[
                (&all_of("assumeNotNull(SpanAttributes.k.:String)"), "(1048576,'')"),
                ("SpanAttributes.behind.:Bool", "true"),
            ])
            .map(&[(&all_of("SpanAttributes['k']"), "(1048576,'')"), ("SpanAttributes['behind']", "true")])
            .nested(&[
                (&all_of("SpanAttributesString.Value[1]"), "(1048576,'')"),
                ("SpanAttributesBool.Value", "[true]"),
            ]),
        Case::attributes("large, 5,000 attributes", many)
            .json(&[
                ("length(JSONAllPaths(SpanAttributes))", "5000"),
                ("SpanAttributes.key.`0`.:Int64", "0"),
                ("SpanAttributes.key.`4999`.:Int64", "4999"),
            ])
            .map(&[
                ("length(SpanAttributes)", "5000"),
                ("(SpanAttributes['key.0'], SpanAttributes['key.4999'])", "('0','4999')"),
            ])
            .nested(&[
                ("length(SpanAttributesInt.Key)", "5000"),
                ("SpanAttributesInt.Value = range(5000)", "1"),
            ]),
        // Longer than the space that the first cases fill, so that a frame ends within it.
        Case::attributes("large, a key of 64 KiB", [("k".repeat(65_536).as_str(), text("v"))])
            .json(&[("length(JSONAllPaths(SpanAttributes)[1])", "65536")])
            .map(&[("length(mapKeys(SpanAttributes)[1])", "65536")])
            .nested(&[("length(SpanAttributesString.Key[1])", "65536")]),
    ]
}
