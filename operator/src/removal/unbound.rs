//! Claims that never had a volume, such as those of a storage class that does not exist: nothing is on them, and they would keep the next
//! pipeline of the same name from being ready, since a claim that is there is not made anew. So they go with their pipeline.
//!
//! ```text
//!  a StatefulSet makes them again for pods that wait --> it is deleted --> pods end --> claims are deleted, as the server has them
//! ```
//!
//! All gateways have left by then, or are waited for no more. What has got a volume meanwhile stays.

use crate::{
    api_error::{ApiError, ErrorClass, described},
    observe::Facts,
    prune,
    reconcile::World,
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

/// What could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server did not show the claim.
    #[error("cannot read whether the PersistentVolumeClaim {name} has a volume")]
    Look {
        /// Its name.
        name: String,
        /// What the API server said.
        source: ApiError,
    },
    /// The StatefulSet, a pod that waits, or a claim.
    #[error(transparent)]
    Delete(#[from] prune::Error),
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Look { source, .. } => source.class(),
            Self::Delete(error) => error.class(),
        }
    }
}

/// What has become of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// They go once nobody makes them again.
    Waiting,
    /// They are gone, but for those of these names, which the server does not let go.
    Done(Vec<String>),
}

/// Throws them away. `waits` is whether anything is waited for; without that, what fails is left as it is.
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
                Err(error) if waits => return Err(error.into()),
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
            Err(error) if !waits || matches!(error.class(), ErrorClass::Forbidden | ErrorClass::Refused) => {
                warn!(claim = %claim.name, error = described(&error), "cannot delete a claim that never had a volume; it stays");
                left.push(claim.name.clone());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Outcome::Done(left))
}

/// Takes away who makes the claims again, and the pods that it leaves: what Kubernetes would do after the pipeline.
async fn end(facts: &Facts, world: &World) -> Result<(), prune::Error> {
    match facts.stateful_set.as_deref() {
        Some(workload) if workload.meta().deletion_timestamp.is_none() => {
            info!(workload = %workload.name_any(), "deleting the StatefulSet, which would make claims again for gateways that wait for a volume");
            prune::delete(workload, DeleteParams::background(), world).await
        }
        Some(_) => Ok(()),
        None => prune::end_left_alone(facts, world).await,
    }
}

/// Deletes the very claim as long as it has no volume.
async fn one(namespace: &str, claim: &ClaimSeen, world: &World) -> Result<(), Error> {
    let name = &claim.name;
    let api: Api<PersistentVolumeClaim> = Api::namespaced(world.shared.client.clone(), namespace);
    let found = api.get_opt(name).await;
    let found = found.map_err(|source| Error::Look { name: name.clone(), source: source.into() })?;
    let is_it = |found: &PersistentVolumeClaim| {
        let has_volume = found.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
        found.uid().as_ref() == Some(&claim.uid) && !has_volume && found.meta().deletion_timestamp.is_none()
    };
    let Some(found) = found.filter(is_it) else { return Ok(()) };
    // In this version it has no volume.
    let exactly = Preconditions { uid: found.uid(), resource_version: found.resource_version() };
    prune::delete(&found, DeleteParams::background().preconditions(exactly), world).await?;
    info!(claim = %name, "deleted a claim that never had a volume, with its pipeline");
    Ok(())
}
