//! Asks gateways over HTTP, by the address of their pods: what they say of themselves, and to leave or to stay.
//!
//! Every request names the pod that is meant, by its UID ([`sluice_gateway_config::pod_uid`]): a gateway that took over the address answers
//! that it is another one, which is no answer; one that knows its UID takes commands from nobody else.
//!
//! Any of them may be away or slow: a request has [`REQUEST_SECONDS`], and at most [`REQUESTS_MAX`]
//! are under way for one pipeline. A connection is made for each request: one every 15 s is not worth keeping.
//!
//! What is read is at the admin port. A gateway says there at which port it takes commands; an older one takes them at the same.

use crate::exchange::{self, exchange};
use bytes::Bytes;
use futures::{StreamExt, stream};
use hyper::{Method, StatusCode, header::HeaderValue};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use sluice_plan::{
    names::ADMIN_PORT,
    scale::{
        drain::{self, Answer},
        unasked::Says,
        workload,
    },
};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    ops::Range,
    time::{Duration, Instant},
};
use tokio::{net::TcpStream, time::timeout};

/// Longest request in seconds: what a scrape waits for a busy node, below the two seconds that a reconcile waits for Kafka.
const REQUEST_SECONDS: u64 = 2;
/// Requests at the same time for one pipeline: 1,000 gateways that do not answer are given up in eight rounds of 2 s, well within
/// a reconcile.
const REQUESTS_MAX: usize = 128;

/// Characters that are kept of why a gateway is not ready: they go into the status, beside those of others.
const ABSENCE_CHARS_MAX: usize = 500;

/// A gateway that can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gateway {
    /// The number in its name.
    pub ordinal: u32,
    /// Whether it is ready and is to stay.
    pub is_ready: bool,
    address: SocketAddr,
    /// The UID of its pod: by the time that it is asked, the address may be another one's.
    uid: HeaderValue,
}

/// What a gateway says of why it takes no part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absence {
    /// It gives no answer.
    Silent,
    /// It takes part, or was asked to leave.
    None,
    /// This, in its own words.
    Because(String),
}

/// Why a gateway gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The connection broke, or the answer cannot be read.
    #[error("cannot ask {address} for {path}: {source}")]
    Ask {
        /// Where.
        address: SocketAddr,
        /// For what.
        path: &'static str,
        /// What went wrong.
        source: exchange::Error,
    },
    /// Nothing in time.
    #[error("{address} does not answer {path} within {REQUEST_SECONDS} s")]
    Timeout {
        /// Where.
        address: SocketAddr,
        /// What.
        path: &'static str,
    },
    /// It answers that it cannot.
    #[error("{address} answers {path} with status {status}")]
    Refused {
        /// Where.
        address: SocketAddr,
        /// What.
        path: &'static str,
        /// With what.
        status: StatusCode,
    },
}

/// `{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":true}`: what a gateway that drains still holds.
#[derive(Debug, Deserialize)]
struct Held {
    blocks: u64,
    #[serde(default)]
    uncommitted: u64,
    /// Whether something on its queue volume cannot be read. Gateways that do not say so also count a volume as empty that they have
    /// not opened yet.
    damaged: Option<bool>,
    /// Whether it was asked to drain. Older gateways do not say so.
    draining: Option<bool>,
    /// The port at which it takes commands. `None` where its admin port does.
    control: Option<u16>,
}

impl Gateway {
    /// `None` for a pod whose gateway does not run, or that has no address.
    pub fn of(pod: &Pod) -> Option<Self> {
        let address: IpAddr = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
        let port = u16::try_from(ADMIN_PORT).ok()?;
        let gateway = Self {
            ordinal: workload::ordinal(pod)?,
            is_ready: workload::is_ready(pod),
            address: SocketAddr::new(address, port),
            uid: pod.metadata.uid.as_deref()?.parse().ok()?,
        };
        workload::is_running(pod).then_some(gateway)
    }

