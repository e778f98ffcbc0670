//! The bytes of rows of unusual spans: one test for each line of gateway/VALUES.md that `rows.rs` does not cover.

use crate::encodes::{Case, attribute, encoded, encoded_for, message, resource, span};
use crate::rows::{PLAIN_REST, any, bare, bytes, text};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value::Value},
    trace::v1::{
        ResourceSpans, ScopeSpans, Span, Status, TracesData,
        span::{Event, Link},
    },
};
use prost::Message as _;
use sluice_clickhouse::column::{Layout, TableColumns};
use sluice_gateway::{
    reading::{encode::Encoded, reject::Reason},
    rows::{attributes::RowLimit, span_times::TimeCounts},
};

const TIMESTAMP: u64 = 1_700_000_000_000_000_000;

fn array(values: Vec<AnyValue>) -> Value {
    Value::ArrayValue(ArrayValue { values })
}

fn list(values: Vec<KeyValue>) -> Value {
    Value::KvlistValue(KeyValueList { values })
}

const NOTHING: AnyValue = AnyValue { value: None };

/// The row of a span with these attributes has these bytes as its `SpanAttributes`.
fn assert_attributes(attributes: Vec<KeyValue>, expected: &[u8]) {
    let what = format!("{attributes:?}");
    let row = encoded(&message(resource(vec![]), vec![span(attributes)]));
    assert_eq!(row, bare(TIMESTAMP, b"\x00\x00", expected, PLAIN_REST), "{what}");
}

/// The same for the one attribute `a`.
fn assert_value(value: Value, expected: &[u8]) {
    assert_attributes(vec![attribute("a", Some(any(value)))], &bytes(&[b"\x01\x01a", expected]));
}

#[test]
fn scalars_at_their_limits() {
    assert_value(Value::StringValue(String::new()), b"\x15\x00");
    assert_value(Value::StringValue("a\0b".into()), b"\x15\x03a\0b");
    assert_value(Value::BoolValue(false), b"\x2d\x00");
    assert_value(Value::IntValue(i64::MIN), b"\x0a\0\0\0\0\0\0\0\x80");
    assert_value(Value::IntValue(i64::MAX), b"\x0a\xff\xff\xff\xff\xff\xff\xff\x7f");
    assert_value(Value::DoubleValue(f64::NAN), b"\x0e\0\0\0\0\0\0\xf8\x7f");
    assert_value(Value::DoubleValue(f64::NEG_INFINITY), b"\x0e\0\0\0\0\0\0\xf0\xff");
    assert_value(Value::DoubleValue(-0.0), b"\x0e\0\0\0\0\0\0\0\x80");
    assert_value(Value::DoubleValue(5e-324), b"\x0e\x01\0\0\0\0\0\0\0");
    assert_value(Value::BytesValue(vec![]), b"\x15\x00");
}

#[test]
fn empty_values_are_absent_and_null_in_arrays() {
    assert_attributes(vec![attribute("a", None), attribute("b", Some(NOTHING))], b"\x00");
    // Array(Nullable(Int64)): a flag before each element, 1 for null.
    assert_value(
        array(vec![any(Value::IntValue(1)), NOTHING]),
        b"\x1e\x23\x0a\x02\x00\x01\0\0\0\0\0\0\0\x01",
    );
    // Only nulls: Array(Nullable(String)), the type of an empty array.
    assert_value(array(vec![NOTHING, NOTHING]), b"\x1e\x23\x15\x02\x01\x01");
    // In an Array(Dynamic), Nothing.
    let mixed = vec![any(Value::BoolValue(true)), NOTHING, any(Value::StringValue("s".into()))];
    assert_value(array(mixed), b"\x1e\x2b\x20\x03\x2d\x01\x00\x15\x01s");
}

