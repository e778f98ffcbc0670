//! Replaces queue volumes as `sluice_plan::volumes::replacement` decides, one gateway at a time: asks it to drain, holds its pod by a
//! finalizer once it is empty and tells it to end, deletes the claim when the pod has ended as it was, and lets go of the pod.
//!
//! What is held is finished or let go of whatever the pipeline has come to want, and when it is gone: the finalizer is ours alone.

use crate::{
    api_error::{ApiError, ErrorClass, described},
    cache::Pipeline,
    gateways::commands::Command,
    memory::Key,
    observe::Facts,
    prune,
    reconcile::World,
    report,
};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::reflector::ObjectRef,
};
use serde_json::{Value, json};
use sluice_crds::{ReplacementStatus, TracePipeline};
use sluice_plan::{
    HolderSeen, Names, Observed, Plan,
    lifecycle::terms,
    names::{QUEUE_CLAIM, REPLACES_VOLUME},
    scale::drain::{Answer, Request},
    volumes::reach::{OutOfReach, recreated},
    volumes::replacement::{Fate, Seen, Take, fate, never_bound, request, step},
};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;
use tracing::{error, info, warn};

/// Field manager of the finalizer and its annotation on pods.
pub const HOLDS: &str = "sluice-operator/replacement";

/// Claims of either kind that one reconcile deletes without their gateways being asked; the next one follows.
const DISCARDED_MAX: usize = 16;

/// Waits after tries to let go of the pods of a pipeline that is gone: longer than an API server takes to start again.
const LET_GO_WAITS_SECONDS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not say what it has.
    #[error("cannot look at {name} before its queue volume is replaced")]
    Look {
        /// Name of the pod or claim.
        name: String,
        /// What the API server said.
        source: ApiError,
    },
    /// The pod could not be held, or let go of.
    #[error("cannot change the finalizer {REPLACES_VOLUME} of the pod {name}")]
    Hold {
        /// Its name.
        name: String,
        /// What the API server said.
        source: ApiError,
    },
    /// The pod that is empty, its claim, or a claim that never had a volume.
    #[error(transparent)]
    Prune(#[from] prune::Error),
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Look { source, .. } | Self::Hold { source, .. } => source.class(),
            Self::Prune(error) => error.class(),
        }
    }

    /// Whether the server means it: asked again at once, it would say the same.
    fn is_refusal(&self) -> bool {
        matches!(self.class(), ErrorClass::Forbidden | ErrorClass::Refused)
    }
}

/// The gateway that gets a new volume, as the status says: what is not written there has not begun.
pub fn written(pipeline: &TracePipeline) -> Option<&ReplacementStatus> {
    pipeline.status.as_ref()?.volumes.as_ref()?.replacing.as_ref()
}

/// Pods as far as their volumes go, by ordinal.
pub fn holders<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<HolderSeen> {
    let now = Timestamp::now();
    let mut holders: Vec<HolderSeen> = pods.filter_map(|pod| HolderSeen::of(pod, now)).collect();
    holders.sort_by_key(|holder| holder.ordinal);
    holders
}

/// Goes on with the gateway whose volume is replaced, or begins with the next. What it comes to is for the status in any case.
pub async fn carry_on(
    pipeline: &TracePipeline,
    (plan, may_go_on): (Option<&Plan>, bool),
    facts: &mut Facts,
    world: &World,
) -> (Option<ReplacementStatus>, Result<(), Error>) {
    let written = written(pipeline);
    let (Some(terms), Ok(names)) = (terms(pipeline), Names::of(pipeline)) else {
        return (written.cloned(), Ok(()));
    };
    let pods = Held { names: &names, world };
    let written_now = written.cloned();
    let answer = match (request(written), written) {
        (Some((request, gateway)), Some(ReplacementStatus { since, .. })) => {
            match pods.ask((Command { request, since: since.clone() }, gateway), facts).await {
                Ok(answer) => answer,
                Err(error) => return (written_now, Err(error)),
            }
        }
        _ => Answer::Gone,
    };
    let next = plan.and_then(Plan::replaced_next);
    let (queue, volumes) = (&pipeline.spec.queue, &facts.observed.volumes);
    let seen = Seen { queue, volumes, answer, may_go_on, next };
    let step = step(world.shared.scaling.now(), terms, written, &seen);
    let begun = step.next.as_ref().filter(|_| written.is_none());
    let claim = begun.and_then(|begun| volumes.claims.iter().find(|claim| claim.ordinal == begun.gateway));
    // Where no claim may be deleted nobody is drained for nothing.
    if let Some(claim) = claim
        && let Err(error) = pods.delete_claim(&claim.name, &claim.uid, true).await
    {
        if !error.is_refusal() {
            return (None, Err(error));
        }
        facts.observed.volumes.not_replaced = Some(described(&error));
        return (None, Ok(()));
    }
    let taken = match &step.take {
        Some(take) => pods.take(take).await,
        None => Ok(()),
    };
    (step.next, taken)
}

