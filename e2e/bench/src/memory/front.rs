//! A front for a sink that can be slow or unreachable.
//!
//! ```text
//! gateway -> front (behaves as set, knows tokens) -> null sink (keeps and counts), or the real server
//! ```
//!
//! Job: act like a failing ClickHouse, at a chosen moment. Like a MergeTree table, it drops an INSERT whose deduplication token it already
//! has, so a retry of an INSERT in doubt doubles no row. Owner: one thread of its own. Limits: it holds the bodies of the requests in
//! flight, as many as the gateway's inserts.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::throughput::{serve_connection, stored};
use e2e_stack::process::Port;

/// How the sink behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It takes INSERTs and answers.
    Normal,
    /// It takes an INSERT at once and answers it after this time.
    Slow(Duration),
    /// It refuses connections and closes the open ones.
    Refused,
    /// It accepts connections and never answers; they are closed when the sink is back.
    Silent,
}

struct Shared {
    behaviour: watch::Receiver<Behaviour>,
    sink: String,
    client: Client<HttpConnector, Full<Bytes>>,
    tokens: Mutex<HashSet<String>>,
}

/// A front that listens. Ends when dropped.
pub struct Front {
    address: String,
    /// The reserved port, also while the front refuses connections.
    _port: Port,
    behaviour: watch::Sender<Behaviour>,
    runtime: Option<Runtime>,
}

impl Front {
    /// Listens on a free port of this machine, in front of the sink at this URL.
    pub fn start(sink: String) -> Result<Front> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("front")
            .enable_all()
            .build()
            .context("start the front's thread")?;
        let (behaviour, behaviour_in) = watch::channel(Behaviour::Normal);
        let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let shared = Arc::new(Shared { behaviour: behaviour_in, sink, client, tokens: Mutex::default() });
        let port = Port::hold()?;
        let address = port.address();
        let listener = std::net::TcpListener::bind(&address).context("listen for the front")?;
        listener.set_nonblocking(true).context("prepare the front's port")?;
        let entered = runtime.enter();
        let listener = TcpListener::from_std(listener).context("hand the front's port to its thread")?;
        drop(entered);
        runtime.spawn(serve(listener, address.clone(), shared));
        Ok(Front { address, _port: port, behaviour, runtime: Some(runtime) })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the behaviour from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Blocking until this runtime ends is not allowed on a thread of another runtime.
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: TcpListener, address: String, shared: Arc<Shared>) {
    let mut behaviour = shared.behaviour.clone();
    let mut listening = Some(listener);
    loop {
        let Some(listener) = listening.take() else {
            if behaviour.wait_for(|now| *now != Behaviour::Refused).await.is_err() {
                return;
            }
            // The port is still reserved, so this can bind it.
            listening = TcpListener::bind(&address).await.ok();
            continue;
        };
        if !accept(&listener, &mut behaviour, &shared).await {
            return;
        }
    }
}

/// Accepts connections until it must refuse them, and then closes all. Returns `false` once the sender of behaviours is gone.
async fn accept(
    listener: &TcpListener,
    behaviour: &mut watch::Receiver<Behaviour>,
    shared: &Arc<Shared>,
) -> bool {
    let mut connections = JoinSet::new();
    let mut before = *behaviour.borrow();
    loop {
        tokio::select! {
            changed = behaviour.changed() => {
                if changed.is_err() {
                    return false;
                }
                let now = *behaviour.borrow_and_update();
                match (before, now) {
                    (_, Behaviour::Refused) => return true,
                    (Behaviour::Silent, Behaviour::Normal) => connections.abort_all(),
                    _ => {}
                }
                before = now;
            }
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                while connections.try_join_next().is_some() {}
                let shared = Arc::clone(shared);
                connections.spawn(async move {
                    serve_connection(stream, |request| answer(Arc::clone(&shared), request)).await;
                });
            }
        }
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let mut behaviour = shared.behaviour.clone();
    if *behaviour.borrow() == Behaviour::Silent {
        // The connection is closed when the sink is back.
        std::future::pending::<()>().await;
    }
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let token = token(&target).map(str::to_owned);
    if let Some(token) = &token
        && !shared.tokens().insert(token.clone())
    {
        return Ok(stored());
    }
    let is_insert = token.is_some();
    // In a task of its own: if the connection breaks, the token must not be kept without its rows.
    let forwarding = tokio::spawn(async move { shared.take(&target, (&head.headers, body), token).await });
    let answered = forwarding.await.map_err(anyhow::Error::from).flatten();
    let now = *behaviour.borrow_and_update();
    if let Behaviour::Slow(time) = now
        && is_insert
    {
        let over = behaviour.wait_for(|now| !matches!(now, Behaviour::Slow(_)));
        // The wait ends when the time is over or when the sink works again.
        tokio::time::timeout(time, over).await.ok();
    }
    Ok(answered.unwrap_or_else(|error| {
        let mut response = Response::new(Full::new(Bytes::from(format!("{error:#}"))));
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    }))
}

impl Shared {
    fn tokens(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forwards a request. If that fails, its token is forgotten.
    async fn take(
        &self,
        target: &str,
        (headers, body): (&HeaderMap, Bytes),
        token: Option<String>,
    ) -> Result<Response<Full<Bytes>>> {
        let answered = self.forward(target, headers, body).await;
        let stored = answered.as_ref().is_ok_and(|response| response.status() == StatusCode::OK);
        if let Some(token) = token.filter(|_| !stored) {
            self.tokens().remove(&token);
        }
        answered
    }

    async fn forward(&self, target: &str, headers: &HeaderMap, body: Bytes) -> Result<Response<Full<Bytes>>> {
        let mut request = Request::post(format!("{}{target}", self.sink))
            .body(Full::new(body))
            .context("repeat a request to the sink")?;
        copy(headers, request.headers_mut());
        let response = self.client.request(request).await.context("reach the sink")?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.context("read the sink's answer")?.to_bytes();
        let mut repeated = Response::new(Full::new(body));
        *repeated.status_mut() = head.status;
        copy(&head.headers, repeated.headers_mut());
        Ok(repeated)
    }
}

/// Copies the headers of the message, but not those of the connection.
fn copy(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from {
        let text = name.as_str();
        if matches!(text, "authorization" | "content-type") || text.starts_with("x-clickhouse") {
            to.insert(name.clone(), value.clone());
        }
    }
}

/// The deduplication token in the target of an INSERT. A query of the settings may have a token, too.
fn token(target: &str) -> Option<&str> {
    let (_, query) = target.split_once('?')?;
    let mut pairs = query.split('&');
    pairs.clone().find(|pair| pair.starts_with("query=INSERT"))?;
    pairs.find_map(|pair| pair.strip_prefix("insert_deduplication_token="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_found() {
        assert_eq!(token("/?query=INSERT&insert_deduplication_token=a-1&x=2"), Some("a-1"));
        assert_eq!(token("/?insert_deduplication_token=b&query=INSERT%20INTO"), Some("b"));
        assert_eq!(token("/?query=SELECT&insert_deduplication_token=asked"), None, "a question is no INSERT");
        assert_eq!(token("/"), None);
    }
}
