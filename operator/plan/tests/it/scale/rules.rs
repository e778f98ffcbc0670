//! What a user is promised of the number over hours: a budget of changes, a surplus that stays while something waits,
//! bounds by the time of day, and memory that keeps gateways.

use super::course::Course;
use proptest::{collection::vec, prelude::*};
use sluice_plan::{
    Moment,
    scale::{Cause, Decision, Limit, Schedule, Zone},
};

/// What a reason says while the budget holds a change back.
const USED_UP: &str = "the rescales of the last hour are used up";

#[test]
fn a_change_that_the_budget_holds_back_comes_when_the_last_one_is_an_hour_old() {
    // Two where the load comes to take four, by way of three; eight where it takes two, by way of four.
    for (arrival, then, replicas, expected) in [(40, 100, 2, [3, 4]), (55, 55, 8, [4, 2])] {
        let mut course = Course::new(24, arrival, replicas);
        course.policy.rescales_per_hour = 1;
        assert_eq!(course.run(300).replicas, replicas);
        course.arrivals.fill(then);
        let mut last = course.run(60);
        while last.next.rescales.is_empty() {
            last = course.step();
        }
        let changed_at = *last.next.rescales.last().expect("a change is remembered");
        while course.next().seconds_since(changed_at) < 3_600.0 {
            last = course.step();
            assert_eq!(last.replicas, expected[0], "{}", last.reason);
        }
        assert_eq!(last.limited, Some(Limit::Budget), "{}", last.reason);
        assert!(last.reason.ends_with(&format!("stays at {}: {USED_UP}", expected[0])), "{}", last.reason);
        last = course.step();
        assert_eq!((last.replicas, last.limited), (expected[1], None), "{}", last.reason);
    }
}

#[test]
fn the_budget_holds_no_step_against_memory_though_load_wants_it_too() {
    for arrival in [80, 150] {
        let mut course = Course::new(24, 40, 2);
        course.policy.rescales_per_hour = 0;
        course.run(300);
        course.arrivals.fill(arrival);
        let decision = course.run(120);
        assert_eq!((decision.replicas, decision.limited), (2, Some(Limit::Budget)), "{}", decision.reason);
        course.samples.workload.killed_at = Some(course.now);
        let decision = course.step();
        assert_eq!((decision.replicas, decision.cause), (3, Cause::MemoryLimited), "{}", decision.reason);
        assert!(
            decision.reason.ends_with("; from 2 to 3") && decision.limited.is_none(),
            "{}",
            decision.reason
        );
        // A second step follows as long as the kill counts, and no third, however much load wants.
        let decision = course.run(3_000);
        assert_eq!((decision.replicas, decision.next.memory_steps), (4, 2), "{}", decision.reason);
    }
}

#[test]
fn the_budget_holds_neither_a_step_against_memory_nor_the_users_bounds() {
    let mut course = Course::new(24, 100, 2);
    course.policy.rescales_per_hour = 0;
    let decision = course.run(300);
    assert_eq!((decision.replicas, decision.limited), (2, Some(Limit::Budget)), "{}", decision.reason);
    // Two do for this load, so that it is memory alone that wants three.
    course.arrivals.fill(40);
    assert_eq!(course.run(600).replicas, 2);
    course.samples.workload.killed_at = Some(course.now);
    let decision = course.run(60);
    assert_eq!((decision.replicas, decision.cause), (3, Cause::MemoryLimited), "{}", decision.reason);
    course.policy.replicas_min = 5;
    assert_eq!(course.step().replicas, 5);
    (course.policy.replicas_min, course.policy.replicas_max) = (1, Some(4));
    assert_eq!(course.step().replicas, 4);
}

/// Messages a second of each partition where eight gateways are too many.
const LITTLE: u64 = 55;

/// Eight minutes of little work for eight gateways: two would do.
fn with_surplus() -> Course {
    let mut course = Course::new(24, LITTLE, 8);
    assert_eq!(course.run(480).replicas, 8);
    course
}

/// A poll in which every partition is this many seconds behind, and a queue volume holds this many blocks.
fn waiting(course: &mut Course, lag_seconds: u64, spool_blocks: u64) -> Decision {
    course.step_with(|sample| {
        for partition in sample.partitions.iter_mut().flatten() {
            partition.committed = partition.committed.map(|read| read.saturating_sub(LITTLE * lag_seconds));
        }
        sample.pods[0].spool_blocks = spool_blocks;
    })
}

