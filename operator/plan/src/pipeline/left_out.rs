//! What a plan leaves out of the spec, in words for the author of the spec.

use super::connections::where_it_stands;
use sluice_crds::TracePipelineSpec;
use sluice_gateway_config::left_out;

/// A warning for each ClickHouse endpoint that another one spells, too: the gateways use the first spelling of an address.
pub fn endpoints_left_out(spec: &TracePipelineSpec) -> Vec<String> {
    let clickhouse = &spec.sink.clickhouse;
    let of_shard = |(number, endpoints): (usize, _)| {
        (format!("spec.sink.clickhouse.shards[{number}].endpoints"), endpoints)
    };
    let shards = clickhouse.shards.iter().map(|shard| &shard.endpoints[..]).enumerate().map(of_shard);
    let single = ("spec.sink.clickhouse.endpoints".to_owned(), &clickhouse.endpoints[..]);
    let place = where_it_stands(clickhouse.connection_ref.as_ref());
    let mut warnings = Vec::new();
    for (field, endpoints) in std::iter::once(single).chain(shards) {
        for (kept, other) in left_out(endpoints) {
            warnings.push(format!(
                "{field}{place}: {kept:?} and {other:?} are one address: gateways use {kept:?} and leave out {other:?}; list each server once"
            ));
        }
    }
    warnings
}
