//! Connections: slow, idle, old, too many, cancelled, and the end of the server.

use crate::{
    bodies::Open,
    client::{Http2, export, framed, post, request, send},
    world::{World, soon},
};
use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use sluice_otlp_server::{
    Accepted, ConnectionEnd, NoticeKind, Outcome, Refusal, Unanswered, WIDE_FRAME_BYTES, WIDE_WINDOW_BYTES,
};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const SHORT: Duration = Duration::from_millis(50);

fn message() -> http::Request<Full<Bytes>> {
    export(&[], Full::new(Bytes::from(framed(0, b"x"))))
}

/// Sends bytes, and reads until the server closes.
async fn until_closed(address: std::net::SocketAddr, bytes: &[u8]) -> String {
    let mut stream = soon(TcpStream::connect(address)).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut read = Vec::new();
    // A reset is an end, too.
    drop(soon(stream.read_to_end(&mut read)).await);
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test]
async fn a_body_that_does_not_come_in_time_may_be_sent_again() {
    let world = World::start(|config| {
        config.limits.body_read_timeout = SHORT;
        config.limits.retry_after = Duration::from_secs(7);
    })
    .await;
    let (body, _open) = Open::new("x");
    let answer = send(world.http, request(Method::POST, "/v1/traces", &[PROTOBUF], body)).await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, Some("7")));
    for begin in [&b""[..], b"\0", &framed(0, b"message")[..8]] {
        let (body, _open) = Open::new(begin.to_vec());
        let answer = Http2::connect(world.grpc).await.send(export(&[], body)).await;
        assert_eq!(answer.grpc().0, "14");
        assert!(answer.has_retry_info());
    }
    // A whole message, and no end.
    let (body, _open) = Open::new(framed(0, b"message"));
    assert_eq!(Http2::connect(world.grpc).await.send(export(&[], body)).await.grpc().0, "14");
    assert_eq!(world.count(Outcome::Slow), 5);
    assert_eq!(world.budget.used_bytes(), 0);
}

#[tokio::test]
async fn a_body_that_pauses_gives_its_permit_back_before_its_time_is_over() {
    let world = World::accepting(|config| {
        config.limits.body_pause_max = SHORT * 4;
        config.limits.body_read_timeout = Duration::from_mins(10);
    })
    .await;
    // What comes slowly, and comes, is read.
    let (body, more) = Open::new("x");
    let sent = tokio::spawn(send(world.http, request(Method::POST, "/v1/traces", &[PROTOBUF], body)));
    for _ in 0..6 {
        tokio::time::sleep(SHORT).await;
        more.send("x".into()).await.unwrap();
    }
    drop(more);
    assert_eq!(soon(sent).await.unwrap().status, 200);
    let (body, _open) = Open::new([&[0], &9_000_u32.to_be_bytes()[..]].concat());
    let answer = Http2::connect(world.grpc).await.send(export(&[], body)).await;
    assert_eq!((answer.grpc().0, answer.has_retry_info()), ("14", true));
    assert_eq!((world.count(Outcome::Slow), world.budget.used_bytes()), (1, 0));
}

#[tokio::test]
async fn connections_that_do_not_begin_are_closed() {
    let mut world = World::start(|config| {
        config.limits.handshake_timeout = SHORT;
        config.limits.header_read_timeout = SHORT;
        config.limits.idle_timeout = SHORT;
    })
    .await;
    for address in [world.grpc, world.http] {
        assert_eq!(until_closed(address, b"").await, "");
    }
    world.ended(ConnectionEnd::Handshake, 2).await;
    assert!(world.notice(NoticeKind::Connection(ConnectionEnd::Handshake)).await.words.contains("in time"));
    // Half of the preface of HTTP/2, and half of the headers of HTTP/1.1.
    until_closed(world.grpc, b"PRI * HTT").await;
    until_closed(world.http, b"POST /v1/traces HTTP/1.1\r\nhost: a\r\n").await;
    until_closed(world.http, b"P").await;
    crate::world::until(|| world.counters.connections_open() == 0).await;
}

/// Opens a connection of HTTP/2. Returns it, and the window and the largest frame that the server gives its requests.
async fn opened(address: std::net::SocketAddr) -> (TcpStream, [u32; 2]) {
    let mut stream = soon(TcpStream::connect(address)).await.unwrap();
    // The preface, and settings without any (RFC 9113, 3.4).
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut head = [0; 9];
    soon(stream.read_exact(&mut head)).await.unwrap();
    assert_eq!((head[0], head[1], head[3]), (0, 0, 4), "a server begins with its settings");
    let mut settings = vec![0; usize::from(head[2])];
    soon(stream.read_exact(&mut settings)).await.unwrap();
    let of = |setting: u8| {
        let value = settings.as_chunks::<6>().0.iter().find_map(|[high, low, value @ ..]| {
            ([*high, *low] == [0, setting]).then(|| u32::from_be_bytes(*value))
        });
        value.unwrap()
    };
    let (initial_window_size, max_frame_size) = (of(4), of(5));
    (stream, [initial_window_size, max_frame_size])
}

