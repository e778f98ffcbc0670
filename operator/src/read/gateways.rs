//! Asks gateways over HTTP, by the address of their pods: what they say of themselves, and to leave or to stay.
//!
//! Every request names the pod that is meant, by its UID ([`sluice_gateway_config::pod_uid`]): a gateway that took over the address answers
//! that it is another one, which is no answer; one that knows its UID takes commands from nobody else.
//!
//! Any of them may be away or slow. So no reconcile waits for them: [`looks`] asks what they say, [`commands`] tells them what to do, and
//! both go on beside the reconciles, each of which takes what is known by then. A reconcile waits for [`WAIT`] at the most, and for those
//! alone that answered within it the last time.
//!
//! A request has [`REQUEST_SECONDS`]. At most [`GATEWAYS_MAX`] gateways of one pipeline, and [`GATEWAYS_MAX_OF_ALL`] of all, are asked at the
//! same time, by each of the two. A connection is made for each request: one every 15 s is not worth keeping.
//!
//! What is read is at the admin port. A gateway says there at which port it takes commands; an older one takes them at the same.

pub mod commands;
pub mod exchange;
pub mod looks;
pub mod metrics;

use bytes::Bytes;
use exchange::exchange;
use hyper::{Method, StatusCode, header::HeaderValue};
use k8s_openapi::api::core::v1::Pod;
use metrics::report::Report;
use sluice_gateway_config::Remaining;
use sluice_plan::{
    names::{ADMIN_PORT, GATEWAY_CONTAINER},
    scale::{
        drain::{self, Answer},
        unasked::Says,
        workload,
    },
};
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};

/// Longest request in seconds: what a scrape waits for a busy node. Chosen.
const REQUEST_SECONDS: u64 = 2;
/// Gateways of one pipeline that are asked at the same time: 1,000 that do not answer are given up in eight rounds of 2 s.
const GATEWAYS_MAX: usize = 128;
/// Gateways of all pipelines that are asked at the same time, and so connections: half of the file descriptors that a process has by
/// default in the leanest runtimes.
const GATEWAYS_MAX_OF_ALL: usize = 512;
/// Longest wait of a reconcile for gateways. One that is well answers in some milliseconds. Chosen: 75 pipelines whose gateways fall silent
/// at once take up ten reconciles at a time for two seconds, and none after that.
pub const WAIT: Duration = Duration::from_millis(250);

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
    /// The process that runs in it, by the id of its container: what another one has said is not said by this one.
    container: Option<String>,
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
    Connect { address: SocketAddr, source: std::io::Error },
    /// The connection broke, or the answer cannot be read.
    #[error("cannot ask {address} for {path}: {source}")]
    Ask { address: SocketAddr, path: &'static str, source: exchange::Error },
    /// Nothing in time.
    #[error("{address} does not answer {path} within {REQUEST_SECONDS} s")]
    Timeout { address: SocketAddr, path: &'static str },
    /// It answers that it cannot.
    #[error("{address} answers {path} with status {status}")]
    Refused { address: SocketAddr, path: &'static str, status: StatusCode },
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
            container: container(pod),
        };
        workload::is_running(pod).then_some(gateway)
    }

    /// Whether it is the same process at the same place, ready or not.
    pub fn is_same_process(&self, other: &Self) -> bool {
        (self.ordinal, self.address, &self.uid, &self.container)
            == (other.ordinal, other.address, &other.uid, &other.container)
    }

    /// All that it says. One that is ready is not asked why it is not. Of one that is not ready, what it says of that comes first: its
    /// metrics may hang with its disk.
    async fn look(&self) -> (Absence, Says, Result<Report, Error>) {
        if self.is_ready {
            return (Absence::None, Says::Silent, self.report().await);
        }
        let readiness = match self.readiness().await {
            Ok(readiness) => readiness,
            Err(error) => return (Absence::Silent, Says::Silent, Err(error)),
        };
        let says = self.says().await;
        let absence = readiness.filter(|_| says != Says::Drains).map_or(Absence::None, Absence::Because);
        (absence, says, self.report().await)
    }

    /// What it says of itself at `/metrics`.
    async fn report(&self) -> Result<Report, Error> {
        let path = "/metrics";
        let (status, body) = self.ask(Method::GET, path).await?;
        if status != StatusCode::OK {
            return Err(Error::Refused { address: self.address, path, status });
        }
        Ok(Report::read(&String::from_utf8_lossy(&body)))
    }

    /// Why it takes no part; `None` when it does.
    async fn readiness(&self) -> Result<Option<String>, Error> {
        let path = "/readyz";
        let (status, body) = self.ask(Method::GET, path).await?;
        if status == StatusCode::MISDIRECTED_REQUEST {
            return Err(Error::Refused { address: self.address, path, status });
        }
        let words = String::from_utf8_lossy(&body);
        let words: String = words.trim().chars().take(ABSENCE_CHARS_MAX).collect();
        Ok(Some(words).filter(|words| status == StatusCode::SERVICE_UNAVAILABLE && !words.is_empty()))
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

    /// Whether it drains.
    pub async fn says(&self) -> Says {
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
        Ok(Remaining { draining: Some(false), blocks, .. }) => Answer::Holds { blocks },
        Ok(Remaining { blocks: 0, uncommitted: 0, damaged: Some(false), .. }) => Answer::Done,
        Ok(Remaining { blocks: 0, uncommitted: 0, .. }) => Answer::Damaged,
        Ok(Remaining { blocks, .. }) => Answer::Holds { blocks },
        Err(_) => Answer::Silent,
    }
}

fn control(body: &[u8]) -> Option<u16> {
    serde_json::from_slice(body).ok().and_then(|held: Remaining| held.control)
}

fn says(body: &[u8]) -> Says {
    match serde_json::from_slice(body) {
        Ok(Remaining { draining: Some(true), .. }) => Says::Drains,
        Ok(Remaining { draining: Some(false), .. }) => Says::TakesPart,
        Ok(Remaining { draining: None, .. }) => Says::Nothing,
        Err(_) => Says::Silent,
    }
}

/// The process that runs in the pod.
fn container(pod: &Pod) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.iter().flatten();
    statuses.into_iter().find(|one| one.name == GATEWAY_CONTAINER)?.container_id.clone()
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
        let uid = HeaderValue::from_static("one");
        let gateway = Gateway { ordinal: 1, is_ready: true, address, uid, container: None };
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
            (r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":true}"#, Answer::Done),
            (
                r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":false}"#,
                Answer::Holds { blocks: 0 },
            ),
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
