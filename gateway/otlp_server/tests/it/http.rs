//! HTTP/1.1 and HTTP/2: what each request is answered with.

use crate::{
    bodies::Open,
    client::{Answer, Http2, gzip, post, request, send, spans, zstd},
    world::{World, soon},
};
use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use prost::Message as _;
use sluice_otlp_server::{Accepted, CredentialFiles, Encoding, Outcome, Protocol, Refusal};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

#[tokio::test]
async fn what_is_sent_arrives_in_its_encoding() {
    let mut world = World::start(|_| {}).await;
    let message = spans(200).encode_to_vec();
    let forms = [("identity", message.clone()), ("gzip", gzip(&message)), ("zstd", zstd(&message))];
    for (name, body) in forms {
        for (content_type, encoding) in [(PROTOBUF, Encoding::Protobuf), (JSON, Encoding::Json)] {
            let (address, sent) = (world.http, body.clone());
            let headers = [content_type, ("content-encoding", name), ("x-tenant", "green")];
            let answered = tokio::spawn(async move { post(address, &headers, sent).await });
            let arrival = world.arrival().await;
            assert_eq!((&arrival.request.body[..], arrival.request.encoding), (&message[..], encoding));
            assert_eq!(arrival.request.tenant.as_deref(), Some("green"));
            arrival.reply.send(Ok(Accepted::default())).unwrap();
            let answer = answered.await.unwrap();
            assert_eq!(answer.status, 200);
            let (kind, said) = match encoding {
                Encoding::Protobuf => ("application/x-protobuf", &b""[..]),
                Encoding::Json => ("application/json", &b"{}"[..]),
            };
            assert_eq!((answer.header("content-type"), &answer.body[..]), (Some(kind), said));
        }
    }
    assert_eq!(world.counters.requests(Protocol::Http, Outcome::Accepted), 6);
}

#[tokio::test]
async fn chunks_without_a_length_are_read() {
    let mut world = World::start(|_| {}).await;
    let message = spans(5_000).encode_to_vec();
    let (body, more) = Open::new(message[..10].to_vec());
    let answered = tokio::spawn(send(world.http, request(Method::POST, "/v1/traces", &[PROTOBUF], body)));
    for chunk in message[10..].chunks(10_000) {
        more.send(Bytes::copy_from_slice(chunk)).await.unwrap();
    }
    drop(more);
    let arrival = world.arrival().await;
    assert_eq!(arrival.request.body, message);
    arrival.reply.send(Ok(Accepted::default())).unwrap();
    assert_eq!(answered.await.unwrap().status, 200);
}

