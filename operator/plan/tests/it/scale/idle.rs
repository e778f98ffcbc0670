//! Idle topics: gateways leave them when nothing can be lost by it, and come back for every message.

use super::course::{Course, POLL_SECONDS};
use proptest::prelude::*;
use sluice_plan::{
    Moment,
    scale::{Decision, Hold, InitialOffset, Mode, Policy, Rests, Sample, State, WorkloadSample, decide},
};

const AFTER_SECONDS: u32 = 1_800;
const REFRESH_SECONDS: u32 = 86_400;
const PARTITIONS: usize = 4;

fn policy() -> Policy {
    let rests = Some(Rests { after_seconds: AFTER_SECONDS, refresh_seconds: REFRESH_SECONDS });
    Policy { mode: Mode::Auto, replicas_min: 0, rests, ..Policy::default() }
}

/// Two gateways that have read all there was.
fn idle() -> Course {
    let mut course = Course::new(PARTITIONS, 100, 2);
    course.policy = policy();
    for _ in 0..20 {
        course.step();
    }
    course.arrivals = vec![0; PARTITIONS];
    course
}

/// Polls until a decision is this, at most so many.
fn polls_until(course: &mut Course, replicas: u32, most: u32) -> Option<u32> {
    (1..=most).find(|_| step(course).replicas == replicas)
}

/// A poll and its decision, followed at once. If no gateway runs, no pod is seen and no partition has an owner.
fn step(course: &mut Course) -> Decision {
    let rests = course.samples.workload.desired == 0;
    course.step_with(|sample| {
        if rests {
            (sample.group_stable, sample.pods) = (false, Vec::new());
        }
    })
}

fn polls(seconds: u32) -> u32 {
    seconds / u32::try_from(POLL_SECONDS).unwrap()
}

#[test]
fn gateways_leave_after_the_time_without_a_message_and_not_before() {
    let mut course = idle();
    let taken = polls_until(&mut course, 0, polls(2 * AFTER_SECONDS)).expect("they leave");
    assert!((polls(AFTER_SECONDS)..=polls(AFTER_SECONDS) + 3).contains(&taken), "{taken} polls");
    assert!(course.state.rest.is_some_and(|rest| rest.has_committed));
    let words = step(&mut course).reason;
    assert!(words.contains("idle"), "{words}");
}

#[test]
fn a_message_brings_a_gateway_back_at_the_next_poll() {
    let mut course = idle();
    polls_until(&mut course, 0, polls(2 * AFTER_SECONDS)).expect("they leave");
    for _ in 0..100 {
        assert_eq!(step(&mut course).replicas, 0);
    }
    let decision = course.step_with(|sample| {
        (sample.group_stable, sample.pods) = (false, Vec::new());
        sample.partitions[1].as_mut().unwrap().end += 1;
    });
    assert_eq!(decision.replicas, 1);
    assert!(decision.reason.contains("1 message waits"), "{}", decision.reason);
}

#[test]
fn many_messages_bring_as_many_gateways_as_read_them() {
    let mut course = idle();
    polls_until(&mut course, 0, polls(2 * AFTER_SECONDS)).expect("they leave");
    course.state.capacity = Some(1_000.0);
    let decision = course.step_with(|sample| {
        (sample.group_stable, sample.pods) = (false, Vec::new());
        // 1,200 messages a second since the poll before. A gateway takes 760 a second.
        sample.partitions[0].as_mut().unwrap().end += 18_000;
    });
    assert_eq!(decision.replicas, 2);
}

#[test]
fn one_gateway_comes_back_so_that_kafka_keeps_the_offsets_and_leaves_again() {
    let mut course = idle();
    polls_until(&mut course, 0, polls(2 * AFTER_SECONDS)).expect("they leave");
    let rested = polls_until(&mut course, 1, polls(REFRESH_SECONDS) + 2).expect("one comes back");
    assert!(rested >= polls(REFRESH_SECONDS) - 2, "{rested} polls");
    let there = polls_until(&mut course, 0, polls(2 * AFTER_SECONDS)).expect("it leaves again");
    assert!(there >= polls(AFTER_SECONDS), "{there} polls");
    assert!(polls_until(&mut course, 1, polls(REFRESH_SECONDS) - 4).is_none(), "the time begins anew");
}

#[test]
fn nothing_leaves_while_a_row_is_held_or_a_message_is_not_committed() {
    /// Changes a sample.
    type Change = fn(&mut Sample);
    let cases: [(&str, Change); 6] = [
        ("a row in flight", |sample| sample.pods[0].rows_in_flight = 1),
        ("a block on a queue volume", |sample| sample.pods.last_mut().unwrap().spool_blocks = 1),
        ("blocks wait for ClickHouse", |sample| sample.pods.last_mut().unwrap().sink_behind = true),
        ("a gateway is silent", |sample| sample.silent = 1),
        ("a gateway has not answered", |sample| drop(sample.pods.pop())),
        ("a message is not committed", |sample| {
            let partition = sample.partitions[2].as_mut().unwrap();
            partition.committed = Some(partition.end - 1);
        }),
    ];
    for (what, change) in cases {
        let mut course = idle();
        for _ in 0..polls(3 * AFTER_SECONDS) {
            assert_ne!(course.step_with(change).replicas, 0, "{what}");
        }
    }
}

