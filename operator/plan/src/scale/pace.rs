//! When to change the number: gateways are added when a need lasts, and removed when a surplus has lasted for much longer.

use super::{
    numbers,
    rescale::{self, Asked},
    state::State,
    steps, trial,
};
use crate::{ground::moment::Moment, pipeline::policy::Policy};

/// After a rescale has settled, nothing is added for so many seconds: rates still show the rescale.
const QUIET_SECONDS: f64 = 30.0;
/// A need that is late already, or of gateways that are full, lasts so many seconds: one poll, to see that it was no slip. Each second of
/// it is one more of lag.
const UP_AFTER_SECONDS_URGENT: u32 = 15;
/// Gateways that work for a larger share of their time are full.
const FULL: f64 = 0.95;
/// A need that is late already does not wait at all when gateways work for a larger share of their time: that is what they do when they
/// may again, as after an outage of ClickHouse. A gateway that waits for ClickHouse is not busy.
const WORKS: f64 = 0.5;
/// One decision takes away at most half: a mistake then costs half.
const DOWN_DIVISOR: u32 = 2;
/// The reason while the budget of rescales holds a change.
const USED_UP: &str = "the rescales of the last hour are used up";
/// The reason while a trial holds a change.
const ON_TRIAL: &str = "the gateways that were added last have not yet shown that they help";
/// A backlog younger than this is none.
pub const CAUGHT_UP_SECONDS: f64 = 30.0;

/// What is wanted, and what speaks against it.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    pub now: Moment,
    /// Windows and budget.
    pub policy: &'a Policy,
    /// Gateways that are worth having.
    pub steps: &'a [u32],
    /// Gateways now.
    pub current: u32,
    /// Gateways it takes.
    pub recommended: u32,
    /// What speaks against adding.
    pub against_more: Option<&'static str>,
    /// What speaks against taking away.
    pub against_fewer: Option<&'static str>,
    /// Gateways that it takes by load.
    pub by_load: u32,
    /// Gateways up to which memory forces it, 0 when it does not: these are kept back by no budget and no trial.
    pub by_memory: u32,
    /// Messages a second that are processed now.
    pub processed: f64,
    pub lag_seconds: f64,
    /// Share of the workers' time that is work.
    pub busy: f64,
    /// Whether gateways refuse requests: what is recommended may be too few then, and no surplus begins before it is over.
    pub refuses: bool,
}

/// What is done, and why not more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Gateways.
    pub replicas: u32,
    /// Why the recommendation is not followed, or not wholly, when it is not.
    pub held_by: Option<&'static str>,
    /// Whether the budget of rescales is what holds it.
    pub by_budget: bool,
    /// Whether memory adds gateways that load would not, or may not.
    pub by_memory: bool,
}

/// Follows the recommendation as far as it may.
pub fn follow(wish: &Wish<'_>, state: &mut State) -> Move {
    let least = if wish.refuses { wish.current } else { 0 };
    state.see_recommendation(wish.now, wish.recommended.max(least), wish.policy.down_after_seconds);
    let (wanted, held_by) = if wish.recommended > wish.current {
        more(wish, state)
    } else {
        state.rising = None;
        if wish.recommended < wish.current { fewer(wish, state) } else { (wish.current, None) }
    };
    let kept_back = kept_back(wish, wanted, state);
    let replicas = match kept_back {
        Some(_) if wanted > wish.current => wanted.min(wish.by_memory.max(wish.current)),
        Some(_) => wish.current,
        None => wanted,
    };
    let by_memory = replicas > wish.current && (kept_back.is_some() || replicas > wish.by_load);
    if replicas == wish.current {
        state.asked = None;
    } else {
        let (from, to, processed) = (wish.current, replicas, numbers::written(wish.processed));
        rescale::ask(state, Asked { from, to, processed, by_memory });
    }
    let kept_back = kept_back.filter(|_| replicas != wanted);
    Move { replicas, held_by: held_by.or(kept_back), by_budget: kept_back == Some(USED_UP), by_memory }
}

