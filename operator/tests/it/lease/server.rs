//! An API server in memory that has one Lease, and the network between it and operators. Everything takes virtual time.
//!
//! It refuses a write that names another version than the one there is, as the real one does. What is on its way arrives also when the process
//! that sent it has gone.

use super::dice::Dice;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::sleep;

/// Longest way of a request or an answer in a network that is well, milliseconds.
const MILLIS_MAX: u64 = 40;

/// How late an answer is that an operator still waits for.
const LATE: Duration = Duration::from_millis(2_500);

/// What becomes of the requests of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// They are answered soon.
    Open,
    /// They never arrive.
    Cut,
    /// They are carried out, and no answer comes back.
    Deaf,
    /// The same for those that change something; all others are answered.
    DeafWrites,
    /// They are carried out at once, and the answers to those that change something are under way for two and a half seconds.
    LateWrites,
    /// They are answered with an error.
    Refused,
    /// They and their answers are under way for up to this many seconds each.
    Late(u64),
}

struct State {
    lease: Option<Value>,
    version: u64,
    ways: Vec<Way>,
    dice: Dice,
}

/// The server and the network.
#[derive(Clone)]
pub struct Server(Arc<Mutex<State>>);

impl Server {
    /// For this many operators.
    pub fn new(operators: usize, dice: Dice) -> Self {
        let ways = vec![Way::Open; operators];
        Self(Arc::new(Mutex::new(State { lease: None, version: 0, ways, dice })))
    }

    /// The client of an operator, by its number.
    pub fn client(&self, number: usize) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request| server.clone().pass(number, request));
        Client::new(service, "sluice-system")
    }

    /// Requests that an operator sends from now on go this way.
    pub fn go(&self, number: usize, way: Way) {
        self.0.lock().unwrap().ways[number] = way;
    }

    /// Another client changes fields of the Lease, or creates it.
    pub fn change(&self, spec: &Value) {
        self.0.lock().unwrap().store(spec);
    }

    pub fn delete(&self) {
        self.0.lock().unwrap().lease = None;
    }

    pub fn holder(&self) -> Option<String> {
        let state = self.0.lock().unwrap();
        Some(state.lease.as_ref()?["spec"]["holderIdentity"].as_str()?.to_owned())
    }

    /// Takes a request there and its answer back.
    async fn pass(self, number: usize, request: Request<Body>) -> Result<Response<Full<Bytes>>, Infallible> {
        let method = request.method().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (way, there, back) = {
            let mut state = self.0.lock().unwrap();
            let way = state.ways[number];
            let longest = if let Way::Late(seconds) = way { seconds * 1_000 } else { MILLIS_MAX };
            let mut millis = || Duration::from_millis(state.dice.below(longest) + 1);
            (way, millis(), millis())
        };
        let is_write = method != Method::GET;
        let is_deaf = way == Way::Deaf || (way == Way::DeafWrites && is_write);
        let back = if way == Way::LateWrites && is_write { LATE } else { back };
        let carried_out = tokio::spawn(async move {
            sleep(there).await;
            let (code, answer) = match way {
                Way::Cut => pending().await,
                Way::Refused => failure(503),
                _ => self.0.lock().unwrap().answer(&method, &body),
            };
            sleep(back).await;
            (code, answer)
        });
        let (code, answer) = carried_out.await.unwrap();
        if is_deaf {
            pending::<()>().await;
        }
        Ok(Response::builder().status(code).body(Full::new(Bytes::from(answer.to_string()))).unwrap())
    }
}

impl State {
    fn answer(&mut self, method: &Method, body: &Value) -> (u16, Value) {
        let version = &body["metadata"]["resourceVersion"];
        let is_current =
            |lease: &Value| version.is_null() || *version == lease["metadata"]["resourceVersion"];
        match (&self.lease, method) {
            (Some(lease), &Method::GET) => (200, lease.clone()),
            (Some(lease), &Method::PATCH) if is_current(lease) => (200, self.store(&body["spec"])),
            (Some(_), _) => failure(409),
            (None, &Method::POST) => (201, self.store(&body["spec"])),
            (None, _) => failure(404),
        }
    }

    fn store(&mut self, changes: &Value) -> Value {
        self.version += 1;
        let mut lease = self.lease.take().unwrap_or_else(|| json!({"metadata": {"name": "sluice"}}));
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        for (field, value) in changes.as_object().unwrap() {
            lease["spec"][field] = value.clone();
        }
        self.lease = Some(lease.clone());
        lease
    }
}

fn failure(code: u16) -> (u16, Value) {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "scripted", "reason": reason,
    });
    (code, status)
}