#[test]
fn a_partition_without_a_commit_keeps_gateways_only_where_its_next_message_would_be_left_out() {
    for (initial_offset, leaves) in [(InitialOffset::Earliest, true), (InitialOffset::Latest, false)] {
        let mut course = idle();
        course.policy.initial_offset = initial_offset;
        let left = (0..polls(2 * AFTER_SECONDS)).any(|_| {
            let decision = course.step_with(|sample| {
                // Nothing was ever written to it.
                let partition = sample.partitions[3].as_mut().unwrap();
                (partition.log_start, partition.end, partition.committed) = (0, 0, None);
            });
            decision.replicas == 0
        });
        assert_eq!(left, leaves, "{initial_offset:?}");
    }
}

#[test]
fn what_kafka_does_not_tell_ends_no_rest_and_begins_none() {
    let mut course = idle();
    for _ in 0..polls(2 * AFTER_SECONDS) {
        let decision = course.step_with(|sample| sample.partitions[0] = None);
        assert_eq!(decision.replicas, 2);
    }
    let mut course = idle();
    polls_until(&mut course, 0, polls(2 * AFTER_SECONDS)).expect("they leave");
    for _ in 0..polls(200) {
        let decision = course.step_with(|sample| sample.partitions.clear());
        assert_eq!((decision.replicas, decision.hold), (0, Some(Hold::MetricsUnavailable)));
    }
    course.policy.fallback_replicas = Some(2);
    let came = (0..polls(400)).any(|_| course.step_with(|sample| sample.partitions.clear()).replicas == 2);
    assert!(came, "after five minutes without an answer");
}

#[test]
fn offsets_that_kafka_has_deleted_bring_a_gateway_back() {
    let mut course = idle();
    polls_until(&mut course, 0, polls(2 * AFTER_SECONDS)).expect("they leave");
    let decision = course.step_with(|sample| {
        (sample.group_stable, sample.pods) = (false, Vec::new());
        sample.partitions.iter_mut().flatten().for_each(|partition| partition.committed = None);
    });
    assert!(decision.replicas >= 1, "{}", decision.reason);
}

#[test]
fn a_schedule_that_wants_gateways_ends_the_rest() {
    let mut course = idle();
    polls_until(&mut course, 0, polls(2 * AFTER_SECONDS)).expect("they leave");
    course.policy.schedules = vec![sluice_plan::scale::Schedule {
        name: "all".into(),
        days: 127,
        from_minute: 0,
        to_minute: 1_440,
        zone: sluice_plan::scale::Zone::UTC,
        replicas_min: Some(2),
        replicas_max: None,
    }];
    assert_eq!(step(&mut course).replicas, 2);
}

#[test]
fn an_operator_that_starts_finds_the_rest_and_its_age() {
    let mut course = idle();
    polls_until(&mut course, 0, polls(2 * AFTER_SECONDS)).expect("they leave");
    let rest = course.state.rest;
    step(&mut course);
    let written = course.state.remembered(&sluice_crds::Remembered::default());
    let resumed = State::resumed(&written, course.now);
    assert_eq!((resumed.rest, resumed.quiet), (rest, None));
    // A pipeline that is read all the time writes nothing of it.
    let mut busy = Course::new(PARTITIONS, 100, 2);
    busy.policy = policy();
    (0..20).for_each(|_| drop(busy.step()));
    assert!(busy.state.quiet.is_some());
    let written = busy.state.remembered(&sluice_crds::Remembered::default());
    assert_eq!(
        (State::resumed(&written, busy.now).quiet, State::resumed(&written, busy.now).rest),
        (None, None)
    );
}

proptest! {
    /// Whatever is seen: without `scaling.idle` there is always a gateway, and with it none is gone while a message waits.
    #[test]
    fn no_message_waits_without_a_gateway(
        desired in 0_u32..4, ends in prop::collection::vec((0_u64..3, prop::option::of(0_u64..3)), 1..4), rests in any::<bool>(),
        hours in 0_u64..100,
    ) {
        let mut course = Course::new(ends.len(), 0, desired);
        course.policy = if rests { policy() } else { Policy { rests: None, ..policy() } };
        course.samples.workload = WorkloadSample { desired, ready: desired, ..WorkloadSample::default() };
        course.step_with(|sample| {
            for (partition, (end, committed)) in sample.partitions.iter_mut().flatten().zip(&ends) {
                (partition.end, partition.committed) = (*end, *committed);
            }
        });
        let now = Moment(course.now.0 + hours * 3_600_000);
        let decision = decide(now, &course.policy, &course.state, &course.samples);
        let waits = ends.iter().any(|(end, committed)| committed.is_none_or(|committed| committed < *end) && *end > 0);
        let is_fresh = hours == 0;
        prop_assert!(rests || decision.replicas > 0);
        prop_assert!(!(waits && is_fresh) || decision.replicas > 0, "{decision:?}");
    }
}
