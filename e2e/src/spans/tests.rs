//! The generator against prost, and its sizes against the figures.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use prost::Message;

use super::*;

const RUN: Run = Run { id: 0x5106_ce00_0000_0001, start_ns: 1_795_000_000_000_000_000 };
const SHAPES: [Shape; 3] = [Shape::Numbered, Shape::Rich, Shape::Loadgen];

fn decoded(shape: Shape, numbers: Range<u64>) -> ExportTraceServiceRequest {
    let mut generator = Generator::new(shape, RUN);
    ExportTraceServiceRequest::decode(generator.message(numbers)).unwrap()
}

fn spans(request: &ExportTraceServiceRequest) -> impl Iterator<Item = &Span> {
    request.resource_spans.iter().flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans)
}

fn number(span: &Span) -> u64 {
    let found = span.attributes.iter().find(|attribute| attribute.key == NUMBER_KEY).unwrap();
    match found.value.as_ref().unwrap().value.as_ref().unwrap() {
        Any::IntValue(number) => number.cast_unsigned(),
        other => panic!("the number is {other:?}"),
    }
}

#[test]
fn prost_reads_every_shape_and_writes_the_same_bytes() {
    for shape in SHAPES {
        let mut generator = Generator::new(shape, RUN);
        let bytes = generator.message(50..50 + shape.message_spans()).to_vec();
        let request = ExportTraceServiceRequest::decode(&*bytes).unwrap();
        // prost writes fields in the order of their numbers; ours follow it but for the ones below.
        assert_eq!(request.encoded_len(), bytes.len(), "{shape:?}");
        assert_eq!(
            ExportTraceServiceRequest::decode(&*request.encode_to_vec()).unwrap().encoded_len(),
            bytes.len()
        );
    }
}

#[test]
fn every_number_of_a_message_is_in_it_once() {
    for shape in SHAPES {
        let numbers = 12_345..12_345 + 2_000;
        let request = decoded(shape, numbers.clone());
        let found: Vec<u64> = spans(&request).map(number).collect();
        assert_eq!(found.len(), 2_000, "{shape:?}");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), numbers.collect(), "{shape:?}");
    }
}

#[test]
fn ids_are_unique_and_carry_run_and_number() {
    for shape in SHAPES {
        let request = decoded(shape, 0..5_000);
        let ids: BTreeSet<&[u8]> = spans(&request).map(|span| &*span.span_id).collect();
        assert_eq!(ids.len(), 5_000);
        for span in spans(&request) {
            assert_eq!(span.trace_id[..8], RUN.id.to_be_bytes());
            assert_eq!(span.trace_id[8..], (number(span) / 100).to_be_bytes());
            if shape == Shape::Numbered {
                assert_eq!(span.span_id, (number(span) + 1).to_be_bytes());
            }
        }
    }
}

#[test]
fn a_span_does_not_depend_on_the_cut_nor_on_earlier_messages() {
    for shape in SHAPES {
        let mut generator = Generator::new(shape, RUN);
        let whole = decoded(shape, 0..300);
        for cut in [0..1, 99..101, 37..251] {
            let part = ExportTraceServiceRequest::decode(generator.message(cut.clone())).unwrap();
            for span in spans(&part) {
                let same = spans(&whole).find(|other| other.span_id == span.span_id).unwrap();
                // By bytes: NaN does not equal itself.
                assert_eq!(span.encode_to_vec(), same.encode_to_vec(), "{shape:?} {cut:?}");
            }
        }
    }
    assert!(Generator::new(Shape::Rich, RUN).message(7..7).is_empty());
}

#[test]
fn a_rich_message_has_the_size_and_the_parts_of_the_figures() {
    let request = decoded(Shape::Rich, 0..100_000);
    assert_near(request.encoded_len(), 461_000 * 100);
    assert_eq!(request.resource_spans.len(), 8_000, "8 services a trace");
    assert!(
        request.resource_spans.iter().all(|spans| spans.resource.as_ref().unwrap().attributes.len() == 14)
    );
    let all: Vec<&Span> = spans(&request).collect();
    let attributes: usize = all.iter().map(|span| span.attributes.len()).sum();
    assert_near(attributes, 750_000);
    assert!(all.iter().all(|span| (5..=10).contains(&span.attributes.len())));
    let exceptions =
        all.iter().flat_map(|span| &span.events).filter(|event| event.name == "exception").count();
    let events: usize = all.iter().map(|span| span.events.len()).sum();
    assert!((2_800..3_200).contains(&exceptions), "{exceptions} exceptions");
    assert!((7_700..8_300).contains(&(events - exceptions)), "{} other events", events - exceptions);
    let links = all.iter().map(|span| span.links.len()).sum();
    assert!((900..1_100_usize).contains(&links), "{links} links");
}

