//! The admin server: `/metrics`, `/livez` and `/readyz` over plain HTTP/1.1, on a task of its own. It serves from the start, also in a
//! standby, so that a probe gets "not ready" instead of a refused connection.
//!
//! Limits: [`CONNECTIONS_MAX`] at the same time, [`CONNECTION_SECONDS_MAX`] each.

use crate::{
    watch::{Scope, state::WatchState},
    world::metrics::Metrics,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, sync::Semaphore, time::timeout};

/// Connections at the same time: a scraper, two probes, and room for a person.
const CONNECTIONS_MAX: usize = 32;
/// Longest life of a connection, in seconds. Scrapers reconnect; a silent peer must not occupy a connection.
const CONNECTION_SECONDS_MAX: u64 = 120;
/// Wait after a failed accept, in milliseconds: without file descriptors an immediate retry fails again.
const ACCEPT_RETRY_MS: u64 = 100;
/// Watches that `/readyz` names; the others are counted. Chosen: each kind that is waited for in one scope.
const WATCHES_NAMED_MAX: usize = 11;

/// Whether this process is ready, for `/readyz`.
#[derive(Debug, Default)]
pub struct Readiness {
    waits_for: AtomicU8,
    /// The watches of each scope, once they have begun.
    watches: Mutex<Vec<(Scope, Arc<WatchState>)>>,
}

/// What a process waits for before it can do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum WaitsFor {
    /// The first answer of the API server.
    ApiServer = 0,
    /// The first answer about the Lease: without the right to it, this process can never take over.
    Lease = 1,
    /// The first list of each watch: this process leads, but does not reconcile yet.
    Watches = 2,
    /// Nothing. A standby is ready, too.
    Nothing = 3,
}

impl Readiness {
    /// Sets what the process waits for.
    pub fn set(&self, waits_for: WaitsFor) {
        self.waits_for.store(waits_for as u8, Ordering::Relaxed);
    }

    /// Sets the watches whose first list is waited for, so that `/readyz` can name them.
    pub fn set_watches(&self, watches: Vec<(Scope, Arc<WatchState>)>) {
        *self.watches.lock().unwrap_or_else(PoisonError::into_inner) = watches;
    }

    /// The body of `/readyz`; `None` if this process is ready.
    pub fn waits(&self) -> Option<String> {
        match self.waits_for.load(Ordering::Relaxed) {
            0 => Some("waiting for the API server\n".to_owned()),
            1 => Some("waiting for the Lease: the log says why it cannot be read or taken\n".to_owned()),
            2 => Some(format!("waiting for the first list of each watch\n{}", self.unlisted())),
            _ => None,
        }
    }

    /// A line for each watch that is waited for. Those that fail come first: the others may only need a moment.
    fn unlisted(&self) -> String {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let unlisted = watches.iter().flat_map(|(scope, state)| {
            state.unlisted().into_iter().map(move |(kind, why)| (scope, kind, why))
        });
        let mut unlisted: Vec<_> = unlisted.collect();
        unlisted.sort_by_key(|(_, _, why)| why.is_none());
        let others = unlisted.len().saturating_sub(WATCHES_NAMED_MAX);
        let line = |(Scope(namespace), kind, why): (&Scope, String, Option<String>)| {
            let place = namespace.as_ref().map(|namespace| format!(" in namespace {namespace}"));
            let why = why.unwrap_or_else(|| "the API server has not listed it yet".to_owned());
            format!("watch of {kind}{} is not ready: {why}\n", place.unwrap_or_default())
        };
        let mut lines: Vec<String> = unlisted.into_iter().take(WATCHES_NAMED_MAX).map(line).collect();
        if others > 0 {
            lines.push(format!("and {others} more\n"));
        }
        lines.concat()
    }
}

/// Why the admin server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is in use, or not an address of this machine.
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
}

/// Listens at an address. `0.0.0.0` and `[::]` mean all addresses of IPv6 and IPv4, or only of IPv4 if the kernel has no IPv6.
async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    if !address.ip().is_unspecified() {
        return TcpListener::bind(address).await;
    }
    let port = address.port();
    or_at_ipv4(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await, port).await
}

/// Falls back to all addresses of IPv4 if IPv6 is missing: no such sockets (EAFNOSUPPORT, of a kernel with `ipv6.disable=1`), or no such
/// address (EADDRNOTAVAIL).
async fn or_at_ipv4(both: std::io::Result<TcpListener>, port: u16) -> std::io::Result<TcpListener> {
    match both {
        Err(error) if error.kind() != ErrorKind::AddrInUse => {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
            tracing::info!(%error, port, "there is no IPv6: listening only on IPv4");
            Ok(listener)
        }
        both => both,
    }
}

/// The bound server; [`Admin::serve`] runs it.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
}

