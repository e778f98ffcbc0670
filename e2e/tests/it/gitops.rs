//! Live objects, as Argo CD and kstatus see them by their own code.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::{Seen, until};
use e2e::gitops::{self, states};
use e2e::stack::paths;
use kube::api::{Api, ApiResource, DynamicObject};
use serde_json::Value;
use sluice_crds::{TracePipeline, TracePipelineStatus};

use crate::scene::Scene;

/// Time for conditions to come to what they stay at, once the one that a test waits for is there: the operator looks every few seconds.
const SETTLED: Duration = Duration::from_mins(2);

/// Where every object is kept that a test saw in a state, below the workspace.
const SEEN: &str = "target/e2e-states";

/// The pipeline is in this state by all of its conditions, and Argo CD and kstatus see it as they are meant to.
pub async fn assert_state(scene: &Scene, name: &str) -> Result<()> {
    reached(scene, name, SETTLED, |_| true).await
}

/// The same, as soon as the status says this.
pub async fn reached(
    scene: &Scene,
    name: &str,
    deadline: Duration,
    says: impl Fn(&TracePipelineStatus) -> bool,
) -> Result<()> {
    let is_written = std::env::var_os(states::UPDATE).is_some();
    let stored = if is_written { None } else { states::stored()?.remove(name) };
    ensure!(is_written || stored.is_some(), "{} has no {name}.yaml", states::FOLDER);
    let live = until(&format!("the state {name}"), deadline, async || {
        let live = live(scene).await?;
        let status: TracePipelineStatus =
            serde_json::from_value(live["status"].clone()).context("read the status")?;
        if live["metadata"]["generation"] != live["status"]["observedGeneration"] || !says(&status) {
            return Ok(Seen::NotYet(format!("{:?}", status.conditions)));
        }
        let differs = stored.as_ref().and_then(|stored| states::difference(stored, &live));
        Ok(differs.map_or(Seen::Done(live), Seen::NotYet))
    })
    .await?;
    let settings = scene.pipeline.settings();
    states::write(&paths::workspace().join(SEEN), name, &live, settings)?;
    if is_written {
        states::write(&paths::workspace().join(states::FOLDER).join("live"), name, &live, settings)?;
    }
    let (argo, kstatus) = states::meant(name)?;
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

async fn live(scene: &Scene) -> Result<Value> {
    let kind = ApiResource::erase::<TracePipeline>(&());
    let (client, namespace) = (scene.namespace.cluster().client(), scene.namespace.name());
    let pipelines: Api<DynamicObject> = Api::namespaced_with(client, namespace, &kind);
    let live = pipelines.get(scene.pipeline.name()).await.context("get the pipeline")?;
    serde_json::to_value(live).context("write the pipeline")
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