#[tokio::test]
async fn so_many_connections_of_grpc_have_a_wide_window_and_leave_it_to_others_when_they_end() {
    let world = World::accepting(|config| config.limits.wide_windows_max = 1).await;
    let (narrow, wide) = ([64 << 10, 16 << 10], [WIDE_WINDOW_BYTES, WIDE_FRAME_BYTES]);
    let (_of_http, given) = opened(world.http).await;
    assert_eq!(given, narrow);
    let (first, given) = opened(world.grpc).await;
    assert_eq!(given, wide);
    let (_second, given) = opened(world.grpc).await;
    assert_eq!(given, narrow);
    drop(first);
    crate::world::until(|| world.counters.connections_open() == 2).await;
    let (_third, given) = opened(world.grpc).await;
    assert_eq!(given, wide);
}

#[tokio::test]
async fn a_connection_of_http_1_waits_for_its_next_request_longer_than_for_its_headers() {
    let world = World::accepting(|config| config.limits.header_read_timeout = SHORT).await;
    let mut stream = soon(TcpStream::connect(world.http)).await.unwrap();
    for _ in 0..3 {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut read = [0; 12];
        soon(stream.read_exact(&mut read)).await.unwrap();
        assert_eq!(&read, b"HTTP/1.1 404");
        // The rest of the answer.
        while soon(stream.read_u8()).await.unwrap() != b'}' {}
        tokio::time::sleep(SHORT * 4).await;
    }
    assert_eq!(world.counters.connections_open(), 1);
    // What begins a request has to complete its headers.
    let begun = std::time::Instant::now();
    stream.write_all(b"GET / HT").await.unwrap();
    drop(soon(stream.read_to_end(&mut Vec::new())).await);
    assert!(begun.elapsed() >= SHORT / 2 && begun.elapsed() < Duration::from_secs(30), "{begun:?}");
    world.ended(ConnectionEnd::Broken, 1).await;
}

#[tokio::test]
async fn half_a_preface_is_waited_for_as_headers_are() {
    let world = World::accepting(|config| config.limits.header_read_timeout = SHORT).await;
    for half in [&b"P"[..], b"PRI * HTT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
        let closed = tokio::time::timeout(Duration::from_secs(20), until_closed(world.grpc, half)).await;
        assert!(closed.is_ok(), "{half:?} is waited for");
    }
    // A whole one may wait for its first request.
    let client = Http2::connect(world.grpc).await;
    tokio::time::sleep(SHORT * 4).await;
    assert_eq!(client.send(message()).await.grpc().0, "0");
}

#[tokio::test]
async fn a_connection_without_requests_is_closed_and_one_with_a_request_is_not() {
    let mut world = World::start(|config| config.limits.idle_timeout = SHORT).await;
    let mut client = Http2::connect(world.grpc).await;
    let sent = client.begin(message());
    let arrival = world.arrival().await;
    let idle: Http2<Full<Bytes>> = Http2::connect(world.grpc).await;
    soon(idle.connection).await.unwrap().unwrap();
    assert!(!client.connection.is_finished());
    arrival.reply.send(Ok(Accepted::default())).unwrap();
    assert_eq!(soon(sent).await.unwrap().unwrap().grpc().0, "0");
    soon(&mut client.connection).await.unwrap().unwrap();
    world.ended(ConnectionEnd::Idle, 2).await;
}

