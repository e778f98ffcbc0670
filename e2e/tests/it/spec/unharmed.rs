//! Impossible requests are rejected, or wait with a reason, and running gateways are not affected: a second pipeline with the consumer
//! group of a running one, a topic that lost partitions, and revisions that never start. Each continues after the correction. Numbered
//! spans flow the whole time: none is lost, none doubled.

use crate::prelude::*;

/// How long a pipeline may take to go if its deletion waits for nothing.
const AT_ONCE: Duration = Duration::from_secs(10);

#[test]
#[ignore = "group spec"]
fn a_second_pipeline_with_a_consumer_group_waits_until_the_first_is_gone() -> Result<()> {
    scene::run("second_in_group", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.start(&json!({"replicas": 2, "deletionPolicy": "Immediate"})).await?;
        let load = scene.flowing_load(FEW_PER_SECOND, FEW_BETWEEN, FLOW).await?;
        let before = scene.pipeline.gateways().uids().await?;
        let second = Settings { name: "second".to_owned(), ..scene.pipeline.settings().clone() };
        let second = Pipeline::new(&scene.namespace, second);
        second.apply(&json!({"replicas": 2})).await?;
        let taken = ("False", reason::CONSUMER_GROUP_TAKEN);
        let first = format!("{}/traces", scene.namespace.name());
        second.wait_told(kind::READY, taken, READY, &first).await?;
        assert_state(&second, "group-taken").await?;
        scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
        scene.pipeline.wait_ready(FLOW).await?;
        assert_kept(&scene.pipeline, &before).await?;
        ensure!(second.gateways().list().await?.is_empty(), "the second one has gateways");
        gone_at_once(scene).await?;
        // The second pipeline gets the group of the first without an edit.
        second.wait_ready(READY).await?;
        scene.wait_acked(&load, FEW_BETWEEN, FLOW).await?;
        scene.end(load).await
    })
}

/// `deletionPolicy: Immediate`: no finalizer holds it, and all its objects are deleted, its volumes too.
async fn gone_at_once(scene: &Scene) -> Result<()> {
    let held = scene.pipeline.get().await?.metadata.finalizers.unwrap_or_default();
    ensure!(held.is_empty(), "the pipeline is held by {held:?}");
    scene.pipeline.delete(AT_ONCE).await?;
    let kinds = [kind_of::<StatefulSet>(), kind_of::<Pod>(), kind_of::<PersistentVolumeClaim>()];
    scene.wait_without(&kinds, FLOW).await
}

#[test]
#[ignore = "group spec"]
fn a_topic_that_lost_partitions_is_waited_for_and_read_once_it_is_meant_so() -> Result<()> {
    scene::run("partitions_lost", Uses::Servers, 8, async |scene: &mut Scene| {
        let start = json!({"replicas": 2});
        scene.start(&start).await?;
        let first = scene.producer.produce(&scene.feed(Shape::Numbered, None), 0..4_000).await?;
        scene.assert_nothing_lost(&first).await?;
        let before = scene.pipeline.gateways().uids().await?;
        made_again(scene, 4).await?;
        let lost = ("False", reason::PARTITIONS_LOST);
        scene.pipeline.wait_told(kind::READY, lost, READY, "has 4 partitions and had 8").await?;
        assert_state(&scene.pipeline, "partitions-lost").await?;
        began_anew(scene, &before).await?;
        // The gateways run on, with the existing topic.
        let then = scene.producer.produce(&scene.feed(Shape::Numbered, None), 4_000..8_000).await?;
        let sent = first.and(then);
        scene.assert_nothing_lost(&sent).await?;
        meant_so(scene, &start).await?;
        let then = scene.producer.produce(&scene.feed(Shape::Numbered, None), 8_000..12_000).await?;
        scene.assert_nothing_lost(&sent.and(then)).await.map(drop)
    })
}

/// Makes another topic of the same name, with this many partitions.
async fn made_again(scene: &mut Scene, partitions: i32) -> Result<()> {
    scene.topic.delete().await?;
    // The broker allows the name again after it has removed the old topic.
    scene.topic = until("a topic of the same name", FLOW, async || {
        let made = scene.topic.again(partitions).await;
        Ok(made.map_or_else(|error| Seen::NotYet(format!("{error:#}")), Seen::Done))
    })
    .await?;
    Ok(())
}

