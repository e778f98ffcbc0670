//! Events about memory resizes in place: a gateway got more memory, or why it did not. Pure: two statuses in, events out.

use super::events::happened;
use crate::world::metrics::resizes::changed;
use kube::runtime::events::{Event, EventType};
use sluice_crds::{MemoryResize, MemoryResizeState as State};
use sluice_plan::size::resize::words;

/// One event for each state that gateways reached between two statuses, however many gateways reached it.
pub fn resize_events(before: &[MemoryResize], after: &[MemoryResize]) -> Vec<Event> {
    let changed: Vec<MemoryResize> = changed(before, after).cloned().collect();
    let of_state = |(state, reason, gravity): (State, &str, EventType)| {
        let those: Vec<MemoryResize> = changed.iter().filter(|entry| entry.state == state).cloned().collect();
        Some(happened(reason, gravity, &words(&those)?, "Resize"))
    };
    let events = [
        (State::Done, "MemoryResized", EventType::Normal),
        (State::Deferred, "MemoryResizeDeferred", EventType::Warning),
        (State::Infeasible, "MemoryResizeInfeasible", EventType::Warning),
        (State::Refused, "MemoryResizeRefused", EventType::Warning),
        (State::AtBound, "MemoryAtBound", EventType::Warning),
    ];
    events.into_iter().filter_map(of_state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(uid: &str, ends: u32, state: State) -> MemoryResize {
        let (pod, memory) = (format!("prod-gateway-{uid}"), "320Mi".to_owned());
        MemoryResize { pod, uid: uid.to_owned(), memory, ends, state, message: String::new() }
    }

    #[test]
    fn each_state_that_is_come_to_is_told_once() {
        let (asked, done) = (entry("0", 1, State::Asked), entry("0", 1, State::Done));
        let bound = entry("0", 2, State::AtBound);
        for (before, after, expected) in [
            (vec![], vec![asked.clone()], vec![]),
            (vec![asked], vec![done.clone()], vec!["MemoryResized"]),
            (vec![done.clone()], vec![done.clone()], vec![]),
            (vec![done.clone()], vec![bound.clone()], vec!["MemoryAtBound"]),
            (vec![bound.clone()], vec![entry("0", 3, State::AtBound)], vec!["MemoryAtBound"]),
            (vec![], vec![done, entry("1", 1, State::Done)], vec!["MemoryResized"]),
            (vec![bound], vec![], vec![]),
        ] {
            let events = resize_events(&before, &after);
            let reasons: Vec<_> = events.iter().map(|event| event.reason.as_str()).collect();
            assert_eq!(reasons, expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn an_event_says_who_was_given_how_much_and_how_to_keep_it() {
        let events = resize_events(&[], &[entry("2", 1, State::Done)]);
        assert_eq!(
            events[0].note.as_deref(),
            Some(
                "prod-gateway-2 was resized to 320Mi in place; set gateway.resources.limits.memory: 320Mi to keep it"
            )
        );
    }
}
