//! Asks gateways over HTTP, by the address of their pods: what they say of themselves, and to leave or to stay.
//!
//! Every request names the pod by its UID ([`sluice_gateway_config::pod_uid`]). A gateway in another pod at the same address answers 421,
//! which counts as no answer. A gateway that knows its UID refuses commands without it.
//!
//! Any of them may be away or slow. So no reconcile waits for them: [`looks`] asks what they say, [`commands`] tells them what to do, and
//! both go on beside the reconciles. A reconcile takes the answers that are known, and waits [`WAIT`] at most, only for gateways that
//! answered within it the last time.
//!
//! A request has [`REQUEST_SECONDS`]. At most [`GATEWAYS_MAX`] gateways of one pipeline, and [`GATEWAYS_MAX_OF_ALL`] of all, are asked at the
//! same time, by each of the two. A connection is made for each request: one every 15 s is not worth keeping.
//!
//! What is read is `/state` at the admin port, all of it in one answer of at most [`STATE_BYTES_MAX`]. A gateway says there at which port it
//! takes commands; an older one takes them at the same. One that has no `/state` is read by [`without_state`].
//!
//! An answer that is too large, is not whole, is in another format, or is another pod's is no answer.
//!
//! [`STATE_BYTES_MAX`]: sluice_gateway_config::STATE_BYTES_MAX

pub mod commands;
mod error;
pub mod exchange;
pub mod full_volumes;
pub mod logs;
pub mod looks;
pub mod sample;
pub mod silence;
pub mod unconnected;
pub mod unfetched;
pub mod without_state;

pub use error::Error;

use bytes::Bytes;
use exchange::exchange;
use hyper::{Method, StatusCode, header::HeaderValue};
use k8s_openapi::api::core::v1::Pod;
use sample::report::Report;
use sluice_gateway_config::{GatewayState, PodIdentity, Readiness, Remaining, STATE_PATH, StateError};
use sluice_plan::{
    Moment,
    drain::{
        self, Answer,
        undrain::{Says, is_kept_out, kept_out_words},
    },
    names::{ADMIN_PORT, GATEWAY_CONTAINER},
    observed::hanging_words,
    pods,
};
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tracing::debug;

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

/// Characters that are kept of the name of a pod that was not meant: as many as a name has.
const POD_NAME_CHARS_MAX: usize = 253;

/// A gateway that can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gateway {
    /// The number in its name.
    pub ordinal: u32,
    /// Whether it is ready and is to stay.
    pub is_ready: bool,
    /// Whether a person keeps it out of its consumer group.
    is_kept_out: bool,
    address: SocketAddr,
    /// The namespace of its pod.
    namespace: String,
    /// The name of its pod.
    name: String,
    /// The UID of its pod: when the operator asks, the address may belong to another pod.
    uid: HeaderValue,
    /// The process that runs in it, by the id of its container: what another one has said is not said by this one.
    container: Option<String>,
    /// Since when it has not been ready, by the kubelet's account; `None` while it is, and if the kubelet does not say.
    pub unready_since: Option<Moment>,
}

/// What a gateway says of why it takes no part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Absence {
    /// It gives no answer.
    Silent,
    /// It takes part, or the operator asked it to leave.
    None,
    /// This, in its own words.
    Because(String),
}

impl Gateway {
    /// `None` for a pod whose gateway does not run, or that has no address.
    pub fn of(pod: &Pod) -> Option<Self> {
        let address: IpAddr = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
        let port = u16::try_from(ADMIN_PORT).ok()?;
        let gateway = Self {
            ordinal: pods::ordinal(pod)?,
            is_ready: pods::is_ready(pod),
            is_kept_out: is_kept_out(pod),
            address: SocketAddr::new(address, port),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone()?,
            uid: pod.metadata.uid.as_deref()?.parse().ok()?,
            container: container(pod),
            unready_since: pods::unready_since(pod),
        };
        pods::is_running(pod).then_some(gateway)
    }

    /// Whether it is the same process at the same place, ready or not.
    pub fn is_same_process(&self, other: &Self) -> bool {
        (self.ordinal, self.address, &self.uid, &self.container)
            == (other.ordinal, other.address, &other.uid, &other.container)
    }

