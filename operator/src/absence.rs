//! Asks gateways that run and are not ready why, and remembers it for a while: what one says while it starts is no news, and reconciles
//! come in bursts while pods roll. Reads only; a few words per gateway that is not ready, forgotten once it is.

use crate::{
    gateways::{self, Absence, Gateway},
    memory::Key,
    scaling,
};
use sluice_plan::scale::Moment;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Gateways are asked again after so many milliseconds: below the time between two looks at a pipeline that runs.
const FRESH_MS: u64 = 20_000;
/// One that has had a reason for so many milliseconds does not merely start: it looks at its table and joins its group within seconds.
const STARTING_MAX_MS: u64 = 60_000;

/// What one has said.
#[derive(Debug, Clone)]
struct Heard {
    /// Since when it has had a reason, whichever.
    since: Moment,
    words: String,
}

/// What those of one pipeline have said.
#[derive(Debug)]
struct Known {
    at: Moment,
    heard: HashMap<Gateway, Heard>,
}

/// What was said of each pipeline.
#[derive(Debug)]
pub struct Absences {
    clock: fn() -> Moment,
    known: Mutex<HashMap<Key, Known>>,
}

impl Default for Absences {
    fn default() -> Self {
        Self::by(scaling::now)
    }
}

impl Absences {
    /// By another clock than the system's, as in tests.
    pub fn by(clock: fn() -> Moment) -> Self {
        Self { clock, known: Mutex::default() }
    }

    /// Why those that are not ready take no part, by their ordinals; of those alone that have had a reason for a minute. Whoever gives
    /// no answer goes on having the one that it gave.
    pub async fn ask(&self, key: &Key, gateways: &[Gateway]) -> BTreeMap<u32, String> {
        let absent: Vec<Gateway> = gateways.iter().filter(|gateway| !gateway.is_ready).cloned().collect();
        if absent.is_empty() {
            self.forget(key);
            return BTreeMap::new();
        }
        let now = (self.clock)();
        // A clock that went back by far must not keep this for ever.
        let is_fresh = |known: &Known| now.0.abs_diff(known.at.0) < FRESH_MS;
        if !self.known().get(key).is_some_and(is_fresh) {
            let answers = gateways::absences_of(absent.iter().cloned()).await;
            self.hear(key, now, answers);
        }
        let known = self.known();
        let heard = known.get(key).map(|known| &known.heard);
        let lasting = |gateway: &Gateway| {
            let heard = heard?.get(gateway)?;
            let is_start = now.0.saturating_sub(heard.since.0) < STARTING_MAX_MS;
            (!is_start).then(|| (gateway.ordinal, heard.words.clone()))
        };
        absent.iter().filter_map(lasting).collect()
    }

    fn hear(&self, key: &Key, now: Moment, answers: Vec<(Gateway, Absence)>) {
        let mut known = self.known();
        let mut before = known.remove(key).map(|known| known.heard).unwrap_or_default();
        let after = answers.into_iter().filter_map(|(gateway, answer)| {
            let before = before.remove(&gateway);
            let heard = match answer {
                Absence::Because(words) => Heard { since: before.map_or(now, |before| before.since), words },
                Absence::Silent => before?,
                Absence::None => return None,
            };
            Some((gateway, heard))
        });
        let heard = after.collect();
        known.insert(key.clone(), Known { at: now, heard });
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
