//! The status of a pipeline that is being deleted, while its finalizer holds it.

use super::{counted, edge, progress::NOT_STALLED, scaling, verdict::Verdict};
use crate::{
    facts::Observed,
    ground::words::{form, plural},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use sluice_crds::{
    DeletionPolicy, TracePipeline, TracePipelineStatus,
    status::{condition, reason},
};

/// The status of a pipeline whose gateways drain because it is deleted. Source, sink and table are not observed any more: their
/// conditions stay.
pub fn removing(pipeline: &TracePipeline, observed: &Observed, now: &Time) -> TracePipelineStatus {
    let before = pipeline.status.clone().unwrap_or_default();
    let message = message(pipeline, observed);
    let said = [
        (condition::READY, Verdict::no(reason::DELETING, &message)),
        (condition::RECONCILING, Verdict::yes(reason::DRAINING, &message)),
        (condition::STALLED, Verdict::no(reason::OK, NOT_STALLED)),
    ];
    let ours = said.map(|(kind, verdict)| {
        verdict.condition(kind, pipeline.metadata.generation, &before.conditions, now)
    });
    let is_other = |condition: &&Condition| ours.iter().all(|own| own.type_ != condition.type_);
    let others: Vec<Condition> = before.conditions.iter().filter(is_other).cloned().collect();
    let scaling = scaling::with_drain(before.scaling.clone(), observed.scaling.drain.as_ref());
    let after = TracePipelineStatus {
        observed_generation: pipeline.metadata.generation,
        conditions: ours.into_iter().chain(others).collect(),
        desired_replicas: Some(0),
        edge: edge::counts(observed),
        scaling,
        ..counted(before, observed)
    };
    after.counted()
}

fn message(pipeline: &TracePipeline, observed: &Observed) -> String {
    if pipeline.spec.deletion_policy == DeletionPolicy::Orphan {
        return "deletionPolicy is Orphan: the operator is about to remove the owner references of the pipeline's objects".to_owned();
    }
    if let Some(edge) = &observed.edge {
        return format!(
            "the pipeline is being deleted: {} of the edge {} first, so that gateways still read what it has accepted",
            plural(edge.pods, "pod"),
            form(edge.pods, "ends", "end")
        );
    }
    let state = observed.scaling.drain.as_ref().map_or("the drain is about to begin", |drain| &drain.reason);
    format!(
        "the pipeline is being deleted: its gateways insert and commit what they hold, for at most {}: {state}",
        pipeline.spec.scaling.drain.timeout
    )
}
