//! `/metrics`, `/livez` and `/readyz` over HTTP/1.1, and the requests with which the operator drains a gateway before removing it.
//!
//! | request | does | answers |
//! | --- | --- | --- |
//! | `POST /drain` | the gateway leaves the consumer group and inserts everything that it holds; the process stays up, not ready | 200, as `/drainz` |
//! | `GET /drainz` | nothing | 200, [`Remaining`]: `{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":true}` once nothing is left |
//! | `POST /resume` | the gateway joins the group again, also in the middle of a drain | 200, as `/drainz` |
//!
//! All of them may be repeated. A restarted process is not drained until it is asked again.
//!
//! Every caller that reaches the admin port may read, mainly Prometheus. There, commands (`POST`) are accepted only from within the pod.
//! Other pods send commands to the control port. It is the admin port plus 1, and the pipeline's NetworkPolicy opens it to the operator.
//! `/drainz` names it (`"control":9091`), and [`crate::admin::caller`] says which callers are accepted. A sidecar that forwards connections
//! from the pod's own address makes them look as if they came from within.
//!
//! The I/O thread that answers also runs the inserts. So slow work is done on a blocking thread, one scrape at a time: `/metrics` asks
//! the disk and writes thousands of lines. A disk that hangs blocks only that thread, not inserts or probes.
//!
//! Liveness covers only this process: its poll thread runs. Readiness means that the group has assigned partitions and that the table
//! fitted at the start. The gateway stays ready when ClickHouse is away, because a restart or a removed endpoint would not help.

use crate::{
    admin::caller::{Own, PeerRights},
    ground::metrics::Metrics,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use sluice_gateway_config::Remaining;
use std::{
    convert::Infallible,
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpListener, sync::Semaphore};

/// Concurrent connections at either port. The kubelet and Prometheus need two; the rest is for people.
const CONNECTIONS_MAX: usize = 32;

/// A connection that sends no request within this time is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Prometheus' text format, which browsers show as plain text.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// The content type of `/drainz`, `/drain` and `/resume`.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How long to wait when a connection cannot be accepted, most likely because there are no file descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What the admin server needs from the gateway.
pub trait Health: Send + Sync + 'static {
    /// Whether the process still does its work; the reason when it does not.
    fn live(&self) -> Result<(), String>;
    /// Whether it takes part in the group; the reason when it does not.
    fn ready(&self) -> Result<(), String>;
    /// Updates the metrics that are read rather than counted. The only call here that may block.
    fn refresh(&self);
    /// Leaves the group and keeps the process running.
    fn drain(&self);
    /// Joins the group again.
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

/// The bound sockets.
#[derive(Debug)]
pub struct Listeners {
    admin: TcpListener,
    listen: SocketAddr,
    control: Option<TcpListener>,
}

impl Listeners {
    /// The address of metrics and probes: that of the config, with the port that the kernel chose if the config says 0.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }
}

/// Binds the addresses. If the control port is taken, the gateway runs without it and accepts commands only from within the pod: several
/// gateways may run on one machine.
pub async fn bind(admin: SocketAddr, control: Option<SocketAddr>) -> Result<Listeners, Error> {
    let refused = |source| Error { address: admin, source };
    let bound = listen(admin).await.map_err(refused)?;
    let listen_at = bound.local_addr().map_err(refused)?;
    let control = match control {
        None => None,
        Some(address) => listen(address)
            .await
            .inspect_err(|error| {
                tracing::warn!(
                    %error,
                    %address,
                    "cannot listen on the control port: the gateway accepts commands only from within its pod"
                );
            })
            .ok(),
    };
    Ok(Listeners { admin: bound, listen: listen_at, control })
}

/// Listens at an address. `0.0.0.0` and `[::]` mean all addresses of IPv6 and IPv4, or only of IPv4 if the kernel has no IPv6.
async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    if !address.ip().is_unspecified() {
        return TcpListener::bind(address).await;
    }
    let port = address.port();
    or_at_ipv4(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await, port).await
}

/// Falls back to all IPv4 addresses if IPv6 is not available: no such sockets (EAFNOSUPPORT, a kernel with `ipv6.disable=1`), or no such
/// address (EADDRNOTAVAIL).
async fn or_at_ipv4(both: std::io::Result<TcpListener>, port: u16) -> std::io::Result<TcpListener> {
    match both {
        Err(error) if error.kind() != ErrorKind::AddrInUse => {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
            tracing::info!(%error, port, "IPv6 is not available: listening on IPv4 only");
            Ok(listener)
        }
        both => both,
    }
}

/// What answers are built from.
struct Source<H> {
    metrics: Arc<Metrics>,
    health: Arc<H>,
    own: Own,
    /// One scrape at a time.
    scrapes: Arc<Semaphore>,
}

