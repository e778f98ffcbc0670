//! The edge as a process in front of a real Kafka: every span that was answered with success is in the topic once, its trace in one partition, also
//! when the process gets SIGTERM meanwhile; and nothing is answered with success while no broker is there.

use crate::{broker::Topic, messages::message};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceResponse,
    trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData},
};
use prost::Message as _;
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode},
};
use rustix::process::{Pid, Signal, kill_process};
use sluice_gateway::edge::splitting;
use sluice_kafka::producer::partition_of;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};

/// How long an edge may take to do what is waited for; it takes seconds on an idle machine.
const PATIENCE: Duration = Duration::from_mins(2);
const ASK_AGAIN: Duration = Duration::from_millis(20);

const PARTITIONS: u32 = 6;

/// The program; killed when the test is over.
pub struct Edge {
    pub child: Child,
    log: PathBuf,
}

impl Edge {
    /// Starts an edge for a topic; `more` is YAML below `kafka`, and `brokers` those that it asks.
    pub fn start(topic: &Topic, brokers: &str, more: &str) -> Self {
        Self::start_listening(topic, brokers, "", more)
    }

    /// The same; `listen` is YAML after the addresses of the server.
    pub fn start_listening(topic: &Topic, brokers: &str, listen: &str, more: &str) -> Self {
        let folder = std::env::temp_dir();
        let named = |ending: &str| folder.join(format!("{}-edge.{ending}", topic.name));
        let (file, log) = (named("yaml"), named("log"));
        let config = format!(
            "contractVersion: 1\n\
             pipeline: {{namespace: live, name: live}}\n\
             listen: {{grpc: '127.0.0.1:0', http: '127.0.0.1:0'{listen}}}\n\
             kafka:\n  bootstrapServers: ['{brokers}']\n  topic: {}\n{more}\
             workers: 2\n\
             memory: {{limit: 192MiB}}\n\
             admin: {{listen: '127.0.0.1:0'}}\n\
             log: {{format: Text}}\n",
            topic.name
        );
        fs::write(&file, config).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sluice-gateway"))
            .args(["edge", "--config"])
            .arg(&file)
            .env("POD_NAME", "edge-0")
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// An address of its log's line at the start.
    pub fn address(&self, name: &str) -> Option<String> {
        let said = self.said();
        let line = said.lines().find(|line| line.contains("the edge starts"))?;
        let (_, rest) = line.split_once(&format!(" {name}="))?;
        Some(rest.split_whitespace().next()?.to_owned())
    }

    pub async fn wait_ready(&mut self) {
        let begun = Instant::now();
        while !matches!(&self.address("listen"), Some(at) if get(at, "/readyz").await.is_some_and(|(status, _)| status == 200))
        {
            assert!(begun.elapsed() < PATIENCE, "it is not ready: {}", self.said());
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended: {}", self.said());
            sleep(ASK_AGAIN).await;
        }
    }

    async fn export(&self, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let address = self.address("http")?;
        post(&address, "application/x-protobuf", body).await
    }

    async fn ends(&mut self) -> i32 {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or_else(|| panic!("it was killed: {}", self.said()));
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {}", self.said());
            sleep(ASK_AGAIN).await;
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

async fn asked(address: &str, request: Vec<u8>) -> Option<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(&request).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let status = std::str::from_utf8(&answer[..head]).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer[head + 4..].to_vec()))
}

pub async fn get(address: &str, path: &str) -> Option<(u16, Vec<u8>)> {
    asked(address, format!("GET {path} HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n").into_bytes())
        .await
}

pub async fn post(address: &str, content_type: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nHost: edge\r\nConnection: close\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    asked(address, [head.as_bytes(), body].concat()).await
}

