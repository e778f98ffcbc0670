//! Why gateways that run are not ready, in their own words, or that they do not answer. A gateway that starts is not ready for some seconds, which
//! is not reported. The kubelet says since when a gateway is not ready, so that an operator that has just started reports a reason when it first
//! hears it. How long a gateway has not answered, only this operator knows, and counts for itself. A few words for each gateway that is not ready,
//! forgotten once it is ready.

use super::gateways::{
    Absence, Gateway,
    looks::{Look, Said},
};
use sluice_plan::{Moment, drain::undrain::Says, observed::inserts::InsertError};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A gateway that has had a reason for this many milliseconds does not just start: it reads its table and joins its group within seconds.
const STARTING_MAX_MS: u64 = 60_000;

/// What is known of one gateway.
#[derive(Debug)]
struct Heard {
    /// Since when that is so.
    since: Moment,
    known: Known,
}

#[derive(Debug)]
enum Known {
    /// By its own account it takes part, or it was asked to leave.
    NoReason,
    /// It has not answered since the operator first asked it.
    Silence(String),
    /// It takes no part, in its own words; and why it cannot use the table, if it waits for that.
    Reason(String, Option<&'static str>),
}

/// What the gateways of one pipeline said that are not ready.
#[derive(Debug, Default)]
pub struct ReasonMemory {
    /// When they were asked last.
    at: Option<Moment>,
    heard: HashMap<Gateway, Heard>,
}

/// Gateways that are not ready, by ordinal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NotReady {
    /// The reasons of those that have had one for a minute.
    pub reasons: BTreeMap<u32, String>,
    /// Why those among them that wait for the table cannot use it, as reasons of conditions.
    pub table_errors: BTreeMap<u32, &'static str>,
    /// Those that have not been ready for a minute, and whose reason the operator cannot know yet: it has not asked them, or got no answer for less
    /// than a minute.
    pub unheard: BTreeSet<u32>,
}

/// What is known at this look. A gateway that does not answer keeps its last reason. If it has none, the reason is that it does not answer.
pub fn hear(memory: &mut ReasonMemory, look: Option<&Look>, gateways: &[Gateway], now: Moment) -> NotReady {
    let absent: Vec<&Gateway> = gateways.iter().filter(|gateway| !gateway.is_ready).collect();
    if absent.is_empty() {
        *memory = ReasonMemory::default();
        return NotReady::default();
    }
    if let Some(look) = look.filter(|look| memory.at != Some(look.at)) {
        note(memory, look, &absent);
    }
    let lasts = |since: Moment| now.0.saturating_sub(since.0) >= STARTING_MAX_MS;
    let mut found = NotReady::default();
    for gateway in absent {
        match memory.heard.get(gateway) {
            Some(Heard { since, known: Known::Reason(words, table_error) }) if lasts(*since) => {
                found.reasons.insert(gateway.ordinal, words.clone());
                found.table_errors.extend(table_error.map(|error| (gateway.ordinal, error)));
            }
            Some(Heard { since, known: Known::Silence(words) }) if lasts(*since) => {
                found.reasons.insert(gateway.ordinal, words.clone());
            }
            Some(Heard { known: Known::NoReason | Known::Reason(..), .. }) => {}
            Some(Heard { known: Known::Silence(_), .. }) | None => {
                if gateway.unready_since.is_some_and(lasts) {
                    found.unheard.insert(gateway.ordinal);
                }
            }
        }
    }
    found
}

fn note(memory: &mut ReasonMemory, look: &Look, absent: &[&Gateway]) {
    let mut before = std::mem::take(&mut memory.heard);
    let after = absent.iter().filter_map(|gateway| {
        let before = before.remove(*gateway);
        let Some(said) = look.of(gateway) else { return Some(((*gateway).clone(), before?)) };
        let heard = match (&said.absence, before) {
            (Absence::Because(words), before) => {
                let since = match before {
                    Some(Heard { since, known: Known::Reason(..) }) => since,
                    Some(Heard { known: Known::NoReason, .. }) => look.at,
                    // Its first words: it may have had the reason for as long as it has not been ready.
                    Some(Heard { known: Known::Silence(_), .. }) | None => {
                        gateway.unready_since.map_or(look.at, |since| since.min(look.at))
                    }
                };
                Heard { since, known: Known::Reason(words.clone(), table_error(said)) }
            }
            (Absence::Silent, Some(known @ Heard { known: Known::Reason(..) | Known::Silence(_), .. })) => {
                known
            }
            (Absence::Silent, Some(Heard { known: Known::NoReason, .. }) | None) => {
                let words = gateway.silence(said.report.as_ref().err()?);
                Heard { since: look.at, known: Known::Silence(words) }
            }
            (Absence::None, _) => Heard { since: look.at, known: Known::NoReason },
        };
        Some(((*gateway).clone(), heard))
    });
    memory.heard = after.collect();
    memory.at = Some(look.at);
}

