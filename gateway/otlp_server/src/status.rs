//! The few messages that the server writes: `google.rpc.Status` with `RetryInfo`, and `ExportTraceServiceResponse`, as protobuf and JSON.
//!
//! | message | fields |
//! | --- | --- |
//! | `google.rpc.Status` | 1 code, 2 message, 3 details: `Any` (1 type URL, 2 value) |
//! | `google.rpc.RetryInfo` | 1 retry delay: `Duration` (1 seconds, 2 nanoseconds) |
//! | `ExportTraceServiceResponse` | 1 partial success (1 rejected spans, 2 error message) |
//!
//! By hand, because `tonic-types` brings prost, which must not be in the gateway's tree: all else that it reads is walked, and never
//! decoded into structs. Tests read these back with `tonic-types` and `opentelemetry-proto`.

use crate::{
    failure::{Code, Failure, cut},
    request::Accepted,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Type URL of the only detail that is sent.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// Wire type of a number, and of bytes with their length.
const NUMBER: u8 = 0;
const BYTES: u8 = 2;

/// A failure as `google.rpc.Status` in protobuf.
pub(crate) fn status_protobuf(failure: &Failure) -> Vec<u8> {
    let mut status = Vec::new();
    number(&mut status, 1, u64::from(failure.code as u8));
    bytes(&mut status, 2, failure.words.as_bytes());
    if let Some(after) = failure.after {
        let mut any = Vec::new();
        bytes(&mut any, 1, RETRY_INFO.as_bytes());
        bytes(&mut any, 2, &retry_info(after));
        bytes(&mut status, 3, &any);
    }
    status
}

fn retry_info(after: Duration) -> Vec<u8> {
    let mut duration = Vec::new();
    number(&mut duration, 1, after.as_secs());
    number(&mut duration, 2, u64::from(after.subsec_nanos()));
    let mut info = Vec::new();
    bytes(&mut info, 1, &duration);
    info
}

/// The same in JSON.
pub(crate) fn status_json(failure: &Failure) -> String {
    let details: Vec<Value> = failure
        .after
        .iter()
        .map(|after| {
            let delay = format!("{}.{:09}s", after.as_secs(), after.subsec_nanos());
            json!({"@type": RETRY_INFO, "retryDelay": delay})
        })
        .collect();
    json!({"code": failure.code as u8, "message": failure.words, "details": details}).to_string()
}

/// What an accepted request is answered with, in protobuf; empty if all is well.
pub(crate) fn response_protobuf(accepted: &Accepted) -> Vec<u8> {
    let mut response = Vec::new();
    if has_partial_success(accepted) {
        let mut partial = Vec::new();
        number(&mut partial, 1, rejected(accepted));
        bytes(&mut partial, 2, cut(accepted.message.clone()).as_bytes());
        bytes(&mut response, 1, &partial);
    }
    response
}

/// The same in JSON, where 64-bit numbers are strings.
pub(crate) fn response_json(accepted: &Accepted) -> String {
    if !has_partial_success(accepted) {
        return "{}".to_owned();
    }
    let message = cut(accepted.message.clone());
    json!({"partialSuccess": {"rejectedSpans": rejected(accepted).to_string(), "errorMessage": message}})
        .to_string()
}

fn has_partial_success(accepted: &Accepted) -> bool {
    accepted.rejected_spans > 0 || !accepted.message.is_empty()
}

/// The field is signed.
fn rejected(accepted: &Accepted) -> u64 {
    accepted.rejected_spans.min(i64::MAX.unsigned_abs())
}

/// A code as digits, for gRPC's header.
pub(crate) fn digits(code: Code) -> &'static str {
    match code {
        Code::Ok => "0",
        Code::InvalidArgument => "3",
        Code::ResourceExhausted => "8",
        Code::Unimplemented => "12",
        Code::Internal => "13",
        Code::Unavailable => "14",
        Code::Unauthenticated => "16",
    }
}

/// A field that is a number; 0 is the same as no field.
fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    if value > 0 {
        out.push(field << 3 | NUMBER);
        varint(out, value);
    }
}

/// A field that is text, bytes or a message. An empty text or empty bytes are the same as no field; an empty message is not.
fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    out.push(field << 3 | BYTES);
    varint(out, u64::try_from(value.len()).unwrap_or(u64::MAX));
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7F {
        // The low seven bits, and the mark that more follow.
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{failure::AFTER_MIN, request::Refusal};
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
    use proptest::prelude::*;
    use prost::Message as _;
    use tonic_types::{RpcStatusExt as _, Status};

    proptest! {
        #[test]
        fn a_status_is_read_by_tonic_types(words in ".{0,300}", seconds in 0_u64..100_000, nanos in 0_u32..1_000_000_000) {
            let after = Duration::new(seconds, nanos);
            let failure = Failure::from(Refusal::Retry { after, words: words.clone() });
            let status = Status::decode(status_protobuf(&failure).as_slice()).unwrap();
            prop_assert_eq!((status.code, &status.message), (14, &failure.words));
            let details = status.get_error_details();
            prop_assert_eq!(details.retry_info().unwrap().retry_delay, Some(after.max(AFTER_MIN)));
            let json: Value = serde_json::from_str(&status_json(&failure)).unwrap();
            prop_assert_eq!(&json["message"], failure.words.as_str());
            let failure = Failure::from(Refusal::TooLarge(words));
            let status = Status::decode(status_protobuf(&failure).as_slice()).unwrap();
            prop_assert_eq!((status.code, status.details.len()), (8, 0));
        }

        #[test]
        fn a_response_is_read_by_opentelemetry_proto(rejected_spans: u64, message in ".{0,300}") {
            let accepted = Accepted { rejected_spans, message };
            let read = ExportTraceServiceResponse::decode(response_protobuf(&accepted).as_slice()).unwrap();
            let partial = read.partial_success.unwrap_or_default();
            prop_assert_eq!(partial.rejected_spans.unsigned_abs(), rejected(&accepted));
            prop_assert_eq!(partial.error_message, cut(accepted.message));
        }
    }

    #[test]
    fn no_client_is_told_to_wait_for_no_time() {
        for after in [Duration::ZERO, Duration::from_nanos(1), AFTER_MIN] {
            let words = String::new();
            for refusal in
                [Refusal::TenantLimit { after, words: words.clone() }, Refusal::Retry { after, words }]
            {
                let failure = Failure::from(refusal);
                let status = Status::decode(status_protobuf(&failure).as_slice()).unwrap();
                let told = status.get_error_details().retry_info().unwrap().retry_delay;
                assert_eq!(told, Some(AFTER_MIN), "{after:?}");
                let json: Value = serde_json::from_str(&status_json(&failure)).unwrap();
                assert_eq!(json["details"][0]["retryDelay"], "0.100000000s", "{after:?}");
            }
        }
    }

    #[test]
    fn nothing_is_said_of_a_request_that_is_stored_whole() {
        let whole = Accepted::default();
        assert_eq!((response_protobuf(&whole), response_json(&whole).as_str()), (vec![], "{}"));
        let partly = Accepted { rejected_spans: 3, message: "too large".to_owned() };
        let json: Value = serde_json::from_str(&response_json(&partly)).unwrap();
        assert_eq!(json, json!({"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too large"}}));
    }

    #[test]
    fn words_are_cut_between_characters() {
        let failure = Failure::malformed("ä".repeat(600));
        assert_eq!(failure.words.len(), 1_024);
        assert_eq!(digits(Code::Unauthenticated), (Code::Unauthenticated as u8).to_string());
    }
}
