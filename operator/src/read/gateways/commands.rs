//! Tells gateways to leave and to stay beside the reconciles, and keeps what they answered.
//!
//! ```text
//!  reconcile -> tell(): each gateway that is not being told --> GET /state, POST /drain, GET /state --> Told, kept
//!                 |                                                  (a silent one: 2 s)
//!                 `-- answers that are known by then, after 250 ms at the most; whoever is waited for is told again in 2 s
//! ```
//!
//! That a gateway is empty lets its pod and its volume go, so an answer counts only as an answer
//!
//! - to this very command, as the status has it: the same request, since the same moment;
//! - of this very process: the same pod by UID, and the same container, as the caller has seen them now and as they were before the gateway
//!   was asked;
//! - that was asked for after the gateway had taken the command ([`Gateway::request`]);
//! - not longer than [`ANSWER_SECONDS_MAX`] ago.
//!
//! Commands to one gateway go one after another, in the order in which they were given. One that has not begun when another takes its place
//! is not given any more.

use super::{GATEWAYS_MAX, GATEWAYS_MAX_OF_ALL, Gateway, WAIT};
use crate::world::memory::Key;
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_plan::drain::{Answer, Request};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::Semaphore, time::timeout};

/// An answer counts for so many seconds from when its gateway was asked: a slow one answers within six (one without `/state` within ten), and is asked every two.
/// A reconcile may take longer than that with an answer that it has.
const ANSWER_SECONDS_MAX: u64 = 15;

/// What gateways are told, as the status says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What.
    pub request: Request,
    /// Since when.
    pub since: Time,
}

/// What one gateway was told, and answered.
#[derive(Debug)]
struct Told {
    command: Command,
    gateway: Gateway,
    /// The number of the command: one whose place another has taken is known by it.
    turn: u64,
    is_asking: bool,
    /// Whether the last answer took longer than a reconcile waits.
    was_slow: bool,
    /// When it was asked last, and what it answered.
    answer: Option<(Instant, Answer)>,
    /// One command at a time.
    line: Arc<tokio::sync::Mutex<()>>,
}

impl Told {
    fn is_of(&self, command: &Command, gateway: &Gateway) -> bool {
        self.command == *command && self.gateway.is_same_process(gateway)
    }
}

/// The gateways of one pipeline.
#[derive(Debug)]
struct Known {
    told: BTreeMap<u32, Told>,
    in_flight: Arc<Semaphore>,
}

impl Default for Known {
    fn default() -> Self {
        Self { told: BTreeMap::new(), in_flight: Arc::new(Semaphore::new(GATEWAYS_MAX)) }
    }
}

/// A command that is on its way to a gateway.
struct Given {
    key: Key,
    command: Command,
    gateway: Gateway,
    turn: u64,
    line: Arc<tokio::sync::Mutex<()>>,
    in_flight: Arc<Semaphore>,
}

/// The commands to all gateways.
#[derive(Debug, Clone)]
pub struct Commands {
    wait: Duration,
    known: Arc<Mutex<HashMap<Key, Known>>>,
    in_flight: Arc<Semaphore>,
    /// Commands that were given.
    turns: Arc<AtomicU64>,
}

impl Default for Commands {
    fn default() -> Self {
        Self::waiting(WAIT)
    }
}

impl Commands {
    /// With another wait, as in tests.
    pub fn waiting(wait: Duration) -> Self {
        let in_flight = Arc::new(Semaphore::new(GATEWAYS_MAX_OF_ALL));
        Self { wait, known: Arc::default(), in_flight, turns: Arc::default() }
    }