/// Sees to the pods that are held: those that have ended get a new volume, and those that are not meant any more are let go of.
pub async fn finish(pipeline: &TracePipeline, world: &World) -> Result<(), Error> {
    let Ok(names) = Names::of(pipeline) else { return Ok(()) };
    let held = Held { names: &names, world };
    let mut ended = Ok(());
    for holder in held_pods(names.namespace(), names.pipeline(), world) {
        // One that cannot be seen to keeps no other waiting.
        ended = ended.and(held.finish(pipeline, &holder).await);
    }
    ended
}

/// Whether any pod of a pipeline is held.
pub fn holds_pods(pipeline: &ObjectRef<Pipeline>, world: &World) -> bool {
    !held_pods(pipeline.namespace.as_deref().unwrap_or_default(), &pipeline.name, world).is_empty()
}

/// The pods of a pipeline that are held, as the copies show them.
fn held_pods(namespace: &str, pipeline: &str, world: &World) -> Vec<HolderSeen> {
    let pods = world.cache.pods_of(namespace, pipeline);
    let mut found = holders(pods.iter().map(|pod| &**pod));
    found.retain(|holder| holder.emptied.is_some());
    found
}

/// Lets go of all pods of a pipeline that is gone, or that nobody can read: nobody makes them again, and their claims are for others to
/// judge.
pub async fn let_all_go(namespace: &str, pipeline: &str, world: &World) -> Result<(), Error> {
    let mut ended = Ok(());
    for holder in held_pods(namespace, pipeline, world) {
        ended = ended.and(let_go(namespace, &holder, world).await);
    }
    ended
}

/// The same of one that is gone, which no reconcile comes back to: until it succeeds, or there is such a pipeline again, or
/// [`LET_GO_WAITS_SECONDS`] are over.
pub async fn let_gone_go(gone: ObjectRef<Pipeline>, world: Arc<World>) {
    let (namespace, name) = (gone.namespace.clone().unwrap_or_default(), gone.name.clone());
    let mut last = String::new();
    for wait_seconds in LET_GO_WAITS_SECONDS {
        if world.cache.pipelines.get(&gone).is_some() {
            return;
        }
        match let_all_go(&namespace, &name, &world).await {
            Ok(()) => return,
            Err(error) => last = described(&error),
        }
        sleep(Duration::from_secs(wait_seconds)).await;
    }
    error!(
        %namespace, pipeline = %name, error = last,
        "pods of a pipeline that is gone are still held; kubectl patch pod NAME -p '{{\"metadata\":{{\"finalizers\":null}}}}' lets them end"
    );
}

/// Has the gateway take part again that was told to drain for a new volume: its pipeline goes, and leaves it running. It is asked once;
/// one that does not hear it goes on draining until somebody tells it otherwise.
pub async fn give_back(pipeline: &TracePipeline, facts: &Facts, world: &World) -> Result<(), Error> {
    let (Some(written), Ok(names)) = (written(pipeline), Names::of(pipeline)) else { return Ok(()) };
    let command = Command { request: Request::Resume, since: written.since.clone() };
    let answer = Held { names: &names, world }.ask((command, written.gateway), facts).await?;
    if answer == Answer::Silent {
        warn!(
            namespace = names.namespace(),
            pipeline = names.pipeline(),
            gateway = written.gateway,
            "a gateway that is left to itself was told to drain, and does not answer: POST /resume has it take part again"
        );
    }
    Ok(())
}

