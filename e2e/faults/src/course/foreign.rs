//! While a gateway is down, another client commits the offsets of its group, with metadata that is no plan. The gateway must start each such
//! partition at the committed offset with a new plan, and log and count that.
//!
//! Nothing was in flight, so no row is doubled. New messages have later offsets, so none is lost.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::broker::FRESH_STARTS;
use super::spooled::is_same;
use crate::foreign_commit::ForeignCommit;
use crate::kafka_front::{Leg, Passage};
use crate::kafka_wire::OFFSET_COMMIT;
use crate::scene::{Expected, PATIENCE, SPANS_AFTER, Scene};
use e2e_fixtures::cluster::Seen;
use e2e_stack::process::Signal;

/// Spans that arrive while no gateway runs: two messages in each partition.
const SPANS_AWAY: u64 = 1_600;

/// Partitions that another client commits, from 0 on: half of them.
const FOREIGN: u32 = 4;

/// The metadata of these commits: text beyond ASCII, bytes that are no text, the first half of a plan, and nothing, as most tools commit.
fn metadata(plan: &str) -> [Vec<u8>; FOREIGN as usize] {
    let half = &plan.as_bytes()[..plan.len() / 2];
    ["é".as_bytes().to_vec(), vec![0xff, 0xfe, 0x80], half.to_vec(), Vec::new()]
}

pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    // A static member would stay in the group, and then the group takes no commits of others.
    scene.start_under_load(None).await?;
    let plan = plan(scene).await?;
    scene.stop_load().await?;
    scene.wait_committed(0).await?;
    scene.gateway(0).signal(Signal::TERM)?;
    let code = scene.gateway(0).end_within(PATIENCE).await?;
    ensure!(code == 0, "a gateway with nothing in flight ended with code {code}");
    scene.retire(0)?;
    commit(scene, &plan).await?;
    scene.produce(SPANS_AWAY).await?;

    scene.start_again(0, None)?;
    let started = Instant::now();
    let recovery = scene.recovered(started).await?;
    scene.start_load();
    scene.wait_acked(SPANS_AFTER).await?;
    scene.stop_load().await?;
    // Once everything is committed, every partition has begun under a plan.
    scene.wait_committed(0).await?;
    scene.wait_metric(0, FRESH_STARTS, |starts| is_same(starts, f64::from(FOREIGN))).await?;
    Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
}

/// The metadata that the gateway commits with an offset.
async fn plan(scene: &Scene<'_>) -> Result<String> {
    let topic = scene.topic.name().to_owned();
    let wanted = topic.clone();
    let is_commit = move |passage: &Passage| {
        let is_answered = passage.leg == Leg::Answered && passage.request.api == OFFSET_COMMIT;
        is_answered && passage.request.commits.iter().any(|commit| commit.topic == wanted)
    };
    let caught = scene.stage.servers.kafka_gate().trap("commit", is_commit).caught(PATIENCE).await?;
    let own = caught.passage.request.commits.iter().find(|commit| commit.topic == topic);
    Ok(own.context("such a commit has a partition of the topic")?.metadata.clone())
}

/// Commits the already committed offsets again.
async fn commit(scene: &mut Scene<'_>, plan: &str) -> Result<()> {
    let committed = scene.committed().await?;
    let mut commits = Vec::new();
    for (partition, metadata) in (0_i32..).zip(metadata(plan)) {
        let offset = committed.get(&partition).context("every partition is committed")?;
        commits.push(ForeignCommit { partition, offset: *offset, metadata });
    }
    scene
        .wait("a commit of another client", PATIENCE, async |scene| {
            // The broker refuses as long as the group has a member.
            scene.commit_as_other(&commits).await.map(Seen::Done)
        })
        .await
}
