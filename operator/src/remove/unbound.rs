//! Deletes claims that never had a volume, such as those of a storage class that does not exist. They hold no data. If they stayed, the next
//! pipeline of the same name would not get ready, since Kubernetes does not recreate an existing claim.
//!
//! ```text
//!  delete the StatefulSet, which would create the claims again for waiting pods --> pods end --> delete the claims, read from the server
//! ```
//!
//! By then the drain of all gateways has ended. A claim that got a volume meanwhile stays.

use crate::{
    read::observe::Facts,
    world::{World, api_error::described, error::Error},
    write::prune,
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use sluice_plan::{
    ClaimSeen,
    volumes::removal::{Unbound, unbound},
};
use tracing::{info, warn};

/// Result for the claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The operator deletes them once the StatefulSet and its pods are gone.
    Waiting,
    /// They are deleted, except those of these names, whose deletion failed.
    Done(Vec<String>),
}

/// Deletes the claims. `waits` is whether the time limit has not passed yet; after it, failures are logged and ignored.
pub async fn throw_away(
    namespace: &str,
    facts: &Facts,
    waits: bool,
    world: &World,
) -> Result<Outcome, Error> {
    let claims = match unbound(&facts.observed) {
        Unbound::MadeAgain(claims) => {
            match end(facts, world).await {
                Ok(()) if waits => return Ok(Outcome::Waiting),
                Err(error) if waits => return Err(error),
                Err(error) => {
                    warn!(
                        error = described(&error),
                        "cannot delete gateways that wait for a volume; Kubernetes deletes them after the pipeline"
                    );
                }
                Ok(()) => {}
            }
            claims
        }
        Unbound::Left(claims) => claims,
    };
    let mut left = Vec::new();
    for claim in claims {
        match one(namespace, claim, world).await {
            Ok(()) => {}
            Err(error) if !waits || error.is_refusal() => {
                warn!(claim = %claim.name, error = described(&error), "cannot delete a claim that never had a volume; it stays");
                left.push(claim.name.clone());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Outcome::Done(left))
}

/// Deletes the StatefulSet, which would create the claims again, or the pods that it left. Kubernetes would do the same after the pipeline.
async fn end(facts: &Facts, world: &World) -> Result<(), Error> {
    match facts.stateful_set.as_deref() {
        Some(workload) if workload.meta().deletion_timestamp.is_none() => {
            info!(workload = %workload.name_any(), "deleting the StatefulSet, which would make claims again for gateways that wait for a volume");
            prune::delete(workload, DeleteParams::background(), world).await
        }
        Some(_) => Ok(()),
        None => prune::end_left_alone(facts, world).await,
    }
}

/// Deletes exactly this claim, by its uid, if it has no volume.
async fn one(namespace: &str, claim: &ClaimSeen, world: &World) -> Result<(), Error> {
    let name = &claim.name;
    let api: Api<PersistentVolumeClaim> = Api::namespaced(world.shared.client.clone(), namespace);
    let found = api.get_opt(name).await;
    let found = found.map_err(|source| {
        Error::request(format!("cannot read whether the PersistentVolumeClaim {name} has a volume"), source)
    })?;
    let is_it = |found: &PersistentVolumeClaim| {
        let has_volume = found.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
        found.uid().as_ref() == Some(&claim.uid) && !has_volume && found.meta().deletion_timestamp.is_none()
    };
    let Some(found) = found.filter(is_it) else { return Ok(()) };
    // The resource version fails the deletion if the claim got a volume meanwhile.
    let exactly = Preconditions { uid: found.uid(), resource_version: found.resource_version() };
    prune::delete(&found, DeleteParams::background().preconditions(exactly), world).await?;
    info!(claim = %name, "deleted a claim that never had a volume, with its pipeline");
    Ok(())
}
