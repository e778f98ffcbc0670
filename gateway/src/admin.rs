//! `/metrics`, `/livez` and `/readyz` over HTTP/1.1.
//!
//! Liveness is about this process alone: its poll thread runs. Readiness is that the group gave an assignment and that
//! the table was seen to fit; it does not go away with ClickHouse, because a restart or a removed endpoint would help
//! nobody.

use crate::metrics::Metrics;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
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
    match request.uri().path() {
        "/metrics" => {
            health.refresh();
            match metrics.text() {
                Ok(text) => response(StatusCode::OK, text),
                Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        }
        "/livez" => checked(health.live()),
        "/readyz" => checked(health.ready()),
        path => response(
            StatusCode::NOT_FOUND,
            format!("no {path} here; there are /metrics, /livez and /readyz\n"),
        ),
    }
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