/// Deletes claims that never had a volume and are not as they are wanted, and those that no node reaches, where that is wanted;
/// Kubernetes makes them again for the pods that wait. Gives what the API server said when it did not let one of the latter go.
pub async fn discard(
    plan: &Plan,
    pipeline: &TracePipeline,
    observed: &Observed,
    world: &World,
) -> Result<Option<String>, Error> {
    let held = Held { names: plan.names(), world };
    let is_bound =
        |claim: &PersistentVolumeClaim| claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
    for (name, uid) in never_bound(&pipeline.spec.queue, &observed.volumes).take(DISCARDED_MAX) {
        // In this version it has no volume.
        if held.delete_version((name, uid), |claim| !is_bound(claim)).await? {
            info!(claim = %name, "a claim that never had a volume is made anew");
        }
    }
    let now = world.shared.scaling.now();
    for OutOfReach { pod, claim } in recreated(now, pipeline, observed).take(DISCARDED_MAX) {
        let found = held.pods().get_opt(&pod.name).await;
        let found = found.map_err(|source| Error::Look { name: pod.name.clone(), source: source.into() })?;
        let has_node = |pod: &Pod| {
            pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_ref().is_some_and(|node| !node.is_empty()))
        };
        // The copy may be from before it found one.
        if found.is_none_or(|pod| has_node(&pod)) {
            continue;
        }
        let deleted = held.delete_version((&claim.name, &claim.uid), |_| true).await;
        if let Err(error) = &deleted
            && error.is_refusal()
        {
            return Ok(Some(described(error)));
        }
        if deleted? {
            let volume = claim.volume.as_deref().unwrap_or_default();
            let note = format!(
                "no node takes {} that reaches its volume {volume}: the volume is made anew (queue.onZoneLoss), and what is not \
                 inserted is read from Kafka again",
                pod.name
            );
            warn!(claim = %claim.name, "{note}");
            report::recreated(pipeline, &note, &world.shared).await;
        }
    }
    Ok(None)
}

fn claim_of(pod: &str) -> String {
    format!("{QUEUE_CLAIM}-{pod}")
}

/// The pods of one pipeline.
struct Held<'a> {
    names: &'a Names,
    world: &'a World,
}

