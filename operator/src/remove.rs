//! Handles a pipeline that is being deleted: drains its gateways or orphans its objects, then removes the finalizer. This needs neither Kafka
//! nor `ClickHouse` nor a Secret, and takes a limited time.
//!
//! ```text
//!  read the workload -> removal (pure) -> edge ends -> drain step -> status ................................... again in 2 s
//!                             |                  `----> all gateways are empty ----> volumes, event, remove the finalizer
//!                             +-- orphan: remove owner references -----------------> event, remove the finalizer
//!                             `-- late, or nothing to do --------------------------> volumes, event, remove the finalizer
//! ```
//!
//! [`thrown_away`] chooses the claims to delete. Claims whose volumes may not be empty stay, and the event names them. Claims that never had a
//! volume are deleted, too: [`unbound`].
//!
//! Gateways whose StatefulSet is gone drain in the same way. The operator deletes their pods before the pipeline goes, since no controller does.
//!
//! All progress is in the status, so that the operator may stop at any step.

mod unbound;

use crate::{
    read::{
        gateways::commands::Commands,
        observe::{self, Facts},
    },
    steer::drain::drain_step,
    volumes::{owner_references, replace},
    world::{
        World,
        api_error::described,
        cache::{find, is_owned},
        error::Error,
        memory::Key,
        status,
    },
    write::{
        apply::{self, Appliable, OBJECTS},
        edge, events, finalizer, prune,
        status::report,
    },
};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1::Job,
        core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::PartialObjectMeta,
};
use serde_json::{Map, Value, json};
use sluice_crds::{QueueMode, TracePipeline};
use sluice_plan::{
    Moment, Names, PodMonitor, WorkloadSeen,
    drain::{
        Step,
        lifecycle::{KeptVolumes, LetGo, Removal, is_past_waiting, removal, there},
    },
    names, objects, removing,
    volumes::{
        claim_owners::held,
        removal::{Shown, commits_after_insert, never_bound_words, thrown_away},
    },
};
use tracing::{info, warn};
use unbound::Outcome;

/// The finalizer that Kubernetes sets for `--cascade=orphan` (`FinalizerOrphanDependents` in its API machinery).
const ORPHAN_FINALIZER: &str = "orphan";

/// How far the deletion is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A step is in progress: the next reconcile must follow soon.
    Waits,
    /// The operator has nothing left to do for the pipeline.
    Done,
}

/// Does the next step for a pipeline that is being deleted.
pub async fn remove(
    pipeline: &TracePipeline,
    key: &Key,
    world: &World,
    commands: &Commands,
) -> Result<Progress, Error> {
    let mut facts = observe::gateways(pipeline, world);
    let workload = there(&facts.observed);
    let decided = match removal(now(world), pipeline, workload.as_ref()) {
        Removal::Drain if is_left_behind(pipeline, &facts) => Removal::Orphan,
        decided => decided,
    };
    if retain(pipeline, &decided, &mut facts, world).await? {
        return Ok(Progress::Waits);
    }
    match (decided, workload) {
        (Removal::Free, _) => Ok(Progress::Done),
        (Removal::LetGo(why), workload) => {
            let empty = match workload.filter(|_| is_late(why)) {
                Some(workload) => ask(pipeline, &workload, &facts, world, commands).await.1,
                None => Vec::new(),
            };
            let_go(pipeline, (why, &empty), &mut facts, world).await
        }
        (Removal::Orphan, _) => {
            if release_claims(pipeline, &mut facts, world).await? {
                return Ok(Progress::Waits);
            }
            replace::give_back(pipeline, &facts, world, commands).await?;
            orphan(pipeline, facts.observed.edge.is_some(), world).await?;
            let_go(pipeline, (LetGo::Orphaned, &[]), &mut facts, world).await
        }
        (Removal::Drain, None) => let_go(pipeline, (LetGo::Empty, &[]), &mut facts, world).await,
        (Removal::Drain, Some(workload)) => {
            if edge_ends_first(pipeline, &facts, world).await? {
                facts.observed.scaling.drain = status::drain(pipeline).cloned();
                return say(pipeline, key, &facts, world).await;
            }
            let (step, empty) = ask(pipeline, &workload, &facts, world, commands).await;
            if step.replicas == 0 {
                let why = left(pipeline, &workload, &empty);
                return let_go(pipeline, (why, &empty), &mut facts, world).await;
            }
            facts.observed.scaling.drain = step.next;
            say(pipeline, key, &facts, world).await
        }
    }
}

/// Writes how far the deletion is.
async fn say(pipeline: &TracePipeline, key: &Key, facts: &Facts, world: &World) -> Result<Progress, Error> {
    let said = removing(pipeline, &facts.observed, &Time(Timestamp::now()));
    world.shared.metrics.set_conditions((&key.namespace, &key.name), &said.conditions);
    report(pipeline, key, said, world).await?;
    Ok(Progress::Waits)
}

