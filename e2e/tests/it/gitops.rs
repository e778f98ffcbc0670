//! Live objects, as Argo CD and kstatus see them by their own code.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use e2e::gitops;
use kube::api::{Api, ApiResource, DynamicObject};
use serde_json::Value;
use sluice_crds::TracePipeline;

use crate::scene::Scene;

/// The pipeline as the cluster has it is this to Argo CD, and this to kstatus.
pub async fn assert_seen(scene: &Scene, argo: &str, kstatus: &str) -> Result<()> {
    let kind = ApiResource::erase::<TracePipeline>(&());
    let (client, namespace) = (scene.namespace.cluster().client(), scene.namespace.name());
    let pipelines: Api<DynamicObject> = Api::namespaced_with(client, namespace, &kind);
    let live = pipelines.get(scene.pipeline.name()).await.context("get the pipeline")?;
    let live = serde_json::to_value(live).context("write the pipeline")?;
    let status = live["status"].clone();
    let seen =
        tokio::task::spawn_blocking(move || gitops::health(&[live])).await.context("ask gitopscheck")??;
    let seen = seen.first().context("no answer")?;
    ensure!(
        seen.argo == argo && seen.kstatus == kstatus,
        "the pipeline should be {argo} and {kstatus}: {seen:?} of {status}"
    );
    Ok(())
}

/// A sync of what was applied would change nothing.
pub async fn assert_in_sync(kubeconfig: PathBuf, manifests: Vec<Value>) -> Result<()> {
    let count = manifests.len();
    let found = tokio::task::spawn_blocking(move || gitops::differences(&kubeconfig, &manifests)).await;
    let found = found.context("ask gitopscheck")??;
    let words: Vec<String> = found.iter().filter_map(gitops::Difference::words).collect();
    ensure!(words.is_empty(), "of {count} objects:\n{}", words.join("\n"));
    Ok(())
}
