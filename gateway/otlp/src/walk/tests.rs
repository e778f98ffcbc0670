//! The calls of the sink and their order; that no input makes the walk panic or read the same bytes many times.

use super::*;
use crate::attributes::Attributes;
use crate::validate::validate;
use crate::wire::keys_read;
use proptest::prelude::*;

/// The calls, one line each.
#[derive(Default)]
struct Calls(Vec<String>);

impl SpanSink for Calls {
    type Error = Malformed;

    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Malformed> {
        self.0.push(format!("resource {}", keys(&resource.attributes)));
        Ok(())
    }

    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Malformed> {
        let (name, version) = (scope.name.escape_ascii(), scope.version.escape_ascii());
        self.0.push(format!("scope {name} {version} {}", keys(&scope.attributes)));
        Ok(())
    }

    fn span(&mut self, span: &Span<'_>) -> Result<(), Malformed> {
        self.0.push(format!("span {}", span.name.escape_ascii()));
        Ok(())
    }
}

fn keys(attributes: &Attributes<'_>) -> String {
    attributes.iter().map(|attribute| attribute.unwrap().key.escape_ascii().to_string()).collect()
}

/// A field of one byte key whose value is these fields.
fn field(key: u32, value: &[Vec<u8>]) -> Vec<u8> {
    let value = value.concat();
    let mut bytes = vec![u8::try_from(key).unwrap()];
    prost::encoding::encode_varint(value.len() as u64, &mut bytes);
    bytes.extend(value);
    bytes
}

/// A field with a value of bytes.
fn string(key: u32, value: &str) -> Vec<u8> {
    field(key, &[value.as_bytes().to_vec()])
}

/// An attribute without value, as field `key`.
fn attribute(key: u32, name: &str) -> Vec<u8> {
    field(key, &[string(0x0A, name)])
}

/// Trace id and span id.
fn ids() -> Vec<u8> {
    [&[0x0A, 16][..], &[1; 16], &[0x12, 8], &[2; 8]].concat()
}

fn span(name: &str) -> Vec<u8> {
    field(scope_spans::SPANS, &[ids(), string(0x2A, name)])
}

fn called(message: &[u8]) -> Vec<String> {
    let mut calls = Calls::default();
    walk(message, &mut calls).unwrap();
    calls.0
}

const RESOURCE_SPANS: u32 = traces_data::RESOURCE_SPANS;
const RESOURCE: u32 = resource_spans::RESOURCE;
const SCOPE_SPANS: u32 = resource_spans::SCOPE_SPANS;
const SCOPE: u32 = scope_spans::SCOPE;

#[test]
fn resource_and_scope_are_told_first_wherever_they_stand() {
    let scope = field(SCOPE, &[string(0x0A, "lib"), string(0x12, "1.0"), attribute(0x1A, "a")]);
    let resource = field(RESOURCE, &[attribute(0x0A, "r"), attribute(0x0A, "s")]);
    let behind = field(
        RESOURCE_SPANS,
        &[field(SCOPE_SPANS, &[span("one"), scope.clone(), span("two")]), resource.clone()],
    );
    let before = field(RESOURCE_SPANS, &[resource, field(SCOPE_SPANS, &[scope, span("one"), span("two")])]);
    let expected = ["resource rs", "scope lib 1.0 a", "span one", "span two"];
    assert_eq!(called(&behind), expected);
    assert_eq!(called(&before), expected);
}

/// The output of the one-pass walk, if it completes.
fn called_in_order(message: &[u8]) -> Option<Vec<String>> {
    let mut calls = Calls::default();
    walk_in_order(message, &mut calls).unwrap().map(|_| calls.0)
}

