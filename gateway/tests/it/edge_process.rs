//! An edge as a process, in front of librdkafka's mock cluster: when it is not ready, and what a client sees between the signal and the exit.

use crate::program::{edge, start};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData};
use prost::Message as _;
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    mocking::MockCluster,
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use rustix::process::{Pid, Signal, kill_process};
use sluice_gateway_config::edge::ENDPOINTS_WAIT;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::Child,
    thread,
    time::{Duration, Instant},
};

/// How long each step may take on a busy machine. A body may take 30 s.
const PATIENCE: Duration = Duration::from_secs(25);
const ASK_AGAIN: Duration = Duration::from_millis(50);
const PARTITIONS: i32 = 2;

/// Kills the process if a test fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) && self.0.kill().is_ok() {
            self.0.wait().ok();
        }
    }
}

/// The lines of its log from now on, and its addresses for its state and for OTLP over HTTP.
fn listening(edge: &mut Killed) -> (impl Iterator<Item = String> + use<>, String, String) {
    let mut log = BufReader::new(edge.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = log.find(|line| line.contains("the edge starts")).unwrap();
    let address = |name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=")).unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    };
    let (admin, http) = (address("listen"), address("http"));
    (log, admin, http)
}

/// A request with one span of this name.
fn request(name: String) -> Vec<u8> {
    let span = Span { trace_id: vec![7; 16], span_id: vec![7; 8], name, ..Span::default() };
    let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
    TracesData { resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }] }
        .encode_to_vec()
}

/// A request of HTTP without its body.
fn head(body: &[u8]) -> String {
    format!(
        "POST /v1/traces HTTP/1.1\r\nHost: edge\r\nConnection: close\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
}

/// The answer on a connection: its status, and all of it.
fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn asked(address: &str, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    answer(stream)
}

fn readiness(address: &str) -> (u16, String) {
    asked(address, b"GET /readyz HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(ASK_AGAIN);
    }
}

/// Lengths of the names of this many spans in the topic, in order.
fn stored(brokers: &str, spans: usize) -> Vec<usize> {
    let consumer: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", brokers).set("group.id", "test").create().unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset("spans", partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
    let (mut found, begun) = (Vec::new(), Instant::now());
    while found.len() < spans {
        assert!(begun.elapsed() < PATIENCE, "{found:?}");
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
        let data = TracesData::decode(message.payload().unwrap()).unwrap();
        let scopes = data.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        found.extend(scopes.flat_map(|scope| scope.spans).map(|span| span.name.len()));
    }
    found.sort_unstable();
    found
}

#[test]
fn an_edge_is_not_ready_first_then_refuses_connections_and_answers_what_is_under_way() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("spans", PARTITIONS, 1).unwrap();
    let brokers = mock.bootstrap_servers();
    let config = format!(
        "{{contractVersion: 1, pipeline: {{namespace: n, name: p}}, workers: 1, memory: {{limit: 192MiB}}, \
         listen: {{http: '127.0.0.1:0'}}, kafka: {{bootstrapServers: ['{brokers}'], topic: spans}}, \
         admin: {{listen: '127.0.0.1:0'}}, log: {{level: info, format: Text}}}}"
    );
    let mut edge = Killed(start("edge", &config));
    let (_log, admin, http) = listening(&mut edge);
    wait_until("it gets ready", || readiness(&admin).0 == 200);

    let slow = request("s".repeat(5_000));
    let mut under_way = TcpStream::connect(&http).unwrap();
    under_way.write_all(head(&slow).as_bytes()).unwrap();
    let mut rest = slow.iter();
    let signalled = Instant::now();
    kill_process(Pid::from_child(&edge.0), Signal::TERM).unwrap();
    wait_until("it is not ready", || readiness(&admin).1.contains("the edge is ending"));
    let quick = request("quick".to_owned());
    let (status, text) = asked(&http, &[head(&quick).as_bytes(), &quick].concat());
    assert_eq!(status, 200, "a new connection, after {:?}: {text}", signalled.elapsed());
    wait_until("it refuses connections", || {
        // A body without a byte for 10 s would be given up.
        under_way.write_all(&[*rest.next().unwrap()]).unwrap();
        TcpStream::connect(&http).is_err()
    });
    assert!(signalled.elapsed() >= ENDPOINTS_WAIT.to_std(), "{:?}", signalled.elapsed());
    assert!(readiness(&admin).1.contains("the edge is ending"), "it waits for the request");
    under_way.write_all(rest.as_slice()).unwrap();
    let (status, text) = answer(under_way);
    assert_eq!(status, 200, "the request that was under way: {text}");
    let code = edge.0.wait().unwrap().code();
    assert_eq!((code, stored(&brokers, 2)), (Some(0), vec![5, 5_000]));
}

#[test]
fn an_edge_is_not_ready_before_its_producer_has_its_id_and_then_stores_requests() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("spans", PARTITIONS, 1).unwrap();
    // More of them than questions for an id.
    let refused = vec![RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS; 1_000];
    mock.request_errors(RDKafkaApiKey::InitProducerId, &refused);
    let brokers = mock.bootstrap_servers();
    let mut edge = Killed(start("edge", &edge("").replace("127.0.0.1:1", &brokers)));
    let (mut log, admin, http) = listening(&mut edge);
    wait_until("it is not ready, and says why", || {
        let (status, text) = readiness(&admin);
        status == 503 && text.contains("has given the producer of topic spans its id yet")
    });
    mock.clear_request_errors(RDKafkaApiKey::InitProducerId);
    wait_until("it gets ready", || readiness(&admin).0 == 200);
    // The other line says that the time was over.
    let id = log.find(|line| line.contains("the producer has")).unwrap();
    assert!(id.contains("the producer has its id"), "{id}");
    let quick = request("quick".to_owned());
    let (status, text) = asked(&http, &[head(&quick).as_bytes(), &quick].concat());
    assert_eq!(status, 200, "{text}");
    assert_eq!(stored(&brokers, 1), vec![5]);
}

#[test]
fn an_edge_that_reaches_no_broker_names_it_and_the_reason() {
    let mut edge = Killed(start("edge", &edge("")));
    let mut log = BufReader::new(edge.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = log.find(|line| line.contains("the edge starts")).unwrap();
    let address = |name: &str| {
        let (_, rest) = line.split_once(&format!(" {name}=")).unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    };
    let is_named = |text: &str| {
        ["127.0.0.1:1", "topic spans", "Connection refused"].iter().all(|name| text.contains(name))
    };
    let (admin, http) = (address("listen"), address("http"));
    wait_until("it is not ready, and says why", || is_named(&readiness(&admin).1));
    let quick = request("quick".to_owned());
    let (status, text) = asked(&http, &[head(&quick).as_bytes(), &quick].concat());
    assert!(status == 503 && text.contains("retry-after: 5") && is_named(&text), "{text}");
    assert!(log.any(|line| is_named(&line)), "the log names it");
}