#[tokio::test]
async fn an_old_connection_is_told_to_go_and_its_requests_are_answered() {
    let mut world = World::start(|config| config.limits.connection_age_max = SHORT).await;
    let stream = soon(TcpStream::connect(world.grpc)).await.unwrap();
    let (mut sender, connection) = soon(h2::client::handshake(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let (answer, mut body) = sender.send_request(export(&[], ()), false).unwrap();
    body.send_data(Bytes::from(framed(0, b"x")), true).unwrap();
    let arrival = world.arrival().await;
    // GOAWAY: the client opens no more streams, and has a connection for the one that is open.
    while soon(sender.clone().ready()).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!connection.is_finished());
    arrival.reply.send(Ok(Accepted::default())).unwrap();
    assert_eq!(soon(answer).await.unwrap().status(), 200);
    soon(connection).await.unwrap().unwrap();
    world.ended(ConnectionEnd::Aged, 1).await;
    // An idle one of HTTP/1.1 is closed as well.
    let mut stream = soon(TcpStream::connect(world.http)).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut read = String::new();
    soon(stream.read_to_string(&mut read)).await.unwrap();
    assert!(read.starts_with("HTTP/1.1 404"), "{read}");
    world.ended(ConnectionEnd::Aged, 2).await;
}

#[tokio::test]
async fn a_client_that_is_sent_elsewhere_gets_its_answers_and_its_connection_ends() {
    let mut world = World::start(|_| {}).await;
    let elsewhere = || {
        Err(Refusal::Elsewhere { after: Duration::from_secs(5), words: "others take requests".to_owned() })
    };
    let stream = soon(TcpStream::connect(world.grpc)).await.unwrap();
    let (mut sender, connection) = soon(h2::client::handshake(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut answers = Vec::new();
    for _ in 0..2 {
        sender = soon(sender.ready()).await.unwrap();
        let (answer, mut body) = sender.send_request(export(&[], ()), false).unwrap();
        body.send_data(Bytes::from(framed(0, b"x")), true).unwrap();
        answers.push((answer, world.arrival().await));
    }
    let (first, arrival) = answers.remove(0);
    arrival.reply.send(elsewhere()).unwrap();
    assert_eq!(soon(first).await.unwrap().headers()["grpc-status"], "14");
    // GOAWAY: the client opens no more streams, and has a connection for the one that is open.
    while soon(sender.clone().ready()).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let (second, arrival) = answers.remove(0);
    arrival.reply.send(Ok(Accepted::default())).unwrap();
    assert_eq!(soon(second).await.unwrap().status(), 200);
    soon(connection).await.unwrap().unwrap();
    world.ended(ConnectionEnd::Elsewhere, 1).await;

    world.answering(move |_| elsewhere());
    let head = "POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf\r\ncontent-length: 1\r\n\r\nx";
    let read = until_closed(world.http, head.as_bytes()).await;
    assert!(read.starts_with("HTTP/1.1 503") && read.contains("retry-after: 5"), "{read}");
    assert!(read.contains("connection: close"), "{read}");
}

#[tokio::test]
async fn an_old_connection_whose_requests_are_not_answered_is_cut() {
    let mut world = World::start(|config| {
        config.limits.connection_age_max = SHORT;
        config.limits.connection_grace = SHORT;
    })
    .await;
    let client = Http2::connect(world.grpc).await;
    let sent = client.begin(message());
    let held = world.arrival().await;
    assert!(soon(sent).await.unwrap().is_err());
    world.ended(ConnectionEnd::Aged, 1).await;
    crate::world::until(|| world.counters.requests_in_flight() == 0).await;
    assert_eq!(world.count(Outcome::Cancelled), 1);
    drop(held);
    assert_eq!(world.budget.used_bytes(), 0);
}

#[tokio::test]
async fn more_connections_than_the_limit_are_closed_at_once() {
    let mut world = World::accepting(|config| config.limits.connections_max = 2).await;
    let client = Http2::connect(world.grpc).await;
    assert_eq!(client.send(message()).await.grpc().0, "0");
    let other: Http2<Full<Bytes>> = Http2::connect(world.grpc).await;
    crate::world::until(|| world.counters.connections_open() == 2).await;
    assert_eq!(until_closed(world.http, b"").await, "");
    assert_eq!(world.counters.connection_ends(ConnectionEnd::Full), 1);
    assert!(world.notice(NoticeKind::Connection(ConnectionEnd::Full)).await.words.contains("2 connections"));
    other.connection.abort();
    drop(other.sender);
    crate::world::until(|| world.counters.connections_open() == 1).await;
    assert_eq!(post(world.http, &[PROTOBUF], "x").await.status, 200);
}

#[tokio::test]
async fn headers_beyond_the_limit_are_refused() {
    let world = World::accepting(|config| config.limits.header_bytes_max = 8_192).await;
    let large = "a".repeat(9_000);
    let headers = [PROTOBUF, ("x-large", large.as_str())];
    let answer = post(world.http, &headers, "x").await;
    assert_eq!((answer.status.as_u16(), answer.rpc_status().0), (431, 8));
    assert!(answer.rpc_status().1.contains("8192 bytes"), "{answer:?}");
    let request = export(&[("x-large", &large)], Full::new(Bytes::from(framed(0, b"x"))));
    let answer = soon(Http2::connect(world.grpc).await.begin(request)).await.unwrap();
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status == 431));
    assert_eq!(world.count(Outcome::Accepted), 0);
}

/// A frame of HTTP/2 on stream 1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[high, middle, low, kind, flags, 0, 0, 0, 1], payload].concat()
}

