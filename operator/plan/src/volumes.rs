//! What happens to the queue volumes: they grow while gateways run ([`growth`]). A volume that cannot get the size or class of the spec is
//! replaced, one gateway at a time ([`replacement`]). A volume without a gateway is drained before it is deleted ([`orphans`]). Which volumes
//! Kubernetes itself may delete is decided here too.
//!
//! Every decision follows from what is observed and from the status, so that an operator that crashed continues at any step.

pub mod claim_owners;
pub mod growth;
pub mod orphans;
pub mod removal;
pub mod replacement;
pub mod zone_loss;

pub use growth::{Growth, GrowthState};
pub use orphans::{Drain, Orphans, orphans};

use crate::{
    facts::Observed,
    observed::{TemplateSeen, WorkloadSeen},
};
use sluice_crds::{DeletionPolicy, QueueMode, Retention, TracePipeline, TracePipelineSpec};

/// The queue volume of each gateway, as planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    /// Size of new claims. It follows the spec once all claims there are were asked to grow.
    pub size: String,
    pub storage_class: Option<String>,
    pub growth: Growth,
    pub retention: VolumeRetention,
    /// The gateway that is to get a new volume next.
    pub replaced_next: Option<u32>,
    /// Whether all of them are known to be empty, of gateways that run as planned.
    pub is_empty: bool,
}

/// What becomes of volumes without a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VolumeRetention {
    /// Whether the StatefulSet keeps all of them when it is deleted. Those of gateways that are scaled away it keeps always.
    pub keeps_deleted: bool,
    /// Whether the operator deletes those of gateways that are scaled away once they are drained.
    pub deletes_drained: bool,
}

impl Volume {
    /// `None` when the spec wants none. `is_settled`: neither a rollout nor a rescale is under way, or about to begin.
    pub(crate) fn of(pipeline: &TracePipeline, observed: &Observed, is_settled: bool) -> Option<Self> {
        let queue = &pipeline.spec.queue;
        if queue.mode == QueueMode::Disabled {
            return None;
        }
        let growth = Growth::of(queue, &observed.volumes, observed.storage_class, is_settled);
        Some(Self {
            size: growth.template.clone(),
            storage_class: growth.template_class.clone(),
            replaced_next: replacement::next(queue, observed, &growth).filter(|_| is_settled),
            growth,
            retention: VolumeRetention::of(&pipeline.spec, observed, is_settled),
            is_empty: are_known_empty(observed, is_settled),
        })
    }
}

impl VolumeRetention {
    /// A volume may hold the only copy of rows with any `delivery.commit`: with `AfterInsert`, after `ClickHouse` was away for longer than
    /// Kafka keeps messages; with `source.otlp`, always. So the operator deletes a volume once it is known to be empty. Kubernetes does not know what is on a volume,
    /// and may delete it only with `deletionPolicy: Immediate` and gateways that commit after the insert.
    pub(crate) fn of(spec: &TracePipelineSpec, observed: &Observed, is_settled: bool) -> Self {
        let policy = spec.queue.retention_policy;
        let goes_unasked = spec.deletion_policy == DeletionPolicy::Immediate
            && policy.when_deleted == Retention::Delete
            && !spec.has_only_copies_on_volumes()
            && !may_hold_what_was_committed(observed, is_settled);
        Self { keeps_deleted: !goes_unasked, deletes_drained: policy.when_scaled == Retention::Delete }
    }
}

/// Volumes that were all kept so far may have been filled while their rows were already committed. Kubernetes may delete them only after
/// gateways with the config that commits after the insert have reported that nothing is on them. Until then, and after a change that was
/// undone, gateways may run with the config before. The same applies to volumes without a StatefulSet that records it, and to volumes that
/// no gateway uses: no gateway reports what is on them.
fn may_hold_what_was_committed(observed: &Observed, is_settled: bool) -> bool {
    let seen = &observed.volumes;
    let keeps_all = seen.template.as_ref().map_or(!seen.claims.is_empty(), TemplateSeen::keeps_all);
    keeps_all && !are_known_empty(observed, is_settled)
}

/// Whether gateways with the planned config have reported of every volume that nothing is on it.
fn are_known_empty(observed: &Observed, is_settled: bool) -> bool {
    let is_all_ready = |workload: &WorkloadSeen| workload.ready == workload.replicas;
    let none_is_left =
        |workload: &WorkloadSeen| orphans::left(workload.wanted, &observed.volumes).next().is_none();
    let is_known = observed.workload.as_ref().is_some_and(|seen| is_all_ready(seen) && none_is_left(seen));
    is_settled && observed.has_empty_queue && is_known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_may_be_the_only_copy_is_nobodys_to_throw_away_but_ours() {
        for (commit, policy, keeps_deleted) in [
            ("AfterInsert", "Drain", true),
            ("AfterInsert", "Orphan", true),
            ("AfterInsert", "Immediate", false),
            ("AfterEnqueue", "Drain", true),
            ("AfterEnqueue", "Immediate", true),
        ] {
            let pipeline: TracePipeline = serde_json::from_value(serde_json::json!({
                "metadata": {"name": "a"},
                "spec": {
                    "source": {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["a"]}},
                    "sink": {"clickhouse": {"endpoints": ["http://clickhouse:8123"]}},
                    "delivery": {"commit": commit},
                    "deletionPolicy": policy,
                },
            }))
            .unwrap();
            let found = VolumeRetention::of(&pipeline.spec, &Observed::default(), true);
            let expected = VolumeRetention { keeps_deleted, deletes_drained: true };
            assert_eq!(found, expected, "{commit} {policy}");
        }
    }
}