#[test]
fn one_pass_is_enough_until_a_resource_or_scope_stands_behind_what_it_describes() {
    let (scope, resource) = (field(SCOPE, &[string(0x0A, "lib")]), field(RESOURCE, &[attribute(0x0A, "r")]));
    let unknown = vec![0x78, 9]; // field 15, a varint
    let scope_spans = |fields: &[Vec<u8>]| field(SCOPE_SPANS, fields);
    let table: &[(&str, &[Vec<u8>], bool)] = &[
        ("nothing", &[], true),
        ("in order", &[resource.clone(), scope_spans(&[scope.clone(), span("one")])], true),
        ("neither", &[scope_spans(&[span("one")])], true),
        ("a resource alone", std::slice::from_ref(&resource), true),
        ("a scope alone", &[scope_spans(std::slice::from_ref(&scope))], true),
        ("pieces", &[resource.clone(), resource.clone(), scope_spans(&[scope.clone(), scope.clone()])], true),
        ("unknown", &[unknown.clone(), resource.clone(), unknown, scope_spans(&[span("one")])], true),
        ("a resource behind", &[scope_spans(&[span("one")]), resource.clone()], false),
        ("a resource behind no span", &[scope_spans(&[]), resource.clone()], false),
        ("a second piece behind", &[resource.clone(), scope_spans(&[span("one")]), resource.clone()], false),
        ("a scope behind", &[scope_spans(&[span("one"), scope.clone()])], false),
        ("a second scope behind", &[scope_spans(&[scope.clone(), span("one"), scope.clone()])], false),
    ];
    for (what, fields, in_order) in table {
        let message = field(RESOURCE_SPANS, fields);
        assert_eq!(called_in_order(&message), in_order.then(|| called(&message)), "{what}");
    }
}

#[test]
fn an_absent_resource_or_scope_is_told_as_empty() {
    assert_eq!(called(&[]), [""; 0]);
    assert_eq!(called(&field(RESOURCE_SPANS, &[])), ["resource "]);
    let without = field(RESOURCE_SPANS, &[field(SCOPE_SPANS, &[span("one")]), field(SCOPE_SPANS, &[])]);
    assert_eq!(called(&without), ["resource ", "scope   ", "span one", "scope   "]);
}

#[test]
fn a_resource_or_scope_in_pieces_is_merged() {
    let resource_spans = field(
        RESOURCE_SPANS,
        &[
            field(RESOURCE, &[]),
            field(RESOURCE, &[attribute(0x0A, "a")]),
            field(
                SCOPE_SPANS,
                &[
                    field(SCOPE, &[string(0x0A, "first"), string(0x12, "1.0"), attribute(0x1A, "x")]),
                    span("one"),
                    field(SCOPE, &[string(0x0A, "last"), attribute(0x1A, "y")]),
                ],
            ),
            field(RESOURCE, &[vec![0x10, 1], attribute(0x0A, "b"), attribute(0x0A, "c")]),
            field(RESOURCE, &[]),
        ],
    );
    assert_eq!(called(&resource_spans), ["resource abc", "scope last 1.0 xy", "span one"]);
}

/// Schema URLs and dropped counts of resources and scopes, one line each.
#[derive(Default)]
struct Schemas(Vec<String>);

impl SpanSink for Schemas {
    type Error = Malformed;

    fn resource(&mut self, resource: &Resource<'_>) -> Result<(), Malformed> {
        let url = resource.schema_url.escape_ascii();
        self.0.push(format!("resource {url} {}", resource.dropped_attributes_count));
        Ok(())
    }

    fn scope(&mut self, scope: &Scope<'_>) -> Result<(), Malformed> {
        self.0.push(format!("scope {} {}", scope.schema_url.escape_ascii(), scope.dropped_attributes_count));
        Ok(())
    }

    fn span(&mut self, _: &Span<'_>) -> Result<(), Malformed> {
        Ok(())
    }
}