#[tokio::test]
async fn headers_of_http_2_that_never_end_hold_no_connection() {
    const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let world = World::accepting(|config| {
        config.limits.header_read_timeout = SHORT;
        config.limits.ping_interval = Duration::from_mins(10);
    })
    .await;
    // HEADERS without END_HEADERS, with and without CONTINUATION; half a frame; half of a frame's head.
    let open = frame(1, 0, b"\x83");
    let continued = [open.clone(), frame(9, 0, b"\x87")].concat();
    let half = frame(1, 4, &[0; 40])[..20].to_vec();
    for (ended, never_ends) in [open, continued, half, vec![0, 0]].into_iter().enumerate() {
        for address in [world.grpc, world.http] {
            let bytes = [BEGIN, &never_ends].concat();
            let closed = tokio::time::timeout(Duration::from_secs(20), until_closed(address, &bytes)).await;
            assert!(closed.is_ok(), "{never_ends:?} is waited for");
        }
        world.ended(ConnectionEnd::Broken, 2 * (u64::try_from(ended).unwrap() + 1)).await;
    }
    // CONTINUATION that comes all the time.
    let mut stream = soon(TcpStream::connect(world.grpc)).await.unwrap();
    stream.write_all(&[BEGIN, &frame(1, 0, b"\x83")].concat()).await.unwrap();
    let sends = async {
        while stream.write_all(&frame(9, 0, b"")).await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    soon(sends).await;
    // A connection that only waits is not one of these.
    let client = Http2::connect(world.grpc).await;
    tokio::time::sleep(SHORT * 4).await;
    assert_eq!(client.send(message()).await.grpc().0, "0");
}

#[tokio::test]
async fn headers_that_cannot_be_read_get_a_status_as_the_body_of_their_answer() {
    let world = World::accepting(|_| {}).await;
    for broken in ["NO HTTP\r\n\r\n", "POST /v1/traces HTTP/1.1\r\nno colon\r\n\r\n"] {
        let read = until_closed(world.http, broken.as_bytes()).await;
        let (head, body) = read.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400"), "{read}");
        let status: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(status["code"], 3, "{read}");
    }
    let many = "x: 1\r\n".repeat(120);
    let read = until_closed(world.http, format!("POST / HTTP/1.1\r\n{many}\r\n").as_bytes()).await;
    assert!(read.starts_with("HTTP/1.1 431") && read.contains("100 headers or more"), "{read}");
}

#[tokio::test]
async fn a_flood_of_resets_ends_its_connection() {
    let mut world = World::start(|config| config.limits.resets_max = 50).await;
    let stream = soon(TcpStream::connect(world.grpc)).await.unwrap();
    let (mut sender, connection) = soon(h2::client::handshake(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let (mut sent, mut held) = (0_u64, Vec::new());
    loop {
        let Ok(ready) = soon(sender.ready()).await else { break };
        sender = ready;
        let Ok((answer, mut body)) = sender.send_request(export(&[], ()), false) else { break };
        drop(body.send_data(Bytes::from(framed(0, b"x")), true));
        // Taken up, so that the pending ones are not what ends it.
        tokio::select! {
            arrival = world.arrivals.recv() => held.push(arrival.unwrap().reply),
            _ = answer => {}
        }
        body.send_reset(h2::Reason::CANCEL);
        sent += 1;
        assert!(sent < 10_000, "a flood goes on");
    }
    drop(soon(connection).await);
    world.ended(ConnectionEnd::Resets, 1).await;
    crate::world::until(|| world.counters.requests_in_flight() == 0).await;
    assert!(sent >= 50, "{sent}");
    assert_eq!(world.budget.used_bytes(), 0);
}

#[tokio::test]
async fn a_flood_of_streams_that_are_reset_at_once_is_bounded() {
    let world = World::start(|config| config.limits.resets_max = 50).await;
    let stream = soon(TcpStream::connect(world.grpc)).await.unwrap();
    let (mut sender, connection) = soon(h2::client::handshake(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut sent = 0_u64;
    while let Ok(ready) = soon(sender.ready()).await {
        sender = ready;
        let Ok((_, mut body)) = sender.send_request(export(&[], ()), false) else { break };
        body.send_reset(h2::Reason::CANCEL);
        sent += 1;
        assert!(sent < 100_000, "a flood goes on");
        tokio::task::yield_now().await;
    }
    drop(soon(connection).await);
    crate::world::until(|| world.counters.connections_open() == 0).await;
    crate::world::until(|| world.counters.requests_in_flight() == 0).await;
}

#[tokio::test]
async fn the_end_waits_for_requests_and_takes_no_more() {
    let mut world = World::start(|_| {}).await;
    let (grpc, http) = (world.grpc, world.http);
    let client = Http2::connect(grpc).await;
    let sent = client.begin(message());
    let over_http = tokio::spawn(async move { post(http, &[PROTOBUF], "x").await });
    let held = [world.arrival().await, world.arrival().await];
    let idle: Http2<Full<Bytes>> = Http2::connect(grpc).await;
    let stopping = world.stop();
    // With GOAWAY, or without if the server had not read its preface yet.
    drop(soon(idle.connection).await.unwrap());
    // The sockets are closed before requests are waited for.
    while TcpStream::connect(grpc).await.is_ok() {
        tokio::task::yield_now().await;
    }
    for arrival in held {
        arrival.reply.send(Ok(Accepted::default())).unwrap();
    }
    assert_eq!(soon(sent).await.unwrap().unwrap().grpc().0, "0");
    let answer = soon(over_http).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.header("connection")), (200, Some("close")));
    assert_eq!(stopping.ended().await, Ok(()));
}

#[tokio::test]
async fn the_end_is_bounded_and_says_what_had_no_answer() {
    let mut world = World::start(|config| config.limits.shutdown_timeout = SHORT).await;
    let client = Http2::connect(world.grpc).await;
    let sent = client.begin(message());
    let held = world.arrival().await;
    let stopping = world.stop();
    assert_eq!(stopping.ended().await, Err(Unanswered { requests: 1, connections: 1 }));
    assert!(soon(sent).await.unwrap().is_err());
    drop(held);
}

/// A whole request over HTTP/1.1.
const REQUEST: &[u8] =
    b"POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf\r\ncontent-length: 1\r\n\r\nx";

/// The status of the answer on a connection, which the server closes then.
async fn status(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    soon(stream.read_to_end(&mut read)).await.unwrap();
    let read = String::from_utf8_lossy(&read).into_owned();
    read.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn requests_that_come_just_before_the_end_are_answered() {
    for _ in 0..10 {
        let world = World::accepting(|_| {}).await;
        // The kernel accepts it; the server has not seen it when it ends.
        let mut streams = Vec::new();
        for _ in 0..5 {
            let mut stream = std::net::TcpStream::connect(world.http).unwrap();
            std::io::Write::write_all(&mut stream, REQUEST).unwrap();
            stream.set_nonblocking(true).unwrap();
            streams.push(TcpStream::from_std(stream).unwrap());
        }
        let stopping = world.stop();
        for stream in &mut streams {
            assert_eq!(status(stream).await, "HTTP/1.1 200 OK");
        }
        assert_eq!(stopping.ended().await, Ok(()));
    }
}

#[tokio::test]
async fn a_connection_that_is_open_at_the_end_still_gets_an_answer_to_what_is_on_its_way() {
    let world = World::accepting(|_| {}).await;
    // One without a byte so far, one with half of its headers, and one that waits for its second request.
    let mut fresh = soon(TcpStream::connect(world.http)).await.unwrap();
    let mut half = soon(TcpStream::connect(world.http)).await.unwrap();
    half.write_all(&REQUEST[..30]).await.unwrap();
    let mut used = soon(TcpStream::connect(world.http)).await.unwrap();
    used.write_all(REQUEST).await.unwrap();
    let mut read = [0; 15];
    soon(used.read_exact(&mut read)).await.unwrap();
    assert_eq!(&read, b"HTTP/1.1 200 OK");
    crate::world::until(|| world.counters.connections_open() == 3).await;
    let stopping = world.stop();
    tokio::time::sleep(SHORT).await;
    fresh.write_all(REQUEST).await.unwrap();
    half.write_all(&REQUEST[30..]).await.unwrap();
    used.write_all(REQUEST).await.unwrap();
    assert_eq!(status(&mut fresh).await, "HTTP/1.1 200 OK");
    assert_eq!(status(&mut half).await, "HTTP/1.1 200 OK");
    let mut read = String::new();
    soon(used.read_to_string(&mut read)).await.unwrap();
    // The rest of the first answer, and the second one.
    assert!(read.contains("HTTP/1.1 200 OK") && read.contains("connection: close"), "{read}");
    assert_eq!(stopping.ended().await, Ok(()));
}
