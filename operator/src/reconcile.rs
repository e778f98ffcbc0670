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

pub mod apply_failure;
mod handover;
pub mod next;
pub mod outcome;

use crate::{
    read::{
        Sources,
        expired_offsets::{self, Judgement},
        observe::{self, Facts},
        unread_partitions,
    },
    remove::{self, Progress},
    steer::{drain::drain_step, rollout, scaling, schema, undrain::undrain},
    volumes::{argo_cd, grow, orphans, owner_references, replace},
    watch::state::WatchState,
    world::{
        World,
        cache::{Cache, Pipeline},
        connections::references_any,
        error::Error,
        memory::Key,
        metrics::ReconcileResult,
        status::{self, is_taking_over},
    },
    write::{self, apply, edge, events, finalizer, pod_monitor, prune, resize},
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{
    ResourceExt,
    core::DynamicObject,
    runtime::{controller::Action, reflector::ObjectRef},
};
use next::{LEAVING_SECONDS, Next, REFUSED_SECONDS, next};
use sluice_crds::{RolloutState, TracePipeline};
use sluice_plan::{
    Applied, Intent, Objects, Plan, Planned, Unresolved, build,
    drain::lifecycle::{has_finalizer, needs_finalizer, there},
    for_metrics, plan, replica_conflict_message,
    rollout::replicas_meanwhile,
};
use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use tokio::time::{timeout, timeout_at};
use tracing::info;

/// Longest reconcile in seconds: the longest wait for Kafka, and a dozen requests to a busy API server.
pub(crate) const RECONCILE_SECONDS_MAX: u64 = 60;
/// Longest wait in seconds for the first listings of the watches; then other pipelines get their turn.
const LISTED_SECONDS_MAX: u64 = 5;

/// What reconciles of one scope work with.
pub struct Reconciler {
    /// The API server, its copies, and what is remembered.
    pub world: Arc<World>,
    /// Kafka, Secrets and gateways.
    pub sources: Arc<Sources>,
    /// Which watches of the scope fail.
    pub watches: Arc<WatchState>,
    /// When the first pipeline waited for the list of connections.
    connections_awaited: OnceLock<tokio::time::Instant>,
    /// When the first pipeline with an edge waited for the lists of what only edges have.
    edges_awaited: OnceLock<tokio::time::Instant>,
}

impl Reconciler {
    /// For a scope, with nothing awaited yet.
    pub fn new(world: Arc<World>, sources: Arc<Sources>, watches: Arc<WatchState>) -> Self {
        Self { world, sources, watches, connections_awaited: OnceLock::new(), edges_awaited: OnceLock::new() }
    }

    /// Waits for the first list of connections, all looks together at most [`LISTED_SECONDS_MAX`]: later than that the API server has no CRD of
    /// them, or gives no right to them, and the status says so.
    async fn first_list_of_connections(&self) {
        let listed = self.world.cache.connections.wait_until_ready();
        let awaited = *self.connections_awaited.get_or_init(tokio::time::Instant::now);
        drop(timeout_at(awaited + Duration::from_secs(LISTED_SECONDS_MAX), listed).await);
    }

    /// The same for Deployments and autoscalers, which the operator may have no right to list.
    async fn first_list_of_edges(&self) {
        let cache = &self.world.cache;
        let listed = async {
            cache.deployments.wait_until_ready().await?;
            cache.autoscalers.wait_until_ready().await
        };
        let awaited = *self.edges_awaited.get_or_init(tokio::time::Instant::now);
        drop(timeout_at(awaited + Duration::from_secs(LISTED_SECONDS_MAX), listed).await);
    }

    /// A pipeline is gone. Kubernetes deletes its objects afterwards, and each of those events leads here again.
    pub fn forget(&self, gone: &ObjectRef<DynamicObject>) {
        let key = Key { namespace: gone.namespace.clone().unwrap_or_default(), name: gone.name.clone() };
        self.world.shared.responsibility.forget(&key);
        if self.drop_known(&key) {
            info!(namespace = %key.namespace, pipeline = %key.name, "gone");
        }
    }

    /// Another operator looks after a pipeline.
    fn leave(&self, key: &Key) {
        if self.drop_known(key) {
            info!(namespace = %key.namespace, pipeline = %key.name, "left to another operator");
        }
    }

    /// Removes what is known of a pipeline, and its series. Returns whether there was anything.
    fn drop_known(&self, key: &Key) -> bool {
        let shared = &self.world.shared;
        if !shared.memory.forget(key) {
            return false;
        }
        self.sources.forget(key);
        shared.metrics.forget(&key.namespace, &key.name);
        shared.metrics.set_pipelines(shared.memory.len());
        true
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
pub async fn reconcile(pipeline: Arc<Pipeline>, reconciler: Arc<Reconciler>) -> Result<Action, Failed> {
    let begun = Instant::now();
    let key = Key { namespace: pipeline.namespace().unwrap_or_default(), name: pipeline.name_any() };
    let world = &reconciler.world;
    if !is_listed(&world.cache).await {
        let again = outcome::unlisted(&pipeline, &key, &reconciler).await;
        world.shared.metrics.reconciled(ReconcileResult::Unlisted, begun.elapsed());
        return Ok(again);
    }
    if references_any(&pipeline) {
        reconciler.first_list_of_connections().await;
    }
    if pipeline.0.as_ref().is_ok_and(|pipeline| pipeline.spec.edge.is_some()) {
        reconciler.first_list_of_edges().await;
    }
    let (result, action) = outcome::of(&pipeline, &key, &reconciler).await;
    world.shared.metrics.reconciled(result, begun.elapsed());
    world.shared.metrics.set_pipelines(world.shared.memory.len());
    action
}

/// When to look again after a failure.
pub fn error_policy(_: Arc<Pipeline>, failed: &Failed, _: Arc<Reconciler>) -> Action {
    Action::requeue(failed.retry_after)
}

/// One look at a pipeline that stands as it would without references; `unresolved` says which of them lead nowhere.
async fn story(
    (pipeline, unresolved): (&TracePipeline, Unresolved),
    key: &Key,
    reconciler: &Reconciler,
) -> Result<Next, Error> {
    let (world, sources) = (&*reconciler.world, &*reconciler.sources);
    // What is held is seen to first, whatever the pipeline has come to want; it keeps nothing else waiting.
    let finished = Box::pin(replace::finish(pipeline, world)).await;
    if Intent::of(pipeline) == Intent::Remove {
        let progress = Box::pin(remove::remove(pipeline, key, world, &sources.commands)).await?;
        finished?;
        return Ok(while_removed(progress));
    }
    let mut facts = observe::observe((pipeline, unresolved), world, sources).await?;
    facts.observed.scaling = scaling::look(pipeline, key, &facts, world);
    facts.observed.unread = unread_partitions::count(key, &facts, &world.shared.memory);
    let mut planned = plan(pipeline, &facts.observed, &world.shared.defaults);
    let before = planned.as_ref().ok().and_then(Planned::ready);
    let again = Box::pin(schema::run_again(pipeline, key, (before, &facts), world)).await;
    if let Some(seen) = again {
        facts.observed.schema = seen;
        planned = plan(pipeline, &facts.observed, &world.shared.defaults);
    }
    let ready = planned.as_ref().ok().and_then(Planned::ready);
    // Their number changes with the StatefulSet, so that no gateway leaves before the StatefulSet may be applied.
    let stays = ready.filter(|plan| !plan.holds_source());
    let (replicas, replaced) = Box::pin(leave(pipeline, stays, &mut facts, reconciler)).await;
    let carried_out = Box::pin(carry_out(pipeline, (ready, replicas), &mut facts, world)).await;
    let carried_out = match carried_out {
        // The status still says `Unmanaged`. From that the next try knows that it must take over the changes of other clients.
        Err(error) if is_taking_over(pipeline) => return Err(error),
        other => other,
    };
    if let Some(words) = carried_out.as_ref().err().and_then(Error::replica_conflict) {
        facts.observed.scaling.replica_conflict = Some(words.to_owned());
    }
    let ended = carried_out.and(finished).and(replaced);
    facts.observed.reconcile_failure = ended
        .as_ref()
        .err()
        .and_then(|error| apply_failure::of(error, pipeline.status.as_ref(), key, world))
        .or_else(|| apply_failure::of_watches(&reconciler.watches));
    let now = Time(Timestamp::now());
    let said = sluice_plan::status(pipeline, &facts.observed, planned.as_ref(), &now);
    if let Some(messages) = facts.lag_messages {
        world.shared.metrics.set_lag(&key.namespace, &key.name, messages);
    }
    let before = pipeline.status.clone().unwrap_or_default();
    let of = (key.namespace.as_str(), key.name.as_str());
    world.shared.metrics.set_scaling(of, &before, &for_metrics(&said, &facts.observed.scaling));
    world.shared.metrics.set_conditions(of, &said.conditions);
    tell_of_offsets(pipeline, key, &facts, world).await;
    // Also when something could not be applied: the facts are worth saying all the more.
    Box::pin(write::status::report(pipeline, key, said, world)).await?;
    Box::pin(undrain(pipeline, replicas, &facts, world)).await;
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
        Intent::Run if expired_offsets::is_back(pipeline) || memory.is_offsets_due(key) => {
            expired_offsets::judge(pipeline, facts.kafka.as_ref())
        }
        Intent::Run | Intent::Suspend | Intent::LeaveAlone | Intent::Remove => Judgement::Well,
    };
    memory.set_offsets_due(key, judgement == Judgement::NotKnown);
    if let Judgement::Expired(note) = judgement {
        events::tell(pipeline, "OffsetsExpired", &note, &world.shared).await;
    }
}

/// The number of gateways to have now: the planned one, once those that are too many may be taken away. A gateway that gets a new
/// volume goes first, to its end or back: no two things are asked of gateways at the same time.
async fn leave(
    pipeline: &TracePipeline,
    plan: Option<&Plan>,
    facts: &mut Facts,
    reconciler: &Reconciler,
) -> (u32, Result<(), Error>) {
    let (world, commands) = (&*reconciler.world, &reconciler.sources.commands);
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
    if status::drain(pipeline).is_none() {
        // A gateway that drains is not ready, and would be taken for one that fails.
        let is_rolling = status::rollout(pipeline)
            .is_some_and(|rollout| matches!(rollout.state, RolloutState::Canary | RolloutState::Rolling));
        let may_go_on = runs && wanted == current && !is_rolling;
        let next;
        (next, replaced) = replace::carry_on(pipeline, (plan, may_go_on), facts, world, commands).await;
        facts.observed.volumes.replacing = next;
        if facts.observed.volumes.replacing.is_some() {
            return (if theirs.is_some() { current } else { current.max(wanted) }, replaced);
        }
    }
    // Another client's number is kept: no gateway is drained for it, and gateways that drain are resumed.
    let wanted = match theirs.filter(|_| runs && wanted != current) {
        Some(others) => {
            facts.observed.scaling.replica_conflict = Some(replica_conflict_message(
                others,
                &plan.map_or_else(String::new, |plan| plan.names().gateway()),
            ));
            current
        }
        None => wanted,
    };
    let (step, _) = drain_step(pipeline, (&workload, wanted), facts, world, commands).await;
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
    // Before a gateway is removed, and also without a plan.
    apply::retain(pipeline, &facts.observed.volumes, world).await?;
    let released = Box::pin(owner_references::unused(pipeline, &facts.observed.volumes, world)).await;
    let spec = Box::pin(carry_out_spec(pipeline, (plan, replicas), facts, world)).await;
    // Also at rest, and after a failure of the gateways: neither waits for the other.
    let edge = Box::pin(edge::tend(pipeline, plan, facts, world)).await;
    spec?;
    // Nothing else waits for either.
    Box::pin(argo_cd::guard(pipeline, world)).await;
    released.and(edge)
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
    facts.observed.volumes.refusal = Box::pin(grow::grow(plan, world)).await?;
    // What cannot be done for volumes keeps nothing else waiting but gateways that would need one of them.
    let tending = orphans::tend(pipeline, plan, (current, replicas), &facts.observed.volumes, world);
    let tended = Box::pin(tending).await;
    let discarded = Box::pin(replace::discard(plan, pipeline, &facts.observed, world)).await;
    let replicas = tended.as_ref().map_or(replicas.min(current), |most| *most);
    let applied = Box::pin(roll(pipeline, (plan, replicas), facts, world)).await?;
    // It would come back with what is held from it.
    if !plan.holds_source() {
        Box::pin(grow::make_anew(plan, facts.stateful_set.as_deref(), world)).await?;
    }
    prune::prune(pipeline, &applied, facts.observed.workload.as_ref(), world).await?;
    facts.observed.volumes.not_replaced = discarded?.or(facts.observed.volumes.not_replaced.take());
    tended?;
    facts.observed.memory_resizes = Some(Box::pin(resize::look_after(pipeline, plan, facts, world)).await?);
    Box::pin(pod_monitor::tend(pipeline, plan, world)).await
}

/// Applies the objects with the workload as the next step of its rollout wants it, and deletes pods that are to come back with it.
async fn roll(
    pipeline: &TracePipeline,
    (plan, replicas): (&Plan, u32),
    facts: &mut Facts,
    world: &World,
) -> Result<Objects<Applied>, Error> {
    let step = rollout::next_step(pipeline, plan, replicas, facts, world);
    let desired = build(plan);
    let (desired, replicas) = match &step {
        Some(step) => (desired.rolled(step, facts.stateful_set.as_deref()), step.replicas),
        None => (desired, replicas),
    };
    // Ten objects are kept over ten waits: 40 KB that belong on the heap.
    let applied = Box::pin(apply::apply(pipeline, desired, replicas, world)).await?;
    // A step that could not be applied was not taken, and the status does not tell of it.
    facts.observed.rollout = step.map(|step| step.next);
    if let Some(workload) = facts.observed.workload.as_ref().filter(|_| plan.waits_for_schema()) {
        let replicas = replicas_meanwhile(workload, replicas, status::is_at_rest(pipeline));
        Box::pin(apply::scale_as_it_runs(pipeline, replicas, world)).await?;
    }
    if let Some(next) = &facts.observed.rollout {
        Box::pin(rollout::replace(pipeline, next, facts, world)).await?;
    }
    Ok(applied)
}

/// The next reconcile of a pipeline that is being deleted.
fn while_removed(progress: Progress) -> Next {
    match progress {
        Progress::Waits => Next { result: ReconcileResult::Waiting, after_seconds: LEAVING_SECONDS },
        Progress::Done => Next { result: ReconcileResult::Done, after_seconds: REFUSED_SECONDS },
    }
}

async fn is_listed(cache: &Cache) -> bool {
    matches!(timeout(Duration::from_secs(LISTED_SECONDS_MAX), cache.ready()).await, Ok(Ok(())))
}
