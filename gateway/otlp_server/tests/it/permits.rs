//! Permits: taken before a body is read, held until the acceptor drops them, given back to the last byte.

use crate::{
    bodies::Open,
    client::{Http2, export, export_raw, framed, gzip, post, request, send},
    world::{World, soon},
};
use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use sluice_otlp_server::{Accepted, ByteBudget, NoticeKind, Outcome, Protocol};
use std::time::Duration;

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");

#[tokio::test]
async fn without_a_permit_both_protocols_say_when_to_come_again_and_recover() {
    let mut world = World::start(|config| config.budget = ByteBudget::new(1_500)).await;
    let address = world.http;
    let first = tokio::spawn(async move { post(address, &[PROTOBUF], vec![1; 1_000]).await });
    let held = world.arrival().await;
    assert_eq!(world.budget.used_bytes(), 1_000);

    let answer = post(world.http, &[PROTOBUF], vec![2; 501]).await;
    assert_eq!((answer.status.as_u16(), answer.rpc_status().0), (503, 14));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let answer = export_raw(world.grpc, &[], framed(0, &[2; 501])).await;
    assert_eq!(answer.grpc().0, "14");
    assert!(answer.has_retry_info());
    assert_eq!(world.count(Outcome::NoMemory), 2);
    let notice = world.notice(NoticeKind::Request(Outcome::NoMemory)).await;
    assert!(notice.words.contains("501 bytes"), "{notice:?}");

    // The answer alone gives nothing back: the acceptor may still have the body.
    held.reply.send(Ok(Accepted::default())).unwrap();
    assert_eq!(soon(first).await.unwrap().status, 200);
    assert_eq!(world.budget.used_bytes(), 1_000);
    drop(held.request);
    world.answering(|_| Ok(Accepted::default()));
    assert_eq!(export_raw(world.grpc, &[], framed(0, &[2; 1_500])).await.grpc().0, "0");
    assert_eq!(world.budget.used_bytes(), 0);
}

#[tokio::test]
async fn a_permit_is_taken_before_the_body_is_there() {
    let world = World::start(|config| config.budget = ByteBudget::new(10_000)).await;
    let client = Http2::connect(world.grpc).await;
    let (body, open) = Open::new([&[0], &9_000_u32.to_be_bytes()[..]].concat());
    let first = client.begin(export(&[], body));
    crate::world::until(|| world.budget.used_bytes() == 9_000).await;
    // One that is refused although it has sent nothing but its head.
    let (body, _open) = Open::new([&[0], &1_001_u32.to_be_bytes()[..]].concat());
    assert_eq!(client.send(export(&[], body)).await.grpc().0, "14");
    // The first ends too early.
    drop(open);
    assert_eq!(soon(first).await.unwrap().unwrap().grpc().0, "3");
    assert_eq!(world.budget.used_bytes(), 0);
}

#[tokio::test]
async fn a_client_that_goes_away_gives_its_permit_back() {
    let world = World::start(|_| {}).await;
    let client = Http2::connect(world.grpc).await;
    let (body, _open) = Open::new([&[0], &9_000_u32.to_be_bytes()[..]].concat());
    let sent = client.begin(export(&[], body));
    crate::world::until(|| world.budget.used_bytes() == 9_000).await;
    sent.abort();
    crate::world::until(|| world.budget.used_bytes() == 0).await;
    crate::world::until(|| world.count(Outcome::Cancelled) == 1).await;
    assert_eq!(world.counters.requests_in_flight(), 0);
}

#[tokio::test]
async fn chunks_take_their_permit_in_steps() {
    let world = World::start(|config| config.budget = ByteBudget::new(60_000)).await;
    let (body, more) = Open::new(vec![0; 5_000]);
    let sent = tokio::spawn(send(world.http, request(Method::POST, "/v1/traces", &[PROTOBUF], body)));
    crate::world::until(|| world.budget.used_bytes() == 8_192).await;
    more.send(vec![0; 5_000].into()).await.unwrap();
    crate::world::until(|| world.budget.used_bytes() == 16_384).await;
    // 32,768 are more than there are beside another request.
    let other = world.budget.try_take(30_000).unwrap();
    more.send(vec![0; 10_000].into()).await.unwrap();
    assert_eq!(soon(sent).await.unwrap().status, 503);
    assert_eq!(world.budget.used_bytes(), 30_000);
    drop(other);
}

/// A client that gets `Retry-After` comes again for ever.
#[tokio::test]
async fn what_can_never_have_a_permit_is_too_large() {
    let world = World::accepting(|config| config.budget = ByteBudget::new(20_000)).await;
    let answer = post(world.http, &[PROTOBUF], vec![1; 20_001]).await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (413, None));
    assert!(answer.rpc_status().1.contains("20000 bytes"), "{answer:?}");
    let answer = export_raw(world.grpc, &[], framed(0, &vec![1; 20_001])).await;
    assert_eq!((answer.grpc().0, answer.has_retry_info()), ("8", false));
    assert_eq!(post(world.http, &[PROTOBUF], vec![1; 20_000]).await.status, 200);
    assert_eq!((world.count(Outcome::TooLarge), world.budget.used_bytes()), (2, 0));
}