#[test]
fn arrays_of_one_type_and_arrays_in_arrays() {
    let of = |values: Vec<Value>| array(values.into_iter().map(any).collect());
    assert_value(
        of(vec![Value::BoolValue(true), Value::BoolValue(false)]),
        b"\x1e\x23\x2d\x02\x00\x01\x00\x00",
    );
    assert_value(of(vec![Value::DoubleValue(0.5)]), b"\x1e\x23\x0e\x01\x00\0\0\0\0\0\0\xe0\x3f");
    assert_value(of(vec![Value::BytesValue(vec![0xff])]), b"\x1e\x23\x15\x01\x00\x04/w==");
    // Array(Dynamic) of two Array(Nullable(Bool)), the second one of no type: Array(Nullable(String)).
    assert_value(
        of(vec![of(vec![Value::BoolValue(true)]), of(vec![])]),
        b"\x1e\x2b\x20\x02\x1e\x23\x2d\x01\x00\x01\x1e\x23\x15\x00",
    );
    // An empty list among lists is an empty object.
    assert_value(
        of(vec![list(vec![]), list(vec![attribute("x", text("y"))])]),
        b"\x1e\x30\x00\x80\x02\x10\x00\x00\x00\x02\x00\x01\x01x\x15\x01y",
    );
}

#[test]
fn an_array_below_the_last_level_is_text() {
    let value = (0..9).fold(Value::IntValue(7), |inner, _| array(vec![any(inner)]));
    // Eight arrays of one element each; the last one's is `[7]` as text.
    let mut expected = b"\x1e\x2b\x20\x01".repeat(7);
    expected.extend(b"\x1e\x23\x15\x01\x00\x03[7]");
    assert_value(value, &expected);
}

#[test]
fn lists_without_members_are_absent() {
    let nested = list(vec![attribute("b", Some(any(list(vec![]))))]);
    assert_attributes(
        vec![attribute("a", Some(any(list(vec![])))), attribute("c", Some(any(nested)))],
        b"\x00",
    );
}

#[test]
fn keys_are_paths_as_they_are() {
    for key in ["", ".a", "a.", "a..b", "a%2Eb"] {
        let expected =
            [b"\x01", &[u8::try_from(key.len()).unwrap()][..], key.as_bytes(), b"\x15\x01v"].concat();
        assert_attributes(vec![attribute(key, text("v"))], &expected);
    }
    // An empty key of a list, and in it another one.
    let inner = list(vec![attribute("", text("v"))]);
    assert_attributes(vec![attribute("", Some(any(inner)))], b"\x01\x01.\x15\x01v");
}

#[test]
fn the_first_of_equal_keys_wins_whatever_its_type() {
    let value = |number| Some(any(Value::IntValue(number)));
    assert_attributes(
        vec![attribute("a", text("first")), attribute("a", value(2))],
        b"\x01\x01a\x15\x05first",
    );
    let list_of = |value: &str| Some(any(list(vec![attribute("b", text(value))])));
    assert_attributes(
        vec![attribute("a", list_of("1")), attribute("a", list_of("2"))],
        b"\x01\x03a.b\x15\x011",
    );
    // A value and a path through it are two paths.
    assert_attributes(
        vec![attribute("a", list_of("1")), attribute("a", text("2"))],
        b"\x02\x01a\x15\x012\x03a.b\x15\x011",
    );
}

#[test]
fn bytes_that_are_not_text_are_replaced() {
    let mut odd = span(vec![attribute("k??", text("v??"))]);
    (odd.name, odd.trace_state) = ("n??".into(), "t??".into());
    odd.status = Some(Status { code: 2, message: "m??".into() });
    odd.events = vec![Event { time_unix_nano: TIMESTAMP, name: "e??".into(), ..Event::default() }];
    let message = broken(message(resource(vec![attribute("service.name", text("s??"))]), vec![odd]));
    let expected = bytes(&[
        &TIMESTAMP.to_le_bytes(),
        b"\x20000102030405060708090a0b0c0d0e0f",
        b"\x100001020304050607\x00",        // SpanId, ParentSpanId
        b"\x07t??",                         // TraceState
        b"\x07n??",                         // SpanName
        b"\x06Server",                      // SpanKind
        b"\x07s??",                         // ServiceName
        b"\x01\x0cservice.name\x15\x07s??", // ResourceAttributes
        b"\x05scope\x011",                  // ScopeName, ScopeVersion
        b"\x01\x07k??\x15\x07v??",          // SpanAttributes
        b"\x05\0\0\0\0\0\0\0",              // Duration
        b"\x05Error\x07m??",                // StatusCode, StatusMessage
        b"\x01",
        &TIMESTAMP.to_le_bytes(), // Events.Timestamp
        b"\x01\x07e??\x01\x00",   // Events.Name, Events.Attributes
        b"\0\0\0\0",              // Links
    ]);
    assert_eq!(encoded(&message), with_replacements(&expected));
}

