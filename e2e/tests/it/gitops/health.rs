//! Live objects, as Argo CD and kstatus see them by their own code.

mod passing;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::gitops::{self, states};
use e2e_fixtures::cluster::{Seen, until};
use e2e_fixtures::pipeline::Pipeline;
use e2e_stack::paths;
use kube::api::{Api, ApiResource, DynamicObject};
use serde_json::Value;
use sluice_crds::{TracePipeline, TracePipelineStatus};

pub use passing::Passing;

/// Time for conditions to come to what they stay at, once the one that a test waits for is there: the operator looks every few seconds.
const SETTLED: Duration = Duration::from_mins(2);

/// Where every object is kept that a test saw in a state, below the workspace.
const SEEN: &str = "target/e2e-states";

/// The pipeline is in this state by all of its conditions, and Argo CD and kstatus see it as they are meant to.
pub async fn assert_state(pipeline: &Pipeline, name: &str) -> Result<()> {
    reached(pipeline, name, SETTLED, |_| true).await
}

/// The same, as soon as the status says this.
pub async fn reached(
    pipeline: &Pipeline,
    name: &str,
    deadline: Duration,
    says: impl Fn(&TracePipelineStatus) -> bool,
) -> Result<()> {
    let stored = stored(name)?;
    let live = until(&format!("the state {name}"), deadline, async || {
        let live = live(pipeline).await?;
        let status: TracePipelineStatus =
            serde_json::from_value(live["status"].clone()).context("read the status")?;
        if live["metadata"]["generation"] != live["status"]["observedGeneration"] || !says(&status) {
            return Ok(Seen::NotYet(format!("{:?}", status.conditions)));
        }
        let differs = stored.as_ref().and_then(|stored| states::difference(stored, &live));
        Ok(differs.map_or(Seen::Done(live), Seen::NotYet))
    })
    .await?;
    seen_as_meant(pipeline, name, live).await
}

/// What the state is compared with: nothing when it is to be written.
fn stored(name: &str) -> Result<Option<Value>> {
    if std::env::var_os(states::UPDATE).is_some() {
        return Ok(None);
    }
    let stored = states::stored()?.remove(name);
    stored.map(Some).with_context(|| format!("{} has no {name}.yaml", states::FOLDER))
}

/// Keeps what was seen, and asks both tools.
async fn seen_as_meant(pipeline: &Pipeline, name: &str, live: Value) -> Result<()> {
    let settings = pipeline.settings();
    states::write(&paths::workspace().join(SEEN), name, &live, settings)?;
    if std::env::var_os(states::UPDATE).is_some() {
        states::write(&paths::workspace().join(states::FOLDER), name, &live, settings)?;
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

async fn live(pipeline: &Pipeline) -> Result<Value> {
    let live = api(pipeline).get(pipeline.name()).await.context("get the pipeline")?;
    serde_json::to_value(live).context("write the pipeline")
}

/// Pipelines as the API server has them, whatever our types know of.
fn api(pipeline: &Pipeline) -> Api<DynamicObject> {
    let namespace = pipeline.namespace();
    let kind = ApiResource::erase::<TracePipeline>(&());
    Api::namespaced_with(namespace.cluster().client(), namespace.name(), &kind)
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
