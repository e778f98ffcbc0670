//! The short states of a pipeline while it is made and changed, and its lasting state with running gateways.

use futures::future::try_join_all;

use super::{Other, nobody};
use crate::gitops::health::Passing;
use crate::prelude::*;

#[test]
#[ignore = "group gitops"]
fn what_passes_and_what_stays_is_seen_as_it_is() -> Result<()> {
    scene::run("passing", Uses::Servers, 8, async |scene: &mut Scene| {
        // No program listens at this address of this machine; on another cluster, one may.
        scene.environment.local_clickhouse_only()?;
        let front = scene.front().await?;
        // The Job runs as long as it has no answer.
        front.go(Way::Blackhole);
        let versions = Passing::of(&scene.pipeline).await?;
        scene.apply_credentials().await?;
        scene.pipeline.apply(&spec(&json!({}))).await?;
        begun(&versions).await?;
        front.go(Way::Open);
        scene.pipeline.wait_ready(READY).await?;
        assert_state(&scene.pipeline, "running").await?;
        // With the table that exists now.
        let others = others(scene);
        let awaiting = awaiting(scene);
        try_join_all(others.iter().map(|(other, ..)| other.apply()).chain([awaiting.apply()])).await?;
        changed(scene, &versions).await?;
        try_join_all(others.iter().map(async |(other, reason)| {
            let says = |status: &TracePipelineStatus| {
                has(status, kind::READY, reason::RUNNING) && has(status, kind::SCHEMA_READY, reason)
            };
            other.reached(says).await
        }))
        .await?;
        scene.pipeline.apply(&spec(&json!({"scaling": {"mode": "External"}, "replicas": 2}))).await?;
        reached(&scene.pipeline, "scaled-by-others", READY, |status| {
            has(status, kind::SCALING_ACTIVE, reason::EXTERNAL) && has(status, kind::READY, reason::RUNNING)
        })
        .await?;
        awaiting.reached(|status| has(status, kind::READY, reason::REPLICAS_NOT_READY)).await
    })
}

fn spec(change: &Value) -> Value {
    // A canary would be another state, which lasts longer.
    merged(&json!({"rollout": {"strategy": "RollingUpdate"}}), change)
}

/// Each with one gateway, and with the reason of its `SchemaReady`.
fn others(scene: &Scene) -> [(Other, &'static str); 3] {
    let servers = json!([scene.pipeline.settings().clickhouse, format!("http://{}", nobody())]);
    let one = |state: &str, change: Value| Other::new(scene, state, &merged(&at("replicas", 1), &change));
    [
        (one("without-volumes", json!({"queue": {"mode": "Disabled", "size": null}})), reason::OK),
        (one("table-not-managed", at("sink.clickhouse.schema.management", "None")), reason::NOT_MANAGED),
        (one("servers-not-reached", at("sink.clickhouse.endpoints", servers)), reason::SERVERS_NOT_REACHED),
    ]
}

/// Its gateway runs, and waits for a table that is never created.
fn awaiting(scene: &Scene) -> Other {
    let sink = json!({"table": "nobody_makes_it", "schema": {"management": "None"}});
    Other::new(scene, "table-awaited", &json!({"replicas": 1, "sink": {"clickhouse": sink}}))
}

/// Before the first reconcile, after Kafka has answered, and while the Job runs.
async fn begun(versions: &Passing) -> Result<()> {
    let moves = |pipeline: &TracePipeline, schema: &str| {
        let status = pipeline.status.as_ref();
        status.is_some_and(|status| {
            has(status, kind::RECONCILING, reason::SPEC_CHANGED) && has(status, kind::SCHEMA_READY, schema)
        })
    };
    let is_unseen =
        |pipeline: &TracePipeline| pipeline.status.as_ref().is_none_or(|status| status.conditions.is_empty());
    versions.was("unseen", is_unseen).await?;
    versions.was("not-asked", |pipeline| moves(pipeline, reason::NOT_PROBED)).await?;
    versions.was("schema-job-at-work", |pipeline| moves(pipeline, reason::JOB_RUNNING)).await
}

/// An edit for every gateway: before the operator has seen it, before it is rolled out, and during the rollout.
async fn changed(scene: &Scene, versions: &Passing) -> Result<()> {
    scene.pipeline.apply(&spec(&json!({"gateway": {"logLevel": "debug"}}))).await?;
    let is_over = |status: &TracePipelineStatus| {
        rollout(status) == Some(RolloutState::Complete) && has(status, kind::READY, reason::RUNNING)
    };
    scene.pipeline.wait("with an edit that every gateway has", READY, is_over).await?;
    let is_second = |pipeline: &TracePipeline| pipeline.metadata.generation == Some(2);
    let status = |pipeline: &TracePipeline| pipeline.status.clone().unwrap_or_default();
    versions
        .was("outdated", |pipeline| is_second(pipeline) && status(pipeline).observed_generation == Some(1))
        .await?;
    versions
        .was("about-to-change", |pipeline| {
            is_second(pipeline) && has(&status(pipeline), kind::RECONCILING, reason::SPEC_CHANGED)
        })
        .await?;
    versions
        .was("rolling", |pipeline| {
            let status = status(pipeline);
            is_second(pipeline)
                && rollout(&status) == Some(RolloutState::Rolling)
                && has(&status, kind::RECONCILING, reason::ROLLING_OUT)
                && has(&status, kind::READY, reason::PROGRESSING)
        })
        .await
}
