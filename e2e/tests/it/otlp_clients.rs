//! Clients that send numbered spans to a Service of the cluster over OTLP, by its address, as users do.
//!
//! If the server asks to retry, a client sends the request again: nothing of it was stored. Any other answer, or none, fails the test,
//! because the spans may or may not be stored.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use e2e_fixtures::spans::Generator;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
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

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP/HTTP with protobuf.
    Http,
    /// OTLP/gRPC.
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
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    told_again: Arc<AtomicU64>,
    failed: Arc<AtomicBool>,
}

impl Clients {
    /// One client for each protocol of the list.
    pub fn start(address: &Address, run: Run, protocols: &[Protocol]) -> Self {
        let (is_over, failed) = (Arc::default(), Arc::default());
        let (answered, told_again) = (Arc::default(), Arc::default());
        let mut sending = JoinSet::new();
        let clients = protocols.len() as u64;
        for (number, protocol) in (0..).zip(protocols.iter().copied()) {
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
                is_over: Arc::clone(&is_over),
                answered: Arc::clone(&answered),
                told_again: Arc::clone(&told_again),
            };
            let failed: Arc<AtomicBool> = Arc::clone(&failed);
            sending.spawn(async move {
                let sent = client.send_all(number, clients).await;
                failed.fetch_or(sent.is_err(), Ordering::Relaxed);
                sent
            });
        }
        Self { sending, is_over, answered, told_again, failed }
    }

    /// Requests that were answered with success.
    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// How often a server asked to retry a request.
    pub fn told_again(&self) -> u64 {
        self.told_again.load(Ordering::Relaxed)
    }

    /// Fails if a client has failed, because waiting is then of no use; [`Self::stop`] returns the cause.
    pub fn ensure_no_failure(&self) -> Result<()> {
        ensure!(!self.failed.load(Ordering::Relaxed), "a request failed while pods were replaced");
        Ok(())
    }

    /// Waits until this many more requests were answered with success.
    pub async fn wait_answered(&self, more: u64) -> Result<()> {
        let wanted = self.answered() + more;
        until("more requests answered", READY, async || {
            self.ensure_no_failure()?;
            let now = self.answered();
            Ok(Seen::when(now >= wanted, || format!("{now} of {wanted}")))
        })
        .await
    }

    /// Stops all of them, and returns what was answered with success.
    pub async fn stop(mut self) -> Result<Sent> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Sent::default();
        while let Some(sent) = self.sending.join_next().await {
            all = all.and(sent.context("a client panicked")??);
        }
        Ok(all)
    }
}

/// A server's answer to a request.
enum Answer {
    Stored,
    ComeAgain,
}

struct Sender {
    http: Client<HttpConnector, Full<Bytes>>,
    address: String,
    protocol: Protocol,
    generator: Generator,
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    told_again: Arc<AtomicU64>,
}

impl Sender {
    /// Sends requests with numbers that no other client uses.
    async fn send_all(mut self, client: u64, clients: u64) -> Result<Sent> {
        let mut sent = Sent::default();
        for turn in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let first = (turn * clients + client) * REQUEST_SPANS;
            let numbers = first..first + REQUEST_SPANS;
            sent.bytes += self.send(numbers.clone()).await.with_context(|| format!("send {numbers:?}"))?;
            sent.messages += 1;
            sent.acked.insert(numbers);
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(sent)
    }

    async fn send(&mut self, numbers: Range<u64>) -> Result<u64> {
        let message = Bytes::copy_from_slice(self.generator.message(numbers));
        for _ in 0..TRIES {
            let answer = match self.protocol {
                Protocol::Http => self.post(message.clone()).await?,
                Protocol::Grpc => self.export(&message).await?,
            };
            match answer {
                Answer::Stored => return Ok(message.len() as u64),
                Answer::ComeAgain => {
                    self.told_again.fetch_add(1, Ordering::Relaxed);
                    sleep(AGAIN).await;
                }
            }
        }
        bail!("told to come again {TRIES} times")
    }

    async fn post(&self, message: Bytes) -> Result<Answer> {
        let request = Request::post(&self.address)
            .header("content-type", "application/x-protobuf")
            .body(Full::new(message))
            .context("build a request")?;
        let answer = self.http.request(request).await.context("no answer")?;
        let status = answer.status();
        let text = answer.into_body().collect().await.context("read the answer")?.to_bytes();
        match status {
            StatusCode::OK if text.is_empty() => Ok(Answer::Stored),
            StatusCode::SERVICE_UNAVAILABLE => Ok(Answer::ComeAgain),
            _ => bail!("status {status}: {:?}", String::from_utf8_lossy(&text)),
        }
    }

    async fn export(&self, message: &Bytes) -> Result<Answer> {
        let length = u32::try_from(message.len()).context("a message of 4 GiB")?.to_be_bytes();
        let body = Bytes::from([&[0_u8][..], &length[..], &message[..]].concat());
        let request = Request::post(&self.address)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(body))
            .context("build a request")?;
        let (head, body) = self.http.request(request).await.context("no answer")?.into_parts();
        let collected = body.collect().await.context("read the answer")?;
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let of = |name: &str| {
            let value = head.headers.get(name).or_else(|| trailers.get(name));
            value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        match of("grpc-status").as_str() {
            "0" => Ok(Answer::Stored),
            UNAVAILABLE => Ok(Answer::ComeAgain),
            other => bail!("grpc-status {other:?}: {}", of("grpc-message")),
        }
    }
}
