//! A sync with Argo CD's own engine. A wave begins only when the pipelines of the wave before are Ready. Objects that are in sync do not
//! change. A number of replicas that another client writes stays. An idle pipeline keeps later waves waiting.

use e2e::gitops::{self, Limit, Operation};
use sluice_crds::LogLevel;

use crate::prelude::*;
use crate::scaling::autoscaled::autoscaler;

/// The object in the wave after the pipeline.
const NEXT: &str = "after-the-pipeline";

/// Checks in a sync of objects that do not change. Chosen: several times the checks between one wave and the next. The other syncs here
/// must end within as many, which shows that.
const LOOKS: Limit = Limit::Looks(12);

/// Time for a sync that waits for a pipeline to become Ready.
const BECOMES_READY: Limit = Limit::Time(READY);

#[test]
#[ignore = "group gitops"]
fn a_wave_waits_until_the_pipeline_before_it_is_ready() -> Result<()> {
    scene::run("a_wave_waits", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.apply_credentials().await?;
        held_back(scene).await?;
        scene.topic = scene.topic.again(4).await?;
        let done = synced(scene, &json!({}), BECOMES_READY).await?;
        let applied: Vec<_> = done.applied.iter().map(|one| (one.name.as_str(), one.wave)).collect();
        let pipeline = format!("TracePipeline/{}", scene.pipeline.name());
        let next = format!("ConfigMap/{NEXT}");
        ensure!(applied == [(pipeline.as_str(), 0), (next.as_str(), 1)], "{done:?}");
        came_after_ready(scene).await?;
        nothing_left_to_do(scene).await
    })
}

/// While the topic is missing, the sync neither ends nor goes on to the next wave.
async fn held_back(scene: &Scene) -> Result<()> {
    scene.topic.delete().await?;
    let begun = sync(scene, &json!({}), Limit::Looks(1)).await?;
    ensure!(begun.applied.len() == 1 && begun.applied.iter().all(|one| one.code == "Synced"), "{begun:?}");
    scene.pipeline.wait_false(kind::SOURCE_REACHABLE, reason::TOPIC_MISSING, READY).await?;
    let waits = sync(scene, &json!({}), LOOKS).await?;
    ensure_held_back(&waits, next(scene).await?.as_ref())?;
    // It was so during the whole sync.
    let source = scene.pipeline.condition(kind::SOURCE_REACHABLE).await?;
    ensure!(source.reason == reason::TOPIC_MISSING, "the source is {source:?}");
    Ok(())
}

/// The sync waits only for the health of the pipeline, which it has applied.
fn ensure_held_back(sync: &Operation, next: Option<&ConfigMap>) -> Result<()> {
    ensure!(sync.phase == "Running" && sync.message.contains("healthy state of"), "{sync:?}");
    let [pipeline] = sync.applied.as_slice() else { bail!("not the pipeline alone: {sync:?}") };
    ensure!(pipeline.code == "Synced" && pipeline.name.starts_with("TracePipeline/"), "{sync:?}");
    ensure!(next.is_none(), "the next wave has begun: {sync:?}");
    Ok(())
}

#[test]
fn a_sync_that_ended_went_on_or_waits_for_something_else_is_not_held_back() {
    let judged = |phase: &str, message: &str, names: &[&str], next: Option<&ConfigMap>| {
        let applied = names
            .iter()
            .map(|name| json!({"name": name, "wave": 0, "code": "Synced", "message": "", "changed": false}));
        let sync = json!({"phase": phase, "message": message, "applied": applied.collect::<Value>()});
        ensure_held_back(&serde_json::from_value(sync).unwrap(), next).is_ok()
    };
    let waits = "waiting for healthy state of sluice.dev/TracePipeline/traces";
    let next = ConfigMap::default();
    assert!(judged("Running", waits, &["TracePipeline/traces"], None));
    assert!(!judged("Succeeded", waits, &["TracePipeline/traces"], None));
    assert!(!judged("Running", "one or more tasks are running", &["TracePipeline/traces"], None));
    assert!(!judged("Running", waits, &["TracePipeline/traces", "ConfigMap/next"], None));
    assert!(!judged("Running", waits, &[], None));
    assert!(!judged("Running", waits, &["TracePipeline/traces"], Some(&next)));
}

