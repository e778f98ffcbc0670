//! Whether added gateways are schedulable. Gateways that stay unschedulable are removed (`gate`) and not added again for a while, because
//! pods that wait for a node hold every other decision.

use super::{gate::Hold, sample::WorkloadSample, state::State};
use crate::ground::moment::Moment;

/// After unschedulable gateways were removed, nothing is added for so many seconds. Chosen: three times as long as a try holds every
/// other decision.
const NO_ROOM_SECONDS: u32 = 1_800;

/// The gateways that were added are unschedulable.
const WAITING: &str = "the gateways that were added last are unschedulable";
/// They were removed a short while ago.
const REFUSED: &str =
    "the gateways that were added last were unschedulable; the operator retries after 30 minutes";

/// Remembers that unschedulable gateways are removed, once for each try.
pub fn see_hold(now: Moment, hold: Hold, state: &mut State) {
    if hold == Hold::Unschedulable && !is_refused(now, state) {
        state.no_room_until = Some(now.plus_seconds(NO_ROOM_SECONDS));
    }
}

/// The reason against adding, also where memory would force it: an unschedulable gateway frees no memory.
pub fn against_more(now: Moment, workload: &WorkloadSample, state: &State) -> Option<&'static str> {
    if workload.unschedulable > state.given_up {
        Some(WAITING)
    } else if is_refused(now, state) {
        Some(REFUSED)
    } else {
        None
    }
}

/// Whether that is what keeps gateways from being added.
pub fn is_against(held_by: Option<&str>) -> bool {
    held_by.is_some_and(|held_by| held_by == WAITING || held_by == REFUSED)
}

/// The reason while gateways are starting, with the number of unschedulable ones.
pub fn with_waiting(words: String, hold: Hold, workload: &WorkloadSample) -> String {
    match (hold, workload.unschedulable) {
        (Hold::RolloutInProgress, waiting @ 1..) => format!("{words}; {waiting} of them are unschedulable"),
        _ => words,
    }
}

fn is_refused(now: Moment, state: &State) -> bool {
    state.no_room_until.is_some_and(|until| now < until)
}