    /// Why it takes no part if it does not answer, with what helps.
    pub fn silence(&self, error: &Error) -> String {
        match error {
            Error::Timeout { address, .. } => {
                hanging_words((self.namespace.as_str(), self.name.as_str()), &address.to_string())
            }
            other => other.to_string(),
        }
    }

    /// All that it says.
    async fn look(&self) -> (Absence, Says, Result<Report, Error>) {
        match self.state().await {
            Ok(Some(state)) => {
                let says = says(&state.remaining);
                (self.absence(&state.readiness, says), says, Ok(Report::of(&state.sample)))
            }
            Ok(None) => without_state::look(self).await,
            Err(error) => (Absence::Silent, Says::Silent, Err(error)),
        }
    }

    /// Why it takes no part. One whose pod is ready does. One that drains was asked to leave: by the operator, whose status has that, or by a
    /// person, who may have forgotten it.
    fn absence(&self, readiness: &Readiness, says: Says) -> Absence {
        if !self.is_ready && self.is_kept_out && says == Says::Drains {
            return Absence::Because(kept_out_words(&self.name));
        }
        if self.is_ready || readiness.ready || says == Says::Drains {
            return Absence::None;
        }
        let words = readiness.reasons.join("; ");
        let words: String = words.trim().chars().take(ABSENCE_CHARS_MAX).collect();
        if words.is_empty() { Absence::None } else { Absence::Because(words) }
    }

    /// What it answers at `/state`; `None` for one that has none.
    async fn state(&self) -> Result<Option<GatewayState>, Error> {
        match self.ask(Method::GET, STATE_PATH).await? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (StatusCode::OK, body) => match GatewayState::read(&body) {
                Ok(state) => {
                    self.prove(&state.pod)?;
                    Ok(Some(state))
                }
                // A later gateway, after the operator was taken back: the older answers are there, too.
                Err(source @ StateError::Version { .. }) => {
                    let error = self.unreadable(STATE_PATH, source);
                    debug!(pod = %self.name, %error, "read from /metrics, /readyz and /drainz");
                    Ok(None)
                }
                Err(source) => Err(self.unreadable(STATE_PATH, source)),
            },
            (status, _) => Err(self.refused(STATE_PATH, status)),
        }
    }

    /// Refuses the answer of another pod. A gateway that does not know its namespace, name or UID may be any. No UID is said: it lets a caller
    /// send commands.
    fn prove(&self, pod: &PodIdentity) -> Result<(), Error> {
        let is_other =
            |said: &Option<String>, meant: &[u8]| said.as_ref().is_some_and(|said| said.as_bytes() != meant);
        let is_other_namespace = is_other(&pod.namespace, self.namespace.as_bytes());
        let is_other_uid = is_other(&pod.uid, self.uid.as_bytes());
        if !is_other_namespace && !is_other_uid && !is_other(&pod.name, self.name.as_bytes()) {
            return Ok(());
        }
        let cut = |word: &str| -> String { word.chars().take(POD_NAME_CHARS_MAX).collect() };
        let namespace = pod.namespace.as_deref().map(|namespace| format!("{}/", cut(namespace)));
        let name = pod.name.as_deref().map_or_else(|| "unknown".to_owned(), cut);
        let uid = if is_other_uid { " with another UID" } else { "" };
        let found = format!("{}{name}{uid}", namespace.unwrap_or_default());
        let meant = format!("{}/{}", self.namespace, self.name);
        Err(Error::OtherPod { address: self.address, path: STATE_PATH, found, meant })
    }

    /// What it must finish before it can be removed; `None` for one that cannot be drained.
    async fn remaining(&self) -> Result<Option<Remaining>, Error> {
        match self.state().await? {
            Some(state) => Ok(Some(state.remaining)),
            None => without_state::remaining(self).await,
        }
    }

    /// Asks it to leave or to stay, and how far it is. What goes wrong is no answer, and is asked again.
    pub async fn request(&self, request: drain::Request) -> Answer {
        let path = match request {
            drain::Request::Drain => "/drain",
            drain::Request::Resume => "/resume",
        };
        let commands = match self.remaining().await {
            // One that takes part needs not be told so, nor the port at which it could be told be within reach.
            Ok(Some(remaining))
                if request == drain::Request::Resume && says(&remaining) == Says::TakesPart =>
            {
                return Answer::Done;
            }
            Ok(Some(remaining)) => self.at(remaining.control),
            Ok(None) => return Answer::Unknown,
            Err(error) => return self.no_answer(&error),
        };
        match (request, commands.ask(Method::POST, path).await) {
            (_, Ok((StatusCode::NOT_FOUND, _))) => Answer::Unknown,
            (drain::Request::Resume, Ok((status, _))) if status.is_success() => Answer::Done,
            (drain::Request::Drain, Ok((status, _))) if status.is_success() => self.held().await,
            (_, Ok((status, _))) => self.no_answer(&self.refused(path, status)),
            (_, Err(error)) => self.no_answer(&error),
        }
    }

    /// The same gateway where it takes commands.
    fn at(&self, port: Option<u16>) -> Self {
        let port = port.unwrap_or(self.address.port());
        Self { address: SocketAddr::new(self.address.ip(), port), ..self.clone() }
    }

    /// Whether it drains.
    pub async fn says(&self) -> Says {
        self.said_of(self.remaining().await)
    }

    fn said_of(&self, remaining: Result<Option<Remaining>, Error>) -> Says {
        match remaining {
            Ok(remaining) => remaining.as_ref().map_or(Says::Silent, says),
            Err(error) => {
                self.no_answer(&error);
                Says::Silent
            }
        }
    }

    async fn held(&self) -> Answer {
        match self.remaining().await {
            Ok(remaining) => remaining.as_ref().map_or(Answer::Unknown, held),
            Err(error) => self.no_answer(&error),
        }
    }

    fn no_answer(&self, error: &Error) -> Answer {
        debug!(pod = %self.name, %error, "a gateway does not say what it holds");
        error.answer()
    }

    fn refused(&self, path: &'static str, status: StatusCode) -> Error {
        match status {
            StatusCode::MISDIRECTED_REQUEST => Error::Misdirected { address: self.address, path },
            _ => Error::Refused { address: self.address, path, status },
        }
    }

    fn unreadable(&self, path: &'static str, source: StateError) -> Error {
        Error::Unreadable { address: self.address, path, source }
    }

    async fn ask(&self, method: Method, path: &'static str) -> Result<(StatusCode, Bytes), Error> {
        let (address, until) = (self.address, Instant::now() + Duration::from_secs(REQUEST_SECONDS));
        let stream = timeout_at(until, TcpStream::connect(address)).await;
        let stream = stream.map_err(|_| Error::Unreached { address })?;
        let stream = stream.map_err(|source| Error::Connect { address, source })?;
        let answer = exchange(stream, address.to_string(), method, path, Some(&self.uid));
        let answer = timeout_at(until, answer).await.map_err(|_| Error::Timeout { address, path })?;
        answer.map_err(|source| Error::Ask { address, path, source })
    }
}

