//! The cases, in the order of the tables in gateway/VALUES.md.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message as _;

use super::messages::{
    START, array, attribute, field, list, message, resource, scope, span, text, whole, with_invalid_utf8,
};

/// A message, and what its row must say.
pub struct Case {
    pub name: &'static str,
    pub message: Vec<u8>,
    /// Condition that finds its row.
    pub row: String,
    /// Expressions, and their values as texts.
    pub results: Vec<(&'static str, String)>,
}

impl Case {
    fn new(name: &'static str, message: Vec<u8>, results: &[(&'static str, &str)]) -> Case {
        let results = results.iter().map(|(select, value)| (*select, (*value).to_owned())).collect();
        Case { name, message, row: format!("SpanName = '{name}'"), results }
    }

    /// A span with these attributes.
    fn attributes(
        name: &'static str,
        attributes: Vec<(&str, Value)>,
        results: &[(&'static str, &str)],
    ) -> Case {
        let attributes = attributes.into_iter().map(|(key, value)| attribute(key, value)).collect();
        Case::new(name, message(span(name, attributes)), results)
    }

    /// A span that `change` makes odd.
    fn span(name: &'static str, change: impl FnOnce(&mut Span), results: &[(&'static str, &str)]) -> Case {
        let mut odd = span(name, vec![]);
        change(&mut odd);
        Case::new(name, message(odd), results)
    }

    fn found_by(self, row: &str) -> Case {
        Case { row: row.to_owned(), ..self }
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    [scalars(), arrays(), lists(), keys(), bytes_that_are_not_text(), times(), fields(), parts(), large()]
        .into_iter()
        .flatten()
        .collect()
}

/// Paths of the span's attributes.
const PATHS: &str = "arraySort(JSONAllPaths(SpanAttributes))";

fn scalars() -> Vec<Case> {
    let double = |name, value, printed: &str| {
        Case::attributes(
            name,
            vec![("k", Value::DoubleValue(value))],
            &[("dynamicType(SpanAttributes.k)", "Float64"), ("SpanAttributes.k.:Float64", printed)],
        )
    };
    let int = |name, value: i64| {
        Case::attributes(
            name,
            vec![("k", Value::IntValue(value))],
            &[("dynamicType(SpanAttributes.k)", "Int64"), ("SpanAttributes.k.:Int64", &value.to_string())],
        )
    };
    let string = |name, value: &str, hexadecimal: &str| {
        Case::attributes(
            name,
            vec![("k", text(value))],
            &[
                ("dynamicType(SpanAttributes.k)", "String"),
                ("hex(assumeNotNull(SpanAttributes.k.:String))", hexadecimal),
            ],
        )
    };
    vec![
        string("string", "hi", "6869"),
        string("string, empty", "", ""),
        string("string, with zero byte", "a\0b", "610062"),
        // Texts that the server's own JSON parser would take for a date.
        string("string, like a date", "2024-01-01", "323032342D30312D3031"),
        Case::attributes(
            "bool",
            vec![("yes", Value::BoolValue(true)), ("no", Value::BoolValue(false))],
            &[
                ("dynamicType(SpanAttributes.yes)", "Bool"),
                ("SpanAttributes.yes.:Bool", "true"),
                ("SpanAttributes.no.:Bool", "false"),
            ],
        ),
        int("int, smallest", i64::MIN),
        int("int, largest", i64::MAX),
        double("double, NaN", f64::NAN, "nan"),
        double("double, infinity", f64::INFINITY, "inf"),
        double("double, negative infinity", f64::NEG_INFINITY, "-inf"),
        double("double, negative zero", -0.0, "-0"),
        double("double, smallest", 5e-324, "5e-324"),
        double("double, whole", 2.0, "2"),
        Case::attributes(
            "bytes",
            vec![("k", Value::BytesValue(vec![0xff, 0xee])), ("none", Value::BytesValue(vec![]))],
            &[("SpanAttributes.k.:String", "/+4="), ("SpanAttributes.none.:String", "")],
        ),
        Case::new(
            "empty value",
            message(Span {
                attributes: vec![KeyValue { key: "k".into(), value: None, ..KeyValue::default() }],
                ..span("empty value", vec![])
            }),
            &[(PATHS, "[]")],
        ),
    ]
}

