//! The queue volumes: reads claims, Jobs and storage classes, and does what `sluice_plan::volumes` decides.
//!
//! Claims are Kubernetes' and people's as much as ours: the operator writes their size ([`SIZES`]), the mark that says they are
//! drained ([`MARKS`]), their owners ([`crate::release`]) and what keeps Argo CD from them ([`crate::claim_guard`]), each under a
//! field manager of its own, and nothing else. Before a claim without a gateway is touched in a way that cannot be taken back, the API
//! server is asked again: copies may be a moment old, and a gateway may have started since.

use crate::{
    api_error::{ApiError, ErrorClass, described},
    apply::{self, is_of},
    cache::{find, is_owned},
    memory::Key,
    prune::{self, delete},
    reconcile::World,
    replacement,
};
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        batch::v1::Job,
        core::v1::{PersistentVolumeClaim, Pod},
        storage::v1::StorageClass,
    },
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use sluice_crds::{QueueMode, TracePipeline};
use sluice_plan::{
    ClaimSeen, DrainJobSeen, Names, Plan, TemplateSeen, VolumesSeen, drain_job, names, pods,
    volumes::{Drain, GrowthState, growth::classes_to_ask, orphans},
};
use std::{collections::BTreeMap, time::Instant};
use tracing::{debug, info};

/// Field manager of the size of claims.
pub const SIZES: &str = "sluice-operator/volumes";
/// Field manager of the mark on drained claims.
pub const MARKS: &str = "sluice-operator/drained";

/// Claims without a gateway that one reconcile touches: each takes four requests, and the next reconcile follows.
const TOUCHED_MAX: usize = 16;

/// Characters of a refusal that are noted on a claim: what the API server says takes 200.
const REFUSAL_CHARS_MAX: usize = 400;

/// What could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage class.
    #[error("cannot read the StorageClass {name}")]
    Class { name: String, source: ApiError },
    /// Whether a volume is in use was asked once more.
    #[error("cannot see whether the PersistentVolumeClaim {name} is in use")]
    Look { name: String, source: ApiError },
    #[error("cannot change the PersistentVolumeClaim {name}")]
    Claim { name: String, source: ApiError },
    /// A Job that drains.
    #[error(transparent)]
    Apply(#[from] apply::Error),
    /// A claim, a Job, or the StatefulSet that is made anew.
    #[error(transparent)]
    Delete(#[from] prune::Error),
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Class { source, .. } | Self::Look { source, .. } | Self::Claim { source, .. } => {
                source.class()
            }
            Self::Apply(error) => error.class(),
            Self::Delete(error) => error.class(),
        }
    }
}

/// Reads all that concerns the volumes of a pipeline. `pods` are its gateways', `workload` is their StatefulSet.
pub async fn look(
    pipeline: &TracePipeline,
    names: &Names,
    pods: &[Pod],
    workload: Option<&StatefulSet>,
    world: &World,
) -> Result<VolumesSeen, Error> {
    let seen = seen(pipeline, names, pods, workload, world);
    if pipeline.spec.queue.mode == QueueMode::Disabled {
        return Ok(seen);
    }
    let classes = classes_to_ask(&pipeline.spec.queue, &seen.claims);
    Ok(VolumesSeen { expandable: expandable(&classes, world).await?, ..seen })
}

/// The same from copies alone: nobody is asked.
pub fn seen(
    pipeline: &TracePipeline,
    names: &Names,
    pods: &[Pod],
    workload: Option<&StatefulSet>,
    world: &World,
) -> VolumesSeen {
    // Those that end belong to a pipeline that is gone.
    let staying = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let highest = staying.filter_map(pods::ordinal).max();
    let is_alone = workload.is_none();
    let left_alone = highest.filter(|_| is_alone).map(|highest| highest.saturating_add(1));
    if pipeline.spec.queue.mode == QueueMode::Disabled {
        return VolumesSeen { left_alone, ..VolumesSeen::default() };
    }
    let prefix = names.claim_prefix();
    let of_pipeline = world.cache.claims_of(names.namespace(), names.pipeline());
    let mut claims: Vec<ClaimSeen> =
        of_pipeline.iter().filter_map(|claim| ClaimSeen::of(claim, &prefix, pods)).collect();
    claims.sort_by_key(|claim| claim.ordinal);
    VolumesSeen {
        expandable: BTreeMap::new(),
        not_replaced: None,
        holders: replacement::holders(pods.iter()),
        replacing: replacement::written(pipeline).cloned(),
        left_alone,
        template: workload.map(TemplateSeen::of),
        jobs: jobs(pipeline, names, world),
        refusal: None,
        claims,
    }
}

