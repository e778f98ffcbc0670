//! Asks the gateways of a pipeline what they say of themselves for people, and remembers it for a while: reconciles come in bursts
//! while pods roll. Reads only; one small entry per pipeline, forgotten with it.

use crate::{
    gateways::{self, Gateway},
    memory::Key,
    sample::told::{Told, messages_lost, read, together},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Gateways are asked again after so many seconds: below the time between two looks at a pipeline that runs.
const FRESH_SECONDS: u64 = 20;

/// What the gateways of a pipeline say.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// All together.
    pub told: Told,
    /// Messages that each of them has counted as lost, by its number; of those alone that have said it.
    pub messages_lost: BTreeMap<u32, i64>,
}

/// What was said of a pipeline, by which gateways, and when.
#[derive(Debug)]
struct Known {
    at: Instant,
    by: Vec<Gateway>,
    said: Said,
}

/// What was said of each pipeline.
#[derive(Debug, Default)]
pub struct Telling {
    known: Mutex<HashMap<Key, Known>>,
}

impl Telling {
    /// What the gateways that are ready say, all together. What others have said while pods rolled is remembered for people; that
    /// nothing is queued is known of those alone that have said it.
    pub async fn ask(&self, key: &Key, gateways: &[Gateway]) -> Said {
        let mut ready: Vec<Gateway> = gateways.iter().filter(|gateway| gateway.is_ready).copied().collect();
        ready.sort_by_key(|gateway| gateway.ordinal);
        if let Some(Known { at, by, said }) = self.known().get(key)
            && at.elapsed() < Duration::from_secs(FRESH_SECONDS)
        {
            let mut said = said.clone();
            said.told.has_empty_queue &= *by == ready;
            return said;
        }
        let answers = gateways::metrics_of(ready.iter().copied()).await;
        // One that gives no answer may promise less than the others.
        let told: Vec<Told> =
            answers.iter().map(|answer| answer.text.as_deref().map(read).unwrap_or_default()).collect();
        let lost = answers
            .iter()
            .filter_map(|answer| Some((answer.ordinal, messages_lost(answer.text.as_deref().ok()?)?)));
        let said = Said { told: together(&told), messages_lost: lost.collect() };
        if !answers.is_empty() {
            self.known().insert(key.clone(), Known { at: Instant::now(), by: ready, said: said.clone() });
        }
        said
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
