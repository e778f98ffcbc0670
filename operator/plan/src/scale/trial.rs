//! Whether adding gateways helped: how much of the expected throughput came?
//!
//! An addition is on trial for as long as rates are averaged. A growing load need not wait for the result: one more addition may follow,
//! and both are judged together, against the throughput before the first. More than two would be unsafe: gateways that look busy while
//! the total does not grow would ask for more and more gateways.

use super::{
    pace::CAUGHT_UP_SECONDS,
    state::{State, Trial},
    window::{LONG_SECONDS, Rates},
};
use crate::ground::moment::Moment;

/// An addition that brings less than this share of the promised throughput did not help.
const EFFECT_MIN: f64 = 0.3;
/// After this many additions in a row that did not help, something else limits throughput.
const IN_VAIN_MAX: u32 = 2;
/// Nothing is added for so many seconds then; one try follows.
const IN_VAIN_SECONDS: u32 = 900;

/// Puts an addition on trial, with the one that is on trial already if there is one.
pub fn begin(state: &mut State, added: Trial) {
    let chained = state.trial.filter(|open| open.to == added.from);
    state.trial = Some(match chained {
        Some(open) => Trial { to: added.to, additions: open.additions.saturating_add(1), ..open },
        None => added,
    });
}

/// Whether an addition must wait for the trial: if the trial fails, so many additions in a row have not helped that something else
/// limits.
pub fn holds(now: Moment, state: &State) -> bool {
    let Some(trial) = state.trial else { return false };
    state.in_vain + trial.additions >= IN_VAIN_MAX && !is_due(now, state)
}

/// Judges the last additions once their time is over. Returns whether more gateways would not help.
pub fn judge(now: Moment, rates: &Rates, replicas: u32, state: &mut State) -> bool {
    let is_changed = state.trial.is_some_and(|trial| trial.to != replicas);
    if is_changed || rates.lag_seconds() < CAUGHT_UP_SECONDS {
        // The lag is gone, or another client changed the number: there is nothing to judge.
        (state.trial, state.in_vain) = (None, 0);
    } else if let (Some(trial), Some(capacity), true) =
        (state.trial, state.capacity, is_due(now, state) && sees_all(rates, replicas, state))
    {
        let promised = f64::from(trial.to - trial.from.min(trial.to)) * capacity;
        let came = rates.processed - trial.processed;
        state.trial = None;
        state.in_vain = if came < EFFECT_MIN * promised { state.in_vain + trial.additions } else { 0 };
        if state.in_vain >= IN_VAIN_MAX {
            state.in_vain = IN_VAIN_MAX - 1;
            state.in_vain_until = Some(now.plus_seconds(IN_VAIN_SECONDS));
        }
    }
    state.in_vain_until.is_some_and(|until| now < until)
}

/// Whether every gateway was seen at work: what one does that was not seen twice is in no sum.
fn sees_all(rates: &Rates, replicas: u32, state: &State) -> bool {
    let seen = u32::try_from(rates.pods.len()).unwrap_or(u32::MAX);
    seen.saturating_add(state.given_up).saturating_add(state.absent) >= replicas
}

