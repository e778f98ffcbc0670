//! Nodes that take no more gateways, and one gateway that no node takes.

use super::course::Course;
use sluice_crds::Remembered;
use sluice_plan::scale::{Decision, Hold, Limit, State};

#[test]
fn pods_that_no_node_takes_are_taken_back() {
    let mut course = Course::new(24, 150, 4);
    course.samples.workload.ready = 3;
    (course.samples.workload.unschedulable, course.samples.workload.unschedulable_last) = (1, 1);
    let mut decided = Vec::new();
    for _ in 0..45 {
        let sample = course.pass();
        course.samples.history.push(sample);
        let decision = course.decide();
        decided.push((decision.replicas, decision.hold, decision.limited));
    }
    assert!(decided[..40].iter().all(|one| *one == (4, Some(Hold::RolloutInProgress), None)), "{decided:?}");
    assert!(
        decided[41..].iter().all(|one| *one == (3, Some(Hold::Unschedulable), Some(Limit::Unschedulable)))
    );
}

/// A poll and its decision, followed, where nodes take no more than this many gateways.
fn step_with_room(course: &mut Course, room: u32) -> Decision {
    let sample = course.pass();
    course.samples.history.push(sample);
    let decision = course.decide();
    let workload = &mut course.samples.workload;
    (workload.desired, workload.ready) = (decision.replicas, decision.replicas.min(room));
    workload.unschedulable = workload.desired - workload.ready;
    workload.unschedulable_last = workload.unschedulable;
    decision
}

/// Four gateways where nodes take no more, and a load for eight or so: as soon as more were asked for; gives how many.
fn asked_for_more() -> (Course, u32) {
    let mut course = Course::new(24, 100, 4);
    course.run(300);
    course.arrivals.fill(250);
    for _ in 0..60 {
        let decision = step_with_room(&mut course, 4);
        if decision.replicas > 4 {
            return (course, decision.replicas);
        }
    }
    panic!("none was added within a quarter of an hour");
}

#[test]
fn nothing_is_added_while_no_node_takes_what_was_added_last() {
    let (mut course, asked) = asked_for_more();
    let mut polls = 0;
    let refused = loop {
        let decision = step_with_room(&mut course, 4);
        if decision.hold == Some(Hold::Unschedulable) {
            break decision;
        }
        assert_eq!((decision.replicas, decision.hold), (asked, Some(Hold::RolloutInProgress)));
        let words = format!("{} of them are unschedulable", asked - 4);
        assert!(decision.reason.ends_with(&words), "{}", decision.reason);
        polls += 1;
        assert!(polls <= 45, "ten minutes are over: {}", decision.reason);
    };
    assert_eq!((refused.replicas, refused.limited), (4, Some(Limit::Unschedulable)));
    // Given back, they are not asked for again at once, however much waits.
    let refused_at = course.now;
    let again = loop {
        let decision = step_with_room(&mut course, 4);
        let seconds = course.now.seconds_since(refused_at);
        if decision.replicas > 4 {
            break seconds;
        }
        if seconds < 1_800.0 {
            assert_eq!((decision.replicas, decision.hold), (4, None), "{}", decision.reason);
            assert_eq!(decision.limited, Some(Limit::Unschedulable), "{}", decision.reason);
            assert!(
                decision.reason.contains("stays at 4: the gateways that were added last were unschedulable"),
                "{}",
                decision.reason
            );
        }
        assert!(seconds < 1_900.0, "it is tried again: {}", decision.reason);
    };
    assert!(again >= 1_800.0, "after {again} s");
}

#[test]
fn what_no_node_took_is_remembered_by_another_operator() {
    let (mut course, _) = asked_for_more();
    while course.replicas() > 4 {
        step_with_room(&mut course, 4);
    }
    step_with_room(&mut course, 4);
    let written = course.state.remembered(&Remembered::default());
    course.state = State::resumed(&written, course.now);
    for _ in 0..20 {
        let decision = step_with_room(&mut course, 4);
        assert_eq!(decision.replicas, 4, "{}", decision.reason);
    }
    assert_eq!(course.state.remembered(&written), written, "nothing to write at each poll");
}

