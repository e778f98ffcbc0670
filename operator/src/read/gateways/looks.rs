//! What the gateways of each pipeline said last, asked beside the reconciles and once for all who go by it: readiness reasons, what people
//! read, scaling, and canaries.
//!
//! ```text
//!  reconcile -> look(): due? --> the look begins, in a task of its own --> Look, kept
//!                 |                    (a silent gateway: 2 s)               |
//!                 `-- what is known by then, after 250 ms at the most        `-> the reconcile went on without it: its pipeline is
//!                                                                                looked at again
//! ```
//!
//! One look a pipeline at a time, and [`FRESH_MS`] between two at the same gateways. Numbers of each gateway are kept, some hundred bytes and
//! a few dozen for each partition; their answers are not.

use super::sample::report::Report;
use super::{Absence, Error, GATEWAYS_MAX, GATEWAYS_MAX_OF_ALL, Gateway, WAIT};
use crate::world::{cache::Pipeline, clock, memory::Key};
use futures::{Stream, StreamExt, stream};
use kube::runtime::reflector::ObjectRef;
use sluice_plan::{Moment, drain::undrain::Says};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, broadcast},
    time::timeout,
};
use tracing::warn;

/// What gateways said counts as new for so many milliseconds after the look has ended, and the same ones are not asked again before.
/// Reconciles come in bursts while pods roll, and a canary is looked at every five seconds. Counted from the end: a look at many silent
/// gateways takes longer than this, and causes a reconcile when it ends, which would begin the next one without end.
const FRESH_MS: u64 = 5_000;
/// What they said longer ago counts for nobody. Chosen: four times as long as lies between two looks at a pipeline that scales.
const AGE_MS_MAX: u64 = 60_000;
/// Looks that ended late and whose pipelines nobody has looked at yet. More of them are found at the next look at their pipelines.
const LATE_MAX: usize = 1_024;

/// What one gateway said.
#[derive(Debug)]
pub struct Said {
    /// Which.
    pub gateway: Gateway,
    /// How long after the look began.
    pub after: Duration,
    /// Why it takes no part, of one that is not ready.
    pub absence: Absence,
    /// Whether it drains, of one that is not ready.
    pub says: Says,
    /// What it says of itself; an error when it gave no answer.
    pub report: Result<Report, Error>,
}

/// What the gateways of a pipeline said when they were asked together.
#[derive(Debug, Default)]
pub struct Look {
    /// When they were asked.
    pub at: Moment,
    /// All that were asked, in the order of their numbers.
    pub said: Vec<Said>,
}

impl Look {
    /// What this very gateway said; `None` when it was not asked.
    pub fn of(&self, gateway: &Gateway) -> Option<&Said> {
        self.said.iter().find(|said| said.gateway == *gateway)
    }
}

#[derive(Debug, Default)]
struct Known {
    /// The number of the look that was begun last: one that began before its pipeline was forgotten is not taken for a newer one.
    turn: u64,
    is_asking: bool,
    /// Whether the reconcile that began it goes on without it.
    is_late: bool,
    /// Whether the last look took longer than a reconcile waits.
    was_slow: bool,
    /// Who was asked last.
    by: Vec<Gateway>,
    /// When the last look ended.
    ended: Option<Moment>,
    last: Option<Arc<Look>>,
}

/// The looks at all pipelines.
#[derive(Debug, Clone)]
pub struct Looks {
    clock: fn() -> Moment,
    wait: Duration,
    known: Arc<Mutex<HashMap<Key, Known>>>,
    in_flight: Arc<Semaphore>,
    /// Looks that were begun.
    turns: Arc<AtomicU64>,
    late: broadcast::Sender<Key>,
}

impl Default for Looks {
    fn default() -> Self {
        Self::by(clock::now, WAIT)
    }
}

impl Looks {
    /// By another clock than the system's and with another wait, as in tests.
    pub fn by(clock: fn() -> Moment, wait: Duration) -> Self {
        Self {
            clock,
            wait,
            known: Arc::default(),
            in_flight: Arc::new(Semaphore::new(GATEWAYS_MAX_OF_ALL)),
            turns: Arc::default(),
            late: broadcast::Sender::new(LATE_MAX),
        }
    }

    /// What these gateways said last. Those that were asked a while ago, or were others, are asked again; if they answer in time, it is this
    /// that they said. `None` before anything is known, and when it was too long ago.
    pub async fn look(&self, key: &Key, gateways: &[Gateway]) -> Option<Arc<Look>> {
        if gateways.is_empty() {
            self.forget(key);
            return None;
        }
        let mut gateways = gateways.to_vec();
        gateways.sort_by_key(|gateway| gateway.ordinal);
        let now = (self.clock)();
        if let Some((turn, was_slow)) = self.begin(key, &gateways, now) {
            let asking = tokio::spawn(self.clone().ask(key.clone(), turn, gateways, now));
            if !was_slow {
                // Late is no error here: who goes on without it is told when it ends.
                if !self.wait.is_zero() {
                    timeout(self.wait, asking).await.ok();
                }
            }
        }
        let mut known = self.known();
        let known = known.get_mut(key)?;
        known.is_late = known.is_asking;
        known.last.clone().filter(|look| now.0.abs_diff(look.at.0) < AGE_MS_MAX)
    }