fn jobs(pipeline: &TracePipeline, names: &Names, world: &World) -> Vec<DrainJobSeen> {
    let pods = world.cache.pods_of(names.namespace(), names.pipeline());
    let owner_uid = pipeline.uid().unwrap_or_default();
    // Also those that a pipeline of this name has left behind.
    let is_ours = |job: &Job| {
        job.namespace().as_deref() == Some(names.namespace()) && is_of(job, names.pipeline(), &owner_uid)
    };
    let jobs = world.cache.jobs.state_filter(is_ours);
    let seen = jobs.iter().filter_map(|job| {
        let uid = job.uid().unwrap_or_default();
        let own: Vec<Pod> =
            pods.iter().filter(|pod| is_owned(&***pod, &uid)).map(|pod| Pod::clone(pod)).collect();
        DrainJobSeen::of(job, &own, Timestamp::now())
    });
    let mut seen: Vec<DrainJobSeen> = seen.collect();
    seen.sort_by_key(|job| job.ordinal);
    seen
}

/// Whether these classes let volumes grow. Without the right to look nothing is known, and the API server's answer decides.
async fn expandable(classes: &[String], world: &World) -> Result<BTreeMap<String, bool>, Error> {
    let api: Api<StorageClass> = Api::all(world.shared.client.clone());
    let mut known = BTreeMap::new();
    for name in classes {
        match api.get_opt(name).await {
            Ok(Some(class)) => {
                known.insert(name.clone(), class.allow_volume_expansion == Some(true));
            }
            Ok(None) => {}
            Err(kube::Error::Api(status)) if status.code == 403 => {
                debug!(class = %name, "no right to read StorageClasses; volumes are asked to grow all the same");
            }
            Err(source) => return Err(Error::Class { name: name.clone(), source: source.into() }),
        }
    }
    Ok(known)
}

/// Asks claims to grow. What the API server says when it does not let one is no failure: it is told, and nothing else waits for it.
pub async fn grow(plan: &Plan, world: &World) -> Result<Option<String>, Error> {
    let Some(growth) = plan.growth() else { return Ok(None) };
    let GrowthState::Ask(claims) = &growth.state else { return Ok(None) };
    let api = claims_of(plan.names(), world);
    for (name, uid) in claims {
        let asked = json!({"resources": {"requests": {"storage": growth.wanted}}});
        world.shared.metrics.wrote("PersistentVolumeClaim");
        match patch(&api, (name, uid), SIZES, &json!({"spec": asked})).await {
            Ok(_) => info!(claim = %name, size = %growth.wanted, "a queue volume grows"),
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                return Ok(Some(status.message.clone()));
            }
            // It went, or another one has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(source) => return Err(Error::Claim { name: name.clone(), source: source.into() }),
        }
    }
    Ok(None)
}

/// Deletes the StatefulSet without its pods, when the plan says so; the next reconcile makes it again and it takes them over.
///
/// `workload` is the one that the plan was made from, and no other version of it is deleted: a template that was given since would
/// lose what is gone back to when it fails.
pub async fn make_anew(plan: &Plan, workload: Option<&StatefulSet>, world: &World) -> Result<(), Error> {
    let is_due = plan.growth().is_some_and(|growth| growth.state == GrowthState::Recreate);
    let Some(workload) = workload.filter(|_| is_due) else { return Ok(()) };
    info!(workload = %workload.name_any(), "made again around its pods, for other volumes");
    let exactly = Preconditions { resource_version: workload.resource_version(), uid: workload.uid() };
    Ok(delete(workload, DeleteParams::orphan().preconditions(exactly), world).await?)
}

