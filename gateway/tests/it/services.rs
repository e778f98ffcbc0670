//! Rows by service, as a worker counts them.

use crate::encodes::{Case, attribute, span};
use crate::rows::text;
use opentelemetry_proto::tonic::{
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, TracesData},
};
use prost::Message as _;
use sluice_gateway::{
    reading::encode::Encoded,
    rows::services::{Largest, ServiceTally, Services, Volume},
};
use std::sync::Arc;

/// A message with this many spans of each service.
fn message(services: &[(&str, usize)]) -> Vec<u8> {
    let of = |(name, spans): &(&str, usize)| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![attribute("service.name", text(name))],
            ..Resource::default()
        }),
        scope_spans: vec![ScopeSpans { spans: vec![span(vec![]); *spans], ..ScopeSpans::default() }],
        ..ResourceSpans::default()
    };
    TracesData { resource_spans: services.iter().map(of).collect() }.encode_to_vec()
}

#[test]
fn the_rows_of_messages_that_are_whole_are_counted_by_service() {
    let services = Arc::new(Services::default());
    let mut case = Case::new(64 << 20).tallying(ServiceTally::new(services.clone()));
    // The second resource of `shop` comes from the cache.
    assert!(matches!(case.add(&message(&[("shop", 3), ("cart", 1), ("shop", 2)])), Encoded::Whole { .. }));
    let whole = message(&[("cart", 9)]);
    assert!(matches!(case.add(&whole[..whole.len() - 1]), Encoded::Rejected(_)));
    let Largest { services: largest, other, .. } = services.look();
    let spans: Vec<_> = largest.iter().map(|(name, volume)| (&**name, volume.spans)).collect();
    assert_eq!((spans, other), (vec![("shop", 5), ("cart", 1)], Volume::default()));
    let bytes: u64 = largest.iter().map(|(_, volume)| volume.row_bytes).sum();
    assert_eq!(bytes, case.rows().1.len() as u64);
}