/// Ends the edge before any gateway drains, so that gateways still read what it has accepted. Returns whether to reconcile again first. After the
/// time limit, gateways drain also while pods of the edge exist.
async fn edge_ends_first(pipeline: &TracePipeline, facts: &Facts, world: &World) -> Result<bool, Error> {
    let waits = !is_past_waiting(now(world), pipeline);
    match edge::ends_first(pipeline, facts, world).await {
        Ok(exists) => Ok(exists && waits),
        Err(error) if waits => Err(error),
        Err(error) => {
            warn!(pipeline = %pipeline.name_any(), error = described(&error), "cannot end the edge: Kubernetes deletes it with the pipeline");
            Ok(false)
        }
    }
}

/// The time by the API server's clock, which wrote the `deletionTimestamp`.
fn now(world: &World) -> Moment {
    world.shared.server_time.at(world.now())
}

/// Whether the pipeline is deleted with `--cascade=orphan`: then the gateways stay, whatever its `deletionPolicy`. Kubernetes adds its own
/// finalizer until it has removed the pipeline from the owner references of all its objects.
fn is_left_behind(pipeline: &TracePipeline, facts: &Facts) -> bool {
    let uid = pipeline.uid().unwrap_or_default();
    let is_owned_by_none = |workload: &StatefulSet| !is_owned(workload, &uid);
    pipeline.finalizers().iter().any(|finalizer| finalizer == ORPHAN_FINALIZER)
        || facts.stateful_set.as_deref().is_some_and(is_owned_by_none)
}

/// The next step of the drain of all gateways, and the empty gateways.
async fn ask(
    pipeline: &TracePipeline,
    workload: &WorkloadSeen,
    facts: &Facts,
    world: &World,
    commands: &Commands,
) -> (Step, Vec<u32>) {
    drain_step(pipeline, (workload, 0), facts, world, commands).await
}

fn is_late(why: LetGo) -> bool {
    matches!(why, LetGo::Late(_))
}

/// Why a pipeline may go once its drain has ended. Gateways without a volume lose nothing: Kafka has what they held.
fn left(pipeline: &TracePipeline, workload: &WorkloadSeen, empty: &[u32]) -> LetGo {
    let has_volumes = pipeline.spec.queue.mode == QueueMode::Spill;
    let all_said_so = (0..workload.wanted).all(|ordinal| empty.contains(&ordinal));
    if all_said_so || !has_volumes { LetGo::Empty } else { LetGo::Unproved }
}

/// Makes the StatefulSet retain its claims before any gateway drains. Returns whether to reconcile again first.
async fn retain(
    pipeline: &TracePipeline,
    decided: &Removal,
    facts: &mut Facts,
    world: &World,
) -> Result<bool, Error> {
    // `deletionPolicy: Immediate` waits for nothing.
    if matches!(decided, Removal::Free | Removal::LetGo(LetGo::AtOnce)) {
        return Ok(false);
    }
    let waits = !is_past_waiting(now(world), pipeline);
    match apply::retain(pipeline, &facts.observed.volumes, world).await {
        Ok(is_written) => {
            if let Some(template) = facts.observed.volumes.template.as_mut().filter(|_| is_written) {
                template.keeps_deleted = true;
            }
            Ok(is_written && waits)
        }
        Err(error) if waits => Err(error),
        Err(error) => {
            warn!(pipeline = %pipeline.name_any(), error = described(&error), "cannot keep the queue volumes: Kubernetes deletes them with their StatefulSet");
            Ok(false)
        }
    }
}

/// Removes the StatefulSet from the owner references of claims that it should retain. Returns whether to reconcile again first: within the
/// time limit, the finalizer stays until no claim has that owner.
async fn release_claims(pipeline: &TracePipeline, facts: &mut Facts, world: &World) -> Result<bool, Error> {
    let Ok(names) = Names::of(pipeline) else { return Ok(false) };
    let volumes = &mut facts.observed.volumes;
    let is_held = held(volumes).next().is_some();
    let (released, ended) = owner_references::release(&names, held(volumes), world).await;
    for claim in volumes.claims.iter_mut().filter(|claim| released.contains(&claim.name)) {
        claim.goes_with_workload = false;
    }
    let waits = !is_past_waiting(now(world), pipeline);
    match ended {
        Err(error) if waits => Err(error),
        Err(error) => {
            warn!(pipeline = %pipeline.name_any(), error = described(&error), "cannot keep the queue volumes: Kubernetes deletes them with their StatefulSet");
            Ok(false)
        }
        Ok(()) => Ok(is_held && waits),
    }
}