/// Why it cannot use the table, if its words are about that. One that drains says only that. With `source.otlp`, it waits for the table beside what its
/// words are about, and its inserts fail.
fn table_error(said: &Said) -> Option<&'static str> {
    let report = said.report.as_ref().ok().filter(|_| said.says != Says::Drains)?;
    let is_beside = report.insert_error.as_ref().is_some_and(InsertError::is_of_table);
    report.table_error.filter(|_| !is_beside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::gateways::Error;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;
    use std::time::Duration;

    /// Not ready since the first second of 1970.
    fn not_ready() -> Gateway {
        let pod = json!({
            "metadata": {"name": "prod-gateway-1", "namespace": "tracing", "uid": "one"},
            "status": {
                "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:01Z"}],
                "containerStatuses": [{"name": "gateway", "ready": false, "restartCount": 0, "image": "", "imageID": "",
                    "state": {"running": {"startedAt": "1970-01-01T00:00:00Z"}}}],
            },
        });
        Gateway::of(&serde_json::from_value::<Pod>(pod).unwrap()).unwrap()
    }

    fn look(at: u64, absence: Absence) -> Look {
        let address = "10.0.0.1:9090".parse().unwrap();
        let report = Err(Error::Timeout { address, path: "/state" });
        let (gateway, says) = (not_ready(), Says::Silent);
        let said = vec![Said { gateway, after: Duration::ZERO, absence, says, report }];
        Look { at: Moment(at), said }
    }

    fn heard(memory: &mut ReasonMemory, at: u64, absence: Absence) -> NotReady {
        hear(memory, Some(&look(at, absence)), &[not_ready()], Moment(at))
    }

    fn because(words: &str) -> Absence {
        Absence::Because(words.into())
    }

    #[test]
    fn a_gateway_that_never_answers_is_said_not_to_after_a_minute_and_its_own_words_count_more() {
        let mut memory = ReasonMemory::default();
        let mut heard_at = |at: u64, absence: Absence| heard(&mut memory, at, absence).reasons;
        assert!(heard_at(1_000, Absence::Silent).is_empty(), "it may have just started");
        let silent = heard_at(1_000 + STARTING_MAX_MS, Absence::Silent);
        assert!(silent[&1].contains("10.0.0.1:9090 and answers none"), "{silent:?}");
        assert!(silent[&1].contains("kubectl delete pod prod-gateway-1 -n tracing"), "{silent:?}");
        let waits = "waits for the table";
        assert_eq!(heard_at(70_000, because(waits))[&1], waits);
        assert_eq!(heard_at(80_000, Absence::Silent)[&1], waits);
        assert!(heard_at(90_000, Absence::None).is_empty());
        assert!(heard_at(95_000, because(waits)).is_empty(), "it has just come back to it");
        assert_eq!(heard_at(95_000 + STARTING_MAX_MS, because(waits))[&1], waits);
    }

    /// An operator that has just started knows of the kubelet how old a reason may be.
    #[test]
    fn the_reason_of_a_gateway_that_has_long_not_been_ready_is_told_when_it_is_first_heard() {
        let reason = "waits for the table";
        let young = heard(&mut ReasonMemory::default(), STARTING_MAX_MS, because(reason));
        assert_eq!(young, NotReady::default(), "it may just start");
        let old = heard(&mut ReasonMemory::default(), 1_000 + STARTING_MAX_MS, because(reason));
        assert_eq!(old.reasons.get(&1).map(String::as_str), Some(reason));
        assert_eq!(old.unheard, BTreeSet::new());
    }

    #[test]
    fn what_the_operator_has_not_asked_yet_is_not_known_and_so_is_the_first_minute_of_silence() {
        let mut memory = ReasonMemory::default();
        let all = [not_ready()];
        let (now, unheard) = (1_000 + STARTING_MAX_MS, BTreeSet::from([1]));
        assert_eq!(hear(&mut memory, None, &all, Moment(now - 1)), NotReady::default(), "it may just start");
        assert_eq!(hear(&mut memory, None, &all, Moment(now)).unheard, unheard);
        let silent = heard(&mut memory, now + 250, Absence::Silent);
        assert_eq!(silent, NotReady { unheard, ..NotReady::default() });
        let silent = heard(&mut memory, now + 250 + STARTING_MAX_MS, Absence::Silent);
        assert_eq!((silent.reasons.len(), silent.unheard.len()), (1, 0));
        let told = heard(&mut memory, now + 500 + STARTING_MAX_MS, because("waits for the table"));
        assert_eq!((told.reasons.len(), told.unheard.len()), (1, 0), "it has had it for as long");
        let none = heard(&mut memory, now + 750 + STARTING_MAX_MS, Absence::None);
        assert_eq!(none, NotReady::default(), "it takes part, or leaves");
    }
}