#[test]
fn a_rich_trace_has_its_parents_in_other_services() {
    let request = decoded(Shape::Rich, 0..100);
    let mut elsewhere = 0;
    for resource in &request.resource_spans {
        let ids: BTreeSet<&[u8]> = resource.scope_spans[0].spans.iter().map(|span| &*span.span_id).collect();
        elsewhere +=
            resource.scope_spans[0].spans.iter().filter(|s| !ids.contains(&*s.parent_span_id)).count();
    }
    assert!(elsewhere > 70, "only {elsewhere} of 100 spans have their parent in another resource");
}

#[test]
fn a_loadgen_message_has_the_size_and_the_parts_of_the_figures() {
    // A later message, whose numbers are as long as most are.
    let first = 100 * Shape::Loadgen.message_spans();
    let request = decoded(Shape::Loadgen, first..first + Shape::Loadgen.message_spans());
    assert_near(request.encoded_len(), 989_000);
    assert!(
        request.resource_spans.iter().all(|spans| spans.resource.as_ref().unwrap().attributes.len() == 4)
    );
    for span in spans(&request) {
        assert_eq!((span.attributes.len(), span.events.len()), (1, 1));
        assert!(!span.trace_state.is_empty());
    }
}

/// Within 3 %, the tolerance that the figures allow.
#[track_caller]
fn assert_near(found: usize, wanted: usize) {
    assert!(found.abs_diff(wanted) * 100 <= wanted * 3, "found {found}, wanted {wanted} within 3 %");
}

#[test]
fn the_numbered_rows_say_what_the_bytes_say() {
    let request = decoded(Shape::Numbered, 0..600);
    for resource in &request.resource_spans {
        let attributes = resource.resource.as_ref().map_or(&[][..], |resource| &resource.attributes);
        for scope in &resource.scope_spans {
            for span in &scope.spans {
                let row = expected_row(RUN, number(span));
                assert_eq!(row.service_name, service_name(attributes));
                assert_eq!(row.scope_name, scope.scope.as_ref().map_or("", |scope| &scope.name));
                assert_span(&row, span);
            }
        }
    }
}

fn service_name(attributes: &[KeyValue]) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == "service.name");
    found.map(|attribute| text_of(attribute.value.as_ref().unwrap())).unwrap_or_default()
}

fn text_of(value: &AnyValue) -> String {
    match value.value.as_ref().unwrap() {
        Any::StringValue(text) => text.clone(),
        other => panic!("{other:?} is no text"),
    }
}

fn assert_span(row: &SpanRow, span: &Span) {
    assert_eq!(row.span_name, span.name);
    assert_eq!(row.timestamp_ns.cast_unsigned(), span.start_time_unix_nano);
    assert_eq!(row.duration_ns, span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano));
    assert_eq!(row.trace_state, span.trace_state);
    assert_eq!(row.span_kind, format!("{:?}", span.kind()));
    let status = span.status.as_ref();
    assert_eq!(row.status_message, status.map_or("", |status| &status.message));
    assert_eq!(row.status_code, format!("{:?}", status.map_or_else(Default::default, Status::code)));
    assert_eq!((row.events.len(), row.links.len()), (span.events.len(), span.links.len()));
    assert_eq!(row.parent_span_id.len(), span.parent_span_id.len() * 2);
    for attribute in &span.attributes {
        if let Some(Any::StringValue(text)) = &attribute.value.as_ref().unwrap().value
            && attribute.key != "twice"
        {
            assert_eq!(format!("{:?}", row.span_attributes[&attribute.key]), format!("Text({text:?})"));
        }
    }
}

#[test]
fn ten_neighbouring_rows_meet_every_type() {
    let rows: Vec<String> = (0..12).map(|number| format!("{:?}", expected_row(RUN, number))).collect();
    let rows = rows.join("\n");
    for found in [
        "Text(",
        "Bool(",
        "Int(",
        "Double(NaN)",
        "Double(inf)",
        "Double(-inf)",
        "Double(-0.0)",
        "Texts([])",
        "Texts([Some",
        "Ints([",
        "Bools([",
        "Doubles([",
        "Mixed([",
        "Objects([",
        "Int(-9223372036854775808)",
        "\"literal\"",
        "Unspecified",
        "Consumer",
        "\"Error\"",
        "EventRow",
        "LinkRow",
        "duration_ns: 0",
    ] {
        assert!(rows.contains(found), "no row has {found}");
    }
    assert!(!rows.contains("flattened") && !rows.contains("late") && !rows.contains("gone"));
}