    /// Tells those with these ordinals, and gives what is known of each by now; one that does not run is gone. `gateways` were seen by the
    /// caller before this.
    pub async fn tell(
        &self,
        key: &Key,
        command: &Command,
        ordinals: Range<u32>,
        gateways: &[Gateway],
    ) -> BTreeMap<u32, Answer> {
        let meant: BTreeMap<u32, &Gateway> = gateways
            .iter()
            .filter(|gateway| ordinals.contains(&gateway.ordinal))
            .map(|gateway| (gateway.ordinal, gateway))
            .collect();
        let mut waited_for = Vec::new();
        for gateway in meant.values() {
            if let Some((given, was_slow)) = self.begin(key, command, gateway) {
                let telling = tokio::spawn(self.clone().give(given));
                if !was_slow {
                    waited_for.push(telling);
                }
            }
        }
        // Late is no error here: it is asked for again. A timer of no length would wait for its next tick.
        if !self.wait.is_zero() {
            timeout(self.wait, join_all(waited_for)).await.ok();
        }
        let known = self.known();
        let told = known.get(key).map(|known| &known.told);
        let answer = |ordinal: u32| {
            let Some(gateway) = meant.get(&ordinal) else { return Answer::Gone };
            let told = told.and_then(|told| told.get(&ordinal));
            told.filter(|told| told.is_of(command, gateway))
                .and_then(|told| told.answer)
                .filter(|(asked, _)| asked.elapsed() < Duration::from_secs(ANSWER_SECONDS_MAX))
                .map_or(Answer::Silent, |(_, answer)| answer)
        };
        ordinals.map(|ordinal| (ordinal, answer(ordinal))).collect()
    }

    /// Forgets a pipeline that is gone.
    pub fn forget(&self, key: &Key) {
        self.known().remove(key);
    }

    /// Claims the command to a gateway, and says whether its last answer was slow; `None` while it is being given.
    fn begin(&self, key: &Key, command: &Command, gateway: &Gateway) -> Option<(Given, bool)> {
        let mut known = self.known();
        let known = known.entry(key.clone()).or_default();
        let before = known.told.remove(&gateway.ordinal);
        let (line, was_slow, answer) = match before {
            Some(told) if told.is_of(command, gateway) && told.is_asking => {
                known.told.insert(gateway.ordinal, told);
                return None;
            }
            Some(told) if told.is_of(command, gateway) => (told.line, told.was_slow, told.answer),
            Some(told) => (told.line, false, None),
            None => (Arc::default(), false, None),
        };
        let told = Told {
            command: command.clone(),
            gateway: gateway.clone(),
            turn: self.turns.fetch_add(1, Ordering::Relaxed),
            is_asking: true,
            was_slow,
            answer,
            line: Arc::clone(&line),
        };
        let given = Given {
            key: key.clone(),
            command: command.clone(),
            gateway: gateway.clone(),
            turn: told.turn,
            line,
            in_flight: Arc::clone(&known.in_flight),
        };
        known.told.insert(gateway.ordinal, told);
        Some((given, was_slow))
    }

    async fn give(self, given: Given) {
        // In a task of its own, so that a panic there leaves nothing half done here.
        let (commands, given) = (self.clone(), Arc::new(given));
        let asking = Arc::clone(&given);
        let answer = tokio::spawn(async move { commands.ask(&asking).await }).await;
        let mut known = self.known();
        let told = known.get_mut(&given.key).and_then(|known| known.told.get_mut(&given.gateway.ordinal));
        let Some(told) = told.filter(|told| told.turn == given.turn) else { return };
        told.is_asking = false;
        if let Ok(Some((asked, answer))) = answer {
            told.was_slow = asked.elapsed() >= self.wait;
            told.answer = Some((asked, answer));
        }
    }

    /// `None` when another command has taken its place.
    async fn ask(&self, given: &Given) -> Option<(Instant, Answer)> {
        let _before = given.line.lock().await;
        let _of_pipeline = given.in_flight.acquire().await;
        let _of_all = self.in_flight.acquire().await;
        if !self.is_meant(given) {
            return None;
        }
        let asked = Instant::now();
        Some((asked, given.gateway.request(given.command.request).await))
    }

    /// Whether it is still the last command to its gateway. One that has been told to leave is told to stay also when its pipeline is
    /// forgotten.
    fn is_meant(&self, given: &Given) -> bool {
        let known = self.known();
        match known.get(&given.key).and_then(|known| known.told.get(&given.gateway.ordinal)) {
            Some(told) => told.turn == given.turn,
            None => given.command.request == Request::Resume,
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        // Whatever the thread that held it died of: at worst gateways are told once more.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
