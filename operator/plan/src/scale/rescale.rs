//! A change of the number of gateways, from the decision until the workload is seen to have it.
//!
//! A decision may not be carried out: the API server refuses it, another client sets the number, or a volume prevents it. Then no
//! partition has moved. So it counts as no rescale, takes nothing of the hour's budget, and starts no trial.

use super::{
    state::{State, Trial},
    trial,
};
use crate::ground::moment::Moment;
use serde::{Deserialize, Serialize};

/// What was decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Asked {
    /// Gateways there were.
    pub from: u32,
    /// Gateways there are to be.
    pub to: u32,
    /// Messages a second that they processed.
    pub processed: f64,
    /// Whether memory asked for it, which is on no trial.
    pub by_memory: bool,
}

/// Records a decision. The same decision again changes nothing: every poll repeats it until the workload has the number.
pub fn ask(state: &mut State, asked: Asked) {
    let again = |before: &Asked| {
        (before.from, before.to, before.by_memory) == (asked.from, asked.to, asked.by_memory)
    };
    if !state.asked.as_ref().is_some_and(again) {
        state.asked = Some(asked);
    }
}

/// Checks whether the workload has the decided number, and records what was carried out of it, wholly or in part.
pub fn see(now: Moment, desired: u32, state: &mut State) {
    let Some(Asked { from, to, processed, by_memory }) = state.asked.filter(|asked| asked.from != desired)
    else {
        return;
    };
    state.asked = None;
    if !(from.min(to)..=from.max(to)).contains(&desired) {
        // Another client has set this number.
        return;
    }
    state.see_rescale(now);
    if desired > from && !by_memory {
        trial::begin(state, Trial { from, to: desired, processed, ..Trial::default() });
    } else {
        state.trial = None;
    }
    state.memory_steps += u32::from(by_memory);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked { from: 4, to: 8, processed: 90.0, by_memory: false };

    #[test]
    fn a_rescale_is_booked_when_the_workload_has_it_and_once() {
        let mut state = State::default();
        ask(&mut state, ASKED);
        for second in 0..60 {
            see(Moment(second * 1_000), 4, &mut state);
            ask(&mut state, Asked { processed: 70.0, ..ASKED });
        }
        assert_eq!(
            (state.rescales.len(), state.trial, state.asked),
            (0, None, Some(ASKED)),
            "not carried out"
        );
        see(Moment(60_000), 8, &mut state);
        let trial = Trial { from: 4, to: 8, processed: 90.0, ..Trial::default() };
        assert_eq!(
            (&state.rescales[..], state.trial, state.asked),
            (&[Moment(60_000)][..], Some(trial), None)
        );
        see(Moment(75_000), 8, &mut state);
        assert_eq!(state.rescales.len(), 1);
    }

    #[test]
    fn as_much_as_was_carried_out_is_booked_and_nothing_of_somebody_elses() {
        for (desired, expected) in [(6, Some(6)), (8, Some(8)), (9, None), (3, None)] {
            let mut state = State { asked: Some(ASKED), ..State::default() };
            see(Moment(0), desired, &mut state);
            assert_eq!(state.trial.map(|trial| trial.to), expected, "{desired}");
            assert_eq!(
                (state.rescales.len(), state.asked),
                (usize::from(expected.is_some()), None),
                "{desired}"
            );
        }
    }

    #[test]
    fn what_memory_forces_counts_once_it_is_there() {
        let mut state = State { asked: Some(Asked { by_memory: true, ..ASKED }), ..State::default() };
        see(Moment(0), 4, &mut state);
        assert_eq!(state.memory_steps, 0);
        see(Moment(0), 8, &mut state);
        assert_eq!((state.memory_steps, state.trial), (1, None));
    }
}
