//! The walk against another decoder: the walk must read any bytes as prost does.
//!
//! The bytes are messages written by prost, the same with fields shuffled, split, repeated and mixed with unknown ones (still valid
//! protobuf), and both of them damaged.
#![expect(
    clippy::unwrap_used,
    reason = "tests may unwrap, and clippy does not know the helpers here as tests"
)]

mod agreement;
mod damage;
mod decoded;
mod extracted;
mod messages;
mod parted;
mod rng;
mod wire_tree;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::TracesData;
use proptest::prelude::*;
use prost::Message;

use agreement::agree;
use decoded::decoded_in_order;
use extracted::extracts_alike;
use rng::Rng;
use wire_tree::Tree;

/// How often one message is changed in different ways: creating a message costs more than reading it.
const CHANGES: usize = 16;

proptest! {
    #[test]
    fn a_message_of_prost_is_walked_to_equal_spans(message in messages::traces_data()) {
        let bytes = message.encode_to_vec();
        prop_assert!(TracesData::decode(&bytes[..]).is_ok());
        agree(&bytes)?;
        prop_assert!(!matches!(decoded_in_order(&bytes), Ok(None)), "prost writes fields in order");
    }

    #[test]
    fn an_export_request_has_the_same_wire(message in messages::traces_data()) {
        let request = ExportTraceServiceRequest { resource_spans: message.resource_spans.clone() };
        prop_assert_eq!(request.encode_to_vec(), message.encode_to_vec());
    }

    #[test]
    fn fields_may_be_shuffled_split_repeated_and_unknown(message in messages::traces_data(), seed: u64) {
        let tree = Tree::parse(&message.encode_to_vec());
        let mut rng = Rng::new(seed);
        for _ in 0..CHANGES {
            let bytes = tree.rearranged(&mut rng).encode(&mut rng);
            prop_assert!(TracesData::decode(&bytes[..]).is_ok());
            agree(&bytes)?;
        }
    }

    #[test]
    fn wrong_wire_types_are_malformed_as_in_prost(message in messages::traces_data(), seed: u64) {
        let tree = Tree::parse(&message.encode_to_vec());
        let mut rng = Rng::new(seed);
        for _ in 0..CHANGES {
            agree(&tree.rearranged(&mut rng).with_wrong_keys(&mut rng).encode(&mut rng))?;
        }
    }

    #[test]
    fn damaged_messages_are_malformed_as_in_prost(message in messages::traces_data(), seed: u64) {
        let mut rng = Rng::new(seed);
        let written = message.encode_to_vec();
        let rearranged = Tree::parse(&written).rearranged(&mut rng).encode(&mut rng);
        for _ in 0..CHANGES {
            agree(&damage::damaged(&written, &mut rng))?;
            agree(&damage::damaged(&rearranged, &mut rng))?;
        }
    }

    #[test]
    fn a_span_alone_is_what_prost_leaves_of_the_message(message in messages::traces_data(), seed: u64) {
        let written = message.encode_to_vec();
        extracts_alike(&written)?;
        let tree = Tree::parse(&written);
        let mut rng = Rng::new(seed);
        for _ in 0..CHANGES {
            let rearranged = tree.rearranged(&mut rng).encode(&mut rng);
            extracts_alike(&rearranged)?;
            extracts_alike(&damage::damaged(&rearranged, &mut rng))?;
        }
    }

    #[test]
    fn a_request_is_split_into_its_spans_and_nothing_else(message in messages::traces_data(), seed: u64) {
        let written = message.encode_to_vec();
        let mut rng = Rng::new(seed);
        parted::parts_join_to_the_whole(&written, &mut rng)?;
        // Few traces, so that they have several spans.
        let traces = [[1; 16], [2; 16], [3; 16]].map(|id: [u8; 16]| id.to_vec());
        let mut few = message;
        let scopes = few.resource_spans.iter_mut().flat_map(|resource| &mut resource.scope_spans);
        scopes.flat_map(|scope| &mut scope.spans).for_each(|span| span.trace_id.clone_from(&traces[rng.below(3)]));
        let tree = Tree::parse(&few.encode_to_vec());
        for _ in 0..CHANGES {
            let rearranged = tree.rearranged(&mut rng).encode(&mut rng);
            parted::parts_join_to_the_whole(&rearranged, &mut rng)?;
            parted::parts_join_to_the_whole(&damage::damaged(&rearranged, &mut rng), &mut rng)?;
        }
    }

    #[test]
    fn any_bytes_are_split_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..64), seed: u64) {
        parted::parts_join_to_the_whole(&bytes, &mut Rng::new(seed))?;
    }

    #[test]
    fn any_bytes_are_malformed_as_in_prost(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        agree(&bytes)?;
    }
}

