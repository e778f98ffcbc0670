//! When a pipeline is looked at again. Pure.

use crate::{
    read::unread_partitions,
    steer::{rollout, scaling},
    world::{memory::WAIT_MIN_SECONDS, metrics::ReconcileResult},
    write::resize,
};
use sluice_crds::{DrainState, ScalingMode, TracePipeline, status::reason};
use sluice_plan::{
    Intent, Observed, Planned, SchemaSeen, SchemaStep, TopicSeen, Violations, drain::lifecycle::there,
    observed::inserts::DOUBT_SECONDS,
};

/// A running pipeline is looked at again after this many seconds, for its lag and for new partitions.
const RUNNING_SECONDS: u64 = 30;
/// Something outside is missing: it is looked for again after this many seconds at first.
pub const WAITING_SECONDS: u64 = WAIT_MIN_SECONDS;
/// A refused spec is looked at again after this many seconds: other partitions may fit, and what still runs has a lag.
pub const REFUSED_SECONDS: u64 = 60;
/// While gateways are being drained, the operator asks them again for their progress after this many seconds.
pub const LEAVING_SECONDS: u64 = 2;
/// The schema Job was deleted to be run again; by then it is gone.
const AGAIN_SECONDS: u64 = 1;
/// The status says that gateways are about to be started: they are after this many seconds. Chosen: by then other pipelines that said so before
/// are seen, as the watches bring them within a second.
const SAID_SECONDS: u64 = 2;

/// How a reconcile ended that did not fail, and when the next one is due.
#[derive(Debug, PartialEq, Eq)]
pub struct Next {
    /// How.
    pub result: ReconcileResult,
    /// When.
    pub after_seconds: u64,
}

/// After a look that ended well. `wait_seconds` says how long to wait this time for what may be away for long, as Kafka: a look at it
/// takes a place among the reconciles until it has not answered.
pub fn next(
    pipeline: &TracePipeline,
    planned: &Result<Planned, Violations>,
    observed: &Observed,
    wait_seconds: impl FnOnce() -> u64,
) -> Next {
    let source_is_away =
        observed.partitions.values().any(|seen| matches!(seen, TopicSeen::Unavailable { .. }));
    let (result, after_seconds) = match planned {
        Ok(_) if Intent::of(pipeline) != Intent::Run => (ReconcileResult::Done, RUNNING_SECONDS),
        Err(_) => (ReconcileResult::Refused, REFUSED_SECONDS),
        Ok(Planned::Waiting(waiting)) if waiting.reason == reason::PROGRESSING => {
            (ReconcileResult::Waiting, SAID_SECONDS)
        }
        Ok(Planned::Waiting(_)) => (ReconcileResult::Waiting, wait_seconds()),
        Ok(Planned::Ready(plan)) => match plan.schema_step() {
            SchemaStep::RunAgain | SchemaStep::LookAgain => (ReconcileResult::Waiting, AGAIN_SECONDS),
            // What happens to the Job and its pods is seen; time alone makes one that failed due to be run again.
            SchemaStep::Run | SchemaStep::Failed => {
                (ReconcileResult::Waiting, wait_seconds().min(again_seconds(&observed.schema)))
            }
            SchemaStep::NotNeeded
            | SchemaStep::Done
            | SchemaStep::Remembered
            | SchemaStep::Usable
            | SchemaStep::Looking => {
                if source_is_away {
                    (ReconcileResult::Waiting, wait_seconds())
                } else {
                    (ReconcileResult::Done, RUNNING_SECONDS)
                }
            }
        },
    };
    let looks = scaling_seconds(pipeline, observed, source_is_away)
        .min(observed.unread.as_ref().map_or(u64::MAX, |_| unread_partitions::LOOK_SECONDS))
        .min(if observed.inserts_in_doubt { DOUBT_SECONDS } else { u64::MAX })
        .min(rollout::look_seconds(observed.rollout.as_ref()))
        .min(resize::look_seconds(observed.memory_resizes.as_deref()));
    Next { result, after_seconds: after_seconds.min(looks) }
}

/// The schema Job is to be run again after this many seconds, if it failed.
fn again_seconds(schema: &SchemaSeen) -> u64 {
    // One second more: a reconcile that comes too early would find the Job not due yet.
    schema.again_in().map_or(u64::MAX, |left| left.as_secs().saturating_add(1))
}

/// Scaling looks again after this many seconds.
fn scaling_seconds(pipeline: &TracePipeline, observed: &Observed, source_is_away: bool) -> u64 {
    let drain = observed.scaling.drain.as_ref();
    match Intent::of(pipeline) {
        Intent::Suspend if there(observed).is_some_and(|seen| seen.wanted > 0) => {
            return LEAVING_SECONDS;
        }
        // An unmanaged pipeline sends no requests to draining gateways.
        Intent::LeaveAlone => return u64::MAX,
        Intent::Suspend | Intent::Run | Intent::Remove => {}
    }
    let replacing = observed.volumes.replacing.as_ref();
    let states = drain.map(|drain| drain.state).into_iter().chain(replacing.map(|replacing| replacing.state));
    if states.into_iter().any(|state| matches!(state, DrainState::Draining | DrainState::Resuming)) {
        return LEAVING_SECONDS;
    }
    // Nothing is decided before Kafka answers.
    if source_is_away {
        return u64::MAX;
    }
    match pipeline.spec.scaling.mode {
        ScalingMode::Auto | ScalingMode::Recommend if Intent::of(pipeline) == Intent::Run => {
            scaling::POLL_SECONDS
        }
        ScalingMode::Auto | ScalingMode::Recommend | ScalingMode::Fixed | ScalingMode::External => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_plan::Waiting;

    #[test]
    fn what_waits_for_nothing_but_its_own_word_is_looked_at_soon() {
        let pipeline: TracePipeline = serde_json::from_value(json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline", "metadata": {"name": "a"},
            "spec": {
                "source": {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["spans"]}},
                "sink": {"clickhouse": {"endpoints": ["http://clickhouse:8123"]}},
            },
        }))
        .unwrap();
        let after = |reason| {
            let planned = Ok(Planned::Waiting(Waiting { reason, message: String::new() }));
            next(&pipeline, &planned, &Observed::default(), || 60)
        };
        let waits = |after_seconds| Next { result: ReconcileResult::Waiting, after_seconds };
        assert_eq!(after(reason::TOPIC_MISSING), waits(60), "it may be away for long");
        assert_eq!(after(reason::PROGRESSING), waits(SAID_SECONDS));
    }
}
