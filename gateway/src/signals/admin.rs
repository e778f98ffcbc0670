//! `/metrics`, `/livez` and `/readyz` over HTTP/1.1, and what the operator asks of a gateway that is to be taken away.
//!
//! | request | does | answers |
//! | --- | --- | --- |
//! | `POST /drain` | the consumer group is left and everything that is held goes in; the process stays up, not ready | 200, as `/drainz` |
//! | `GET /drainz` | nothing | 200, [`Remaining`]: `{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":true}` once nothing is left |
//! | `POST /resume` | takes part in the group again, also in the middle of a drain | 200, as `/drainz` |
//!
//! All of them may be repeated. A new start of the process takes part, until it is asked to drain again.
//!
//! Liveness is about this process alone: its poll thread runs. Readiness is that the group gave an assignment and that
//! the table was seen to fit; it does not go away with ClickHouse, because a restart or a removed endpoint would help
//! nobody.

use crate::signals::{metrics::Metrics, remaining::Remaining};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore};

/// Connections at the same time. Kubelet and Prometheus need two; the rest is for people.
const CONNECTIONS_MAX: usize = 32;

/// A connection that sends no request within this time is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Prometheus' text format, which every browser shows as plain text as well.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// What `/drainz` and those beside it answer with.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How long to wait when a connection cannot be accepted: out of file descriptors, most likely, and others have to close some.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What the admin server asks the gateway.
pub trait Health: Send + Sync + 'static {
    /// Whether the process still does its work; the reason when it does not.
    fn live(&self) -> Result<(), String>;
    /// Whether it takes part; the reason when it does not.
    fn ready(&self) -> Result<(), String>;
    /// Brings the metrics up to date that are read rather than counted.
    fn refresh(&self);
    /// Leaves the group, and stays up.
    fn drain(&self);
    /// Takes part again.
    fn resume(&self);
    /// What is held and not committed.
    fn remaining(&self) -> Remaining;
}

/// Why the admin server could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for metrics and probes: {source}")]
pub struct Error {
    address: SocketAddr,
    source: std::io::Error,
}

/// Binds the address.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|source| Error { address, source })
}

/// Serves for ever.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>, health: Arc<impl Health>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let (metrics, health) = (metrics.clone(), health.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = answer(&request, &metrics, &*health);
                async { Ok::<_, Infallible>(response) }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection to the admin server ended early");
            }
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics, health: &impl Health) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let wanted = if matches!(path, "/drain" | "/resume") { Method::POST } else { Method::GET };
    match (path, *request.method() == wanted) {
        ("/metrics", _) => scrape(metrics, health),
        ("/livez", _) => checked(health.live()),
        ("/readyz", _) => checked(health.ready()),
        ("/drain", true) => {
            health.drain();
            told(health)
        }
        ("/resume", true) => {
            health.resume();
            told(health)
        }
        ("/drainz", true) => told(health),
        ("/drain" | "/resume" | "/drainz", false) => not_allowed(&wanted),
        _ => response(
            StatusCode::NOT_FOUND,
            format!("no {path} here; there are /metrics, /livez, /readyz, /drainz, /drain and /resume\n"),
        ),
    }
}

fn scrape(metrics: &Metrics, health: &impl Health) -> Response<Full<Bytes>> {
    health.refresh();
    match metrics.text() {
        Ok(text) => response(StatusCode::OK, text),
        Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// What is left, as JSON.
fn told(health: &impl Health) -> Response<Full<Bytes>> {
    let mut response = response(StatusCode::OK, health.remaining().to_string() + "\n");
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn not_allowed(method: &Method) -> Response<Full<Bytes>> {
    let mut response = response(StatusCode::METHOD_NOT_ALLOWED, format!("use {method}\n"));
    let allowed = HeaderValue::from_str(method.as_str()).expect("a method's name is visible ASCII");
    response.headers_mut().insert(ALLOW, allowed);
    response
}

fn checked(outcome: Result<(), String>) -> Response<Full<Bytes>> {
    match outcome {
        Ok(()) => response(StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => response(StatusCode::SERVICE_UNAVAILABLE, reason + "\n"),
    }
}

fn response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}