#[test]
fn one_in_the_middle_that_no_node_takes_costs_none_of_the_others() {
    let mut course = Course::new(24, 100, 4);
    course.run(300);
    // The second of four: its volume is in a zone that is gone.
    (course.samples.workload.ready, course.samples.workload.unschedulable) = (3, 1);
    for _ in 0..120 {
        let sample = course.pass();
        course.samples.history.push(sample);
        let decision = course.decide();
        assert_eq!(decision.replicas, 4, "{}", decision.reason);
    }
    assert_eq!(course.state.no_room_until, None, "nothing was given back");
}

/// The second of four finds no node, its volume being in a zone that is gone, and ten minutes are over.
fn one_given_up() -> Course {
    let mut course = Course::new(24, 100, 4);
    course.run(300);
    (course.samples.workload.ready, course.samples.workload.unschedulable) = (3, 1);
    for poll in 0..50 {
        let sample = course.pass();
        course.samples.history.push(sample);
        let decision = course.decide();
        let hold = if poll < 40 { Some(Hold::RolloutInProgress) } else { None };
        assert!(poll == 40 || decision.hold == hold, "{poll}: {}", decision.reason);
    }
    course
}

#[test]
fn the_others_are_scaled_without_one_in_the_middle_that_no_node_takes() {
    let mut course = one_given_up();
    course.arrivals.fill(250);
    let added = (0..80).find_map(|_| {
        let sample = course.pass();
        course.samples.history.push(sample);
        let decision = course.decide();
        assert_eq!(decision.hold, None, "{}", decision.reason);
        (decision.replicas > 4).then_some(decision)
    });
    let added = added.expect("more are added within twenty minutes");
    assert_eq!(added.limited, None, "{}", added.reason);
}

#[test]
fn what_is_added_beside_one_that_was_given_up_has_its_own_time_to_find_a_node() {
    let mut course = one_given_up();
    let workload = &mut course.samples.workload;
    (workload.desired, workload.unschedulable, workload.unschedulable_last) = (6, 3, 2);
    for poll in 0..45 {
        let sample = course.pass();
        course.samples.history.push(sample);
        let decision = course.decide();
        if poll < 40 {
            assert_eq!((decision.replicas, decision.hold), (6, Some(Hold::RolloutInProgress)), "{poll}");
        } else if poll > 40 {
            assert_eq!((decision.replicas, decision.hold), (4, Some(Hold::Unschedulable)), "{poll}");
        }
    }
    // It found a node at last: what is missing from now on is on its way again.
    (course.samples.workload.unschedulable, course.samples.workload.unschedulable_last) = (0, 0);
    course.decide();
    assert_eq!(course.state.given_up, 0);
}

#[test]
fn memory_adds_nothing_either_while_no_node_takes_what_was_added_last() {
    let mut course = Course::new(24, 40, 2);
    course.run(300);
    // A kill within the last ten minutes lets decisions be made although not all are ready.
    (course.samples.workload.killed_at, course.samples.workload.desired) = (Some(course.now), 3);
    (course.samples.workload.ready, course.samples.workload.unschedulable) = (2, 1);
    for _ in 0..20 {
        let sample = course.pass();
        course.samples.history.push(sample);
        let decision = course.decide();
        assert_eq!(decision.replicas, 3, "{}", decision.reason);
        assert!(decision.reason.ends_with("stays at 3: the gateways that were added last are unschedulable"));
    }
}

/// One poll and its decision, which is not followed.
fn look(course: &mut Course) -> Decision {
    let sample = course.pass();
    course.samples.history.push(sample);
    course.decide()
}

#[test]
fn the_others_are_scaled_without_one_that_has_a_node_and_is_not_ready_for_ten_minutes() {
    let mut course = Course::new(24, 100, 4);
    course.run(300);
    course.arrivals.fill(250);
    (course.samples.workload.ready, course.samples.workload.unready_since) = (3, [(1, course.now)].into());
    for poll in 1..=40 {
        let decision = look(&mut course);
        assert_eq!((decision.replicas, decision.hold), (4, Some(Hold::RolloutInProgress)), "{poll}");
    }
    let added = (0..20).map(|_| look(&mut course)).find(|decision| decision.replicas > 4);
    let added = added.expect("more are added within five minutes");
    assert_eq!((added.hold, added.limited), (None, None), "{}", added.reason);
    // The next one that goes has its own ten minutes.
    (course.samples.workload.ready, course.samples.workload.desired) = (2, 4);
    course.samples.workload.unready_since.insert(2, course.now);
    assert_eq!(look(&mut course).hold, Some(Hold::RolloutInProgress));
}