/// Deletes or keeps the volumes, publishes why, and removes the finalizer. Kubernetes then deletes the pipeline and the objects that it owns.
/// `empty` are the gateways that reported that they hold nothing.
async fn let_go(
    pipeline: &TracePipeline,
    (why, empty): (LetGo, &[u32]),
    facts: &mut Facts,
    world: &World,
) -> Result<Progress, Error> {
    if why != LetGo::AtOnce && release_claims(pipeline, facts, world).await? {
        return Ok(Progress::Waits);
    }
    let thrown_away = match why {
        LetGo::AtOnce | LetGo::Orphaned => Vec::new(),
        LetGo::Empty | LetGo::Unproved | LetGo::Late(_) => {
            throw_away(pipeline, (why, empty), facts, world).await?
        }
    };
    let Outcome::Done(left) = unbound_away(pipeline, why, facts, world).await? else {
        return Ok(Progress::Waits);
    };
    let kept = KeptVolumes::of(pipeline, &facts.observed.volumes, (empty, &thrown_away));
    let why = match (why, &kept) {
        // Such as after a suspension, or a foreground deletion, which deletes the gateways before they can report.
        (LetGo::Empty, KeptVolumes::MayHold(_))
            if there(&facts.observed).is_none_or(|seen| seen.wanted == 0) =>
        {
            LetGo::Unproved
        }
        (why, _) => why,
    };
    let state = status::drain(pipeline).map_or("no gateway was asked to drain", |drain| &drain.reason);
    match end(why, facts, world).await {
        Err(error) if !is_late(why) => return Err(error),
        Err(error) => {
            warn!(
                error = described(&error),
                "cannot delete gateways without a StatefulSet; they outlive their pipeline"
            );
        }
        Ok(()) => {}
    }
    let words = why.words(state, &kept, pipeline.spec.source.kafka.is_some()) + &never_bound_words(&left);
    events::let_go(pipeline, why, &words, &world.shared).await;
    finalizer::let_go(pipeline, world).await?;
    Ok(Progress::Done)
}

/// Deletes the claims that never had a volume, unless the gateways stay.
async fn unbound_away(
    pipeline: &TracePipeline,
    why: LetGo,
    facts: &Facts,
    world: &World,
) -> Result<Outcome, Error> {
    if why == LetGo::Orphaned {
        return Ok(Outcome::Done(Vec::new()));
    }
    let waits = why != LetGo::AtOnce && !is_past_waiting(now(world), pipeline);
    let namespace = pipeline.namespace().unwrap_or_default();
    unbound::throw_away(&namespace, facts, waits, world).await
}

/// Deletes gateways without a StatefulSet: otherwise they would continue to read after their pipeline is gone.
async fn end(why: LetGo, facts: &Facts, world: &World) -> Result<(), Error> {
    match why {
        LetGo::Orphaned => Ok(()),
        LetGo::AtOnce | LetGo::Empty | LetGo::Unproved | LetGo::Late(_) => {
            prune::end_left_alone(facts, world).await
        }
    }
}

