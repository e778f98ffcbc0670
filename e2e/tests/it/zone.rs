//! Fetching from the zone: a gateway tells Kafka the zone of the node that it runs on, as Kafka itself says of its consumer group.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::{Cluster, Seen, until};
use e2e::spans::Shape;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::environment::READY;
use crate::scene::{self, Scene, Uses};

/// Label of nodes, and of the pods that are bound to them.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Longest wait for one answer of the broker.
const ANSWER: Duration = Duration::from_secs(20);

/// Bytes of an answer about a group of one member: a few hundred.
const ANSWER_BYTES_MAX: usize = 1 << 16;

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_tells_kafka_the_zone_of_its_node() -> Result<()> {
    scene::run("a_gateway_tells_kafka_the_zone", Uses::Servers, 4, async |scene: &mut Scene| {
        // By this protocol Kafka keeps the rack of each member.
        scene.start(&json!({"source": {"kafka": {"groupProtocol": "Consumer"}}})).await?;
        let cluster = scene.namespace.cluster().clone();
        let node = node(scene).await?;
        let zone = node.labels().get(ZONE).cloned();
        expect_rack(scene, zone.as_deref().unwrap_or_default()).await?;
        if zone.is_some() {
            return Ok(());
        }
        let name = node.name_any();
        let zoned = in_a_zone(scene, &cluster, &name).await;
        // What is not applied any more goes.
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        zoned.and(cluster.apply(&node).await.map(drop))
    })
    .await
}

/// The node gets a zone, and the gateway that is made after it has it.
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
        Ok(
            if zones.len() == before.len()
                && zones.iter().all(|found| found.is_some_and(|found| found == zone))
            {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{zones:?}: a Kubernetes before 1.35 needs PodTopologyLabelsAdmission"))
            },
        )
    })
    .await?;
    expect_rack(scene, zone).await?;
    let sent = scene.producer.produce(&scene.feed(Shape::Numbered, None), 0..1_000).await?;
    let verdict = scene.assert_nothing_lost(&sent).await?;
    ensure!(verdict.doubled == 0, "{} spans are doubled", verdict.doubled);
    Ok(())
}

/// Where the gateway runs.
async fn node(scene: &Scene) -> Result<Node> {
    let pod = scene.pipeline.gateways().list().await?.into_iter().next().context("there is no gateway")?;
    let name = pod.spec.and_then(|spec| spec.node_name).context("a gateway without a node")?;
    let nodes: Api<Node> = Api::all(scene.namespace.cluster().client());
    nodes.get(&name).await.context("get the gateway's node")
}

/// Waits until Kafka knows one gateway, and it in this rack.
async fn expect_rack(scene: &Scene, rack: &str) -> Result<()> {
    let group = scene.pipeline.settings().consumer_group();
    let member = Member { client: "sluice-gateway-traces-gateway-0".to_owned(), rack: rack.to_owned() };
    until(&format!("{member:?} in the group {group}"), READY, async || {
        let found = members(&scene.environment.kafka_host, &group).await?;
        Ok(if found == Members::One(member.clone()) {
            Seen::Done(())
        } else {
            Seen::NotYet(format!("{found:?}"))
        })
    })
    .await
}

/// A member of a group, as the broker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    client: String,
    /// Empty for none.
    rack: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Members {
    One(Member),
    Many(u64),
}

/// Asks the broker with `ConsumerGroupDescribe` (key 69, version 0; Kafka's protocol guide of 4.1), which librdkafka has no call for.
async fn members(broker: &str, group: &str) -> Result<Members> {
    let answer = tokio::time::timeout(ANSWER, ask(broker, group)).await;
    let answer = answer.context("the broker does not answer")??;
    let mut fields = Fields(&answer);
    read(&mut fields).with_context(|| format!("understand the broker's answer {answer:?}"))?
}

async fn ask(broker: &str, group: &str) -> Result<Vec<u8>> {
    let length = u8::try_from(group.len() + 1).ok().filter(|length| *length < 128);
    let length = length.context("the group's name needs more than a byte for its length")?;
    // Key, version, number of the request, no client's name, no tagged fields.
    let mut request =
        [&69_i16.to_be_bytes()[..], &[0, 0], &1_i32.to_be_bytes(), &(-1_i16).to_be_bytes(), &[0]].concat();
    // One group, its name, no rights, no tagged fields.
    request.extend([&[2, length], group.as_bytes(), &[0, 0]].concat());
    let mut stream = TcpStream::connect(broker).await.with_context(|| format!("connect to {broker}"))?;
    let bytes = u32::try_from(request.len()).context("a long request")?;
    stream.write_all(&[&bytes.to_be_bytes()[..], &request].concat()).await.context("ask for the group")?;
    let bytes = usize::try_from(stream.read_u32().await.context("read an answer's length")?)?;
    ensure!(bytes <= ANSWER_BYTES_MAX, "an answer of {bytes} bytes");
    let mut answer = vec![0; bytes];
    stream.read_exact(&mut answer).await.context("read the answer")?;
    Ok(answer)
}

/// `None` when the answer is cut short.
fn read(fields: &mut Fields<'_>) -> Option<Result<Members>> {
    // Number, tagged fields, throttle time, one group.
    fields.take(4 + 1 + 4)?;
    fields.varint()?;
    let error = i16::from_be_bytes(fields.take(2)?.try_into().ok()?);
    let message = fields.text()?;
    if error != 0 {
        return Some(Err(anyhow::anyhow!("error {error}: {message}")));
    }
    // Group and its state, two epochs, the assignor.
    fields.text()?;
    fields.text()?;
    fields.take(4 + 4)?;
    fields.text()?;
    match fields.varint()?.saturating_sub(1) {
        1 => {}
        count => return Some(Ok(Members::Many(count))),
    }
    // Member and instance.
    fields.text()?;
    fields.text()?;
    let rack = fields.text()?;
    fields.take(4)?;
    let client = fields.text()?;
    Some(Ok(Members::One(Member { client, rack })))
}

/// The bytes that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    /// LEB128 of at most 35 bits.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A text with its length + 1 before it, and 0 for none.
    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.varint()?).ok()?.saturating_sub(1);
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }
}

#[test]
fn an_answer_about_a_group_is_read_up_to_its_member() {
    let text = |text: &str| [&[u8::try_from(text.len() + 1).unwrap()], text.as_bytes()].concat();
    let head =
        [&[0; 9][..], &[2, 0, 0, 0], &text("group"), &text("Stable"), &[0; 8], &text("uniform")].concat();
    let member = [&[2][..], &text("id"), &[0], &text("zone-a"), &[0; 4], &text("client")].concat();
    let whole = [head.clone(), member].concat();
    let found = read(&mut Fields(&whole)).unwrap().unwrap();
    assert_eq!(found, Members::One(Member { client: "client".into(), rack: "zone-a".into() }));
    assert!((0..whole.len()).all(|end| read(&mut Fields(&whole[..end])).is_none()));
    let many = [head, vec![1]].concat();
    assert_eq!(read(&mut Fields(&many)).unwrap().unwrap(), Members::Many(0));
    let refused = [&[0; 9][..], &[2, 0, 16], &text("not here")].concat();
    assert!(read(&mut Fields(&refused)).unwrap().is_err());
}
