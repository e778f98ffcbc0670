//! gRPC: tonic's client, and one that breaks rules.

use crate::{
    client::{self, EXPORT, Http2, export_raw, framed, gzip, request, send, spans, zstd},
    world::{World, soon},
};
use bytes::Bytes;
use http::{Method, uri::PathAndQuery};
use http_body_util::Full;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;
use sluice_otlp_server::{Accepted, Encoding, Outcome, Protocol, Refusal};
use std::{net::SocketAddr, time::Duration};
use tonic::{Code, Status, codec::CompressionEncoding, transport::Channel};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;

pub async fn tonic_export(
    channel: Channel,
    gzipped: bool,
    message: tonic::Request<ExportTraceServiceRequest>,
) -> Result<ExportTraceServiceResponse, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    if gzipped {
        client = client.send_compressed(CompressionEncoding::Gzip);
    }
    client.ready().await.unwrap();
    let codec = ProstCodec::<ExportTraceServiceRequest, ExportTraceServiceResponse>::default();
    let answered = client.unary(message, PathAndQuery::from_static(EXPORT), codec);
    soon(answered).await.map(tonic::Response::into_inner)
}

async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

async fn export(world: &World, count: usize) -> Result<ExportTraceServiceResponse, Status> {
    tonic_export(channel(world.grpc).await, false, tonic::Request::new(spans(count))).await
}

#[tokio::test]
async fn what_tonic_sends_arrives_as_it_was_written() {
    let mut world = World::start(|_| {}).await;
    for gzipped in [false, true] {
        let mut message = tonic::Request::new(spans(3_000));
        message.metadata_mut().insert("x-tenant", "blue".parse().unwrap());
        let sent = tokio::spawn(tonic_export(channel(world.grpc).await, gzipped, message));
        let arrival = world.arrival().await;
        assert_eq!(arrival.request.body, spans(3_000).encode_to_vec());
        assert_eq!(arrival.request.encoding, Encoding::Protobuf);
        assert_eq!(arrival.request.tenant.as_deref(), Some("blue"));
        assert!(arrival.request.permit.bytes() >= arrival.request.body.len());
        arrival.reply.send(Ok(Accepted::default())).unwrap();
        assert_eq!(sent.await.unwrap().unwrap(), ExportTraceServiceResponse::default());
        drop(arrival.request);
        assert_eq!(world.budget.used_bytes(), 0);
    }
    assert_eq!(world.counters.requests(Protocol::Grpc, Outcome::Accepted), 2);
    let bytes = u64::try_from(spans(3_000).encoded_len()).unwrap();
    assert_eq!(world.counters.decompressed_bytes(Protocol::Grpc), 2 * bytes);
    let received = world.counters.received_bytes(Protocol::Grpc);
    assert!(received > bytes + 5 && received < 2 * bytes, "{received}");
}

#[tokio::test]
async fn a_request_without_spans_is_answered_ok_and_stored_nowhere() {
    let world = World::start(|_| {}).await;
    let empty = ExportTraceServiceRequest::default();
    let answer = tonic_export(channel(world.grpc).await, false, tonic::Request::new(empty)).await;
    let warning = answer.unwrap().partial_success.unwrap();
    assert_eq!(
        (warning.rejected_spans, warning.error_message.as_str()),
        (0, "the request is empty: it has no spans")
    );
    assert_eq!(world.count(Outcome::Accepted), 1);
}

#[tokio::test]
async fn rejected_spans_and_warnings_are_partial_success() {
    let mut world = World::start(|_| {}).await;
    world.answering(|request| {
        let rejected_spans = u64::from(request.body.len() > 100);
        Ok(Accepted { rejected_spans, message: "a span is too large".to_owned() })
    });
    for (count, rejected) in [(1, 0), (5, 1)] {
        let partial = export(&world, count).await.unwrap().partial_success.unwrap();
        assert_eq!(
            (partial.rejected_spans, partial.error_message.as_str()),
            (rejected, "a span is too large")
        );
    }
    assert_eq!((world.count(Outcome::Accepted), world.count(Outcome::Partial)), (1, 1));
}

#[tokio::test]
async fn refusals_have_the_codes_that_clients_act_on() {
    let after = Duration::from_millis(2_500);
    let words = || "50 % of\nKafka".to_owned();
    let cases = [
        (Refusal::Malformed(words()), Code::InvalidArgument, None, Outcome::Malformed),
        (Refusal::TooLarge(words()), Code::ResourceExhausted, None, Outcome::TooLarge),
        (Refusal::Retry { after, words: words() }, Code::Unavailable, Some(after), Outcome::Retry),
        (
            Refusal::TenantLimit { after, words: words() },
            Code::ResourceExhausted,
            Some(after),
            Outcome::TenantLimit,
        ),
    ];
    for (refusal, code, after, outcome) in cases {
        let mut world = World::start(|_| {}).await;
        world.answering(move |_| Err(refusal.clone()));
        let status = export(&world, 1).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, "50 % of\nKafka"));
        let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
        assert_eq!(retry, after, "{outcome:?}");
        assert_eq!(world.count(outcome), 1);
    }
}