/// Sees to volumes that no gateway uses, and says how many gateways there may be before Jobs have let go of theirs.
pub async fn tend(
    pipeline: &TracePipeline,
    plan: &Plan,
    (current, wanted): (u32, u32),
    seen: &VolumesSeen,
    world: &World,
) -> Result<u32, Error> {
    let steps = orphans(current, wanted, plan.deletes_drained_volumes(), seen);
    let tending = Tending { pipeline, plan, seen, world };
    for claim in &steps.unmark {
        tending.mark(claim, Mark::None).await?;
    }
    for name in &steps.end {
        if let Some(job) = find(&world.cache.jobs, plan.names().namespace(), name) {
            // In the foreground: the Job is gone when its pod is.
            delete(&*job, DeleteParams::foreground(), world).await?;
        }
    }
    for claim in steps.mark.iter().take(TOUCHED_MAX) {
        if tending.unused(claim).await?.is_some() {
            tending.mark(claim, Mark::Drained).await?;
        }
    }
    for claim in steps.delete.iter().take(TOUCHED_MAX) {
        if let Some(unused) = tending.unused(claim).await? {
            tending.delete(&unused).await?;
        }
    }
    tending.ask_again(&steps.refused).await?;
    for drain in steps.drain.iter().take(TOUCHED_MAX) {
        tending.drain(drain).await?;
    }
    Ok(steps.replicas_max.map_or(wanted, |most| most.min(wanted)))
}

/// What is written on a claim. It is all that our field manager has there, so that what is not named goes.
#[derive(Debug, Clone, Copy)]
enum Mark<'a> {
    /// Nothing: a gateway has it.
    None,
    /// A Job has found it empty.
    Drained,
    /// The same, and this is why it is not deleted.
    NotDeleted(&'a str),
}

struct Tending<'a> {
    pipeline: &'a TracePipeline,
    plan: &'a Plan,
    seen: &'a VolumesSeen,
    world: &'a World,
}

