//! The rules of the definition about a change of shards, for what CEL cannot see. CEL compares an object only with its own former state. It
//! does not see a changed reference, or a switch between a reference and servers in the spec. It does not see that a connection was deleted
//! and made again, what two edits in a row changed, or that two spellings are one address. So the planned servers are compared with those
//! that the gateways were last given.
//!
//! A server in two shards is refused, too. If gateways run with it, they go on: rows may be on their way to either shard, and a spec that is
//! refused would keep later changes from them. Then `Ready` reports it.

use crate::{
    drain::lifecycle::there,
    facts::Observed,
    observed::{ClaimSeen, ServersSeen},
    pipeline::{
        connections::where_it_stands,
        repeated_endpoints::{SharedServer, in_two_shards},
    },
};
use sluice_crds::{ClickHouseSink, TracePipeline};
use sluice_gateway_config::{Violations, is_same_address};

/// The field that a violation names.
const FIELD: &str = "spec.sink.clickhouse";

/// Refuses servers that stand in two shards, and servers with which rows on their way would go to another shard.
pub(crate) fn kept(pipeline: &TracePipeline, observed: &Observed) -> Result<(), Violations> {
    apart(pipeline, observed)?;
    let sink = &pipeline.spec.sink.clickhouse;
    let status = pipeline.status.as_ref();
    let is_running = there(observed).is_some_and(|seen| seen.wanted.max(seen.replicas) > 0);
    let unproved = unproved(pipeline, observed);
    if !is_running && unproved.is_none() {
        return Ok(());
    }
    let remembered = status.and_then(|status| status.connections.as_ref());
    let names = remembered.map_or(&[][..], |connections| &connections.shards);
    let mut found = Violations::default();
    if let Some(wrong) = observed.servers.iter().find_map(|before| wrong(before, names, sink)) {
        let place = where_it_stands(sink.connection_ref.as_ref());
        let remedy = match unproved.filter(|_| !is_running) {
            Some(claim) => format!(
                "The queue volume {claim} may hold blocks for the former servers: undo the change, resume the pipeline until its gateways \
                 have inserted them, and suspend it again"
            ),
            None => "The gateways keep the servers that they have; undo the change".to_owned(),
        };
        found.add(FIELD, format!("{wrong}{place}. {remedy}"));
    }
    found.or(())
}

/// Refuses a server that stands in two shards in different spellings, unless gateways were given it so.
fn apart(pipeline: &TracePipeline, observed: &Observed) -> Result<(), Violations> {
    let mut found = Violations::default();
    for shared in in_two_shards(&pipeline.spec) {
        found.add_if(!runs_so(pipeline, observed, &shared), &shared.field, || {
            format!("{}; list each server in one shard", shared.words)
        });
    }
    found.or(())
}

/// Whether gateways were given this server in two shards. Of those whose config is gone, it is not known.
fn runs_so(pipeline: &TracePipeline, observed: &Observed, shared: &SharedServer) -> bool {
    if observed.servers.is_empty() {
        return pipeline.status.as_ref().is_some_and(|status| status.image.is_some());
    }
    let had = |before: &ServersSeen, shard: usize| {
        before.shards.get(shard).is_some_and(|had| has(had, &shared.endpoint))
    };
    observed.servers.iter().any(|before| had(before, shared.first_shard) && had(before, shared.shard))
}

/// A queue volume that may hold blocks while no gateway runs, by its claim. What gateways last reported is no proof: one may have fallen
/// silent after it. A Job's mark is, and so is what each gateway confirmed before a suspension removed it.
fn unproved<'a>(pipeline: &TracePipeline, observed: &'a Observed) -> Option<&'a str> {
    let suspension = pipeline.status.as_ref().and_then(|status| status.suspension);
    let confirmed =
        suspension.filter(|suspension| suspension.is_empty).map_or(0, |suspension| suspension.replicas);
    let may_hold = |claim: &&ClaimSeen| claim.is_bound && !claim.is_drained && claim.ordinal >= confirmed;
    observed.volumes.claims.iter().find(may_hold).map(|claim| claim.name.as_str())
}

/// What is wrong with these servers after those. `names` are those that the shards had, as far as they are known.
fn wrong(before: &ServersSeen, names: &[String], after: &ClickHouseSink) -> Option<String> {
    let shards: Vec<&[String]> = after.shards.iter().map(|shard| &shard.endpoints[..]).collect();
    if before.shards.is_empty() {
        let first = shards.first()?;
        return (!meet(&before.endpoints, first)).then(|| {
            format!("the first of shards has none of the former endpoints {}", before.endpoints.join(", "))
        });
    }
    let count = before.shards.len();
    if shards.is_empty() {
        return (count > 1)
            .then(|| format!("endpoints would replace {count} shards; shards can only be added"));
    }
    if shards.len() < count {
        return Some(format!("there would be {} of {count} shards; shards can only be added", shards.len()));
    }
    let olds = || before.shards.iter().enumerate();
    let left = olds().zip(&after.shards).find_map(|((at, old), new)| {
        let number = at.saturating_add(1);
        match (names.get(at), &new.name) {
            (Some(name), Some(other)) => {
                (name != other).then(|| format!("the shard {number} of the list would no longer be {name:?}"))
            }
            _ => (!meet(old, &new.endpoints)).then(|| {
                format!("the shard {number} of the list would have none of its endpoints {}", old.join(", "))
            }),
        }
    });
    if left.is_some() {
        return left;
    }
    let moved = olds().find_map(|(at, old)| {
        let others = shards.iter().take(count).enumerate().filter(|(other, _)| *other != at);
        // What another shard had before does not move to it: earlier versions took one server in two shards.
        let mut come = others.flat_map(|(other, new)| {
            new.iter().filter(move |endpoint| !before.shards.get(other).is_some_and(|had| has(had, endpoint)))
        });
        Some((at, come.find(|endpoint| has(old, endpoint))?))
    });
    moved.map(|(at, endpoint)| {
        format!(
            "{endpoint} would move away from the shard {} of the list: remove it in one edit and add it in a later one, with \
             suspend: true in between",
            at.saturating_add(1)
        )
    })
}

fn meet(some: &[String], others: &[String]) -> bool {
    some.iter().any(|one| has(others, one))
}

/// Whether the list has this address, in any spelling.
fn has(endpoints: &[String], endpoint: &str) -> bool {
    endpoints.iter().any(|one| is_same_address(one, endpoint))
}
