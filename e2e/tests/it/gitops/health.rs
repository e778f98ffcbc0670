//! Argo CD's own code and kstatus read live objects.

mod passing;

use e2e::gitops::{self, states};
use e2e_stack::paths;

pub use passing::Passing;

use crate::prelude::*;

/// Folder, below the workspace, of every object that a test saw in a state.
const SEEN: &str = "target/e2e-states";

/// Checks that the pipeline has exactly the conditions of this state, and that Argo CD and kstatus report the expected results.
pub async fn assert_state(pipeline: &Pipeline, name: &str) -> Result<()> {
    reached(pipeline, name, FLOW, |_| true).await
}

/// As [`assert_state`], as soon as `says` accepts the status.
pub async fn reached(
    pipeline: &Pipeline,
    name: &str,
    deadline: Duration,
    says: impl Fn(&TracePipelineStatus) -> bool,
) -> Result<()> {
    let (stored, pipelines) = (stored(name)?, pipeline.namespace().dynamic::<TracePipeline>());
    let live = until(&format!("the state {name}"), deadline, async || {
        let live = pipelines.get(pipeline.name()).await.context("get the pipeline")?;
        let live = serde_json::to_value(live).context("write the pipeline")?;
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

/// The stored object of the state; `None` if it is to be written.
fn stored(name: &str) -> Result<Option<Value>> {
    if std::env::var_os(states::UPDATE).is_some() {
        return Ok(None);
    }
    let stored = states::stored()?.remove(name);
    stored.map(Some).with_context(|| format!("{} has no {name}.yaml", states::FOLDER))
}

/// Stores the object, and asks both tools.
async fn seen_as_meant(pipeline: &Pipeline, name: &str, live: Value) -> Result<()> {
    let settings = pipeline.settings();
    states::write(&paths::workspace().join(SEEN), name, &live, settings)?;
    if std::env::var_os(states::UPDATE).is_some() {
        states::write(&paths::workspace().join(states::FOLDER), name, &live, settings)?;
    }
    let (argo, kstatus) = states::meant(name)?;
    let status = live["status"].clone();
    let seen = blocking(move || gitops::health(&[live])).await?;
    let seen = seen.first().context("no answer")?;
    ensure!(
        seen.argo == argo && seen.kstatus == kstatus,
        "the pipeline should be {argo} and {kstatus}: {seen:?} of {status}"
    );
    Ok(())
}

/// Checks that a sync of the applied manifests would change nothing.
pub async fn assert_in_sync(kubeconfig: PathBuf, manifests: Vec<Value>) -> Result<()> {
    let count = manifests.len();
    let found = blocking(move || gitops::differences(&kubeconfig, &manifests)).await?;
    let words: Vec<String> = found.iter().filter_map(gitops::Difference::words).collect();
    ensure!(words.is_empty(), "of {count} objects:\n{}", words.join("\n"));
    Ok(())
}
