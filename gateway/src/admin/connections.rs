//! Connections to metrics and probes, of the gateway and of the edge: HTTP/1.1, for the kubelet, Prometheus and people.
//!
//! Limits: [`CONNECTIONS_MAX`] connections of a listener; the next one waits. Each has [`HEADER_TIMEOUT`] for the headers of a request.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore};

/// Concurrent connections of a listener. The kubelet and Prometheus need two; the rest is for people.
const CONNECTIONS_MAX: usize = 32;

/// A connection that sends no request within this time is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait when a connection cannot be accepted, most likely because there are no file descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Prometheus' text format, which browsers show as plain text.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Serves each connection of a listener, for ever. `answer` gets a request, and the address of the client.
pub(crate) async fn serve<A, F>(listener: TcpListener, answer: A)
where
    A: Fn(Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send,
{
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let answer = answer.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answered = answer(request, peer.ip());
                async move { Ok::<_, Infallible>(answered.await) }
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

/// The answer of a probe.
pub(crate) fn checked(outcome: Result<(), String>) -> Response<Full<Bytes>> {
    match outcome {
        Ok(()) => response(StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => response(StatusCode::SERVICE_UNAVAILABLE, reason + "\n"),
    }
}

/// The answer of a scrape.
pub(crate) fn scraped(text: prometheus::Result<String>) -> Response<Full<Bytes>> {
    match text {
        Ok(text) => response(StatusCode::OK, text),
        Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// An answer in plain text.
pub(crate) fn response(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}
