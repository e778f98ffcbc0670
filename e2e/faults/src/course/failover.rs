//! A shard has two endpoints, and one fails during an INSERT: the gateway sends it to the other one with the same token.
//!
//! Both endpoints are fronts of one server, so that both know the same tokens, like replicas of a replicated table. This scenario does not test
//! that real replicas share tokens.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use crate::front::Way;
use crate::scene::{Expected, PATIENCE, SPANS_AFTER, Scene};
use crate::sink_front::{Leg, Verdict};

/// The step at which the INSERT is, by the round.
const LEGS: [Leg; 3] = [Leg::Answered, Leg::Middle, Leg::Head];

/// Inserts by the other endpoint that show that all inserts go there.
const INSERTS_OF_OTHER: u64 = 24;

pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    let other = scene.stage.servers.sink.beside().await?;
    let endpoints = [scene.stage.servers.sink.url(), other.url()];
    scene.reconfigure(&json!({"sink": {"clickhouse": {"endpoints": endpoints}}}))?;
    scene.start_under_load(Some("gateway-0")).await?;

    let leg = LEGS[usize::try_from(scene.round)? % LEGS.len()];
    let sink = &scene.stage.servers.sink;
    let caught = sink.gate().trap("insert", move |passage| passage.leg == leg).caught(PATIENCE).await?;
    sink.go(Way::Refused);
    let since = Instant::now();
    caught.decide(Verdict::Reset);
    let gone = async {
        scene.wait_inserts_at(&other, 1).await?;
        let recovery = since.elapsed().as_secs_f64();
        scene.wait_inserts_at(&other, INSERTS_OF_OTHER).await.map(|()| recovery)
    };
    let gone = gone.await;
    scene.stage.servers.sink.go(Way::Open);
    let recovery = gone?;
    scene.wait_acked(SPANS_AFTER).await?;
    Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
}
