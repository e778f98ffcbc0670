//! Takes the StatefulSet out of the owners of claims that are to outlive it, as `sluice_plan::volumes::release` decides. Writes nothing else
//! of a claim: the list of owners is replaced as a whole, and only in the version in which it was read.

use crate::{
    api_error::{ApiError, ErrorClass},
    reconcile::World,
};
use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use sluice_crds::TracePipeline;
use sluice_plan::{ClaimSeen, Names, VolumesSeen, volumes::release as planned};
use tracing::info;

/// Field manager of the owners of claims.
pub const OWNERS: &str = "sluice-operator/owners";

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not show the claim.
    #[error("cannot read the owner references of the PersistentVolumeClaim {name}")]
    Look {
        /// Its name.
        name: String,
        /// What the API server said.
        source: ApiError,
    },
    /// The server did not take the owner away.
    #[error("cannot remove the StatefulSet from the owner references of the PersistentVolumeClaim {name}")]
    Release {
        /// Its name.
        name: String,
        /// What the API server said.
        source: ApiError,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Look { source, .. } | Self::Release { source, .. } => source.class(),
        }
    }
}

/// Has the claims without a gateway outlive the StatefulSet that is told to keep them.
pub async fn unused(pipeline: &TracePipeline, seen: &VolumesSeen, world: &World) -> Result<(), Error> {
    let Ok(names) = Names::of(pipeline) else { return Ok(()) };
    release(&names, planned::unused(seen), world).await.1
}

/// Has these claims outlive the StatefulSet, as far as they are still those that were looked at. One that cannot be written keeps no
/// other from it. Gives the names of those that do not go with it any more.
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

/// Whether the claim does not go with the StatefulSet any more; not when it was changed meanwhile, which is looked at again.
async fn one(names: &Names, claim: &ClaimSeen, world: &World) -> Result<bool, Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(world.shared.client.clone(), names.namespace());
    let name = &claim.name;
    let found = api.get_metadata_opt(name).await;
    let found = found.map_err(|source| Error::Look { name: name.clone(), source: source.into() })?;
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
        // It went, or somebody has changed it since, such as the StatefulSet controller who does the same.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(source) => Err(Error::Release { name: name.clone(), source: source.into() }),
    }
}
