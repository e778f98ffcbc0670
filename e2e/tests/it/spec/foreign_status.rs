//! The operator removes what another client writes into the status of a pipeline, and continues to write its own.

use crate::prelude::*;

const STRANGER: &str = "somebody";

#[test]
#[ignore = "group operator"]
fn what_a_stranger_writes_into_the_status_is_removed() -> Result<()> {
    scene::run("foreign_status", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start(&json!({"replicas": 1})).await?;
        // A drain that the operator did not begin. The operator treats it as its own, and changes and later removes some of its fields. The
        // other client owns the rest, and the definition rejects a drain without its state.
        let foreign = json!({"state": "Waiting", "target": 1, "from": 3, "since": "2026-01-01T00:00:00Z"});
        let status = json!({"scaling": {"reason": "by hand", "drain": foreign}, "schemaJob": "by-hand"});
        write(scene, &status).await?;
        let is_own = |status: &TracePipelineStatus| {
            drain(status).is_none() && status.schema_job.as_deref() != Some("by-hand")
        };
        scene.pipeline.wait("without the stranger's fields", READY, is_own).await?;
        let status = scene.change(&json!({"replicas": 2})).await?;
        ensure!(status.ready_replicas == Some(2), "{:?} gateways are ready", status.ready_replicas);
        Ok(())
    })
}

async fn write(scene: &Scene, status: &Value) -> Result<()> {
    let api: Api<TracePipeline> = scene.namespace.api();
    let full = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline",
        "metadata": {"name": scene.pipeline.name()}, "status": status,
    });
    let how = PatchParams::apply(STRANGER).force();
    let written = api.patch_status(scene.pipeline.name(), &how, &Patch::Apply(full)).await;
    written.map(drop).context("write the status as a stranger")
}
