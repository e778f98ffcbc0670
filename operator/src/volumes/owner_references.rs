//! Removes the StatefulSet from the owner references of claims that must outlive it. `sluice_plan::volumes::claim_owners` chooses the claims. The
//! patch replaces the whole list of owner references, names the version that was read, and changes nothing else.

use crate::world::{World, error::Error};
use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use sluice_crds::TracePipeline;
use sluice_plan::{ClaimSeen, Names, VolumesSeen, volumes::claim_owners as planned};
use tracing::info;

/// Field manager of the owner references of claims.
pub const OWNERS: &str = "sluice-operator/owners";

/// Releases the claims without a gateway from a StatefulSet whose policy is to retain them.
pub async fn unused(pipeline: &TracePipeline, seen: &VolumesSeen, world: &World) -> Result<(), Error> {
    let Ok(names) = Names::of(pipeline) else { return Ok(()) };
    release(&names, planned::unused(seen), world).await.1
}

/// Releases these claims from their StatefulSet, if they still have the uid that was read. A failed write does not stop the others. Returns
/// the names of the released claims.
pub async fn release<'a>(
    names: &Names,
    claims: impl Iterator<Item = &'a ClaimSeen>,
    world: &World,
) -> (Vec<String>, Result<(), Error>) {
    let (mut released, mut ended) = (Vec::new(), Ok(()));
    for claim in claims {
        match one(names, claim, world).await {
            Ok(true) => released.push(claim.name.clone()),
            Ok(false) => {}
            Err(error) => ended = ended.and(Err(error)),
        }
    }
    (released, ended)
}

/// Releases one claim. Returns whether it is released; `false` if it changed meanwhile, so that the next reconcile reads it again.
async fn one(names: &Names, claim: &ClaimSeen, world: &World) -> Result<bool, Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(world.shared.client.clone(), names.namespace());
    let name = &claim.name;
    let found = api.get_metadata_opt(name).await;
    let found = found.map_err(|source| {
        Error::request(
            format!("cannot read the owner references of the PersistentVolumeClaim {name}"),
            source,
        )
    })?;
    let Some(found) = found.filter(|found| found.uid().as_ref() == Some(&claim.uid)) else {
        return Ok(false);
    };
    let prefix = names.claim_prefix();
    let is_other = |owner: &&OwnerReference| !ClaimSeen::is_workload(owner, &prefix);
    let others: Vec<&OwnerReference> = found.owner_references().iter().filter(is_other).collect();
    if others.len() == found.owner_references().len() {
        return Ok(true);
    }
    let patch = json!({"metadata": {
        "uid": found.uid(), "resourceVersion": found.resource_version(), "ownerReferences": others,
    }});
    let how = PatchParams { field_manager: Some(OWNERS.to_owned()), ..PatchParams::default() };
    world.shared.metrics.wrote("PersistentVolumeClaim");
    match api.patch_metadata(name, &how, &Patch::Merge(patch)).await {
        Ok(_) => {
            info!(claim = %name, "removed the StatefulSet from the claim's owner references: the queue volume outlives it");
            Ok(true)
        }
        // It is gone, or changed meanwhile, for example by the StatefulSet controller, which does the same.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(source) => {
            let action = format!(
                "cannot remove the StatefulSet from the owner references of the PersistentVolumeClaim {name}"
            );
            Err(Error::request(action, source))
        }
    }
}
