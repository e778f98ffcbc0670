//! The operator removes what another client writes into the status of a pipeline, and continues to write its own.

use crate::prelude::*;

/// A client that is not the operator.
const STRANGER: &str = "somebody";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group operator"]
async fn what_a_stranger_writes_into_the_status_is_removed() -> Result<()> {
    scene::run("foreign_status", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start(&json!({"replicas": 1})).await?;
        // A drain that the operator did not begin. The operator treats it as its own, and changes and later removes some of its fields. The
        // other client owns the rest, and the definition rejects a drain without its state.
        let foreign = json!({"state": "Waiting", "target": 1, "from": 3, "since": "2026-01-01T00:00:00Z"});
        let status = json!({"scaling": {"reason": "by hand", "drain": foreign}, "schemaJob": "by-hand"});
        write(scene, &status).await?;
        until("a status without the stranger's fields", READY, async || {
            let status = scene.pipeline.get().await?.status.unwrap_or_default();
            let drain = drain(&status);
            let is_foreign = drain.is_some() || status.schema_job.as_deref() == Some("by-hand");
            Ok(Seen::when(!is_foreign, || format!("{drain:?}, {:?}", status.schema_job)))
        })
        .await?;
        scene.pipeline.apply(&json!({"replicas": 2})).await?;
        let status = scene.pipeline.wait_ready(READY).await?;
        ensure!(status.ready_replicas == Some(2), "{:?} gateways are ready", status.ready_replicas);
        Ok(())
    })
    .await
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