impl<H: Health> Source<H> {
    fn new(metrics: Arc<Metrics>, health: Arc<H>, own: Own) -> Arc<Self> {
        Arc::new(Self { metrics, health, own, scrapes: Arc::new(Semaphore::new(1)) })
    }
}

/// Serves forever, in the pod of this UID.
pub async fn serve(
    listeners: Listeners,
    metrics: Arc<Metrics>,
    health: Arc<impl Health>,
    uid: Option<String>,
) {
    let control = listeners.control.as_ref().and_then(|listener| listener.local_addr().ok());
    let control = control.map(|address| address.port());
    if let (None, Some(port)) = (&uid, control) {
        tracing::warn!(
            port,
            "the gateway cannot find its pod's UID: anyone who reaches the control port can drain it"
        );
    }
    let source = Source::new(metrics, health, Own { uid, control });
    let of_control = async {
        if let Some(listener) = listeners.control {
            accept(listener, PeerRights::Control, &source).await;
        }
    };
    tokio::join!(accept(listeners.admin, PeerRights::Admin, &source), of_control);
}

async fn accept(listener: TcpListener, from_elsewhere: PeerRights, source: &Arc<Source<impl Health>>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_AGAIN).await;
            continue;
        };
        let (source, way) = (source.clone(), PeerRights::of(peer.ip(), from_elsewhere));
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let source = source.clone();
                async move { Ok::<_, Infallible>(answer(&request, way, &source).await) }
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

async fn answer<B>(
    request: &Request<B>,
    way: PeerRights,
    source: &Arc<Source<impl Health>>,
) -> Response<Full<Bytes>> {
    let (health, own, headers) = (&*source.health, &source.own, request.headers());
    if let Some((status, words)) = own.misdirected(headers) {
        return response(status, words);
    }
    let path = request.uri().path();
    let wanted = if matches!(path, "/drain" | "/resume") { Method::POST } else { Method::GET };
    match (path, *request.method() == wanted) {
        ("/metrics", _) => scrape(source.clone()).await,
        ("/livez", _) => checked(health.live()),
        ("/readyz", _) => checked(health.ready()),
        ("/drain" | "/resume", true) => {
            if let Some((status, words)) = own.refused(path, way, headers) {
                return response(status, words);
            }
            if path == "/drain" {
                health.drain();
            } else {
                health.resume();
            }
            told(own, health)
        }
        ("/drainz", true) => told(own, health),
        ("/drain" | "/resume" | "/drainz", false) => not_allowed(&wanted),
        _ => response(
            StatusCode::NOT_FOUND,
            format!("unknown path {path}; use /metrics, /livez, /readyz, /drainz, /drain or /resume\n"),
        ),
    }
}

