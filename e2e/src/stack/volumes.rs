//! Volumes for pods that are not root: the provisioner of the storage class `standard`. It runs as a process of its own
//! (`stack volumes`), from a copy of this program, so that a new build does not disturb it.
//!
//! Kubernetes' built-in host-path volumes ignore `fsGroup`; volumes of type `local` honour it. For every claim of the class that the
//! scheduler has placed, it makes a folder and a `local` volume that names the claim; when the claim is gone, it removes both.
//!
//! ```text
//! claim + scheduler's annotation -> folder, PersistentVolume (claimRef) -> bound by Kubernetes
//! claim deleted -> volume Released -> PersistentVolume and folder removed
//! ```
//!
//! Limits: one node; sizes are not enforced; volumes do not grow.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{
    LocalVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, ResourceExt};

use super::part::Part;
use crate::process::{Daemon, command};

/// Name of the provisioner in the storage class.
pub const PROVISIONER: &str = "sluice.dev/local-volumes";

/// The storage class.
pub const CLASS: &str = "standard";

/// Name of its process, and of its subcommand.
pub const NAME: &str = "volumes";

/// The scheduler writes here where a claim's pod goes.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Says to Kubernetes that somebody else removes the volume.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Claims and volumes worked on at the same time; each is one request to the API server on the same machine.
const AT_ONCE: usize = 16;

/// The process as `status` shows it.
pub fn part(state: &Path) -> Part {
    Part::silent(Daemon::new(state, NAME))
}

/// Starts the process from a copy of `program`, unless it runs.
///
/// # Errors
/// When the copy cannot be made or started.
pub fn start(state: &Path, kubeconfig: &Path, program: &Path) -> anyhow::Result<()> {
    let daemon = part(state).daemon;
    if daemon.process().is_some() {
        return Ok(());
    }
    let copy = state.join("programs").join(NAME);
    fs::create_dir_all(state.join("programs")).with_context(|| format!("create {}", state.display()))?;
    // A link would be written to by the next build where the linker does not replace the file.
    let fresh = copy.with_added_extension("new");
    fs::copy(program, &fresh)
        .with_context(|| format!("copy {} to {}", program.display(), fresh.display()))?;
    fs::rename(&fresh, &copy).with_context(|| format!("rename {}", fresh.display()))?;
    let folder = state.join("volumes");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    daemon.start(&own_command(&copy, kubeconfig, &folder)).map(drop)
}

fn own_command(copy: &Path, kubeconfig: &Path, folder: &Path) -> Command {
    let mut own = command(copy);
    own.args(["stack", NAME, "--kubeconfig"]).arg(kubeconfig).arg("--folder").arg(folder);
    own
}

/// The process itself: follows claims and volumes until it is stopped. Mistakes of the API server are waited out.
///
/// # Errors
/// When the kubeconfig cannot be read or used.
pub fn run(kubeconfig: &Path, folder: &Path) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(serve(kubeconfig, folder))
}

async fn serve(kubeconfig: &Path, folder: &Path) -> anyhow::Result<()> {
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .context("use the kubeconfig")?;
    let client = Client::try_from(config).context("make a client")?;
    let volumes =
        Volumes { api: Api::all(client.clone()), folder: folder.to_path_buf(), class: CLASS.to_owned() };
    tokio::join!(volumes.follow_claims(Api::all(client)), volumes.follow_volumes());
    Ok(())
}

/// Makes volumes for claims of another class of the local stack, until it is dropped. The stack's own process removes them when they
/// are released.
///
/// # Errors
/// When it is not known where the stack keeps its volumes.
pub async fn provide_also(client: Client, class: &str) -> anyhow::Result<()> {
    let folder = super::paths::Paths::from_environment()?.kubernetes().join("volumes");
    let volumes = Volumes { api: Api::all(client.clone()), folder, class: class.to_owned() };
    volumes.follow_claims(Api::all(client)).await;
    Ok(())
}

struct Volumes {
    api: Api<PersistentVolume>,
    folder: PathBuf,
    class: String,
}

impl Volumes {
    async fn follow_claims(&self, claims: Api<PersistentVolumeClaim>) {
        let placed = watcher(claims, watcher::Config::default()).default_backoff().applied_objects();
        let each = placed.into_stream().for_each_concurrent(AT_ONCE, |claim| async {
            match claim {
                Ok(claim) => told("make a volume for", &claim.name_any(), self.provide(&claim).await),
                Err(failure) => tracing::warn!(error = %failure, "watch claims"),
            }
        });
        each.await;
    }

    async fn follow_volumes(&self) {
        let changed =
            watcher(self.api.clone(), watcher::Config::default()).default_backoff().applied_objects();
        let each = changed.into_stream().for_each_concurrent(AT_ONCE, |volume| async {
            match volume {
                Ok(volume) => told("remove", &volume.name_any(), self.reclaim(&volume).await),
                Err(failure) => tracing::warn!(error = %failure, "watch volumes"),
            }
        });
        each.await;
    }

