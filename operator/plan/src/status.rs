//! The status of a pipeline: counts of what exists, and all conditions, always.
//!
//! The same facts give the same status, whether or not anything was applied. A condition keeps `lastTransitionTime` until its status
//! changes. So a status without news equals the previous one and is not written.

mod apply_failure;
mod coarse;
mod counts;
pub(crate) mod derived;
mod edge;
mod inserts;
mod loss;
mod messages;
mod not_ready;
mod one_time_events;
mod otlp;
mod progress;
mod readers;
mod remedies;
mod removal;
mod replica_conflict;
mod scaling;
mod silent;
mod transactions;
mod unasked;
mod unconnected;
mod unfetched;
mod unheard;
mod verdict;
mod volumes;

pub use apply_failure::status_of_failure;
pub use derived::{Advice, Server, advice, derived};
pub use one_time_events::{OneTimeEvent, one_time_events};
pub use removal::removing;
pub use replica_conflict::replica_conflict_message;
pub use scaling::for_metrics;

use crate::{
    drain::lifecycle,
    facts::Observed,
    names::Names,
    pipeline::{Intent, connections, gateway_config},
    planned::{Plan, Planned},
    size::resize,
    volumes::zone_loss,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use progress::Progress;
use sluice_crds::{
    DrainOutcome, Lag, MemoryResize, QueueMode, QueueStatus, RolloutState, ScalingStatus, SuspensionStatus,
    TracePipeline, TracePipelineStatus, VolumesStatus,
    status::{condition, reason},
};
use sluice_gateway_config::Violations;
use verdict::Verdict;

/// The status after a reconcile that observed these facts and came to this outcome at this time.
pub fn status(
    pipeline: &TracePipeline,
    observed: &Observed,
    outcome: Result<&Planned, &Violations>,
    now: &Time,
) -> TracePipelineStatus {
    let before = pipeline.status.clone().unwrap_or_default();
    let memory_resizes = memory_resizes(&before.memory_resizes, observed);
    let resized = resize::words(&memory_resizes);
    let said = (before.scaling.as_ref(), resized.as_deref());
    let scaling = scaling::scaling(pipeline.spec.scaling.mode, said, &observed.scaling);
    let plan = outcome.ok().and_then(Planned::ready);
    // A pipeline that is resumed is about to use the volumes of its gateways again.
    let comes = Intent::of(pipeline) == Intent::Run && observed.scaling.replica_conflict.is_none();
    let coming = plan.filter(|_| comes).map_or(0, Plan::replicas);
    let words = Words { scaling: scaling.as_ref(), resized: resized.as_deref(), coming };
    let verdicts = verdicts(pipeline, observed, outcome, now, &words);
    // None is made of a spec that is refused.
    let is_job_known = outcome.is_ok() && observed.schema_job.is_some();
    let conditions = condition::ALL
        .into_iter()
        .zip(verdicts)
        .map(|(kind, verdict)| match verdict::said_before(&verdict, kind, is_job_known, &before.conditions) {
            Some(said) => said.clone(),
            None => verdict.condition(kind, pipeline.metadata.generation, &before.conditions, now),
        })
        .chain(of_edge(pipeline, observed, outcome, &before.conditions, now))
        .collect();
    let loss = loss::loss(before.loss.as_ref(), &observed.messages_lost, now);
    let is_empty = plan.is_some_and(|plan| plan.volume.as_ref().is_some_and(|volume| volume.is_empty));
    let cache_since = zone_loss::cache_since(pipeline, is_empty, loss.as_ref(), now);
    let is_job_made = plan.is_some_and(|plan| plan.schema_step().has_job());
    let job = observed.schema_job.as_deref();
    let after = TracePipelineStatus {
        observed_generation: pipeline.metadata.generation,
        conditions,
        lag: observed.lag.map(|lag| Lag {
            messages: coarse::backlog(before.lag.map(|written| written.messages), lag.messages),
        }),
        // While gateways come and go they do not all answer, and what they said before still holds.
        delivery: observed.delivery.clone().or(before.delivery.clone()),
        queue: queue(pipeline, before.queue, observed.queue),
        schema: observed.schema.status(job, before.schema.clone()),
        schema_job: observed.schema.usable(job, before.schema_job.as_deref(), is_job_made),
        loss,
        volumes: volumes::volumes(pipeline, observed, coming)
            .map(|seen| VolumesStatus { cache_since, ..seen }),
        scaling,
        memory_resizes,
        silent_gateways: silent::listed(pipeline, observed),
        suspension: suspension(pipeline, observed),
        edge: edge::counts(observed),
        rollout: observed.rollout.clone().or(before.rollout.clone()),
        ..counted(before, observed)
    };
    let after = match plan {
        Some(plan) => gone_back(planned(after, pipeline, (plan, observed)), observed),
        None => after,
    };
    let after = match Intent::of(pipeline) {
        Intent::Suspend => TracePipelineStatus { desired_replicas: Some(0), ..after },
        Intent::Run | Intent::LeaveAlone | Intent::Remove => after,
    };
    after.counted()
}

/// The condition of the edge, which only a pipeline that has one has.
fn of_edge(
    pipeline: &TracePipeline,
    observed: &Observed,
    outcome: Result<&Planned, &Violations>,
    before: &[Condition],
    now: &Time,
) -> Option<Condition> {
    let verdict = edge::verdict(pipeline, observed, outcome)?;
    Some(verdict.condition(condition::EDGE_READY, pipeline.metadata.generation, before, now))
}

/// What is remembered of a suspension, with what Kafka says of the group meanwhile.
fn suspension(pipeline: &TracePipeline, observed: &Observed) -> Option<SuspensionStatus> {
    let remembered = lifecycle::suspension(pipeline, lifecycle::there(observed).as_ref())?;
    let is_seen = Intent::of(pipeline) == Intent::Suspend && observed.has_committed;
    let drain = observed.scaling.drain.as_ref().filter(|_| Intent::of(pipeline) == Intent::Suspend);
    let is_empty = drain.map_or(remembered.is_empty, |drain| drain.outcome == Some(DrainOutcome::Empty));
    Some(SuspensionStatus { has_committed: remembered.has_committed || is_seen, is_empty, ..remembered })
}

/// What verdicts are made from beside the facts.
struct Words<'a> {
    scaling: Option<&'a ScalingStatus>,
    /// What is said of memory that is given.
    resized: Option<&'a str>,
    /// How many gateways are about to be there.
    coming: u32,
}