#[test]
fn every_prefix_of_a_message_is_malformed_as_in_prost() {
    let bytes = messages::sample().encode_to_vec();
    for length in 0..=bytes.len() {
        agree(&bytes[..length]).unwrap();
    }
}

#[test]
fn values_nest_as_deep_as_in_prost() {
    let mut limit_was_met = [false, false];
    for depth in 0..70 {
        for (message, met) in messages::nested(depth).into_iter().zip(&mut limit_was_met) {
            let bytes = message.encode_to_vec();
            *met |= TracesData::decode(&bytes[..]).is_err();
            agree(&bytes).unwrap();
        }
    }
    assert_eq!(limit_was_met, [true, true]);
}

#[test]
fn values_in_pieces_nest_as_deep_as_in_prost() {
    use wire_tree::length_delimited;
    let ids = [length_delimited(1, &[1; 16]), length_delimited(2, &[2; 8])].concat();
    // An array whose first element is in one piece and whose second, the deep one, is in another: of the same AnyValue, or of another one
    // in the same KeyValue.
    let in_one_value = |deep: &[u8]| [&[0x2A, 2, 0x0A, 0], deep].concat();
    // At the bottom a number or an empty array, because an array takes two levels and the limit may lie between.
    for (depth, bottom) in (40..50).flat_map(|depth| [(depth, [0x18, 1]), (depth, [0x2A, 0])]) {
        let mut deep = bottom.to_vec();
        for _ in 0..depth {
            deep = length_delimited(5, &length_delimited(1, &deep));
        }
        let one_value = length_delimited(2, &in_one_value(&deep));
        let two_values = [length_delimited(2, &in_one_value(&[])), length_delimited(2, &deep)].concat();
        for key_value in [one_value, two_values] {
            let span = [&ids[..], &length_delimited(9, &key_value)].concat();
            let spans = length_delimited(2, &length_delimited(2, &span));
            agree(&length_delimited(1, &spans)).unwrap();
        }
    }
}

#[test]
fn unknown_fields_nest_as_deep_as_in_prost() {
    for depth in 90..110 {
        // Nested groups of field 100, in the outermost message and in the resource of a ResourceSpans.
        let groups = [[0xA3, 0x06].repeat(depth), [0xA4, 0x06].repeat(depth)].concat();
        agree(&groups).unwrap();
        let resource = wire_tree::length_delimited(1, &groups);
        agree(&wire_tree::length_delimited(1, &resource)).unwrap();
    }
}

#[test]
fn strings_that_are_not_utf8_pass_as_they_are() {
    let name = wire_tree::length_delimited(5, b"\xFF\xFE");
    let ids = [wire_tree::length_delimited(1, &[1; 16]), wire_tree::length_delimited(2, &[2; 8])].concat();
    let spans = wire_tree::length_delimited(2, &wire_tree::length_delimited(2, &[ids, name].concat()));
    let bytes = wire_tree::length_delimited(1, &spans);
    assert!(TracesData::decode(&bytes[..]).is_err());
    assert_eq!(sluice_otlp::validate(&bytes), Ok(1));
}