#[test]
fn a_surplus_stays_while_there_is_a_backlog_or_a_queue_volume_is_not_drained() {
    let (backlog, queue) = ("the backlog is not read yet", "queue volumes are not drained");
    for (lag_seconds, spool_blocks, words) in [(31, 0, backlog), (0, 1, queue), (31, 1, backlog)] {
        let mut course = with_surplus();
        for _ in 0..80 {
            let decision = waiting(&mut course, lag_seconds, spool_blocks);
            assert_eq!(decision.replicas, 8, "{lag_seconds} {spool_blocks}: {}", decision.reason);
            assert!(decision.recommended < 8 && decision.reason.ends_with(words), "{}", decision.reason);
        }
        let replicas = course.run(615).replicas;
        assert!(replicas < 8, "ten minutes with neither: {replicas}");
    }
}

#[test]
fn a_lag_of_thirty_seconds_is_none_and_keeps_no_surplus() {
    let mut course = with_surplus();
    for _ in 0..12 {
        waiting(&mut course, 30, 0);
    }
    assert_eq!(course.replicas(), 4);
}

#[test]
fn a_surplus_that_a_backlog_did_not_need_goes_as_soon_as_it_is_worked_off() {
    let mut course = with_surplus();
    for _ in 0..80 {
        let decision = waiting(&mut course, 31, 0);
        assert!(decision.replicas == 8 && decision.recommended < 8, "{}", decision.reason);
    }
    assert_eq!(course.step().replicas, 4);
}

#[test]
fn a_surplus_that_a_backlog_needed_goes_ten_minutes_after_it() {
    let mut course = with_surplus();
    for _ in 0..80 {
        let decision = waiting(&mut course, 1_000, 0);
        assert_eq!(decision.replicas, 8, "{}", decision.reason);
    }
    assert_eq!(waiting(&mut course, 1_000, 0).recommended, 8, "the backlog takes them all");
    for _ in 0..40 {
        let decision = course.step();
        assert_eq!(decision.replicas, 8, "{}", decision.reason);
    }
    // The window is made of minutes, and the last of them may still be one of the backlog.
    assert_eq!(course.run(60).replicas, 4);
}

/// The schedule of these courses: from half past midnight to one. They begin at second 1,000 of a day.
const BEGINS: Moment = Moment(1_800_000);
/// Behind its last moment.
const ENDS: Moment = Moment(3_600_000);

fn scheduled(replicas_min: Option<u32>, replicas_max: Option<u32>) -> Schedule {
    Schedule {
        name: "night".into(),
        days: 0b111_1111,
        from_minute: 30,
        to_minute: 60,
        zone: Zone::UTC,
        replicas_min,
        replicas_max,
    }
}

/// Plays up to a moment; every decision is shown with its own.
fn play(course: &mut Course, until: Moment, see: impl Fn(Moment, &Decision)) {
    while course.next() < until {
        let decision = course.step();
        see(course.now, &decision);
    }
}

#[test]
fn a_schedule_raises_the_least_at_its_edge_and_its_surplus_goes_ten_minutes_after_its_end() {
    let mut course = Course::new(24, 40, 2);
    course.policy.schedules = vec![scheduled(Some(6), None)];
    play(&mut course, ENDS.plus_seconds(600), |now, decision| {
        let expected = if now < BEGINS { 2 } else { 6 };
        assert_eq!(decision.replicas, expected, "{now:?}: {}", decision.reason);
    });
    assert_eq!(course.run(60).replicas, 3, "at most half");
    assert_eq!(course.run(675).replicas, 2);
}

#[test]
fn a_schedule_lowers_the_most_at_its_edge_and_the_load_has_its_gateways_again_after_its_end() {
    let mut course = Course::new(24, 200, 8);
    course.policy.schedules = vec![scheduled(None, Some(3))];
    play(&mut course, ENDS, |now, decision| {
        let expected = if now < BEGINS { (8, None) } else { (3, Some(Limit::MaxReplicas)) };
        assert_eq!((decision.replicas, decision.limited), expected, "{now:?}: {}", decision.reason);
    });
    let decision = course.run(60);
    assert!(decision.replicas >= 8, "half an hour's backlog waits: {}", decision.reason);
    assert_ne!(decision.limited, Some(Limit::MaxReplicas));
}

