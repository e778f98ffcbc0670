//! A gateway sends Kafka the zone of its node, and Kafka reports it for the consumer group. This does not test that a broker then sends the
//! gateway to the replica in its zone, which needs brokers in several zones.

use e2e_fixtures::group_members::{Member, members};
use k8s_openapi::api::core::v1::Node;

use crate::prelude::*;

/// Label of nodes, and of the pods that are bound to them.
const ZONE: &str = "topology.kubernetes.io/zone";

#[test]
#[ignore = "group delivery"]
fn a_gateway_tells_kafka_the_zone_of_its_node() -> Result<()> {
    scene::run("a_gateway_tells_kafka_the_zone", Uses::Servers, 4, async |scene: &mut Scene| {
        // With this protocol, Kafka reports the rack of each member.
        scene.start(&json!({"source": {"kafka": {"groupProtocol": "Consumer"}}})).await?;
        let cluster = scene.namespace.cluster().clone();
        let node = node(scene).await?;
        if let Some(zone) = node.labels().get(ZONE) {
            return reads_in(scene, zone).await;
        }
        expect_rack(scene, "").await?;
        let name = node.name_any();
        let zoned = in_a_zone(scene, &cluster, &name).await;
        // Server-side apply removes fields that are no longer applied.
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        zoned.and(cluster.apply(&node).await.map(drop))
    })
}

/// The node gets a zone, and the gateway that starts afterwards reports it.
async fn in_a_zone(scene: &Scene, cluster: &Cluster, node: &str) -> Result<()> {
    let zone = scene.namespace.name();
    let labels = json!({"name": node, "labels": {ZONE: zone}});
    cluster.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": labels})).await?;
    let gateways = scene.pipeline.gateways();
    let before = gateways.uids().await?;
    for name in before.keys() {
        gateways.delete(name).await?;
    }
    until("another gateway, in the zone", READY, async || {
        let pods = gateways.list().await?;
        let is_other = |pod: &Pod| !before.values().any(|uid| Some(uid) == pod.uid().as_ref());
        let zones: Vec<Option<&String>> =
            pods.iter().filter(|pod| is_other(pod)).map(|pod| pod.labels().get(ZONE)).collect();
        Ok(Seen::when(
            zones.len() == before.len() && zones.iter().all(|found| found.is_some_and(|found| found == zone)),
            || format!("{zones:?}: a Kubernetes before 1.35 needs PodTopologyLabelsAdmission"),
        ))
    })
    .await?;
    reads_in(scene, zone).await
}

/// Kafka reports the gateway in this zone, and the gateway reads there.
async fn reads_in(scene: &Scene, zone: &str) -> Result<()> {
    expect_rack(scene, zone).await?;
    let sent = scene.producer.produce(&scene.feed(Shape::Numbered, None), 0..1_000).await?;
    scene.assert_nothing_lost(&sent).await.map(drop)
}

async fn node(scene: &Scene) -> Result<Node> {
    let pod = scene.pipeline.gateways().first().await?;
    let name = pod.spec.and_then(|spec| spec.node_name).context("a gateway without a node")?;
    let nodes: Api<Node> = Api::all(scene.namespace.cluster().client());
    nodes.get(&name).await.context("get the gateway's node")
}

/// Waits until Kafka reports exactly one gateway, in this rack.
async fn expect_rack(scene: &Scene, rack: &str) -> Result<()> {
    let group = scene.pipeline.settings().consumer_group();
    let member = [Member { client: "sluice-gateway-traces-gateway-0".to_owned(), rack: rack.to_owned() }];
    until(&format!("{member:?} in the group {group}"), READY, async || {
        let found = members(&scene.environment.kafka.host, &group).await?;
        Ok(Seen::when(found == member, || format!("{found:?}")))
    })
    .await
}