#[test]
fn schema_urls_are_told_first_by_the_walk_in_any_order_alone() {
    let url = |url: &str| string(0x1A, url);
    let scope = field(SCOPE, &[string(0x0A, "lib"), vec![0x20, 3]]);
    let resource = field(RESOURCE, &[vec![0x10, 9], vec![0x10, 2], attribute(0x0A, "r")]);
    let scope_spans = |fields: &[Vec<u8>]| field(SCOPE_SPANS, fields);
    let behind = field(
        RESOURCE_SPANS,
        &[resource.clone(), scope_spans(&[scope.clone(), span("one"), url("s")]), url("q"), url("r")],
    );
    let before =
        field(RESOURCE_SPANS, &[url("q"), resource, url("r"), scope_spans(&[url("s"), scope, span("one")])]);
    let told = |message: &[u8]| {
        let (mut any, mut in_order) = (Schemas::default(), Schemas::default());
        walk(message, &mut any).unwrap();
        assert_eq!(walk_in_order(message, &mut in_order), Ok(Some(1)), "a URL does not count for the order");
        (any.0, in_order.0)
    };
    let whole = ["resource r 2", "scope s 3"];
    assert_eq!(told(&before), (whole.map(str::to_owned).into(), whole.map(str::to_owned).into()));
    let without = ["resource  2", "scope  3"];
    assert_eq!(told(&behind), (whole.map(str::to_owned).into(), without.map(str::to_owned).into()));
}

/// Why these bytes are not a trace message.
fn refused(message: &[u8]) -> Option<(usize, Reason)> {
    let malformed = validate(message).err()?;
    let in_order = walk_in_order(message, &mut Calls::default()).map_err(|in_order| in_order == malformed);
    assert_eq!(in_order, Err(true), "both walks say the same");
    Some((malformed.position(), malformed.reason()))
}

#[test]
fn metrics_and_logs_are_no_traces() {
    // ResourceMetrics and ResourceLogs have the resource and the scopes under the numbers of ResourceSpans.
    let record = |fields: &[Vec<u8>]| {
        field(RESOURCE_SPANS, &[field(SCOPE_SPANS, &[field(scope_spans::SPANS, fields)])])
    };
    let data_points = field(0x0A, &[[0x19_u8, 1, 2, 3, 4, 5, 6, 7, 8].to_vec()]);
    // Metric: name 1, description 2, unit 3, gauge 5, histogram 9.
    let gauge = record(&[
        string(0x0A, "cpu.load"),
        string(0x12, "load of the CPU"),
        field(0x2A, std::slice::from_ref(&data_points)),
    ]);
    assert_eq!(refused(&gauge), Some((8, Reason::IdLengthWrong)));
    // With a name of 16 bytes and a description of 8, only its data tell it from a span.
    let named = [string(0x0A, "system.cpu.load1"), string(0x12, "CPU load")];
    let named_as_ids = record(&[&named[..], &[field(0x2A, std::slice::from_ref(&data_points))]].concat());
    assert_eq!(refused(&named_as_ids), Some((6, Reason::Metric)));
    // A sum is field 7, where a span has eight bytes.
    let sum = record(&[&named[..], &[field(0x3A, std::slice::from_ref(&data_points))]].concat());
    assert_eq!(refused(&sum).map(|(_, reason)| reason), Some(Reason::WireTypeWrong));
    let bare = record(&[string(0x0A, "http.server.size"), field(0x4A, &[data_points])]);
    assert_eq!(refused(&bare), Some((6, Reason::IdMissing)));
    // LogRecord: severity_text 3, body 5.
    let log = record(&[string(0x1A, "INFO"), field(0x2A, &[string(0x0A, "started")])]);
    assert_eq!(refused(&log), Some((6, Reason::IdMissing)));
    // The same with time_unix_nano 1, of eight bytes.
    let time = [0x09_u8, 1, 2, 3, 4, 5, 6, 7, 8].to_vec();
    let log = record(&[time, field(0x2A, &[string(0x0A, "started")])]);
    assert_eq!(refused(&log), Some((7, Reason::WireTypeWrong)));
    assert!(validate(&log).unwrap_err().to_string().contains("these are probably log records"));
}

