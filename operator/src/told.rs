//! Asks the gateways of a pipeline what they say of themselves for people, and remembers it for a while: reconciles come in bursts
//! while pods roll. Reads only; one small entry per pipeline, forgotten with it.

use crate::{
    gateways::{self, Gateway},
    memory::Key,
    sample::{
        messages,
        told::{Told, inserts as inserts_of, messages_lost, read, together},
        transactions,
    },
    scaling,
};
use sluice_plan::{
    message_window::{self, MessageWindow},
    observed::{MessagesSeen, OpenTransaction, OpenTransactions},
    scale::Moment,
    sink::{self, SinkSeen, Watched},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Gateways are asked again after so many milliseconds: below the time between two looks at a pipeline that runs.
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

    /// What the gateways that are ready say, all together. What others have said while pods rolled is remembered for people; that
    /// nothing is queued is known of those alone that have said it.
    pub async fn ask(&self, key: &Key, gateways: &[Gateway]) -> Said {
        let mut ready: Vec<Gateway> = gateways.iter().filter(|gateway| gateway.is_ready).cloned().collect();
        ready.sort_by_key(|gateway| gateway.ordinal);
        let Moment(now) = (self.clock)();
        if let Some(Known { at: Moment(at), by, said, .. }) = self.known().get(key)
            // A clock that went back by far must not keep this for ever.
            && now.abs_diff(*at) < FRESH_MS
        {
            let mut said = said.clone();
            said.told.has_empty_queue &= *by == ready;
            return said;
        }
        let answers = gateways::metrics_of(ready.iter().cloned()).await;
        // One that gives no answer may promise less than the others.
        let told: Vec<Told> =
            answers.iter().map(|answer| answer.text.as_deref().map(read).unwrap_or_default()).collect();
        let lost = answers
            .iter()
            .filter_map(|answer| Some((answer.ordinal, messages_lost(answer.text.as_deref().ok()?)?)));
        let messages_lost = lost.collect();
        let (mut inserts, mut windows) = self.watched(key, &ready);
        let mut lately = BTreeMap::new();
        for answer in &answers {
            if let (Some(watched), Some(now)) =
                (inserts.get_mut(&answer.ordinal), answer.text.as_deref().ok().and_then(inserts_of))
            {
                *watched = watched.look(now);
            }
            if let (Some(window), Some(counted)) =
                (windows.get_mut(&answer.ordinal), answer.text.as_deref().ok().and_then(messages::read))
            {
                let counted_lately;
                (*window, counted_lately) = window.look(Moment(now), counted);
                lately.insert(answer.ordinal, counted_lately);
            }
        }
        let answered = windows.iter().filter_map(|(ordinal, window)| Some((window, lately.remove(ordinal)?)));
        let messages = message_window::together(answered);
        let sink = sink::together(inserts.values());
        let (open_transactions, open) = self.open_transactions(key, Moment(now), &answers);
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
        answers: &[gateways::Said],
    ) -> (OpenTransactions, Option<Vec<OpenTransaction>>) {
        let before = self.known().get(key).map(|known| known.open_transactions.clone());
        let mut known = before.unwrap_or_default();
        let texts: Vec<&str> = answers.iter().filter_map(|answer| answer.text.as_deref().ok()).collect();
        let open = known.look(now, texts.iter().copied().flat_map(transactions::read));
        (known, (!texts.is_empty()).then_some(open))
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
