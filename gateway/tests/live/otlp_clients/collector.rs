//! A Collector between clients and the edge, or a gateway with `source.otlp`, over gRPC and over HTTP in protobuf and JSON; and the same Collector
//! as a producer of its own, whose messages have the keys and partitions of the edge's.

use super::{
    ASK_AGAIN, Language, PATIENCE, Program, SPANS, Sent,
    away::Away,
    found, rows, spans,
    target::{ROLES, Target, keyed_as_by_an_edge},
};
use crate::{
    broker::Topic,
    edge::{Edge, post},
    messages::{every_shape, message, span},
};
use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    slice,
    time::{Duration, Instant},
};
use tokio::{net::TcpStream, time::sleep};

/// A Collector that receives OTLP over gRPC and HTTP.
struct Collector {
    program: Program,
    config: PathBuf,
    grpc: String,
    http: String,
}

impl Collector {
    /// Starts one with these exporters; each exporter gets every request.
    async fn start(run: &str, exporters: &[Exporters]) -> Self {
        // It does not say which port it has got. Both are free until it takes them.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [grpc, http] = free.map(|listener| listener.local_addr().unwrap().to_string());
        let names: Vec<_> = exporters.iter().map(|exporters| &*exporters.names).collect();
        let (names, exporters) =
            (names.join(", "), exporters.iter().map(|exporters| &*exporters.yaml).collect::<String>());
        let config = std::env::temp_dir().join(format!("sluice-live-collector-{run}.yaml"));
        let text = format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{grpc}'}}, http: {{endpoint: '{http}'}}}}}}}}\n\
             exporters:\n{exporters}\
             service:\n  pipelines: {{traces: {{receivers: [otlp], exporters: [{names}]}}}}\n  \
             telemetry: {{metrics: {{level: none}}}}\n"
        );
        fs::write(&config, text).unwrap();
        let program = Program::start("collector", &format!("{run}-collector"), |command| {
            command.arg("--config").arg(format!("file:{}", config.display()));
        });
        let mut collector = Self { program, config, grpc, http };
        let begun = Instant::now();
        while TcpStream::connect(&collector.http).await.is_err()
            || TcpStream::connect(&collector.grpc).await.is_err()
        {
            assert!(begun.elapsed() < PATIENCE, "it does not listen: {}", collector.program.said());
            assert!(
                collector.program.child.try_wait().unwrap().is_none(),
                "it has ended: {}",
                collector.program.said()
            );
            sleep(ASK_AGAIN).await;
        }
        collector
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        fs::remove_file(&self.config).ok();
    }
}

/// What a client sends to it.
fn through_collector() -> Sent {
    Sent { has_json: true, ..Sent::new(Language::Go, ("grpc", "none")) }
}

/// Exporters by their names, and as YAML.
struct Exporters {
    names: String,
    yaml: String,
}

/// Exporters to a server in every way; `name` tells them from those to another one.
fn forwarding(name: &str, (grpc, http): (&str, &str), queue: &str) -> Exporters {
    Exporters {
        names: format!("otlp/{name}, otlphttp/{name}-proto, otlphttp/{name}-json"),
        yaml: format!(
            "  otlp/{name}: {{endpoint: '{grpc}', tls: {{insecure: true}}, {queue}}}\n  \
             otlphttp/{name}-proto: {{endpoint: 'http://{http}', {queue}}}\n  \
             otlphttp/{name}-json: {{endpoint: 'http://{http}', encoding: json, {queue}}}\n"
        ),
    }
}

fn to_edge(edge: &Edge, queue: &str) -> Exporters {
    forwarding("edge", (&edge.address("grpc").unwrap(), &edge.address("http").unwrap()), queue)
}

/// Without a queue a client gets the Collector's answer once each server has answered.
const NO_QUEUE: &str = "sending_queue: {enabled: false}";

const WAYS: usize = 3;

