//! Replaces queue volumes, one gateway at a time, as `sluice_plan::volumes::replacement` decides:
//!
//! 1. Drain the gateway.
//! 2. Once it is empty, add a finalizer to its pod and delete the pod.
//! 3. When the pod has ended, still empty, delete the claim.
//! 4. Remove the finalizer.
//!
//! A pod with the finalizer is always finished or released, also if the pipeline changed its spec or is gone: only the operator removes this
//! finalizer.

use crate::{
    read::{
        gateways::{
            Gateway,
            commands::{Command, Commands},
        },
        observe::Facts,
        volumes::holders,
    },
    world::{World, api_error::described, cache::Pipeline, error::Error, memory::Key, status},
    write::{events, prune},
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
    drain::{Answer, Request, lifecycle::terms},
    names::{QUEUE_CLAIM, REPLACES_VOLUME},
    volumes::{
        replacement::{Fate, Seen, Take, fate, never_bound, request, step},
        zone_loss::{OutOfReach, recreated},
    },
};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;
use tracing::{error, info, warn};

/// Field manager of the finalizer and its annotation on pods.
pub const HOLDS: &str = "sluice-operator/replacement";

/// Claims of each kind that one reconcile deletes without a drain; the next reconcile deletes more.
const DISCARDED_MAX: usize = 16;

/// Waits between tries to release the pods of a pipeline that is gone, in seconds. The sum is longer than a restart of the API server.
const LET_GO_WAITS_SECONDS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Does the next step of the current replacement, or begins the next one. The first value is for the status, also after an error.
pub async fn carry_on(
    pipeline: &TracePipeline,
    (plan, may_go_on): (Option<&Plan>, bool),
    facts: &mut Facts,
    world: &World,
    commands: &Commands,
) -> (Option<ReplacementStatus>, Result<(), Error>) {
    let written = status::replacement(pipeline);
    let (Some(terms), Ok(names)) = (terms(pipeline), Names::of(pipeline)) else {
        return (written.cloned(), Ok(()));
    };
    let pods = Held { names: &names, world };
    let written_now = written.cloned();
    let answer = match (request(written), written) {
        (Some((request, gateway)), Some(ReplacementStatus { since, .. })) => {
            match pods.ask((Command { request, since: since.clone() }, gateway), facts, commands).await {
                Ok(answer) => answer,
                Err(error) => return (written_now, Err(error)),
            }
        }
        _ => Answer::Gone,
    };
    let next = plan.and_then(Plan::replaced_next);
    let (queue, volumes) = (&pipeline.spec.queue, &facts.observed.volumes);
    let seen = Seen { queue, volumes, answer, may_go_on, next };
    let step = step(world.now(), terms, written, &seen);
    let begun = step.next.as_ref().filter(|_| written.is_none());
    let claim = begun.and_then(|begun| volumes.claims.iter().find(|claim| claim.ordinal == begun.gateway));
    // Before the drain: a dry run, so that no gateway is drained if its claim cannot be deleted.
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
        // Its answer may be some seconds old, and another client may have resumed it since.
        Some(take) if pods.is_still_empty(&take.pod, facts).await => pods.take(take).await,
        _ => Ok(()),
    };
    (step.next, taken)
}

/// Finishes the pods with the finalizer: deletes the claim of a pod that has ended, or releases a pod whose replacement is obsolete.
pub async fn finish(pipeline: &TracePipeline, world: &World) -> Result<(), Error> {
    let Ok(names) = Names::of(pipeline) else { return Ok(()) };
    let held = Held { names: &names, world };
    let mut ended = Ok(());
    for holder in held_pods(names.namespace(), names.pipeline(), world) {
        // An error about one pod does not stop the others.
        ended = ended.and(held.finish(pipeline, &holder).await);
    }
    ended
}

/// Whether any pod of a pipeline has the finalizer.
pub fn holds_pods(pipeline: &ObjectRef<Pipeline>, world: &World) -> bool {
    !held_pods(pipeline.namespace.as_deref().unwrap_or_default(), &pipeline.name, world).is_empty()
}

/// The pods of a pipeline with the finalizer, from the copies.
fn held_pods(namespace: &str, pipeline: &str, world: &World) -> Vec<HolderSeen> {
    let pods = world.cache.pods_of(namespace, pipeline);
    let mut found = holders(pods.iter().map(|pod| &**pod));
    found.retain(|holder| holder.emptied.is_some());
    found
}

