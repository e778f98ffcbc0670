//! Takes what the gateways of a pipeline say of themselves for people, and remembers it for a while: reconciles come in bursts
//! while pods roll. One small entry per pipeline, forgotten with it.

use crate::{
    gateways::{Gateway, looks::Look},
    memory::Key,
    sample::{
        report::Report,
        told::{Told, together},
    },
    scaling,
};
use sluice_plan::{
    Moment,
    observed::{
        MessagesSeen, OpenTransaction, OpenTransactions,
        inserts::{self, SinkSeen, Watched},
        message_window::{self, MessageWindow},
    },
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What gateways say is taken again after so many milliseconds: below the time between two looks at a pipeline that runs.
const FRESH_MS: u64 = 20_000;

/// What the gateways of a pipeline say.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// All together.
    pub told: Told,
    /// Messages that each of them has counted as lost, by its number; of those alone that have said it.
    pub messages_lost: BTreeMap<u32, i64>,
    /// What they have counted of messages lately; `None` when none of them said it.
    pub messages: Option<MessagesSeen>,
    /// Open transactions that keep them from reading partitions; `None` when none of them gave an answer.
    pub open_transactions: Option<Vec<OpenTransaction>>,
    /// Whether what they insert comes through.
    pub sink: SinkSeen,
}

/// What was said of a pipeline, by which gateways, and when.
#[derive(Debug)]
struct Known {
    at: Moment,
    by: Vec<Gateway>,
    said: Said,
    /// What is known of the inserts of each, by its number.
    inserts: BTreeMap<u32, Watched>,
    /// What each has counted of messages, by its number.
    windows: BTreeMap<u32, MessageWindow>,
    /// What is known of open transactions.
    open_transactions: OpenTransactions,
}

/// What was said of each pipeline.
#[derive(Debug)]
pub struct Telling {
    clock: fn() -> Moment,
    known: Mutex<HashMap<Key, Known>>,
}

impl Default for Telling {
    fn default() -> Self {
        Self::by(scaling::now)
    }
}

impl Telling {
    /// By another clock than the system's, as in tests.
    pub fn by(clock: fn() -> Moment) -> Self {
        Self { clock, known: Mutex::default() }
    }

    /// What the gateways that are ready say, all together, as they said it at this look. What others have said while pods rolled is
    /// remembered for people; that nothing is queued is known of those alone that have said it.
    pub fn hear(&self, key: &Key, look: Option<&Look>, gateways: &[Gateway]) -> Said {
        let mut ready: Vec<Gateway> = gateways.iter().filter(|gateway| gateway.is_ready).cloned().collect();
        ready.sort_by_key(|gateway| gateway.ordinal);
        let Moment(now) = (self.clock)();
        if let Some(Known { at, by, said, .. }) = self.known().get(key) {
            // A clock that went back by far must not keep this for ever.
            let is_fresh = now.abs_diff(at.0) < FRESH_MS;
            // They are asked, and have not answered by now: what they said before holds, but for what may be gone since.
            if is_fresh || look.map_or(!ready.is_empty(), |look| look.at == *at) {
                let mut said = said.clone();
                said.told.has_empty_queue &= is_fresh && *by == ready;
                return said;
            }
        }
        let Some(look) = look else { return Said::default() };
        let Moment(now) = look.at;
        // One that gives no answer may promise less than the others.
        let answers: Vec<(u32, Option<&Report>)> = ready
            .iter()
            .map(|gateway| (gateway.ordinal, look.of(gateway).and_then(|said| said.report.as_ref().ok())))
            .collect();
        let reports = || answers.iter().filter_map(|(ordinal, report)| Some((*ordinal, (*report)?)));
        let told: Vec<Told> = answers
            .iter()
            .map(|(_, report)| report.map(|report| report.told.clone()).unwrap_or_default())
            .collect();
        let messages_lost =
            reports().filter_map(|(ordinal, report)| Some((ordinal, report.messages_lost?))).collect();
        let (mut inserts, mut windows) = self.watched(key, &ready);
        let mut lately = BTreeMap::new();
        for (ordinal, report) in reports() {
            if let (Some(watched), Some(now)) = (inserts.get_mut(&ordinal), report.inserts) {
                *watched = watched.look(now);
            }
            if let (Some(window), Some(counted)) = (windows.get_mut(&ordinal), report.messages.clone()) {
                let counted_lately;
                (*window, counted_lately) = window.look(Moment(now), counted);
                lately.insert(ordinal, counted_lately);
            }
        }
        let answered = windows.iter().filter_map(|(ordinal, window)| Some((window, lately.remove(ordinal)?)));
        let messages = message_window::together(answered);
        let sink = inserts::together(inserts.values());
        let reports: Vec<&Report> = reports().map(|(_, report)| report).collect();
        let (open_transactions, open) = self.open_transactions(key, Moment(now), &reports);
        let said = Said { told: together(&told), messages_lost, messages, open_transactions: open, sink };
        if !answers.is_empty() {
            let at = Moment(now);
            let known = Known { at, by: ready, said: said.clone(), inserts, windows, open_transactions };
            self.known().insert(key.clone(), known);
        }
        said
    }

    /// What is known of those that are ready: of their inserts and of their messages. Of one that is new, nothing.
    fn watched(
        &self,
        key: &Key,
        ready: &[Gateway],
    ) -> (BTreeMap<u32, Watched>, BTreeMap<u32, MessageWindow>) {
        let known = self.known();
        let before = known.get(key);
        let of = |ordinal: u32| {
            let inserts = before.and_then(|before| before.inserts.get(&ordinal)).copied();
            let window = before.and_then(|before| before.windows.get(&ordinal)).copied();
            ((ordinal, inserts.unwrap_or_default()), (ordinal, window.unwrap_or_default()))
        };
        ready.iter().map(|gateway| of(gateway.ordinal)).unzip()
    }

    /// What is known of open transactions with these answers, and which are open now.
    fn open_transactions(
        &self,
        key: &Key,
        now: Moment,
        reports: &[&Report],
    ) -> (OpenTransactions, Option<Vec<OpenTransaction>>) {
        let before = self.known().get(key).map(|known| known.open_transactions.clone());
        let mut known = before.unwrap_or_default();
        let open =
            known.look(now, reports.iter().flat_map(|report| report.open_transactions.iter().cloned()));
        (known, (!reports.is_empty()).then_some(open))
    }

    /// Forgets a pipeline that is gone.
    pub fn forget(&self, key: &Key) {
        self.known().remove(key);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        // Whatever the thread that held it died of: at worst gateways are asked once more.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
