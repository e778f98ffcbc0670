//! Clients that stop in the middle: of headers, of a body, or before the answer. Others send whole requests meanwhile.
//!
//! A request that did not arrive completely must not be stored in part. Spans of such requests do not count as sent, so a row of one fails
//! the round.

use anyhow::{Context as _, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{begin, ensure_answered};
use crate::otlp_clients::{PATH, PROTOBUF, REQUEST_SPANS};
use crate::scene::{Expected, SPANS_AFTER, Scene};
use e2e_fixtures::produce::Sent;
use e2e_fixtures::spans::{Generator, Shape};

/// Requests that stop in each way.
const TIMES: u64 = 20;

/// Numbers of spans in requests that never arrive, far from all others.
const NEVER_FROM: u64 = 1 << 32;

/// Numbers of spans in requests that arrive, but whose clients have disconnected.
const GONE_FROM: u64 = 1 << 33;

/// How a client ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    Reset,
    /// It stays open until the end of the round: all the time, the gateway has half a request.
    Stay,
}

pub(super) async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    begin(scene).await?;
    let address = scene.otlp_address()?;
    let mut generator = Generator::new(Shape::Numbered, scene.producer.run());
    let mut whole = |number: u64| request(&address, generator.message(number..number + REQUEST_SPANS));
    let mut staying = Vec::new();
    let mut gone = Sent::default();
    for turn in 0..TIMES {
        let never = whole(NEVER_FROM + turn * REQUEST_SPANS);
        // Within the headers, before the body, in its middle, and all but its last byte.
        for bytes in [40, never.head, usize::midpoint(never.head, never.all.len()), never.all.len() - 1] {
            for end in [End::Close, End::Reset] {
                send(&address, &never.all[..bytes], end).await?;
            }
            if turn == 0 {
                staying.push(send(&address, &never.all[..bytes], End::Stay).await?);
            }
        }
        let first = GONE_FROM + turn * REQUEST_SPANS;
        let end = if turn.is_multiple_of(2) { End::Reset } else { End::Close };
        send(&address, &whole(first).all, end).await?;
        gone.doubtful.insert(first..first + REQUEST_SPANS);
    }
    scene.wait_acked(SPANS_AFTER).await?;
    ensure_answered(scene)?;
    scene.stop_load().await?;
    scene.add(gone);
    drop(staying);
    Ok(Expected::default())
}

/// A whole request, and the bytes of its headers.
struct Whole {
    all: Vec<u8>,
    head: usize,
}

fn request(address: &str, body: &[u8]) -> Whole {
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {PROTOBUF}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Whole { all: [head.as_bytes(), body].concat(), head: head.len() }
}

/// Sends these bytes on a new connection, and reads no answer.
async fn send(address: &str, bytes: &[u8], end: End) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await.context("reach the gateway")?;
    stream.write_all(bytes).await.context("send a part of a request")?;
    match end {
        End::Close => stream.shutdown().await.context("end a connection")?,
        End::Reset => stream.set_zero_linger().context("prepare a reset")?,
        End::Stay => {}
    }
    Ok(stream)
}
