//! Remembers why gateways that run are not ready: what one says while it starts is no news. A few words per gateway that is not ready,
//! forgotten once it is.

use crate::{
    gateways::{Absence, Gateway, looks::Look},
    memory::Key,
    scaling,
};
use sluice_plan::Moment;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

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
    /// When they were asked.
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

    /// Why those that are not ready take no part, by their ordinals, as they said it at this look; of those alone that have had a reason for a
    /// minute. Whoever gives no answer goes on having the one that it gave.
    pub fn hear(&self, key: &Key, look: Option<&Look>, gateways: &[Gateway]) -> BTreeMap<u32, String> {
        let absent: Vec<Gateway> = gateways.iter().filter(|gateway| !gateway.is_ready).cloned().collect();
        if absent.is_empty() {
            self.forget(key);
            return BTreeMap::new();
        }
        let now = (self.clock)();
        if let Some(look) = look.filter(|look| self.known().get(key).is_none_or(|known| known.at != look.at))
        {
            self.note(key, look, &absent);
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

    fn note(&self, key: &Key, look: &Look, absent: &[Gateway]) {
        let mut known = self.known();
        let mut before = known.remove(key).map(|known| known.heard).unwrap_or_default();
        let after = absent.iter().filter_map(|gateway| {
            let before = before.remove(gateway);
            let heard = match look.of(gateway).map_or(&Absence::Silent, |said| &said.absence) {
                Absence::Because(words) => {
                    Heard { since: before.map_or(look.at, |before| before.since), words: words.clone() }
                }
                Absence::Silent => before?,
                Absence::None => return None,
            };
            Some((gateway.clone(), heard))
        });
        let heard = after.collect();
        known.insert(key.clone(), Known { at: look.at, heard });
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
