//! The number in a reason is the number that was decided, in every case: decided by the load, a bound or a schedule, or not decided.

use super::course::{Course, POLL_SECONDS};
use proptest::{collection::vec, prelude::*};
use sluice_plan::{
    Moment,
    scale::{Decision, History, Mode, Schedule, Zone},
};

/// Half past midnight, when the schedule of these courses begins; it ends at one.
const BEGINS: Moment = Moment(1_800_000);

fn night(replicas_min: Option<u32>, replicas_max: Option<u32>) -> Schedule {
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

/// Whether one of the parts of a reason is the number that is decided, and none is another.
fn fits(before: u32, decision: &Decision) -> bool {
    let is_of =
        |part: &&str| part.starts_with(&format!("from {before} to ")) || part.starts_with("stays at ");
    let expected = if decision.replicas == before {
        format!("stays at {before}")
    } else {
        format!("from {before} to {}", decision.replicas)
    };
    let mut said = decision.reason.split([';', ':', ',']).map(str::trim).filter(is_of).peekable();
    said.peek().is_some() && said.all(|part| part == expected)
}

#[test]
fn the_edge_of_a_schedule_and_a_bound_say_what_they_ask_for() {
    for (arrival, replicas, schedule, ends_with) in [
        (40, 2, night(Some(6), None), "from 2 to 6, because the minimum is 6 in the schedule night"),
        (200, 8, night(None, Some(3)), "from 8 to 3, because the maximum is 3 in the schedule night"),
    ] {
        let mut course = Course::new(24, arrival, replicas);
        course.policy.schedules = vec![schedule];
        while course.next() < BEGINS {
            assert_eq!(course.step().replicas, replicas);
        }
        let decision = course.step();
        assert!(decision.reason.ends_with(ends_with), "{}", decision.reason);
    }
    for (min, max, ends_with) in [
        (5, None, "from 2 to 5, because the minimum is 5"),
        (1, Some(1), "from 2 to 1, because the maximum is 1"),
    ] {
        let mut course = Course::new(24, 40, 2);
        course.run(600);
        (course.policy.replicas_min, course.policy.replicas_max) = (min, max);
        let decision = course.step();
        assert!(decision.reason.ends_with(ends_with), "{}", decision.reason);
    }
}

#[test]
fn a_number_that_changes_though_nothing_is_known_is_said() {
    let mut course = Course::new(24, 40, 2);
    course.run(600);
    (course.samples.history, course.policy.replicas_min) = (History::default(), 6);
    let decision = course.decide();
    let begin = "from 2 to 6, because the minimum is 6: Kafka or a gateway did not answer";
    assert!(decision.reason.starts_with(begin), "{}", decision.reason);
    course.now = course.now.plus_seconds(600);
    (course.policy.replicas_min, course.policy.fallback_replicas) = (1, Some(5));
    let decision = course.decide();
    assert!(decision.reason.starts_with("from 2 to 5: Kafka or a gateway"), "{}", decision.reason);
}

#[test]
fn a_number_beyond_the_partitions_says_what_is_possible() {
    for (mode, words) in [
        (Mode::Fixed, "the number is fixed by the spec; from 2 to 3, because at most 3 are possible"),
        (Mode::External, "a client of /scale sets the number"),
    ] {
        let mut course = Course::new(3, 40, 2);
        (course.policy.mode, course.policy.replicas) = (mode, Some(9));
        assert_eq!(course.step().reason, words);
    }
    let mut course = Course::new(3, 40, 5);
    course.policy.mode = Mode::Recommend;
    let decision = course.step();
    let begin = "recommended only, from 5 to 3, because there are no more partitions: ";
    assert!(decision.replicas == 3 && decision.reason.starts_with(begin), "{}", decision.reason);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_words_are_those_of_the_number_that_is_decided(
        partitions in 2_usize..25, budget in 0_u32..7,
        swings in vec((0_u64..900, 0_u32..30, 1_u32..30, 0_u8..8, 1_usize..60), 4..12),
    ) {
        let mut course = Course::new(partitions, 0, 1);
        course.policy.rescales_per_hour = budget;
        course.policy.fallback_replicas = Some(4);
        course.policy.schedules = vec![night(Some(3), Some(12))];
        for (arrival, min, max, damage, polls) in swings {
            course.arrivals.fill(arrival);
            (course.policy.replicas_min, course.policy.replicas_max) = (min, Some(max));
            for _ in 0..polls {
                let before = course.replicas();
                if damage == 0 {
                    course.samples.workload.killed_at = Some(course.now);
                }
                let decision = if damage == 1 {
                    course.now = course.now.plus_seconds(u32::try_from(POLL_SECONDS).unwrap());
                    let decision = course.decide();
                    let workload = &mut course.samples.workload;
                    (workload.desired, workload.ready) = (decision.replicas, decision.replicas);
                    decision
                } else {
                    course.step()
                };
                prop_assert!(fits(before, &decision), "{before} to {}: {}", decision.replicas, decision.reason);
            }
        }
    }
}
