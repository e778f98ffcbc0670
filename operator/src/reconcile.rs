//! One look at one pipeline: observe, decide, plan, build, apply, report. And what happens when it fails.
//!
//! ```text
//!               reads      pure      pure    pure      asks          writes                writes
//!  pipeline -> observe -> decide ->  plan -> build ->  drain ->  apply (and prune) ->  report
//!                        (scaling)    |                                                  ^
//!                                     `-- Violations, Waiting ---------------------------'
//! ```
//!
//! A spec that is refused is no failure: it is reported, and what was applied before goes on.

use crate::{
    absence::Absences,
    api_error::ErrorClass,
    apply,
    cache::{AllPipelines, Cache, Pipeline},
    claim_guard,
    events::Events,
    finalizer,
    gateways::{commands::Commands, looks::Looks},
    hindrance,
    memory::{Key, Memory},
    metrics::{Metrics, ReconcileResult},
    next::{Next, WAITING_SECONDS, next},
    observe::{self, Facts},
    offsets::{self, Judgement},
    outcome, pod_monitor, prune,
    readers::Readers,
    release, removal, replacement, report, resize,
    rollout::{self, Rollouts},
    sample::Sampler,
    scaling::{self, Scaling},
    secrets::KnownSecrets,
    server_time::ServerTime,
    told::Telling,
    unasked, volumes,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    Client, ResourceExt,
    core::DynamicObject,
    runtime::{controller::Action, reflector::ObjectRef},
};
use sluice_crds::{RolloutState, TracePipeline, status::condition};
use sluice_plan::{
    Applied, Defaults, Intent, Objects, Plan, Planned, build, contested,
    drain::lifecycle::{has_finalizer, needs_finalizer, there},
    plan, status, told,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::timeout;
use tracing::info;

/// Longest reconcile in seconds: the longest wait for Kafka, and a dozen requests to a busy API server.
pub(crate) const RECONCILE_SECONDS_MAX: u64 = 60;
/// Longest wait in seconds for the watches to list what there is; then others get their turn.
const LISTED_SECONDS_MAX: u64 = 5;

/// What all scopes share.
pub struct Shared {
    /// The API server.
    pub client: Client,
    /// Publishes events.
    pub events: Events,
    /// The operator's metrics.
    pub metrics: Arc<Metrics>,
    /// Asks Kafka.
    pub sampler: Sampler,
    /// What the operator brings to every plan.
    pub defaults: Defaults,
    /// What is remembered of each pipeline.
    pub memory: Memory,
    /// Decides how many gateways there are.
    pub scaling: Scaling,
    /// The Secrets that pipelines name.
    pub secrets: KnownSecrets,
    /// Asks gateways how they are, beside the reconciles.
    pub looks: Looks,
    /// Tells gateways to leave and to stay, beside the reconciles.
    pub commands: Commands,
    /// What gateways say for people.
    pub telling: Telling,
    /// Why gateways are not ready.
    pub absences: Absences,
    /// Which partitions have no reader.
    pub readers: Readers,
    /// The pipelines of all scopes.
    pub pipelines: Arc<AllPipelines>,
    /// The API server's clock.
    pub server_time: ServerTime,
    /// Carries rollouts on.
    pub rollouts: Rollouts,
}

/// What a reconcile works with.
pub struct World {
    /// What all scopes share.
    pub shared: Arc<Shared>,
    /// Copies of the objects of this scope.
    pub cache: Cache,
}

impl World {
    /// Something happened that concerns a pipeline: what it waits for may be there.
    pub fn concerned(&self, pipeline: &ObjectRef<Pipeline>) {
        let namespace = pipeline.namespace.clone().unwrap_or_default();
        self.shared.memory.concerned(&Key { namespace, name: pipeline.name.clone() });
    }

    /// A pipeline is gone. Its objects go after it, and each of them brings us here again.
    pub fn forget(&self, gone: &ObjectRef<DynamicObject>) {
        let key = Key { namespace: gone.namespace.clone().unwrap_or_default(), name: gone.name.clone() };
        if !self.shared.memory.forget(&key) {
            return;
        }
        self.shared.scaling.forget(&key);
        self.shared.looks.forget(&key);
        self.shared.commands.forget(&key);
        self.shared.telling.forget(&key);
        self.shared.absences.forget(&key);
        self.shared.readers.forget(&key);
        self.shared.secrets.forget(&key);
        self.shared.rollouts.forget(&key);
        self.shared.metrics.forget(&key.namespace, &key.name);
        self.shared.metrics.set_pipelines(self.shared.memory.len());
        info!(namespace = %key.namespace, pipeline = %key.name, "gone");
    }
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// While reading.
    #[error(transparent)]
    Observe(#[from] observe::Error),
    /// While writing objects.
    #[error(transparent)]
    Apply(#[from] apply::Error),
    /// While deleting objects.
    #[error(transparent)]
    Prune(#[from] prune::Error),
    /// While holding the pipeline, or letting it go.
    #[error(transparent)]
    Finalizer(#[from] finalizer::Error),
    /// While leaving objects to themselves.
    #[error(transparent)]
    Removal(#[from] removal::Error),
    /// While seeing to the queue volumes.
    #[error(transparent)]
    Volumes(#[from] volumes::Error),
    /// While having queue volumes outlive their StatefulSet.
    #[error(transparent)]
    Release(#[from] release::Error),
    /// While replacing queue volumes.
    #[error(transparent)]
    Replacement(#[from] replacement::Error),
    /// While replacing pods.
    #[error(transparent)]
    Rollout(#[from] rollout::Error),
    /// While giving gateways more memory.
    #[error(transparent)]
    Resize(#[from] resize::Error),
    /// While having their metrics read.
    #[error(transparent)]
    PodMonitor(#[from] pod_monitor::Error),
    /// While writing the status.
    #[error(transparent)]
    Report(#[from] report::Error),
    /// Because of the time it took.
    #[error("the reconcile did not end within {RECONCILE_SECONDS_MAX} s")]
    Timeout,
    /// Because of a defect of ours.
    #[error("a defect of the operator, please report it: {0}")]
    Panicked(String),
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Observe(error) => error.class(),
            Self::Apply(error) => error.class(),
            Self::Prune(error) => error.class(),
            Self::Finalizer(error) => error.class(),
            Self::Removal(error) => error.class(),
            Self::Volumes(error) => error.class(),
            Self::Release(error) => error.class(),
            Self::Replacement(error) => error.class(),
            Self::Rollout(error) => error.class(),
            Self::Resize(error) => error.class(),
            Self::PodMonitor(error) => error.class(),
            Self::Report(error) => error.class(),
            Self::Timeout => ErrorClass::Timeout,
            Self::Panicked(_) => ErrorClass::Panicked,
        }
    }

    /// Who else sets the number of gateways, in words, when that is what failed.
    pub(crate) fn contested(&self) -> Option<&str> {
        match self {
            Self::Apply(apply::Error::Contested { words, .. }) => Some(words),
            _ => None,
        }
    }
}

/// A failed reconcile, counted and logged; it is tried again.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// What failed.
    #[source]
    pub error: Error,
    /// When to try again.
    pub retry_after: Duration,
}

/// Looks at one pipeline, and says when to look again.
pub async fn reconcile(pipeline: Arc<Pipeline>, world: Arc<World>) -> Result<Action, Failed> {
    let begun = Instant::now();
    let key = Key { namespace: pipeline.namespace().unwrap_or_default(), name: pipeline.name_any() };
    if !is_listed(&world.cache).await {
        world.shared.metrics.reconciled(ReconcileResult::Unlisted, begun.elapsed());
        return Ok(Action::requeue(Duration::from_secs(WAITING_SECONDS)));
    }
    let (result, action) = outcome::of(&pipeline, &key, &world).await;
    world.shared.metrics.reconciled(result, begun.elapsed());
    world.shared.metrics.set_pipelines(world.shared.memory.len());
    action
}

/// When to look again after a failure.
pub fn error_policy(_: Arc<Pipeline>, failed: &Failed, _: Arc<World>) -> Action {
    Action::requeue(failed.retry_after)
}

pub(crate) async fn story(pipeline: &TracePipeline, key: &Key, world: &World) -> Result<Next, Error> {
    // What is held is seen to first, whatever the pipeline has come to want; it keeps nothing else waiting.
    let finished = Box::pin(replacement::finish(pipeline, world)).await;
    if Intent::of(pipeline) == Intent::Remove {
        let next = Box::pin(removal::remove(pipeline, key, world)).await?;
        finished?;
        return Ok(next);
    }
    let mut facts = observe::observe(pipeline, world).await?;
    facts.observed.scaling = world.shared.scaling.look(pipeline, key, &facts);
    facts.observed.unread = world.shared.readers.count(key, &facts);
    let planned = plan(pipeline, &facts.observed, &world.shared.defaults);
    let ready = planned.as_ref().ok().and_then(Planned::ready);
    // Their number changes with the StatefulSet, so that no gateway leaves before the StatefulSet may be applied.
    let stays = ready.filter(|plan| !plan.holds_source());
    let (replicas, replaced) = Box::pin(leave(pipeline, stays, &mut facts, world)).await;
    let carried_out = Box::pin(carry_out(pipeline, (ready, replicas), &mut facts, world)).await;
    let carried_out = match carried_out {
        // The status goes on saying that it was left alone: that is how it is known that what others did meanwhile is taken over.
        Err(error) if is_taking_over(pipeline) => return Err(error),
        other => other,
    };
    if let Some(words) = carried_out.as_ref().err().and_then(Error::contested) {
        facts.observed.scaling.contested = Some(words.to_owned());
    }
    let ended = carried_out.and(finished.map_err(Error::from)).and(replaced.map_err(Error::from));
    facts.observed.hindrance =
        ended.as_ref().err().and_then(|error| hindrance::of(error, pipeline.status.as_ref(), key, world));
    let now = Time(Timestamp::now());
    let said = status(pipeline, &facts.observed, planned.as_ref(), &now);
    if let Some(messages) = facts.lag_messages {
        world.shared.metrics.set_lag(&key.namespace, &key.name, messages);
    }
    let before = pipeline.status.clone().unwrap_or_default();
    let of = (key.namespace.as_str(), key.name.as_str());
    world.shared.metrics.set_scaling(of, &before, &told(&said, &facts.observed.scaling));
    world.shared.metrics.set_conditions(of, &said.conditions);
    tell_of_offsets(pipeline, key, &facts, world).await;
    // Also when something could not be applied: the facts are worth saying all the more.
    Box::pin(report::report(pipeline, key, said, world)).await?;
    Box::pin(unasked::take_back(pipeline, replicas, &facts, world)).await;
    ended?;
    let memory = &world.shared.memory;
    let wait_seconds = || memory.wait_seconds(key, pipeline.metadata.generation);
    Ok(next(pipeline, &planned, &facts.observed, wait_seconds))
}

/// A person reads that Kafka has forgotten where the group of a pipeline that comes back was. While Kafka is away it is not known, and judged
/// later; an operator that starts in between does not.
async fn tell_of_offsets(pipeline: &TracePipeline, key: &Key, facts: &Facts, world: &World) {
    let memory = &world.shared.memory;
    let judgement = match Intent::of(pipeline) {
        Intent::Run if offsets::is_back(pipeline) || memory.is_offsets_due(key) => {
            offsets::judge(pipeline, facts.kafka.as_ref())
        }
        Intent::Run | Intent::Suspend | Intent::LeaveAlone | Intent::Remove => Judgement::Well,
    };
    memory.set_offsets_due(key, judgement == Judgement::NotKnown);
    if let Judgement::Expired(note) = judgement {
        report::tell(pipeline, "OffsetsExpired", &note, &world.shared).await;
    }
}

/// The number of gateways to have now: the planned one, once those that are too many may be taken away. A gateway that gets a new
/// volume goes first, to its end or back: no two things are asked of gateways at the same time.
async fn leave(
    pipeline: &TracePipeline,
    plan: Option<&Plan>,
    facts: &mut Facts,
    world: &World,
) -> (u32, Result<(), replacement::Error>) {
    let there = match Intent::of(pipeline) {
        // Also those that are left without their StatefulSet, which only a plan would make again.
        Intent::Suspend => there(&facts.observed),
        Intent::Run | Intent::LeaveAlone | Intent::Remove => facts.observed.workload.clone(),
    };
    let Some(workload) = there else {
        facts.observed.scaling.drain = None;
        // Gateways without a StatefulSet are all taken over. Those beyond the wanted number are drained afterwards.
        let left_alone = facts.observed.volumes.left_alone.unwrap_or(0);
        return (plan.map_or(0, Plan::replicas).max(left_alone), Ok(()));
    };
    let current = workload.wanted;
    let is_remembered = pipeline.status.as_ref().is_some_and(|status| status.suspension.is_some());
    let (wanted, runs) = match Intent::of(pipeline) {
        // Their number is written to the status before the first drain command.
        Intent::Suspend if is_remembered => (0, false),
        Intent::Suspend | Intent::LeaveAlone | Intent::Remove => return (current, Ok(())),
        // Without a plan no gateway leaves, and gateways that drain are resumed.
        Intent::Run => (plan.map_or(current, Plan::replicas), plan.is_some()),
    };
    let theirs = Some(&workload.scaled_by).filter(|others| !others.is_empty() && !is_taking_over(pipeline));
    let mut replaced = Ok(());
    if scaling::written(pipeline).is_none() {
        // A gateway that drains is not ready, and would be taken for one that fails.
        let rollout = pipeline.status.as_ref().and_then(|status| status.rollout.as_ref());
        let is_rolling = rollout
            .is_some_and(|rollout| matches!(rollout.state, RolloutState::Canary | RolloutState::Rolling));
        let may_go_on = runs && wanted == current && !is_rolling;
        let next;
        (next, replaced) = replacement::carry_on(pipeline, (plan, may_go_on), facts, world).await;
        facts.observed.volumes.replacing = next;
        if facts.observed.volumes.replacing.is_some() {
            return (if theirs.is_some() { current } else { current.max(wanted) }, replaced);
        }
    }
    // Another client's number is kept: no gateway is drained for it, and gateways that drain are resumed.
    let wanted = match theirs.filter(|_| runs && wanted != current) {
        Some(others) => {
            facts.observed.scaling.contested =
                Some(contested(others, &plan.map_or_else(String::new, |plan| plan.names().gateway())));
            current
        }
        None => wanted,
    };
    let (step, _) =
        world.shared.scaling.drain_step(pipeline, (&workload, wanted), facts, &world.shared.commands).await;
    facts.observed.scaling.drain = step.next;
    (step.replicas, replaced)
}

async fn carry_out(
    pipeline: &TracePipeline,
    (plan, replicas): (Option<&Plan>, u32),
    facts: &mut Facts,
    world: &World,
) -> Result<(), Error> {
    let intent = Intent::of(pipeline);
    if matches!(intent, Intent::LeaveAlone | Intent::Remove) {
        return Ok(());
    }
    // Before anybody is taken away, and also without a plan.
    apply::retain(pipeline, &facts.observed.volumes, world).await?;
    let released = Box::pin(release::unused(pipeline, &facts.observed.volumes, world)).await;
    Box::pin(carry_out_spec(pipeline, (plan, replicas), facts, world)).await?;
    // Nothing else waits for either.
    Box::pin(claim_guard::guard(pipeline, world)).await;
    Ok(released?)
}

async fn carry_out_spec(
    pipeline: &TracePipeline,
    (plan, replicas): (Option<&Plan>, u32),
    facts: &mut Facts,
    world: &World,
) -> Result<(), Error> {
    // Before anything is made, and where something is there also without a plan or at rest: it is not to go without a word.
    let is_made = plan.is_some() && Intent::of(pipeline) == Intent::Run;
    if is_made || facts.observed.workload.is_some() || !facts.observed.volumes.claims.is_empty() {
        match (needs_finalizer(pipeline), has_finalizer(pipeline)) {
            (true, false) => finalizer::hold(pipeline, world).await?,
            (false, true) => finalizer::let_go(pipeline, world).await?,
            (true, true) | (false, false) => {}
        }
    }
    let plan = match (Intent::of(pipeline), plan) {
        (Intent::LeaveAlone | Intent::Remove, _) => return Ok(()),
        // Also without a plan: whatever is missing, a pipeline can rest.
        (Intent::Suspend, _) => {
            apply::scale(pipeline, replicas, world).await?;
            if replicas == 0 {
                prune::end_left_alone(facts, world).await?;
            }
            return Ok(());
        }
        (Intent::Run, plan) => plan,
    };
    let current = facts.observed.workload.as_ref().map_or(replicas, |workload| workload.wanted);
    if is_taking_over(pipeline) {
        // Additional gateways come with the step of the rollout below.
        apply::scale(pipeline, replicas.min(current), world).await?;
    }
    let Some(plan) = plan else { return Ok(()) };
    facts.observed.volumes.refusal = Box::pin(volumes::grow(plan, world)).await?;
    // What cannot be done for volumes keeps nothing else waiting but gateways that would need one of them.
    let tending = volumes::tend(pipeline, plan, (current, replicas), &facts.observed.volumes, world);
    let tended = Box::pin(tending).await;
    let discarded = Box::pin(replacement::discard(plan, pipeline, &facts.observed, world)).await;
    let replicas = tended.as_ref().map_or(replicas.min(current), |most| *most);
    let applied = Box::pin(roll(pipeline, (plan, replicas), facts, world)).await?;
    // It would come back with what is held from it.
    if !plan.holds_source() {
        Box::pin(volumes::make_anew(plan, facts.stateful_set.as_deref(), world)).await?;
    }
    prune::prune(pipeline, &applied, facts.observed.workload.as_ref(), world).await?;
    facts.observed.volumes.not_replaced = discarded?.or(facts.observed.volumes.not_replaced.take());
    tended?;
    facts.observed.memory_resizes = Some(Box::pin(resize::look_after(pipeline, plan, facts, world)).await?);
    Ok(Box::pin(pod_monitor::tend(pipeline, plan, world)).await?)
}

/// Applies the objects with the workload as the next step of its rollout wants it, and deletes pods that are to come back with it.
async fn roll(
    pipeline: &TracePipeline,
    (plan, replicas): (&Plan, u32),
    facts: &mut Facts,
    world: &World,
) -> Result<Objects<Applied>, Error> {
    let rollouts = &world.shared.rollouts;
    let step = rollouts.step(pipeline, plan, replicas, facts);
    let desired = build(plan);
    let (desired, replicas) = match &step {
        Some(step) => (desired.rolled(step, facts.stateful_set.as_deref()), step.replicas),
        None => (desired, replicas),
    };
    // Ten objects are kept over ten waits: 40 KB that belong on the heap.
    let applied = Box::pin(apply::apply(pipeline, desired, replicas, world)).await?;
    // A step that could not be applied was not taken, and the status does not tell of it.
    facts.observed.rollout = step.map(|step| step.next);
    if let Some(next) = &facts.observed.rollout {
        Box::pin(rollouts.replace(pipeline, next, facts, world)).await?;
    }
    Ok(applied)
}

/// Whether the pipeline was left alone until now.
pub fn is_taking_over(pipeline: &TracePipeline) -> bool {
    let conditions = pipeline.status.iter().flat_map(|status| &status.conditions);
    let mut paused = conditions.filter(|condition| condition.type_ == condition::RECONCILIATION_PAUSED);
    Intent::of(pipeline) != Intent::LeaveAlone && paused.any(|condition| condition.status == "True")
}

async fn is_listed(cache: &Cache) -> bool {
    matches!(timeout(Duration::from_secs(LISTED_SECONDS_MAX), cache.ready()).await, Ok(Ok(())))
}