/// The bytes with U+FFFD for every question mark.
fn with_replacements(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .flat_map(|byte| if *byte == b'?' { "\u{fffd}".as_bytes().to_vec() } else { vec![*byte] })
        .collect()
}

/// The message with a byte that is no text for every question mark.
fn broken(mut message: Vec<u8>) -> Vec<u8> {
    message.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
    message
}

#[test]
fn strings_in_values_are_replaced_and_equal_keys_are_found_after_that() {
    let nested = list(vec![attribute("m??", text("w??")), attribute("m\u{fffd}\u{fffd}", text("late"))]);
    let attributes = vec![
        attribute("k\u{fffd}\u{fffd}", text("first")),
        attribute("k??", text("late")),
        attribute("a", Some(any(array(vec![any(Value::StringValue("x??".into()))])))),
        attribute("l??", Some(any(nested))),
    ];
    let json = b"\x03\x07k??\x15\x05first\x01a\x1e\x23\x15\x01\x00\x07x??\x0fl??.m??\x15\x07w??";
    let map = b"\x03\x07k??\x05first\x01a\x0b[\"x??\"]\x07l??\x26{\"m??\":\"w??\",\"m??\":\"late\"}";
    for (layout, expected) in [(Layout::Json, &json[..]), (Layout::Map, map)] {
        let row = encoded_for(
            TableColumns::of_layout(layout),
            &broken(message(resource(vec![]), vec![span(attributes.clone())])),
        );
        let expected = with_replacements(expected);
        let found = row.windows(expected.len()).any(|part| part == expected);
        assert!(found, "{layout:?}: {}", row.escape_ascii());
    }
    for layout in [Layout::Json, Layout::Map, Layout::Nested] {
        let columns = TableColumns::of_layout(layout);
        let replaced = with_replacements(b"?");
        let all = encoded_for(columns, &broken(message(resource(vec![]), vec![span(attributes.clone())])));
        let is_replaced = all.windows(3).filter(|bytes| *bytes == replaced).count();
        assert!(is_replaced >= 8 && !all.contains(&0xff), "{layout:?}");
    }
}

#[test]
fn a_string_that_grows_beyond_the_row_rejects_its_message() {
    // Three bytes for each.
    let long = "?".repeat(4 << 20);
    let named = Span { name: long.clone(), ..span(vec![]) };
    for odd in [span(vec![attribute("k", text(&long))]), span(vec![attribute(&long, text("v"))]), named] {
        let message = broken(message(resource(vec![]), vec![odd]));
        assert_eq!(
            Case::new(64 << 20).add(&message),
            Encoded::Rejected(Reason::RowTooLarge(RowLimit::Bytes))
        );
    }
}

/// `SpanAttributes`, and Duration with what follows, of a span from `start` to `end`.
fn assert_times(start: u64, end: u64, (timestamp, attributes, duration): (u64, &[u8], u64)) {
    let mut odd = span(vec![]);
    (odd.start_time_unix_nano, odd.end_time_unix_nano) = (start, end);
    let rest = bytes(&[&duration.to_le_bytes(), b"\x05Unset\0\0\0\0\0\0\0\0"]);
    let row = encoded(&message(resource(vec![]), vec![odd]));
    assert_eq!(row, bare(timestamp, b"\x00\x00", attributes, &rest), "{start} to {end}");
}

#[test]
fn durations_are_never_negative_and_have_a_limit() {
    const TEN_YEARS: u64 = 315_360_000_000_000_000;
    assert_times(TIMESTAMP, TIMESTAMP - 1, (TIMESTAMP, b"\x00", 0));
    assert_times(TIMESTAMP, 0, (TIMESTAMP, b"\x00", 0));
    assert_times(TIMESTAMP, TIMESTAMP + TEN_YEARS, (TIMESTAMP, b"\x00", TEN_YEARS));
    let end = TIMESTAMP + TEN_YEARS + 1;
    let kept = bytes(&[b"\x01\x19sluice.end_time_unix_nano\x04", &end.to_le_bytes()]);
    assert_times(TIMESTAMP, end, (TIMESTAMP, &kept, 0));
}

