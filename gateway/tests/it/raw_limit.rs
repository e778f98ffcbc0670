//! Messages whose rows would be far larger than the messages, or more than one INSERT may have.

use crate::encodes::{Case, attribute, message, resource, span};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::Span,
};
use sluice_clickhouse::settings::BLOCK_ROWS_MAX;
use sluice_gateway::{
    reading::{encode::Encoded, reject::Reason},
    rows::raw_limit::BLOCK_RAW_BYTES_MAX,
};

/// Attributes of one value of this many bytes, which compress to nothing.
fn long(bytes: usize) -> Vec<KeyValue> {
    vec![attribute("k", Some(AnyValue { value: Some(Value::StringValue("x".repeat(bytes))) }))]
}

/// Spans of their ids alone, 30 bytes each, under a resource of so many.
fn bare_spans(count: u32, resource_bytes: usize) -> Vec<u8> {
    let bare = Span { trace_id: vec![1; 16], span_id: vec![2; 8], ..Span::default() };
    message(resource(long(resource_bytes)), vec![bare; count as usize])
}

fn is_whole(encoded: &Encoded, count: u32) -> bool {
    matches!(encoded, Encoded::Whole { spans, .. } if *spans == u64::from(count))
}

#[test]
fn a_message_that_would_write_a_thousand_times_its_size_is_rejected() {
    let mut case = Case::new(64 << 20);
    let good = message(resource(long(10)), vec![span(long(10))]);
    assert!(is_whole(&case.add(&good), 1));
    let hostile = bare_spans(1 << 14, 1 << 19);
    assert!(hostile.len() < (1 << 20) + 1_000, "{} bytes", hostile.len());
    assert_eq!(case.add(&hostile), Encoded::Rejected(Reason::MessageTooLarge));
    assert!(is_whole(&case.add(&good), 1));
    let (rows, bytes) = case.rows();
    assert_eq!((rows, &bytes[..bytes.len() / 2]), (2, &bytes[bytes.len() / 2..]), "nothing of it is left");
}

#[test]
fn resources_without_spans_count_as_well() {
    // Every member of a list repeats its path, and none of it is in a row.
    let member = KeyValue { key: String::new(), ..attribute("", long(0)[0].value.clone()) };
    let list = Value::KvlistValue(opentelemetry_proto::tonic::common::v1::KeyValueList {
        values: (0..400).map(|n| KeyValue { key: n.to_string(), ..member.clone() }).collect(),
    });
    let nested = vec![attribute(&"p".repeat(4_000), Some(AnyValue { value: Some(list) }))];
    let one = message(resource(nested), vec![]);
    let many = one.repeat((1 << 20) / one.len());
    assert_eq!(Case::new(64 << 20).add(&many), Encoded::Rejected(Reason::MessageTooLarge));
}

#[test]
fn spans_under_the_resource_of_a_long_class_path_are_rows() {
    let spans = vec![span(long(320)); 2_500];
    let message = message(resource(long(32 << 10)), spans);
    assert!(message.len() > 900_000, "{} bytes", message.len());
    assert!(is_whole(&Case::new(64 << 20).add(&message), 2_500));
}

#[test]
fn a_message_has_no_more_rows_than_one_insert() {
    let mut case = Case::new(64 << 20);
    assert_eq!(case.add(&bare_spans(BLOCK_ROWS_MAX + 1, 0)), Encoded::Rejected(Reason::MessageTooLarge));
    assert!(is_whole(&case.add(&bare_spans(BLOCK_ROWS_MAX, 0)), BLOCK_ROWS_MAX));
    assert_eq!(case.add(&bare_spans(1, 0)), Encoded::BlockFull);
    assert_eq!(case.rows().0, u64::from(BLOCK_ROWS_MAX));
}

#[test]
fn a_block_is_full_when_its_rows_are_a_gibibyte_however_well_they_compress() {
    let mut case = Case::new(64 << 20);
    // 15 rows of it fit what a small message may write.
    let large = bare_spans(15, 4_190_000);
    let mut raw_bytes = 0;
    while is_whole(&case.add(&large), 15) {
        raw_bytes += 15 * 4_190_000;
        assert!(raw_bytes < BLOCK_RAW_BYTES_MAX);
    }
    assert_eq!(case.add(&large), Encoded::BlockFull);
    assert!(raw_bytes > BLOCK_RAW_BYTES_MAX * 9 / 10, "{raw_bytes} bytes");
    assert!(is_whole(&case.add(&bare_spans(1, 0)), 1), "a smaller one fits");
}
