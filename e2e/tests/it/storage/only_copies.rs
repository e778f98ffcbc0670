//! With `delivery.commit: AfterEnqueue`, a queue volume has the only copy of committed spans. While `ClickHouse` is unreachable, a gateway
//! is killed and another one is removed; the volumes stay, and a Job inserts their spans. Numbered spans: none is lost, none doubled.

use crate::prelude::*;
use crate::storage::volumes::{claims, drained};

/// Spans that are produced while `ClickHouse` is unreachable: 20 MB, on both volumes.
const SPANS_AWAY: u64 = 20_000;

/// Rows that must be in the table before the outage.
const ROWS_BEFORE: u64 = 4_000;

#[test]
#[ignore = "group storage"]
fn a_volume_with_the_only_copy_outlives_its_gateway_and_is_inserted() -> Result<()> {
    scene::run("only_copies", Uses::Servers, 8, async |scene: &mut Scene| {
        let front = scene.front().await?;
        scene.start(&spec(2)).await?;
        let load = scene.flowing_load(SPANS_PER_SECOND, ROWS_BEFORE, FLOW).await?;
        front.go(Way::Refused);
        scene.wait_acked(&load, SPANS_AWAY, FLOW).await?;
        let sent = load.stop().await?;
        // From here on, all spans in Kafka are committed, so no gateway reads them again.
        scene.wait_committed().await?;
        killed(scene).await?;
        taken_away(scene).await?;
        front.go(Way::Open);
        // A Job inserts the volume's spans, and then the volume is deleted.
        drained(scene).await?;
        scene.assert_nothing_lost(&sent).await.map(drop)
    })
}

fn spec(replicas: u32) -> Value {
    json!({
        "delivery": {"commit": "AfterEnqueue"},
        "replicas": replicas,
        // How long the operator waits for a gateway that cannot insert.
        "scaling": {"drain": {"onTimeout": "Job", "timeout": "30s"}},
    })
}

/// Both gateways are killed at once, and come back with their volumes.
async fn killed(scene: &Scene) -> Result<()> {
    let before = scene.pipeline.gateways().kill_all().await?;
    scene.wait_other_gateways(&before, READY).await
}

/// One of them is removed without having inserted anything, and its volume stays.
async fn taken_away(scene: &Scene) -> Result<()> {
    scene.pipeline.apply(&spec(1)).await?;
    scene.pipeline.wait("with one gateway", FLOW, |status| status.replicas == Some(1)).await?;
    scene.pipeline.wait_false(kind::VOLUMES_DRAINED, "Draining", FLOW).await?;
    let left: Vec<String> = claims(scene).await?.into_keys().collect();
    ensure!(left == ["queue-traces-gateway-0", "queue-traces-gateway-1"], "there are the claims {left:?}");
    Ok(())
}
