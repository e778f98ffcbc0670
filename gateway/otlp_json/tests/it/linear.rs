//! Texts made to be slow or deep are read in time, and within a thread's stack.

use sluice_otlp_json::{JsonRewriter, MESSAGE_BYTES_MAX, Reason, validate};
use std::time::{Duration, Instant};

/// Bytes of each text. A quadratic reader would take hours.
const BYTES: usize = 4 << 20;

/// Chosen: reading takes a tenth of a second unoptimised, up to a second on a shared machine.
const TIME_MAX: Duration = Duration::from_secs(20);

/// The required fields of a span.
const IDS: &str = r#""traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174""#;

fn in_time(what: &str, text: &str, expected: Result<u64, Reason>) {
    let started = Instant::now();
    let read = validate(text.as_bytes()).map_err(|malformed| malformed.reason());
    assert_eq!(read, expected, "{what}");
    assert!(started.elapsed() < TIME_MAX, "{what}: {:?}", started.elapsed());
}

fn repeated(before: &str, piece: &str, after: &str) -> String {
    format!("{before}{}{after}", piece.repeat(BYTES / piece.len()))
}

#[test]
fn the_reader_is_total_and_linear() {
    let span = |fields: &str| {
        format!("{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[{{{IDS},{fields}}}]}}]}}]}}")
    };
    let known = "\"resourceSpans\":[]}";
    in_time("unknown names", &repeated("{", "\"a\":1,", known), Ok(0));
    in_time("unknown names alone", &repeated("{", "\"a\":1,", "\"a\":1}"), Err(Reason::NotTraces));
    in_time("unknown values that nest", &repeated("{\"a\":", "[", &("]".repeat(BYTES) + "," + known)), Ok(0));
    in_time("an unknown value that is not closed", &repeated("{\"a\":", "[", ""), Err(Reason::Truncated));
    in_time(
        "known lists that are not closed",
        &repeated("", "{\"resourceSpans\":[", ""),
        Err(Reason::Truncated),
    );
    in_time("repeated names", &span(&repeated("", "\"name\":\"x\",", "\"name\":\"y\"")), Ok(1));
    in_time("a string of escapes", &span(&repeated("\"name\":\"", "\\u00e9", "\"")), Ok(1));
    in_time("a string of lone surrogates", &span(&repeated("\"name\":\"", "\\ud800", "\"")), Ok(1));
    in_time("lines", &repeated("", "\n", "x"), Err(Reason::NotJson));
    in_time("digits", &span(&repeated("\"kind\":", "1", "")), Err(Reason::NumberOutOfRange));
    in_time(
        "quoted digits",
        &span(&repeated("\"endTimeUnixNano\":\"", "1", "\"")),
        Err(Reason::NumberOutOfRange),
    );
    in_time(
        "a string for a number",
        &span(&repeated("\"endTimeUnixNano\":\"", "\\u0000", "\"")),
        Err(Reason::NotANumber),
    );
    in_time("a string for a list", &span(&repeated("\"links\":\"", "\\u0000", "\"")), Err(Reason::TypeWrong));
    in_time("a string for all", &repeated("\"", "\\u0000", "\""), Err(Reason::TypeWrong));
    let nested = repeated("", "{\"arrayValue\":{\"values\":[", "");
    let attribute = span(&format!("\"attributes\":[{{\"value\":{nested}"));
    in_time("arrays in each other", &attribute, Err(Reason::NestedTooDeep));
}

#[test]
fn a_message_that_is_too_long_is_malformed() {
    assert_eq!(JsonRewriter::new(2).rewrite(b"{} ").unwrap_err().reason(), Reason::TooLong);
    let text = vec![0; MESSAGE_BYTES_MAX + 1];
    assert_eq!(validate(&text).unwrap_err().reason(), Reason::TooLong);
}