#[test]
fn a_message_of_other_fields_is_no_trace_and_one_without_any_has_no_spans() {
    let other = vec![0x12, 1, b'x']; // field 2 of an ExportProfilesServiceRequest, its dictionary
    assert_eq!(refused(&other), Some((0, Reason::NotTraces)));
    assert_eq!(
        refused(&[field(RESOURCE_SPANS, &[field(SCOPE_SPANS, &[span("one")])]), other].concat()),
        None
    );
    assert_eq!((validate(&[]), validate(&field(RESOURCE_SPANS, &[]))), (Ok(0), Ok(0)));
}

#[test]
fn spans_that_nobody_reads_are_malformed() {
    // Field 1000, which older schemas had beside scope_spans.
    let mut superseded = vec![0xC2, 0x3E];
    prost::encoding::encode_varint(span("one").len() as u64, &mut superseded);
    superseded.extend(span("one"));
    let resource = field(RESOURCE, &[attribute(0x0A, "r")]);
    for fields in [
        vec![superseded.clone()],
        vec![resource.clone(), superseded.clone()],
        vec![resource, field(SCOPE_SPANS, &[span("one")]), superseded],
    ] {
        let message = field(RESOURCE_SPANS, &fields);
        assert_eq!(refused(&message).map(|(_, reason)| reason), Some(Reason::Superseded), "{message:02X?}");
    }
}

#[test]
fn the_first_error_of_the_sink_ends_the_walk() {
    struct Stop(u64);
    #[derive(Debug, PartialEq)]
    enum Stopped {
        BySink,
        Malformed,
    }
    impl From<Malformed> for Stopped {
        fn from(_: Malformed) -> Self {
            Self::Malformed
        }
    }
    impl SpanSink for Stop {
        type Error = Stopped;
        fn resource(&mut self, _: &Resource<'_>) -> Result<(), Stopped> {
            Ok(())
        }
        fn scope(&mut self, _: &Scope<'_>) -> Result<(), Stopped> {
            Ok(())
        }
        fn span(&mut self, _: &Span<'_>) -> Result<(), Stopped> {
            self.0 += 1;
            if self.0 == 2 { Err(Stopped::BySink) } else { Ok(()) }
        }
    }
    let message = field(RESOURCE_SPANS, &[field(SCOPE_SPANS, &[span("one"), span("two"), span("three")])]);
    let mut stop = Stop(0);
    assert_eq!(walk(&message, &mut stop), Err(Stopped::BySink));
    assert_eq!(stop.0, 2);
    assert_eq!(walk(&[0x0A, 1], &mut stop), Err(Stopped::Malformed));
}

/// Maximum number of reads of a tag, with a sink that reads everything once. A tag on the resource's level is read by the search for the
/// resource, by the walk, and by the iterator over attributes in several resources. One in an attribute is read by the straight-line code
/// for usual attributes, by the loop for all others, and by the iterator over arrays in several values. A tag takes at least one byte.
const KEYS_READ_PER_BYTE_MAX: u64 = 4;

fn check_linear(message: &[u8]) -> Result<u64, Malformed> {
    keys_read::take();
    let spans = validate(message);
    let read = keys_read::take();
    let bytes = message.len() as u64;
    assert!(read <= bytes.saturating_mul(KEYS_READ_PER_BYTE_MAX), "{read} keys read in {bytes} bytes");
    spans
}

fn in_span(fields: &[Vec<u8>]) -> Vec<u8> {
    field(RESOURCE_SPANS, &[field(SCOPE_SPANS, &[field(scope_spans::SPANS, &[&[ids()], fields].concat())])])
}

/// An attribute of a span with such a value.
fn with_value(any_value: &[Vec<u8>]) -> Vec<u8> {
    in_span(&[field(0x4A, &[field(0x12, any_value)])])
}

