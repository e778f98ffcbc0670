//! `/metrics`, `/livez` and `/readyz` over HTTP/1.1, and the requests with which the operator drains a gateway before removing it.
//!
//! | request | does | answers |
//! | --- | --- | --- |
//! | `POST /drain` | the gateway leaves the consumer group and inserts everything that it holds; the process stays up, not ready | 200, as `/drainz` |
//! | `GET /drainz` | nothing | 200, [`Remaining`]: `{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":true}` once nothing is left |
//! | `POST /resume` | the gateway joins the group again, also in the middle of a drain | 200, as `/drainz` |
//! | `GET /state` | nothing | 200, [`GatewayState`]: all of the above and what `/metrics` has for the operator, in one document |
//!
//! All of them may be repeated. A restarted process is not drained until it is asked again.
//!
//! Every caller that reaches the admin port may read, mainly Prometheus. There, commands (`POST`) are accepted only from within the pod.
//! Other pods send commands to the control port. It is the admin port plus 1, and the pipeline's NetworkPolicy opens it to the operator.
//! `/drainz` names it (`"control":9091`), and [`crate::admin::caller`] says which callers are accepted. A sidecar that forwards connections
//! from the pod's own address makes them look as if they came from within.
//!
//! The I/O thread that answers also runs the inserts. So slow work is done on a blocking thread, one scrape at a time: `/metrics` asks
//! the disk and writes thousands of lines. A disk that hangs blocks only that thread, not inserts or probes. `/state` asks no disk and has a
//! turn of its own, so it is answered beside a scrape that hangs.
//!
//! Liveness covers only this process: its poll thread runs. Readiness means that the group has assigned partitions and that the table
//! fitted at the start. The gateway stays ready when ClickHouse is away, because a restart or a removed endpoint would not help.

use crate::{
    admin::{
        caller::{Own, PeerRights},
        connections::{self, checked, response, scraped},
    },
    ground::metrics::Metrics,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
};
use sluice_gateway_config::{GatewayState, PodIdentity, Readiness, Remaining, STATE_PATH};
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};
use tokio::{net::TcpListener, sync::Semaphore};

/// The content type of `/state`, `/drainz`, `/drain` and `/resume`.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What the admin server needs from the gateway.
pub trait Health: Send + Sync + 'static {
    /// Whether the process still does its work; the reason when it does not.
    fn live(&self) -> Result<(), String>;
    /// Whether it takes part in the group; the reasons when it does not.
    fn readiness(&self) -> Readiness;
    /// The same in one text.
    fn ready(&self) -> Result<(), String> {
        let Readiness { ready, reasons } = self.readiness();
        if ready { Ok(()) } else { Err(reasons.join("; ")) }
    }
    /// Updates the metrics that are read rather than counted. The only call here that may block.
    fn refresh(&self);
    /// Leaves the group and keeps the process running.
    fn drain(&self);
    /// Joins the group again.
    fn resume(&self);
    /// What is held and not committed.
    fn remaining(&self) -> Remaining;
    /// All that is known, but for the pod. Must not block.
    fn state(&self) -> GatewayState;
}

/// Why the admin server could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} (admin.listen) for metrics and probes: {cause}")]
pub struct Error {
    address: SocketAddr,
    cause: std::io::Error,
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
    let refused = |cause| Error { address: admin, cause };
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
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
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
    /// One state at a time.
    states: Arc<Semaphore>,
}

impl<H: Health> Source<H> {
    fn new(metrics: Arc<Metrics>, health: Arc<H>, own: Own) -> Arc<Self> {
        let turn = || Arc::new(Semaphore::new(1));
        Arc::new(Self { metrics, health, own, scrapes: turn(), states: turn() })
    }
}

/// Serves forever, in this pod.
pub async fn serve(listeners: Listeners, metrics: Arc<Metrics>, health: Arc<impl Health>, pod: PodIdentity) {
    let control = listeners.control.as_ref().and_then(|listener| listener.local_addr().ok());
    let control = control.map(|address| address.port());
    if let (None, Some(port)) = (&pod.uid, control) {
        tracing::warn!(
            port,
            "the gateway cannot find its pod's UID: anyone who reaches the control port can drain it"
        );
    }
    let source = Source::new(metrics, health, Own { pod, control });
    let of_control = async {
        if let Some(listener) = listeners.control {
            accept(listener, PeerRights::Control, &source).await;
        }
    };
    tokio::join!(accept(listeners.admin, PeerRights::Admin, &source), of_control);
}

async fn accept(listener: TcpListener, from_elsewhere: PeerRights, source: &Arc<Source<impl Health>>) {
    let source = source.clone();
    connections::serve(listener, move |request, peer| {
        let (source, way) = (source.clone(), PeerRights::of(peer, from_elsewhere));
        async move { answer(&request, way, &source).await }
    })
    .await;
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
        (STATE_PATH, true) => state(source.clone(), own.told(headers)).await,
        ("/drain" | "/resume" | "/drainz" | STATE_PATH, false) => not_allowed(&wanted),
        _ => response(
            StatusCode::NOT_FOUND,
            format!(
                "unknown path {path}; use /metrics, /livez, /readyz, /state, /drainz, /drain or /resume\n"
            ),
        ),
    }
}

async fn scrape(source: Arc<Source<impl Health>>) -> Response<Full<Bytes>> {
    let turns = source.scrapes.clone();
    aside(turns, move || {
        source.health.refresh();
        scraped(source.metrics.text())
    })
    .await
}

/// The answer of `/state`, with what this pod may tell the caller.
async fn state(source: Arc<Source<impl Health>>, pod: PodIdentity) -> Response<Full<Bytes>> {
    let turns = source.states.clone();
    aside(turns, move || {
        let state = source.health.state();
        let remaining = Remaining { control: source.own.control, ..state.remaining };
        match serde_json::to_string(&GatewayState { pod, remaining, ..state }) {
            Ok(text) => json(text + "\n"),
            Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    })
    .await
}

/// Makes an answer on a blocking thread, when its turn has come.
async fn aside(
    semaphore: Arc<Semaphore>,
    answer: impl FnOnce() -> Response<Full<Bytes>> + Send + 'static,
) -> Response<Full<Bytes>> {
    let turn = semaphore.acquire_owned().await.expect("the semaphore is never closed");
    let answered = tokio::task::spawn_blocking(move || {
        let response = answer();
        // The caller may have gone, but the thread is still busy: the next one waits until here.
        drop(turn);
        response
    });
    answered.await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
}

/// The answer of `/drainz`: what remains, as JSON.
fn told(own: &Own, health: &impl Health) -> Response<Full<Bytes>> {
    let remaining = Remaining { control: own.control, ..health.remaining() };
    json(remaining.to_string() + "\n")
}

fn json(text: String) -> Response<Full<Bytes>> {
    let mut response = response(StatusCode::OK, text);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn not_allowed(method: &Method) -> Response<Full<Bytes>> {
    let mut response = response(StatusCode::METHOD_NOT_ALLOWED, format!("use {method}\n"));
    let allowed = HeaderValue::from_str(method.as_str()).expect("a method's name is visible ASCII");
    response.headers_mut().insert(ALLOW, allowed);
    response
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