/// One verdict for each of [`condition::ALL`], in that order.
fn verdicts(
    pipeline: &TracePipeline,
    observed: &Observed,
    outcome: Result<&Planned, &Violations>,
    now: &Time,
    &Words { scaling, resized, coming }: &Words<'_>,
) -> [Verdict; condition::ALL.len()] {
    let progress = Progress::of(pipeline, observed, outcome, now);
    [
        progress.ready(),
        progress.reconciling(),
        progress.stalled(),
        verdict::source_reachable(pipeline, observed, now),
        verdict::sink_reachable(pipeline, observed),
        verdict::schema_ready(pipeline, observed),
        match Intent::of(pipeline) {
            Intent::Suspend => Verdict::no(reason::SUSPENDED, "the pipeline is suspended"),
            Intent::LeaveAlone => Verdict::no(reason::UNMANAGED, "managementState is Unmanaged"),
            Intent::Run | Intent::Remove => verdict::scaling_active(&pipeline.spec, scaling),
        },
        match &observed.scaling.replica_conflict {
            Some(words) => Verdict::yes(reason::SCALING_CONFLICT, words),
            None => verdict::scaling_limited(&pipeline.spec, scaling, resized),
        },
        Progress::suspended(pipeline, observed),
        verdict::reconciliation_paused(Intent::of(pipeline)),
        volumes::resized(pipeline, observed),
        volumes::drained(pipeline, observed, coming),
    ]
}

