//! The edge as a process under load, in front of a real Kafka. Whatever clients do, its peak of memory is below its limit, and each request
//! is answered with success or with a time to retry. Also: requests over gRPC, with a token.

use crate::{
    broker::Topic,
    edge::{Edge, get, post, request, stored},
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

/// How long clients send. Longer than the server waits for a body that pauses, so that what those hold is free again meanwhile.
const LOAD: Duration = Duration::from_secs(30);

/// Clients that send small requests, and those that send large ones, each the next one once it has its answer.
const LIGHT: u64 = 100;
const HEAVY: u64 = 16;

/// Clients that announce a body and send its first bytes only.
const STALLED: usize = 6;

/// The limit of [`Edge::start`].
const LIMIT_KIB: u64 = 192 << 10;

/// The most memory that the process ever had, as the kernel counts it.
fn peak_kib(edge: &Edge) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", edge.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Spans as JSON, about 180 bytes each.
fn json(first: u64, spans: u64) -> Vec<u8> {
    let span = |number| {
        format!(
            r#"{{"traceId":"{number:032x}","spanId":"{number:016x}","name":"GET /orders","kind":2,"startTimeUnixNano":"1700000000000000000","endTimeUnixNano":"1700000000000000005"}}"#
        )
    };
    let spans: Vec<_> = (first + 1..=first + spans).map(span).collect();
    format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(",")).into_bytes()
}

/// Sends one body again and again, and counts the answers by their status.
async fn send_on(http: String, headers: &'static str, body: Vec<u8>) -> BTreeMap<u16, u64> {
    let (begun, mut answers) = (Instant::now(), BTreeMap::new());
    while begun.elapsed() < LOAD {
        let Some((status, _)) = post(&http, headers, &body).await else {
            panic!("the edge closed a connection without an answer")
        };
        *answers.entry(status).or_default() += 1;
        if status != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    answers
}

/// Announces 4 MiB, sends little, and returns the status that it is answered with.
async fn stall(http: String) -> Option<String> {
    let mut stream = TcpStream::connect(&http).await.ok()?;
    let head = "POST /v1/traces HTTP/1.1\r\nhost: edge\r\ncontent-type: application/x-protobuf\r\ncontent-length: 4194304\r\n\r\n";
    stream.write_all(&[head.as_bytes(), &[0x0A; 1_000]].concat()).await.ok()?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn peak_memory_is_below_the_limit_whatever_clients_send() {
    let topic = Topic::create("edge_load", 6).await;
    let mut edge = Edge::start(&topic, &topic.kafka().bootstrap_servers.join(","), "");
    edge.wait_ready().await;
    let http = edge.address("http").unwrap();
    let mut stalled = JoinSet::new();
    for _ in 0..STALLED {
        stalled.spawn(stall(http.clone()));
    }
    let mut clients = JoinSet::new();
    for client in 0..LIGHT {
        clients.spawn(send_on(http.clone(), "application/x-protobuf", request(client * 100, 1, 8)));
    }
    let gzipped = "application/x-protobuf\r\nContent-Encoding: gzip";
    for client in 0..HEAVY {
        let first = (client + 1) * 1_000_000;
        match client % 4 {
            0 => clients.spawn(send_on(http.clone(), "application/json", json(first, 20_000))),
            // More than half of the spans that a request may have.
            1 if client == 1 => {
                clients.spawn(send_on(http.clone(), gzipped, gzip(&request(first, 15_000, 10))))
            }
            1 => clients.spawn(send_on(http.clone(), gzipped, gzip(&request(first, 5_000, 10)))),
            _ => clients.spawn(send_on(http.clone(), "application/x-protobuf", request(first, 4_000, 10))),
        };
    }
    let mut answers: BTreeMap<u16, u64> = BTreeMap::new();
    while let Some(client) = clients.join_next().await {
        for (status, count) in client.unwrap() {
            *answers.entry(status).or_default() += count;
        }
    }
    while let Some(stalled) = stalled.join_next().await {
        assert_eq!(stalled.unwrap().as_deref(), Some("HTTP/1.1 503"), "a body that pauses");
    }
    let peak = peak_kib(&edge);
    eprintln!("answers by status: {answers:?}; peak {} of {} MiB", peak >> 10, LIMIT_KIB >> 10);
    assert!(peak < LIMIT_KIB, "{peak} KiB; {}", edge.said());
    assert!(answers.keys().all(|status| [200, 503].contains(status)), "{answers:?}");
    assert!(answers.get(&200).is_some_and(|count| *count >= 100), "{answers:?}");
    // Nothing is held once every client has its answer.
    let begun = Instant::now();
    loop {
        let (_, metrics) = get(&edge.address("listen").unwrap(), "/metrics").await.unwrap();
        let metrics = String::from_utf8(metrics).unwrap();
        if metrics.lines().any(|line| line == r#"sluice_edge_memory_used_bytes{part="requests"} 0"#) {
            break;
        }
        assert!(begun.elapsed() < LOAD, "permits are held: {metrics}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    topic.delete().await;
}

/// Exports one message over gRPC, and returns its `grpc-status`.
async fn export(grpc: &str, token: &str, message: &[u8]) -> String {
    let stream = TcpStream::connect(grpc).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = Bytes::from([&[0], &length[..], message].concat());
    let request =
        Request::post(format!("http://{grpc}/opentelemetry.proto.collector.trace.v1.TraceService/Export"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", format!("Bearer {token}"))
            .body(Full::new(body))
            .unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let status = head.headers.get("grpc-status").or_else(|| trailers.get("grpc-status")).unwrap();
    connection.abort();
    status.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_over_grpc_are_stored_and_a_wrong_token_is_refused() {
    let topic = Topic::create("edge_grpc", 6).await;
    let tokens = std::env::temp_dir().join(format!("{}-tokens", topic.name));
    fs::write(&tokens, "right\n").unwrap();
    let listen = format!(", authentication: {{bearerTokensFile: '{}'}}", tokens.display());
    let mut edge = Edge::start_listening(&topic, &topic.kafka().bootstrap_servers.join(","), &listen, "");
    edge.wait_ready().await;
    let grpc = edge.address("grpc").unwrap();
    assert_eq!(export(&grpc, "wrong", &request(0, 1, 1)).await, "16");
    assert_eq!(export(&grpc, "right", &request(10, 5, 2)).await, "0");
    assert_eq!(export(&grpc, "right", &[]).await, "0", "a request without spans");
    assert_eq!(export(&grpc, "right", &[0x0A, 5, 1]).await, "3");
    assert_eq!(stored(&topic).values().copied().collect::<Vec<_>>(), vec![1; 10]);
    fs::remove_file(tokens).unwrap();
    topic.delete().await;
}