/// What keeps a change back that is due, but for what memory forces of it.
fn kept_back(wish: &Wish<'_>, wanted: u32, state: &State) -> Option<&'static str> {
    let budget = usize::try_from(wish.policy.rescales_per_hour).unwrap_or(usize::MAX);
    if wanted == wish.current {
        None
    } else if state.rescales.len() >= budget {
        Some(USED_UP)
    } else if wanted > wish.current && trial::holds(wish.now, state) {
        Some(ON_TRIAL)
    } else {
        None
    }
}

fn more(wish: &Wish<'_>, state: &mut State) -> (u32, Option<&'static str>) {
    if wish.against_more.is_some() {
        state.rising = None;
        return (wish.current, wish.against_more);
    }
    let fresh = super::state::Rising { since: wish.now, least: wish.recommended };
    let rising = state.rising.get_or_insert(fresh);
    rising.least = rising.least.min(wish.recommended);
    let is_late = wish.lag_seconds > wish.policy.catch_up_seconds;
    let after = if is_late && wish.busy > WORKS {
        0
    } else if is_late || wish.busy > FULL {
        wish.policy.up_after_seconds.min(UP_AFTER_SECONDS_URGENT)
    } else {
        wish.policy.up_after_seconds
    };
    let lasted = wish.now.seconds_since(rising.since) >= f64::from(after);
    let settled = state.rescales.is_empty()
        || state.settled_since.is_some_and(|since| wish.now.seconds_since(since) >= QUIET_SECONDS);
    if lasted && settled {
        (rising.least, None)
    } else {
        (wish.current, Some("the need has not lasted long enough"))
    }
}

/// What speaks against it is asked at the moment of the decision, not for as long as a surplus lasts: what a backlog takes is
/// part of what is recommended, so that a surplus is one that the backlog did not need either.
fn fewer(wish: &Wish<'_>, state: &State) -> (u32, Option<&'static str>) {
    if !wish.policy.down_enabled {
        return (wish.current, Some("scaling in is switched off"));
    }
    if wish.against_fewer.is_some() {
        return (wish.current, wish.against_fewer);
    }
    let most = state.falling(wish.now, wish.policy.down_after_seconds).filter(|most| *most < wish.current);
    let Some(most) = most else {
        return (wish.current, Some("the surplus has not lasted long enough"));
    };
    let least = wish.current.div_ceil(DOWN_DIVISOR);
    let target = steps::at_least(wish.steps, most.max(least));
    (target.min(wish.current), None)
}

#[cfg(test)]
mod tests {
    use super::{super::state::Trial, *};

    const STEPS: [u32; 9] = [1, 2, 3, 4, 5, 6, 8, 12, 24];

    fn wish(policy: &Policy, second: u64, current: u32, recommended: u32) -> Wish<'_> {
        let now = Moment(second * 1_000);
        let (against_more, against_fewer, by_load, by_memory) = (None, None, recommended, 0);
        let (processed, lag_seconds, busy) = (0.0, 0.0, 0.0);
        let steps = &STEPS;
        Wish {
            now,
            policy,
            steps,
            current,
            recommended,
            against_more,
            against_fewer,
            by_load,
            by_memory,
            processed,
            lag_seconds,
            busy,
            refuses: false,
        }
    }

    /// The workload has what was decided.
    fn carried_out(second: u64, desired: u32, state: &mut State) {
        rescale::see(Moment(second * 1_000), desired, state);
    }

    #[test]
    fn a_need_moves_after_30_s_to_the_least_that_it_was() {
        let (policy, mut state) = (Policy::default(), State::default());
        for (second, recommended, expected) in [(0, 8, 2), (15, 5, 2), (30, 6, 5)] {
            assert_eq!(
                follow(&wish(&policy, second, 2, recommended), &mut state).replicas,
                expected,
                "{second}"
            );
        }
        let mut state = State::default();
        for (second, recommended) in [(0, 8), (15, 2), (30, 8), (45, 8)] {
            assert_eq!(follow(&wish(&policy, second, 2, recommended), &mut state).replicas, 2, "{second}");
        }
    }

    #[test]
    fn a_need_that_is_late_moves_after_one_poll() {
        let (policy, mut state) = (Policy::default(), State::default());
        for (second, expected) in [(0, 2), (15, 8)] {
            let late = Wish { lag_seconds: 601.0, ..wish(&policy, second, 2, 8) };
            assert_eq!(follow(&late, &mut state).replicas, expected, "{second}");
        }
    }

    #[test]
    fn a_need_that_is_late_moves_at_once_when_gateways_work_and_nothing_speaks_against_it() {
        let policy = Policy::default();
        let late = Wish { lag_seconds: 601.0, busy: 0.9, ..wish(&policy, 0, 2, 8) };
        assert_eq!(follow(&late, &mut State::default()).replicas, 8);
        for held in [
            Wish { lag_seconds: 599.0, ..late },
            Wish { busy: 0.4, ..late },
            Wish { against_more: Some("so it is"), ..late },
        ] {
            assert_eq!(follow(&held, &mut State::default()).replicas, 2, "{held:?}");
        }
    }

    #[test]
    fn a_surplus_moves_after_10_min_and_at_most_halves() {
        let (policy, mut state) = (Policy::default(), State::default());
        for second in (0..600).step_by(15) {
            assert_eq!(follow(&wish(&policy, second, 24, 2), &mut state).replicas, 24, "{second}");
        }
        assert_eq!(follow(&wish(&policy, 600, 24, 2), &mut state).replicas, 12);
        carried_out(615, 12, &mut state);
        assert_eq!(follow(&wish(&policy, 615, 12, 2), &mut state).replicas, 12, "the window begins anew");
    }

    #[test]
    fn a_surplus_begins_when_nothing_is_refused_any_more() {
        let (policy, mut state) = (Policy::default(), State::default());
        for second in (0..=1_200).step_by(15) {
            let refuses = second <= 300;
            let moved = follow(&Wish { refuses, ..wish(&policy, second, 8, 2) }, &mut state);
            // The minute in which something was refused last counts as a whole.
            let expected = if second < 960 { 8 } else { 4 };
            assert_eq!(moved.replicas, expected, "{second}");
        }
    }

    #[test]
    fn the_budget_holds_all_but_what_memory_forces() {
        let policy = Policy { rescales_per_hour: 1, up_after_seconds: 0, ..Policy::default() };
        let mut state = State::default();
        assert_eq!(follow(&wish(&policy, 0, 2, 3), &mut state).replicas, 3);
        carried_out(15, 3, &mut state);
        state.settled_since = Some(Moment(30_000));
        assert!(follow(&wish(&policy, 60, 3, 4), &mut state).by_budget);
        // Memory forces as much as it needs, whether load wants as much, or more, or nothing.
        for (by_memory, by_load, recommended, expected) in
            [(4, 3, 4, 4), (4, 4, 4, 4), (4, 6, 6, 4), (0, 6, 6, 3)]
        {
            let forced = Wish { by_load, by_memory, ..wish(&policy, 75, 3, recommended) };
            let moved = follow(&forced, &mut State { rising: None, ..state.clone() });
            let held = moved.replicas < recommended;
            let expected = Move {
                replicas: expected,
                held_by: held.then_some(USED_UP),
                by_budget: held,
                by_memory: expected > 3,
            };
            assert_eq!(moved, expected, "{by_memory} {by_load}");
        }
    }

    #[test]
    fn a_trial_keeps_back_all_but_what_memory_forces() {
        let policy = Policy { up_after_seconds: 0, ..Policy::default() };
        let trial = Some(Trial { from: 1, to: 3, additions: 2, ..Trial::default() });
        let mut state = State { trial, settled_since: Some(Moment(0)), ..State::default() };
        let held = follow(&wish(&policy, 60, 3, 6), &mut state);
        assert_eq!((held.replicas, held.held_by, held.by_budget), (3, Some(ON_TRIAL), false));
        assert_eq!(follow(&Wish { by_memory: 4, ..wish(&policy, 75, 3, 6) }, &mut state).replicas, 4);
        carried_out(90, 4, &mut state);
        assert_eq!(state.trial, None);
    }

    #[test]
    fn what_speaks_against_it_holds_and_begins_the_window_anew() {
        let (policy, mut state) = (Policy::default(), State::default());
        follow(&wish(&policy, 0, 2, 3), &mut state);
        let against = Wish { against_more: Some("so it is"), ..wish(&policy, 15, 2, 3) };
        assert_eq!(
            follow(&against, &mut state),
            Move { replicas: 2, held_by: Some("so it is"), by_budget: false, by_memory: false }
        );
        assert_eq!(follow(&wish(&policy, 30, 2, 3), &mut state).replicas, 2);
        assert_eq!(follow(&wish(&policy, 60, 2, 3), &mut state).replicas, 3);
    }
}