    /// What it says of itself, in Prometheus' text format.
    pub async fn metrics(&self) -> Result<String, Error> {
        let path = "/metrics";
        let (status, body) = self.ask(Method::GET, path).await?;
        if status != StatusCode::OK {
            return Err(Error::Refused { address: self.address, path, status });
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Why it takes no part.
    async fn absence(&self) -> Absence {
        let Ok((status, body)) = self.ask(Method::GET, "/readyz").await else { return Absence::Silent };
        if status == StatusCode::MISDIRECTED_REQUEST {
            return Absence::Silent;
        }
        let words = String::from_utf8_lossy(&body);
        let words: String = words.trim().chars().take(ABSENCE_CHARS_MAX).collect();
        let is_meant = async || self.says().await == Says::Drains;
        if status != StatusCode::SERVICE_UNAVAILABLE || words.is_empty() || is_meant().await {
            return Absence::None;
        }
        Absence::Because(words)
    }

    /// Asks it to leave or to stay, and how far it is. What goes wrong is no answer, and is asked again.
    pub async fn request(&self, request: drain::Request) -> Answer {
        let path = match request {
            drain::Request::Drain => "/drain",
            drain::Request::Resume => "/resume",
        };
        let commands = match self.commands().await {
            // One that takes part needs not be told so, nor the port at which it could be told be within reach.
            Ok(Some((_, Says::TakesPart))) if request == drain::Request::Resume => return Answer::Done,
            Ok(Some((commands, _))) => commands,
            Ok(None) => return Answer::Unknown,
            Err(_) => return Answer::Silent,
        };
        match (request, commands.ask(Method::POST, path).await) {
            (_, Ok((StatusCode::NOT_FOUND, _))) => Answer::Unknown,
            (drain::Request::Resume, Ok((status, _))) if status.is_success() => Answer::Done,
            (drain::Request::Drain, Ok((status, _))) if status.is_success() => self.held().await,
            _ => Answer::Silent,
        }
    }

    /// The same gateway where it takes commands, and whether it takes part; `None` for one that knows none.
    async fn commands(&self) -> Result<Option<(Self, Says)>, Error> {
        let path = "/drainz";
        match self.ask(Method::GET, path).await? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, body) if status.is_success() => Ok(Some((self.at(control(&body)), says(&body)))),
            (status, _) => Err(Error::Refused { address: self.address, path, status }),
        }
    }

    fn at(&self, port: Option<u16>) -> Self {
        let port = port.unwrap_or(self.address.port());
        Self { address: SocketAddr::new(self.address.ip(), port), ..self.clone() }
    }

    async fn says(&self) -> Says {
        match self.ask(Method::GET, "/drainz").await {
            Ok((status, body)) if status.is_success() => says(&body),
            _ => Says::Silent,
        }
    }

    async fn held(&self) -> Answer {
        match self.ask(Method::GET, "/drainz").await {
            Ok((StatusCode::NOT_FOUND, _)) => Answer::Unknown,
            Ok((status, body)) if status.is_success() => held(&body),
            _ => Answer::Silent,
        }
    }

    async fn ask(&self, method: Method, path: &'static str) -> Result<(StatusCode, Bytes), Error> {
        let answer = timeout(Duration::from_secs(REQUEST_SECONDS), self.exchange(method, path)).await;
        answer.unwrap_or(Err(Error::Timeout { address: self.address, path }))
    }

    async fn exchange(&self, method: Method, path: &'static str) -> Result<(StatusCode, Bytes), Error> {
        let address = self.address;
        let stream =
            TcpStream::connect(address).await.map_err(|source| Error::Connect { address, source })?;
        let answer = exchange(stream, address.to_string(), method, path, Some(&self.uid)).await;
        answer.map_err(|source| Error::Ask { address, path, source })
    }
}

fn held(body: &[u8]) -> Answer {
    match serde_json::from_slice(body) {
        // It was told to stay meanwhile: that it holds nothing now is no proof.
        Ok(Held { draining: Some(false), blocks, .. }) => Answer::Holds { blocks },
        Ok(Held { blocks: 0, uncommitted: 0, damaged: Some(false), .. }) => Answer::Done,
        Ok(Held { blocks: 0, uncommitted: 0, .. }) => Answer::Damaged,
        Ok(Held { blocks, .. }) => Answer::Holds { blocks },
        Err(_) => Answer::Silent,
    }
}

fn control(body: &[u8]) -> Option<u16> {
    serde_json::from_slice(body).ok().and_then(|held: Held| held.control)
}

fn says(body: &[u8]) -> Says {
    match serde_json::from_slice(body) {
        Ok(Held { draining: Some(true), .. }) => Says::Drains,
        Ok(Held { draining: Some(false), .. }) => Says::TakesPart,
        Ok(Held { draining: None, .. }) => Says::Nothing,
        Err(_) => Says::Silent,
    }
}

/// What one gateway said of itself.
#[derive(Debug)]
pub struct Said {
    /// Which.
    pub ordinal: u32,
    /// How long after the question to all of them.
    pub after: Duration,
    /// The text; an error when it gave no answer.
    pub text: Result<String, Error>,
}

/// Asks all of them what they say of themselves.
pub async fn metrics_of(gateways: impl Iterator<Item = Gateway>) -> Vec<Said> {
    let begun = Instant::now();
    let answers = stream::iter(gateways).map(|gateway| async move {
        let text = gateway.metrics().await;
        Said { ordinal: gateway.ordinal, after: begun.elapsed(), text }
    });
    answers.buffer_unordered(REQUESTS_MAX).collect().await
}

