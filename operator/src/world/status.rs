//! What a pipeline's status says is under way. A step that is not in the status has not begun: the operator writes it there before it asks a
//! gateway for anything.

use sluice_crds::{DrainStatus, ReplacementStatus, RolloutStatus, TracePipeline, status::condition};
use sluice_plan::{Intent, Moment, scale::State};

/// The gateways that drain, to be removed.
pub fn drain(pipeline: &TracePipeline) -> Option<&DrainStatus> {
    pipeline.status.as_ref()?.scaling.as_ref()?.drain.as_ref()
}

/// The gateway that gets a new queue volume.
pub fn replacement(pipeline: &TracePipeline) -> Option<&ReplacementStatus> {
    pipeline.status.as_ref()?.volumes.as_ref()?.replacing.as_ref()
}

/// The rollout of the newest revision.
pub fn rollout(pipeline: &TracePipeline) -> Option<&RolloutStatus> {
    pipeline.status.as_ref()?.rollout.as_ref()
}

/// Whether the pipeline has no gateways because its topics are idle (`scaling.idle`). Still true for the reconcile that ends the rest.
pub fn is_at_rest(pipeline: &TracePipeline) -> bool {
    let scaling = pipeline.status.as_ref().and_then(|status| status.scaling.as_ref());
    let rest = scaling.and_then(|scaling| State::resumed(&scaling.remembered, Moment::default()).rest);
    pipeline.spec.scaling.idle.is_some() && rest.is_some()
}

/// Whether the pipeline was unmanaged until now.
pub fn is_taking_over(pipeline: &TracePipeline) -> bool {
    let conditions = pipeline.status.iter().flat_map(|status| &status.conditions);
    let mut paused = conditions.filter(|condition| condition.type_ == condition::RECONCILIATION_PAUSED);
    Intent::of(pipeline) != Intent::LeaveAlone && paused.any(|condition| condition.status == "True")
}