#[test]
fn none_is_taken_away_while_one_is_not_ready_as_it_may_be_one_that_works() {
    for load in [100, 1] {
        let mut course = Course::new(24, 100, 4);
        course.run(300);
        course.arrivals.fill(load);
        (course.samples.workload.ready, course.samples.workload.unready_since) =
            (3, [(0, course.now)].into());
        let reasons: Vec<_> =
            (0..120).map(|_| look(&mut course)).map(|one| (one.replicas, one.reason)).collect();
        assert!(reasons.iter().all(|(replicas, _)| *replicas == 4), "{reasons:?}");
        let is_said =
            reasons.iter().any(|(_, reason)| reason.ends_with("stays at 4: not all gateways are ready"));
        assert_eq!(is_said, load == 1, "{reasons:?}");
    }
}

/// The gateways with these numbers of four are not ready, and do not answer; what is decided within half an hour of much to do.
fn without(absent: &[u32]) -> (Course, Vec<Decision>) {
    let mut course = Course::new(24, 100, 4);
    course.run(300);
    course.arrivals.fill(250);
    course.samples.workload.ready = 4 - u32::try_from(absent.len()).unwrap();
    course.samples.workload.unready_since = absent.iter().map(|ordinal| (*ordinal, course.now)).collect();
    let there: Vec<u32> = (0..4).filter(|ordinal| !absent.contains(ordinal)).collect();
    let decide = |course: &mut Course| {
        let mut sample = course.pass();
        for (pod, ordinal) in sample.pods.iter_mut().zip(&there) {
            pod.ordinal = *ordinal;
        }
        course.samples.history.push(sample);
        course.decide()
    };
    let decisions = (0..120).map(|_| decide(&mut course)).collect();
    (course, decisions)
}

#[test]
fn more_follow_beside_one_that_does_not_answer_but_not_where_the_last_ones_never_came_up() {
    for (absent, grows) in [(&[1][..], true), (&[0, 2], true), (&[3], false), (&[1, 3], false)] {
        let (course, decisions) = without(absent);
        let most = decisions.iter().map(|decision| decision.replicas).max().unwrap();
        assert_eq!(most > 4, grows, "{absent:?}");
        let last = decisions.last().unwrap();
        assert_eq!(last.hold == Some(Hold::RolloutInProgress), !grows, "{absent:?}: {}", last.reason);
        assert!(!grows || course.state.absent == u32::try_from(absent.len()).unwrap());
    }
}

#[test]
fn gateways_of_which_none_answers_are_not_scaled_however_long_they_are_not_ready() {
    let mut course = Course::new(24, 100, 4);
    course.run(300);
    course.samples.workload.ready = 0;
    course.samples.workload.unready_since = (0..4).map(|ordinal| (ordinal, course.now)).collect();
    for _ in 0..60 {
        let mut sample = course.pass();
        sample.pods.clear();
        course.samples.history.push(sample);
        let decision = course.decide();
        assert_eq!(
            (decision.replicas, decision.hold),
            (4, Some(Hold::RolloutInProgress)),
            "{}",
            decision.reason
        );
    }
}

#[test]
fn one_that_is_ready_and_does_not_answer_holds_also_beside_others_that_answer_and_are_not() {
    let mut course = Course::new(24, 100, 4);
    course.run(300);
    course.samples.workload.ready = 3;
    course.samples.workload.unready_since = [(1, course.now)].into();
    for poll in 0..60 {
        let mut sample = course.pass();
        // As many answer as are ready, and they are not the same.
        sample.silent = 1;
        course.samples.history.push(sample);
        let hold = course.decide().hold;
        let expected = if poll < 40 { Hold::RolloutInProgress } else { Hold::MetricsUnavailable };
        assert!(hold == Some(expected) || poll == 40, "{poll}: {hold:?}");
    }
}
