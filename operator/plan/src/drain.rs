//! How gateways are removed: the operator asks them to drain, waits until they hold nothing, and only then lowers `replicas`.
//!
//! ```text
//!            fewer are wanted                     all are empty, or the timeout is over and they are forced
//!  (none) -------------------> Draining ------------------------------------> fewer replicas --> (none)
//!    ^                            |  \ the timeout is over, or one of them does not run
//!    |   all read again           |   `-----> Waiting (they read again) -------+ after the same time, or once all of them run;
//!    +---------------- Resuming <-+ more are wanted                            | or when another number is wanted
//!                         ^----------------------------------------------------+
//! ```
//!
//! With `source.otlp`, only a gateway empties its volume. While one of those that are to leave does not run ([`stopped`]), the operator asks none
//! of them to drain, since none could leave: a StatefulSet removes the highest number first. Also a gateway that said that it is empty, and then
//! stopped, counts as one that may hold requests: it may have run again in between, and accepted some.
//!
//! The pipeline's status has the state. The status names a request before a gateway gets it. So an operator that
//! crashed finds, at any step, every gateway that may have been asked to drain. All requests may be repeated. Pure: no clock and no
//! client.

pub mod lifecycle;
pub mod membership;
mod seen;
pub mod stopped;
pub mod undrain;
mod words;

pub use crate::pipeline::drain_terms::Terms;
pub use seen::{Answer, Seen};
pub(crate) use words::in_words;

use crate::ground::{
    moment::Moment,
    words::{form, plural},
};
use sluice_crds::{DrainOutcome, DrainState, DrainStatus, OnTimeout};
use std::{collections::BTreeMap, ops::Range};
use words::{gone, named, waits_for};

/// A gateway that has not answered for so many seconds after a drain began is named, and one that has not run for as long is waited for. Chosen:
/// several times the operator's look at a drain, so that the reason does not change while the first answers come.
const SILENT_SECONDS: u32 = 30;

/// Gateways that answered a request to drain with [`Answer::Done`]: they hold nothing and can read all of their volumes. The same answer to
/// a request to resume does not show that.
pub fn empty(written: Option<&DrainStatus>, answers: &BTreeMap<u32, Answer>) -> Vec<u32> {
    let is_asked = matches!(request(written), Some((Request::Drain, _)));
    let done = answers.iter().filter(|(_, answer)| is_asked && **answer == Answer::Done);
    done.map(|(ordinal, _)| *ordinal).collect()
}

/// A request to gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Leave the consumer group, insert what is held.
    Drain,
    /// Join the consumer group again.
    Resume,
}

/// What the operator does now, and what it writes into the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Replicas to set.
    pub replicas: u32,
    /// The next state; `None` when no gateway drains.
    pub next: Option<DrainStatus>,
}

/// The request that is sent now, and the gateways that get it, by the state in the status alone.
pub fn request(written: Option<&DrainStatus>) -> Option<(Request, Range<u32>)> {
    let written = written?;
    let request = match written.state {
        DrainState::Draining => Request::Drain,
        DrainState::Resuming | DrainState::Waiting => Request::Resume,
    };
    Some((request, written.target..written.from))
}

/// The next step.
pub fn step(now: Moment, terms: Terms, written: Option<&DrainStatus>, seen: &Seen) -> Step {
    match written {
        None => begin(now, seen),
        Some(drain) => match drain.state {
            DrainState::Draining if seen.current <= drain.target => leaving(now, drain, seen),
            DrainState::Draining => draining(now, terms, drain, seen),
            DrainState::Resuming => resuming(now, terms, drain, seen),
            DrainState::Waiting => waiting(now, terms, drain, seen),
        },
    }
}

