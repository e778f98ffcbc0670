//! What is kept of a failed test: logs, events and objects, before its namespace is removed.
//!
//! Job: write files that explain a failure without the cluster. Place in the flow: between a test's failure and the removal
//! of its fixtures. Limits: one file an object kind and one a container; what cannot be read is said in the file instead,
//! because collecting must not hide the failure it is for.
//!
//! Folder: `target/e2e-logs/<test>/`, emptied when the test fails again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_crds::TracePipeline;

use super::operator::OPERATOR_NAMESPACE;
use super::{Cluster, Pods};

/// Where the folders of failed tests are: `target/e2e-logs` of the workspace.
pub fn logs_folder() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).join("target").join("e2e-logs")
}

/// Collects into one folder.
pub struct Evidence {
    folder: PathBuf,
    cluster: Cluster,
}

impl Evidence {
    /// The folder of test `test`, emptied.
    pub fn of(cluster: &Cluster, test: &str) -> Result<Evidence> {
        let folder = logs_folder().join(test);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("empty {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        Ok(Evidence { folder, cluster: cluster.clone() })
    }

    /// Where it collects.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a text of the test itself, such as why it failed.
    pub fn note(&self, file: &str, text: &str) -> Result<()> {
        let file = self.folder.join(file);
        fs::write(&file, text).with_context(|| format!("write {}", file.display()))
    }

    /// Objects, events and logs of `namespace`, and the operator's logs.
    pub async fn collect(&self, namespace: &str) -> Result<()> {
        self.objects::<TracePipeline>(namespace, "tracepipelines.yaml").await?;
        self.objects::<StatefulSet>(namespace, "statefulsets.yaml").await?;
        self.objects::<Job>(namespace, "jobs.yaml").await?;
        self.objects::<ConfigMap>(namespace, "configmaps.yaml").await?;
        self.objects::<PersistentVolumeClaim>(namespace, "persistentvolumeclaims.yaml").await?;
        self.objects::<Pod>(namespace, "pods.yaml").await?;
        self.events(namespace).await?;
        self.logs(namespace, "").await?;
        self.logs(OPERATOR_NAMESPACE, "operator-").await
    }

    async fn objects<K>(&self, namespace: &str, file: &str) -> Result<()>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + DeserializeOwned
            + Serialize
            + Clone
            + std::fmt::Debug,
        K::DynamicType: Default,
    {
        let api: Api<K> = Api::namespaced(self.cluster.client(), namespace);
        let text = match api.list(&ListParams::default()).await {
            Ok(listed) => listed.items.iter().map(yaml).collect::<Vec<_>>().join("---\n"),
            Err(error) => format!("# could not be listed: {error}\n"),
        };
        self.note(file, &text)
    }

    async fn events(&self, namespace: &str) -> Result<()> {
        let api: Api<Event> = Api::namespaced(self.cluster.client(), namespace);
        let text = match api.list(&ListParams::default()).await {
            Ok(listed) => listed.items.iter().map(event_line).collect(),
            Err(error) => format!("could not be listed: {error}\n"),
        };
        self.note("events.txt", &text)
    }

    /// What each container wrote, and what it wrote before its last restart.
    async fn logs(&self, namespace: &str, prefix: &str) -> Result<()> {
        let pods = Pods::new(&self.cluster, namespace, "");
        let listed = match pods.list().await {
            Ok(listed) => listed,
            Err(error) => return self.note(&format!("{prefix}logs.txt"), &format!("no pods: {error:#}\n")),
        };
        for pod in listed {
            let name = pod.name_any();
            for container in pod.spec.map(|spec| spec.containers).unwrap_or_default() {
                let log = pods.logs(&name, &container.name, false).await;
                let log = log.unwrap_or_else(|error| format!("could not be read: {error:#}\n"));
                self.note(&format!("{prefix}{name}.{}.log", container.name), &log)?;
                if let Ok(log) = pods.logs(&name, &container.name, true).await {
                    self.note(&format!("{prefix}{name}.{}.previous.log", container.name), &log)?;
                }
            }
        }
        Ok(())
    }
}

fn yaml(object: &impl Serialize) -> String {
    serde_saphyr::to_string(object).unwrap_or_else(|error| format!("# could not be written: {error}\n"))
}

fn event_line(event: &Event) -> String {
    let object = &event.involved_object;
    format!(
        "{} {} {}/{}: {}\n",
        event.type_.as_deref().unwrap_or("-"),
        event.reason.as_deref().unwrap_or("-"),
        object.kind.as_deref().unwrap_or("-"),
        object.name.as_deref().unwrap_or("-"),
        event.message.as_deref().unwrap_or("-"),
    )
}