/// An exporter to a topic, with the keys and partitions of an edge.
fn to_kafka(topic: &Topic) -> Exporters {
    let yaml = format!(
        "  kafka:\n    brokers: ['{}']\n    traces: {{topic: '{}', encoding: otlp_proto}}\n    \
         partition_traces_by_id: true\n    record_partitioner: {{sticky_key: {{hasher: murmur2}}}}\n    \
         producer: {{compression: zstd, required_acks: -1}}\n    {NO_QUEUE}\n",
        topic.kafka().bootstrap_servers.join(","),
        topic.name
    );
    Exporters { names: "kafka".to_owned(), yaml }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn everything_that_a_collector_forwards_and_produces_is_read_back() {
    let topic = Topic::create("clients_produced", 6).await;
    let (mut targets, mut exporters) = (Vec::new(), vec![to_kafka(&topic)]);
    for role in ROLES {
        let target = Target::start(role, "forwarded").await;
        let (grpc, http) = (target.address("grpc").await, target.address("http").await);
        exporters.push(forwarding(role.name(), (&grpc, &http), NO_QUEUE));
        targets.push(target);
    }
    let sent = through_collector();
    let collector = Collector::start(&sent.run, &exporters).await;
    sent.to_endpoint(&collector.grpc).succeeds().await;
    drop(collector);
    let by_kafka = found(&topic);
    keyed_as_by_an_edge(&by_kafka);
    let received = spans::received(&by_kafka);
    spans::compare(&sent, &received, 1);
    rows::compare(topic, "produced", &by_kafka, &received).await;
    for target in targets {
        target.read_back("forwarded", slice::from_ref(&sent), WAYS).await;
    }
}

/// Also those that no SDK makes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn attributes_of_every_shape_pass_a_collector() {
    let (edge_topic, topic) =
        (Topic::create("clients_shapes", 6).await, Topic::create("clients_shapes_produced", 6).await);
    let mut edge = Edge::start(&edge_topic, &edge_topic.kafka().bootstrap_servers.join(","), "");
    edge.wait_ready().await;
    let exporters = [to_edge(&edge, NO_QUEUE), to_kafka(&topic)];
    let collector = Collector::start(&topic.name, &exporters).await;
    let shapes = message(vec![span(every_shape())]);
    let (status, body) = post(&collector.http, "application/x-protobuf", &shapes).await.unwrap();
    assert_eq!(status, 200, "{}: {}", String::from_utf8_lossy(&body), collector.program.said());
    spans::are_copies(&shapes, &found(&topic), 1);
    spans::are_copies(&shapes, &found(&edge_topic), WAYS);
    drop(collector);
    topic.delete().await;
    edge_topic.delete().await;
}

/// A Collector with its queue keeps what it has accepted until the edge takes it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "group clients"]
async fn a_collector_sends_again_when_brokers_come_late() {
    let away = Away::start("clients_late_collector").await;
    let sent = through_collector();
    let exporters = [to_edge(&away.edge, "sending_queue: {enabled: true}")];
    let collector = Collector::start(&sent.run, &exporters).await;
    let begun = Instant::now();
    sent.to_endpoint(&collector.grpc).succeeds().await;
    away.come(u64::try_from(WAYS).unwrap()).await;
    let wanted = WAYS * usize::try_from(SPANS).unwrap();
    let received = loop {
        let received = spans::received(&found(&away.topic));
        let stored = spans::of_run(&sent, &received);
        // Some may be there once more: a request that got an error may be stored.
        if stored.values().map(Vec::len).sum::<usize>() >= wanted {
            break received;
        }
        assert!(begun.elapsed() < PATIENCE, "{} of {wanted}: {}", stored.len(), collector.program.said());
        sleep(Duration::from_millis(500)).await;
    };
    spans::compare(&sent, &received, WAYS);
    eprintln!("Collector: done after {:.1?}", begun.elapsed());
    drop(collector);
    away.topic.delete().await;
}