impl Tending<'_> {
    /// The claim as the API server has it now, if it still is that one, and nobody has it or may have had it since it was looked at.
    async fn unused(&self, (name, uid): &(String, String)) -> Result<Option<PersistentVolumeClaim>, Error> {
        let names = self.plan.names();
        let failed = |source: kube::Error| Error::Look { name: name.clone(), source: source.into() };
        let client = &self.world.shared.client;
        let workloads: Api<StatefulSet> = Api::namespaced(client.clone(), names.namespace());
        let pods: Api<Pod> = Api::namespaced(client.clone(), names.namespace());
        let workload = workloads.get_opt(&names.gateway()).await.map_err(failed)?;
        let now = workload.as_ref().map(TemplateSeen::of).filter(|template| !template.is_going);
        let then = self.seen.template.as_ref();
        if now.is_none() || now.as_ref().map(|now| &now.version) != then.map(|then| &then.version) {
            return Ok(None);
        }
        let Some(pod) = name.strip_prefix(&format!("{}-", names::QUEUE_CLAIM)) else { return Ok(None) };
        if pods.get_opt(pod).await.map_err(failed)?.is_some() {
            return Ok(None);
        }
        let claim = claims_of(names, self.world).get_opt(name).await.map_err(failed)?;
        Ok(claim.filter(|claim| {
            let seen = ClaimSeen::of(claim, &names.claim_prefix(), &[]);
            seen.is_some_and(|seen| seen.uid == *uid && !seen.is_going)
        }))
    }

    async fn mark(&self, claim: &(String, String), mark: Mark<'_>) -> Result<(), Error> {
        let (name, uid) = claim;
        let (metadata, what) = match mark {
            Mark::None => (json!({}), "a gateway uses the queue volume again"),
            Mark::Drained => (json!({"labels": {names::DRAINED: "true"}}), "the queue volume is empty"),
            Mark::NotDeleted(why) => (
                json!({"labels": {names::DRAINED: "true"}, "annotations": {names::NOT_DELETED: why}}),
                "the queue volume is empty, and its claim may not be deleted: it is kept",
            ),
        };
        let api = claims_of(self.plan.names(), self.world);
        self.world.shared.metrics.wrote("PersistentVolumeClaim");
        match patch(&api, (name, uid), MARKS, &json!({"metadata": metadata})).await {
            Ok(_) => {}
            // It went, or another one has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(()),
            Err(source) => return Err(Error::Claim { name: name.clone(), source: source.into() }),
        }
        info!(claim = %name, "{what}");
        Ok(())
    }

    /// The very claim that was looked at, in the version that was looked at. Without the right to delete claims it is kept, and where a
    /// policy of the cluster refuses it; that is noted on it, so that it is not asked for at each look, nor drained again for it.
    async fn delete(&self, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let name = claim.name_any();
        let exactly = Preconditions { uid: claim.uid(), resource_version: claim.resource_version() };
        match delete(claim, DeleteParams::background().preconditions(exactly), self.world).await {
            Ok(()) => info!(claim = %name, "a drained queue volume is deleted"),
            Err(error) if matches!(error.class(), ErrorClass::Forbidden | ErrorClass::Refused) => {
                self.may_ask_again();
                let why: String = described(&error).chars().take(REFUSAL_CHARS_MAX).collect();
                self.mark(&(name, claim.uid().unwrap_or_default()), Mark::NotDeleted(&why)).await?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Asks once in a while, without deleting anything, whether claims may be deleted by now. Then the note goes, and they are drained once
    /// more before they do.
    async fn ask_again(&self, refused: &[(String, String)]) -> Result<(), Error> {
        let Some((name, uid)) = refused.first().filter(|_| self.may_ask_again()) else { return Ok(()) };
        let exactly = Preconditions { uid: Some(uid.clone()), resource_version: None };
        let how = DeleteParams::background().dry_run().preconditions(exactly);
        let named = (self.plan.names().namespace(), name.as_str());
        match prune::delete_named::<PersistentVolumeClaim>(named, how, self.world).await {
            Ok(()) => {}
            Err(error) if matches!(error.class(), ErrorClass::Forbidden | ErrorClass::Refused) => {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        for claim in refused {
            self.mark(claim, Mark::Drained).await?;
        }
        Ok(())
    }

    /// Whether it may be asked now; from then on it was.
    fn may_ask_again(&self) -> bool {
        let names = self.plan.names();
        let key = Key { namespace: names.namespace().to_owned(), name: names.pipeline().to_owned() };
        self.world.shared.memory.may_ask_for_deletion(&key, Instant::now())
    }

    /// Makes the Job, and changes none: what a Job proves, it proves of when it was made. One of this name that is there goes first.
    async fn drain(&self, drain: &Drain) -> Result<(), Error> {
        if self.unused(&(drain.claim.clone(), drain.claim_uid.clone())).await?.is_none() {
            return Ok(());
        }
        let job: Job = drain_job(self.plan, drain);
        let (name, names) = (job.name_any(), self.plan.names());
        let jobs: Api<Job> = Api::namespaced(self.world.shared.client.clone(), names.namespace());
        let there = jobs.get_metadata_opt(&name).await;
        let there = there.map_err(|source| Error::Look { name, source: source.into() })?;
        // What belongs to somebody else is refused below, in words.
        let owner_uid = self.pipeline.uid().unwrap_or_default();
        if there.is_some_and(|job| is_of(&job, names.pipeline(), &owner_uid)) {
            return Ok(());
        }
        info!(claim = %drain.claim, "a queue volume without a gateway is drained");
        apply::apply_one(self.pipeline, &self.world.cache.jobs, job, self.world).await?;
        Ok(())
    }
}

pub(crate) fn claims_of(names: &Names, world: &World) -> Api<PersistentVolumeClaim> {
    Api::namespaced(world.shared.client.clone(), names.namespace())
}

/// Applies a part of the very claim. With its uid in it a claim that is gone is not made again.
pub(crate) async fn patch(
    api: &Api<PersistentVolumeClaim>,
    (name, uid): (&str, &str),
    manager: &str,
    part: &Value,
) -> kube::Result<PersistentVolumeClaim> {
    let mut object = part.clone();
    object["apiVersion"] = "v1".into();
    object["kind"] = "PersistentVolumeClaim".into();
    object["metadata"]["name"] = name.into();
    object["metadata"]["uid"] = uid.into();
    api.patch(name, &PatchParams::apply(manager).force(), &Patch::Apply(&object)).await
}