#[test]
fn a_clock_that_counts_from_boot_gives_the_timestamp_of_the_message() {
    const BOOT: u64 = 44_511_913_730_532;
    let start = bytes(&[b"\x01\x1bsluice.start_time_unix_nano\x04", &BOOT.to_le_bytes()]);
    assert_times(BOOT, BOOT + 9, (Case::TIMESTAMP_NANOS.unsigned_abs(), &start, 9));
    let both = bytes(&[
        b"\x02\x1bsluice.start_time_unix_nano\x04",
        &[0; 8],
        b"\x19sluice.end_time_unix_nano\x04",
        &TIMESTAMP.to_le_bytes(),
    ]);
    assert_times(0, TIMESTAMP, (Case::TIMESTAMP_NANOS.unsigned_abs(), &both, 0));
}

#[test]
fn rows_with_replaced_times_are_counted() {
    let clocks = [(TIMESTAMP, TIMESTAMP), (0, TIMESTAMP), (5, 6), (TIMESTAMP, u64::MAX)];
    let spans = clocks.map(|(start_time_unix_nano, end_time_unix_nano)| Span {
        start_time_unix_nano,
        end_time_unix_nano,
        events: vec![Event::default(), Event { time_unix_nano: TIMESTAMP, ..Event::default() }],
        ..span(vec![])
    });
    let message = message(resource(vec![]), spans.to_vec());
    let Encoded::Whole { spans: 4, times, .. } = Case::new(64 << 20).add(&message) else {
        panic!("a message of four spans");
    };
    let expected = TimeCounts { starts_replaced: 2, durations_replaced: 2, events_replaced: 4, expired: 0 };
    assert_eq!(times, expected);
    let Encoded::Whole { times, .. } = Case::new(64 << 20).expiring(TIMESTAMP).add(&message) else {
        panic!("a message of four spans");
    };
    // Two have the timestamp of the message, which is older.
    assert_eq!(times, TimeCounts { expired: 2, ..expected });
}

#[test]
fn an_attribute_of_the_senders_own_is_kept_rather_than_the_original_time() {
    let mut odd = span(vec![attribute("sluice.start_time_unix_nano", text("own"))]);
    (odd.start_time_unix_nano, odd.end_time_unix_nano) = (1, 6);
    let row = encoded(&message(resource(vec![]), vec![odd]));
    let kept = b"\x01\x1bsluice.start_time_unix_nano\x15\x03own";
    assert_eq!(row, bare(Case::TIMESTAMP_NANOS.unsigned_abs(), b"\x00\x00", kept, PLAIN_REST));
}

#[test]
fn an_unusable_time_of_an_event_becomes_the_messages_and_is_kept() {
    let mut odd = span(vec![]);
    odd.events =
        [0, TIMESTAMP, u64::MAX].map(|time_unix_nano| Event { time_unix_nano, ..Event::default() }).to_vec();
    let row = encoded(&message(resource(vec![]), vec![odd]));
    let rest = bytes(&[
        b"\x05\0\0\0\0\0\0\0\x05Unset\x00",
        b"\x03", // Events.Timestamp
        &Case::TIMESTAMP_NANOS.to_le_bytes(),
        &TIMESTAMP.to_le_bytes(),
        &Case::TIMESTAMP_NANOS.to_le_bytes(),
        b"\x03\0\0\0", // Events.Name
        b"\x03",       // Events.Attributes
        b"\x01\x15sluice.time_unix_nano\x04\0\0\0\0\0\0\0\0",
        b"\x00",
        b"\x01\x15sluice.time_unix_nano\x04\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\0", // Links
    ]);
    assert_eq!(row, bare(TIMESTAMP, b"\x00\x00", b"\x00", &rest));
}

#[test]
fn ids_are_hexadecimal_and_of_their_lengths() {
    let mut odd = span(vec![]);
    (odd.trace_id, odd.span_id, odd.parent_span_id) = (vec![0x9e; 16], vec![0xab; 8], vec![0xc0; 8]);
    odd.links = vec![Link { trace_id: vec![0xd1; 16], ..Link::default() }];
    let row = encoded(&message(resource(vec![]), vec![odd]));
    let [trace, own, parent, linked] =
        [(16, "9e"), (8, "ab"), (8, "c0"), (16, "d1")].map(|(bytes, digits)| digits.repeat(bytes));
    let ids = ["\x20", &trace, "\x10", &own, "\x10", &parent, "\x00\x04name"].concat();
    let expected = bytes(&[&TIMESTAMP.to_le_bytes(), ids.as_bytes()]);
    assert_eq!(row[..expected.len()], expected);
    let links = bytes(&[b"\x01\x20", linked.as_bytes(), b"\x01\x00\x01\x00\x01\x00"]);
    assert!(row.ends_with(&links), "{}", row.escape_ascii());
    let wrong: [fn(&mut Span); 5] = [
        |span| span.trace_id = vec![],
        |span| span.trace_id = b"cpu.load".to_vec(),
        |span| span.span_id = vec![1, 0xab, 3],
        |span| span.parent_span_id = vec![0; 20],
        |span| span.links = vec![Link { span_id: vec![1], ..Link::default() }],
    ];
    for wrong in wrong {
        let mut odd = span(vec![]);
        wrong(&mut odd);
        let encoded = Case::new(64 << 20).add(&message(resource(vec![]), vec![odd]));
        assert!(matches!(encoded, Encoded::Rejected(Reason::Malformed(_))), "{encoded:?}");
    }
}

