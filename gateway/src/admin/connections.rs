//! Connections to metrics and probes, of the gateway and of the edge: HTTP/1.1, for the kubelet, Prometheus and people.
//!
//! Limits: [`CONNECTIONS_MAX`] connections of a listener. Each has [`HEADER_TIMEOUT`] for the headers of a request. The next one takes the place
//! of the oldest one that has no request, or waits if all have one: clients that send nothing keep no probe waiting.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    collections::VecDeque,
    convert::Infallible,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
};

/// Concurrent connections of a listener. The kubelet and Prometheus need two; the rest is for people.
const CONNECTIONS_MAX: usize = 32;

/// A connection that sends no request within this time is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait when a connection cannot be accepted, most likely because there are no file descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Prometheus' text format, which browsers show as plain text.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// A connection that is served.
struct Served {
    /// Whether a request of it is being answered.
    answers: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Serves each connection of a listener, for ever. `answer` gets a request, and the address of the client.
pub(crate) async fn serve<A, F>(listener: TcpListener, answer: A)
where
    A: Fn(Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut served = VecDeque::<Served>::with_capacity(CONNECTIONS_MAX);
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        served.retain(|connection| !connection.task.is_finished());
        if permits.available_permits() == 0 {
            end_oldest(&mut served);
        }
        let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (answer, answers) = (answer.clone(), Arc::<AtomicBool>::default());
        let task = tokio::spawn(converse(stream, peer.ip(), answer, answers.clone(), permit));
        served.push_back(Served { answers, task: task.abort_handle() });
    }
}

/// Ends the oldest connection that has no request.
fn end_oldest(served: &mut VecDeque<Served>) {
    let has_none = |connection: &Served| !connection.answers.load(Ordering::Acquire);
    if let Some(oldest) = served.iter().position(has_none).and_then(|place| served.remove(place)) {
        oldest.task.abort();
    }
}

async fn converse<A, F>(
    stream: TcpStream,
    peer: IpAddr,
    answer: A,
    answers: Arc<AtomicBool>,
    _permit: OwnedSemaphorePermit,
) where
    A: Fn(Request<Incoming>, IpAddr) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let service = service_fn(|request| {
        answers.store(true, Ordering::Release);
        let (answered, answers) = (answer(request, peer), answers.clone());
        async move {
            let answer = answered.await;
            answers.store(false, Ordering::Release);
            Ok::<_, Infallible>(answer)
        }
    });
    let outcome = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection to the admin server ended early");
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// More clients than there are places connect and send nothing; then a probe comes.
    #[tokio::test]
    async fn clients_that_send_nothing_keep_no_probe_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, |_, _| async { checked(Ok(())) }));
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let probe = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::time::timeout(HEADER_TIMEOUT / 2, probe).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        drop(silent);
        serving.abort();
    }
}