fn begin(now: Moment, seen: &Seen) -> Step {
    let leaving = seen.wanted..seen.current;
    let mut waited_for = seen.running.iter().chain(&seen.away).chain(seen.stopped.keys());
    if !waited_for.any(|ordinal| leaving.contains(ordinal)) {
        return Step { replicas: seen.wanted, next: None };
    }
    let (state, reason) = if seen.has_stopped(leaving.clone()) {
        (DrainState::Waiting, waits_for(seen.stopped_of(leaving), false))
    } else {
        let leaving = plural(leaving.len(), "gateway");
        (DrainState::Draining, format!("the drain of {leaving} is about to begin"))
    };
    let (target, from, since) = (seen.wanted, seen.current, now.time());
    let drain = DrainStatus { state, target, from, since, reason, outcome: None };
    Step { replicas: seen.current, next: Some(drain) }
}

/// `replicas` is lowered, and pods still end. If more gateways are wanted meanwhile, some of the drained ones stay and resume.
fn leaving(now: Moment, drain: &DrainStatus, seen: &Seen) -> Step {
    let is_there = seen.running.iter().any(|ordinal| (drain.target..drain.from).contains(ordinal));
    if !is_there {
        return begin(now, seen);
    }
    if seen.wanted > drain.target {
        let next = changed(drain, DrainState::Resuming, now, back(drain, seen));
        return Step { replicas: seen.wanted, next: Some(next) };
    }
    Step { replicas: seen.current, next: Some(drain.clone()) }
}

fn draining(now: Moment, terms: Terms, drain: &DrainStatus, seen: &Seen) -> Step {
    let stay = |drain| Step { replicas: seen.current.max(seen.wanted), next: Some(drain) };
    if seen.wanted > drain.target {
        return stay(changed(drain, DrainState::Resuming, now, back(drain, seen)));
    }
    if seen.wanted < drain.target || seen.current > drain.from {
        // The additional gateways get the request once the status has this, and have the whole timeout. `current` is larger than `from` if
        // gateways were added and the operator crashed before it wrote that.
        return stay(DrainStatus {
            target: seen.wanted,
            from: seen.current.max(drain.from),
            since: now.time(),
            outcome: None,
            ..drain.clone()
        });
    }
    let leaving = drain.target..drain.from;
    if seen.has_stopped(leaving.clone()) {
        return stay(changed(drain, DrainState::Waiting, now, waits_for(seen.stopped_of(leaving), false)));
    }
    let since_seconds = now.seconds_since(Moment::of(&drain.since));
    let late = since_seconds >= f64::from(terms.timeout_seconds);
    let held = held(drain, seen);
    // A gateway that did not run during the whole timeout never got the request, whether or not the group still counts it.
    let none_runs =
        held.iter().all(|(ordinal, answer)| *answer == Answer::Away && seen.stopped(*ordinal).is_none());
    // With `Job` their volumes stay, and Jobs drain them.
    let goes_all_the_same =
        late && (none_runs || matches!(terms.on_timeout, OnTimeout::Force | OnTimeout::Job));
    if held.is_empty() || goes_all_the_same {
        let outcome = Some(outcome(&held, seen, leaving.clone()));
        let reason = gone(&held, seen, leaving, terms.on_timeout);
        return Step { replicas: drain.target, next: Some(DrainStatus { reason, outcome, ..drain.clone() }) };
    }
    if late {
        let reason = format!("not empty after {} s: {}", terms.timeout_seconds, named(&held, seen));
        let waiting = changed(drain, DrainState::Waiting, now, reason);
        return stay(DrainStatus { outcome: Some(DrainOutcome::TimedOut), ..waiting });
    }
    let mut reason = format!("{} of {} are empty", leaving.len() - held.len(), leaving.len());
    // A person may have to act for these.
    let is_named = |(ordinal, answer): &(u32, Answer)| {
        matches!(answer, Answer::Silent | Answer::OtherPod | Answer::Unreadable)
            || seen.stopped(*ordinal).is_some()
    };
    let late_ones: Vec<_> = held.into_iter().filter(is_named).collect();
    if since_seconds >= f64::from(SILENT_SECONDS) && !late_ones.is_empty() {
        reason = format!("{reason}: {}", named(&late_ones, seen));
    }
    stay(DrainStatus { reason, outcome: None, ..drain.clone() })
}

