//! Whether the edge lives and is ready, and its metrics: over HTTP/1.1, for the kubelet and Prometheus.
//!
//! | request | answers |
//! | --- | --- |
//! | `GET /livez` | 200 while the process runs |
//! | `GET /readyz` | 200; 503 with the reason while the topic does not exist, the brokers refuse the login, no broker has answered yet, the first producer waits for its id, or the process is ending |
//! | `GET /metrics` | Prometheus' text |
//!
//! Brokers that are away later leave the edge ready: a request then gets an answer that says when to come again, which no client gets from
//! a Service without endpoints. Nothing here accepts commands. Limits: those of `admin::connections`.

use crate::{
    admin::{
        connections::{self, checked, response, scraped},
        health::resident_bytes,
    },
    edge::metrics::EdgeMetrics,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{ALLOW, HeaderValue},
};
use sluice_kafka::producer::Producer;
use sluice_otlp_server::Counters;
use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::net::TcpListener;

/// What answers are made of.
pub struct Status {
    pub metrics: Arc<EdgeMetrics>,
    pub producer: Producer,
    /// Bytes of the requests under way.
    pub request_bytes: Box<dyn Fn() -> u64 + Send + Sync>,
    /// What the server has counted.
    pub counters: Arc<Counters>,
    /// Tenants whose limits are kept.
    pub tenants: Box<dyn Fn() -> usize + Send + Sync>,
    pub is_ending: AtomicBool,
}

impl Status {
    /// Why the edge is not ready.
    pub fn not_ready_reason(&self) -> Option<String> {
        if self.is_ending.load(Ordering::Relaxed) {
            return Some("the edge is ending".to_owned());
        }
        self.producer.problem().or_else(|| self.producer.awaits_id())
    }

    /// The metrics, with those that are read rather than counted.
    fn text(&self) -> prometheus::Result<String> {
        let Self { metrics, producer, .. } = self;
        let used = |part, bytes: Option<i64>| {
            if let Some(bytes) = bytes {
                metrics.memory_used_bytes.with_label_values(&[part]).set(bytes);
            }
        };
        metrics.server.show(&self.counters);
        used("requests", i64::try_from((self.request_bytes)()).ok());
        used("messages", i64::try_from(producer.queued_bytes()).ok());
        used("process", resident_bytes());
        metrics.partitions.set(producer.partitions().map_or(0, i64::from));
        metrics.message_bytes_max.set(count(producer.size_limits().single_bytes_max));
        metrics.tenants.set(count((self.tenants)()));
        metrics.ready.set(i64::from(self.not_ready_reason().is_none()));
        if let Some(counts) = producer.token_counts() {
            metrics.tokens.show(counts.granted, counts.failed, counts.expires_ms);
        }
        metrics.text()
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, status: Arc<Status>) {
    connections::serve(listener, move |request, _| ready(answer(&request, &status))).await;
}

fn answer<B>(request: &Request<B>, status: &Status) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    if !matches!(path, "/metrics" | "/livez" | "/readyz") {
        return response(
            StatusCode::NOT_FOUND,
            format!("unknown path {path}; use /metrics, /livez or /readyz\n"),
        );
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return refused;
    }
    match path {
        "/metrics" => scraped(status.text()),
        "/readyz" => checked(status.not_ready_reason().map_or(Ok(()), Err)),
        _ => checked(Ok(())),
    }
}
