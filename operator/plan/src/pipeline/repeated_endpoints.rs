//! ClickHouse servers that the spec lists more than once, in words for the author of the spec: what a plan leaves out, and what two shards
//! share.

use super::connections::where_it_stands;
use sluice_crds::TracePipelineSpec;
use sluice_gateway_config::{self as contract, each_once, left_out};

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

/// A server that stands in two shards in different spellings.
pub(crate) struct SharedServer {
    /// The shard in which it stands first, by its position from 0.
    pub first_shard: usize,
    /// A later shard, likewise.
    pub shard: usize,
    /// The endpoints of the later shard.
    pub field: String,
    /// How it is spelt there.
    pub endpoint: String,
    /// What is wrong.
    pub words: String,
}

/// The servers that stand in two shards. The same text in two shards is a violation of the config.
pub(crate) fn in_two_shards(spec: &TracePipelineSpec) -> Vec<SharedServer> {
    let shards: Vec<Vec<String>> =
        spec.sink.clickhouse.shards.iter().map(|shard| each_once(&shard.endpoints)).collect();
    let found = contract::in_two_shards(shards.iter().map(Vec::as_slice));
    let shared = found.iter().map(|shared| SharedServer {
        first_shard: shared.first.0,
        shard: shared.other.0,
        field: format!("spec.sink.clickhouse.shards[{}].endpoints", shared.other.0),
        endpoint: shared.other.1.to_owned(),
        words: shared.words(),
    });
    shared.collect()
}

/// A warning for each of them. Without gateways that have it so, the plan refuses it instead.
pub fn servers_of_two_shards(spec: &TracePipelineSpec) -> Vec<String> {
    let place = where_it_stands(spec.sink.clickhouse.connection_ref.as_ref());
    let warning = |shared: &SharedServer| {
        let SharedServer { field, endpoint, words, .. } = shared;
        format!(
            "{field}{place}: {words}: add a server of its own to this shard, and remove {endpoint:?} from it in a later edit, with suspend: \
             true in between"
        )
    };
    in_two_shards(spec).iter().map(warning).collect()
}