#[tokio::test]
async fn http_2_is_served_on_the_same_port() {
    let world = World::accepting(|_| {}).await;
    let client = Http2::connect(world.http).await;
    let body = Full::new(Bytes::from(spans(1).encode_to_vec()));
    let answer = client.send(request(Method::POST, "http://otlp/v1/traces", &[PROTOBUF], body)).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_request_without_spans_is_accepted() {
    let world = World::start(|_| {}).await;
    let answer = post(world.http, &[PROTOBUF, ("content-length", "0")], "").await;
    assert_eq!(answer.status, 200);
    let warning = answer.response().partial_success.unwrap();
    assert_eq!(
        (warning.rejected_spans, warning.error_message.as_str()),
        (0, "the request is empty: it has no spans")
    );
    let answer = post(world.http, &[JSON, ("content-length", "0")], "").await;
    assert_eq!(answer.status, 400);
    assert!(answer.rpc_status().1.contains("empty"), "{answer:?}");
    let answer = post(world.http, &[PROTOBUF, ("content-encoding", "gzip")], gzip(b"")).await;
    assert_eq!(answer.status, 200);
}

/// A client that lost the body would believe that its spans are stored.
#[tokio::test]
async fn a_request_that_does_not_say_whether_it_has_a_body_is_refused_over_http_1() {
    let world = World::accepting(|_| {}).await;
    let sent =
        "POST /v1/traces HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n";
    let read = exchanged(world.http, sent).await;
    assert!(read.starts_with("HTTP/1.1 411 Length Required"), "{read}");
    assert!(read.contains("Content-Length: 0") && read.contains("\"code\":3"), "{read}");
    // HTTP/2 ends the stream instead.
    let client = Http2::connect(world.http).await;
    let answer = client
        .send(request(Method::POST, "http://otlp/v1/traces", &[PROTOBUF], Full::new(Bytes::new())))
        .await;
    assert_eq!(answer.status, 200);
    assert!(answer.response().partial_success.unwrap().error_message.contains("empty"));
}

#[tokio::test]
async fn a_chunk_that_is_none_is_malformed() {
    let world = World::accepting(|_| {}).await;
    let sent = "POST /v1/traces HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\n\r\nno chunk\r\n";
    let read = exchanged(world.http, sent).await;
    assert!(read.starts_with("HTTP/1.1 400 "), "{read}");
    assert!(read.contains("\"code\":3") && read.contains("chunk"), "{read}");
    assert_eq!((world.count(Outcome::Malformed), world.count(Outcome::Cancelled)), (1, 0));
}

/// Sends text, and reads until the server closes.
async fn exchanged(address: std::net::SocketAddr, text: &str) -> String {
    let mut stream = soon(TcpStream::connect(address)).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    drop(soon(stream.read_to_end(&mut read)).await);
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test]
async fn rejected_spans_are_partial_success() {
    let mut world = World::start(|_| {}).await;
    world.answering(|_| Ok(Accepted { rejected_spans: 2, message: "too large".to_owned() }));
    let answer = post(world.http, &[PROTOBUF], "x").await;
    let partial = answer.response().partial_success.unwrap();
    assert_eq!((partial.rejected_spans, partial.error_message.as_str()), (2, "too large"));
    let answer = post(world.http, &[JSON], "{}").await;
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(json["partialSuccess"]["rejectedSpans"], "2");
}

#[tokio::test]
async fn refusals_have_the_codes_that_clients_act_on() {
    let after = Duration::from_millis(2_500);
    let cases = [
        (Refusal::Malformed("why".into()), 400, 3, None),
        (Refusal::TooLarge("why".into()), 413, 8, None),
        (Refusal::Retry { after, words: "why".into() }, 503, 14, Some("3")),
        (Refusal::TenantLimit { after, words: "why".into() }, 429, 8, Some("3")),
    ];
    for (refusal, status, code, after) in cases {
        let mut world = World::start(|_| {}).await;
        world.answering(move |_| Err(refusal.clone()));
        for content_type in [PROTOBUF, JSON] {
            let answer = post(world.http, &[content_type], "x").await;
            assert_eq!((answer.status.as_u16(), answer.rpc_status()), (status, (code, "why".to_owned())));
            assert_eq!(answer.header("retry-after"), after);
        }
    }
}

#[tokio::test]
async fn other_paths_methods_and_types_are_told_what_helps() {
    let world = World::start(|_| {}).await;
    let body = || Full::new(Bytes::from_static(b"{}"));
    let at = |method, path| send(world.http, request(method, path, &[PROTOBUF], body()));
    let check = |answer: Answer, status: u16, words: &str| {
        assert_eq!(answer.status.as_u16(), status, "{answer:?}");
        assert!(answer.rpc_status().1.contains(words), "{answer:?}");
        answer
    };
    check(at(Method::POST, "/v1/logs").await, 404, "takes traces");
    check(at(Method::POST, "/v1/metrics").await, 404, "takes traces");
    check(at(Method::POST, "/").await, 404, "/v1/traces");
    let long = format!("/{}", "a".repeat(4_000));
    let said = check(at(Method::POST, &long).await, 404, "/v1/traces").rpc_status().1;
    assert!(said.len() < 400, "a client's own words are cut: {said}");
    for method in [Method::GET, Method::PUT, Method::OPTIONS, Method::DELETE] {
        let answer = check(at(method, "/v1/traces").await, 405, "POST");
        assert_eq!(answer.header("allow"), Some("POST"));
    }
    for headers in [&[][..], &[("content-type", "text/plain")], &[("content-type", "\"")]] {
        check(post(world.http, headers, "x").await, 415, "application/json");
    }
    for name in ["br", "deflate", "gzip, gzip"] {
        let answer =
            check(post(world.http, &[PROTOBUF, ("content-encoding", name)], "x").await, 415, "gzip, zstd");
        assert_eq!(answer.header("accept-encoding"), Some("gzip, zstd"));
    }
    let twice = [PROTOBUF, ("content-encoding", "gzip"), ("content-encoding", "gzip")];
    check(post(world.http, &twice, "x").await, 415, "one of several");
    assert_eq!((world.count(Outcome::NotFound), world.count(Outcome::WrongMethod)), (4, 4));
    assert_eq!(world.count(Outcome::WrongType), 7);
}

#[tokio::test]
async fn a_body_that_is_no_gzip_is_malformed() {
    let world = World::start(|_| {}).await;
    for name in ["gzip", "zstd"] {
        let answer = post(world.http, &[PROTOBUF, ("content-encoding", name)], "spans").await;
        assert_eq!(answer.status, 400);
        assert!(answer.rpc_status().1.contains(name), "{answer:?}");
    }
}

#[tokio::test]
async fn a_tenant_is_a_short_name() {
    let world = World::accepting(|_| {}).await;
    let long = "t".repeat(257);
    for (tenant, status) in [(&long[..256], 200), (&long[..], 400), ("\u{e9}", 400)] {
        let mut message =
            request(Method::POST, "/v1/traces", &[PROTOBUF], Full::new(Bytes::from_static(b"x")));
        message.headers_mut().insert("x-tenant", http::HeaderValue::from_bytes(tenant.as_bytes()).unwrap());
        assert_eq!(send(world.http, message).await.status, status);
    }
}

#[tokio::test]
async fn who_has_no_token_is_refused_before_anything_is_read() {
    let files = tempfile("who_has_no_token", "secret\n");
    let world = World::accepting(|config| {
        config.credentials =
            Some(CredentialFiles { bearer_tokens: vec![files], ..CredentialFiles::default() });
    })
    .await;
    let (body, _open) = Open::new("x");
    let answer = send(world.http, request(Method::POST, "/v1/traces", &[PROTOBUF], body)).await;
    assert_eq!((answer.status.as_u16(), answer.rpc_status().0), (401, 16));
    let schemes: Vec<_> = answer.headers.get_all("www-authenticate").iter().collect();
    assert_eq!(schemes, ["Bearer realm=\"otlp\""], "users are not configured");
    for (token, status) in [("Bearer wrong", 401), ("Bearer secret", 200)] {
        let answer = post(world.http, &[PROTOBUF, ("authorization", token)], "x").await;
        assert_eq!(answer.status, status);
    }
    let answer = crate::client::export_raw(world.grpc, &[("authorization", "Basic c2VjcmV0")], "").await;
    assert_eq!(answer.grpc().0, "16");
    assert_eq!(world.count(Outcome::Unauthenticated), 3);
}

/// A file of its own with this content.
pub fn tempfile(name: &str, content: &str) -> std::path::PathBuf {
    let directory =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("file");
    std::fs::write(&file, content).unwrap();
    file
}
