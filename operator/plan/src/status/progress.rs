//! How far a pipeline is on its way to what its spec says: the three conditions that sum it up.
//!
//! `Ready`, `Reconciling` and `Stalled` follow kstatus: never two of them true, `Stalled` only when nothing will change
//! until a person changes something.

use crate::{
    drain::lifecycle,
    facts::Observed,
    ground::words::{form, plural},
    objects,
    observed::{ReconcileFailure, TopicSeen},
    pipeline::{Intent, repeated_endpoints::servers_of_two_shards},
    planned::{Plan, Planned, Waiting},
    status::{
        counts::{existing, share},
        derived::whole_mib,
        edge, inserts, messages,
        not_ready::{those_not, troubles, what_helps},
        otlp, readers, silent, unasked, unfetched, unheard,
        verdict::{self, Verdict},
        volumes,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::{Idle, RolloutState, ScalingMode, TracePipeline, status::reason};
use sluice_gateway_config::{ByteSize, Violations};

/// Message of `Stalled` while it is false.
pub(super) const NOT_STALLED: &str = "nothing waits for an edit of the spec";

/// Message of `Stalled` while gateways are not ready: what they say may ask for an edit.
const GATEWAYS_SAY: &str =
    "the operator waits for no edit of the spec; the message of Ready has what gateways need";

/// Pods in trouble that are named in a message; the others are counted.
pub(super) const PODS_NAMED_MAX: usize = 3;

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// As the spec says.
    Done { message: String },
    /// On its way, for the reason of `Reconciling`.
    Moving { reason: &'static str, message: String },
    /// On its way, but kept from it, for the reason of `Ready` and for that of `Reconciling`.
    Held { ready: &'static str, reconciling: &'static str, message: String },
    /// Suspended: without gateways, as the spec says.
    Resting { message: String },
    /// Without gateways, because the topics are idle.
    Idle { message: String },
    /// Unmanaged: the objects stay, whatever the spec says.
    LeftAlone { is_ready: bool, message: String },
    /// The change failed, for this reason of all three, and nothing happens until the spec is edited.
    Failed { reason: &'static str, message: String },
    /// Not possible as the spec or the cluster is, for the reason of `Ready` and `Stalled`.
    Refused { reason: &'static str, message: String },
}

impl Progress {
    pub(super) fn of(
        pipeline: &TracePipeline,
        observed: &Observed,
        outcome: Result<&Planned, &Violations>,
        now: &Time,
    ) -> Self {
        if let (Ok(_), Some(failure)) = (outcome, &observed.reconcile_failure) {
            return Self::of_failure(failure);
        }
        match outcome {
            Err(violations) => {
                let all: Vec<_> = violations.iter().map(ToString::to_string).collect();
                Self::Refused { reason: reason::SPEC_INVALID, message: all.join("; ") }
            }
            Ok(_) if Intent::of(pipeline) == Intent::Suspend => Self::of_rest(pipeline, observed),
            Ok(_) if Intent::of(pipeline) == Intent::LeaveAlone => Self::left_alone(pipeline, observed, now),
            Ok(Planned::Waiting(Waiting { reason, message })) => {
                let unasked = unasked::waiting(pipeline, observed);
                unasked
                    .filter(|_| *reason == reason::SOURCE_UNAVAILABLE)
                    .unwrap_or_else(|| Self::waiting(reason, message.clone()))
            }
            Ok(Planned::Ready(plan)) => Self::of_source(pipeline, plan, observed)
                .or_else(|| Self::of_schema(pipeline, plan, observed))
                .or_else(|| Self::of_leaving(plan, observed))
                .or_else(|| volumes::made_anew(plan, observed))
                .or_else(|| Self::of_refused_pods(plan, observed))
                .or_else(|| Self::of_rollout(pipeline, plan, observed, now))
                .or_else(|| volumes::out_of_reach(pipeline, observed))
                .or_else(|| volumes::replacing(pipeline, observed))
                .or_else(|| unfetched::held(pipeline, observed))
                .or_else(|| Self::of_workload(pipeline, plan, observed, now))
                .or_else(|| silent::unanswered(pipeline, observed))
                .or_else(|| readers::missing(pipeline, plan, observed))
                .or_else(|| volumes::growing(pipeline, plan, observed))
                .or_else(|| otlp::standing(pipeline, observed))
                .or_else(|| Self::of_inserts(pipeline, observed))
                .or_else(|| Self::of_messages(pipeline, observed, now))
                .or_else(|| edge::not_ready(pipeline, plan, observed))
                .unwrap_or_else(|| Self::done(pipeline, plan, observed))
                .with_silent(pipeline, observed)
                .with_unread(pipeline, observed),
        }
    }

    /// The same, with ready gateways that do not answer, which others that are not ready would hide. While gateways leave, the drain names them.
    fn with_silent(self, pipeline: &TracePipeline, observed: &Observed) -> Self {
        let words = silent::words(pipeline, observed).filter(|_| observed.scaling.drain.is_none());
        let Some(words) = words else { return self };
        let with = |message: String| {
            if silent::is_said(&message) { message } else { format!("{message}; {words}") }
        };
        match self {
            Self::Moving { reason, message } => Self::Moving { reason, message: with(message) },
            Self::Held {
                ready: ready @ (reason::REPLICAS_NOT_READY | reason::PODS_REFUSED),
                reconciling,
                message,
            } => Self::Held { ready, reconciling, message: with(message) },
            Self::Failed { reason, message } => Self::Failed { reason, message: with(message) },
            other => other,
        }
    }

    /// The same, with the partitions that have no reader meanwhile: a pipeline on its way may stay there for long.
    fn with_unread(self, pipeline: &TracePipeline, observed: &Observed) -> Self {
        let Some(words) = readers::meanwhile(pipeline, observed) else { return self };
        // A message that is kept from before may end with it.
        let with = |message: String| {
            if message.contains(readers::NO_READER) { message } else { format!("{message}; {words}") }
        };
        match self {
            Self::Moving { reason, message } => Self::Moving { reason, message: with(message) },
            Self::Held { ready, reconciling, message } if ready != reason::PARTITIONS_UNREAD => {
                Self::Held { ready, reconciling, message: with(message) }
            }
            Self::Failed { reason, message } => Self::Failed { reason, message: with(message) },
            other => other,
        }
    }

    pub(super) fn ready(&self) -> Verdict {
        match self {
            Self::Done { message } | Self::LeftAlone { is_ready: true, message } => {
                Verdict::yes(reason::RUNNING, message)
            }
            Self::Moving { message, .. } => Verdict::no(reason::PROGRESSING, message),
            Self::Held { ready, message, .. } => Verdict::no(ready, message),
            // The pipeline is as the spec says, like a Deployment with 0 replicas, so tools that wait for `Ready` continue. The reason
            // says that nothing is read.
            Self::Resting { message } => Verdict::yes(reason::SUSPENDED, message),
            Self::Idle { message } => Verdict::yes(reason::IDLE, message),
            Self::LeftAlone { is_ready: false, message } => Verdict::no(reason::REPLICAS_NOT_READY, message),
            Self::Failed { reason, message } | Self::Refused { reason, message } => {
                Verdict::no(reason, message)
            }
        }
    }

    /// Whether the pipeline rests, whatever is wrong with it besides; on its way there it does not yet.
    pub(super) fn suspended(pipeline: &TracePipeline, observed: &Observed) -> Verdict {
        if Intent::of(pipeline) != Intent::Suspend {
            return Verdict::no(reason::OK, "the pipeline is not suspended");
        }
        match Self::of_rest(pipeline, observed) {
            Self::Resting { message } => Verdict::yes(reason::SUSPENDED, message),
            on_its_way => Verdict::no(reason::DRAINING, on_its_way.words()),
        }
    }

    /// What kept the operator from doing as planned: until a person does something, or until it passes.
    pub(super) fn of_failure(ReconcileFailure { reason, message, stays }: &ReconcileFailure) -> Self {
        if *stays {
            return Self::Refused { reason, message: message.clone() };
        }
        // A deletion is on its way in the words of any other one.
        let reconciling = if *reason == reason::DELETING { reason::DRAINING } else { reason };
        Self::Held { ready: reason, reconciling, message: message.clone() }
    }

    fn words(&self) -> &str {
        match self {
            Self::Done { message }
            | Self::Moving { message, .. }
            | Self::Held { message, .. }
            | Self::Resting { message }
            | Self::Idle { message }
            | Self::LeftAlone { message, .. }
            | Self::Failed { message, .. }
            | Self::Refused { message, .. } => message,
        }
    }

    pub(super) fn reconciling(&self) -> Verdict {
        match self {
            Self::Done { .. } | Self::Idle { .. } => Verdict::no(reason::OK, "nothing is on its way"),
            Self::Moving { reason, message } | Self::Held { reconciling: reason, message, .. } => {
                Verdict::yes(reason, message)
            }
            Self::Resting { .. } => Verdict::no(reason::SUSPENDED, "the pipeline is suspended"),
            Self::LeftAlone { .. } => Verdict::no(reason::UNMANAGED, "managementState is Unmanaged"),
            Self::Failed { reason, .. } => {
                Verdict::no(reason, "edit the spec, or the Secrets that it names, to try again")
            }
            Self::Refused { reason, .. } => Verdict::no(reason, "what was applied before keeps running"),
        }
    }

    pub(super) fn stalled(&self) -> Verdict {
        match self {
            Self::Failed { reason, message } | Self::Refused { reason, message } => {
                Verdict::yes(reason, message)
            }
            Self::Held { ready: reason::REPLICAS_NOT_READY, .. } => Verdict::no(reason::OK, GATEWAYS_SAY),
            Self::Done { .. }
            | Self::Moving { .. }
            | Self::Held { .. }
            | Self::Resting { .. }
            | Self::Idle { .. }
            | Self::LeftAlone { .. } => Verdict::no(reason::OK, NOT_STALLED),
        }
    }

    /// As the spec says: gateways run, or the topics are idle.
    fn done(pipeline: &TracePipeline, plan: &Plan, observed: &Observed) -> Self {
        let scaling = &pipeline.spec.scaling;
        match scaling
            .idle
            .as_ref()
            .filter(|_| scaling.mode == ScalingMode::Auto && wanted(plan, observed) == 0)
        {
            Some(Idle { refresh_every, .. }) => {
                let message = format!(
                    "the topics are idle: no gateway runs. The operator starts gateways when messages arrive, and one every {refresh_every} \
                     so that Kafka keeps the committed offsets"
                );
                Self::Idle { message }
            }
            None => Self::Done { message: running(pipeline, plan, observed) },
        }
    }

    pub(super) fn waiting(ready: &'static str, message: String) -> Self {
        Self::Held { ready, reconciling: reason::WAITING, message }
    }

    /// Gateways that insert and commit what they hold before the pipeline rests; or it does.
    fn of_rest(pipeline: &TracePipeline, observed: &Observed) -> Self {
        let there = lifecycle::there(observed).map_or(0, |seen| seen.wanted.max(seen.replicas));
        let drain = observed.scaling.drain.as_ref();
        if there > 0 || drain.is_some() {
            let state = drain.map_or("the drain is about to begin", |drain| &drain.reason);
            let limit = &pipeline.spec.scaling.drain.timeout;
            let message = format!(
                "{} {}, for at most {limit}, before the operator removes {}: {state}",
                plural(there, "gateway"),
                form(there, "drains", "drain"),
                form(there, "it", "them")
            );
            return Self::Held { ready: reason::SUSPENDED, reconciling: reason::DRAINING, message };
        }
        if pipeline.spec.source.otlp.is_some() {
            let message = "the pipeline is suspended: no gateway runs, and no request is accepted. The queue volumes stay".to_owned();
            return Self::Resting { message };
        }
        let message = "the pipeline is suspended: no gateway runs and nothing is read. Kafka deletes the group's offsets after the \
                       brokers' offsets.retention.minutes (default 7 days), counted from lastTransitionTime of Suspended; after that, a \
                       resumed pipeline begins at initialOffset"
            .to_owned();
        Self::Resting { message }
    }

    /// What runs is counted, and compared with nothing.
    fn left_alone(pipeline: &TracePipeline, observed: &Observed, now: &Time) -> Self {
        let seen = observed.workload.clone().unwrap_or_default();
        if let Some(message) = unheard::said_before(pipeline, observed, reason::REPLICAS_NOT_READY) {
            return Self::LeftAlone { is_ready: false, message };
        }
        let counts = share(seen.ready, seen.wanted, ("is ready", "are ready"));
        let trouble =
            troubles(pipeline, observed, now).map(|troubles| format!(": {troubles}")).unwrap_or_default();
        let is_ready = observed.workload.is_some() && seen.ready >= seen.wanted;
        let message =
            format!("{counts}{trouble}; managementState is Unmanaged, so the operator changes nothing");
        Self::LeftAlone { is_ready, message }
    }

    /// Kafka is away and the plan is made from what the status remembers.
    fn of_source(pipeline: &TracePipeline, plan: &Plan, observed: &Observed) -> Option<Self> {
        plan.topics().iter().find_map(|topic| match observed.partitions.get(&topic.name) {
            Some(TopicSeen::Unavailable { failure, .. })
                if unasked::found_before(pipeline, *failure).is_some() =>
            {
                unasked::waiting(pipeline, observed)
            }
            Some(TopicSeen::Unavailable { failure, message }) => {
                let message = verdict::of_source(pipeline, observed, *failure, message);
                let held = "; until Kafka answers, gateways keep their present brokers, and a pod that restarts reads the current Secrets";
                let held = if plan.holds_source() { held } else { "" };
                Some(Self::waiting(reason::SOURCE_UNAVAILABLE, format!("{message}{held}")))
            }
            _ => None,
        })
    }

    fn of_schema(pipeline: &TracePipeline, plan: &Plan, observed: &Observed) -> Option<Self> {
        match (plan.schema_step(), observed.schema.failure()) {
            (step, _) if step.lets_gateways_start() => None,
            // ClickHouse has nothing to do with it.
            (_, Some(failure)) if failure.reason == reason::JOB_NOT_STARTED => {
                let kept =
                    "; until it has ended well, gateways keep the image and the config that they run with";
                let kept = if observed.workload.is_some() { kept } else { "" };
                Some(Self::waiting(reason::JOB_NOT_STARTED, format!("{}{kept}", failure.message)))
            }
            // Also while it is run again: what it says is the same until it has ended.
            (_, Some(failure)) => Some(Self::waiting(
                reason::SINK_UNAVAILABLE,
                format!("{}: {}", failure.reason, verdict::of_schema(pipeline, observed, failure)),
            )),
            (_, None) => Some(moving(reason::SPEC_CHANGED, "the schema Job is running")),
        }
    }

    /// Gateways run, and their inserts fail. `Ready` is false, because a user who waits for it waits for rows in the table.
    fn of_inserts(pipeline: &TracePipeline, observed: &Observed) -> Option<Self> {
        let failing = inserts::failing(pipeline, observed)?;
        Some(Self::waiting(reason::SINK_UNAVAILABLE, failing.words()))
    }

    /// Nothing that gateways read can be made rows of, or no row is taken.
    fn of_messages(pipeline: &TracePipeline, observed: &Observed, now: &Time) -> Option<Self> {
        let unread = messages::unreadable(pipeline, observed, now).filter(|found| found.refusal().is_some());
        let found = unread.or_else(|| messages::rows_refused(pipeline, observed))?;
        found.refusal().map(|reason| Self::waiting(reason, found.words()))
    }

    /// Gateways that are too many and not empty yet.
    fn of_leaving(plan: &Plan, observed: &Observed) -> Option<Self> {
        let drain = observed.scaling.drain.as_ref()?;
        let there = observed.workload.as_ref()?.wanted;
        (there > plan.replicas()).then(|| {
            moving(
                reason::SCALING,
                format!(
                    "scaling in from {there} to {}: {}",
                    plural(plan.replicas(), "gateway"),
                    drain.reason
                ),
            )
        })
    }

    /// Pods that the StatefulSet asks for and does not get.
    fn of_refused_pods(plan: &Plan, observed: &Observed) -> Option<Self> {
        let (why, seen) = (observed.pods_refused.as_ref()?, observed.workload.as_ref()?);
        let exist = share(seen.replicas, wanted(plan, observed), ("exists", "exist"));
        let message = format!("{exist}; Kubernetes does not create the others: {why}");
        Some(Self::Held { ready: reason::PODS_REFUSED, reconciling: reason::SCALING, message })
    }

    /// A change that failed, or that one gateway tries before the others get it.
    fn of_rollout(pipeline: &TracePipeline, plan: &Plan, observed: &Observed, now: &Time) -> Option<Self> {
        let rollout = observed.rollout.as_ref().filter(|_| observed.workload.is_some())?;
        // What is planned now waits for gateways that leave.
        if observed.scaling.drain.is_some() && rollout.revision != objects::revision(plan) {
            return None;
        }
        let troubles = troubles(pipeline, observed, now);
        let before = |reason| unheard::said_before(pipeline, observed, reason);
        let with_troubles = || match &troubles {
            Some(troubles) => format!("{}; {troubles}", rollout.message),
            None => rollout.message.clone(),
        };
        match rollout.state {
            RolloutState::RolledBack => {
                let message = before(reason::ROLLED_BACK).unwrap_or_else(with_troubles);
                Some(Self::Failed { reason: reason::ROLLED_BACK, message })
            }
            RolloutState::Failed => {
                let message = rollout.message.clone() + &what_helps(pipeline, observed, now);
                Some(Self::Failed { reason: reason::ROLLOUT_FAILED, message })
            }
            RolloutState::Canary => {
                let named = before(reason::REPLICAS_NOT_READY).or(troubles.is_some().then(with_troubles));
                let on_its_way = || moving(reason::ROLLING_OUT, rollout.message.as_str());
                Some(named.map_or_else(on_its_way, not_ready))
            }
            RolloutState::Pending | RolloutState::Rolling | RolloutState::Complete => None,
        }
    }

    /// `None` when gateways run as planned.
    fn of_workload(pipeline: &TracePipeline, plan: &Plan, observed: &Observed, now: &Time) -> Option<Self> {
        let wanted = wanted(plan, observed);
        let Some(seen) = observed.workload.as_ref() else {
            return Some(moving(reason::SPEC_CHANGED, "gateways are about to be started"));
        };
        if seen.plan_hash.as_deref() != Some(objects::plan_hash(plan).as_str()) {
            return Some(moving(reason::SPEC_CHANGED, "gateways are about to be changed"));
        }
        if !seen.is_observed {
            return Some(moving(reason::ROLLING_OUT, "gateways are about to be replaced"));
        }
        let before = unheard::said_before(pipeline, observed, reason::REPLICAS_NOT_READY);
        if let Some(message) = before.or_else(|| troubles(pipeline, observed, now)) {
            return Some(not_ready(message));
        }
        if seen.wanted != wanted || seen.replicas != wanted {
            return Some(moving(reason::SCALING, existing(seen.replicas, wanted)));
        }
        // Without another revision none is replaced: pods that are deleted, as with their namespace, come back as they were.
        if seen.updated < wanted && seen.current_revision != seen.update_revision {
            let replaced = share(seen.updated, wanted, ("is replaced", "are replaced"));
            return Some(moving(reason::ROLLING_OUT, replaced));
        }
        (seen.ready.min(seen.updated) < wanted).then(|| {
            let ready = share(seen.ready, wanted, ("is ready", "are ready"));
            moving(reason::ROLLING_OUT, format!("{ready}{}", those_not(&seen.pods)))
        })
    }
}

pub(super) fn moving(reason: &'static str, message: impl Into<String>) -> Progress {
    Progress::Moving { reason, message: message.into() }
}

/// Gateways that are not ready, with what keeps them from it.
fn not_ready(message: String) -> Progress {
    Progress::Held { ready: reason::REPLICAS_NOT_READY, reconciling: reason::ROLLING_OUT, message }
}

/// Gateways that should run: the planned number, or the number that another client has set and the operator keeps. `ScalingLimited`
/// reports that. If `Ready` demanded the planned number then, it would never be true.
fn wanted(plan: &Plan, observed: &Observed) -> u32 {
    let theirs = observed.workload.as_ref().filter(|_| observed.scaling.replica_conflict.is_some());
    theirs.map_or_else(|| plan.replicas(), |seen| seen.wanted)
}

fn running(pipeline: &TracePipeline, plan: &Plan, observed: &Observed) -> String {
    let (replicas, partitions) = (wanted(plan, observed), plan.partitions());
    let limited = match pipeline.spec.replicas {
        _ if observed.scaling.replica_conflict.is_some() => {
            format!(
                "; the operator plans {}, but another client has set the number (see ScalingLimited)",
                plan.replicas()
            )
        }
        Some(0) if pipeline.spec.source.otlp.is_some() => "; scaled to 0: no request is accepted".to_owned(),
        Some(0) => "; scaled to 0: messages wait in Kafka".to_owned(),
        Some(asked) if asked > replicas => {
            format!("; replicas asks for {asked}, but only one gateway can read a partition")
        }
        _ => String::new(),
    };
    let runs = match &pipeline.spec.source.otlp {
        Some(source) => otlp::running(replicas, pipeline, source),
        None => format!(
            "{} {} {}",
            plural(replicas, "gateway"),
            form(replicas, "reads", "read"),
            plural(partitions, "partition")
        ),
    };
    let shared = named(servers_of_two_shards(&pipeline.spec)).map(|words| format!("; {words}"));
    let more = [lowered(plan, observed), shared].into_iter().flatten().collect::<String>();
    format!("{runs}{limited}{more}")
}

/// Gateways whose pods have a lower memory limit than planned. They run, with less room for blocks.
fn lowered(plan: &Plan, observed: &Observed) -> Option<String> {
    let planned = plan.config().config().memory.limit;
    let gateways = observed.workload.iter().flat_map(|seen| &seen.gateways);
    let lowered = gateways.filter_map(|gateway| {
        let limit = gateway.memory.limit_bytes.filter(|limit| *limit < planned.get())?;
        Some(format!("{} has {}", gateway.name, whole_mib(ByteSize::bytes(limit))))
    });
    let pods = named(lowered.collect())?;
    Some(format!(
        "; a webhook, such as a VerticalPodAutoscaler, has lowered memory limits below {}, so that blocks have less room: {pods}",
        whole_mib(planned)
    ))
}

/// The first of them, and how many more there are; `None` where there are none.
pub(super) fn named(all: Vec<String>) -> Option<String> {
    let others = all.len().saturating_sub(PODS_NAMED_MAX);
    let named = all.into_iter().take(PODS_NAMED_MAX).collect::<Vec<_>>().join("; ");
    match others {
        _ if named.is_empty() => None,
        0 => Some(named),
        others => Some(format!("{named}; and {others} more")),
    }
}