/// Waits until every gateway that was asked to drain reads again; before that, `replicas` is not lowered. If some do not answer until the
/// timeout, and fewer gateways are wanted, they are asked to drain once more.
fn resuming(now: Moment, terms: Terms, drain: &DrainStatus, seen: &Seen) -> Step {
    let replicas = seen.current.max(seen.wanted);
    let held = held(drain, seen);
    if held.is_empty() {
        // The next step, after the status has this, compares the numbers again.
        return Step { replicas, next: None };
    }
    let since = now.seconds_since(Moment::of(&drain.since));
    let is_late = drain.state == DrainState::Resuming && since >= f64::from(terms.timeout_seconds);
    // Only if none of the drained gateways is to stay: one that does not answer would stay drained.
    if is_late && seen.wanted <= drain.target && seen.wanted < seen.current {
        let silent = named(&held, seen);
        let reason = format!("asked again to drain; not back after {} s: {silent}", terms.timeout_seconds);
        let again = changed(drain, DrainState::Draining, now, reason);
        let from = seen.current.max(drain.from);
        return Step { replicas, next: Some(DrainStatus { target: seen.wanted, from, ..again }) };
    }
    Step { replicas, next: Some(changed(drain, DrainState::Resuming, now, drain.reason.clone())) }
}

/// Waits for as long as one of them does not run; else for the timeout, if that was over before. Without an outcome, it waited for one that
/// did not run.
fn waiting(now: Moment, terms: Terms, drain: &DrainStatus, seen: &Seen) -> Step {
    let late = now.seconds_since(Moment::of(&drain.since)) >= f64::from(terms.timeout_seconds);
    let is_wanted = seen.wanted == drain.target;
    let mut stopped = seen.stopped_of(drain.target..drain.from).peekable();
    if is_wanted && stopped.peek().is_some() {
        let (reason, outcome) = (waits_for(stopped, late), late.then_some(DrainOutcome::TimedOut));
        return Step { replicas: seen.current, next: Some(DrainStatus { reason, outcome, ..drain.clone() }) };
    }
    if late || drain.outcome.is_none() || !is_wanted {
        return resuming(now, terms, drain, seen);
    }
    Step { replicas: seen.current, next: Some(drain.clone()) }
}

/// Gateways that have not carried out the request, with their answers. One that does not run, and whose volume only it can empty, has not
/// drained.
fn held(drain: &DrainStatus, seen: &Seen) -> Vec<(u32, Answer)> {
    let asked = (drain.target..drain.from)
        .map(|ordinal| (ordinal, seen.answers.get(&ordinal).copied().unwrap_or(Answer::Silent)));
    let is_stopped = |ordinal: u32, answer: Answer| {
        drain.state == DrainState::Draining && answer == Answer::Gone && seen.stopped(ordinal).is_some()
    };
    asked.filter(|(ordinal, answer)| !answer.lets_go() || is_stopped(*ordinal, *answer)).collect()
}

fn changed(drain: &DrainStatus, state: DrainState, now: Moment, reason: String) -> DrainStatus {
    let since = if drain.state == state { drain.since.clone() } else { now.time() };
    DrainStatus { state, since, reason, outcome: None, ..drain.clone() }
}

/// Why gateways that drain are to read again.
fn back(drain: &DrainStatus, seen: &Seen) -> String {
    let (wanted, are) = (plural(seen.wanted, "gateway"), form(seen.wanted, "is", "are"));
    format!("{wanted} {are} wanted by now, and not {}", drain.target)
}

