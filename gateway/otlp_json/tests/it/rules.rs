//! Every row of the table in the package's documentation.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{Span, Status, TracesData};
use sluice_otlp_json::{Malformed, Reason, validate};

use crate::read;

const BEFORE: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174""#;
const BEHIND: &str = "}]}]}]}";

fn span(fields: &str) -> Result<Span, Malformed> {
    let comma = if fields.is_empty() { "" } else { "," };
    let message = read(format!("{BEFORE}{comma}{fields}{BEHIND}").as_bytes())?;
    Ok(message.resource_spans[0].scope_spans[0].spans[0].clone())
}

/// The value of an attribute.
fn value(any_value: &str) -> Result<Option<Value>, Malformed> {
    let span = span(&format!(r#""attributes":[{{"key":"k","value":{any_value}}}]"#))?;
    Ok(span.attributes[0].value.as_ref().unwrap().value.clone())
}

/// Why a span with these fields is malformed, and at which byte of the fields.
fn malformed(fields: &str) -> (Reason, usize) {
    let malformed = span(fields).unwrap_err();
    (malformed.reason(), malformed.position() - BEFORE.len() - 1)
}

fn text(text: &str) -> Value {
    Value::StringValue(text.to_owned())
}

#[test]
fn the_example_of_the_specification_is_read() {
    // https://github.com/open-telemetry/opentelemetry-proto/blob/main/examples/trace.json
    let json = br#"{"resourceSpans": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "my.service"}}]},
        "scopeSpans": [{
            "scope": {"name": "my.library", "version": "1.0.0", "attributes": [
                {"key": "my.scope.attribute", "value": {"stringValue": "some scope attribute"}}]},
            "spans": [{
                "traceId": "5B8EFFF798038103D269B633813FC60C",
                "spanId": "EEE19B7EC3C1B174",
                "parentSpanId": "EEE19B7EC3C1B173",
                "name": "I'm a server span",
                "startTimeUnixNano": "1544712660000000000",
                "endTimeUnixNano": "1544712661000000000",
                "kind": 2,
                "attributes": [{"key": "my.span.attr", "value": {"stringValue": "some value"}}]
            }]
        }]
    }]}"#;
    let message = read(json).unwrap();
    let scope_spans = &message.resource_spans[0].scope_spans[0];
    assert_eq!(scope_spans.scope.as_ref().unwrap().version, "1.0.0");
    let span = &scope_spans.spans[0];
    assert_eq!(span.trace_id[..4], [0x5B, 0x8E, 0xFF, 0xF7]);
    assert_eq!(span.parent_span_id[7], 0x73);
    assert_eq!((span.kind, span.start_time_unix_nano), (2, 1_544_712_660_000_000_000));
    assert_eq!(span.attributes[0].value, Some(AnyValue { value: Some(text("some value")) }));
}