/// A gateway's memory limit. Plans use three quarters of it.
const MEMORY_LIMIT_BYTES: u64 = 512 << 20;

/// A poll in which each gateway takes 60 MiB, and 40 MiB more for each of its partitions.
fn with_memory(course: &mut Course) -> Decision {
    course.step_with(|sample| {
        for pod in &mut sample.pods {
            pod.memory_bytes = (60 + 40 * pod.partitions.len() as u64) << 20;
            pod.memory_limit_bytes = MEMORY_LIMIT_BYTES;
        }
    })
}

#[test]
fn no_load_is_so_small_that_fewer_gateways_stay_than_memory_takes() {
    // Five gateways have five partitions each but one, which has four: base and part can be told. Eight
    // partitions take 380 of 384 MiB, so it takes three gateways, where the load takes one.
    let mut course = Course::new(24, 20, 5);
    let mut last = with_memory(&mut course);
    for _ in 0..480 {
        last = with_memory(&mut course);
        assert!(last.replicas >= 3, "{}", last.reason);
        assert_eq!(last.cause, Cause::ComputeLimited, "memory is under no pressure: {}", last.reason);
    }
    assert_eq!((last.replicas, last.recommended), (3, 3), "{}", last.reason);
    let mut course = Course::new(24, 20, 5);
    assert_eq!(course.run(7_200).replicas, 1, "what the load takes where memory is not known");
}

#[test]
fn what_memory_takes_is_not_forgotten_while_all_gateways_have_as_many_partitions() {
    // Three gateways have eight partitions each for a day; two would take 540 of 512 MiB.
    let mut course = Course::new(24, 20, 5);
    for _ in 0..5_760 {
        let decision = with_memory(&mut course);
        assert!(decision.replicas >= 3, "{:?}: {}", course.now, decision.reason);
    }
    assert_eq!(course.replicas(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_hour_has_more_changes_than_the_budget(
        partitions in 2_usize..40, budget in 0_u32..7, down_after_seconds in 60_u32..600,
        swings in vec((0_u64..900, 1_usize..60), 8..24),
    ) {
        let mut course = Course::new(partitions, 0, 1);
        course.policy.rescales_per_hour = budget;
        course.policy.down_after_seconds = down_after_seconds;
        let mut changes = Vec::new();
        for (arrival, polls) in swings {
            course.arrivals.fill(arrival);
            for _ in 0..polls {
                let before = course.replicas();
                let decision = course.step();
                if decision.replicas != before {
                    changes.push(course.now);
                    let within = |at: &&Moment| course.now.seconds_since(**at) < 3_600.0;
                    let hour = changes.iter().filter(within).count();
                    prop_assert!(hour <= budget as usize, "{hour} of {budget}: {}", decision.reason);
                }
                // What is held back is said, unless something limits more, such as a hot partition.
                let is_held = decision.reason.ends_with(USED_UP);
                let is_said = is_held && decision.cause == Cause::ComputeLimited;
                prop_assert_eq!(decision.limited == Some(Limit::Budget), is_said, "{}", decision.reason);
                prop_assert!(!is_held || decision.replicas == before, "{}", decision.reason);
            }
        }
    }
}

#[test]
fn a_change_that_is_never_carried_out_is_no_rescale() {
    let mut course = Course::new(24, 40, 2);
    course.run(300);
    course.arrivals.fill(150);
    let mut decision = course.run(15);
    for _ in 0..80 {
        // Another client keeps the number.
        let sample = course.pass();
        course.samples.history.push(sample);
        decision = course.decide();
        assert!(decision.next.rescales.is_empty() && decision.next.trial.is_none(), "{}", decision.reason);
    }
    assert!(decision.replicas > 2 && decision.limited != Some(Limit::Budget), "{}", decision.reason);
    let decided = decision.replicas;
    course.samples.workload.desired = decided;
    course.samples.workload.ready = decided;
    let decision = course.step();
    assert_eq!(decision.next.rescales, [course.now], "{}", decision.reason);
    assert_eq!(decision.next.trial.map(|trial| (trial.from, trial.to)), Some((2, decided)));
}
