//! Why gateways that run are not ready, in their own words. A gateway that starts is not ready for some seconds, which is not reported: so this
//! file remembers since when each has had a reason. A few words for each gateway that is not ready, forgotten once it is ready.

use super::gateways::{Absence, Gateway, looks::Look};
use sluice_plan::Moment;
use std::collections::{BTreeMap, HashMap};

/// A gateway that has had a reason for this many milliseconds does not just start: it reads its table and joins its group within seconds.
const STARTING_MAX_MS: u64 = 60_000;

/// What one gateway said.
#[derive(Debug)]
struct Heard {
    /// Since when it has had any reason.
    since: Moment,
    words: String,
}

/// What the gateways of one pipeline said that are not ready.
#[derive(Debug, Default)]
pub struct ReasonMemory {
    /// When they were asked last.
    at: Option<Moment>,
    heard: HashMap<Gateway, Heard>,
}

/// The reasons at this look, by ordinal, of gateways that have had one for a minute. A gateway that does not answer keeps its last reason.
pub fn hear(
    memory: &mut ReasonMemory,
    look: Option<&Look>,
    gateways: &[Gateway],
    Moment(now): Moment,
) -> BTreeMap<u32, String> {
    let absent: Vec<&Gateway> = gateways.iter().filter(|gateway| !gateway.is_ready).collect();
    if absent.is_empty() {
        *memory = ReasonMemory::default();
        return BTreeMap::new();
    }
    if let Some(look) = look.filter(|look| memory.at != Some(look.at)) {
        note(memory, look, &absent);
    }
    let lasting = |gateway: &&Gateway| {
        let heard = memory.heard.get(*gateway)?;
        let is_start = now.saturating_sub(heard.since.0) < STARTING_MAX_MS;
        (!is_start).then(|| (gateway.ordinal, heard.words.clone()))
    };
    absent.iter().filter_map(lasting).collect()
}

fn note(memory: &mut ReasonMemory, look: &Look, absent: &[&Gateway]) {
    let mut before = std::mem::take(&mut memory.heard);
    let after = absent.iter().filter_map(|gateway| {
        let before = before.remove(*gateway);
        let heard = match look.of(gateway).map_or(&Absence::Silent, |said| &said.absence) {
            Absence::Because(words) => {
                Heard { since: before.map_or(look.at, |before| before.since), words: words.clone() }
            }
            Absence::Silent => before?,
            Absence::None => return None,
        };
        Some(((*gateway).clone(), heard))
    });
    memory.heard = after.collect();
    memory.at = Some(look.at);
}