#[test]
fn names_are_read_in_both_cases_and_others_are_passed_over() {
    let ended = |fields: &str| span(fields).unwrap().end_time_unix_nano;
    assert_eq!(ended(r#""endTimeUnixNano":7"#), 7);
    assert_eq!(ended(r#""end_time_unix_nano":7"#), 7);
    assert_eq!(ended(r#""end\u0054imeUnixNano":7"#), 7);
    assert_eq!(ended(r#""EndTimeUnixNano":7"#), 0);
    assert_eq!(ended(r#""":7,"\ud800":[{"endTimeUnixNano":8}],"other":"\udc00\ud800""#), 0);
}

#[test]
fn flags_and_counts_are_read_where_they_are_numbers_and_skipped_elsewhere() {
    let read = span(
        r#""flags":257,"droppedAttributesCount":"4294967295","droppedEventsCount":2.0,"droppedLinksCount":3"#,
    );
    let read = read.unwrap();
    assert_eq!((read.flags, read.dropped_attributes_count), (257, u32::MAX));
    assert_eq!((read.dropped_events_count, read.dropped_links_count), (2, 3));
    for name in ["flags", "droppedAttributesCount", "droppedEventsCount", "droppedLinksCount"] {
        for other in [r#""x""#, "-1", "4294967296", "0.5", "true", "null", r#"{"a":[1]}"#, r#"[1,{"a":2}]"#] {
            let read = span(&format!(r#""{name}":{other},"endTimeUnixNano":7"#)).unwrap();
            assert_eq!(
                (read.end_time_unix_nano, read.flags, read.dropped_links_count),
                (7, 0, 0),
                "{name} {other}"
            );
        }
    }
}

#[test]
fn what_is_no_trace_is_malformed() {
    let reason = |text: &str| validate(text.as_bytes()).map_err(|malformed| malformed.reason());
    for other in [
        r#"{"resourceMetrics":[{"scopeMetrics":[]}]}"#,
        r#"{"resourceLogs":[]}"#,
        r#"{"batches":[{"scopeSpans":[]}]}"#,
        r#"{"resource":{"attributes":[]},"scopeSpans":[{"spans":[]}]}"#,
        r#"{"ResourceSpans":[]}"#,
    ] {
        assert_eq!(reason(other), Err(Reason::NotTraces), "{other}");
    }
    for empty in
        ["{}", r#"{"resourceSpans":[]}"#, r#"{"resourceSpans":null,"other":1}"#, r#"{"resource_spans":[{}]}"#]
    {
        assert_eq!(reason(empty), Ok(0), "{empty}");
    }
    let old =
        |value: &str| reason(&format!(r#"{{"resourceSpans":[{{"instrumentationLibrarySpans":{value}}}]}}"#));
    assert_eq!(old(r#"[{"spans":[{}]}]"#), Err(Reason::Superseded));
    assert_eq!(old(r#"{"spans":[]}"#), Err(Reason::TypeWrong));
    assert_eq!((old("[]"), old("null")), (Ok(0), Ok(0)));
    let snake = r#"{"resourceSpans":[{"instrumentation_library_spans":[{}]}]}"#;
    assert_eq!(reason(snake), Err(Reason::Superseded));
}

#[test]
fn control_characters_are_escaped_in_strings_and_blanks_between_them() {
    let name = |text: &str| span(text).map(|span| span.name).map_err(|malformed| malformed.reason());
    assert_eq!(name("\n\t\"name\" :\r\n \"a\\n\\u0000\""), Ok("a\n\0".to_owned()));
    assert_eq!(
        name("\"name\":\"\\\\\",\n\"kind\":1"),
        Ok("\\".to_owned()),
        "an escape that is escaped ends there"
    );
    for control in (0..0x20).filter_map(char::from_u32) {
        let in_value = format!("\"name\":\"a{control}b\"");
        let in_name = format!("\"na{control}me\":\"lost\"");
        let unread = format!("\"other\":[{{\"x\":\"{control}\"}}]");
        for text in [in_value, in_name, unread] {
            assert_eq!(name(&text), Err(Reason::ControlCharacter), "{text:?}");
        }
    }
}

#[test]
fn a_span_needs_its_ids() {
    let spans = |spans: &str| {
        let text = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{spans}]}}]}}]}}"#);
        validate(text.as_bytes()).map_err(|malformed| malformed.reason())
    };
    let (trace, own) = (r#""traceId":"5b8efff798038103d269b633813fc60c""#, r#""spanId":"eee19b7ec3c1b174""#);
    assert_eq!(spans(&format!("{{{trace},{own}}},{{{own},{trace}}}")), Ok(2));
    assert_eq!(spans(&format!("{{{trace},{own}}},{{{trace}}}")), Err(Reason::IdMissing), "each its own");
    for fields in ["", own, trace, r#""traceId":null,"spanId":null"#] {
        assert_eq!(spans(&format!("{{{fields}}}")), Err(Reason::IdMissing), "{fields}");
    }
    assert_eq!(spans("null"), Err(Reason::IdMissing));
    // A link has a trace id and a span id, too, which are not the span's.
    let link = format!(r#"{{"links":[{{{trace},{own}}}]}}"#);
    assert_eq!(spans(&link), Err(Reason::IdMissing));
}

#[test]
fn names_that_repeat_are_read_as_fields_that_repeat_on_the_wire() {
    let span = span(
        r#""name":"a","name":"b","kind":1,"kind":0,"status":{"code":2},"status":{"message":"m"},
           "attributes":[{"key":"a"}],"attributes":[{"key":"b","key":"c"}]"#,
    )
    .unwrap();
    assert_eq!((span.name.as_str(), span.kind), ("b", 0));
    assert_eq!(span.status, Some(Status { code: 2, message: "m".to_owned() }));
    let keys: Vec<_> = span.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    assert_eq!(keys, ["a", "c"]);
}

#[test]
fn the_last_member_of_a_value_wins() {
    let ints = |any_value: &str| match value(any_value).unwrap() {
        Some(Value::ArrayValue(array)) => array.values.len(),
        other => panic!("not an array: {other:?}"),
    };
    assert_eq!(value(r#"{"intValue":1,"stringValue":"s"}"#), Ok(Some(text("s"))));
    assert_eq!(value(r#"{"stringValue":"s","boolValue":false}"#), Ok(Some(Value::BoolValue(false))));
    assert_eq!(value(r#"{"stringValue":"s","boolValue":null}"#), Ok(Some(text("s"))));
    assert_eq!(ints(r#"{"arrayValue":{"values":[{},{}]},"arrayValue":{"values":[{}]}}"#), 3);
    assert_eq!(ints(r#"{"arrayValue":{"values":[{}]},"intValue":1,"arrayValue":{"values":[{}]}}"#), 1);
}

#[test]
fn null_is_absent_and_in_a_list_an_empty_message() {
    let absent = span(
        r#""traceId":null,"name":null,"kind":null,"startTimeUnixNano":null,"attributes":null,"events":null,
           "links":null,"status":null"#,
    );
    assert_eq!(absent, span(""));
    let nulls = span(r#""attributes":[null,{"key":"k","value":null}],"events":[null]"#).unwrap();
    assert_eq!(nulls.attributes[0], KeyValue { value: Some(AnyValue::default()), ..KeyValue::default() });
    assert_eq!(nulls.attributes[1].value, Some(AnyValue::default()));
    assert_eq!(nulls.events.len(), 1);
    let spans =
        read(br#"{"resourceSpans":[null,{"resource":null,"scopeSpans":null},{"scopeSpans":[null]}]}"#);
    assert_eq!(spans.unwrap().resource_spans.len(), 3);
    assert_eq!(validate(br#"{"resourceSpans":null}"#), Ok(0));
}

#[test]
fn every_member_of_a_value_is_read() {
    let int = |number| Ok(Some(Value::IntValue(number)));
    let double = |number| Ok(Some(Value::DoubleValue(number)));
    assert_eq!(value("{}"), Ok(None));
    assert_eq!(value(r#"{"stringValue":""}"#), Ok(Some(text(""))));
    assert_eq!(value(r#"{"stringValue":"\u00e9\n\/\ud83d\ude00"}"#), Ok(Some(text("é\n/😀"))));
    assert_eq!(value(r#"{"boolValue":true}"#), Ok(Some(Value::BoolValue(true))));
    assert_eq!(value(r#"{"intValue":-9223372036854775808}"#), int(i64::MIN));
    assert_eq!(value(r#"{"intValue":"9223372036854775807"}"#), int(i64::MAX));
    assert_eq!(value(r#"{"intValue":-0}"#), int(0));
    assert_eq!(value(r#"{"intValue":1e3}"#), int(1000));
    assert_eq!(value(r#"{"intValue":"-1.0"}"#), int(-1));
    assert_eq!(value(r#"{"intValue":1e300}"#), double(1e300));
    assert_eq!(value(r#"{"intValue":9223372036854775808}"#), double(9_223_372_036_854_775_808.0));
    assert_eq!(value(r#"{"intValue":"-1e19"}"#), double(-1e19));
    assert_eq!(value(r#"{"intValue":0.5}"#), double(0.5));
    assert_eq!(value(r#"{"intValue":0.5,"stringValue":"s"}"#), Ok(Some(text("s"))));
    assert_eq!(value(r#"{"doubleValue":1}"#), double(1.0));
    // The nearest double: fast decimal parsers miss this one by a bit.
    assert_eq!(value(r#"{"doubleValue":1.0519095297047799e-213}"#), double(1.051_909_529_704_779_9e-213));
    assert_eq!(value(r#"{"doubleValue":"-2.5e-3"}"#), double(-0.0025));
    assert_eq!(value(r#"{"doubleValue":"Infinity"}"#), double(f64::INFINITY));
    assert_eq!(value(r#"{"doubleValue":"-Infinity"}"#), double(f64::NEG_INFINITY));
    assert!(
        matches!(value(r#"{"doubleValue":"NaN"}"#), Ok(Some(Value::DoubleValue(number))) if number.is_nan())
    );
    for bytes in ["AP8=", "AP8", r"AP\u0038="] {
        let read = value(&format!(r#"{{"bytesValue":"{bytes}"}}"#));
        assert_eq!(read, Ok(Some(Value::BytesValue(vec![0, 0xFF]))));
    }
}

#[test]
fn times_are_strings_or_numbers_of_64_bits() {
    let started =
        |number: &str| span(&format!(r#""startTimeUnixNano":{number}"#)).unwrap().start_time_unix_nano;
    assert_eq!(started("18446744073709551615"), u64::MAX);
    assert_eq!(started(r#""18446744073709551615""#), u64::MAX);
    assert_eq!(started("1.7e18"), 1_700_000_000_000_000_000);
    assert_eq!(started(r#""0""#), 0);
    for before_1970 in ["-1", "-5", r#""-5""#, "-1e300", r#""-9223372036854775809""#] {
        assert_eq!(started(before_1970), 0, "{before_1970}");
    }
    for beyond in ["18446744073709551616", r#""18446744073709551616""#, "1e300", r#""1e300""#] {
        assert_eq!(started(beyond), u64::MAX, "{beyond}");
    }
    let others = span(r#""endTimeUnixNano":-1,"events":[{"timeUnixNano":"1e300"}]"#).unwrap();
    assert_eq!((others.end_time_unix_nano, others.events[0].time_unix_nano), (0, u64::MAX));
}

/// The walk would reject it in protobuf, and it does not see which encoding the message has.
#[test]
fn a_name_that_is_the_data_of_a_gauge_is_malformed_without_a_start() {
    let name = r#""name":"\n\t1\u0001\u0000\u0000\u0000\u0000\u0000\u0000\u0000""#;
    assert_eq!(span(name).map_err(|malformed| malformed.reason()), Err(Reason::Metric));
    for start in ["0", "1700000000000000000"] {
        assert!(span(&format!(r#"{name},"startTimeUnixNano":{start}"#)).is_ok(), "{start}");
    }
}

#[test]
fn enumerations_are_numbers_or_names() {
    let kind = |kind: &str| span(&format!(r#""kind":{kind}"#)).unwrap().kind;
    assert_eq!((kind("3"), kind(r#""SPAN_KIND_SERVER""#), kind(r#""SPAN_KIND_UNSPECIFIED""#)), (3, 2, 0));
    assert_eq!(
        (kind("2147483647"), kind("-1"), kind("-2147483648"), kind("2.0")),
        (i32::MAX, -1, i32::MIN, 2)
    );
    for unknown in [r#""SERVER""#, r#""SPAN_KIND_X""#, r#""""#, "2147483648", "1.5", "1e300"] {
        assert_eq!(kind(unknown), 0, "{unknown}");
    }
    let status = span(r#""status":{"code":"abc","message":"m"}"#).unwrap().status.unwrap();
    assert_eq!((status.code, status.message.as_str()), (0, "m"));
    let status = span(r#""status":{"code":"STATUS_CODE_ERROR"}"#).unwrap().status.unwrap();
    assert_eq!(status.code, 2);
}

#[test]
fn ids_are_hex_in_either_case() {
    let ids = span(
        r#""traceId":"00112233445566778899aabbccDDEEFF","parentSpanId":"0102030405060708",
           "links":[{"traceId":"","spanId":""}]"#,
    )
    .unwrap();
    assert_eq!(ids.trace_id, (0..16).map(|digit| digit * 0x11).collect::<Vec<u8>>());
    assert_eq!(ids.parent_span_id, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(ids.links[0].trace_id.is_empty() && ids.links[0].span_id.is_empty());
    assert!(span(r#""parentSpanId":"""#).unwrap().parent_span_id.is_empty());
}

#[test]
fn lone_surrogates_become_replacement_characters() {
    let name = |name: &str| span(&format!(r#""name":"{name}""#)).unwrap().name;
    assert_eq!(name(r"cut \ud83d"), "cut \u{fffd}");
    assert_eq!(name(r"\ude00\ud83d\ude00\ud83dx"), "\u{fffd}😀\u{fffd}x");
    assert_eq!(name(r"\ud83d\n\ud7ff"), "\u{fffd}\n\u{d7ff}");
}

#[test]
fn a_byte_order_mark_and_no_bytes_at_all_are_fine() {
    assert_eq!(validate(b"\xEF\xBB\xBF{}"), Ok(0));
    assert_eq!(validate(b"\xEF\xBB\xBF{x").unwrap_err().position(), 5);
    assert_eq!(validate(b""), Ok(0));
    assert_eq!(validate(b"{}\r\n "), Ok(0));
}

#[test]
fn the_document_is_one_object_of_utf8() {
    let table: &[(&[u8], Reason, usize)] = &[
        (b" ", Reason::Truncated, 1),
        (b"\xEF\xBB\xBF", Reason::Truncated, 3),
        (b"null", Reason::TypeWrong, 4),
        (b"[]", Reason::TypeWrong, 2),
        (b"\"{}\"", Reason::TypeWrong, 4),
        (b"{} x", Reason::NotJson, 4),
        (b"{}\n{}", Reason::NotJson, 4),
        (b"{\"a\":1,}", Reason::NotJson, 8),
        (b"{\"a\":01}", Reason::NotJson, 7),
        (b"{'a':1}", Reason::NotJson, 2),
        (b"{\n\n\"a\":?}", Reason::NotJson, 8),
        (b"{\"a\":\"\xFF\"}", Reason::NotUtf8, 6),
        (b"{\"a\":\"\xED\xA0\x80\"}", Reason::NotUtf8, 6),
        (b"{\"a\":\"\n\"}", Reason::ControlCharacter, 6),
        (b"{\"a\":\n\"\\\"\t\"}", Reason::ControlCharacter, 9),
        (b"{\"resourceSpans\0\":[]}", Reason::ControlCharacter, 15),
        (b"{\"resourceSpans\":{}}", Reason::TypeWrong, 19),
        (b"{\"resourceSpans\":[1]}", Reason::TypeWrong, 19),
        (b"\x0A\x02\x0A\x00", Reason::NotJson, 2), // protobuf
    ];
    for (text, reason, position) in table {
        let malformed = validate(text).unwrap_err();
        assert_eq!(
            (malformed.reason(), malformed.position()),
            (*reason, *position),
            "{}",
            text.escape_ascii()
        );
    }
}

#[test]
fn what_cannot_be_read_is_malformed_where_it_ends() {
    let wrong = |id, digits| Reason::IdWrong { id, digits };
    let table: &[(&str, Reason)] = &[
        (r#""traceId":"0102""#, wrong("traceId", 32)),
        (r#""traceId":"000102030405060708090a0b0c0d0e0g""#, wrong("traceId", 32)),
        (r#""traceId":"AAECAwQFBgcICQoLDA0ODw==""#, wrong("traceId", 32)), // base64
        (r#""spanId":"00112233445566778""#, wrong("spanId", 16)),
        (r#""spanId":"""#, wrong("spanId", 16)),
        (r#""parentSpanId":"1""#, wrong("parentSpanId", 16)),
        (r#""startTimeUnixNano":0.5"#, Reason::NumberDoesNotFit),
        (r#""startTimeUnixNano":-0.5"#, Reason::NumberDoesNotFit),
        (r#""startTimeUnixNano":1e400"#, Reason::NumberOutOfRange),
        (r#""startTimeUnixNano":"1e400""#, Reason::NumberOutOfRange),
        (r#""startTimeUnixNano":"yesterday""#, Reason::NotANumber),
        (r#""startTimeUnixNano":"""#, Reason::NotANumber),
        (r#""startTimeUnixNano":true"#, Reason::TypeWrong),
        (r#""name":"\x""#, Reason::NotJson),
    ];
    for (fields, reason) in table {
        let (found, position) = malformed(fields);
        assert_eq!(found, *reason, "{fields}");
        assert!((fields.len() - 1..=fields.len()).contains(&position), "{fields}: {position}");
    }
    for wrong in [r#""name":1"#, r#""name":{}"#, r#""name":["a"]"#, r#""traceId":[1]"#, r#""links":{}"#] {
        assert_eq!(malformed(wrong).0, Reason::TypeWrong, "{wrong}");
    }
    for wrong in [r#""links":"x""#, r#""links":[[]]"#, r#""links":["x"]"#, r#""status":[]"#, r#""status":1"#]
    {
        assert_eq!(malformed(wrong).0, Reason::TypeWrong, "{wrong}");
    }
    for (any_value, reason) in [
        (r#"{"intValue":1e999}"#, Reason::NumberOutOfRange),
        (r#"{"intValue":-1e999}"#, Reason::NumberOutOfRange),
        (r#"{"doubleValue":"1e999"}"#, Reason::NumberOutOfRange),
        (r#"{"doubleValue":01e999}"#, Reason::NotJson),
        (r#"{"intValue":"x"}"#, Reason::NotANumber),
        (r#"{"boolValue":"true"}"#, Reason::TypeWrong),
        (r#"{"boolValue":1}"#, Reason::TypeWrong),
        (r#"{"doubleValue":"inf"}"#, Reason::NotANumber),
        (r#"{"doubleValue":1e999}"#, Reason::NumberOutOfRange),
        (r#"{"doubleValue":false}"#, Reason::TypeWrong),
        (r#"{"bytesValue":"A"}"#, Reason::NotBase64),
        (r#"{"bytesValue":[0]}"#, Reason::TypeWrong),
        (r#"{"stringValue":0}"#, Reason::TypeWrong),
        (r#"{"arrayValue":[]}"#, Reason::TypeWrong),
        (r#""bare""#, Reason::TypeWrong),
    ] {
        assert_eq!(value(any_value).map_err(|malformed| malformed.reason()), Err(reason), "{any_value}");
    }
}

#[test]
fn the_smallest_texts_are_not_shorter_than_their_wire() {
    // The shortest texts for the bytes on the wire; `read` compares the two.
    let _: TracesData =
        read(format!("{{\"resourceSpans\":[{}{{}}]}}", "{},".repeat(1000)).as_bytes()).unwrap();
    for fields in [
        r#""name":"""#.to_owned(),
        r#""kind":-1"#.to_owned(),
        r#""events":[{"timeUnixNano":1}]"#.to_owned(),
        format!(r#""links":[{}{{}}]"#, "{},".repeat(100)),
        format!(r#""attributes":[{}{{}}]"#, r#"{"value":{"intValue":-1}},"#.repeat(1000)),
        format!(r#""attributes":[{}{{}}]"#, r#"{"value":{"intValue":0.5}},"#.repeat(1000)),
        format!(r#""attributes":[{}{{}}]"#, format!(r#"{{"key":"{}"}},"#, "k".repeat(117)).repeat(1000)),
    ] {
        assert!(span(&fields).is_ok(), "{fields}");
    }
}
