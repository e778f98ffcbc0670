//! Edits pipelines whose gateways answer, while the gateways of others may be silent, and measures how long the operator takes to apply an
//! edit.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use sluice_crds::TracePipeline;
use tokio::time::{Instant, sleep};

use super::Order;
use e2e_fixtures::cluster::Namespace;
use e2e_stack::say;

/// Pipelines that are edited, one after another.
const EDITS: usize = 5;

/// Longest wait for one of them.
const PATIENCE: Duration = Duration::from_mins(2);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// The label of a pod that names its pipeline.
const PIPELINE: &str = "app.kubernetes.io/instance";

/// The longest time until an edit was applied.
pub async fn longest(namespace: &Namespace, order: &Order) -> Result<Duration> {
    let pods = namespace.api::<Pod>().list_metadata(&ListParams::default()).await;
    let pods = pods.context("list the gateways")?;
    let answering = pods.iter().filter(|pod| pod.uid().is_some_and(|uid| !order.silent.has(&uid)));
    let pipelines: BTreeSet<String> =
        answering.filter_map(|pod| pod.labels().get(PIPELINE).cloned()).collect();
    ensure!(!pipelines.is_empty(), "no gateway answers");
    let mut longest = Duration::ZERO;
    for name in pipelines.iter().take(EDITS) {
        longest = longest.max(edit(namespace, name).await?);
    }
    say::progress("scale", "pipelines are edited");
    Ok(longest)
}

/// Edits a pipeline, and waits until its status has the new generation: the operator writes it there after it has applied the edit.
async fn edit(namespace: &Namespace, name: &str) -> Result<Duration> {
    let (pipelines, change) =
        (namespace.api::<TracePipeline>(), json!({"spec": {"gateway": {"logLevel": "debug"}}}));
    let begun = Instant::now();
    let edited = pipelines.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await;
    let generation = edited.with_context(|| format!("edit {name}"))?.metadata.generation;
    loop {
        let now = pipelines.get(name).await.with_context(|| format!("look at {name}"))?;
        if now.status.and_then(|status| status.observed_generation) >= generation {
            return Ok(begun.elapsed());
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "an edit of {name} is not applied within {} s",
            PATIENCE.as_secs()
        );
        sleep(LOOK).await;
    }
}
