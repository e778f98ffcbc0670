//! Clients of OTLP/gRPC that send numbered spans, at full speed or at a rate.
//!
//! Job: send every span once, and time the answers. Place in the flow: before the measured process. Owner: a task for each client, which
//! has its own connection and one request under way. A client makes its request before it is due, so that the answer's time does not
//! include that; the cost is not part of the process' CPU time.
//!
//! At a rate, a wait begins when the request is due, not when a client is free for it. So if a server stalls, all requests that are due
//! meanwhile are late.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as Wait, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use e2e_fixtures::spans::{Generator, Run, Shape};
use e2e_stack::process::interrupt;
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::{Body, Frame};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::figures::{float, percentile};

/// Spans of a request: two traces, 92 KB. Chosen: a quarter of the largest batch that an SDK sends by default (512).
const REQUEST_SPANS: u64 = 200;

/// Pause before a refused request is sent again. Chosen: short, because servers do not refuse at the measured rates.
const AGAIN: Duration = Duration::from_millis(100);

/// Largest number of tries of a request: for a minute.
const TRIES: u32 = 600;

/// The method's path.
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Status codes of gRPC after which a client retries: `UNAVAILABLE`, and `RESOURCE_EXHAUSTED`, which a Collector returns if its queue is
/// full.
const COME_AGAIN: [&str; 2] = ["14", "8"];

/// Bytes of a frame of HTTP/2. The clients of gRPC for Go and Java, and the Collector, send no larger ones, whatever a server takes.
const FRAME_BYTES: usize = 16 << 10;

/// A body in frames of [`FRAME_BYTES`].
struct Pieces(Bytes);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Wait<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = FRAME_BYTES.min(self.0.len());
        Poll::Ready((bytes > 0).then(|| Ok(Frame::data(self.0.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub run: Run,
    /// How many, numbered from 0.
    pub spans: u64,
    /// Connections.
    pub clients: u64,
    /// The rate of all clients together; `None`: as fast as answers come.
    pub spans_per_second: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The wait for each answer, in rising order.
    pub waits: Vec<Duration>,
    pub again: u64,
}

struct Sending {
    load: Load,
    address: String,
    began: Instant,
    next: AtomicU64,
}

impl Load {
    /// Sends all spans to `host:port`, and returns once every request was answered with success. After any other answer, or none, the spans
    /// may be stored or not.
    pub async fn send(self, grpc: &str) -> Result<Answers> {
        let address = format!("http://{grpc}{EXPORT}");
        let next = AtomicU64::new(0);
        let sending = Arc::new(Sending { load: self, address, began: Instant::now(), next });
        let mut clients = JoinSet::new();
        for _ in 0..self.clients {
            clients.spawn(client(Arc::clone(&sending)));
        }
        let mut answers = Answers::default();
        while let Some(client) = clients.join_next().await {
            let client = client.context("a client panicked")??;
            answers.waits.extend(client.waits);
            answers.again += client.again;
        }
        answers.waits.sort_unstable();
        Ok(answers)
    }
}

impl Answers {
    /// The wait that `percent` of 100 answers did not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        percentile(&self.waits, percent).unwrap_or_default()
    }
}

/// Spans in so many seconds at a rate; at least one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count far below 2^53")]
pub fn spans_in(spans_per_second: f64, seconds: u64) -> u64 {
    ((spans_per_second * float(seconds)) as u64).max(1)
}

async fn client(sending: Arc<Sending>) -> Result<Answers> {
    let mut connector = HttpConnector::new();
    // With this option, the end of a request is sent without waiting for the acknowledgement of earlier packets.
    connector.set_nodelay(true);
    let http = Client::builder(TokioExecutor::new()).http2_only(true).build(connector);
    let mut generator = Generator::new(Shape::Rich, sending.load.run);
    let mut answers = Answers::default();
    loop {
        interrupt::check()?;
        let first = sending.next.fetch_add(REQUEST_SPANS, Ordering::Relaxed);
        if first >= sending.load.spans {
            return Ok(answers);
        }
        let numbers = first..(first + REQUEST_SPANS).min(sending.load.spans);
        let body = framed(generator.message(numbers.clone()))?;
        let since = sending.until_due(first).await;
        answers.again += sending.export(&http, body).await.with_context(|| format!("send {numbers:?}"))?;
        answers.waits.push(since.elapsed());
    }
}

/// A message of gRPC: a flag, the length, and the bytes.
fn framed(message: &[u8]) -> Result<Bytes> {
    let length = u32::try_from(message.len()).context("a message of 4 GiB")?.to_be_bytes();
    Ok(Bytes::from([&[0_u8][..], &length[..], message].concat()))
}

impl Sending {
    /// Waits until the request with this first number is due, and returns that time; without a rate, it is due now.
    async fn until_due(&self, first: u64) -> Instant {
        let Some(spans_per_second) = self.load.spans_per_second else { return Instant::now() };
        let due = self.began + Duration::from_secs_f64(float(first) / spans_per_second);
        sleep_until(due).await;
        due
    }

    /// Sends a request until it is answered with success; returns how often it was sent again.
    async fn export(&self, http: &Client<HttpConnector, Pieces>, body: Bytes) -> Result<u64> {
        for again in 0..u64::from(TRIES) {
            let request = Request::post(&self.address)
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(Pieces(body.clone()))
                .context("build a request")?;
            let (head, answer) = http.request(request).await.context("no answer")?.into_parts();
            let collected = answer.collect().await.context("read the answer")?;
            let trailers = collected.trailers().cloned().unwrap_or_default();
            let of = |name: &str| {
                let value = head.headers.get(name).or_else(|| trailers.get(name));
                value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
            };
            match of("grpc-status").as_str() {
                "0" => return Ok(again),
                status if COME_AGAIN.contains(&status) => sleep(AGAIN).await,
                other => bail!("grpc-status {other:?}: {}", of("grpc-message")),
            }
        }
        bail!("told to come again {TRIES} times")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_wait_that_so_many_do_not_exceed() {
        let waits = (1..=200).map(Duration::from_millis).collect();
        let answers = Answers { waits, again: 0 };
        assert_eq!(answers.percentile(50), Duration::from_millis(100));
        assert_eq!(answers.percentile(99), Duration::from_millis(198));
        assert_eq!(answers.percentile(100), Duration::from_millis(200));
        assert_eq!(Answers::default().percentile(99), Duration::ZERO);
    }

    #[test]
    fn a_message_of_grpc_begins_with_its_length() {
        assert_eq!(framed(b"abc").unwrap()[..], [0, 0, 0, 0, 3, b'a', b'b', b'c']);
    }

    #[test]
    fn a_rate_for_some_seconds_is_a_count() {
        assert_eq!(spans_in(1_000.6, 2), 2_001);
        assert_eq!(spans_in(0.1, 1), 1);
    }
}
