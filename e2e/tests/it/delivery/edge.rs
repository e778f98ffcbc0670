//! Spans that clients send to a pipeline's edge become rows, also while its pods are replaced. Clients use the address of its Service, as
//! users do.

use crate::otlp_clients::{Clients, Protocol, address};
use crate::prelude::*;

/// Clients that send at the same time, all over HTTP.
const CLIENTS: [Protocol; 4] = [Protocol::Http; 4];

/// Requests of a client after the last pod was replaced, so that new pods have taken some.
const REQUESTS_AFTER: u64 = 100;

/// How long it may take to replace the pods: two, one after the other. Each waits before it ends until the cluster no longer sends requests
/// to it.
const REPLACED: Duration = Duration::from_mins(4);

#[test]
#[ignore = "group delivery"]
fn no_request_fails_while_pods_of_an_edge_are_replaced_and_every_span_is_a_row() -> Result<()> {
    scene::run("an_edge_is_replaced", Uses::Servers, 8, async |scene: &mut Scene| {
        // At most three pods at a time, on one node that gateways share.
        let edge = json!({"replicas": 2, "resources": {"requests": {"cpu": "50m"}}});
        scene.start(&json!({"edge": edge})).await?;
        scene.pipeline.wait_true("EdgeReady", "Running", READY).await?;
        let gateways = scene.pipeline.gateways().uids().await?;
        let before = edges(scene).uids().await?;
        ensure!(before.len() == 2, "{before:?}");
        let clients = Clients::start(&address(scene, SERVICE).await?, scene.producer.run(), &CLIENTS);
        let mut changed = edge.clone();
        changed["connectionAgeMax"] = "11m".into();
        scene.pipeline.apply(&json!({"edge": changed})).await?;
        until("the pods of the edge replaced", REPLACED, async || {
            clients.ensure_no_failure()?;
            let now = edges(scene).uids().await?;
            let is_other =
                now.len() == 2 && before.values().all(|uid| now.values().all(|other| other != uid));
            Ok(Seen::when(is_other, || format!("{now:?}")))
        })
        .await?;
        clients.wait_answered(CLIENTS.len() as u64 * REQUESTS_AFTER).await?;
        ensure!(clients.told_again() == 0, "requests were told to come again {} times", clients.told_again());
        let sent = clients.stop().await?;
        let verdict = scene.assert_nothing_lost(&sent).await?;
        ensure!(verdict.rows == sent.acked.count(), "{} rows of {}", verdict.rows, sent.acked.count());
        ensure!(scene.pipeline.gateways().uids().await? == gateways, "the edge replaced a gateway");
        // Without an edge, all its objects are deleted, and the gateways stay.
        scene.pipeline.apply(&json!({})).await?;
        until("the edge gone", READY, async || {
            let left = edges(scene).uids().await?;
            let service = scene.namespace.api::<Service>().get_opt(SERVICE).await?;
            let is_gone = left.is_empty() && service.is_none();
            Ok(Seen::when(is_gone, || format!("{left:?}")))
        })
        .await?;
        ensure!(scene.pipeline.gateways().uids().await? == gateways, "the edge's end replaced a gateway");
        Ok(())
    })
}

/// The Service of the scene's pipeline, which is called `traces`.
const SERVICE: &str = "traces-edge";

fn edges(scene: &Scene) -> Pods {
    let namespace = &scene.namespace;
    Pods::new(namespace.cluster(), namespace.name(), "app.kubernetes.io/name=sluice-edge")
}