/// Removes the finalizer from all pods of a pipeline that is gone or cannot be parsed. Their claims stay.
pub async fn let_all_go(namespace: &str, pipeline: &str, world: &World) -> Result<(), Error> {
    let mut ended = Ok(());
    for holder in held_pods(namespace, pipeline, world) {
        ended = ended.and(let_go(namespace, &holder, world).await);
    }
    ended
}

/// As [`let_all_go`], for a pipeline that is gone and not reconciled again. Retries until it succeeds, a pipeline of that name exists again,
/// or [`LET_GO_WAITS_SECONDS`] are over.
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
        "pods of a deleted pipeline still have the operator's finalizer; kubectl patch pod NAME -p '{{\"metadata\":{{\"finalizers\":null}}}}' \
         removes it"
    );
}

/// Resumes the gateway that drains for a new volume, because its pipeline is orphaned and the gateway stays. The request is sent once. If it
/// fails, the gateway drains until a person resumes it.
pub async fn give_back(
    pipeline: &TracePipeline,
    facts: &Facts,
    world: &World,
    commands: &Commands,
) -> Result<(), Error> {
    let (Some(written), Ok(names)) = (status::replacement(pipeline), Names::of(pipeline)) else {
        return Ok(());
    };
    let command = Command { request: Request::Resume, since: written.since.clone() };
    let answer = Held { names: &names, world }.ask((command, written.gateway), facts, commands).await?;
    if matches!(answer, Answer::Silent | Answer::OtherPod) {
        warn!(
            namespace = names.namespace(),
            pipeline = names.pipeline(),
            gateway = written.gateway,
            "a gateway that outlives its pipeline was asked to drain, and does not answer; kubectl sluice drain POD --resume ends the drain"
        );
    }
    Ok(())
}

/// Deletes claims that never had a volume and differ from the spec, and claims whose volume no node reaches if `queue.onZoneLoss` says so.
/// Kubernetes creates them again for the waiting pods. Returns the API server's error if it refused to delete one of the latter.
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
        // The resource version fails the deletion if the claim got a volume meanwhile.
        if held.delete_version((name, uid), |claim| !is_bound(claim)).await? {
            info!(claim = %name, "deleted a claim that never had a volume; Kubernetes makes it again");
        }
    }
    let now = world.now();
    for OutOfReach { pod, claim } in recreated(now, pipeline, observed).take(DISCARDED_MAX) {
        let found = held.pods().get_opt(&pod.name).await;
        let found = found.map_err(|source| not_read(&pod.name, source))?;
        let has_node = |pod: &Pod| {
            pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_ref().is_some_and(|node| !node.is_empty()))
        };
        // The copy may be older: check that the pod still has no node.
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
                "no node takes {} that reaches its volume {volume}: the operator replaces the volume (queue.onZoneLoss), and the gateway \
                 reads what is not inserted from Kafka again",
                pod.name
            );
            warn!(claim = %claim.name, "{note}");
            events::recreated(pipeline, &note, &world.shared).await;
        }
    }
    Ok(None)
}

