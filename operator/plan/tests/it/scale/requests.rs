//! Gateways that accept OTLP: any of them takes any request, so that every number of them is worth having, and no partition bounds it.

use super::course::{CAPACITY, Course};
use sluice_plan::scale::{Alignment, Cause, Limit, Load, Mode, Policy};

/// Gateways between 1 and 8, and this many requests a second at all of them together.
fn course(arrival: u64, replicas: u32) -> Course {
    let mut course = Course::new(1, arrival, replicas);
    course.policy = Policy {
        mode: Mode::Auto,
        load: Load::Requests,
        replicas_max: Some(8),
        alignment: Alignment::Balanced,
        ..Policy::default()
    };
    course.is_shared = true;
    course
}

#[test]
fn as_many_gateways_as_the_load_takes_come_and_none_more() {
    for (arrival, expected) in [(500, 1), (2_200, 3), (3_500, 5), (4_400, 6), (5_200, 7)] {
        let mut course = course(arrival, 1);
        course.run(3_600);
        assert_eq!(course.replicas(), expected, "{arrival} requests a second of {CAPACITY} each");
    }
}

#[test]
fn they_leave_when_the_load_does_but_not_below_the_minimum() {
    let mut course = course(5_200, 7);
    course.policy.replicas_min = 2;
    course.run(1_800);
    assert_eq!(course.replicas(), 7);
    course.arrivals = vec![100];
    course.run(7_200);
    assert_eq!(course.replicas(), 2);
}

#[test]
fn the_maximum_of_the_spec_limits_them_and_says_so() {
    let mut course = course(20_000, 1);
    let last = course.run(3_600);
    assert_eq!((last.replicas, last.limited), (8, Some(Limit::MaxReplicas)), "{}", last.reason);
}

#[test]
fn a_slow_clickhouse_adds_no_gateway_whatever_waits_in_the_logs() {
    let mut course = course(2_000, 3);
    course.run(900);
    assert_eq!(course.replicas(), 3);
    course.sink = 200;
    let last = course.run(1_800);
    assert_eq!((last.replicas, last.cause), (3, Cause::SinkLimited), "{}", last.reason);
    course.sink = u64::MAX;
    assert!(course.run(600).replicas >= 3, "what waited is worked off before anybody leaves");
}

/// A pod that fills its memory gets company, since requests are spread.
#[test]
fn memory_that_is_used_up_adds_a_gateway() {
    let mut course = course(500, 2);
    let mut last = None;
    for _ in 0..40 {
        last = Some(course.step_with(|sample| {
            for pod in &mut sample.pods {
                (pod.memory_bytes, pod.memory_limit_bytes) = (240 << 20, 256 << 20);
            }
        }));
    }
    let last = last.unwrap();
    assert!(last.replicas > 2 && last.cause == Cause::MemoryLimited, "{} {:?}", last.replicas, last.cause);
}

#[test]
fn a_gateway_that_does_not_answer_holds_the_number() {
    let mut course = course(500, 4);
    let held = course.step_with(|sample| sample.silent = 1);
    assert_eq!(held.replicas, 4);
    for _ in 0..80 {
        assert_eq!(course.step_with(|sample| sample.silent = 1).replicas, 4);
    }
}
