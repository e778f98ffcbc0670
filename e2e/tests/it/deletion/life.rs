//! The life of one pipeline under load: it is suspended and resumed, left alone and managed again, deleted and made again. Numbered spans
//! flow the whole time: none is lost, none doubled, and no gateway is restarted without need.

use k8s_openapi::api::events::v1::Event;
use sluice_crds::FINALIZER;

use crate::gitops::health::assert_in_sync;
use crate::prelude::*;
use crate::spec::unharmed::assert_kept;

/// Partitions: two gateways.
const PARTITIONS: i32 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_rests_is_left_alone_and_is_deleted_without_a_span_lost_or_doubled() -> Result<()> {
    scene::run("life", Uses::Servers, PARTITIONS, async |scene: &mut Scene| {
        scene.start(&spec(&json!({}))).await?;
        let load = scene.flowing_load(SPANS_PER_SECOND, SPANS_BETWEEN, FLOW).await?;
        scene.pipeline.wait_condition(kind::SCALING_ACTIVE, ("True", reason::ACTIVE), READY).await?;
        settled(scene, &json!({}), "scaled-by-the-operator").await?;
        suspended(scene).await?;
        scene.wait_acked(&load, SPANS_BETWEEN, FLOW).await?;
        resumed(scene).await?;
        left_alone(scene).await?;
        scene.wait_acked(&load, SPANS_BETWEEN, FLOW).await?;
        taken_over(scene).await?;
        scene.wait_acked(&load, SPANS_BETWEEN, FLOW).await?;
        deleted(scene).await?;
        scene.start(&spec(&json!({}))).await?;
        scene.wait_acked(&load, SPANS_BETWEEN, FLOW).await?;
        scene.end(load).await
    })
    .await
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
    let rests = ("True", reason::SUSPENDED);
    scene.pipeline.wait_condition(kind::SUSPENDED, rests, FLOW).await?;
    scene.pipeline.wait_condition(kind::READY, rests, FLOW).await?;
    settled(scene, &json!({"suspend": true}), "suspended").await?;
    let pods = scene.pipeline.gateways().list().await?.len();
    ensure!(pods == 0, "{pods} gateways of a suspended pipeline");
    ensure!(workload(scene).await?.is_some(), "the StatefulSet is gone");
    assert_event(scene, reason::SUSPENDED).await
}

async fn resumed(scene: &Scene) -> Result<()> {
    scene.pipeline.apply(&spec(&json!({}))).await?;
    let status = scene.pipeline.wait_ready(READY).await?;
    ensure!(status.ready_replicas == Some(2), "{:?} gateways came back, not 2", status.ready_replicas);
    Ok(())
}

/// The operator does not carry out a change of the spec, and does not undo manual changes.
async fn left_alone(scene: &Scene) -> Result<()> {
    let before = scene.pipeline.gateways().uids().await?;
    let change = spec(&json!({"managementState": "Unmanaged", "gateway": {"logLevel": "debug"}}));
    scene.pipeline.apply(&change).await?;
    let paused = ("True", reason::UNMANAGED);
    scene.pipeline.wait_condition(kind::RECONCILIATION_PAUSED, paused, FLOW).await?;
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
    let scaled = workloads(scene).patch_scale(&workload_name(scene), &by_hand, &scale).await;
    scaled.map(drop).context("scale by hand")
}

async fn taken_over(scene: &Scene) -> Result<()> {
    let gateways = scene.pipeline.gateways();
    let before = gateways.uids().await?;
    scene.pipeline.apply(&spec(&json!({"scaling": {"mode": "Fixed"}}))).await?;
    let managed = ("False", reason::MANAGED);
    scene.pipeline.wait_condition(kind::RECONCILIATION_PAUSED, managed, FLOW).await?;
    scene
        .pipeline
        .wait("with two gateways", READY, |status| {
            status.replicas == Some(2) && status.ready_replicas == Some(2)
        })
        .await?;
    let kept: BTreeMap<String, String> =
        before.into_iter().filter(|(name, _)| !name.ends_with("-2")).collect();
    assert_kept(&scene.pipeline, &kept).await
}

/// It is held until its gateways are empty; an event reports that they were.
async fn deleted(scene: &Scene) -> Result<()> {
    let held = scene.pipeline.get().await?.metadata.finalizers.unwrap_or_default();
    ensure!(held == [FINALIZER], "the pipeline is held by {held:?}");
    scene.pipeline.delete(FLOW).await?;
    assert_event(scene, "Drained").await?;
    wait_gone(&workloads(scene), &workload_name(scene), FLOW).await?;
    let group = scene.pipeline.settings().consumer_group();
    let lag = scene.topic.lag(&group).await?;
    ensure!(lag.messages > 0, "nothing waits for the next pipeline: {lag:?}");
    Ok(())
}

fn workloads(scene: &Scene) -> Api<StatefulSet> {
    scene.namespace.api()
}

pub fn workload_name(scene: &Scene) -> String {
    format!("{}-gateway", scene.pipeline.name())
}

pub async fn workload(scene: &Scene) -> Result<Option<StatefulSet>> {
    workloads(scene).get_opt(&workload_name(scene)).await.context("get the StatefulSet")
}

/// Waits for an event with this reason about the pipeline.
pub async fn assert_event(scene: &Scene, reason: &str) -> Result<()> {
    let events = events(scene).await?;
    ensure!(events.iter().any(|event| event == reason), "no event {reason}: {events:?}");
    Ok(())
}

/// Reasons of all events about the pipeline.
pub async fn events(scene: &Scene) -> Result<Vec<String>> {
    Ok(told(scene).await?.into_iter().map(|(reason, _)| reason).collect())
}

/// Waits until the first event with this reason about the pipeline has all of these words.
pub async fn assert_event_says(scene: &Scene, reason: &str, words: &[&str]) -> Result<()> {
    let told = told(scene).await?;
    let event = told.iter().find(|(found, _)| found == reason);
    let says = |words: &&str| event.is_some_and(|(_, note)| note.contains(*words));
    ensure!(words.iter().all(says), "the events are {told:?}");
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
