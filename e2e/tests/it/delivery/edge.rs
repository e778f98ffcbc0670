//! Spans that clients send to a pipeline's edge become rows, also while its pods are replaced. Clients reach it as others do: by the address of
//! its Service.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use e2e_fixtures::cluster::{Pods, Seen, until};
use e2e_fixtures::produce::Sent;
use e2e_fixtures::spans::{Generator, Run, Shape};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use tokio::task::JoinSet;

use crate::environment::READY;
use crate::scene::{self, Scene, Uses};

/// Clients that send at the same time, each over connections of its own.
const CLIENTS: u64 = 4;

/// Spans of a request.
const REQUEST_SPANS: u64 = 50;

/// Requests of a client after the last pod was replaced, so that new pods have taken some.
const REQUESTS_AFTER: u64 = 100;

/// How long pods may take to be replaced: two after each other, of which each waits for the cluster before it ends.
const REPLACED: Duration = Duration::from_mins(4);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "group delivery"]
async fn no_request_fails_while_pods_of_an_edge_are_replaced_and_every_span_is_a_row() -> Result<()> {
    scene::run("an_edge_is_replaced", Uses::Servers, 8, async |scene: &mut Scene| {
        // Three pods at a time, on one node that gateways share.
        let edge = json!({"replicas": 2, "resources": {"requests": {"cpu": "50m"}}});
        scene.start(&json!({"edge": edge})).await?;
        scene.pipeline.wait_condition("EdgeReady", ("True", "Running"), READY).await?;
        let gateways = scene.pipeline.gateways().uids().await?;
        let before = edges(scene).uids().await?;
        ensure!(before.len() == 2, "{before:?}");
        let clients = Clients::start(&address(scene).await?, scene.producer.run());
        let mut changed = edge.clone();
        changed["connectionAgeMax"] = "11m".into();
        scene.pipeline.apply(&json!({"edge": changed})).await?;
        until("the pods of the edge replaced", REPLACED, async || {
            clients.ensure_no_failure()?;
            let now = edges(scene).uids().await?;
            let is_other =
                now.len() == 2 && before.values().all(|uid| now.values().all(|other| other != uid));
            Ok(if is_other { Seen::Done(()) } else { Seen::NotYet(format!("{now:?}")) })
        })
        .await?;
        let answered = clients.answered() + CLIENTS * REQUESTS_AFTER;
        until("more requests answered", READY, async || {
            clients.ensure_no_failure()?;
            let now = clients.answered();
            Ok(if now >= answered { Seen::Done(()) } else { Seen::NotYet(format!("{now} of {answered}")) })
        })
        .await?;
        let sent = clients.stop().await?;
        let verdict = scene.assert_nothing_lost(&sent).await?;
        ensure!(verdict.rows == sent.acked.count(), "{} rows of {}", verdict.rows, sent.acked.count());
        ensure!(scene.pipeline.gateways().uids().await? == gateways, "the edge replaced a gateway");
        // Without an edge nothing of it is left, and gateways stay.
        scene.pipeline.apply(&json!({})).await?;
        until("the edge gone", READY, async || {
            let left = edges(scene).uids().await?;
            let service = scene.namespace.api::<Service>().get_opt(SERVICE).await?;
            let is_gone = left.is_empty() && service.is_none();
            Ok(if is_gone { Seen::Done(()) } else { Seen::NotYet(format!("{left:?}")) })
        })
        .await?;
        ensure!(scene.pipeline.gateways().uids().await? == gateways, "the edge's end replaced a gateway");
        Ok(())
    })
    .await
}

/// The Service of the scene's pipeline, which is called `traces`.
const SERVICE: &str = "traces-edge";

fn edges(scene: &Scene) -> Pods {
    let namespace = &scene.namespace;
    Pods::new(namespace.cluster(), namespace.name(), "app.kubernetes.io/name=sluice-edge")
}

/// Where the Service takes OTLP over HTTP.
async fn address(scene: &Scene) -> Result<String> {
    let service = scene.namespace.api::<Service>().get(SERVICE).await.context("get the edge's Service")?;
    let spec = service.spec.context("a Service without a spec")?;
    let port = spec.ports.iter().flatten().find(|port| port.name.as_deref() == Some("otlp-http"));
    let port = port.context("a Service without a port otlp-http")?.port;
    Ok(format!("http://{}:{port}/v1/traces", spec.cluster_ip.context("a Service without an address")?))
}

/// Clients that send numbered spans, each its own numbers, until they are stopped.
struct Clients {
    sending: JoinSet<Result<Sent>>,
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicBool>,
}

impl Clients {
    fn start(address: &str, run: Run) -> Self {
        let (is_over, answered, failed) = (Arc::default(), Arc::default(), Arc::default());
        let mut sending = JoinSet::new();
        for number in 0..CLIENTS {
            let client = Sender {
                http: Client::builder(TokioExecutor::new()).build_http(),
                address: address.to_owned(),
                generator: Generator::new(Shape::Numbered, run),
                is_over: Arc::clone(&is_over),
                answered: Arc::clone(&answered),
            };
            let failed: Arc<AtomicBool> = Arc::clone(&failed);
            sending.spawn(async move {
                let sent = client.send_all(number).await;
                failed.fetch_or(sent.is_err(), Ordering::Relaxed);
                sent
            });
        }
        Self { sending, is_over, answered, failed }
    }

    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// What failed is told by [`Self::stop`]; here only that waiting is of no use.
    fn ensure_no_failure(&self) -> Result<()> {
        ensure!(!self.failed.load(Ordering::Relaxed), "a request failed while pods were replaced");
        Ok(())
    }

    async fn stop(mut self) -> Result<Sent> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Sent::default();
        while let Some(sent) = self.sending.join_next().await {
            let sent = sent.context("a client panicked")??;
            all.acked.extend(&sent.acked);
            all.messages += sent.messages;
            all.bytes += sent.bytes;
        }
        Ok(all)
    }
}

struct Sender {
    http: Client<HttpConnector, Full<Bytes>>,
    address: String,
    generator: Generator,
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
}

impl Sender {
    /// Sends requests of numbers that no other client has.
    async fn send_all(mut self, client: u64) -> Result<Sent> {
        let mut sent = Sent::default();
        for turn in 0.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let first = (turn * CLIENTS + client) * REQUEST_SPANS;
            let numbers = first..first + REQUEST_SPANS;
            sent.bytes += self.send(numbers.clone()).await.with_context(|| format!("send {numbers:?}"))?;
            sent.messages += 1;
            sent.acked.insert(numbers);
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(sent)
    }

    async fn send(&mut self, numbers: Range<u64>) -> Result<u64> {
        let body = Bytes::copy_from_slice(self.generator.message(numbers));
        let bytes = body.len() as u64;
        let request = Request::post(&self.address)
            .header("content-type", "application/x-protobuf")
            .body(Full::new(body))
            .context("build a request")?;
        let answer = self.http.request(request).await.context("no answer")?;
        let status = answer.status();
        let text = answer.into_body().collect().await.context("read the answer")?.to_bytes();
        if status != 200 || !text.is_empty() {
            bail!("status {status}: {:?}", String::from_utf8_lossy(&text));
        }
        Ok(bytes)
    }
}