/// Asks all of them why they take no part.
pub async fn absences_of(gateways: impl Iterator<Item = Gateway>) -> Vec<(Gateway, Absence)> {
    let answers = stream::iter(gateways).map(|gateway| async move {
        let absence = gateway.absence().await;
        (gateway, absence)
    });
    answers.buffer_unordered(REQUESTS_MAX).collect().await
}

/// Asks those with these ordinals; one that does not run is gone.
pub async fn request_all(
    request: drain::Request,
    ordinals: Range<u32>,
    gateways: &[Gateway],
) -> BTreeMap<u32, Answer> {
    let answers = stream::iter(ordinals).map(|ordinal| {
        let gateway = gateways.iter().find(|gateway| gateway.ordinal == ordinal).cloned();
        async move {
            match gateway {
                Some(gateway) => (ordinal, gateway.request(request).await),
                None => (ordinal, Answer::Gone),
            }
        }
    });
    answers.buffer_unordered(REQUESTS_MAX).collect().await
}

/// Asks those with these ordinals whether they drain.
pub async fn say_whether_they_drain(ordinals: &[u32], gateways: &[Gateway]) -> BTreeMap<u32, Says> {
    let asked = gateways.iter().filter(|gateway| ordinals.contains(&gateway.ordinal)).cloned();
    let answers = stream::iter(asked).map(|gateway| async move { (gateway.ordinal, gateway.says().await) });
    answers.buffer_unordered(REQUESTS_MAX).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_says_whether_it_drains_or_is_older_than_that() {
        for (body, expected) in [
            (r#"{"blocks":3,"bytes":9,"uncommitted":0,"damaged":false,"draining":true}"#, Says::Drains),
            (r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":false}"#, Says::TakesPart),
            (r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false}"#, Says::Nothing),
            ("ok", Says::Silent),
        ] {
            assert_eq!(says(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn a_gateway_takes_commands_where_it_says_and_an_older_one_where_it_says_so_little() {
        let address = "10.0.0.1:9090".parse().unwrap();
        let gateway = Gateway { ordinal: 1, is_ready: true, address, uid: HeaderValue::from_static("one") };
        for (body, expected) in [
            (r#"{"blocks":0,"bytes":0,"draining":false,"control":9091}"#, "10.0.0.1:9091"),
            (r#"{"blocks":0,"bytes":0}"#, "10.0.0.1:9090"),
            ("ok", "10.0.0.1:9090"),
        ] {
            let commands = gateway.at(control(body.as_bytes()));
            assert_eq!((commands.address.to_string().as_str(), commands.ordinal), (expected, 1), "{body}");
        }
    }

    #[test]
    fn empty_is_without_blocks_and_with_everything_committed() {
        for (body, expected) in [
            (r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false}"#, Answer::Done),
            (r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":true}"#, Answer::Damaged),
            (r#"{"blocks":0,"bytes":0,"uncommitted":0}"#, Answer::Damaged),
            (r#"{"blocks":0,"bytes":0,"uncommitted":5}"#, Answer::Holds { blocks: 0 }),
            (r#"{"blocks":3,"bytes":9}"#, Answer::Holds { blocks: 3 }),
            (r#"{"blocks":0,"uncommitted":0,"damaged":false,"draining":true}"#, Answer::Done),
            (r#"{"blocks":0,"uncommitted":0,"damaged":false,"draining":false}"#, Answer::Holds { blocks: 0 }),
            (r#"{"bytes":9}"#, Answer::Silent),
            ("ok", Answer::Silent),
        ] {
            assert_eq!(held(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn a_pod_is_asked_while_its_gateway_runs() {
        let pod = |name: &str, ip: &str, state: serde_json::Value| -> Pod {
            serde_json::from_value(serde_json::json!({"metadata": {"name": name, "uid": "one"}, "status": {"podIP": ip,
                "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": state}]}}))
            .unwrap()
        };
        let running = || serde_json::json!({"running": {}});
        let found = Gateway::of(&pod("prod-gateway-12", "fd00::1", running())).unwrap();
        assert_eq!((found.ordinal, found.address.to_string().as_str()), (12, "[fd00::1]:9090"));
        assert_eq!(Gateway::of(&pod("prod-gateway-12", "", running())), None);
        assert_eq!(Gateway::of(&pod("prod-gateway", "10.0.0.1", running())), None);
        assert_eq!(Gateway::of(&pod("prod-gateway-1", "10.0.0.1", serde_json::json!({"waiting": {}}))), None);
    }
}