fn outcome(held: &[(u32, Answer)], seen: &Seen, mut leaving: Range<u32>) -> DrainOutcome {
    if !held.is_empty() {
        DrainOutcome::TimedOut
    } else if leaving.all(|ordinal| seen.answers.get(&ordinal) == Some(&Answer::Done)) {
        DrainOutcome::Empty
    } else {
        DrainOutcome::Unconfirmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { timeout_seconds: 60, on_timeout: OnTimeout::Abort };

    fn seen(current: u32, wanted: u32, answers: &[(u32, Answer)]) -> Seen {
        Seen {
            current,
            wanted,
            running: (0..current).collect(),
            away: Vec::new(),
            answers: answers.iter().copied().collect(),
            stopped: BTreeMap::new(),
            has_kafka: true,
        }
    }

    fn drain(state: DrainState, target: u32, from: u32) -> DrainStatus {
        DrainStatus { state, target, from, since: Moment(0).time(), reason: String::new(), outcome: None }
    }

    #[test]
    fn gateways_leave_once_all_of_them_are_empty() {
        let begun = step(Moment(0), TERMS, None, &seen(4, 2, &[]));
        assert_eq!((begun.replicas, request(begun.next.as_ref())), (4, Some((Request::Drain, 2..4))));
        let holds = Answer::Holds { blocks: 7 };
        for (answers, replicas) in [
            (vec![], 4),
            (vec![(2, Answer::Done)], 4),
            (vec![(2, Answer::Done), (3, holds)], 4),
            (vec![(2, Answer::Done), (3, Answer::Silent)], 4),
            (vec![(2, Answer::Done), (3, Answer::Done)], 2),
            (vec![(2, Answer::Gone), (3, Answer::Unknown)], 2),
        ] {
            let done = step(Moment(59_000), TERMS, begun.next.as_ref(), &seen(4, 2, &answers));
            assert_eq!(done.replicas, replicas, "{answers:?}");
            let outcome = match (replicas, &answers[..]) {
                (4, _) => None,
                (_, [(_, Answer::Done), (_, Answer::Done)]) => Some(DrainOutcome::Empty),
                _ => Some(DrainOutcome::Unconfirmed),
            };
            assert_eq!(done.next.as_ref().unwrap().outcome, outcome, "{answers:?}");
            assert!(done.next.is_some(), "what was begun is written until it is seen to be over");
        }
        assert_eq!(
            step(Moment(0), TERMS, begun.next.as_ref(), &seen(2, 2, &[])),
            Step { replicas: 2, next: None }
        );
    }

    #[test]
    fn an_older_gateway_is_taken_away_and_that_is_said() {
        let begun = drain(DrainState::Draining, 1, 2);
        let done = step(Moment(0), TERMS, Some(&begun), &seen(2, 1, &[(1, Answer::Unknown)]));
        assert!(done.next.unwrap().reason.starts_with("1 gateway of an older version cannot drain"));
    }

    #[test]
    fn empty_is_who_said_so_when_it_was_told_to_leave() {
        let answers =
            [(0, Answer::Done), (1, Answer::Gone), (2, Answer::Damaged), (3, Answer::Unknown)].into();
        assert_eq!(empty(Some(&drain(DrainState::Draining, 0, 4)), &answers), [0]);
        for written in [None, Some(drain(DrainState::Waiting, 0, 4)), Some(drain(DrainState::Resuming, 0, 4))]
        {
            assert!(empty(written.as_ref(), &answers).is_empty(), "{written:?}");
        }
    }

    #[test]
    fn without_pods_nobody_is_waited_for() {
        let none = Seen { running: vec![0], ..seen(3, 1, &[]) };
        assert_eq!(step(Moment(0), TERMS, None, &none), Step { replicas: 1, next: None });
    }

    #[test]
    fn one_that_the_group_still_waits_for_has_not_left() {
        let ends = Seen { running: vec![0, 1], away: vec![3], ..seen(4, 2, &[]) };
        let begun = step(Moment(0), TERMS, None, &ends);
        assert_eq!((begun.replicas, request(begun.next.as_ref())), (4, Some((Request::Drain, 2..4))));
        let away = Seen { answers: [(2, Answer::Gone), (3, Answer::Away)].into(), ..ends };
        let waited = step(Moment(0), TERMS, begun.next.as_ref(), &away);
        assert_eq!(waited.replicas, 4);
        let late = step(Moment(60_000), TERMS, waited.next.as_ref(), &away);
        let reason = late.next.unwrap().reason;
        let expected =
            "removed before they were empty: gateway 3, which ended, has not said that it is empty";
        assert_eq!((late.replicas, reason.as_str()), (2, expected), "a pod may be made and end for ever");
        let mut one_runs = away.clone();
        one_runs.answers.insert(2, Answer::Silent);
        assert_eq!(step(Moment(60_000), TERMS, waited.next.as_ref(), &one_runs).replicas, 4);
        let stays = Seen { away: vec![1], ..away };
        assert_eq!(step(Moment(0), TERMS, None, &stays), Step { replicas: 2, next: None });
    }

    #[test]
    fn a_need_ends_it_and_is_met_at_once() {
        for (wanted, replicas) in [(3, 4), (4, 4), (6, 6)] {
            let done = step(
                Moment(0),
                TERMS,
                Some(&drain(DrainState::Draining, 2, 4)),
                &seen(4, wanted, &[(2, Answer::Done), (3, Answer::Done)]),
            );
            assert_eq!(done.replicas, replicas);
            assert_eq!(request(done.next.as_ref()), Some((Request::Resume, 2..4)));
        }
    }

    #[test]
    fn a_gateway_that_does_not_answer_for_long_is_named() {
        let (begun, seen) = (drain(DrainState::Draining, 2, 4), seen(4, 2, &[(2, Answer::Done)]));
        let said =
            |second: u64| step(Moment(second * 1_000), TERMS, Some(&begun), &seen).next.unwrap().reason;
        assert_eq!(said(29), "1 of 2 are empty");
        assert_eq!(said(30), "1 of 2 are empty: gateway 3 does not answer the operator on port 9091");
        let seen = Seen { answers: [(2, Answer::Done), (3, Answer::OtherPod)].into(), ..seen };
        let said =
            |second: u64| step(Moment(second * 1_000), TERMS, Some(&begun), &seen).next.unwrap().reason;
        assert_eq!(said(29), "1 of 2 are empty");
        let expected = "1 of 2 are empty: another pod answers at the address of gateway 3: compare";
        assert!(said(30).starts_with(expected), "{}", said(30));
    }

    #[test]
    fn what_takes_too_long_stays_or_is_forced() {
        let (begun, late) = (drain(DrainState::Draining, 2, 4), seen(4, 2, &[(2, Answer::Done)]));
        let aborted = step(Moment(60_000), TERMS, Some(&begun), &late);
        let waiting = aborted.next.unwrap();
        assert_eq!((aborted.replicas, waiting.state), (4, DrainState::Waiting));
        assert_eq!(
            waiting.reason,
            "not empty after 60 s: gateway 3 does not answer the operator on port 9091"
        );
        for (on_timeout, said) in [(OnTimeout::Force, ""), (OnTimeout::Job, ", and their volumes stay")] {
            let forced = Terms { on_timeout, ..TERMS };
            assert_eq!(step(Moment(59_000), forced, Some(&begun), &late).replicas, 4);
            let gone = step(Moment(60_000), forced, Some(&begun), &late);
            let reason = format!(
                "removed before they were empty{said}: gateway 3 does not answer the operator on port 9091"
            );
            let next = gone.next.unwrap();
            assert_eq!((gone.replicas, &next.reason), (2, &reason));
            assert_eq!(next.outcome, Some(DrainOutcome::TimedOut));
            // More are wanted while their pods end: what was known of them does not count any more.
            let back = step(
                Moment(60_000),
                forced,
                Some(&next),
                &Seen { running: vec![0, 1, 2], ..seen(2, 3, &[]) },
            );
            let back = back.next.unwrap();
            assert_eq!((back.state, back.outcome), (DrainState::Resuming, None));
            assert_eq!(back.reason, "3 gateways are wanted by now, and not 2");
        }
        // It is tried again after the same time, once all take part.
        let taking_part = seen(4, 2, &[(2, Answer::Done), (3, Answer::Done)]);
        let still = step(Moment(119_000), TERMS, Some(&waiting), &taking_part);
        assert_eq!(still.next.as_ref(), Some(&waiting));
        assert_eq!(
            step(Moment(120_000), TERMS, Some(&waiting), &taking_part),
            Step { replicas: 4, next: None }
        );
    }

    #[test]
    fn who_does_not_say_that_it_is_back_holds_up_nobody_for_ever() {
        let resuming = drain(DrainState::Resuming, 2, 4);
        let silent = |wanted| seen(4, wanted, &[(3, Answer::Done)]);
        // If any of the drained gateways is to stay, the request to resume is repeated without a limit.
        for (seconds, wanted) in
            [0, 59, 60, 9_999].into_iter().flat_map(|seconds| [(seconds, 3), (seconds, 4)])
        {
            let still = step(Moment(seconds * 1_000), TERMS, Some(&resuming), &silent(wanted));
            assert_eq!(still.next.as_ref(), Some(&resuming), "{seconds} {wanted}");
        }
        let in_time = step(Moment(59_000), TERMS, Some(&resuming), &silent(1));
        assert_eq!((in_time.replicas, in_time.next.as_ref()), (4, Some(&resuming)));
        let again = step(Moment(60_000), TERMS, Some(&resuming), &silent(1));
        let next = again.next.unwrap();
        assert_eq!((again.replicas, request(Some(&next))), (4, Some((Request::Drain, 1..4))));
        assert_eq!(next.since, Moment(60_000).time());
        assert_eq!(
            next.reason,
            "asked again to drain; not back after 60 s: gateway 2 does not answer the operator on port 9091"
        );
        let forced = Terms { on_timeout: OnTimeout::Force, ..TERMS };
        assert_eq!(step(Moment(120_000), forced, Some(&next), &silent(1)).replicas, 1);
        // One that has just begun to wait for that has its time, however long it stood before.
        let waiting = drain(DrainState::Waiting, 2, 4);
        let begun = step(Moment(60_000), TERMS, Some(&waiting), &silent(1)).next.unwrap();
        assert_eq!((begun.state, begun.since), (DrainState::Resuming, Moment(60_000).time()));
    }

    #[test]
    fn who_is_told_later_has_as_long() {
        let begun = drain(DrainState::Draining, 2, 4);
        let more = step(Moment(59_000), TERMS, Some(&begun), &seen(4, 0, &[])).next.unwrap();
        assert_eq!((more.target, more.from, more.since.clone()), (0, 4, Moment(59_000).time()));
        let forced = Terms { on_timeout: OnTimeout::Force, ..TERMS };
        assert_eq!(step(Moment(118_000), forced, Some(&more), &seen(4, 0, &[])).replicas, 4);
        assert_eq!(step(Moment(119_000), forced, Some(&more), &seen(4, 0, &[])).replicas, 0);
    }

    #[test]
    fn gateways_that_were_added_without_a_word_are_told_to_leave_too() {
        let all = [(1, Answer::Done)];
        let done = step(Moment(0), TERMS, Some(&drain(DrainState::Draining, 1, 2)), &seen(5, 1, &all));
        assert_eq!((done.replicas, request(done.next.as_ref())), (5, Some((Request::Drain, 1..5))));
    }

    #[test]
    fn a_number_that_rises_while_they_leave_keeps_nobody_drained() {
        let begun = drain(DrainState::Draining, 2, 4);
        let still_there = Seen { running: vec![0, 1, 2, 3], ..seen(2, 4, &[]) };
        let kept = step(Moment(0), TERMS, Some(&begun), &still_there);
        assert_eq!((kept.replicas, request(kept.next.as_ref())), (4, Some((Request::Resume, 2..4))));
        let gone = Seen { running: vec![0, 1], ..still_there };
        assert_eq!(step(Moment(0), TERMS, Some(&begun), &gone), Step { replicas: 4, next: None });
    }
}