fn held(remaining: &Remaining) -> Answer {
    match *remaining {
        // What waits there may be no part of the other numbers.
        Remaining { unreadable: true, .. } => Answer::Unreadable,
        // It was resumed meanwhile: that it holds nothing now is no proof.
        Remaining { draining: Some(false), blocks, .. } => Answer::Holds { blocks },
        Remaining { blocks: 0, uncommitted: 0, damaged: Some(false), .. } => Answer::Done,
        Remaining { blocks: 0, uncommitted: 0, .. } => Answer::Damaged,
        Remaining { blocks, .. } => Answer::Holds { blocks },
    }
}

fn says(remaining: &Remaining) -> Says {
    match remaining.draining {
        Some(true) => Says::Drains,
        Some(false) => Says::TakesPart,
        None => Says::Nothing,
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

    fn remaining(text: &str) -> Remaining {
        serde_json::from_str(text).unwrap()
    }

    fn gateway() -> Gateway {
        Gateway {
            ordinal: 1,
            is_ready: false,
            is_kept_out: false,
            address: "10.0.0.1:9090".parse().unwrap(),
            namespace: "tracing".into(),
            name: "prod-gateway-1".into(),
            uid: HeaderValue::from_static("one"),
            container: None,
            unready_since: None,
        }
    }

    #[test]
    fn a_gateway_says_whether_it_drains_or_is_older_than_that() {
        for (body, expected) in [
            (r#"{"blocks":3,"bytes":9,"uncommitted":0,"damaged":false,"draining":true}"#, Says::Drains),
            (r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false,"draining":false}"#, Says::TakesPart),
            (r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":false}"#, Says::Nothing),
        ] {
            assert_eq!(says(&remaining(body)), expected, "{body}");
        }
    }

    #[test]
    fn a_gateway_takes_commands_where_it_says_and_an_older_one_where_it_says_so_little() {
        for (body, expected) in [
            (r#"{"blocks":0,"bytes":0,"draining":false,"control":9091}"#, "10.0.0.1:9091"),
            (r#"{"blocks":0,"bytes":0}"#, "10.0.0.1:9090"),
        ] {
            let commands = gateway().at(remaining(body).control);
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
            (
                r#"{"blocks":0,"bytes":0,"uncommitted":0,"damaged":true,"draining":true,"unreadable":true}"#,
                Answer::Unreadable,
            ),
        ] {
            assert_eq!(held(&remaining(body)), expected, "{body}");
        }
    }

    #[test]
    fn a_drain_knows_that_another_pod_answers() {
        for (status, expected) in [(421, Answer::OtherPod), (503, Answer::Silent)] {
            let error = gateway().refused(STATE_PATH, StatusCode::from_u16(status).unwrap());
            assert_eq!(gateway().no_answer(&error), expected, "{error}");
        }
        let other = PodIdentity { name: Some("other-gateway-1".into()), ..PodIdentity::default() };
        assert_eq!(gateway().prove(&other).unwrap_err().answer(), Answer::OtherPod);
    }

    #[test]
    fn the_answer_of_another_pod_is_none() {
        let pod = |namespace: Option<&str>, name: Option<&str>, uid: Option<&str>| PodIdentity {
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            uid: uid.map(str::to_owned),
        };
        let (home, own) = (Some("tracing"), Some("prod-gateway-1"));
        for said in [pod(None, None, None), pod(None, own, None), pod(home, own, Some("one"))] {
            gateway().prove(&said).unwrap();
        }
        for (other, found) in [
            (pod(home, own, Some("two")), "tracing/prod-gateway-1 with another UID"),
            (pod(None, Some("other-gateway-1"), None), "other-gateway-1"),
            (pod(Some("staging"), own, None), "staging/prod-gateway-1"),
        ] {
            assert_eq!(
                gateway().prove(&other).unwrap_err().to_string(),
                format!(
                    "10.0.0.1:9090 answers /state as another pod, {found}, not as tracing/prod-gateway-1"
                )
            );
        }
        let long = gateway().prove(&pod(None, Some(&"x".repeat(1 << 20)), None)).unwrap_err().to_string();
        assert!(long.len() < 1_000, "{} bytes", long.len());
    }

    #[test]
    fn all_reasons_are_told_unless_the_gateway_was_asked_to_leave() {
        let readiness = |ready: bool, reasons: &[&str]| Readiness {
            ready,
            reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect(),
        };
        let both = Absence::Because("a stands still; b stands still".into());
        for (said, says, expected) in [
            (readiness(false, &["a stands still", "b stands still"]), Says::TakesPart, both),
            (readiness(false, &["it was drained"]), Says::Drains, Absence::None),
            (readiness(true, &[]), Says::TakesPart, Absence::None),
            (readiness(false, &[]), Says::TakesPart, Absence::None),
        ] {
            assert_eq!(gateway().absence(&said, says), expected, "{said:?}");
        }
        let kept_out = Gateway { is_kept_out: true, ..gateway() };
        let Absence::Because(words) = kept_out.absence(&readiness(false, &["it was drained"]), Says::Drains)
        else {
            panic!("a person may have forgotten it")
        };
        assert!(
            words.ends_with("kubectl sluice drain prod-gateway-1 --resume lets it read again"),
            "{words}"
        );
        let other = Absence::Because("a stands still".into());
        assert_eq!(
            kept_out.absence(&readiness(false, &["a stands still"]), Says::TakesPart),
            other,
            "it restarted"
        );
        let ready = Gateway { is_ready: true, ..gateway() };
        assert_eq!(ready.absence(&readiness(false, &["it starts"]), Says::TakesPart), Absence::None);
        let Absence::Because(words) =
            gateway().absence(&readiness(false, &[&"x".repeat(9_000)]), Says::Silent)
        else {
            panic!("a reason is a reason")
        };
        assert_eq!(words.len(), ABSENCE_CHARS_MAX);
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