/// Readers look for root spans with `ParentSpanId = ''`.
#[test]
fn an_id_of_zeros_is_an_empty_string() {
    let zeros = |bytes: usize| vec![0; bytes];
    for (trace, own, parent) in [(16, 0, 0), (0, 8, 0), (0, 0, 8), (16, 8, 8)] {
        let id = |length: usize, zero: usize| if zero > 0 { zeros(length) } else { vec![0xab; length] };
        let digits = |length: u8, zero: usize| {
            let digits = "ab".repeat(if zero > 0 { 0 } else { length.into() });
            format!("{}{digits}", char::from(if zero > 0 { 0 } else { 2 * length }))
        };
        let mut odd = span(vec![]);
        (odd.trace_id, odd.span_id, odd.parent_span_id) = (id(16, trace), id(8, own), id(8, parent));
        odd.links = vec![Link { trace_id: zeros(16), span_id: zeros(8), ..Link::default() }];
        let row = encoded(&message(resource(vec![]), vec![odd]));
        let ids = [digits(16, trace), digits(8, own), digits(8, parent), "\x00\x04name".to_owned()].concat();
        let expected = bytes(&[&TIMESTAMP.to_le_bytes(), ids.as_bytes()]);
        assert_eq!(row[..expected.len()], expected);
        assert!(row.ends_with(b"\x01\x00\x01\x00\x01\x00\x01\x00"), "{}", row.escape_ascii());
    }
}

#[test]
fn a_service_name_of_any_type_is_text() {
    let words = any(Value::StringValue("a".into()));
    for (value, name) in [
        (any(Value::IntValue(4)), "4"),
        (any(Value::BoolValue(true)), "true"),
        (any(array(vec![words])), r#"["a"]"#),
        (NOTHING, ""),
    ] {
        let attributes =
            vec![attribute("service.name", Some(value)), attribute("service.name", text("late"))];
        let row = encoded(&message(resource(attributes), vec![span(vec![])]));
        let expected = bytes(&[b"\x06Server", &[u8::try_from(name.len()).unwrap()], name.as_bytes()]);
        assert!(row.windows(expected.len()).any(|window| window == expected), "{}", row.escape_ascii());
    }
}

#[test]
fn numbers_that_the_specification_does_not_have_are_unspecified_and_unset() {
    for number in [6, 99, -1, i32::MIN] {
        let mut odd = span(vec![]);
        odd.kind = number;
        odd.status = Some(Status { code: number, message: String::new() });
        let row = encoded(&message(resource(vec![]), vec![odd]));
        let plain = bare(TIMESTAMP, b"\x00\x00", b"\x00", PLAIN_REST);
        let plain = String::from_utf8_lossy(&plain).replace("\x06Server", "\x0bUnspecified");
        assert_eq!(String::from_utf8_lossy(&row), plain, "{number}");
    }
}

/// A field of bytes, as it stands on the wire.
fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::bytes::encode(number, &value.to_vec(), &mut field);
    field
}

fn scope() -> InstrumentationScope {
    InstrumentationScope { name: "scope".into(), version: "1".into(), ..InstrumentationScope::default() }
}

