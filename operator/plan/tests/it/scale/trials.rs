//! The promise about added gateways that do not help: the autoscaler stops adding, and tries again only from time to time.

use super::course::Course;
use proptest::prelude::*;
use sluice_plan::{
    Moment,
    scale::{Cause, Decision, Limit},
};

/// Kafka returns at most this number of messages a second, to any number of gateways.
const QUOTA: u64 = 2_000;
/// The age at which an addition is judged.
const TRIAL_SECONDS: f64 = 180.0;
/// After two additions in a row that did not help, no gateway is added for this time.
const IN_VAIN_SECONDS: f64 = 900.0;

/// A poll under the quota: what is not work looks like waiting for messages, so that no share of the workers'
/// time says that something limits.
fn under_quota(course: &mut Course) -> Decision {
    course.step_with(|sample| {
        for pod in &mut sample.pods {
            pod.source_seconds = pod.at.seconds_since(Moment(0)) - pod.busy_seconds;
        }
    })
}

/// The same where the gateways look busy all the time: what each of them can do seems to be less, the more there are.
fn busy_under_quota(course: &mut Course) -> Decision {
    course.step_with(|sample| {
        for pod in &mut sample.pods {
            (pod.busy_seconds, pod.source_seconds) = (pod.at.seconds_since(Moment(0)), 0.0);
        }
    })
}

/// Four gateways that do what arrives, and then twice as much arrives as they are given.
fn four_given_too_little() -> Course {
    let mut course = Course::new(24, 50, 4);
    course.sink = QUOTA;
    for _ in 0..40 {
        assert_eq!(under_quota(&mut course).replicas, 4);
    }
    course.arrivals.fill(150);
    course
}

#[test]
fn gateways_that_read_no_more_than_fewer_did_are_in_vain_and_a_quarter_of_an_hour_adds_none() {
    for (poll, looks) in [(under_quota as fn(&mut Course) -> Decision, "idle"), (busy_under_quota, "busy")] {
        let mut course = four_given_too_little();
        let mut added = Vec::new();
        let verdict = (0..120).find(|_| {
            let before = course.replicas();
            let decision = poll(&mut course);
            if decision.replicas > before {
                added.push(course.now);
            }
            decision.cause == Cause::SinkLimited
        });
        assert!(verdict.is_some() && added.len() == 2, "{looks}: {added:?}");
        let (judged_at, most) = (course.now, course.replicas());
        let tried_seconds = judged_at.seconds_since(added[1]);
        assert!((TRIAL_SECONDS..TRIAL_SECONDS + 30.0).contains(&tried_seconds), "{looks}: {tried_seconds}");
        while course.next().seconds_since(judged_at) < IN_VAIN_SECONDS {
            let decision = poll(&mut course);
            let said = (decision.replicas, decision.cause, decision.limited);
            assert_eq!(said, (most, Cause::SinkLimited, Some(Limit::SinkLimited)), "{}", decision.reason);
            let words = decision.reason;
            assert!(words.contains("SinkLimited: throughput did not rise"), "{words}");
            assert!(!words.contains("of the workers' time"), "{words}");
            assert!(
                decision.figures.is_some_and(|figures| figures.sink_wait < 0.01),
                "no worker waits for it"
            );
        }
        let decision = poll(&mut course);
        assert_eq!(decision.cause, Cause::ComputeLimited, "{}", decision.reason);
        let tried = (0..4).map(|_| poll(&mut course).replicas).max();
        assert!(tried > Some(most), "it is tried again: {tried:?}");
    }
}

#[test]
fn one_try_follows_a_quarter_of_an_hour_that_adds_none() {
    for (poll, looks) in [(under_quota as fn(&mut Course) -> Decision, "idle"), (busy_under_quota, "busy")] {
        let mut course = four_given_too_little();
        while poll(&mut course).cause != Cause::SinkLimited {}
        while poll(&mut course).cause == Cause::SinkLimited {}
        let (tried_at, before) = (course.now, course.replicas());
        let mut steps = vec![before];
        while poll(&mut course).cause != Cause::SinkLimited {
            steps.push(course.replicas());
        }
        steps.dedup();
        assert_eq!(steps.len(), 2, "{looks}: {steps:?}");
        let tried_seconds = course.now.seconds_since(tried_at);
        assert!(tried_seconds < TRIAL_SECONDS + 60.0, "{looks}: {tried_seconds}");
    }
}

#[test]
fn what_was_in_vain_is_forgotten_once_nothing_waits() {
    let mut course = four_given_too_little();
    while under_quota(&mut course).cause != Cause::SinkLimited {}
    assert_eq!(course.state.in_vain, 1);
    (course.sink, course.policy.down_enabled) = (u64::MAX, false);
    course.arrivals.fill(10);
    let decision = course.run(900);
    assert_eq!((decision.next.in_vain, decision.cause), (0, Cause::ComputeLimited), "{}", decision.reason);
}

#[test]
fn gateways_that_read_more_are_not_in_vain() {
    // Twelve at most are too few for this load, so that a lag stays for which they could be blamed.
    let mut course = Course::new(24, 50, 4);
    course.policy.replicas_max = Some(12);
    course.run(600);
    course.arrivals.fill(600);
    for _ in 0..240 {
        let decision = course.step();
        assert_eq!(decision.cause, Cause::ComputeLimited, "{}", decision.reason);
    }
    let decision = course.step();
    assert_eq!((decision.replicas, decision.limited), (12, Some(Limit::MaxReplicas)));
    assert_eq!((decision.next.trial, decision.next.in_vain), (None, 0), "they were judged");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn at_a_total_that_does_not_grow_no_quarter_of_an_hour_has_more_than_two_additions(
        partitions in 4_usize..40, replicas in 1_u32..8, percent in 20_u64..100, times in 2_u64..6, looks_busy: bool,
    ) {
        let could = 1_000 * u64::from(replicas.min(u32::try_from(partitions).unwrap()));
        let mut course = Course::new(partitions, could / 2 / partitions as u64, replicas);
        course.policy.rescales_per_hour = 60;
        course.policy.down_enabled = false;
        for _ in 0..40 {
            under_quota(&mut course);
        }
        course.sink = could * percent / 100;
        course.arrivals.fill((course.sink * times).div_ceil(partitions as u64));
        let mut added = Vec::new();
        for _ in 0..320 {
            let before = course.replicas();
            let decision = if looks_busy { busy_under_quota(&mut course) } else { under_quota(&mut course) };
            // Before anything is late there is nothing that an addition could help.
            let is_late = decision.figures.as_ref().is_some_and(|figures| figures.lag_seconds >= 30.0);
            if decision.replicas > before && is_late {
                added.push(course.now);
                let within = |at: &&Moment| course.now.seconds_since(**at) < IN_VAIN_SECONDS;
                let quarter = added.iter().filter(within).count();
                prop_assert!(quarter <= 2, "{added:?}: {}", decision.reason);
            }
        }
    }
}