/// The next wave's object is younger than the pipeline's readiness.
async fn came_after_ready(scene: &Scene) -> Result<()> {
    let made = next(scene).await?.context("the next wave is missing")?.metadata.creation_timestamp;
    let ready = scene.pipeline.condition(kind::READY).await?;
    ensure!(ready.status == "True", "the pipeline is not Ready: {}", ready.message);
    let made = made.context("made at no time")?;
    ensure!(
        made >= ready.last_transition_time,
        "made at {made:?}, Ready at {:?}",
        ready.last_transition_time
    );
    Ok(())
}

/// A second sync finds no difference, and writes nothing.
async fn nothing_left_to_do(scene: &Scene) -> Result<()> {
    let before = scene.pipeline.get().await?.metadata.generation;
    let again = synced(scene, &json!({}), LOOKS).await?;
    ensure!(again.applied.len() == 2, "{again:?}");
    ensure!(again.applied.iter().all(|one| !one.changed), "the second sync wrote: {again:?}");
    let after = scene.pipeline.get().await?.metadata.generation;
    ensure!(before == after, "generation {before:?} became {after:?}");
    Ok(())
}

async fn next(scene: &Scene) -> Result<Option<ConfigMap>> {
    let config_maps: Api<ConfigMap> = scene.namespace.api();
    config_maps.get_opt(NEXT).await.context("get the ConfigMap")
}

#[test]
#[ignore = "group gitops"]
fn a_sync_leaves_the_number_of_gateways_to_whoever_scales() -> Result<()> {
    scene::run("a_sync_leaves_the_number", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.apply_credentials().await?;
        let mut spec = json!({"scaling": {"mode": "External"}, "replicas": 1});
        synced(scene, &spec, BECOMES_READY).await?;
        scene.namespace.apply(&autoscaler(scene.pipeline.name(), [2, 3])).await?;
        scene.pipeline.wait_gateways(2, READY).await.context("by the autoscaler")?;
        // Git changes, but still has the number of the beginning.
        spec["gateway"] = json!({"logLevel": "debug"});
        for is_changed in [true, false] {
            let done = synced(scene, &spec, BECOMES_READY).await?;
            let pipeline = done.applied.iter().find(|one| one.name.starts_with("TracePipeline/"));
            let pipeline = pipeline.context("the pipeline was not synced")?;
            ensure!(pipeline.changed == is_changed, "{done:?}");
            let live = scene.pipeline.get().await?.spec;
            ensure!(live.replicas == Some(2), "the sync set the number to {:?}", live.replicas);
            ensure!(live.gateway.log_level == LogLevel::Debug, "the sync did not reach the pipeline");
        }
        Ok(())
    })
}

#[test]
#[ignore = "group gitops"]
fn a_pipeline_that_rests_ends_a_sync_and_keeps_later_waves_waiting() -> Result<()> {
    scene::run("a_pipeline_that_rests", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.apply_credentials().await?;
        let rests = json!({"suspend": true});
        let alone = sync_all(scene, vec![scene.pipeline.manifest(&rests)], BECOMES_READY).await?;
        ensure!(alone.phase == "Succeeded", "{alone:?}");
        scene.pipeline.wait_true(kind::SUSPENDED, reason::SUSPENDED, READY).await?;
        let waits = sync(scene, &rests, LOOKS).await?;
        ensure_held_back(&waits, next(scene).await?.as_ref())?;
        let done = synced(scene, &json!({}), BECOMES_READY).await?;
        ensure!(next(scene).await?.is_some(), "{done:?}");
        // The next wave was held for this many checks, so they are enough for it once nothing holds it.
        synced(scene, &json!({}), LOOKS).await.map(drop)
    })
}

/// The pipeline in the first wave, and a ConfigMap in the second. In the list, the ConfigMap is first.
async fn sync(scene: &Scene, change: &Value, limit: Limit) -> Result<Operation> {
    let next = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NEXT, "annotations": {"argocd.argoproj.io/sync-wave": "1"}},
        "data": {"pipeline": scene.pipeline.name()},
    });
    sync_all(scene, vec![next, scene.pipeline.manifest(change)], limit).await
}

/// As [`sync`], for a sync that must succeed.
async fn synced(scene: &Scene, change: &Value, limit: Limit) -> Result<Operation> {
    let done = sync(scene, change, limit).await?;
    ensure!(done.phase == "Succeeded", "{done:?}");
    Ok(done)
}

async fn sync_all(scene: &Scene, manifests: Vec<Value>, limit: Limit) -> Result<Operation> {
    let (kubeconfig, namespace) = (scene.environment.kubeconfig()?, scene.namespace.name().to_owned());
    blocking(move || gitops::sync(&kubeconfig, &namespace, &manifests, limit)).await
}