#[test]
fn parts_may_stand_behind_what_they_are_about_or_be_missing() {
    let plain = bare(TIMESTAMP, b"\x04shop\x01\x0cservice.name\x15\x04shop", b"\x00", PLAIN_REST);
    let shop = resource(vec![attribute("service.name", text("shop"))]).encode_to_vec();
    // ScopeSpans: scope is field 1, spans field 2. ResourceSpans: resource is field 1, scope_spans field 2.
    let spans = field(2, &span(vec![]).encode_to_vec());
    let scope_behind = [spans.clone(), field(1, &scope().encode_to_vec())].concat();
    let resource_behind = [field(2, &scope_behind), field(1, &shop)].concat();
    assert_eq!(encoded(&field(1, &resource_behind)), plain);
    let missing = bare(TIMESTAMP, b"\x00\x00", b"\x00", PLAIN_REST);
    let missing = String::from_utf8_lossy(&missing).replace("\x05scope\x011", "\x00\x00");
    assert_eq!(String::from_utf8_lossy(&encoded(&field(1, &field(2, &spans)))), missing);
}

#[test]
fn what_has_no_column_and_what_is_unknown_leaves_the_row_as_it_is() {
    let plain = encoded(&message(resource(vec![]), vec![span(vec![])]));
    let mut odd = span(vec![]);
    (odd.flags, odd.dropped_attributes_count) = (0x101, 1);
    (odd.dropped_events_count, odd.dropped_links_count) = (2, 3);
    let scope = InstrumentationScope {
        attributes: vec![attribute("scope", text("attribute"))],
        dropped_attributes_count: 4,
        ..scope()
    };
    let resource = opentelemetry_proto::tonic::resource::v1::Resource {
        dropped_attributes_count: 5,
        ..resource(vec![])
    };
    let scope_spans =
        vec![ScopeSpans { scope: Some(scope), spans: vec![odd], schema_url: "https://scope".into() }];
    let resource_spans =
        vec![ResourceSpans { resource: Some(resource), scope_spans, schema_url: "https://resource".into() }];
    assert_eq!(encoded(&TracesData { resource_spans }.encode_to_vec()), plain);
    // Unknown fields in every wire type, in the span and around it.
    let mut unknown = Span::encode_to_vec(&span(vec![]));
    unknown.extend(field(2_000, b"new"));
    prost::encoding::fixed32::encode(2_001, &1, &mut unknown);
    prost::encoding::fixed64::encode(2_002, &1, &mut unknown);
    prost::encoding::uint64::encode(2_003, &1, &mut unknown);
    unknown.extend([0xa3, 0x06, 0x08, 0x01, 0xa4, 0x06]); // a group of field 100 with a varint in it
    let scope_spans =
        [field(1, &self::scope().encode_to_vec()), field(2, &unknown), field(99, b"new")].concat();
    let resource_spans = [field(98, b"new"), field(2, &scope_spans)].concat();
    assert_eq!(encoded(&[field(97, b"new"), field(1, &resource_spans)].concat()), plain);
}

#[test]
fn many_and_long_values_are_written_in_full() {
    let attributes = (0..5_000).map(|number| attribute(&format!("k{number}"), text("v"))).collect::<Vec<_>>();
    let mut expected = b"\x88\x27".to_vec(); // 5,000 paths
    for KeyValue { key, .. } in &attributes {
        expected.push(u8::try_from(key.len()).unwrap());
        expected.extend([key.as_bytes(), b"\x15\x01v"].concat());
    }
    assert_attributes(attributes, &expected);
    let long = "x".repeat(1 << 20);
    assert_value(Value::StringValue(long.clone()), &[b"\x15\x80\x80\x40", long.as_bytes()].concat());
}

/// The path of a list is written anew for each of its members before they are compared. Were that not counted, a megabyte of
/// path before as many empty members would be a terabyte to write.
#[test]
fn paths_that_are_left_out_count_as_written() {
    let members = |count| list(vec![attribute("m", text("v")); count]);
    let prefix = "p".repeat(1 << 20);
    let with =
        |count| message(resource(vec![]), vec![span(vec![attribute(&prefix, Some(any(members(count))))])]);
    let mut case = Case::new(64 << 20);
    assert!(matches!(case.add(&with(3)), Encoded::Whole { spans: 1, .. }));
    assert_eq!(case.add(&with(20)), Encoded::Rejected(Reason::RowTooLarge(RowLimit::Bytes)));
    let in_array = array(vec![any(list(vec![attribute(&prefix, Some(any(members(3))))])); 3]);
    let spread = message(resource(vec![]), vec![span(vec![attribute("a", Some(any(in_array)))])]);
    assert_eq!(case.add(&spread), Encoded::Rejected(Reason::RowTooLarge(RowLimit::Bytes)));
}
