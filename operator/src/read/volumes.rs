//! Reads the facts about the queue volumes: claims, the pods and Jobs that use them, and storage classes.

use crate::world::{
    World,
    cache::{is_of, is_owned},
    error::Error,
    status,
};
use k8s_openapi::{
    api::{apps::v1::StatefulSet, batch::v1::Job, core::v1::Pod, storage::v1::StorageClass},
    jiff::Timestamp,
};
use kube::{Api, ResourceExt};
use sluice_crds::{QueueMode, TracePipeline};
use sluice_plan::{
    ClaimSeen, DrainJobSeen, HolderSeen, Names, TemplateSeen, VolumesSeen, pods,
    volumes::growth::classes_to_ask,
};
use std::collections::BTreeMap;
use tracing::debug;

/// The facts about the queue volumes of a pipeline. `pods` are those of its gateways, `workload` is their StatefulSet.
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

/// As [`look`], from the copies alone, without a request.
pub fn seen(
    pipeline: &TracePipeline,
    names: &Names,
    pods: &[Pod],
    workload: Option<&StatefulSet>,
    world: &World,
) -> VolumesSeen {
    // Pods that are being deleted may belong to a deleted pipeline of the same name.
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
        holders: holders(pods.iter()),
        replacing: status::replacement(pipeline).cloned(),
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
    // Also Jobs that a deleted pipeline of this name left behind.
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

/// Whether volumes of these classes can grow. Without the right to read a StorageClass it is not known: the API server decides when the operator
/// asks for the growth.
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
            Err(source) => {
                return Err(Error::request(format!("cannot read the StorageClass {name}"), source));
            }
        }
    }
    Ok(known)
}

/// The facts about pods that a replacement needs, by ordinal.
pub fn holders<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<HolderSeen> {
    let now = Timestamp::now();
    let mut holders: Vec<HolderSeen> = pods.filter_map(|pod| HolderSeen::of(pod, now)).collect();
    holders.sort_by_key(|holder| holder.ordinal);
    holders
}
