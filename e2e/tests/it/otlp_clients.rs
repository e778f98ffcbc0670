//! Clients that send numbered spans to a Service of the cluster over OTLP, by its address, as users do.
//!
//! If the server asks to retry, a client sends the request again: nothing of it was stored. Any other answer, or none, fails the test,
//! because the spans may or may not be stored.

use std::ops::Range;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::time::sleep;

use crate::prelude::*;

const REQUEST_SPANS: u64 = 50;

/// Pause before a retry. Chosen: shorter than the pause that servers ask for, so that a test does not wait for it.
const AGAIN: Duration = Duration::from_millis(500);

/// Largest number of tries of a request: for two minutes.
const TRIES: u32 = 240;

/// The path of an export over gRPC.
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// `UNAVAILABLE` of gRPC.
const UNAVAILABLE: &str = "14";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP/HTTP with protobuf.
    Http,
    Grpc,
}

/// The address at which a Service of the scene accepts OTLP.
#[derive(Clone, Debug)]
pub struct Address {
    http: String,
    grpc: String,
}

/// The ports of a Service, by their names.
pub async fn address(scene: &Scene, service: &str) -> Result<Address> {
    let found = scene.namespace.api::<Service>().get(service).await;
    let spec = found.with_context(|| format!("get the Service {service}"))?.spec;
    let spec = spec.context("a Service without a spec")?;
    let host = spec.cluster_ip.as_ref().context("a Service without an address")?;
    let port = |name: &str| {
        let port = spec.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name));
        port.map(|port| port.port).with_context(|| format!("a Service without a port {name}"))
    };
    Ok(Address {
        http: format!("http://{host}:{}/v1/traces", port("otlp-http")?),
        grpc: format!("http://{host}:{}{EXPORT}", port("otlp-grpc")?),
    })
}

/// Clients that send numbered spans, each with its own numbers, until they are stopped.
pub struct Clients {
    sending: JoinSet<Result<Sent>>,
    tally: Arc<Tally>,
}

/// What all clients share.
#[derive(Default)]
struct Tally {
    is_over: AtomicBool,
    failed: AtomicBool,
    /// The next number that no request has used.
    next: AtomicU64,
    /// Requests that were answered with success.
    answered: AtomicU64,
    told_again: AtomicU64,
}

impl Clients {
    /// One client for each protocol of the list.
    pub fn start(address: &Address, run: Run, protocols: &[Protocol]) -> Self {
        let (mut sending, tally) = (JoinSet::new(), Arc::<Tally>::default());
        for protocol in protocols.iter().copied() {
            let client = Sender {
                http: Client::builder(TokioExecutor::new())
                    .http2_only(protocol == Protocol::Grpc)
                    .build_http(),
                address: match protocol {
                    Protocol::Http => address.http.clone(),
                    Protocol::Grpc => address.grpc.clone(),
                },
                protocol,
                generator: Generator::new(Shape::Numbered, run),
                tally: Arc::clone(&tally),
            };
            sending.spawn(client.send_all());
        }
        Self { sending, tally }
    }

    /// How often a server asked to retry a request.
    pub fn told_again(&self) -> u64 {
        self.tally.told_again.load(Ordering::Relaxed)
    }

    /// Fails if a client has failed, because waiting is then of no use; [`Self::stop`] returns the cause.
    pub fn ensure_no_failure(&self) -> Result<()> {
        ensure!(!self.tally.failed.load(Ordering::Relaxed), "a request failed while pods were replaced");
        Ok(())
    }

    /// Waits until this many more requests were answered with success.
    pub async fn wait_answered(&self, more: u64) -> Result<()> {
        let answered = || self.tally.answered.load(Ordering::Relaxed);
        let wanted = answered() + more;
        until("more requests answered", READY, async || {
            self.ensure_no_failure()?;
            let now = answered();
            Ok(Seen::when(now >= wanted, || format!("{now} of {wanted}")))
        })
        .await
    }

    /// Stops all of them, and returns what was answered with success.
    pub async fn stop(mut self) -> Result<Sent> {
        self.tally.is_over.store(true, Ordering::Relaxed);
        let mut all = Sent::default();
        while let Some(sent) = self.sending.join_next().await {
            all = all.and(sent.context("a client panicked")??);
        }
        Ok(all)
    }
}

enum Answer {
    Stored,
    ComeAgain,
}

struct Sender {
    http: Client<HttpConnector, Full<Bytes>>,
    address: String,
    protocol: Protocol,
    generator: Generator,
    tally: Arc<Tally>,
}

impl Sender {
    /// Sends requests with numbers that no other client uses.
    async fn send_all(mut self) -> Result<Sent> {
        let mut sent = Sent::default();
        while !self.tally.is_over.load(Ordering::Relaxed) {
            let first = self.tally.next.fetch_add(REQUEST_SPANS, Ordering::Relaxed);
            let numbers = first..first + REQUEST_SPANS;
            let stored = self.send(numbers.clone()).await;
            self.tally.failed.fetch_or(stored.is_err(), Ordering::Relaxed);
            sent.bytes += stored.with_context(|| format!("send {numbers:?}"))?;
            sent.messages += 1;
            sent.acked.insert(numbers);
            self.tally.answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(sent)
    }

    async fn send(&mut self, numbers: Range<u64>) -> Result<u64> {
        let message = Bytes::copy_from_slice(self.generator.message(numbers));
        for _ in 0..TRIES {
            match self.ask(&message).await? {
                Answer::Stored => return Ok(message.len() as u64),
                Answer::ComeAgain => {
                    self.tally.told_again.fetch_add(1, Ordering::Relaxed);
                    sleep(AGAIN).await;
                }
            }
        }
        bail!("told to come again {TRIES} times")
    }

    async fn ask(&self, message: &Bytes) -> Result<Answer> {
        let request = Request::post(&self.address);
        let request = match self.protocol {
            Protocol::Http => {
                request.header("content-type", "application/x-protobuf").body(Full::new(message.clone()))
            }
            Protocol::Grpc => {
                let length = u32::try_from(message.len()).context("a message of 4 GiB")?.to_be_bytes();
                let body = Bytes::from([&[0_u8][..], &length[..], &message[..]].concat());
                let request = request.header("content-type", "application/grpc").header("te", "trailers");
                request.body(Full::new(body))
            }
        };
        let answer = self.http.request(request.context("build a request")?).await.context("no answer")?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.context("read the answer")?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        let of = |name: &str| {
            let value = head.headers.get(name).or_else(|| trailers.get(name));
            value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let text = body.to_bytes();
        match (self.protocol, head.status, of("grpc-status").as_str()) {
            (Protocol::Http, StatusCode::SERVICE_UNAVAILABLE, _) | (Protocol::Grpc, _, UNAVAILABLE) => {
                Ok(Answer::ComeAgain)
            }
            (Protocol::Http, StatusCode::OK, _) if text.is_empty() => Ok(Answer::Stored),
            (Protocol::Http, status, _) => bail!("status {status}: {:?}", String::from_utf8_lossy(&text)),
            (Protocol::Grpc, _, "0") => Ok(Answer::Stored),
            (Protocol::Grpc, _, other) => bail!("grpc-status {other:?}: {}", of("grpc-message")),
        }
    }
}
