//! A pipeline is deleted while neither its Kafka nor its `ClickHouse` can be reached, and only its volumes have some spans. It goes at its
//! time limit, and reports what was not drained and which volumes may have it. A pipeline of the same name then inserts those spans.
//! Numbered spans flow the whole time: none is lost, none doubled.
//!
//! The servers are unreachable only for this pipeline, because it reaches them through fronts. Other tests run at the same time, and the
//! load goes on.

use crate::prelude::*;
use crate::security::secured::pods::Own;
use crate::storage::volumes::{claims, uids};

/// Rows that must be in the table before the outage.
const ROWS_BEFORE: u64 = 4_000;

/// Spans that only the volumes of both gateways have when Kafka goes away too.
const SPANS_HELD: u64 = 10_000;

/// Time limit for draining, seconds. After checks two seconds apart, the third write of the operator reports that gateways are not empty.
/// Each check has requests of two seconds to servers that do not answer: on a busy machine half of this limit.
const LIMIT: u64 = 30;

/// How long the operator may take for everything else: it checks every two seconds, and its requests to gateways and servers have time
/// limits.
const SLACK: Duration = Duration::from_secs(20);

#[test]
#[ignore = "group deletion"]
fn a_pipeline_without_its_servers_goes_at_its_limit_and_leaves_what_it_holds() -> Result<()> {
    scene::run("gone", Uses::Servers, 4, async |scene: &mut Scene| {
        let own = Own::start(scene).await?;
        scene.start(&spec()).await?;
        let operator = scene.environment.operator.pods().lives().await?;
        let load = scene.flowing_load(SPANS_PER_SECOND, ROWS_BEFORE, FLOW).await?;
        own.clickhouse.open(false);
        held_alone(scene).await?;
        own.kafka.open(false);
        let volumes = uids(scene).await?;
        ensure!(volumes.len() == 2, "the claims are {volumes:?}");
        deleted(scene).await?;
        left(scene, &volumes).await?;
        let after = scene.environment.operator.pods().lives().await?;
        ensure!(after == operator, "the operator was harmed: {operator:?}, then {after:?}");
        own.kafka.open(true);
        own.clickhouse.open(true);
        scene.start(&spec()).await?;
        ensure!(uids(scene).await? == volumes, "other volumes took the place of those that were left");
        scene.end(load).await?;
        // Now, because its servers can still be reached.
        scene.pipeline.delete(FLOW).await?;
        own.remove()
    })
}

fn spec() -> Value {
    Own::spec(&json!({
        "replicas": 2,
        // The volume has the only copy.
        "delivery": {"commit": "AfterEnqueue"},
        "deletionPolicy": "Drain",
        "scaling": {"drain": {"timeout": format!("{LIMIT}s")}},
        // A gateway that leaves tries to insert for this long, which it cannot do here.
        "gateway": {"terminationGracePeriod": "15s"},
    }))
}

/// Waits until this many spans are committed, so that Kafka does not deliver them again, and not inserted.
async fn held_alone(scene: &Scene) -> Result<()> {
    let group = scene.pipeline.settings().consumer_group();
    until("spans that volumes alone have", FLOW, async || {
        let rows = scene.oracle().rows().await?;
        let committed = scene.topic.committed(&group).await?;
        let messages = committed.iter().map(|(_, offset)| offset).sum::<i64>();
        let spans = u64::try_from(messages)? * Shape::Numbered.message_spans();
        let held = spans.saturating_sub(rows);
        Ok(Seen::when(held >= SPANS_HELD, || format!("{held} spans")))
    })
    .await
}

/// It reports that it waits, and for which gateways. At its time limit it goes, and reports what was not drained and where that is.
async fn deleted(scene: &Scene) -> Result<()> {
    let waits = |status: &TracePipelineStatus| {
        let ready = condition(status, kind::READY);
        ready.is_some_and(|ready| {
            ready.reason == reason::DELETING && ready.message.ends_with("0 of 2 are empty")
        })
    };
    tokio::try_join!(
        scene.pipeline.delete(Duration::from_secs(LIMIT) + SLACK),
        scene.pipeline.wait("with gateways that are not empty", FLOW, waits),
    )?;
    let longer = format!("longer than {LIMIT} s (0 of 2 are empty)");
    let holds = "queue-traces-gateway-0, queue-traces-gateway-1, which may hold the only copy";
    assert_event_says(scene, "DrainTimedOut", &[&longer, holds]).await
}

/// Everything else is deleted, and the volumes are unchanged.
async fn left(scene: &Scene, before: &BTreeMap<String, String>) -> Result<()> {
    scene.wait_without(&[kind_of::<StatefulSet>(), kind_of::<Pod>()], FLOW).await?;
    let after = uids(scene).await?;
    ensure!(after == *before, "the claims are {after:?}, were {before:?}");
    for (name, claim) in claims(scene).await? {
        let is_going = claim.metadata.deletion_timestamp.is_some();
        ensure!(!is_going && claim.owner_references().is_empty(), "{name} goes: {:?}", claim.metadata);
    }
    Ok(())
}