/// What there is, whatever is planned.
fn counted(before: TracePipelineStatus, observed: &Observed) -> TracePipelineStatus {
    let workload = observed.workload.clone().unwrap_or_default();
    TracePipelineStatus {
        replicas: Some(workload.replicas),
        ready_replicas: Some(workload.ready),
        updated_replicas: Some(workload.updated),
        current_revision: workload.current_revision,
        update_revision: workload.update_revision,
        ..before
    }
}

/// What is planned; what gateways run changes with the StatefulSet alone.
fn planned(
    status: TracePipelineStatus,
    pipeline: &TracePipeline,
    (plan, observed): (&Plan, &Observed),
) -> TracePipelineStatus {
    let (names, kafka): (&Names, _) = (plan.names(), pipeline.spec.source.kafka.as_ref());
    // What could not be made has no group yet.
    let is_made = observed.workload.is_some() || observed.reconcile_failure.is_none();
    let starts = Intent::of(pipeline) == Intent::Run && plan.lets_gateways_change() && is_made;
    TracePipelineStatus {
        desired_replicas: Some(plan.replicas()),
        selector: Some(names.selector_text()),
        endpoints: plan.endpoints(),
        partitions: Some(plan.partitions()).filter(|_| pipeline.spec.source.kafka.is_some()),
        derived: Some(derived(plan)),
        topics: plan.topics().to_vec(),
        consumer_group: if starts {
            kafka.map(|kafka| gateway_config::consumer_group(names, kafka))
        } else {
            status.consumer_group
        },
        bootstrap_servers: if starts {
            kafka.map_or_else(Vec::new, |kafka| kafka.bootstrap_servers.clone())
        } else {
            status.bootstrap_servers
        },
        connections: if starts { connections::remembered(&pipeline.spec) } else { status.connections },
        operator_version: Some(plan.operator_version.clone()),
        image: if starts { Some(plan.image().to_owned()) } else { status.image },
        default_image: plan.image.default.clone(),
        operator_image: plan.image.operators.clone(),
        config_hash: if starts { Some(plan.config_hash()) } else { status.config_hash },
        ..status
    }
}

/// After a change that was taken back, gateways run what they ran before.
fn gone_back(status: TracePipelineStatus, observed: &Observed) -> TracePipelineStatus {
    let is_back = status.rollout.as_ref().is_some_and(|rollout| rollout.state == RolloutState::RolledBack);
    let proved = observed.workload.as_ref().and_then(|workload| workload.proved.clone());
    match proved.filter(|_| is_back) {
        Some(proved) => TracePipelineStatus {
            image: proved.image.or(status.image),
            config_hash: proved.config_hash.or(status.config_hash),
            ..status
        },
        None => status,
    }
}

/// What was seen of them, else what was said before of those that are there.
fn memory_resizes(before: &[MemoryResize], observed: &Observed) -> Vec<MemoryResize> {
    let gateways = observed.workload.as_ref().map_or(&[][..], |workload| &workload.gateways);
    observed.memory_resizes.clone().unwrap_or_else(|| resize::still(before, gateways))
}

/// What waits on the volumes. While it is not known, the number that was written last stays, except for 0: a gateway that has not read its
/// volume yet may hold the only copy of rows, and must not look empty.
fn queue(
    pipeline: &TracePipeline,
    before: Option<QueueStatus>,
    seen: Option<QueueStatus>,
) -> Option<QueueStatus> {
    let coarse = |seen: QueueStatus| QueueStatus {
        blocks: coarse::backlog(before.map(|written| written.blocks), seen.blocks),
        bytes: coarse::backlog(before.map(|written| written.bytes), seen.bytes),
    };
    match pipeline.spec.queue.mode {
        QueueMode::Spill => seen.map(coarse).or(before.filter(|written| waits(pipeline, *written))),
        QueueMode::Disabled => None,
    }
}

/// Whether something waits. Logs of `source.otlp` have no blocks; with Kafka, files without blocks stay for a while.
fn waits(pipeline: &TracePipeline, queue: QueueStatus) -> bool {
    if pipeline.spec.source.otlp.is_some() { queue.bytes > 0 } else { queue.blocks > 0 }
}
