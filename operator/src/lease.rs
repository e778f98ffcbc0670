//! The Lease that lets one of several operators work.
//!
//! [`Lease::acquired`] waits until this process holds it, [`Lease::lost`] until it no longer does for certain. The second
//! one ends the process: two operators that both believe to lead would undo each other's writes (fail-stop).
//! `kube-lease-manager` renews; what it does not notice is a renewal that never succeeds, so `lost` reads the Lease
//! itself and gives up before the others may take it.

use k8s_openapi::{api::coordination::v1::Lease as LeaseObject, jiff::Timestamp};
use kube::{Api, Client};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

/// After this many seconds without a renewal another operator may take over; client-go's own default.
const DURATION_SECONDS: u64 = 15;
/// The holder renews when this many seconds are left, which is every five.
const GRACE_SECONDS: u64 = 10;
/// The holder gives up this many seconds after the last renewal that it has seen: three before the others may begin.
const GIVE_UP_SECONDS: u64 = DURATION_SECONDS - 3;
/// The holder looks this often, in seconds.
const LOOK_SECONDS: u64 = 2;
/// Wait between attempts while the API server does not answer, in seconds.
const RETRY_SECONDS: u64 = 1;
/// Longest wait for the API server in seconds while the Lease is given back; the process ends anyway.
const RELEASE_SECONDS: u64 = 5;

/// Which Lease, and as whom.
#[derive(Debug, Clone)]
pub struct LeaseName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The holder that is written into it.
    pub identity: String,
}

/// Why this process no longer holds the Lease.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Somebody else does.
    #[error("the Lease is held by {0}")]
    Taken(String),
    /// It could not be renewed in time.
    #[error("the Lease was not renewed for {0} s")]
    NotRenewed(u64),
}

/// This process's part in the Lease.
pub struct Lease {
    client: Client,
    api: Api<LeaseObject>,
    name: LeaseName,
    manager: LeaseManager,
}

impl Lease {
    /// Makes the Lease where there is none. Waits for an API server that is away.
    pub async fn join(client: Client, name: LeaseName) -> Self {
        let manager = manager(&client, &name).await;
        let api = Api::namespaced(client.clone(), &name.namespace);
        Self { client, api, name, manager }
    }

    /// Waits until this process holds the Lease.
    pub async fn acquired(&mut self) {
        loop {
            match self.manager.changed().await {
                Ok(true) => return info!(lease = %self.name.name, identity = %self.name.identity, "leading"),
                Ok(false) => {}
                // Somebody deleted it; only a new manager makes it again.
                Err(LeaseManagerError::NonexistentLease(_)) => {
                    self.manager = manager(&self.client, &self.name).await;
                }
                Err(error) => {
                    warn!(%error, "cannot ask for the Lease");
                    sleep(Duration::from_secs(RETRY_SECONDS)).await;
                }
            }
        }
    }

    /// Renews the Lease for as long as that succeeds, and says why it no longer does.
    pub async fn lost(&self) -> Lost {
        tokio::select! {
            never = self.renew() => match never {},
            lost = self.look() => lost,
        }
    }

    /// Gives the Lease back, so that an operator that starts need not wait until it expires. One that stands by looks
    /// when it would have expired.
    pub async fn release(&self) {
        match timeout(Duration::from_secs(RELEASE_SECONDS), self.manager.release()).await {
            Ok(Ok(())) => info!("gave the Lease back"),
            Ok(Err(error)) => warn!(%error, "could not give the Lease back; it expires by itself"),
            Err(_) => warn!("the API server did not take the Lease back in time; it expires by itself"),
        }
    }

    async fn renew(&self) -> std::convert::Infallible {
        loop {
            // Both "changed" and "failed" are judged by what `look` reads.
            if self.manager.changed().await.is_err() {
                sleep(Duration::from_secs(RETRY_SECONDS)).await;
            }
        }
    }

    async fn look(&self) -> Lost {
        let mut ticks = interval(Duration::from_secs(LOOK_SECONDS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renewed = Instant::now();
        loop {
            ticks.tick().await;
            let answer = timeout(Duration::from_secs(LOOK_SECONDS), self.api.get(&self.name.name)).await;
            if let Ok(Ok(lease)) = answer {
                match age(&lease, &self.name.identity, Timestamp::now()) {
                    Ok(age) => renewed = Instant::now().checked_sub(age).unwrap_or(renewed),
                    Err(holder) => return Lost::Taken(holder),
                }
            }
            let silent = renewed.elapsed().as_secs();
            if silent >= GIVE_UP_SECONDS {
                return Lost::NotRenewed(silent);
            }
        }
    }
}

/// How long ago `identity` renewed the Lease, or who holds it instead.
fn age(lease: &LeaseObject, identity: &str, now: Timestamp) -> Result<Duration, String> {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or("nobody");
    if holder != identity {
        return Err(holder.to_owned());
    }
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    // A renewal in the future is one of ours after the clock was set back.
    Ok(Duration::try_from(now.duration_since(renewed)).unwrap_or(Duration::ZERO))
}

async fn manager(client: &Client, name: &LeaseName) -> LeaseManager {
    let mut said = false;
    loop {
        let builder = LeaseManagerBuilder::new(client.clone(), &name.name)
            .with_namespace(&name.namespace)
            .with_identity(&name.identity)
            .with_field_manager(format!("sluice-operator/lease-{}", name.identity))
            // Duration first: the builder refuses a grace that is not shorter than the duration it has.
            .with_duration(DURATION_SECONDS)
            .with_grace(GRACE_SECONDS);
        match builder.build().await {
            Ok(manager) => return manager,
            Err(error) if !said => {
                warn!(%error, lease = %name.name, namespace = %name.namespace, "cannot read or make the Lease; trying again");
                said = true;
            }
            Err(_) => {}
        }
        sleep(Duration::from_secs(RETRY_SECONDS)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime};

    fn lease(holder: Option<&str>, renewed: &str) -> LeaseObject {
        let renew_time = Some(MicroTime(renewed.parse().unwrap()));
        let spec = LeaseSpec { holder_identity: holder.map(str::to_owned), renew_time, ..Default::default() };
        LeaseObject { spec: Some(spec), ..Default::default() }
    }

    #[test]
    fn only_the_holder_has_an_age() {
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        let renewed = "2026-01-01T00:00:03Z";
        assert_eq!(age(&lease(Some("a"), renewed), "a", now), Ok(Duration::from_secs(7)));
        assert_eq!(age(&lease(Some("b"), renewed), "a", now), Err("b".to_owned()));
        assert_eq!(age(&lease(None, renewed), "a", now), Err("nobody".to_owned()));
        assert_eq!(age(&LeaseObject::default(), "a", now), Err("nobody".to_owned()));
    }

    #[test]
    fn a_clock_that_was_set_back_is_no_age() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(age(&lease(Some("a"), "2026-01-01T00:00:05Z"), "a", now), Ok(Duration::ZERO));
    }
}
