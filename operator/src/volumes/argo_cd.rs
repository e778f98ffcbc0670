//! Keeps Argo CD from deleting queue volumes.
//!
//! Kubernetes gives a claim the labels by which the StatefulSet selects its pods, and no owner reference. So the claim's
//! `app.kubernetes.io/instance` is the name of the pipeline. If Argo CD tracks by label, it takes the claim for a part of the Application of
//! that name that is not in Git: it prunes the claim, or deletes it with the Application. The labels cannot change: the operator finds the claim
//! by them, and they are immutable in a StatefulSet. So each new claim gets annotations that make Argo CD ignore it
//! ([`names::LEFT_BY_ARGO_CD`]). Values of these keys that another client wrote stay.
//!
//! The scheduler and the provisioner write a new claim in the version that they have read, until it is bound. An annotation in between makes
//! their writes fail. So a claim is annotated once it is bound; before, it has no volume that could be deleted.

use crate::{
    volumes::claims::{claims_of, patch},
    world::World,
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use sluice_crds::TracePipeline;
use sluice_plan::{ClaimSeen, Names, names};
use tracing::{info, warn};

/// Field manager of Argo CD's annotations.
pub const OPTIONS: &str = "sluice-operator/argocd";

/// Claims that one reconcile writes: after an upgrade there may be a thousand, at a few ms each. The next reconcile writes more.
const WRITTEN_MAX: usize = 64;

/// Writes the annotations to bound claims that lack them, also to claims that no gateway uses and of a queue that is switched off.
/// The first failed write is logged and ends the function until the next reconcile. It does not fail this reconcile.
pub async fn guard(pipeline: &TracePipeline, world: &World) {
    let Ok(names) = Names::of(pipeline) else { return };
    let prefix = names.claim_prefix();
    let claims = world.cache.claims_of(names.namespace(), names.pipeline());
    let lacking = claims.iter().filter_map(|claim| {
        let seen = ClaimSeen::of(claim, &prefix, &[]).filter(|seen| !seen.is_going && is_bound(claim))?;
        Some((seen, lacking(claim)?))
    });
    let api = claims_of(&names, world);
    for (ClaimSeen { name, uid, .. }, options) in lacking.take(WRITTEN_MAX) {
        world.shared.metrics.wrote("PersistentVolumeClaim");
        match patch(&api, (&name, &uid), OPTIONS, &json!({"metadata": {"annotations": options}})).await {
            Ok(_) => {
                info!(claim = %name, "annotated the queue volume's claim, so that Argo CD does not delete it");
            }
            // It is gone, or another one has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                warn!(
                    namespace = names.namespace(), claim = %name, %error,
                    "cannot annotate a queue volume's claim: Argo CD that tracks by label may delete it; the operator tries again"
                );
                return;
            }
        }
    }
}

/// Whether Kubernetes has ended what it does with a new claim. It sets the volume first, and the phase last.
fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let is_pending = claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Pending"));
    !is_pending && claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some())
}

/// The annotations to write; `None` if none is missing. A key with another value belongs to another client, and is left out.
fn lacking(claim: &PersistentVolumeClaim) -> Option<Map<String, Value>> {
    let live = |key: &str| claim.annotations().get(key).map(String::as_str);
    let is_missing = names::LEFT_BY_ARGO_CD.iter().any(|(key, _)| live(key).is_none());
    let ours =
        names::LEFT_BY_ARGO_CD.iter().filter(|(key, value)| live(key).is_none_or(|live| live == *value));
    is_missing.then(|| ours.map(|(key, value)| ((*key).to_owned(), (*value).into())).collect())
}
