//! Why gateways that run are not ready, in their own words, or that they do not answer. A gateway that starts is not ready for some seconds, which
//! is not reported: so this file remembers since when each has had a reason. A few words for each gateway that is not ready, forgotten once it is
//! ready.

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

/// The reasons at this look, by ordinal, of gateways that have had one for a minute. A gateway that does not answer keeps its last reason. If it
/// has none, the reason is that it does not answer.
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
        let said = look.of(gateway);
        let heard = match said.map_or(&Absence::Silent, |said| &said.absence) {
            Absence::Because(words) => {
                Heard { since: before.map_or(look.at, |before| before.since), words: words.clone() }
            }
            Absence::Silent => before.or_else(|| {
                let error = said?.report.as_ref().err()?;
                Some(Heard { since: look.at, words: error.to_string() })
            })?,
            Absence::None => return None,
        };
        Some(((*gateway).clone(), heard))
    });
    memory.heard = after.collect();
    memory.at = Some(look.at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::gateways::{Error, looks::Said};
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use sluice_plan::drain::undrain::Says;
    use std::time::Duration;

    fn not_ready() -> Gateway {
        let pod = json!({
            "metadata": {"name": "prod-gateway-1", "namespace": "tracing", "uid": "one"},
            "status": {
                "podIP": "10.0.0.1",
                "containerStatuses": [{"name": "gateway", "ready": false, "restartCount": 0, "image": "", "imageID": "",
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
            },
        });
        Gateway::of(&serde_json::from_value::<Pod>(pod).unwrap()).unwrap()
    }

    #[test]
    fn a_gateway_that_never_answers_is_said_not_to_after_a_minute_and_its_own_words_count_more() {
        let mut memory = ReasonMemory::default();
        let mut heard_at = |at: u64, absence: Absence| {
            let address = "10.0.0.1:9090".parse().unwrap();
            let report = Err(Error::Timeout { address, path: "/state" });
            let (gateway, says) = (not_ready(), Says::Silent);
            let said = vec![Said { gateway, after: Duration::ZERO, absence, says, report }];
            let look = Look { at: Moment(at), said };
            hear(&mut memory, Some(&look), &[not_ready()], Moment(at))
        };
        assert!(heard_at(1_000, Absence::Silent).is_empty(), "it may have just started");
        let silent = heard_at(1_000 + STARTING_MAX_MS, Absence::Silent);
        assert_eq!(silent[&1], "10.0.0.1:9090 does not answer /state within 2 s");
        let waits = "waits for the table";
        assert_eq!(heard_at(70_000, Absence::Because(waits.into()))[&1], waits);
        assert_eq!(heard_at(80_000, Absence::Silent)[&1], waits);
        assert!(heard_at(90_000, Absence::None).is_empty());
    }
}