async fn scrape(source: Arc<Source<impl Health>>) -> Response<Full<Bytes>> {
    let turn = source.scrapes.clone().acquire_owned().await.expect("the semaphore is never closed");
    let scraped = tokio::task::spawn_blocking(move || {
        source.health.refresh();
        let text = source.metrics.text();
        // The caller may have gone, but the thread is still busy: the next scrape waits until here.
        drop(turn);
        text
    });
    match scraped.await {
        Ok(Ok(text)) => response(StatusCode::OK, text),
        Ok(Err(error)) => response(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// The answer of `/drainz`: what remains, as JSON.
fn told(own: &Own, health: &impl Health) -> Response<Full<Bytes>> {
    let remaining = Remaining { control: own.control, ..health.remaining() };
    let mut response = response(StatusCode::OK, remaining.to_string() + "\n");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::metrics::reference::metrics;
    use crossbeam_channel::{Receiver, bounded};
    use http_body_util::BodyExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    /// A gateway that only records its commands.
    #[derive(Default)]
    struct Told(AtomicBool);

    impl Health for Told {
        fn live(&self) -> Result<(), String> {
            Ok(())
        }
        fn ready(&self) -> Result<(), String> {
            Ok(())
        }
        fn refresh(&self) {}
        fn drain(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
        fn resume(&self) {
            self.0.store(false, Ordering::Relaxed);
        }
        fn remaining(&self) -> Remaining {
            Remaining { draining: Some(self.0.load(Ordering::Relaxed)), ..Remaining::default() }
        }
    }

    async fn asked<H: Health>(way: PeerRights, method: &str, path: &str, health: &Arc<H>) -> (u16, String) {
        let own = Own { uid: Some("one".into()), control: Some(9_091) };
        answered(way, (method, path), &Source::new(Arc::new(metrics()), health.clone(), own)).await
    }

    async fn answered<H: Health>(
        way: PeerRights,
        (method, path): (&str, &str),
        source: &Arc<Source<H>>,
    ) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let response = answer(&request, way, source).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        for all in ["0.0.0.0:0", "[::]:0"] {
            let listeners = bind(all.parse().unwrap(), None).await.unwrap();
            for address in ["127.0.0.1", "::1"] {
                TcpStream::connect((address, listeners.listen().port())).await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn without_ipv6_all_addresses_are_those_of_ipv4() {
        // The errors of Linux: EAFNOSUPPORT, EADDRNOTAVAIL.
        for code in [97, 99] {
            let listener = or_at_ipv4(Err(std::io::Error::from_raw_os_error(code)), 0).await.unwrap();
            let address = listener.local_addr().unwrap();
            assert!(address.ip().is_unspecified() && address.is_ipv4(), "{address}");
            TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await.unwrap();
        }
        let taken = or_at_ipv4(Err(ErrorKind::AddrInUse.into()), 0).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse, "another process has the port");
    }

    #[tokio::test]
    async fn commands_are_taken_where_they_may_be_given_and_everything_is_read_everywhere() {
        let health = Arc::new(Told::default());
        for (path, way) in
            [("/drain", PeerRights::Admin), ("/resume", PeerRights::Admin), ("/drain", PeerRights::Control)]
        {
            let (status, words) = asked(way, "POST", path, &health).await;
            assert_eq!(
                status, 404,
                "an operator that names no pod has it leave when it is told to end: {words}"
            );
            assert_eq!(asked(way, "GET", path, &health).await.0, 405);
        }
        assert!(!health.0.load(Ordering::Relaxed));
        for path in ["/metrics", "/livez", "/readyz", "/drainz"] {
            assert_eq!(asked(PeerRights::Admin, "GET", path, &health).await.0, 200, "{path}");
        }
        let (status, told) = asked(PeerRights::Within, "POST", "/drain", &health).await;
        assert!(status == 200 && told.contains(r#""draining":true,"control":9091}"#), "{told}");
        assert!(
            asked(PeerRights::Within, "POST", "/resume", &health).await.1.contains(r#""draining":false"#)
        );
    }

    /// A gateway whose disk answers only after a signal of the test.
    struct Hangs {
        may_answer: Receiver<()>,
        has_waited_in_vain: AtomicBool,
    }

    impl Health for Hangs {
        fn live(&self) -> Result<(), String> {
            Ok(())
        }
        fn ready(&self) -> Result<(), String> {
            Ok(())
        }
        fn refresh(&self) {
            if self.may_answer.recv_timeout(Duration::from_secs(10)).is_err() {
                self.has_waited_in_vain.store(true, Ordering::Relaxed);
            }
        }
        fn drain(&self) {}
        fn resume(&self) {}
        fn remaining(&self) -> Remaining {
            Remaining::default()
        }
    }

    #[tokio::test]
    async fn a_scrape_that_hangs_holds_up_no_probe() {
        let (answers, may_answer) = bounded(3);
        let health = Arc::new(Hangs { may_answer, has_waited_in_vain: AtomicBool::new(false) });
        let source = Source::new(Arc::new(metrics()), health.clone(), Own::default());
        let way = PeerRights::Admin;
        let scrape = || answered(way, ("GET", "/metrics"), &source);
        let probes = async {
            for path in ["/livez", "/readyz", "/drainz"] {
                assert_eq!(answered(way, ("GET", path), &source).await.0, 200);
            }
            for _ in 0..3 {
                answers.try_send(()).unwrap();
            }
        };
        let (one, two, three, ()) = tokio::join!(scrape(), scrape(), scrape(), probes);
        assert_eq!([one.0, two.0, three.0], [200; 3]);
        assert!(!health.has_waited_in_vain.load(Ordering::Relaxed), "probes waited for a scrape");
    }

    async fn post(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn both_ports_are_served_and_one_that_is_taken_keeps_no_gateway_from_running() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listeners = bind(any, Some(any)).await.unwrap();
        let admin = listeners.listen();
        assert_ne!(admin.port(), 0, "the port that it got");
        let control = listeners.control.as_ref().unwrap().local_addr().unwrap();
        let without = bind(any, Some(control)).await.unwrap();
        assert!(without.control.is_none());
        assert!(
            bind(admin, None)
                .await
                .unwrap_err()
                .to_string()
                .starts_with(&format!("cannot listen on {admin}"))
        );
        let health = Arc::new(Told::default());
        tokio::spawn(serve(listeners, Arc::new(metrics()), health.clone(), None));
        for (address, path, drains) in [(control, "/drain", true), (admin, "/resume", false)] {
            let answer = post(address, path).await;
            assert!(
                answer.contains(&format!(r#""draining":{drains},"control":{}}}"#, control.port())),
                "{answer}"
            );
        }
    }
}
