//! One span of a message against prost: the message that is left after removing all other spans from prost's structs.

use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, TracesData};
use proptest::test_runner::TestCaseError;
use prost::Message;
use sluice_otlp::{extract, validate};

use crate::decoded::decoded_in_order;

/// Every span is extracted as prost would, if prost reads the bytes; in any case only spans that the walk sees are extracted.
pub fn extracts_alike(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(spans) = validate(bytes) else {
        drop(extract(bytes, 0));
        return Ok(());
    };
    let message = TracesData::decode(bytes).ok();
    for span in 0..spans {
        let alone = extract(bytes, span);
        let Ok(Some(alone)) = alone else {
            return Err(TestCaseError::fail(format!("span {span} of {spans}: {alone:?}, of {bytes:02X?}")));
        };
        let one = decoded_in_order(&alone);
        check(matches!(one, Ok(Some((_, 1)))), "the walk reads one span of it in one pass", bytes)?;
        if let Some(message) = &message {
            let told = TracesData::decode(&alone[..]).map(|told| told.encode_to_vec());
            let expected = only(message, span).encode_to_vec();
            check(told == Ok(expected), "prost reads what it had, without the other spans", bytes)?;
        }
    }
    check(extract(bytes, spans) == Ok(None), "there is no span behind the last", bytes)
}

fn check(holds: bool, what: &str, bytes: &[u8]) -> Result<(), TestCaseError> {
    if holds { Ok(()) } else { Err(TestCaseError::fail(format!("not so: {what}; of {bytes:02X?}"))) }
}

/// The message with one span.
fn only(message: &TracesData, span: u64) -> TracesData {
    let mut left = usize::try_from(span).unwrap();
    for resource_spans in &message.resource_spans {
        for scope_spans in &resource_spans.scope_spans {
            if let Some(span) = scope_spans.spans.get(left) {
                let scope_spans = ScopeSpans { spans: vec![span.clone()], ..scope_spans.clone() };
                let resource_spans =
                    ResourceSpans { scope_spans: vec![scope_spans], ..resource_spans.clone() };
                return TracesData { resource_spans: vec![resource_spans] };
            }
            left -= scope_spans.spans.len();
        }
    }
    panic!("the message has no such span");
}