#[tokio::test]
async fn both_compressions_are_read_and_others_are_named() {
    let mut world = World::start(|_| {}).await;
    world.answering(|request| {
        assert_eq!(request.body, spans(500).encode_to_vec());
        Ok(Accepted::default())
    });
    let message = spans(500).encode_to_vec();
    for (name, flag, body) in [
        ("gzip", 1, gzip(&message)),
        ("zstd", 1, zstd(&message)),
        ("identity", 0, message.clone()),
        ("gzip", 0, message.clone()),
    ] {
        let answer = export_raw(world.grpc, &[("grpc-encoding", name)], framed(flag, &body)).await;
        assert_eq!(answer.grpc().0, "0", "{name}");
        assert_eq!(answer.body, framed(0, b""));
    }
    let answer = export_raw(world.grpc, &[("grpc-encoding", "br")], framed(1, &message)).await;
    assert_eq!(answer.grpc().0, "12");
    assert_eq!(answer.header("grpc-accept-encoding"), Some("identity,gzip,zstd"));
    let answer = export_raw(world.grpc, &[], framed(1, &gzip(&message))).await;
    assert_eq!(answer.grpc().0, "13");
    let answer = export_raw(world.grpc, &[("grpc-encoding", "gzip")], framed(1, &message)).await;
    assert_eq!(answer.grpc().0, "3");
}

#[tokio::test]
async fn wrong_frames_are_named() {
    let world = World::start(|config| config.limits.body_bytes_max = 1_000).await;
    let message = spans(1).encode_to_vec();
    let whole = framed(0, &message);
    let cases = [
        ("3", "no message", vec![]),
        ("3", "after 3 of the 5 bytes", whole[..3].to_vec()),
        ("3", "begins with 0 or 1", framed(2, &message)),
        ("3", "after 5 of its", whole[..10].to_vec()),
        ("12", "one message", [whole.clone(), whole].concat()),
        ("8", "(1001 bytes)", framed(0, &[0; 1_001])),
    ];
    for (code, words, body) in cases {
        let answer = export_raw(world.grpc, &[], body).await;
        assert_eq!(answer.grpc().0, code, "{words}: {answer:?}");
        assert!(answer.grpc().1.contains(words), "{words}: {answer:?}");
        assert!(!answer.has_retry_info());
    }
    assert_eq!(world.count(Outcome::Malformed), 5);
    assert_eq!(world.count(Outcome::TooLarge), 1);
    assert_eq!(world.budget.used_bytes(), 0);
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_by_its_length_alone() {
    let world = World::start(|_| {}).await;
    // Five bytes, and a body that never ends.
    let head = [&[0], &u32::MAX.to_be_bytes()[..]].concat();
    let (body, _open) = crate::bodies::Open::new(head);
    let client = Http2::connect(world.grpc).await;
    let answer = client.send(client::export(&[], body)).await;
    assert_eq!(answer.grpc().0, "8");
}

#[tokio::test]
async fn other_methods_are_unimplemented_and_say_what_helps() {
    let world = World::start(|_| {}).await;
    let client = Http2::connect(world.grpc).await;
    for (path, words) in [
        ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", "takes traces, and no logs"),
        ("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", "takes traces, and no metrics"),
        ("/opentelemetry.proto.collector.trace.v1.TraceService/Import", "traces go to"),
        ("/grpc.health.v1.Health/Check", "traces go to"),
    ] {
        let headers = [("content-type", "application/grpc+proto")];
        let body = Full::new(Bytes::from(framed(0, b"")));
        let answer = client.send(request(Method::POST, &format!("http://otlp{path}"), &headers, body)).await;
        assert_eq!(answer.grpc().0, "12", "{path}");
        assert!(answer.grpc().1.contains(words), "{answer:?}");
    }
    assert_eq!(world.count(Outcome::NotFound), 4);
}

#[tokio::test]
async fn what_is_not_grpc_is_told_the_port_of_http() {
    let world = World::start(|_| {}).await;
    let client = Http2::connect(world.grpc).await;
    let other = format!("OTLP/HTTP is on port {}", world.http.port());
    let body = || Full::new(Bytes::from_static(b"{}"));
    let json = [("content-type", "application/json")];
    for answer in [
        client.send(request(Method::POST, &format!("http://otlp{EXPORT}"), &json, body())).await,
        send(world.grpc, request(Method::POST, "/v1/traces", &json, body())).await,
    ] {
        assert_eq!(answer.status, 415);
        assert!(answer.rpc_status().1.contains(&other), "{answer:?}");
    }
    let grpc = [("content-type", "application/grpc")];
    let answer = client.send(request(Method::GET, &format!("http://otlp{EXPORT}"), &grpc, body())).await;
    assert_eq!((answer.status.as_u16(), answer.header("allow")), (405, Some("POST")));
}

#[tokio::test]
async fn grpc_on_the_port_of_http_is_told_the_other() {
    let world = World::start(|_| {}).await;
    let answer = export_raw(world.http, &[], framed(0, b"")).await;
    assert_eq!(answer.grpc().0, "12");
    assert!(answer.grpc().1.contains(&format!("OTLP/gRPC is on port {}", world.grpc.port())));
}

#[tokio::test]
async fn requests_larger_than_the_window_come_whole_also_beside_each_other() {
    for wide_windows_max in [0, 1] {
        let world = World::accepting(|config| config.limits.wide_windows_max = wide_windows_max).await;
        let body = Bytes::from(framed(0, &vec![7; 1 << 20]));
        let client = Http2::connect(world.grpc).await;
        for _ in 0..4 {
            let begun = [(); 3].map(|()| client.begin(client::export(&[], Full::new(body.clone()))));
            for answer in begun {
                assert_eq!(soon(answer).await.unwrap().unwrap().grpc().0, "0");
            }
        }
        assert_eq!(world.budget.used_bytes(), 0);
    }
}
