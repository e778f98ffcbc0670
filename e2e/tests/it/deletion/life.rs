//! The life of one pipeline under load: it is suspended and resumed, left alone and managed again, deleted and made again. Numbered spans
//! flow the whole time: none is lost, none doubled, and no gateway is restarted without need.

use k8s_openapi::api::events::v1::Event;
use sluice_crds::FINALIZER;

use crate::prelude::*;

#[test]
fn a_pipeline_rests_is_left_alone_and_is_deleted_without_a_span_lost_or_doubled() -> Result<()> {
    scene::run("life", Uses::Servers, 8, async |scene: &mut Scene| {
        scene.start(&spec(&json!({}))).await?;
        let load = scene.flowing_load(FEW_PER_SECOND, FEW_BETWEEN, FLOW).await?;
        scene.pipeline.wait_true(kind::SCALING_ACTIVE, reason::ACTIVE, READY).await?;
        settled(scene, &json!({}), "scaled-by-the-operator").await?;
        suspended(scene).await?;
        scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
        resumed(scene).await?;
        left_alone(scene).await?;
        scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
        taken_over(scene).await?;
        scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
        deleted(scene).await?;
        scene.start(&spec(&json!({}))).await?;
        scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
        scene.end(load).await
    })
}

/// With Auto, only the operator's memory has the number of gateways to come back.
fn spec(change: &Value) -> Value {
    merged(&json!({"scaling": {"mode": "Auto", "drain": {"timeout": "1m"}}}), change)
}

/// Argo CD and kstatus report the expected state, and a sync of the same manifest changes nothing.
async fn settled(scene: &Scene, change: &Value, state: &str) -> Result<()> {
    assert_state(&scene.pipeline, state).await?;
    assert_in_sync(scene.environment.kubeconfig()?, vec![scene.pipeline.manifest(&spec(change))]).await
}

async fn suspended(scene: &Scene) -> Result<()> {
    scene.pipeline.apply(&spec(&json!({"suspend": true}))).await?;
    scene.pipeline.wait_true(kind::SUSPENDED, reason::SUSPENDED, FLOW).await?;
    scene.pipeline.wait_true(kind::READY, reason::SUSPENDED, FLOW).await?;
    settled(scene, &json!({"suspend": true}), "suspended").await?;
    let pods = scene.pipeline.gateways().list().await?.len();
    ensure!(pods == 0, "{pods} gateways of a suspended pipeline");
    ensure!(scene.pipeline.workload().await?.is_some(), "the StatefulSet is gone");
    assert_event(scene, reason::SUSPENDED).await
}

async fn resumed(scene: &Scene) -> Result<()> {
    let status = scene.change(&spec(&json!({}))).await?;
    ensure!(status.ready_replicas == Some(2), "{:?} gateways came back, not 2", status.ready_replicas);
    // Until the lag of the pause is gone, the autoscaler may want more gateways than there are partitions. What it says of that would stay while the
    // operator leaves the pipeline alone.
    scene.pipeline.wait_false(kind::SCALING_LIMITED, reason::OK, FLOW).await.map(drop)
}

/// The operator does not carry out a change of the spec, and does not undo manual changes.
async fn left_alone(scene: &Scene) -> Result<()> {
    let before = scene.pipeline.gateways().uids().await?;
    let change = spec(&json!({"managementState": "Unmanaged", "gateway": {"logLevel": "debug"}}));
    scene.pipeline.apply(&change).await?;
    scene.pipeline.wait_true(kind::RECONCILIATION_PAUSED, reason::UNMANAGED, FLOW).await?;
    scale_by_hand(scene, 3).await?;
    scene.pipeline.wait_gateways(3, READY).await?;
    assert_state(&scene.pipeline, "left-alone").await?;
    assert_kept(&scene.pipeline, &before).await?;
    // The operator does not manage it. For a tool that waits, it may still become ready, because the StatefulSet controller works on.
    let first = scene.pipeline.gateways().uids().await?.into_keys().next().context("no gateway")?;
    scene.pipeline.gateways().delete(&first).await?;
    reached(&scene.pipeline, "left-alone-unready", READY, |status| status.ready_replicas < Some(3)).await?;
    scene.pipeline.wait_gateways(3, READY).await.map(drop)
}

/// As `kubectl scale statefulset` does.
pub async fn scale_by_hand(scene: &Scene, replicas: u32) -> Result<()> {
    let by_hand = PatchParams { field_manager: Some("kubectl".to_owned()), ..PatchParams::default() };
    let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let workloads = scene.namespace.api::<StatefulSet>();
    let scaled = workloads.patch_scale(&scene.pipeline.workload_name(), &by_hand, &scale).await;
    scaled.map(drop).context("scale by hand")
}

async fn taken_over(scene: &Scene) -> Result<()> {
    let mut before = scene.pipeline.gateways().uids().await?;
    scene.pipeline.apply(&spec(&json!({"scaling": {"mode": "Fixed"}}))).await?;
    scene.pipeline.wait_false(kind::RECONCILIATION_PAUSED, reason::MANAGED, FLOW).await?;
    scene.pipeline.wait_replicas(2, READY).await?;
    before.retain(|name, _| !name.ends_with("-2"));
    assert_kept(&scene.pipeline, &before).await
}

/// It is held until its gateways are empty; an event reports that they were.
async fn deleted(scene: &Scene) -> Result<()> {
    let held = scene.pipeline.get().await?.metadata.finalizers.unwrap_or_default();
    ensure!(held == [FINALIZER], "the pipeline is held by {held:?}");
    scene.pipeline.delete(FLOW).await?;
    assert_event(scene, "Drained").await?;
    wait_gone(&scene.namespace.api::<StatefulSet>(), &scene.pipeline.workload_name(), FLOW).await?;
    let group = scene.pipeline.settings().consumer_group();
    let lag = scene.topic.lag(&group).await?;
    ensure!(lag.messages > 0, "nothing waits for the next pipeline: {lag:?}");
    Ok(())
}

/// Checks that there is an event with this reason about the pipeline.
pub async fn assert_event(scene: &Scene, reason: &str) -> Result<()> {
    assert_event_says(scene, reason, &[]).await
}

/// As [`assert_event`]; the first such event must have all of these words.
pub async fn assert_event_says(scene: &Scene, reason: &str, words: &[&str]) -> Result<()> {
    let told = told(scene).await?;
    let event = told.iter().find(|(found, _)| found == reason);
    let says = event.is_some_and(|(_, note)| words.iter().all(|words| note.contains(*words)));
    ensure!(says, "no event {reason} with {words:?}: {told:?}");
    Ok(())
}

/// Reasons and messages of all events about the pipeline.
pub async fn told(scene: &Scene) -> Result<Vec<(String, String)>> {
    let events: Api<Event> = scene.namespace.api();
    let all = events.list(&ListParams::default()).await.context("list events")?.items;
    let ours = all.into_iter().filter(|event| {
        let about = event.regarding.as_ref().and_then(|regarding| regarding.kind.as_deref());
        about == Some("TracePipeline")
    });
    Ok(ours.filter_map(|event| Some((event.reason?, event.note.unwrap_or_default()))).collect())
}