fn not_read(name: &str, source: kube::Error) -> Error {
    Error::request(format!("cannot read {name} before its queue volume is replaced"), source)
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
        if fate(seen, status::replacement(pipeline)) == Fate::Wait {
            return Ok(());
        }
        // The copy may be older than the deletion of the pod, and the next step cannot be undone: read the pod from the server.
        let Some(now) = self.look(&seen.name).await?.filter(|now| now.uid == seen.uid) else { return Ok(()) };
        match fate(&now, status::replacement(pipeline)) {
            Fate::Wait => return Ok(()),
            Fate::LetGo => {
                warn!(pod = %now.name, "the gateway keeps its queue volume: nothing proves that the volume is empty");
            }
            Fate::Replace { claim_uid } => {
                match self.delete_claim(&claim_of(&now.name), claim_uid, false).await {
                    Ok(()) => {
                        let note = format!(
                            "gateway {} was empty: the operator replaces its queue volume",
                            now.ordinal
                        );
                        info!(pod = %now.name, "{note}");
                        events::replaced(pipeline, &note, &self.world.shared).await;
                    }
                    Err(error) if error.is_refusal() => {
                        warn!(pod = %now.name, error = described(&error), "the gateway keeps its queue volume: the API server refuses to delete the claim");
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        self.let_go(&now).await
    }

    /// A pod from the server, not from the copies.
    async fn look(&self, name: &str) -> Result<Option<HolderSeen>, Error> {
        let found = self.pods().get_opt(name).await;
        let found = found.map_err(|source| not_read(name, source))?;
        Ok(found.as_ref().and_then(|pod| HolderSeen::of(pod, Timestamp::now())))
    }

    /// Sends a command to the gateway. Before a resume it removes the pod's finalizer, which it reads from the server, since the copies may be
    /// older. With the finalizer, a block that the resumed gateway puts on its volume would be deleted as proved empty.
    async fn ask(
        &self,
        (command, gateway): (Command, u32),
        facts: &Facts,
        commands: &Commands,
    ) -> Result<Answer, Error> {
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
        let answers = commands.tell(&key, &command, range, &facts.gateways).await;
        Ok(answers.get(&gateway).copied().unwrap_or(Answer::Silent))
    }

    /// Whether the gateway of a pod says now that it drains and holds nothing.
    async fn is_still_empty(&self, pod: &str, facts: &Facts) -> bool {
        let of = |gateway: &&Gateway| format!("{}-{}", self.names.gateway(), gateway.ordinal) == pod;
        match facts.gateways.iter().find(of) {
            Some(gateway) => Box::pin(gateway.request(Request::Drain)).await == Answer::Done,
            None => false,
        }
    }

    /// Adds the finalizer to the pod and deletes the pod, after a dry run of the claim's deletion.
    async fn take(&self, take: &Take) -> Result<(), Error> {
        self.delete_claim(&claim_of(&take.pod), &take.emptied.claim_uid, true).await?;
        // If a previous process already added the finalizer, only delete the pod: so that an operator that is interrupted here each time gets on.
        let now = self.look(&take.pod).await?.filter(|now| now.uid == take.pod_uid);
        let is_held = now.and_then(|now| now.emptied).is_some_and(|emptied| emptied == take.emptied);
        let held =
            json!({"finalizers": [REPLACES_VOLUME], "annotations": {REPLACES_VOLUME: take.emptied.text()}});
        let pod = (take.pod.as_str(), take.pod_uid.as_str());
        if !is_held && !hold(self.names.namespace(), pod, held, self.world).await? {
            return Ok(());
        }
        info!(pod = %take.pod, "deleting the pod of an empty gateway, to replace its queue volume");
        let exactly = Preconditions { uid: Some(take.pod_uid.clone()), resource_version: None };
        let (how, named) =
            (DeleteParams::default().preconditions(exactly), (self.names.namespace(), take.pod.as_str()));
        prune::delete_named::<Pod>(named, how, self.world).await
    }

    /// Deletes exactly this claim, by its uid, unless it is already being deleted. Kubernetes keeps it until its pod is gone. `is_dry` only
    /// checks whether the API server would allow it.
    async fn delete_claim(&self, name: &str, uid: &str, is_dry: bool) -> Result<(), Error> {
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.world.shared.client.clone(), self.names.namespace());
        let found = api.get_metadata_opt(name).await;
        let found = found.map_err(|source| not_read(name, source))?;
        let stays = |metadata: &ObjectMeta| {
            metadata.uid.as_deref() == Some(uid) && metadata.deletion_timestamp.is_none()
        };
        if !found.is_some_and(|found| stays(&found.metadata)) {
            return Ok(());
        }
        let exactly = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let how = DeleteParams { dry_run: is_dry, ..DeleteParams::background().preconditions(exactly) };
        let named = (self.names.namespace(), name);
        prune::delete_named::<PersistentVolumeClaim>(named, how, self.world).await
    }

    /// Deletes exactly this claim in the version for which `is_meant` holds. Returns whether it was deleted.
    async fn delete_version(
        &self,
        (name, uid): (&str, &str),
        is_meant: impl Fn(&PersistentVolumeClaim) -> bool,
    ) -> Result<bool, Error> {
        let api: Api<PersistentVolumeClaim> =
            Api::namespaced(self.world.shared.client.clone(), self.names.namespace());
        let found = api.get_opt(name).await;
        let found = found.map_err(|source| not_read(name, source))?;
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

/// Applies the operator's part of the metadata of exactly this pod: the uid prevents that a pod that is gone is created again. Returns whether
/// the pod exists.
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
        Err(source) => {
            let action = format!("cannot change the finalizer {REPLACES_VOLUME} of the pod {name}");
            Err(Error::request(action, source))
        }
    }
}
