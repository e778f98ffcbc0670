//! Which partitions are said to stand in front of something, and which only wait.

use super::course::Course;
use sluice_plan::scale::{Cause, Limit, PartitionSample};

#[test]
fn a_gateway_that_reads_a_thousand_partitions_in_turns_has_none_that_is_stuck() {
    let mut course = Course::new(1_000, 1, 1);
    course.policy.replicas_max = Some(1);
    // Eight at a time for two seconds each: sixty in a poll, and the next turn of one comes after four minutes.
    let (mut read, mut next, mut counted) = (vec![Some(0); 1_000], 0, 0);
    for poll in 0..64 {
        let mut sample = course.pass();
        let turns: Vec<usize> = (next..next + 60).map(|place| place % 1_000).collect();
        next += 60;
        for number in turns {
            read[number] = sample.partitions[number].unwrap().committed;
        }
        for (partition, read) in sample.partitions.iter_mut().flatten().zip(&read) {
            partition.committed = *read;
        }
        course.samples.history.push(sample);
        let decision = course.decide();
        assert_ne!(decision.cause, Cause::PartitionStuck, "{}", decision.reason);
        if let Some(figures) = decision.figures.filter(|_| poll > 30) {
            assert!(figures.arrival_rate > 999.0, "all of them count: {figures:?}");
            counted += 1;
        }
    }
    assert!(counted > 20, "{counted} decisions have figures");
    // What the gateway itself says of one is so.
    let decision = course.step_with(|sample| {
        (sample.pods[0].still, sample.partitions[7].as_mut().unwrap().committed) = (vec![7], read[7]);
    });
    assert_eq!(decision.cause, Cause::PartitionStuck, "{}", decision.reason);
    assert!(decision.reason.contains("these do not: 7"), "{}", decision.reason);
}

#[test]
fn rare_commits_do_not_look_stuck() {
    let mut course = Course::new(8, 100, 2);
    let mut frozen = Vec::new();
    for poll in 0..40 {
        let mut sample = course.pass();
        if poll == 0 {
            frozen = sample.partitions.iter().flatten().map(|partition| partition.committed).collect();
        }
        for (partition, committed) in sample.partitions.iter_mut().flatten().zip(&frozen) {
            *partition =
                PartitionSample { position: partition.committed, committed: *committed, ..*partition };
        }
        course.samples.history.push(sample);
        let decision = course.decide();
        assert_eq!((decision.cause, decision.replicas), (Cause::ComputeLimited, 2), "{}", decision.reason);
    }
}

#[test]
fn a_poison_message_is_no_reason_for_more() {
    let mut course = Course::new(24, 60, 3);
    course.run(300);
    course.stuck = Some(7);
    let decision = course.run(3_600);
    assert!(decision.replicas <= 3, "{}", decision.reason);
    assert_eq!(decision.cause, Cause::PartitionStuck);
    assert_eq!(decision.limited, Some(Limit::PartitionStuck));
    assert!(decision.reason.contains("these do not: 7"), "{}", decision.reason);
}

#[test]
fn a_partition_that_had_nothing_waiting_is_not_stuck_and_neither_is_one_of_a_gateway_that_is_down() {
    for (waited, is_down, expected) in [(true, false, true), (false, false, false), (true, true, false)] {
        let mut course = Course::new(8, 100, 2);
        course.run(300);
        course.stuck = Some(1);
        course.arrivals[1] = 0;
        if waited {
            course.arrivals[1] = 1;
            course.step();
        }
        let mut stuck = false;
        for poll in 0..8 {
            // What was read up to its end stays so until the last poll.
            course.arrivals[1] = u64::from(waited || poll == 7);
            let decision = course.step_with(|sample| {
                if is_down {
                    sample.pods.remove(1);
                }
            });
            stuck = decision.cause == Cause::PartitionStuck;
        }
        assert_eq!(stuck, expected, "{waited} {is_down}");
    }
}
