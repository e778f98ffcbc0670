//! Whether adding gateways helped: of the messages a second that they promised, how many came?

use super::{
    pace::CAUGHT_UP_SECONDS,
    sample::Moment,
    state::State,
    window::{LONG_SECONDS, Rates},
};

/// Less than this share of what was promised is in vain.
const EFFECT_MIN: f64 = 0.3;
/// In vain so many times in a row, and something else limits.
const IN_VAIN_MAX: u32 = 2;
/// Nothing is added for so many seconds then; one try follows.
const IN_VAIN_SECONDS: u32 = 900;

/// Judges the last addition once it had its time; gives whether nothing is to be added because it would be in vain.
pub fn judge(now: Moment, rates: &Rates, replicas: u32, state: &mut State) -> bool {
    let settled = state.settled_since.map_or(0.0, |since| now.seconds_since(since));
    if let (Some(trial), Some(capacity)) = (state.trial, state.capacity) {
        if trial.to != replicas || rates.lag_seconds() < CAUGHT_UP_SECONDS {
            // Caught up, or changed by somebody else: there is nothing left to blame it for.
            (state.trial, state.in_vain) = (None, 0);
        } else if settled >= f64::from(LONG_SECONDS) {
            let promised = f64::from(trial.to - trial.from.min(trial.to)) * capacity;
            let came = rates.processed - trial.processed;
            state.in_vain = if came < EFFECT_MIN * promised { state.in_vain + 1 } else { 0 };
            state.trial = None;
            if state.in_vain >= IN_VAIN_MAX {
                state.in_vain = IN_VAIN_MAX - 1;
                state.in_vain_until = Some(now.plus_seconds(IN_VAIN_SECONDS));
            }
        }
    }
    state.in_vain_until.is_some_and(|until| now < until)
}

#[cfg(test)]
mod tests {
    use super::{super::state::Trial, *};

    #[test]
    fn adding_twice_in_vain_stops_it_for_a_quarter_of_an_hour() {
        let mut state = State { capacity: Some(100.0), ..State::default() };
        let behind = Rates { arrival: 10.0, lag: 9_000.0, processed: 210.0, ..Rates::default() };
        let mut judge_at = |second: u64, processed| {
            let now = Moment(second * 1_000);
            state.settled_since = Some(Moment(now.0 - 200_000));
            state.trial = Some(Trial { from: 2, to: 4, processed });
            judge(now, &behind, 4, &mut state)
        };
        assert!(!judge_at(1_000, 200.0), "10 of 200 promised, once");
        assert!(!judge_at(2_000, 20.0), "190 of 200");
        assert!(!judge_at(3_000, 200.0));
        assert!(judge_at(4_000, 200.0), "twice");
        assert!(judge_at(4_899, 20.0));
        assert!(!judge_at(4_900, 20.0), "one try");
    }

    #[test]
    fn nothing_is_judged_when_there_is_nothing_to_do() {
        let trial = Some(Trial { from: 2, to: 4, processed: 200.0 });
        let mut state = State { capacity: Some(100.0), trial, in_vain: 1, ..State::default() };
        let idle = Rates { arrival: 10.0, lag: 9.0, processed: 200.0, ..Rates::default() };
        assert!(!judge(Moment(0), &idle, 4, &mut state));
        assert_eq!((state.trial, state.in_vain), (None, 0));
    }
}
