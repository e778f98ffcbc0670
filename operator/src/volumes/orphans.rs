//! Queue volumes that no gateway uses, as `sluice_plan::volumes::orphans` decides: a Job drains each, the operator marks its claim as drained, and
//! deletes it if the spec says so.
//!
//! Copies of the watches may be a moment old, and a gateway may have started since. So before each step that cannot be undone, the operator reads
//! the StatefulSet, the pod and the claim from the API server.

use super::claims::{claims_of, not_changed, patch};
use crate::{
    world::{
        World,
        api_error::described,
        cache::{find, is_of},
        error::Error,
        memory::Key,
    },
    write::{
        apply,
        prune::{self, delete},
    },
};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    batch::v1::Job,
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use serde_json::json;
use sluice_crds::TracePipeline;
use sluice_plan::{
    ClaimSeen, Plan, TemplateSeen, VolumesSeen, drain_job, names,
    volumes::{Drain, orphans},
};
use std::time::Instant;
use tracing::info;

/// Field manager of the mark on drained claims.
pub const MARKS: &str = "sluice-operator/drained";

/// Claims without a gateway that one reconcile handles: each takes four requests. The next reconcile handles more.
const TOUCHED_MAX: usize = 16;

/// Longest refusal that is written to a claim, in characters. The API server's texts have about 200.
const REFUSAL_CHARS_MAX: usize = 400;

/// Takes the next steps for volumes without a gateway. Returns how many gateways may run: a Job may still use the volume of the next one.
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
            // In the foreground: then the Job exists until its pod has ended.
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

/// What the operator writes to a claim. It is all that the field manager [`MARKS`] has there, so that an apply removes what is missing in it.
#[derive(Debug, Clone, Copy)]
enum Mark<'a> {
    /// Nothing: a gateway uses the volume.
    None,
    /// A Job found the volume empty.
    Drained,
    /// The same, and why the API server refused to delete the claim.
    NotDeleted(&'a str),
}

struct Tending<'a> {
    pipeline: &'a TracePipeline,
    plan: &'a Plan,
    seen: &'a VolumesSeen,
    world: &'a World,
}

impl Tending<'_> {
    /// The claim, read from the API server. `None` if it is another claim, or if a gateway uses it or may have used it since the copy was read.
    async fn unused(&self, (name, uid): &(String, String)) -> Result<Option<PersistentVolumeClaim>, Error> {
        let names = self.plan.names();
        let failed = |source: kube::Error| not_seen(name, source);
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
            // It is gone, or another claim has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return Ok(()),
            Err(source) => return Err(not_changed(name, source)),
        }
        info!(claim = %name, "{what}");
        Ok(())
    }

    /// Deletes exactly this claim, in the version that was read. If the operator lacks the right, or a policy of the cluster refuses the
    /// deletion, the claim stays and gets the refusal as an annotation: then the operator does not ask at each reconcile, nor drain it again.
    async fn delete(&self, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let name = claim.name_any();
        let exactly = Preconditions { uid: claim.uid(), resource_version: claim.resource_version() };
        match delete(claim, DeleteParams::background().preconditions(exactly), self.world).await {
            Ok(()) => info!(claim = %name, "a drained queue volume is deleted"),
            Err(error) if error.is_refusal() => {
                self.may_ask_again();
                let why: String = described(&error).chars().take(REFUSAL_CHARS_MAX).collect();
                self.mark(&(name, claim.uid().unwrap_or_default()), Mark::NotDeleted(&why)).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Asks once an hour, by a dry run, whether claims may be deleted by now. If so, removes the refusals from the claims. A Job drains them once
    /// more before the operator deletes them.
    async fn ask_again(&self, refused: &[(String, String)]) -> Result<(), Error> {
        let Some((name, uid)) = refused.first().filter(|_| self.may_ask_again()) else { return Ok(()) };
        let exactly = Preconditions { uid: Some(uid.clone()), resource_version: None };
        let how = DeleteParams::background().dry_run().preconditions(exactly);
        let named = (self.plan.names().namespace(), name.as_str());
        match prune::delete_named::<PersistentVolumeClaim>(named, how, self.world).await {
            Ok(()) => {}
            Err(error) if error.is_refusal() => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        for claim in refused {
            self.mark(claim, Mark::Drained).await?;
        }
        Ok(())
    }

    /// Whether to ask now. If so, records that it was asked.
    fn may_ask_again(&self) -> bool {
        let names = self.plan.names();
        let key = Key { namespace: names.namespace().to_owned(), name: names.pipeline().to_owned() };
        self.world.shared.memory.may_ask_for_deletion(&key, Instant::now())
    }

    /// Creates the Job, and never changes one: a Job proves that the volume was empty after the Job was created. An older Job of this name must go
    /// first.
    async fn drain(&self, drain: &Drain) -> Result<(), Error> {
        if self.unused(&(drain.claim.clone(), drain.claim_uid.clone())).await?.is_none() {
            return Ok(());
        }
        let job: Job = drain_job(self.plan, drain);
        let (name, names) = (job.name_any(), self.plan.names());
        let jobs: Api<Job> = Api::namespaced(self.world.shared.client.clone(), names.namespace());
        let there = jobs.get_metadata_opt(&name).await;
        let there = there.map_err(|source| not_seen(&name, source))?;
        // `apply_one` refuses a Job of that name that does not belong to the pipeline.
        let owner_uid = self.pipeline.uid().unwrap_or_default();
        if there.is_some_and(|job| is_of(&job, names.pipeline(), &owner_uid)) {
            return Ok(());
        }
        info!(claim = %drain.claim, "a queue volume without a gateway is drained");
        apply::apply_one(self.pipeline, &self.world.cache.jobs, job, self.world).await?;
        Ok(())
    }
}

/// A failed request that asks whether a volume is in use.
fn not_seen(name: &str, source: kube::Error) -> Error {
    Error::request(format!("cannot see whether the PersistentVolumeClaim {name} is in use"), source)
}