/// Deletes the claims of empty volumes, and returns their names. Kubernetes removes each once its gateway has ended. A claim stays if the API
/// server refuses its deletion, and after the time limit also if the deletion fails otherwise.
async fn throw_away(
    pipeline: &TracePipeline,
    (why, empty): (LetGo, &[u32]),
    facts: &Facts,
    world: &World,
) -> Result<Vec<String>, Error> {
    let namespace = pipeline.namespace().unwrap_or_default();
    let shown = Shown { empty, commits_after_insert: all_commit_after_insert(&namespace, facts, world) };
    let mut gone = Vec::new();
    for claim in thrown_away(pipeline, &facts.observed.volumes, shown) {
        let exactly = Preconditions { uid: Some(claim.uid.clone()), resource_version: None };
        let how = DeleteParams::background().preconditions(exactly);
        let named = (namespace.as_str(), claim.name.as_str());
        match prune::delete_named::<PersistentVolumeClaim>(named, how, world).await {
            Ok(()) => {
                info!(claim = %claim.name, "deleted the claim of an empty queue volume with its pipeline");
                gone.push(claim.name.clone());
            }
            Err(error) if is_late(why) || error.is_refusal() => {
                warn!(claim = %claim.name, error = described(&error), "cannot delete the claim of an empty queue volume; it stays");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(gone)
}

/// Whether all gateways, and all that may be started in their place, run with a config that commits after the insert. Gateways without a
/// StatefulSet are not replaced.
fn all_commit_after_insert(namespace: &str, facts: &Facts, world: &World) -> bool {
    let is_rolled_out = facts.observed.workload.as_ref().is_none_or(WorkloadSeen::is_rolled_out);
    let configs = match facts.stateful_set.as_deref() {
        Some(workload) => objects::configs_of(workload),
        None => objects::configs_of_pods(facts.pods.iter()),
    };
    let commits = |name: &String| {
        find(&world.cache.config_maps, namespace, name).is_some_and(|config| commits_after_insert(&config))
    };
    is_rolled_out && !configs.is_empty() && configs.iter().all(commits)
}

/// Removes the pipeline from the owner references of all its objects, so that they stay.
async fn orphan(pipeline: &TracePipeline, has_edge: bool, world: &World) -> Result<(), Error> {
    // A pipeline whose name makes no valid object names owns nothing.
    let Ok(names) = Names::of(pipeline) else { return Ok(()) };
    let owned = Owned { uid: pipeline.uid().unwrap_or_default(), names, world };
    // The gateways first: the other objects are useless without them. An error about one kind does not stop the others.
    let mut left = owned.orphan::<StatefulSet>().await;
    // Without an edge, the operator may have no right to list them.
    if has_edge || pipeline.spec.edge.is_some() {
        left = left.and(owned.orphan::<Deployment>().await);
        left = left.and(owned.orphan::<HorizontalPodAutoscaler>().await);
    }
    left = left.and(owned.orphan::<ConfigMap>().await);
    left = left.and(owned.orphan::<Service>().await);
    left = left.and(owned.orphan::<ServiceAccount>().await);
    left = left.and(owned.orphan::<PodDisruptionBudget>().await);
    left = left.and(owned.orphan::<NetworkPolicy>().await);
    let observability = pipeline.spec.observability.as_ref();
    if observability.is_some_and(|observability| observability.pod_monitor.enabled) {
        left = left.and(owned.orphan_monitor().await);
    }
    left.and(owned.orphan::<Job>().await)
}

/// The objects that a pipeline owns.
struct Owned<'a> {
    uid: String,
    names: Names,
    world: &'a World,
}

impl Owned<'_> {
    /// Lists the objects from the server: an object that is missing in the copies would be deleted with the pipeline.
    async fn orphan<K: Appliable>(&self) -> Result<(), Error> {
        let kind = <K as k8s_openapi::Resource>::KIND;
        let selector = format!(
            "{}={},{} in ({},{})",
            names::INSTANCE,
            self.names.pipeline(),
            names::NAME,
            names::PROGRAM,
            names::EDGE_PROGRAM
        );
        let api: Api<K> = Api::namespaced(self.world.shared.client.clone(), self.names.namespace());
        let listed = api.list_metadata(&ListParams::default().labels(&selector)).await;
        let listed = listed.map_err(|source| {
            Error::request(format!("cannot list the objects of kind {kind} that the pipeline owns"), source)
        })?;
        for object in &listed.items {
            self.leave(&api, object).await?;
        }
        Ok(())
    }

    /// There is at most one, and the cluster may lack its CRD.
    async fn orphan_monitor(&self) -> Result<(), Error> {
        let kind = <PodMonitor as k8s_openapi::Resource>::KIND;
        let name = self.names.gateway();
        let api: Api<PodMonitor> = Api::namespaced(self.world.shared.client.clone(), self.names.namespace());
        match api.get_metadata(&name).await {
            Ok(found) => self.leave(&api, &found).await,
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(source) => Err(not_orphaned(kind, &name, source)),
        }
    }

    /// Removes the pipeline from the owner references of an object, if it is one of them.
    async fn leave<K: Appliable>(&self, api: &Api<K>, object: &PartialObjectMeta<K>) -> Result<(), Error> {
        if !is_owned(object, &self.uid) {
            return Ok(());
        }
        let (kind, name) = (<K as k8s_openapi::Resource>::KIND, object.name_any());
        let others: Vec<_> = object.owner_references().iter().filter(|owner| owner.uid != self.uid).collect();
        // If Argo CD tracks by label, it would take the object for a part of the Application with the pipeline's name: add the annotations that
        // prevent that.
        let left = names::LEFT_BY_ARGO_CD.iter().filter(|(key, _)| !object.annotations().contains_key(*key));
        let left: Map<String, Value> =
            left.map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        let metadata = json!({"uid": object.uid(), "ownerReferences": others, "annotations": left});
        let patch = json!({"metadata": metadata});
        let how = PatchParams { field_manager: Some(OBJECTS.to_owned()), ..PatchParams::default() };
        self.world.shared.metrics.wrote(kind);
        match api.patch_metadata(&name, &how, &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            // Gone already.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(source) => Err(not_orphaned(kind, &name, source)),
        }
    }
}

fn not_orphaned(kind: &str, name: &str, source: kube::Error) -> Error {
    let action = format!("cannot remove the pipeline from the owner references of the {kind} {name}");
    Error::request(action, source)
}
