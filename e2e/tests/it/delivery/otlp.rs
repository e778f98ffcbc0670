//! Clients send spans to gateways with `source.otlp`, without Kafka. Each span becomes one row: over HTTP and gRPC, while a gateway is
//! replaced, and while another one is drained and removed. Clients use the address of the Service.

use crate::otlp_clients::{Clients, Protocol, address};
use crate::prelude::*;

const CLIENTS: [Protocol; 4] = [Protocol::Http, Protocol::Grpc, Protocol::Http, Protocol::Grpc];

/// Requests of all clients between two steps, so that every gateway has accepted some.
const REQUESTS_BETWEEN: u64 = 400;

/// The Service of the scene's pipeline, which is called `traces`.
const SERVICE: &str = "traces-otlp";

/// Time to replace a gateway, and to drain and remove one, on a busy machine.
const FLOW: Duration = Duration::from_mins(4);

#[test]
#[ignore = "group delivery"]
fn every_span_that_was_accepted_is_a_row_once_while_a_gateway_is_replaced_and_one_leaves() -> Result<()> {
    scene::run("otlp_source", Uses::Servers, 1, async |scene: &mut Scene| {
        scene.start(&spec(2)).await?;
        let accept = "2 gateways accept OTLP at traces-otlp.";
        scene.pipeline.wait_told(kind::SOURCE_REACHABLE, ("True", reason::OK), READY, accept).await?;
        let clients = Clients::start(&address(scene, SERVICE).await?, scene.producer.run(), &CLIENTS);
        clients.wait_answered(REQUESTS_BETWEEN).await?;
        replaced(scene, &clients).await?;
        clients.wait_answered(REQUESTS_BETWEEN).await?;
        // If the removed gateway left something uninserted, it would stay on a volume that no gateway reads.
        scene.pipeline.apply(&spec(1)).await?;
        scene.pipeline.wait("with one gateway", FLOW, |status| status.replicas == Some(1)).await?;
        clients.wait_answered(REQUESTS_BETWEEN).await?;
        let sent = clients.stop().await?;
        // After this, no INSERT is on its way that could double a row after the count.
        let is_empty = |status: &TracePipelineStatus| status.lag.is_some_and(|lag| lag.messages == 0);
        scene.pipeline.wait("with empty logs", FLOW, is_empty).await?;
        let verdict = scene.assert_nothing_lost(&sent).await?;
        ensure!(verdict.rows == sent.acked.count(), "{} rows of {}", verdict.rows, sent.acked.count());
        let status = scene.pipeline.wait_ready(READY).await?;
        ensure!(status.endpoints.len() == 2 && status.partitions.is_none(), "{status:?}");
        ensure!(status.consumer_group.is_none() && status.topics.is_empty(), "{status:?}");
        Ok(())
    })
}

/// The usual pipeline without Kafka.
fn spec(replicas: u32) -> Value {
    json!({"source": {"kafka": null, "otlp": {}}, "replicas": replicas})
}

/// Deletes a gateway's pod as an eviction does, and waits for its replacement.
async fn replaced(scene: &Scene, clients: &Clients) -> Result<()> {
    let gateways = scene.pipeline.gateways();
    let before = gateways.uids().await?;
    let (name, uid) = before.iter().next().map(|(name, uid)| (name.clone(), uid.clone())).unwrap_or_default();
    gateways.delete(&name).await?;
    until("a gateway in place of the one that was deleted", FLOW, async || {
        clients.ensure_no_failure()?;
        let now = gateways.uids().await?;
        let is_other = now.get(&name).is_some_and(|other| *other != uid);
        Ok(Seen::when(is_other, || format!("{now:?}")))
    })
    .await?;
    scene.pipeline.wait_ready(FLOW).await.map(drop)
}
