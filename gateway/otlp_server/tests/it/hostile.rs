//! Random bytes to both ports: the server stays up, and holds nothing afterwards.

use crate::{
    client::post,
    world::{World, soon, until},
};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const HEADERS: &[u8] = b"POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-protobuf\r\n";

/// Bytes after a beginning that is right, or after none.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let chunked = b"transfer-encoding: chunked\r\n\r\n5\r\n".to_vec();
    let begin = prop_oneof![
        Just(Vec::new()),
        Just(PREFACE.to_vec()),
        Just(HEADERS.to_vec()),
        Just([HEADERS, b"content-length: 50\r\n\r\n"].concat()),
        Just([HEADERS, &chunked].concat()),
    ];
    let frame =
        (any::<[u8; 5]>(), vec(any::<u8>(), 0..60)).prop_map(|([kind, flags, stream, extra, _], payload)| {
            let length = u8::try_from(payload.len()).unwrap() + extra % 2;
            [&[0, 0, length, kind % 12, flags, 0, 0, 0, stream % 8], payload.as_slice()].concat()
        });
    (begin, prop_oneof![vec(any::<u8>(), 0..300), vec(frame, 0..20).prop_map(|frames| frames.concat())])
        .prop_map(|(begin, rest)| [begin, rest].concat())
}

#[test]
fn random_bytes_leave_a_server_that_answers() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let short = Duration::from_millis(20);
    let world = runtime.block_on(World::accepting(|config| {
        config.limits.handshake_timeout = short;
        config.limits.header_read_timeout = short;
        config.limits.body_read_timeout = short;
        config.limits.idle_timeout = short;
        config.limits.ping_interval = short;
        config.limits.connection_grace = short;
    }));
    let mut runner =
        TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
    let tried = runner.run(&bytes(), |bytes| {
        runtime.block_on(async {
            for address in [world.grpc, world.http] {
                let mut stream = soon(TcpStream::connect(address)).await.unwrap();
                // The server may close before it has all.
                drop(stream.write_all(&bytes).await);
                drop(soon(stream.read_to_end(&mut Vec::new())).await);
            }
        });
        Ok(())
    });
    tried.unwrap();
    runtime.block_on(async {
        let answer = post(world.http, &[("content-type", "application/x-protobuf")], "x").await;
        assert_eq!(answer.status, 200);
        until(|| world.counters.connections_open() == 0).await;
    });
    assert_eq!((world.budget.used_bytes(), world.counters.requests_in_flight()), (0, 0));
}