#[tokio::test]
async fn a_request_may_wait_for_its_permit() {
    let mut world = World::start(|config| {
        config.budget = ByteBudget::new(1_000);
        config.limits.permit_wait = Duration::from_mins(1);
    })
    .await;
    let client = Http2::connect(world.grpc).await;
    let message = || export(&[], Full::new(Bytes::from(framed(0, &[0; 1_000]))));
    let (first, second) = (client.begin(message()), client.begin(message()));
    for sent in [first, second] {
        let arrival = world.arrival().await;
        arrival.reply.send(Ok(Accepted::default())).unwrap();
        drop(arrival.request);
        assert_eq!(soon(sent).await.unwrap().unwrap().grpc().0, "0");
    }
}

#[tokio::test]
async fn more_requests_than_the_limit_are_told_to_come_again() {
    let mut world = World::start(|config| config.limits.requests_max = 1).await;
    let client = Http2::connect(world.grpc).await;
    let message = || export(&[], Full::new(Bytes::from(framed(0, b"x"))));
    let first = client.begin(message());
    let arrival = world.arrival().await;
    let answer = client.send(message()).await;
    assert_eq!(answer.grpc().0, "14");
    assert!(answer.has_retry_info() && answer.grpc().1.contains("1 requests wait"), "{answer:?}");
    assert_eq!(post(world.http, &[PROTOBUF], "x").await.status, 503);
    assert_eq!(world.count(Outcome::Busy), 2);
    arrival.reply.send(Ok(Accepted::default())).unwrap();
    assert_eq!(soon(first).await.unwrap().unwrap().grpc().0, "0");
}

#[tokio::test]
async fn bodies_beyond_the_limits_are_too_large_and_their_clients_get_the_answer() {
    let world = World::accepting(|config| {
        config.limits.body_bytes_max = 1 << 20;
        config.limits.decompressed_bytes_max = 2 << 20;
    })
    .await;
    let gzipped = [PROTOBUF, ("content-encoding", "gzip")];
    // When it is received: by its length, and by its chunks. The client writes all of it before it reads.
    let answer = post(world.http, &[PROTOBUF], vec![0; (1 << 20) + 1]).await;
    assert_eq!((answer.status.as_u16(), answer.rpc_status().0), (413, 8));
    let (body, more) = Open::new(vec![0; 1 << 20]);
    drop(more.send(vec![0; 1].into()).await);
    drop(more);
    let answer = send(world.http, request(Method::POST, "/v1/traces", &[PROTOBUF], body)).await;
    assert_eq!(answer.status, 413);
    // A bomb, over both protocols.
    let bomb = gzip(&vec![0; 100 << 20]);
    let answer = post(world.http, &gzipped, bomb.clone()).await;
    assert_eq!(answer.status, 413);
    let answer = export_raw(world.grpc, &[("grpc-encoding", "gzip")], framed(1, &bomb)).await;
    assert_eq!((answer.grpc().0, answer.has_retry_info()), ("8", false));
    let answer = post(world.http, &gzipped, gzip(&vec![0; 2 << 20])).await;
    assert_eq!(answer.status, 413, "its ratio is beyond 1,000");
    assert_eq!(world.counters.requests(Protocol::Http, Outcome::TooLarge), 4);
    assert_eq!(world.budget.used_bytes(), 0);
}

/// Small requests come all the time; a large one is not passed by them for ever.
#[tokio::test]
async fn a_large_request_has_its_turn_among_small_ones() {
    let mut world = World::start(|config| {
        config.budget = ByteBudget::new(10_000);
        config.limits.permit_wait = Duration::from_mins(1);
    })
    .await;
    let client = Http2::connect(world.grpc).await;
    let message = |bytes| export(&[], Full::new(Bytes::from(framed(0, &vec![0; bytes]))));
    let _first: Vec<_> = (0..10).map(|_| client.begin(message(1_000))).collect();
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(world.arrival().await);
    }
    let large = client.begin(message(8_000));
    crate::world::until(|| world.counters.requests_in_flight() == 11).await;
    let _later: Vec<_> = (0..10).map(|_| client.begin(message(1_000))).collect();
    for arrival in held {
        arrival.reply.send(Ok(Accepted::default())).unwrap();
    }
    let arrival = world.arrival().await;
    assert_eq!(arrival.request.body.len(), 8_000, "it is the next one");
    arrival.reply.send(Ok(Accepted::default())).unwrap();
    drop(arrival.request);
    assert_eq!(soon(large).await.unwrap().unwrap().grpc().0, "0");
}
