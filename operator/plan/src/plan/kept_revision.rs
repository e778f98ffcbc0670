//! Keeps gateways from being restarted only because the number of partitions that they read at the same time would change.
//!
//! The number follows from the partitions ([`crate::size::partitions_active`]). It changes when the topic gets more partitions, and when
//! a version of the operator has another rule. Neither is worth a restart of every gateway, since partitions take turns. So if a known
//! revision differs from the planned one only in this number, the plan keeps that revision. Gateways get the new number with the next
//! edit that replaces them.

use crate::{
    facts::Observed,
    objects,
    observed::WorkloadSeen,
    planned::Plan,
    size::{ACTIVE_MAX, ACTIVE_MIN},
};
use sluice_crds::TracePipeline;
use sluice_gateway_config::CheckedConfig;

/// The plan with the number of a revision that is known: the one that the StatefulSet has, before the one that it remembers, before the one
/// that the status tells of. `config` makes the config of a number, if that fits the memory. A topic that had fewer than [`ACTIVE_MIN`]
/// partitions and has more now is worth a restart.
///
/// Cost: a config and a pod template for each number up to [`ACTIVE_MAX`], as long as the planned revision is not applied.
pub(crate) fn as_it_runs(
    plan: Plan,
    pipeline: &TracePipeline,
    observed: &Observed,
    config: impl Fn(u32) -> Option<CheckedConfig>,
) -> Plan {
    let workload = observed.workload.as_ref();
    let known = known(pipeline, workload);
    let rank = |plan: &Plan| {
        let revision = objects::revision(plan);
        // One that carries no revision is known by the hash of its plan.
        let is_live = || {
            let unnamed = workload.filter(|workload| workload.revision.is_none());
            unnamed.is_some_and(|workload| workload.plan_hash == Some(objects::plan_hash(plan)))
        };
        known.iter().position(|known| *known == revision).or_else(|| is_live().then_some(0))
    };
    if rank(&plan).is_some() || (workload.is_none() && known.is_empty()) {
        return plan;
    }
    // The number of logs follows from the spec.
    if plan.config.config().source.otlp.is_some() {
        return plan;
    }
    let planned = plan.config.config().reading().partitions_active_max;
    let least = plan.partitions().min(ACTIVE_MIN).min(planned);
    let others = (least..=ACTIVE_MAX).filter(|active| *active != planned).filter_map(|active| {
        let kept = Plan { config: config(active)?, ..plan.clone() };
        Some((rank(&kept)?, kept))
    });
    let best = others.min_by_key(|(rank, _)| *rank);
    best.map_or(plan, |(_, kept)| kept)
}

/// Revisions that gateways have, or had and may get again. While the operator recreates the StatefulSet, only the status has them.
fn known<'a>(pipeline: &'a TracePipeline, workload: Option<&'a WorkloadSeen>) -> Vec<&'a str> {
    let live = workload.and_then(|workload| workload.revision.as_deref());
    let proved = workload.and_then(|workload| workload.proved.as_ref());
    let written = pipeline.status.as_ref().and_then(|status| status.rollout.as_ref());
    let others =
        [proved.map(|proved| proved.revision.as_str()), written.map(|rollout| rollout.revision.as_str())];
    live.into_iter().chain(others.into_iter().flatten()).collect()
}
