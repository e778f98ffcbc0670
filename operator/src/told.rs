//! Asks the gateways of a pipeline what they say of themselves for people, and remembers it for a while: reconciles come in bursts
//! while pods roll. Reads only; one small entry per pipeline, forgotten with it.

use crate::{
    gateways::{self, Gateway},
    memory::Key,
    sample::told::{Told, read, together},
};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Gateways are asked again after so many seconds: below the time between two looks at a pipeline that runs.
const FRESH_SECONDS: u64 = 20;

/// What was said of each pipeline, and when.
#[derive(Debug, Default)]
pub struct Telling {
    known: Mutex<HashMap<Key, (Instant, Told)>>,
}

impl Telling {
    /// What the gateways that are ready say, all together.
    pub async fn ask(&self, key: &Key, gateways: &[Gateway]) -> Told {
        if let Some((at, told)) = self.known().get(key)
            && at.elapsed() < Duration::from_secs(FRESH_SECONDS)
        {
            return told.clone();
        }
        let ready = gateways.iter().filter(|gateway| gateway.is_ready).copied();
        let said = gateways::metrics_of(ready).await;
        // One that gives no answer may promise less than the others.
        let told: Vec<Told> =
            said.iter().map(|said| said.text.as_deref().map(read).unwrap_or_default()).collect();
        let told = together(&told);
        if !said.is_empty() {
            self.known().insert(key.clone(), (Instant::now(), told.clone()));
        }
        told
    }

    /// Forgets a pipeline that is gone.
    pub fn forget(&self, key: &Key) {
        self.known().remove(key);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, (Instant, Told)>> {
        // Whatever the thread that held it died of: at worst gateways are asked once more.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