/// A request with spans of this many traces, numbered from here: the number is in trace and span id.
pub fn request(first: u64, traces: u64, spans_each: u8) -> Vec<u8> {
    let span = |trace: u64, number: u8| Span {
        trace_id: [trace.to_be_bytes(), trace.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()].concat(),
        span_id: [&trace.to_be_bytes()[1..], &[number]].concat(),
        name: format!("span {number} of {trace}"),
        start_time_unix_nano: 1_700_000_000_000_000_000,
        end_time_unix_nano: 1_700_000_000_000_000_005,
        ..Span::default()
    };
    let spans =
        (first..first + traces).flat_map(|trace| (0..spans_each).map(move |number| span(trace, number)));
    let scope_spans = vec![ScopeSpans { spans: spans.collect(), ..ScopeSpans::default() }];
    TracesData { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
        .encode_to_vec()
}

/// A message of a topic.
pub struct Found {
    pub partition: i32,
    pub key: Vec<u8>,
    pub data: TracesData,
}

/// Every message of a topic with this many partitions.
pub fn messages(topic: &Topic, name: &str, partitions: u32) -> Vec<Found> {
    let kafka = topic.kafka();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", kafka.bootstrap_servers.join(","))
        .set("group.id", name)
        .set("enable.partition.eof", "true")
        // A gateway may read as this group later.
        .set("enable.auto.commit", "false")
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..i32::try_from(partitions).unwrap() {
        list.add_partition_offset(name, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
    let (mut found, mut ends) = (Vec::new(), 0);
    while ends < partitions {
        match consumer.poll(PATIENCE).expect("every partition ends") {
            Ok(message) => found.push(Found {
                partition: message.partition(),
                key: message.key().unwrap().to_vec(),
                data: TracesData::decode(message.payload().unwrap()).unwrap(),
            }),
            Err(KafkaError::PartitionEOF(_)) => ends += 1,
            // What a fetch has above the limit of decompressed bytes is fetched again.
            Err(KafkaError::MessageConsumption(RDKafkaErrorCode::QueueFull)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    found
}

/// The key of a trace, by the id of one of its spans.
pub fn key_of(trace_id: &[u8]) -> Vec<u8> {
    splitting::key(trace_id.try_into().unwrap()).to_vec()
}

/// Every span of a topic, by its name, with how often it is there. Checks that a trace has the partition of its key.
pub fn stored(topic: &Topic) -> BTreeMap<String, usize> {
    let mut stored = BTreeMap::new();
    for Found { partition, key, data } in messages(topic, &topic.name, PARTITIONS) {
        let scopes = data.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        let spans: Vec<_> = scopes.flat_map(|scope| scope.spans).collect();
        assert!(spans.iter().any(|span| key_of(&span.trace_id) == key), "{key:?} is no id of its traces");
        for span in spans {
            let wanted = partition_of(&key_of(&span.trace_id), PARTITIONS);
            assert_eq!(i32::try_from(wanted).unwrap(), partition, "{}", span.name);
            *stored.entry(span.name).or_default() += 1;
        }
    }
    stored
}

fn names(first: u64, traces: u64, spans_each: u8) -> impl Iterator<Item = String> {
    (first..first + traces)
        .flat_map(move |trace| (0..spans_each).map(move |number| format!("span {number} of {trace}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_span_is_stored_once_and_its_trace_in_one_partition() {
    let topic = Topic::create("edge_once", 6).await;
    let mut edge = Edge::start(&topic, &topic.kafka().bootstrap_servers.join(","), "");
    edge.wait_ready().await;
    assert!(edge.said().contains("the producer has its id"), "before it is ready: {}", edge.said());
    for first in 0..5 {
        let (status, body) = edge.export(&request(first * 100, 100, 3)).await.unwrap();
        let answer = ExportTraceServiceResponse::decode(&*body).unwrap();
        assert_eq!((status, answer.partial_success), (200, None));
    }
    let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"000102030405060708090a0b0c0d0e0f","spanId":"0001020304050607","name":"in JSON"}]}]}]}"#;
    let http = edge.address("http").unwrap();
    assert_eq!(post(&http, "application/json", json.as_bytes()).await.unwrap().0, 200);
    assert_eq!(edge.export(b"").await.unwrap().0, 200, "a request without spans");
    assert_eq!(edge.export(&[0x0A, 5, 1]).await.unwrap().0, 400);
    let wanted = names(0, 500, 3).chain(["in JSON".to_owned()]);
    assert_eq!(stored(&topic), wanted.map(|name| (name, 1)).collect());
    kill_process(Pid::from_child(&edge.child), Signal::TERM).unwrap();
    assert_eq!(edge.ends().await, 0, "{}", edge.said());
    topic.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_that_is_too_large_is_rejected_and_its_siblings_are_stored() {
    let topic = Topic::create_with("edge_large", 6, &[("max.message.bytes", "100000")]).await;
    let more = "  messageBytesTarget: 64KiB\n";
    let mut edge = Edge::start(&topic, &topic.kafka().bootstrap_servers.join(","), more);
    edge.wait_ready().await;
    let limit_is_known = || async {
        let (_, metrics) = get(&edge.address("listen").unwrap(), "/metrics").await.unwrap();
        String::from_utf8(metrics).unwrap().contains("sluice_edge_message_bytes_max 98976")
    };
    while !limit_is_known().await {
        sleep(ASK_AGAIN).await;
    }
    let large = Span {
        trace_id: vec![7; 16],
        span_id: vec![7; 8],
        name: "n".repeat(200_000),
        start_time_unix_nano: 1_700_000_000_000_000_000,
        ..Span::default()
    };
    let (status, body) = edge.export(&message(vec![large])).await.unwrap();
    let partial = ExportTraceServiceResponse::decode(&*body).unwrap().partial_success.unwrap();
    assert_eq!((status, partial.rejected_spans), (200, 1));
    assert!(partial.error_message.contains("98976 bytes"), "{}", partial.error_message);
    assert_eq!(stored(&topic).values().sum::<usize>(), 1, "its sibling, which has no name");
    topic.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_exist_and_brokers_that_are_away_get_no_success() {
    let topic = Topic::create("edge_away", 6).await;
    let mut missing = Topic::create("edge_missing", 6).await;
    let brokers = topic.kafka().bootstrap_servers.join(",");
    let name = std::mem::replace(&mut missing.name, "sluice-live-nowhere".into());
    let mut edge = Edge::start(&missing, &brokers, "");
    let begun = Instant::now();
    loop {
        let reason = match edge.address("listen") {
            Some(at) => get(&at, "/readyz").await,
            None => None,
        };
        if reason.is_some_and(|(status, text)| {
            status == 503 && String::from_utf8_lossy(&text).contains("does not exist: create it")
        }) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", edge.said());
        sleep(ASK_AGAIN).await;
    }
    assert_eq!(edge.export(&request(0, 1, 1)).await.unwrap().0, 503);
    kill_process(Pid::from_child(&edge.child), Signal::TERM).unwrap();
    assert_eq!(edge.ends().await, 0, "{}", edge.said());
    let away = Edge::start(&topic, "127.0.0.1:1", "");
    let begun = Instant::now();
    while away.address("http").is_none() {
        assert!(begun.elapsed() < PATIENCE, "{}", away.said());
        sleep(ASK_AGAIN).await;
    }
    assert_eq!(away.export(&request(0, 1, 1)).await.unwrap().0, 503);
    drop(away);
    assert!(stored(&topic).is_empty());
    missing.name = name;
    missing.delete().await;
    topic.delete().await;
}

/// Clients go on while the process gets SIGTERM: what had a success is stored, whatever came first.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_with_success_before_the_end_is_stored() {
    let topic = Topic::create("edge_ends", 6).await;
    let mut edge = Edge::start(&topic, &topic.kafka().bootstrap_servers.join(","), "");
    edge.wait_ready().await;
    let http = edge.address("http").unwrap();
    let clients: Vec<_> = (0..8_u64)
        .map(|client| {
            let http = http.clone();
            tokio::spawn(async move {
                let mut answered = Vec::new();
                for number in 0..100_000 {
                    let first = client * 1_000_000 + number * 10;
                    match post(&http, "application/x-protobuf", &request(first, 10, 2)).await {
                        Some((200, _)) => answered.push(first),
                        Some((503, _)) => {}
                        Some((status, body)) => panic!("{status}: {}", String::from_utf8_lossy(&body)),
                        // It listens no more.
                        None => return answered,
                    }
                }
                answered
            })
        })
        .collect();
    let begun = Instant::now();
    while stored(&topic).len() < 1_000 {
        assert!(begun.elapsed() < PATIENCE, "{}", edge.said());
    }
    kill_process(Pid::from_child(&edge.child), Signal::TERM).unwrap();
    assert_eq!(edge.ends().await, 0, "{}", edge.said());
    let found = stored(&topic);
    for client in clients {
        for first in client.await.unwrap() {
            for name in names(first, 10, 2) {
                assert_eq!(found.get(&name), Some(&1), "{name} was answered with success");
            }
        }
    }
    topic.delete().await;
}