/// Whether rates are of the time since the last addition alone.
fn is_due(now: Moment, state: &State) -> bool {
    state.settled_since.is_some_and(|since| now.seconds_since(since) >= f64::from(LONG_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::{super::window::PodRates, *};

    fn trial(from: u32, to: u32) -> Trial {
        Trial { from, to, ..Trial::default() }
    }

    #[test]
    fn adding_twice_in_vain_stops_it_for_a_quarter_of_an_hour() {
        let mut state = State { capacity: Some(100.0), ..State::default() };
        let behind =
            Rates { arrival: 10.0, lag: 9_000.0, processed: 210.0, pods: seen(4), ..Rates::default() };
        let mut judge_at = |second: u64, processed| {
            let now = Moment(second * 1_000);
            state.settled_since = Some(Moment(now.0 - 200_000));
            state.trial = Some(Trial { processed, ..trial(2, 4) });
            judge(now, &behind, 4, &mut state)
        };
        assert!(!judge_at(1_000, 200.0), "10 of 200 promised, once");
        assert!(!judge_at(2_000, 20.0), "190 of 200");
        assert!(!judge_at(3_000, 200.0));
        assert!(judge_at(4_000, 200.0), "twice");
        assert!(judge_at(4_899, 20.0));
        assert!(!judge_at(4_900, 20.0), "one try");
    }

    /// As many as there are, each seen at work.
    fn seen(gateways: usize) -> Vec<PodRates> {
        vec![PodRates::default(); gateways]
    }

    #[test]
    fn nothing_is_judged_while_a_gateway_is_not_seen() {
        let trial = Some(Trial { processed: 200.0, ..trial(2, 4) });
        let mut state = State { capacity: Some(100.0), trial, ..State::default() };
        state.settled_since = Some(Moment(0));
        let mut behind = Rates { arrival: 10.0, lag: 9_000.0, pods: seen(3), ..Rates::default() };
        assert!(!judge(Moment(200_000), &behind, 4, &mut state) && state.trial == trial);
        state.absent = 1;
        let mut beside_one_that_is_absent = state.clone();
        judge(Moment(215_000), &behind, 4, &mut beside_one_that_is_absent);
        assert_eq!((beside_one_that_is_absent.trial, beside_one_that_is_absent.in_vain), (None, 1));
        (behind.pods, state.absent) = (seen(4), 0);
        judge(Moment(215_000), &behind, 4, &mut state);
        assert_eq!((state.trial, state.in_vain), (None, 1));
    }

    #[test]
    fn nothing_is_judged_when_there_is_nothing_to_do() {
        let trial = Some(Trial { processed: 200.0, ..trial(2, 4) });
        let mut state = State { capacity: Some(100.0), trial, in_vain: 1, ..State::default() };
        let idle = Rates { arrival: 10.0, lag: 9.0, processed: 200.0, ..Rates::default() };
        assert!(!judge(Moment(0), &idle, 4, &mut state));
        assert_eq!((state.trial, state.in_vain), (None, 0));
    }

    #[test]
    fn two_additions_are_judged_together_by_what_was_before_both() {
        for (processed, expected) in [(200.0, true), (379.0, true), (381.0, false)] {
            let mut state = State { capacity: Some(100.0), ..State::default() };
            begin(&mut state, Trial { processed: 200.0, ..trial(2, 4) });
            assert!(!holds(Moment(0), &state), "one more may follow");
            begin(&mut state, Trial { processed: 290.0, ..trial(4, 8) });
            assert_eq!(state.trial, Some(Trial { processed: 200.0, additions: 2, ..trial(2, 8) }));
            state.settled_since = Some(Moment(0));
            let behind = Rates { arrival: 10.0, lag: 9_000.0, processed, pods: seen(8), ..Rates::default() };
            for second in [0, 179] {
                let now = Moment(second * 1_000);
                assert!(!judge(now, &behind, 8, &mut state) && holds(now, &state), "{second}");
            }
            assert_eq!(
                judge(Moment(180_000), &behind, 8, &mut state),
                expected,
                "{processed} of 600 promised"
            );
            assert_eq!(state.trial, None);
        }
    }

    #[test]
    fn what_is_on_trial_but_cannot_be_judged_holds_no_longer_than_a_trial() {
        let mut state = State { settled_since: Some(Moment(0)), ..State::default() };
        state.trial = Some(Trial { additions: 2, ..trial(2, 8) });
        assert!(holds(Moment(179_000), &state) && !holds(Moment(180_000), &state));
    }

    #[test]
    fn a_trial_that_another_version_wrote_is_one_addition() {
        let written = r#"{"from": 2, "to": 4, "processed": 200.0}"#;
        assert_eq!(
            serde_json::from_str::<Trial>(written).unwrap(),
            Trial { processed: 200.0, ..trial(2, 4) }
        );
    }
}
