//! OTLP/JSON against protobuf: the walk reads the same from a message in both encodings.
//!
//! Random messages and the sink's structs use the code of the walk's own tests.
#![expect(
    clippy::unwrap_used,
    reason = "tests may unwrap, and clippy does not know the helpers here as tests"
)]

mod damage;
#[path = "../../../otlp/tests/it/decoded.rs"]
#[allow(dead_code, reason = "not all of it is needed here")]
mod decoded;
mod linear;
#[path = "../../../otlp/tests/it/messages.rs"]
mod messages;
#[path = "../../../otlp/tests/it/rng.rs"]
#[allow(dead_code, reason = "not all of it is needed here")]
mod rng;
mod rules;
mod written;

use opentelemetry_proto::tonic::trace::v1::TracesData;
use proptest::prelude::*;
use prost::Message as _;
use sluice_otlp_json::{JsonRewriter, validate};

use rng::Rng;
use written::{Style, written};

/// The walk's result for the protobuf form of this text.
fn read(text: &[u8]) -> Result<TracesData, sluice_otlp_json::Malformed> {
    let mut rewriter = JsonRewriter::new(text.len());
    let wire = rewriter.rewrite(text)?;
    assert!(wire.len() <= text.len(), "{} bytes became {}", text.len(), wire.len());
    Ok(decoded::decoded(wire).unwrap().0)
}

/// Nearly all ids are valid; an invalid one rejects its message.
fn with_sound_ids(mut message: TracesData) -> TracesData {
    let sound = |id: &mut Vec<u8>, bytes: usize| id.resize(if id.is_empty() { 0 } else { bytes }, 7);
    for resource_spans in &mut message.resource_spans {
        for span in resource_spans.scope_spans.iter_mut().flat_map(|scope_spans| &mut scope_spans.spans) {
            span.trace_id.resize(16, 7);
            span.span_id.resize(8, 7);
            sound(&mut span.parent_span_id, 8);
            for link in &mut span.links {
                sound(&mut link.trace_id, 16);
                sound(&mut link.span_id, 8);
            }
        }
    }
    message
}

/// The walk reads the same from the text and from the protobuf message.
fn agree(message: &TracesData, text: &str) -> Result<(), TestCaseError> {
    let (expected, _) = decoded::decoded(&message.encode_to_vec()).unwrap();
    let told = read(text.as_bytes());
    // Compared as bytes, because NaN is not equal to itself. JSON has only one NaN, without its other bits.
    let equal = told.as_ref().is_ok_and(|told| told.encode_to_vec() == expected.encode_to_vec());
    prop_assert!(equal, "protobuf: {expected:?}\nJSON:     {told:?}\n{text}");
    Ok(())
}

proptest! {
    #[test]
    fn json_and_protobuf_give_the_walk_the_same(message in messages::traces_data()) {
        let message = written::with_one_nan(with_sound_ids(message));
        agree(&message, &written(&message, &mut Style::plain()))?;
    }

    #[test]
    fn every_way_to_write_a_value_gives_the_same(message in messages::traces_data(), seed: u64) {
        let message = written::with_one_nan(with_sound_ids(message));
        for way in 0..8 {
            agree(&message, &written(&message, &mut Style::of(Rng::new(seed.wrapping_add(way)))))?;
        }
    }

    #[test]
    fn damaged_texts_give_spans_or_malformed(message in messages::traces_data(), seed: u64) {
        let mut rng = Rng::new(seed);
        let text = written(&message, &mut Style::of(Rng::new(seed)));
        for _ in 0..32 {
            let damaged = damage::damaged(text.as_bytes(), &mut rng);
            if let Err(malformed) = validate(&damaged) {
                prop_assert!(malformed.position() <= damaged.len());
            }
        }
    }

    #[test]
    fn any_bytes_give_spans_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Err(malformed) = validate(&bytes) {
            prop_assert!(malformed.position() <= bytes.len());
        }
    }
}

#[test]
fn every_prefix_of_a_text_is_malformed() {
    let message = with_sound_ids(messages::sample());
    let text = written(&message, &mut Style::plain());
    assert_eq!(validate(text.as_bytes()), Ok(1));
    for length in 1..text.len() {
        assert!(validate(&text.as_bytes()[..length]).is_err(), "{}", &text[..length]);
    }
}

#[test]
fn values_nest_as_deep_as_in_protobuf() {
    let mut limit_was_met = [false, false];
    for depth in 0..70 {
        for (message, met) in messages::nested(depth).into_iter().zip(&mut limit_was_met) {
            let text = written(&message, &mut Style::plain());
            let in_protobuf = sluice_otlp::validate(&message.encode_to_vec());
            *met |= in_protobuf.is_err();
            assert_eq!(validate(text.as_bytes()).is_ok(), in_protobuf.is_ok(), "{depth}");
        }
    }
    assert_eq!(limit_was_met, [true, true]);
}