    /// Pipelines whose gateways have answered after their reconcile went on.
    pub fn late(&self) -> impl Stream<Item = ObjectRef<Pipeline>> + Send + Unpin + use<> {
        let ended = stream::unfold(self.late.subscribe(), |mut late| async move {
            loop {
                match late.recv().await {
                    Ok(key) => return Some((ObjectRef::new(&key.name).within(&key.namespace), late)),
                    // They are found at the next look at their pipelines.
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        });
        Box::pin(ended)
    }

    /// Forgets a pipeline that is gone.
    pub fn forget(&self, key: &Key) {
        self.known().remove(key);
    }

    /// Claims a look that is due, and says which it is and whether the one before was slow; `None` when none is due.
    fn begin(&self, key: &Key, gateways: &[Gateway], now: Moment) -> Option<(u64, bool)> {
        let mut known = self.known();
        let known = known.entry(key.clone()).or_default();
        // A clock that went back by far must not keep this for ever.
        let is_fresh = known.ended.is_some_and(|ended| now.0.abs_diff(ended.0) < FRESH_MS);
        if known.is_asking || (is_fresh && known.by == gateways) {
            return None;
        }
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        (known.turn, known.is_asking, known.by) = (turn, true, gateways.to_vec());
        Some((turn, known.was_slow))
    }

    async fn ask(self, key: Key, turn: u64, gateways: Vec<Gateway>, at: Moment) {
        let (begun, in_flight) = (Instant::now(), Arc::clone(&self.in_flight));
        // In a task of its own, so that a panic there leaves nothing half done here.
        let answers = tokio::spawn(ask_all(gateways, in_flight)).await;
        let mut known = self.known();
        let Some(known) = known.get_mut(&key).filter(|known| known.turn == turn) else { return };
        known.is_asking = false;
        known.ended = Some((self.clock)());
        known.was_slow = begun.elapsed() >= self.wait;
        if let Ok(said) = answers {
            warn_of_strange(&key, &said);
            known.last = Some(Arc::new(Look { at, said }));
        }
        if std::mem::take(&mut known.is_late) {
            // Nobody listens in tests.
            self.late.send(key).ok();
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        // Whatever the thread that held it died of: at worst gateways are asked once more.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line a look: each of a thousand gateways may have the same reason. One that is merely silent is seen in the status.
fn warn_of_strange(key: &Key, said: &[Said]) {
    let mut strange =
        said.iter().filter_map(|said| said.report.as_ref().err()).filter(|error| error.is_strange());
    let Some(error) = strange.next() else { return };
    let gateways = strange.count().saturating_add(1);
    let Key { namespace, name } = key;
    warn!(%namespace, pipeline = %name, gateways, %error, "the answers of gateways cannot be used");
}

/// Asks gateways in the order of their numbers, and gives their answers in that order.
async fn ask_all(gateways: Vec<Gateway>, in_flight: Arc<Semaphore>) -> Vec<Said> {
    let begun = Instant::now();
    let answers = stream::iter(gateways).map(|gateway| {
        let in_flight = Arc::clone(&in_flight);
        async move {
            let _place = in_flight.acquire().await;
            let (absence, says, report) = gateway.look().await;
            Said { gateway, after: begun.elapsed(), absence, says, report }
        }
    });
    answers.buffered(GATEWAYS_MAX).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    static NOW_MS: AtomicU64 = AtomicU64::new(0);

    fn clock() -> Moment {
        Moment(NOW_MS.load(Ordering::Relaxed))
    }

    fn gateway(ordinal: u32) -> Gateway {
        let pod = serde_json::json!({"metadata": {"namespace": "tracing", "name": format!("prod-gateway-{ordinal}"), "uid": "one"}, "status": {
            "podIP": "10.0.0.1", "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": true,
                "restartCount": 0, "state": {"running": {}}}]}});
        Gateway::of(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_look_that_took_long_is_followed_by_another_only_a_while_after_it_has_ended() {
        let looks = Looks::by(clock, Duration::ZERO);
        let key = Key { namespace: "tracing".into(), name: "prod".into() };
        let all = [gateway(0)];
        let (turn, _) = looks.begin(&key, &all, clock()).unwrap();
        NOW_MS.store(3 * FRESH_MS, Ordering::Relaxed);
        looks.clone().ask(key.clone(), turn, Vec::new(), Moment(0)).await;
        assert_eq!(looks.begin(&key, &all, clock()), None, "the reconcile that the end of the look causes");
        assert_eq!(looks.begin(&key, &all, Moment(4 * FRESH_MS - 1)), None);
        assert!(looks.begin(&key, &all, Moment(4 * FRESH_MS)).is_some());
        // What is new is not known.
        looks.forget(&key);
        let (turn, _) = looks.begin(&key, &all, clock()).unwrap();
        looks.clone().ask(key.clone(), turn, Vec::new(), Moment(0)).await;
        assert!(looks.begin(&key, &[gateway(0), gateway(1)], clock()).is_some());
    }
}
