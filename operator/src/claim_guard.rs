//! Keeps Argo CD from deleting queue volumes.
//!
//! Kubernetes gives a claim the labels by which the StatefulSet selects its pods, so that `app.kubernetes.io/instance` has the name of the
//! pipeline, and no owner. Argo CD that tracks by label takes such a claim for a part of the Application of that name which Git does not
//! have: it prunes it, or deletes it with the Application. The labels are the operator's own way to find the claim, and cannot be changed
//! in a StatefulSet; so each claim gets the options by which Argo CD leaves it alone ([`names::LEFT_BY_ARGO_CD`]), when it is first seen.
//! What somebody else wrote under these keys stays.

use crate::{
    reconcile::World,
    volumes::{claims_of, patch},
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use sluice_crds::TracePipeline;
use sluice_plan::{ClaimSeen, Names, names};
use tracing::{info, warn};

/// Field manager of Argo CD's options.
pub const OPTIONS: &str = "sluice-operator/argocd";

/// Claims that one look writes to: after an upgrade there may be a thousand, at some milliseconds each, and the next look follows.
const WRITTEN_MAX: usize = 64;

/// Writes the options on the claims of gateways that lack them, also those that no gateway uses and those of a queue that is switched off.
/// The first that cannot be written ends it, with a line in the log, until the next look: it is no reason to do nothing else.
pub async fn guard(pipeline: &TracePipeline, world: &World) {
    let Ok(names) = Names::of(pipeline) else { return };
    let prefix = names.claim_prefix();
    let claims = world.cache.claims_of(names.namespace(), names.pipeline());
    let lacking = claims.iter().filter_map(|claim| {
        let seen = ClaimSeen::of(claim, &prefix, &[]).filter(|seen| !seen.is_going)?;
        Some((seen, lacking(claim)?))
    });
    let api = claims_of(&names, world);
    for (ClaimSeen { name, uid, .. }, options) in lacking.take(WRITTEN_MAX) {
        world.shared.metrics.wrote("PersistentVolumeClaim");
        match patch(&api, (&name, &uid), OPTIONS, &json!({"metadata": {"annotations": options}})).await {
            Ok(_) => {
                info!(claim = %name, "annotated the queue volume's claim, so that Argo CD does not delete it")
            }
            // It went, or another one has its name.
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

/// The options as they are to be written; `None` where nothing is missing. What has another value is somebody else's, and is left out.
fn lacking(claim: &PersistentVolumeClaim) -> Option<Map<String, Value>> {
    let live = |key: &str| claim.annotations().get(key).map(String::as_str);
    let is_missing = names::LEFT_BY_ARGO_CD.iter().any(|(key, _)| live(key).is_none());
    let ours =
        names::LEFT_BY_ARGO_CD.iter().filter(|(key, value)| live(key).is_none_or(|live| live == *value));
    is_missing.then(|| ours.map(|(key, value)| ((*key).to_owned(), (*value).into())).collect())
}
