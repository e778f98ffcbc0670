//! The Lease that lets one of several operators work.
//!
//! ```text
//!  acquired: look every 2 s; take the Lease once it has no holder, or its holder has not renewed it for 15 s
//!  lost:     look every 2 s, renew every 5 s; end when another one holds it, or 12 s after the last renewal that succeeded
//! ```
//!
//! [`Lease::acquired`] waits until this process holds the Lease, [`Lease::lost`] until it may no longer hold it. Then the process exits: two
//! operators that both believe to lead would undo each other's writes (fail-stop).
//!
//! Two operators never lead at the same time, also if their clocks differ or requests arrive late:
//! - Durations are measured by the monotonic clock of each process. A holder counts from before it asked for the renewal. A standby counts from
//!   when it first saw the renewal, which is later. The times in the Lease are for people.
//! - Every write names the resource version of the Lease that it was decided on. The API server refuses it once the Lease has another version.
//!
//! One exception: if the Lease is deleted, an operator that starts before the holder looks again creates a new one.

use crate::world::api_error::{ApiError, ErrorClass, described};
use k8s_openapi::{
    api::coordination::v1::{Lease as LeaseObject, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout, timeout_at};
use tracing::{info, warn};

/// After this many seconds without a renewal another operator may take over; client-go's own default.
const DURATION_SECONDS: u64 = 15;
/// The holder gives up this many seconds after the last successful renewal: 3 s before another operator may lead, in which the process exits.
const GIVE_UP_SECONDS: u64 = DURATION_SECONDS - 3;
/// The holder renews this often, in seconds: more than twice before it gives up.
const RENEW_SECONDS: u64 = 5;
/// Holder and standby read the Lease this often, in seconds.
const LOOK_SECONDS: u64 = 2;
/// Longest read of the Lease with the write that follows from it, in seconds: two fit between a renewal that is due and giving up.
const ATTEMPT_SECONDS: u64 = 3;
/// Longest wait for the API server while the Lease is released, in seconds. The process exits in any case.
const RELEASE_SECONDS: u64 = 5;
/// A process that cannot take the Lease logs that again after this many seconds. Chosen: a reader of the last minutes of the log sees it.
const SAY_AGAIN_SECONDS: u64 = 60;
/// Why the Lease is not renewed if no answer says it. A process that gets no CPU sends requests late, and reads their answers late.
const SLOW: &str = "the API server does not answer in time, or the operator has too little CPU; check the API server, and the CPU requests and \
                    limits of the operator's pod (resources of the chart)";
/// Field manager of the Lease.
const FIELD_MANAGER: &str = "sluice-operator/lease";

/// The Lease, and the identity of this process.
#[derive(Debug, Clone)]
pub struct LeaseName {
    pub namespace: String,
    pub name: String,
    /// Identity that this process writes as the holder.
    pub identity: String,
}

/// Why this process no longer holds the Lease.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Another process holds it.
    #[error("the Lease is held by {0}")]
    Taken(String),
    /// It could not be renewed in time.
    #[error("the Lease was not renewed for {seconds} s: {why}")]
    NotRenewed { seconds: u64, why: String },
}

/// This process's view of the Lease.
pub struct Lease {
    api: Api<LeaseObject>,
    name: LeaseName,
    /// When this process sent the last successful renewal.
    renewed: Instant,
    seen: Option<Seen>,
}

/// A version of the Lease that this process waits behind.
struct Seen {
    version: String,
    /// When it was first seen.
    since: Instant,
}

impl Lease {
    /// Sends no request yet.
    pub fn new(client: Client, name: LeaseName) -> Self {
        let api = Api::namespaced(client, &name.namespace);
        Self { api, name, renewed: Instant::now(), seen: None }
    }

    /// Waits until this process holds the Lease, and creates the Lease if there is none. Retries while the API server is unreachable. Calls
    /// `stands_by` each time it reads that another process holds the Lease.
    pub async fn acquired(&mut self, stands_by: impl Fn()) {
        let mut ticks = looks();
        let mut said: Option<Instant> = None;
        loop {
            ticks.tick().await;
            let error = match timeout(Duration::from_secs(ATTEMPT_SECONDS), self.take()).await {
                Ok(Ok(true)) => {
                    return info!(lease = %self.name.name, identity = %self.name.identity, "leading");
                }
                Ok(Ok(false)) => {
                    stands_by();
                    said = None;
                    continue;
                }
                Ok(Err(error)) => in_words(error),
                Err(_) => "no answer in time".to_owned(),
            };
            if said.is_none_or(|said| said.elapsed() >= Duration::from_secs(SAY_AGAIN_SECONDS)) {
                let LeaseName { namespace, name, .. } = &self.name;
                warn!(%error, lease = %name, %namespace, "cannot read or take the Lease; the operator tries again");
                said = Some(Instant::now());
            }
        }
    }

    /// Renews the Lease until that fails for too long, and returns why.
    pub async fn lost(&mut self) -> Lost {
        let mut ticks = looks();
        // The API server's last answer, if that was an error.
        let mut refused = None;
        loop {
            let gives_up = self.renewed + Duration::from_secs(GIVE_UP_SECONDS);
            let look = async {
                ticks.tick().await;
                timeout(Duration::from_secs(ATTEMPT_SECONDS), self.hold()).await
            };
            match timeout_at(gives_up, look).await {
                Ok(Ok(Ok(Some(holder)))) => return Lost::Taken(holder),
                // The Lease is held, or there is no answer.
                Ok(Ok(Ok(None)) | Err(_)) => refused = None,
                // After a failed read it is not renewed either.
                Ok(Ok(Err(error))) => refused = Some(in_words(error)),
                Err(_) => {
                    let seconds = self.renewed.elapsed().as_secs();
                    return Lost::NotRenewed { seconds, why: refused.unwrap_or_else(|| SLOW.to_owned()) };
                }
            }
        }
    }

