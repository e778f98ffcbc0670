//! HTTP requests to a gateway: drain, resume, readiness.
//!
//! Place in the flow: courses call it on the address of a gateway of the scene. Owner: the course. Limits: a request has
//! [`REQUEST_TIMEOUT`], as the operator's have.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer of `/drainz`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Remaining {
    /// Blocks that are not inserted.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
    /// Messages that are not committed.
    pub uncommitted: u64,
    /// Whether the volume has something that a person should check: damaged files, or dead letters.
    #[serde(default)]
    pub damaged: bool,
    /// Whether a log cannot be read.
    #[serde(default)]
    pub unreadable: bool,
}

impl Remaining {
    /// Whether everything is inserted.
    pub fn is_empty(self) -> bool {
        (self.blocks, self.bytes, self.uncommitted) == (0, 0, 0)
    }
}

/// A gateway's admin server.
#[derive(Clone, Debug)]
pub struct Admin {
    address: String,
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Admin {
    pub fn new(address: &str) -> Admin {
        Admin {
            address: address.to_owned(),
            client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
        }
    }

    /// Tells the gateway to leave its group; returns what is left.
    pub async fn drain(&self) -> Result<Remaining> {
        self.remaining(Method::POST, "/drain").await
    }

    /// Tells the gateway to join its group again; returns what is left.
    pub async fn resume(&self) -> Result<Remaining> {
        self.remaining(Method::POST, "/resume").await
    }

    pub async fn drainz(&self) -> Result<Remaining> {
        self.remaining(Method::GET, "/drainz").await
    }

    /// The reason why it is not ready; `None` if it is.
    pub async fn unready(&self) -> Result<Option<String>> {
        let (status, words) = self.ask(Method::GET, "/readyz").await?;
        Ok((status != 200).then_some(words))
    }

    async fn remaining(&self, method: Method, path: &str) -> Result<Remaining> {
        let (status, body) = self.ask(method, path).await?;
        ensure!(status == 200, "{path} is answered with {status}: {body}");
        serde_json::from_str(&body).with_context(|| format!("read {body:?}"))
    }

    async fn ask(&self, method: Method, path: &str) -> Result<(u16, String)> {
        let uri = format!("http://{}{path}", self.address);
        let request =
            Request::builder().method(method).uri(&uri).body(Empty::new()).context("make a request")?;
        let exchange = async {
            let response = self.client.request(request).await.with_context(|| format!("ask {uri}"))?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.with_context(|| format!("read {uri}"))?;
            Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
        };
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, exchange).await;
        answer.with_context(|| format!("{uri} does not answer"))?
    }
}
