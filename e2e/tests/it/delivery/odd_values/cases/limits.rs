//! Cases beyond the limits of a row, and message timestamps that are no valid times.

use opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue;

use super::super::messages::text;
use super::{Case, TIMESTAMP};

/// Bytes of a row at the most, and attributes of an object.
const ROW_BYTES_MAX: usize = 4 << 20;
const ATTRIBUTES_MAX: usize = 100_000;

pub fn too_large() -> Vec<Case> {
    let keys: Vec<String> = (0..=ATTRIBUTES_MAX).map(|number| number.to_string()).collect();
    let many = keys.iter().map(|key| (key.as_str(), IntValue(1)));
    vec![
        Case::attributes("too large, a string of 4 MiB", [("k", text(&"x".repeat(ROW_BYTES_MAX)))])
            .rejected("row_too_large"),
        Case::attributes("too large, 100,001 attributes", many).rejected("row_too_large"),
    ]
}

/// A span without a start, in a message with this timestamp.
fn of_message(name: &'static str, message_millis: i64, timestamp: &str) -> Case {
    Case::span(name, |span| (span.start_time_unix_nano, span.end_time_unix_nano) = (0, 0))
        .sent_at(message_millis)
        .everywhere(&[(TIMESTAMP, timestamp)])
        .json(&[("SpanAttributes.sluice.start_time_unix_nano.:UInt64", "0")])
        .map(&[("SpanAttributes", "{'sluice.start_time_unix_nano':'0'}")])
        .nested(&[("SpanAttributesString.Value", "['0']")])
}

pub fn message_times() -> Vec<Case> {
    vec![
        of_message("message time, none", -1, "0"),
        of_message("message time, before 1970", -5_000, "0"),
        of_message("message time, behind the last", i64::MAX / 1_000, "9223372036854775806"),
    ]
}