impl Held<'_> {
    async fn finish(&self, pipeline: &TracePipeline, seen: &HolderSeen) -> Result<(), Error> {
        if fate(seen, written(pipeline)) == Fate::Wait {
            return Ok(());
        }
        // The copy may be from before it was told to end, and what follows cannot be taken back.
        let Some(now) = self.look(&seen.name).await?.filter(|now| now.uid == seen.uid) else { return Ok(()) };
        match fate(&now, written(pipeline)) {
            Fate::Wait => return Ok(()),
            Fate::LetGo => {
                warn!(pod = %now.name, "a gateway keeps its queue volume: it is not known that nothing was put there");
            }
            Fate::Replace { claim_uid } => {
                match self.delete_claim(&claim_of(&now.name), claim_uid, false).await {
                    Ok(()) => {
                        let note =
                            format!("gateway {} was empty: its queue volume is made anew", now.ordinal);
                        info!(pod = %now.name, "{note}");
                        report::replaced(pipeline, &note, &self.world.shared).await;
                    }
                    Err(error) if error.is_refusal() => {
                        warn!(pod = %now.name, error = described(&error), "a gateway keeps its queue volume");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.let_go(&now).await
    }

    /// A pod as it is now, not as the copies have it.
    async fn look(&self, name: &str) -> Result<Option<HolderSeen>, Error> {
        let found = self.pods().get_opt(name).await;
        let found = found.map_err(|source| Error::Look { name: name.to_owned(), source: source.into() })?;
        Ok(found.as_ref().and_then(|pod| HolderSeen::of(pod, Timestamp::now())))
    }

    /// Asks the gateway. It takes part again only once its pod is not held: what it puts on its volume then would count as proved
    /// empty. The copies may not show yet that it is.
    async fn ask(&self, (command, gateway): (Command, u32), facts: &Facts) -> Result<Answer, Error> {
        if command.request == Request::Resume {
            let holder = self.look(&format!("{}-{gateway}", self.names.gateway())).await?;
            if let Some(holder) = holder.filter(|holder| holder.emptied.is_some()) {
                if holder.late_for.is_some() {
                    return Ok(Answer::Silent);
                }
                self.let_go(&holder).await?;
            }
        }
        let range = gateway..gateway.saturating_add(1);
        let key =
            Key { namespace: self.names.namespace().to_owned(), name: self.names.pipeline().to_owned() };
        let answers = self.world.shared.commands.tell(&key, &command, range, &facts.gateways).await;
        Ok(answers.get(&gateway).copied().unwrap_or(Answer::Silent))
    }

    /// Holds the pod and tells it to end, once it is known that its claim may be deleted.
    async fn take(&self, take: &Take) -> Result<(), Error> {
        self.delete_claim(&claim_of(&take.pod), &take.emptied.claim_uid, true).await?;
        // One that an operator before has held is told to end, and nothing else: whoever is cut off here each time gets on.
        let now = self.look(&take.pod).await?.filter(|now| now.uid == take.pod_uid);
        let is_held = now.and_then(|now| now.emptied).is_some_and(|emptied| emptied == take.emptied);
        let held =
            json!({"finalizers": [REPLACES_VOLUME], "annotations": {REPLACES_VOLUME: take.emptied.text()}});
        let pod = (take.pod.as_str(), take.pod_uid.as_str());
        if !is_held && !hold(self.names.namespace(), pod, held, self.world).await? {
            return Ok(());
        }
        info!(pod = %take.pod, "an empty gateway is told to end, for another queue volume");
        let exactly = Preconditions { uid: Some(take.pod_uid.clone()), resource_version: None };
        let (how, named) =
            (DeleteParams::default().preconditions(exactly), (self.names.namespace(), take.pod.as_str()));
        Ok(prune::delete_named::<Pod>(named, how, self.world).await?)
    }

    /// The very claim, unless it is on its way out: it stays as long as its pod is held. `is_dry` asks alone whether it might be deleted.
    async fn delete_claim(&self, name: &str, uid: &str, is_dry: bool) -> Result<(), Error> {
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.world.shared.client.clone(), self.names.namespace());
        let found = api.get_metadata_opt(name).await;
        let found = found.map_err(|source| Error::Look { name: name.to_owned(), source: source.into() })?;
        let stays = |metadata: &ObjectMeta| {
            metadata.uid.as_deref() == Some(uid) && metadata.deletion_timestamp.is_none()
        };
        if !found.is_some_and(|found| stays(&found.metadata)) {
            return Ok(());
        }
        let exactly = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let how = DeleteParams { dry_run: is_dry, ..DeleteParams::background().preconditions(exactly) };
        let named = (self.names.namespace(), name);
        Ok(prune::delete_named::<PersistentVolumeClaim>(named, how, self.world).await?)
    }

    /// The very claim in the version in which this holds of it. Whether it was told to go.
    async fn delete_version(
        &self,
        (name, uid): (&str, &str),
        is_meant: impl Fn(&PersistentVolumeClaim) -> bool,
    ) -> Result<bool, Error> {
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.world.shared.client.clone(), self.names.namespace());
        let found = api.get_opt(name).await;
        let found = found.map_err(|source| Error::Look { name: name.to_owned(), source: source.into() })?;
        let is_it = |claim: &PersistentVolumeClaim| {
            claim.metadata.uid.as_deref() == Some(uid) && claim.metadata.deletion_timestamp.is_none()
        };
        let Some(claim) = found.filter(|claim| is_it(claim) && is_meant(claim)) else { return Ok(false) };
        let version = claim.metadata.resource_version.clone();
        let exactly = Preconditions { uid: Some(uid.to_owned()), resource_version: version };
        prune::delete(&claim, DeleteParams::background().preconditions(exactly), self.world).await?;
        Ok(true)
    }

    async fn let_go(&self, holder: &HolderSeen) -> Result<(), Error> {
        let_go(self.names.namespace(), holder, self.world).await
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.world.shared.client.clone(), self.names.namespace())
    }
}

async fn let_go(namespace: &str, holder: &HolderSeen, world: &World) -> Result<(), Error> {
    hold(namespace, (&holder.name, &holder.uid), json!({}), world).await.map(drop)
}

/// Applies our part of the metadata of the very pod; with its uid in it a pod that is gone is not made again. Whether it was there.
async fn hold(
    namespace: &str,
    (name, uid): (&str, &str),
    mut metadata: Value,
    world: &World,
) -> Result<bool, Error> {
    metadata["name"] = name.into();
    metadata["uid"] = uid.into();
    let part = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    let api: Api<Pod> = Api::namespaced(world.shared.client.clone(), namespace);
    world.shared.metrics.wrote("Pod");
    match api.patch(name, &PatchParams::apply(HOLDS).force(), &Patch::Apply(&part)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(source) => Err(Error::Hold { name: name.to_owned(), source: source.into() }),
    }
}
