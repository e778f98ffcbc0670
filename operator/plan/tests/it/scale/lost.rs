//! Messages that are gone, and topics that were made anew: what waits then is no guide for ten minutes, and is one afterwards.

use super::course::{Course, POLL_SECONDS};
use sluice_plan::scale::PartitionSample;

#[test]
fn lost_messages_are_no_demand_for_ten_minutes() {
    let mut course = Course::new(8, 50, 2);
    course.run(600);
    let mut sample = course.pass();
    for partition in sample.partitions.iter_mut().flatten() {
        *partition = PartitionSample { log_start: partition.end - 1, committed: Some(3), ..*partition };
    }
    course.samples.history.push(sample);
    let decision = course.decide();
    let figures = decision.figures.unwrap();
    assert!(figures.lost_messages > 1_000 && figures.lag_messages < 10.0, "{figures:?}");
    assert_eq!(decision.replicas, 2);
    assert!(decision.next.lost_at.is_some());
}

#[test]
fn a_topic_made_anew_neither_empties_nor_fills_the_workload() {
    let mut course = Course::new(8, 200, 4);
    course.run(600);
    for _ in 0..4 {
        let mut sample = course.pass();
        for partition in sample.partitions.iter_mut().flatten() {
            *partition = PartitionSample { log_start: 0, end: 10, ..*partition };
        }
        course.samples.history.push(sample);
        assert_eq!(course.decide().replicas, 4);
    }
}

/// Sees to it that offsets are large, and after ten minutes changes what Kafka says of each partition; gives the number of gateways
/// after this many minutes more.
fn replicas_after(minutes: u64, change: impl Fn(&PartitionSample, u64) -> PartitionSample) -> u32 {
    const BEFORE: u64 = 1_000_000;
    let mut course = Course::new(8, 50, 2);
    let large = |partition: &PartitionSample| PartitionSample {
        end: partition.end + BEFORE,
        committed: partition.committed.map(|committed| committed + BEFORE),
        ..*partition
    };
    for _ in 0..40 {
        course.step_with(|sample| sample.partitions.iter_mut().flatten().for_each(|one| *one = large(one)));
    }
    assert_eq!(course.replicas(), 2);
    let from = course.now;
    let mut replicas = 2;
    while course.next().seconds_since(from) <= 60.0 * f64::from(u32::try_from(minutes).unwrap()) {
        let passed = (course.next().0 - from.0) / 1_000;
        let decision = course.step_with(|sample| {
            for one in sample.partitions.iter_mut().flatten() {
                *one = change(&large(one), passed);
            }
        });
        replicas = replicas.max(decision.replicas);
    }
    replicas
}

#[test]
fn a_million_messages_that_lost_ones_leave_are_no_demand_for_ten_minutes_and_then_one() {
    // The group fell behind what is kept, by ten messages, and a million are left before it.
    let lost = |one: &PartitionSample, passed: u64| PartitionSample {
        log_start: one.end - 50 * passed - 130_000,
        committed: one.committed.map(|committed| committed - 50 * POLL_SECONDS - 130_010),
        ..*one
    };
    assert_eq!(replicas_after(9, lost), 2);
    assert!(replicas_after(11, lost) > 2);
}

#[test]
fn a_large_topic_made_anew_is_no_demand_for_ten_minutes_and_then_one() {
    // As many messages are in it already, and what the group has committed is behind them all.
    let anew = |one: &PartitionSample, _| PartitionSample { end: one.end - 900_000, ..*one };
    assert_eq!(replicas_after(10, anew), 2);
    assert!(replicas_after(12, anew) > 2);
}
