//! Cases of spans: what becomes of the fields of a span, and of what is around it.

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Status};
use prost::Message as _;

use super::super::messages::{
    START, array, attribute, field, message, resource, scope, span, text, whole, with_invalid_utf8,
};
use super::{Case, PATHS};

pub fn bytes_that_are_not_text() -> Vec<Case> {
    let mut odd = span("??name", vec![attribute("??key", text("??value"))]);
    odd.span_id = b"not text".to_vec();
    odd.trace_state = "??".into();
    odd.status = Some(Status { code: 2, message: "??".into() });
    odd.events = vec![Event { name: "??".into(), time_unix_nano: START, ..Event::default() }];
    let odd = with_invalid_utf8(message(odd));
    let results = [
        ("hex(SpanName)", "FFFE6E616D65"),
        ("hex(JSONAllPaths(SpanAttributes)[1])", "FFFE6B6579"),
        ("hex(TraceState)", "FFFE"),
        ("hex(StatusMessage)", "FFFE"),
        ("hex(Events.Name[1])", "FFFE"),
    ];
    let row = "SpanId = '6e6f742074657874'";
    let mut value = span("value that is not text", vec![attribute("k", text("??value"))]);
    value.span_id = b"not txt2".to_vec();
    vec![
        Case::new("bytes that are not text", odd, &results).found_by(row),
        Case::new(
            "value that is not text",
            with_invalid_utf8(message(value)),
            &[("hex(assumeNotNull(SpanAttributes.k.:String))", "FFFE76616C7565")],
        ),
    ]
}

/// The timestamp of the row in ns.
const TIMESTAMP: &str = "toUnixTimestamp64Nano(Timestamp)";

/// That of the Kafka message, `process::MESSAGE_MILLIS`, in ns.
const MESSAGE_NANOS: &str = "1700000000000000000";

pub fn times() -> Vec<Case> {
    let at = |name, start, end, timestamp: &str, duration: u64, original: Option<u64>| {
        let kept = original.map_or("\\N".to_owned(), |original| original.to_string());
        let results = [
            (TIMESTAMP, timestamp),
            ("Duration", &duration.to_string()),
            ("ifNull(toString(SpanAttributes.sluice.start_time_unix_nano.:UInt64), '\\\\N')", &kept),
        ];
        Case::span(name, |span| (span.start_time_unix_nano, span.end_time_unix_nano) = (start, end), &results)
    };
    let past_the_end = i64::MAX.unsigned_abs();
    let event = |time_unix_nano| Event { name: "e".into(), time_unix_nano, ..Event::default() };
    vec![
        at("time, end before start", START, START - 1, &START.to_string(), 0, None),
        at("time, zero", 0, 5, MESSAGE_NANOS, 5, Some(0)),
        at("time, both zero", 0, 0, MESSAGE_NANOS, 0, Some(0)),
        at("time, no end", START, 0, &START.to_string(), 0, None),
        at("time, one", 1, u64::MAX, "1", u64::MAX - 1, None),
        at("time, the last", past_the_end - 1, past_the_end + 8, "9223372036854775806", 9, None),
        at("time, behind the last", past_the_end, past_the_end, MESSAGE_NANOS, 0, Some(past_the_end)),
        at("time, the largest", u64::MAX, u64::MAX, MESSAGE_NANOS, 0, Some(u64::MAX)),
        Case::span(
            "time, of events",
            |span| span.events = vec![event(0), event(START), event(u64::MAX)],
            &[
                (
                    "arrayMap(t -> toUnixTimestamp64Nano(t), Events.Timestamp)",
                    &format!("[{MESSAGE_NANOS},{START},{MESSAGE_NANOS}]"),
                ),
                ("Events.Attributes.sluice.time_unix_nano.:UInt64", &format!("[0,NULL,{}]", u64::MAX)),
            ],
        ),
    ]
}

pub fn fields() -> Vec<Case> {
    vec![
        Case::span(
            "ids, of other lengths",
            |span| (span.span_id, span.parent_span_id) = (vec![1, 2, 3], vec![0xab; 20]),
            &[("SpanId", "010203"), ("ParentSpanId", &"ab".repeat(20))],
        ),
        Case::span(
            "ids, empty",
            |span| (span.trace_id, span.span_id) = (vec![], vec![]),
            &[("TraceId", ""), ("SpanId", "")],
        ),
        Case::span("ids, zero", |span| span.trace_id = vec![0; 16], &[("TraceId", &"0".repeat(32))]),
        Case::span(
            "numbers, unknown",
            |span| (span.kind, span.status) = (99, Some(Status { code: 7, message: "m".into() })),
            &[("SpanKind", "Unspecified"), ("StatusCode", "Unset"), ("StatusMessage", "m")],
        ),
        Case::span(
            "numbers, negative",
            |span| (span.kind, span.status) = (-1, Some(Status { code: -1, message: String::new() })),
            &[("SpanKind", "Unspecified"), ("StatusCode", "Unset")],
        ),
        Case::span(
            "links, odd",
            |span| {
                let attributes = vec![attribute("l", array(vec![]))];
                span.links = vec![
                    Link { trace_id: vec![], attributes, flags: 0x301, ..Link::default() },
                    Link { trace_id: vec![0xab], trace_state: "s=1".into(), ..Link::default() },
                ];
            },
            &[
                ("Links.TraceId", "['','ab']"),
                ("Links.TraceState", "['','s=1']"),
                ("Links.Attributes.l.:`Array(Nullable(String))`", "[[],[]]"),
                ("arrayMap(a -> length(JSONAllPaths(a)), Links.Attributes)", "[1,0]"),
            ],
        ),
    ]
}