/// No gateway was replaced. Gateways that owned partitions of the old topic recognised the new one as another, and began anew once.
async fn began_anew(scene: &Scene, before: &Uids) -> Result<()> {
    let gateways = scene.pipeline.gateways();
    until("gateways that read the new topic", FLOW, async || {
        let after = gateways.uids().await?;
        if after != *before {
            return Ok(Seen::Failed(anyhow!("the gateways are {after:?}, were {before:?}")));
        }
        let mut restarts = Vec::new();
        for name in after.keys() {
            restarts.push(gateways.restarts(name).await?);
        }
        if restarts.iter().any(|count| *count > 1) {
            return Ok(Seen::Failed(anyhow!("gateways were restarted {restarts:?} times")));
        }
        let status = scene.pipeline.get().await?.status.unwrap_or_default();
        Ok(Seen::when(restarts.contains(&1) && status.ready_replicas == Some(2), || {
            format!("restarts {restarts:?}, {:?} ready", status.ready_replicas)
        }))
    })
    .await
}

/// As the message says: suspend and resume.
async fn meant_so(scene: &Scene, start: &Value) -> Result<()> {
    scene.pipeline.apply(&merged(start, &json!({"suspend": true}))).await?;
    scene.pipeline.wait_true(kind::SUSPENDED, reason::SUSPENDED, FLOW).await?;
    let status = scene.change(start).await?;
    ensure!(status.partitions == Some(4), "{:?} partitions are read", status.partitions);
    Ok(())
}

#[test]
#[ignore = "group spec"]
fn a_revision_that_never_starts_is_told_and_an_edit_heals_it() -> Result<()> {
    scene::run("stuck_revision", Uses::Servers, 4, async |scene: &mut Scene| {
        scene.apply_credentials().await?;
        never_ran(scene).await?;
        let load = scene.flowing_load(FEW_PER_SECOND, FEW_BETWEEN, FLOW).await?;
        no_image(scene).await?;
        scene.end(load).await
    })
}

/// All gateways start with a file that they reject, and there is no earlier revision to roll back to. The edit replaces pods
/// that Kubernetes would not replace.
async fn never_ran(scene: &Scene) -> Result<()> {
    let no_authority = json!({
        "sink": {"clickhouse": {
            "endpoints": ["https://127.0.0.1:1"],
            "tls": {"caSecretRef": {"name": CREDENTIALS, "key": "username"}},
            // Otherwise a Job would find it, and no gateway be started.
            "schema": {"management": "None"},
        }},
        // After this time, the operator no longer waits for it.
        "rollout": {"progressDeadline": "20s"},
    });
    scene.pipeline.apply(&spec(&no_authority)).await?;
    let failed = ("False", reason::ROLLOUT_FAILED);
    scene.pipeline.wait_told(kind::READY, failed, READY, "contains no certificate").await?;
    assert_state(&scene.pipeline, "rollout-failed").await?;
    let broken = scene.pipeline.gateways().uids().await?;
    scene.change(&spec(&json!({}))).await?;
    let healed = scene.pipeline.gateways().uids().await?;
    let is_other = healed.iter().all(|(name, uid)| broken.get(name) != Some(uid));
    ensure!(healed.len() == 2 && is_other, "the gateways are {healed:?}, were {broken:?}");
    Ok(())
}

/// One gateway waits for an image that may still come. The edit fixes it before the operator rolls back; the other gateway reads on.
async fn no_image(scene: &Scene) -> Result<()> {
    let mut stays = scene.pipeline.gateways().uids().await?;
    stays.retain(|name, _| name.ends_with("-0"));
    let no_image = json!({"gateway": {"image": "sluice.local/gateway:no-such-version"}});
    // Otherwise the operator would first wait for a Job with that image.
    let unmanaged = json!({"sink": {"clickhouse": {"schema": {"management": "None"}}}});
    scene.pipeline.apply(&spec(&merged(&unmanaged, &no_image))).await?;
    let is_waiting = |status: &TracePipelineStatus| has(status, kind::READY, reason::REPLICAS_NOT_READY);
    reached(&scene.pipeline, "replicas-not-ready", READY, is_waiting).await?;
    assert_kept(&scene.pipeline, &stays).await?;
    scene.change(&spec(&json!({}))).await?;
    assert_kept(&scene.pipeline, &stays).await
}

fn spec(change: &Value) -> Value {
    merged(&json!({"replicas": 2}), change)
}

/// Checks that these gateways still exist and were not restarted.
pub async fn assert_kept(pipeline: &Pipeline, before: &Uids) -> Result<()> {
    let gateways = pipeline.gateways();
    let after = gateways.uids().await?;
    ensure!(!before.is_empty(), "there was no gateway to be kept");
    for (name, uid) in before {
        ensure!(after.get(name) == Some(uid), "{name} was replaced: {before:?}, then {after:?}");
        gateways.ensure_not_restarted(name).await?;
    }
    Ok(())
}