    /// Releases the Lease, so that a standby takes it at its next look instead of waiting until it expires.
    pub async fn release(&mut self) {
        match timeout(Duration::from_secs(RELEASE_SECONDS), self.give_back()).await {
            Ok(Ok(())) => info!("released the Lease"),
            Ok(Err(error)) => {
                warn!(%error, "cannot release the Lease; another operator takes it once it expires");
            }
            Err(_) => warn!(
                "no answer in time while releasing the Lease; another operator takes it once it expires"
            ),
        }
    }

    /// Takes the Lease if it is free. Returns whether this process holds it now.
    async fn take(&mut self) -> kube::Result<bool> {
        let Some(found) = self.api.get_opt(&self.name.name).await? else { return self.make().await };
        let (version, spec) = (version(&found), found.spec.unwrap_or_default());
        if self.seen.as_ref().is_none_or(|seen| seen.version != version) {
            self.seen = Some(Seen { version: version.clone(), since: Instant::now() });
        }
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        // This identity may already hold it: by an earlier attempt whose answer was lost, or by the previous process of the same pod.
        let is_own = holder == self.name.identity;
        if !holder.is_empty() && !is_own && !self.is_expired(spec.lease_duration_seconds) {
            return Ok(false);
        }
        let transitions = spec.lease_transitions.unwrap_or(0);
        let spec = self.spec(if is_own { transitions } else { transitions.saturating_add(1) });
        self.write(&version, json!(spec)).await
    }

    /// Creates the Lease. If it was deleted, its holder may not know yet: a standby waits as if the Lease still existed.
    async fn make(&mut self) -> kube::Result<bool> {
        if self.seen.is_some() && !self.is_expired(None) {
            return Ok(false);
        }
        let metadata = ObjectMeta { name: Some(self.name.name.clone()), ..Default::default() };
        let lease = LeaseObject { metadata, spec: Some(self.spec(0)) };
        let asked = Instant::now();
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        self.written(asked, self.api.create(&params, &lease).await.map(drop))
    }

    /// Reads the holder of the Lease, and renews the Lease when that is due. Returns the holder if it is not this process.
    async fn hold(&mut self) -> kube::Result<Option<String>> {
        let found = self.api.get_opt(&self.name.name).await?.unwrap_or_default();
        let version = version(&found);
        let holder = found.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        if holder != self.name.identity {
            return Ok(Some(if holder.is_empty() { "nobody".to_owned() } else { holder }));
        }
        if self.renewed.elapsed() >= Duration::from_secs(RENEW_SECONDS) {
            // If another process wrote it meanwhile, the next read shows that.
            let renewal = json!({"renewTime": now(), "leaseDurationSeconds": DURATION_SECONDS});
            self.write(&version, renewal).await?;
        }
        Ok(None)
    }

    async fn give_back(&mut self) -> kube::Result<()> {
        loop {
            let found = self.api.get_opt(&self.name.name).await?.unwrap_or_default();
            let version = version(&found);
            if found.spec.and_then(|spec| spec.holder_identity).as_ref() != Some(&self.name.identity) {
                return Ok(());
            }
            let nobody = json!({
                "holderIdentity": null, "acquireTime": null, "renewTime": null, "leaseDurationSeconds": null,
            });
            // A late renewal of this process changes the version: try again.
            if self.write(&version, nobody).await? {
                return Ok(());
            }
        }
    }

    /// Writes fields of the Lease if it still has this version. Returns whether it had.
    async fn write(&mut self, version: &str, spec: Value) -> kube::Result<bool> {
        let asked = Instant::now();
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": spec}));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        self.written(asked, self.api.patch(&self.name.name, &params, &patch).await.map(drop))
    }

    /// Records when a successful write was sent. If another write came first, that is no error: returns `false`.
    fn written(&mut self, asked: Instant, outcome: kube::Result<()>) -> kube::Result<bool> {
        match outcome {
            Ok(()) => {
                self.renewed = asked;
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the version that was seen last has expired, by the longer of its own duration and ours. The holder may run another version
    /// of the operator, with another duration.
    fn is_expired(&self, duration_seconds: Option<i32>) -> bool {
        let theirs = duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
        let duration = Duration::from_secs(theirs.max(DURATION_SECONDS));
        self.seen.as_ref().is_none_or(|seen| seen.since.elapsed() >= duration)
    }

    fn spec(&self, transitions: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.name.identity.clone()),
            acquire_time: Some(now()),
            renew_time: Some(now()),
            lease_duration_seconds: i32::try_from(DURATION_SECONDS).ok(),
            lease_transitions: Some(transitions),
            ..Default::default()
        }
    }
}

/// The server's answer, and the remedy for missing rights.
fn in_words(error: kube::Error) -> String {
    let error = ApiError::from(error);
    let advice = match error.class() {
        ErrorClass::Forbidden => {
            "; check the rights of the operator's ServiceAccount (rbac.create of the chart)"
        }
        _ => "",
    };
    format!("{}{advice}", described(&error))
}

fn looks() -> Interval {
    let mut ticks = interval(Duration::from_secs(LOOK_SECONDS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn version(lease: &LeaseObject) -> String {
    lease.metadata.resource_version.clone().unwrap_or_default()
}

fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}