impl Admin {
    /// Binds the address.
    pub async fn bind(
        address: SocketAddr,
        metrics: Arc<Metrics>,
        readiness: Arc<Readiness>,
    ) -> Result<Self, Error> {
        let refused = |source| Error::Listen { address, source };
        let listener = listen(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address, metrics, readiness })
    }

    /// The bound address. If the port was 0, it has the port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the task is dropped.
    pub async fn serve(self) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                continue;
            };
            let (metrics, readiness) = (Arc::clone(&self.metrics), Arc::clone(&self.readiness));
            tokio::spawn(async move {
                let answer = service_fn(|request: Request<Incoming>| {
                    let response = respond(request.uri().path(), &metrics, &readiness);
                    async move { Ok::<_, Infallible>(response) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), answer);
                // Errors and timeouts of a peer end only its own connection.
                timeout(Duration::from_secs(CONNECTION_SECONDS_MAX), connection).await.ok();
                drop(place);
            });
        }
    }
}

fn respond(path: &str, metrics: &Metrics, readiness: &Readiness) -> Response<Full<Bytes>> {
    let (status, body) = match path {
        "/metrics" => match metrics.render() {
            Ok(text) => (StatusCode::OK, Bytes::from(text)),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, Bytes::from(error.to_string())),
        },
        "/livez" => (StatusCode::OK, Bytes::from_static(b"alive\n")),
        "/readyz" => match readiness.waits() {
            None => (StatusCode::OK, Bytes::from_static(b"ready\n")),
            Some(words) => (StatusCode::SERVICE_UNAVAILABLE, Bytes::from(words)),
        },
        _ => (StatusCode::NOT_FOUND, Bytes::from_static(b"/metrics, /livez, /readyz\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let text = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, text);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::{core::Status, runtime::watcher};

    #[test]
    fn ready_follows_what_is_waited_for_and_live_does_not() {
        let metrics = Metrics::new("1", &[]).unwrap();
        let readiness = Readiness::default();
        let status = |path| respond(path, &metrics, &readiness).status().as_u16();
        assert_eq!((status("/readyz"), status("/livez"), status("/metrics")), (503, 200, 200));
        for waits_for in [WaitsFor::Lease, WaitsFor::Watches] {
            readiness.set(waits_for);
            assert_eq!((status("/readyz"), status("/livez")), (503, 200));
        }
        readiness.set(WaitsFor::Nothing);
        assert_eq!((status("/readyz"), status("/")), (200, 404));
    }

    #[test]
    fn each_watch_that_is_waited_for_is_named_and_first_those_that_fail() {
        let metrics = Arc::new(Metrics::new("1", &[]).unwrap());
        let readiness = Readiness::default();
        readiness.set(WaitsFor::Watches);
        assert_eq!(readiness.waits().unwrap(), "waiting for the first list of each watch\n");
        let states = ["a", "b"].map(|namespace| {
            let state = Arc::new(WatchState::new(Arc::clone(&metrics)));
            for kind in ["Deployment", "Pod", "StatefulSet"] {
                state.begins(kind);
            }
            (Scope(Some(namespace.to_owned())), state)
        });
        states[0].1.listed("Pod");
        states[0].1.listed("StatefulSet");
        let words = "statefulsets.apps is forbidden: User \"operator\" cannot list it";
        let refusal = Status { code: 403, ..Status::failure(words, "Forbidden") };
        let refusal = kube::Error::Api(Box::new(refusal));
        states[1].1.failed("StatefulSet", &watcher::Error::InitialListFailed(refusal));
        readiness.set_watches(states.to_vec());
        assert_eq!(
            readiness.waits().unwrap(),
            "waiting for the first list of each watch\n\
             watch of StatefulSet in namespace b is not ready: statefulsets.apps is forbidden: User \"operator\" cannot list it (status 403)\n\
             watch of Pod in namespace b is not ready: the API server has not listed it yet\n"
        );
        let many = (0..40).map(|_| states[1].clone()).collect();
        readiness.set_watches(many);
        let words = readiness.waits().unwrap();
        assert!(words.ends_with("and 69 more\n") && words.lines().count() == 13, "{words}");
        readiness.set(WaitsFor::Nothing);
        assert_eq!(readiness.waits(), None);
    }

    #[tokio::test]
    async fn without_ipv6_all_addresses_are_those_of_ipv4() {
        // What Linux says: EAFNOSUPPORT, EADDRNOTAVAIL.
        for code in [97, 99] {
            let listener = or_at_ipv4(Err(std::io::Error::from_raw_os_error(code)), 0).await.unwrap();
            let address = listener.local_addr().unwrap();
            assert!(address.ip().is_unspecified() && address.is_ipv4(), "{address}");
            tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, address.port())).await.unwrap();
        }
        let taken = or_at_ipv4(Err(ErrorKind::AddrInUse.into()), 0).await.unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse, "another process has the port");
    }

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        for all in ["0.0.0.0:0", "[::]:0"] {
            let metrics = Arc::new(Metrics::new("1", &[]).unwrap());
            let admin = Admin::bind(all.parse().unwrap(), metrics, Arc::default()).await.unwrap();
            for address in ["127.0.0.1", "::1"] {
                tokio::net::TcpStream::connect((address, admin.address().port())).await.unwrap();
            }
        }
    }
}