    async fn provide(&self, claim: &PersistentVolumeClaim) -> anyhow::Result<()> {
        let Some(volume) = volume_for(claim, &self.folder, &self.class) else { return Ok(()) };
        let folder = self.folder.join(volume.name_any());
        // Root's, and readable by all: the kubelet gives it to the pod's fsGroup.
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        match self.api.create(&PostParams::default(), &volume).await {
            // The claim changed meanwhile and was seen again.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop).with_context(|| format!("create the volume {}", volume.name_any())),
        }
    }

    async fn reclaim(&self, volume: &PersistentVolume) -> anyhow::Result<()> {
        if !is_released(volume) {
            return Ok(());
        }
        let name = volume.name_any();
        super::paths::remove_folder(&self.folder.join(&name))?;
        match self.api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop).with_context(|| format!("delete the volume {name}")),
        }
    }
}

/// A failure is told to the log and seen again at the next change; the watch starts anew now and then and shows all objects.
fn told(doing: &str, name: &str, result: anyhow::Result<()>) {
    if let Err(failure) = result {
        tracing::error!(error = format!("{failure:#}"), "{doing} {name}");
    }
}

/// The volume that a claim asks for; none when the claim is not ours, is not placed yet, or has one.
fn volume_for(claim: &PersistentVolumeClaim, folder: &Path, class: &str) -> Option<PersistentVolume> {
    let spec = claim.spec.as_ref()?;
    let ours = spec.storage_class_name.as_deref() == Some(class)
        && spec.volume_name.as_deref().unwrap_or("").is_empty();
    if !ours || claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let node = claim.annotations().get(SELECTED_NODE)?;
    let name = format!("pvc-{}", claim.uid()?);
    let size = spec.resources.as_ref()?.requests.as_ref()?.get("storage")?.clone();
    let owner = ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("PersistentVolumeClaim".into()),
        name: claim.metadata.name.clone(),
        namespace: claim.metadata.namespace.clone(),
        uid: claim.uid(),
        ..ObjectReference::default()
    };
    let spec = PersistentVolumeSpec {
        capacity: Some([("storage".to_owned(), size)].into()),
        access_modes: spec.access_modes.clone(),
        volume_mode: spec.volume_mode.clone(),
        storage_class_name: Some(class.into()),
        persistent_volume_reclaim_policy: Some("Delete".into()),
        local: Some(LocalVolumeSource { path: folder.join(&name).display().to_string(), fs_type: None }),
        node_affinity: Some(only_on(node)),
        claim_ref: Some(owner),
        ..PersistentVolumeSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some(name),
        annotations: Some([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())].into()),
        ..ObjectMeta::default()
    };
    Some(PersistentVolume { metadata, spec: Some(spec), status: None })
}

fn only_on(node: &str) -> VolumeNodeAffinity {
    let requirement = NodeSelectorRequirement {
        key: "kubernetes.io/hostname".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}

/// Whether a volume is ours and its claim is gone.
fn is_released(volume: &PersistentVolume) -> bool {
    let ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|by| by == PROVISIONER);
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let deletes = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref())
        == Some("Delete");
    ours && deletes && phase == Some("Released")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(class: &str, node: Option<&str>, bound: bool) -> PersistentVolumeClaim {
        let annotations = node.map(|node| serde_json::json!({ SELECTED_NODE: node }));
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "queue-0", "namespace": "n", "uid": "u1", "annotations": annotations },
            "spec": {
                "storageClassName": class,
                "accessModes": ["ReadWriteOnce"],
                "volumeName": bound.then_some("pv"),
                "resources": { "requests": { "storage": "1Gi" } },
            },
        }))
        .unwrap()
    }

    #[test]
    fn only_a_placed_unbound_claim_of_the_class_gets_a_volume() {
        let made =
            |class, node, bound| volume_for(&claim(class, node, bound), Path::new("/v"), CLASS).is_some();
        assert!(made(CLASS, Some("node0"), false));
        assert!(!made("other", Some("node0"), false));
        assert!(!made(CLASS, None, false));
        assert!(!made(CLASS, Some("node0"), true));
    }

    #[test]
    fn a_volume_names_its_claim_its_folder_and_its_node() {
        let volume = volume_for(&claim(CLASS, Some("node0"), false), Path::new("/v"), CLASS).unwrap();
        assert_eq!(volume.name_any(), "pvc-u1");
        let spec = volume.spec.unwrap();
        assert_eq!(spec.local.unwrap().path, "/v/pvc-u1");
        assert_eq!(spec.claim_ref.unwrap().uid.as_deref(), Some("u1"));
        assert_eq!(spec.capacity.unwrap()["storage"].0, "1Gi");
        assert_eq!(spec.node_affinity, Some(only_on("node0")));
    }

    #[test]
    fn only_a_released_volume_of_ours_is_removed() {
        let volume = |by: &str, phase: &str| -> PersistentVolume {
            serde_json::from_value(serde_json::json!({
                "metadata": { "name": "pv", "annotations": { PROVISIONED_BY: by } },
                "spec": { "persistentVolumeReclaimPolicy": "Delete" },
                "status": { "phase": phase },
            }))
            .unwrap()
        };
        assert!(is_released(&volume(PROVISIONER, "Released")));
        assert!(!is_released(&volume(PROVISIONER, "Bound")));
        assert!(!is_released(&volume("other", "Released")));
    }
}