/// A builder of a message of about `size` fields of this kind, and the number of its spans.
type Hostile = (&'static str, fn(usize) -> Vec<u8>, u64);

/// Each tries to make one part of the walk read the same bytes many times.
const HOSTILE: [Hostile; 12] = [
    ("empty scopes", |size| field(RESOURCE_SPANS, &vec![field(SCOPE_SPANS, &[]); size]), 0),
    (
        "a resource in pieces between scopes",
        |size| {
            let pair = [field(RESOURCE, &[attribute(0x0A, "")]), field(SCOPE_SPANS, &[])].concat();
            field(RESOURCE_SPANS, &vec![pair; size])
        },
        0,
    ),
    (
        "a scope in pieces, its attribute in the first and the last",
        |size| {
            let whole = field(SCOPE, &[attribute(0x1A, "")]);
            let scope = [vec![whole.clone()], vec![field(SCOPE, &[]); size], vec![whole]].concat();
            field(RESOURCE_SPANS, &[field(SCOPE_SPANS, &scope)])
        },
        0,
    ),
    ("empty attributes", |size| in_span(&vec![field(0x4A, &[]); size]), 1),
    (
        "two attributes far from each other",
        |size| in_span(&[vec![0x4A, 0], [0xF8, 0x7F, 0].repeat(size), vec![0x4A, 0]]),
        1,
    ),
    ("an array and a string in turns", |size| with_value(&vec![vec![0x2A, 2, 0x0A, 0, 0x0A, 0]; size]), 1),
    ("an array and a list in turns", |size| with_value(&vec![vec![0x2A, 0, 0x32, 2, 0x0A, 0]; size]), 1),
    (
        "an array in pieces, in as many values",
        |size| in_span(&[field(0x4A, &vec![vec![0x12, 4, 0x2A, 2, 0x0A, 0]; size])]),
        1,
    ),
    (
        "an array and a string in turns, in as many values",
        |size| in_span(&[field(0x4A, &vec![vec![0x12, 6, 0x2A, 2, 0x0A, 0, 0x0A, 0]; size])]),
        1,
    ),
    (
        "replaced arrays in each other",
        |size| {
            let mut value = vec![0x18, 1];
            for _ in 0..40 {
                value = [field(0x2A, &[field(0x0A, &[value])]), vec![0x0A, 0]].concat();
            }
            with_value(&vec![value; size / 40])
        },
        1,
    ),
    (
        "lists in each other, each in two pieces",
        |size| {
            let mut value = vec![];
            for _ in 0..30 {
                let inner = field(0x32, &[field(0x0A, &[field(0x12, &[value])])]);
                value = [inner, vec![0x32, 0]].concat();
            }
            with_value(&vec![value; size / 30])
        },
        1,
    ),
    (
        "groups in each other, next to what is read often",
        |size| {
            let groups = [[0x7B].repeat(90), [0x7C].repeat(90)].concat(); // field 15
            let junk = vec![groups; size / 90].concat();
            with_value(&[vec![0x2A, 2, 0x0A, 0], junk.clone(), vec![0x2A, 2, 0x0A, 0], junk])
        },
        1,
    ),
];

#[test]
fn the_walker_is_total_and_linear() {
    for (what, message, spans) in HOSTILE {
        for size in [1_000, 10_000] {
            assert_eq!(check_linear(&message(size)), Ok(spans), "{what}");
        }
    }
    proptest!(|(bytes in prop::collection::vec(any::<u8>(), 0..200))| {
        check_linear(&bytes).ok();
    });
    // Bytes that look like fields more often than any bytes do.
    let keys =
        prop::sample::select(vec![0x0A_u8, 0x12, 0x1A, 0x2A, 0x32, 0x4A, 0x5A, 0x18, 0x0B, 0x0C, 0x7A]);
    let bytes = prop::collection::vec(prop_oneof![keys, 0_u8..12, any::<u8>()], 0..200);
    proptest!(|(bytes in bytes)| {
        check_linear(&bytes).ok();
        check_linear(&with_value(&[bytes])).ok();
    });
}
