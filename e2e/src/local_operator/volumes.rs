//! Volumes without a disk: a storage class of one namespace, and for each of its claims a volume that nobody mounts, since no kubelet runs
//! the pods ([`super::Node`]).
//!
//! ```text
//! claim of the class -> PersistentVolume that names the claim -> bound by Kubernetes, as any other
//! ```
//!
//! Owner: the run; a task for the watch, which ends when this is dropped. Limits: volumes do not grow.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, Namespace, Seen, is_missing, until};

/// Whose volumes they are; nobody answers to it.
const PROVISIONER: &str = "sluice.dev/no-disk";

/// Label of the volumes of one class.
const OF_CLASS: &str = "sluice.dev/no-disk";

/// Claims that are worked on at the same time.
const CLAIMS_MAX: usize = 16;

/// How long hundreds of volumes may take to go once their claims are gone.
const GONE: Duration = Duration::from_mins(2);

/// The class and its volumes.
pub struct Volumes {
    cluster: Cluster,
    class: String,
    task: JoinHandle<()>,
}

impl Volumes {
    /// Makes the class, by the namespace's name, and volumes for the claims of it in the namespace.
    pub async fn start(namespace: &Namespace) -> Result<Volumes> {
        let (cluster, class) = (namespace.cluster().clone(), namespace.name().to_owned());
        cluster
            .apply(&json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class},
                "provisioner": PROVISIONER, "volumeBindingMode": "Immediate", "reclaimPolicy": "Retain",
            }))
            .await?;
        let (claims, volumes) = (namespace.api(), Api::all(cluster.client()));
        let task = tokio::spawn(provide(claims, volumes, class.clone()));
        Ok(Volumes { cluster, class, task })
    }

    /// The class's name.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// Takes class and volumes away. Their claims must be gone.
    pub async fn remove(self) -> Result<()> {
        let (volumes, of_class) = (
            Api::<PersistentVolume>::all(self.cluster.client()),
            ListParams::default().labels(&format!("{OF_CLASS}={}", self.class)),
        );
        volumes.delete_collection(&DeleteParams::default(), &of_class).await.context("delete the volumes")?;
        until("end of the volumes", GONE, async || {
            let left = volumes.list_metadata(&of_class).await.context("list the volumes")?.items.len();
            Ok(if left == 0 { Seen::Done(()) } else { Seen::NotYet(format!("{left} left")) })
        })
        .await?;
        let classes: Api<StorageClass> = Api::all(self.cluster.client());
        match classes.delete(&self.class, &DeleteParams::default()).await {
            Err(error) if !is_missing(&error) => Err(error).context("delete the storage class"),
            _ => Ok(()),
        }
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A watch that breaks begins anew; a request that fails is made again by the claim's next event, of which the watch's next list is one.
async fn provide(claims: Api<PersistentVolumeClaim>, volumes: Api<PersistentVolume>, class: String) {
    let claims = watcher(claims, watcher::Config::default()).default_backoff().applied_objects();
    let each = claims.into_stream().for_each_concurrent(CLAIMS_MAX, |claim| async {
        if let Some(volume) = claim.ok().and_then(|claim| volume_for(&claim, &class)) {
            volumes.create(&PostParams::default(), &volume).await.ok();
        }
    });
    each.await;
}

/// `None` when the claim is of another class, or has a volume.
fn volume_for(claim: &PersistentVolumeClaim, class: &str) -> Option<PersistentVolume> {
    let spec: Value = serde_json::to_value(claim.spec.as_ref()?).ok()?;
    let is_ours =
        spec["storageClassName"] == class && spec["volumeName"].as_str().unwrap_or_default().is_empty();
    if !is_ours || claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let volume = json!({
        "metadata": {"name": format!("{class}-{}", claim.uid()?), "labels": {OF_CLASS: class}},
        "spec": {
            "capacity": spec["resources"]["requests"], "accessModes": spec["accessModes"],
            "storageClassName": class, "persistentVolumeReclaimPolicy": "Retain",
            // Nobody looks there.
            "hostPath": {"path": "/nonexistent"},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.name_any(),
                "namespace": claim.namespace(), "uid": claim.uid(),
            },
        },
    });
    serde_json::from_value(volume).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_of_the_class_that_has_no_volume_gets_one() {
        let claim = |class: &str, volume: Option<&str>| {
            let claim = json!({
                "metadata": {"name": "queue-a-0", "namespace": "n", "uid": "u"},
                "spec": {
                    "storageClassName": class, "volumeName": volume, "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            });
            serde_json::from_value(claim).unwrap()
        };
        let volume = serde_json::to_value(volume_for(&claim("ours", None), "ours").unwrap()).unwrap();
        assert_eq!(volume["spec"]["capacity"]["storage"], "1Gi");
        assert_eq!(volume["spec"]["claimRef"]["uid"], "u");
        assert_eq!(volume_for(&claim("ours", Some("v")), "ours"), None);
        assert_eq!(volume_for(&claim("theirs", None), "ours"), None);
    }
}