/// A message with every field of OTLP that no column is for.
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

pub fn parts() -> Vec<Case> {
    // Fields of ResourceSpans: scope_spans is 2, resource is 1; both before and behind.
    let scoped = |name| field(2, &scope_spans(name, Some(scope())).encode_to_vec());
    let behind = [scoped("parts, resource behind"), field(1, &resource().encode_to_vec())].concat();
    let mut unknown = span("parts, unknown fields", vec![]).encode_to_vec();
    unknown.extend(field(2_000, b"new"));
    prost::encoding::fixed32::encode(2_001, &1, &mut unknown);
    let unknown =
        [field(1_000, b"new"), field(2, &[field(2, &unknown), field(99, b"new")].concat())].concat();
    let undeclared = "arrayConcat(JSONAllPaths(SpanAttributes), JSONDynamicPaths(ResourceAttributes))";
    vec![
        Case::new(
            "parts, resource behind",
            field(1, &behind),
            &[("ServiceName", "shop"), ("ResourceAttributes.service.name", "shop"), ("ScopeName", "scope")],
        ),
        Case::new(
            "parts, no resource and no scope",
            whole(ResourceSpans {
                scope_spans: vec![scope_spans("parts, no resource and no scope", None)],
                ..ResourceSpans::default()
            }),
            &[
                ("ServiceName", ""),
                ("ResourceAttributes.service.name IS NULL", "1"),
                ("JSONDynamicPaths(ResourceAttributes)", "[]"),
                ("ScopeName", ""),
                ("ScopeVersion", ""),
            ],
        ),
        Case::new(
            "parts, unknown fields",
            field(1, &unknown),
            &[("TraceId", "000102030405060708090a0b0c0d0e0f"), (PATHS, "[]")],
        ),
        Case::new(
            "parts, without a column",
            with_what_has_no_column("parts, without a column"),
            &[(undeclared, "[]"), ("ResourceAttributes.service.name", "shop"), ("ScopeName", "scope")],
        ),
        Case::new(
            "parts, a service name that is no string",
            whole(ResourceSpans {
                resource: Some(Resource {
                    attributes: vec![attribute("service.name", Value::IntValue(4))],
                    ..Resource::default()
                }),
                scope_spans: vec![scope_spans("parts, a service name that is no string", None)],
                ..ResourceSpans::default()
            }),
            &[("ServiceName", ""), ("ResourceAttributes.service.name", "4")],
        ),
    ]
}

/// Bytes of the huge string.
const STRING_BYTES: usize = 1 << 20;

/// Attributes of the span that has many.
const ATTRIBUTES: i64 = 5_000;

pub fn large() -> Vec<Case> {
    let keys: Vec<String> = (0..ATTRIBUTES).map(|number| format!("key.{number}")).collect();
    let many = keys.iter().zip(0..).map(|(key, number)| (key.as_str(), Value::IntValue(number))).collect();
    let huge = "x".repeat(STRING_BYTES);
    vec![
        Case::attributes(
            "large, a string of 1 MiB",
            vec![("k", text(&huge)), ("behind", Value::BoolValue(true))],
            &[
                ("length(assumeNotNull(SpanAttributes.k.:String))", "1048576"),
                ("replaceAll(assumeNotNull(SpanAttributes.k.:String), 'x', '')", ""),
                ("SpanAttributes.behind.:Bool", "true"),
            ],
        ),
        Case::attributes(
            "large, 5,000 attributes",
            many,
            &[
                ("length(JSONAllPaths(SpanAttributes))", "5000"),
                ("SpanAttributes.key.`0`.:Int64", "0"),
                ("SpanAttributes.key.`4999`.:Int64", "4999"),
            ],
        ),
        // Above what the first cases fill, so that a frame ends within it.
        Case::attributes(
            "large, a key of 64 KiB",
            vec![(&"k".repeat(65_536), text("v"))],
            &[("length(JSONAllPaths(SpanAttributes)[1])", "65536")],
        ),
    ]
}