fn arrays() -> Vec<Case> {
    let int = |value| Some(Value::IntValue(value));
    let string = |value| Some(text(value));
    let nested = |depth| (0..depth).fold(Value::IntValue(7), |inner, _| array(vec![Some(inner)]));
    let of = |name, elements, results: &[(&'static str, &str)]| {
        Case::attributes(name, vec![("k", array(elements))], results)
    };
    vec![
        of(
            "array, strings",
            vec![string("a"), string("")],
            &[("SpanAttributes.k.:`Array(Nullable(String))`", "['a','']")],
        ),
        of(
            "array, bools",
            vec![Some(Value::BoolValue(true)), Some(Value::BoolValue(false))],
            &[("SpanAttributes.k.:`Array(Nullable(Bool))`", "[true,false]")],
        ),
        of(
            "array, ints and an empty value",
            vec![int(1), None, int(-1)],
            &[("SpanAttributes.k.:`Array(Nullable(Int64))`", "[1,NULL,-1]")],
        ),
        of(
            "array, doubles",
            vec![Some(Value::DoubleValue(0.5)), Some(Value::DoubleValue(f64::NAN))],
            &[("SpanAttributes.k.:`Array(Nullable(Float64))`", "[0.5,nan]")],
        ),
        of(
            "array, bytes",
            vec![Some(Value::BytesValue(vec![0xff]))],
            &[("SpanAttributes.k.:`Array(Nullable(String))`", "['/w==']")],
        ),
        of("array, empty", vec![], &[("SpanAttributes.k.:`Array(Nullable(String))`", "[]")]),
        of(
            "array, empty values",
            vec![None, None],
            &[("SpanAttributes.k.:`Array(Nullable(String))`", "[NULL,NULL]")],
        ),
        of(
            "array, mixed",
            vec![int(1), string("s"), None, Some(Value::BoolValue(true)), Some(array(vec![int(2)]))],
            &[
                (
                    "arrayMap(x -> dynamicType(x), SpanAttributes.k.:`Array(Dynamic)`)",
                    "['Int64','String','None','Bool','Array(Nullable(Int64))']",
                ),
                ("SpanAttributes.k.:`Array(Dynamic)`", "[1,'s',NULL,true,[2]]"),
            ],
        ),
        of(
            "array, lists",
            vec![Some(list(vec![("x", Value::IntValue(1))])), Some(list(vec![("y", text("z"))]))],
            &[
                ("dynamicType(SpanAttributes.k)", "Array(JSON(max_dynamic_types=16, max_dynamic_paths=16))"),
                ("SpanAttributes.k[].x.:Int64", "[1,NULL]"),
                ("SpanAttributes.k[].y.:String", "[NULL,'z']"),
            ],
        ),
        of(
            "array, as deep as values nest",
            vec![Some(nested(7))],
            &[("length(toString(SpanAttributes.k)) > 0", "1")],
        ),
        of(
            "array, deeper",
            vec![Some(nested(10))],
            &[("position(toString(SpanAttributes.k), '[[[7]]]') > 0", "1")],
        ),
    ]
}

fn lists() -> Vec<Case> {
    let nested = |depth| (0..depth).fold(Value::IntValue(7), |inner, _| list(vec![("k", inner)]));
    vec![
        Case::attributes(
            "list, nested",
            vec![("a", list(vec![("b", list(vec![("c", Value::IntValue(1))])), ("d", text("x"))]))],
            &[
                (PATHS, "['a.b.c','a.d']"),
                ("SpanAttributes.a.b.c.:Int64", "1"),
                ("SpanAttributes.a.d.:String", "x"),
            ],
        ),
        Case::attributes(
            "list, empty",
            vec![("a", list(vec![])), ("b", list(vec![("c", list(vec![]))]))],
            &[(PATHS, "[]")],
        ),
        Case::attributes(
            "list, as deep as paths go",
            vec![("a", nested(8))],
            &[(PATHS, "['a.k.k.k.k.k.k.k.k']"), ("SpanAttributes.a.k.k.k.k.k.k.k.k.:Int64", "7")],
        ),
        Case::attributes(
            "list, deeper",
            vec![("a", nested(10))],
            &[
                (PATHS, "['a.k.k.k.k.k.k.k.k']"),
                ("SpanAttributes.a.k.k.k.k.k.k.k.k.:String", r#"{"k":{"k":7}}"#),
            ],
        ),
        // Each list is two messages more, and the span's attribute is at depth five of a hundred.
        Case::attributes(
            "list, almost too deep",
            vec![("a", nested(30))],
            &[("length(JSONAllPaths(SpanAttributes))", "1")],
        ),
    ]
}

fn keys() -> Vec<Case> {
    vec![
        Case::attributes(
            "keys, equal",
            vec![("k", text("first")), ("k", Value::IntValue(2)), ("k", text("third"))],
            &[(PATHS, "['k']"), ("SpanAttributes.k.:String", "first")],
        ),
        Case::attributes(
            "keys, empty",
            vec![("", text("v"))],
            &[(PATHS, "['']"), ("toJSONString(SpanAttributes)", r#"{"":"v"}"#)],
        ),
        Case::attributes(
            "keys, dotted",
            vec![("a.b.c", Value::IntValue(1)), (".d", Value::IntValue(2)), ("e.", Value::IntValue(3))],
            &[(PATHS, "['.d','a.b.c','e.']"), ("SpanAttributes.a.b.c.:Int64", "1")],
        ),
        Case::attributes(
            "keys, dotted and nested",
            vec![("a", list(vec![("b", text("nested"))])), ("a.b", text("literal"))],
            &[(PATHS, "['a.b']"), ("SpanAttributes.a.b.:String", "literal")],
        ),
        Case::attributes(
            "keys, a value and a path through it",
            vec![("a", text("value")), ("a.b", text("below"))],
            &[
                (PATHS, "['a','a.b']"),
                ("SpanAttributes.a.:String", "value"),
                ("SpanAttributes.a.b.:String", "below"),
            ],
        ),
        Case::attributes(
            "keys, lists of equal keys",
            vec![
                ("a", list(vec![("b", text("first")), ("b", text("second"))])),
                ("a", list(vec![("b", text("third")), ("c", text("own"))])),
            ],
            &[(PATHS, "['a.b','a.c']"), ("SpanAttributes.a.b.:String", "first")],
        ),
    ]
}

fn bytes_that_are_not_text() -> Vec<Case> {
    let mut odd = span("??name", vec![attribute("??key", text("??value"))]);
    odd.span_id = b"not text".to_vec();
    odd.trace_state = "??".into();
    odd.status = Some(Status { code: 2, message: "??".into() });
    odd.events = vec![Event { name: "??".into(), time_unix_nano: START, ..Event::default() }];
    let message = with_invalid_utf8(message(odd));
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
        Case::new("bytes that are not text", message, &results).found_by(row),
        Case::new(
            "value that is not text",
            with_invalid_utf8(super::messages::message(value)),
            &[("hex(assumeNotNull(SpanAttributes.k.:String))", "FFFE76616C7565")],
        ),
    ]
}

/// The timestamp of the row in ns.
const TIMESTAMP: &str = "toUnixTimestamp64Nano(Timestamp)";

/// That of the Kafka message.
const MESSAGE_NANOS: &str = "1700000000000000000";

fn times() -> Vec<Case> {
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

fn fields() -> Vec<Case> {
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

fn parts() -> Vec<Case> {
    // Fields of ResourceSpans: scope_spans is 2, resource is 1; both before and behind.
    let scoped = |name| field(2, &scope_spans(name, Some(scope())).encode_to_vec());
    let behind = [scoped("parts, resource behind"), field(1, &resource().encode_to_vec())].concat();
    let mut unknown = span("parts, unknown fields", vec![]).encode_to_vec();
    unknown.extend(field(2_000, b"new"));
    prost::encoding::fixed32::encode(2_001, &1, &mut unknown);
    let unknown =
        [field(1_000, b"new"), field(2, &[field(2, &unknown), field(99, b"new")].concat())].concat();
    let of_all_paths = "arrayConcat(JSONAllPaths(SpanAttributes), JSONAllPaths(ResourceAttributes))";
    vec![
        Case::new(
            "parts, resource behind",
            field(1, &behind),
            &[
                ("ServiceName", "shop"),
                ("ResourceAttributes.service.name.:String", "shop"),
                ("ScopeName", "scope"),
            ],
        ),
        Case::new(
            "parts, no resource and no scope",
            whole(ResourceSpans {
                scope_spans: vec![scope_spans("parts, no resource and no scope", None)],
                ..ResourceSpans::default()
            }),
            &[
                ("ServiceName", ""),
                ("JSONAllPaths(ResourceAttributes)", "[]"),
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
            &[(of_all_paths, "['service.name']"), ("ScopeName", "scope")],
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
            &[("ServiceName", ""), ("ResourceAttributes.service.name.:Int64", "4")],
        ),
    ]
}

/// Bytes of the huge string.
const STRING_BYTES: usize = 1 << 20;

/// Attributes of the span that has many.
const ATTRIBUTES: i64 = 5_000;

fn large() -> Vec<Case> {
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
