//! Grows queue volumes, as `sluice_plan::volumes::growth` decides: the claims of running gateways, and then the claim template of the StatefulSet.

use super::claims::{claims_of, not_changed, patch};
use crate::{
    world::{World, error::Error},
    write::prune::delete,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{
    ResourceExt,
    api::{DeleteParams, Preconditions},
};
use serde_json::json;
use sluice_plan::{Plan, volumes::GrowthState};
use tracing::info;

/// Field manager of the size of claims.
pub const SIZES: &str = "sluice-operator/volumes";

/// Increases the size of claims. A refusal by the API server does not fail the reconcile, since nothing else depends on the growth: its text is
/// returned for the status.
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
            // It is gone, or another claim has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(source) => return Err(not_changed(name, source)),
        }
    }
    Ok(None)
}

/// Deletes the StatefulSet without its pods, if the plan says so. The next reconcile creates it again, with the claim template of the spec,
/// and it adopts the pods.
///
/// `workload` is the StatefulSet that the plan was made from. Another version of it is not deleted: it may have a newer template, and its
/// annotations have the template to roll back to.
pub async fn make_anew(plan: &Plan, workload: Option<&StatefulSet>, world: &World) -> Result<(), Error> {
    let is_due = plan.growth().is_some_and(|growth| growth.state == GrowthState::Recreate);
    let Some(workload) = workload.filter(|_| is_due) else { return Ok(()) };
    info!(workload = %workload.name_any(), "made again around its pods, for other volumes");
    let exactly = Preconditions { resource_version: workload.resource_version(), uid: workload.uid() };
    delete(workload, DeleteParams::orphan().preconditions(exactly), world).await
}
