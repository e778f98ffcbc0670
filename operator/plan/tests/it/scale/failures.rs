//! What others react to wrongly, one test for each line that a pure function can decide.

use super::course::Course;
use sluice_plan::{
    Moment,
    scale::{
        Cause, Hold, InitialOffset, Limit, MergesBehind, Mode, PartitionSample, PodSample, Policy, Sample,
        Samples, State, decide,
    },
};

/// Eight minutes of little work for eight gateways: two minutes later seven or so would be taken away.
fn about_to_shrink() -> Course {
    let mut course = Course::new(24, 55, 8);
    assert_eq!(course.run(480).replicas, 8);
    course
}

#[test]
fn the_surplus_goes_when_nothing_is_wrong() {
    let mut course = about_to_shrink();
    course.run(240);
    assert_eq!(course.replicas(), 4, "at most half");
    course.run(3_600);
    assert_eq!(course.replicas(), 2, "1,320 messages/s at 70 % of 1,000");
}

#[test]
fn a_missing_answer_holds() {
    for damage in ["no sample", "a partition", "all partitions", "no pods", "unstable", "old"] {
        let mut course = about_to_shrink();
        for _ in 0..120 {
            let mut sample = course.pass();
            match damage {
                "a partition" => sample.partitions[3] = None,
                "all partitions" => sample.partitions.clear(),
                "no pods" => sample.pods.clear(),
                "unstable" => sample.group_stable = false,
                "old" => sample.at = Moment(sample.at.0 - 240_000),
                _ => {}
            }
            if damage != "no sample" {
                course.samples.history.push(sample);
            }
            let decision = course.decide();
            assert_eq!(decision.replicas, 8, "{damage}: {}", decision.reason);
        }
        assert!(course.decide().hold.is_some(), "{damage}");
    }
}

#[test]
fn nothing_known_for_five_minutes_takes_the_fallback() {
    let mut course = about_to_shrink();
    course.policy.fallback_replicas = Some(12);
    // The last sample counts for 45 s.
    for poll in 1..=40 {
        course.pass();
        let expected = if poll * 15 <= 345 { 8 } else { 12 };
        assert_eq!(course.decide().replicas, expected, "{poll}");
    }
    course.policy.fallback_replicas = Some(2);
    assert_eq!(course.decide().replicas, 8, "a fallback is no reason for fewer");
}

#[test]
fn messages_of_which_a_gateway_does_less_than_one_a_second_are_scaled_for_too() {
    // Eight partitions with 0.2 messages a second each. One gateway handles 0.4 messages a second.
    let (mut samples, mut state) = (Samples::default(), State::default());
    (samples.workload.desired, samples.workload.ready) = (1, 1);
    let policy = Policy { mode: Mode::Auto, ..Policy::default() };
    let mut decision = None;
    for poll in 0..40_u64 {
        let at = Moment(1_000_000 + poll * 15_000);
        let offset =
            PartitionSample { end: poll * 3, committed: Some(poll * 3 / 4), ..PartitionSample::default() };
        let pod = PodSample {
            at,
            workers: 1,
            busy_seconds: 15.0 * f64::from(u32::try_from(poll).unwrap()),
            messages: poll * 6,
            message_bytes: poll * 6 * (20 << 20),
            partitions: (0..8).collect(),
            partitions_active: 8,
            ..PodSample::default()
        };
        samples.history.push(Sample {
            at,
            group_stable: true,
            partitions: vec![Some(offset); 8],
            pods: vec![pod],
            silent: 0,
        });
        let decided = decide(at, &policy, &state, &samples);
        state = decided.next.clone();
        decision = Some(decided);
    }
    let decision = decision.unwrap();
    assert!((decision.next.capacity.unwrap() - 0.4).abs() < 0.01, "{:?}", decision.next.capacity);
    assert!(decision.replicas > 4, "{}", decision.reason);
    assert!(decision.reason.starts_with("1.6 messages/s at 76 % of 0.4 per gateway"), "{}", decision.reason);
    // The backlog of nine minutes; three quarters are left.
    assert!(decision.figures.unwrap().lag_seconds > 400.0);
}

#[test]
fn the_first_start_reads_a_backlog_only_when_it_is_to_be_read() {
    for (initial_offset, grows) in [(InitialOffset::Earliest, true), (InitialOffset::Latest, false)] {
        let mut course = Course::new(8, 20, 1);
        course.policy =
            Policy { initial_offset, capacity_hint: Some(1_000.0), mode: Mode::Auto, ..Policy::default() };
        let mut replicas = 1;
        for _ in 0..8 {
            let mut sample = course.pass();
            for partition in sample.partitions.iter_mut().flatten() {
                *partition =
                    PartitionSample { committed: None, end: partition.end + 1_000_000, ..*partition };
            }
            course.samples.history.push(sample);
            replicas = replicas.max(course.decide().replicas);
        }
        assert_eq!(replicas > 1, grows, "{initial_offset:?}: {replicas}");
    }
}

#[test]
fn replicas_follow_the_partitions_before_anything_is_learned() {
    let mut course = Course::new(24, 0, 3);
    course.policy.mode = Mode::Fixed;
    assert_eq!(course.step().replicas, 6);
    course.policy.replicas = Some(5);
    assert_eq!(course.step().replicas, 5);
    course.policy.replicas = Some(99);
    assert_eq!(course.step().replicas, 24);
    let blind = Samples { history: sluice_plan::scale::History::default(), ..course.samples.clone() };
    let unknown = decide(Moment(0), &Policy::default(), &State::default(), &blind);
    assert_eq!(unknown.replicas, 24, "partitions are not known: what is there stays");
}

#[test]
fn a_slow_sink_is_no_reason_for_more_and_is_said_to_be_the_reason() {
    for takes in [0, 200] {
        let mut course = Course::new(24, 100, 4);
        course.run(300);
        course.sink = takes;
        let decision = course.run(1_800);
        let limited = (4, Cause::SinkLimited, Some(Limit::SinkLimited));
        assert_eq!((decision.replicas, decision.cause, decision.limited), limited, "{takes}");
        assert!(decision.reason.contains("SinkLimited"), "{}", decision.reason);
        course.sink = u64::MAX;
        let decision = course.run(45);
        assert!(decision.replicas > 4, "as soon as the sink answers: {}", decision.reason);
    }
}

#[test]
fn merges_that_are_behind_add_no_gateway_and_are_named() {
    let mut course = Course::new(24, 100, 2);
    let behind = |sample: &mut Sample| {
        for pod in &mut sample.pods {
            pod.merges = Some(MergesBehind { parts: 620, delay_from: 1_000 });
        }
    };
    let mut decision = course.step_with(behind);
    for _ in 0..60 {
        decision = course.step_with(behind);
    }
    let limited = (2, Cause::SinkLimited, Some(Limit::SinkLimited));
    assert_eq!((decision.replicas, decision.cause, decision.limited), limited, "{}", decision.reason);
    for words in
        ["merges are behind: a partition of the table has 620 parts", "more gateways would make more parts"]
    {
        assert!(decision.reason.contains(words), "{}", decision.reason);
    }
    let decision = course.run(120);
    assert!(decision.replicas > 2, "as soon as merges keep up: {}", decision.reason);
}

#[test]
fn merges_that_are_behind_do_not_hide_a_kill_for_memory() {
    let mut course = Course::new(24, 40, 2);
    course.run(300);
    course.samples.workload.killed_at = Some(course.now);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let decision = course.step_with(|sample| {
            for pod in &mut sample.pods {
                pod.merges = Some(MergesBehind { parts: 620, delay_from: 1_000 });
            }
        });
        seen.push((decision.replicas, decision.cause));
    }
    assert!(seen.contains(&(3, Cause::MemoryLimited)), "{seen:?}");
}

#[test]
fn a_hot_partition_is_named_and_is_no_reason_for_all_gateways() {
    let mut course = Course::new(96, 5, 1);
    course.arrivals[0] = 3_000;
    let decision = course.run(3_600);
    assert_eq!((decision.cause, decision.limited), (Cause::PartitionSkewed, Some(Limit::PartitionSkewed)));
    assert!(decision.replicas < 96, "{}", decision.reason);
}

#[test]
fn an_operator_that_restarts_takes_nothing_away_before_its_windows_are_full() {
    let mut course = about_to_shrink();
    let capacity = course.state.capacity;
    assert!(capacity.is_some());
    course.samples.history = sluice_plan::scale::History::default();
    course.now = course.now.plus_seconds(120);
    for poll in 0..40 {
        assert_eq!(course.step().replicas, 8, "{poll}");
    }
    assert_eq!(course.state.capacity.map(f64::round), capacity.map(f64::round), "from status");
}

#[test]
fn a_roll_out_lets_gateways_be_added_and_none_be_taken_away() {
    let mut course = about_to_shrink();
    course.samples.workload.rolling = true;
    assert_eq!(course.run(1_800).replicas, 8);
    course.arrivals = vec![900; 24];
    assert!(course.run(300).replicas > 8);
}

#[test]
fn partitions_that_are_added_become_steps() {
    let mut course = Course::new(4, 900, 4);
    assert_eq!(course.run(600).limited, Some(Limit::TooFewPartitions));
    let mut grown = Course::new(8, 900, 4);
    grown.now = course.now;
    grown.state = course.state.clone();
    grown.policy = course.policy.clone();
    let decision = grown.run(300);
    assert_eq!(decision.next.partitions, 8);
    assert!(decision.replicas > 4, "{}", decision.reason);
}

#[test]
fn a_clock_that_went_back_and_a_counter_that_began_anew_change_nothing() {
    let mut course = about_to_shrink();
    course.now = Moment(course.now.0 - 300_000);
    for _ in 0..10 {
        let sample = course.pass();
        course.samples.history.push(sample);
        assert_eq!(course.decide().replicas, 8);
    }
    let mut course = about_to_shrink();
    let mut sample = course.pass();
    sample.pods.iter_mut().for_each(|pod| (pod.busy_seconds, pod.messages) = (0.0, 0));
    course.samples.history.push(sample);
    let decision = course.decide();
    assert_eq!(decision.replicas, 8);
    assert!(decision.figures.unwrap().arrival_rate > 900.0);
}

#[test]
fn after_a_clock_went_back_by_far_decisions_follow_what_is_seen_then() {
    let mut course = about_to_shrink();
    course.now = Moment(course.now.0 - 1_200_000);
    course.arrivals.fill(900);
    let decision = course.run(120);
    assert!(decision.replicas > 8, "{}", decision.reason);
}

#[test]
fn a_cluster_that_is_away_takes_the_fallback_though_the_group_is_not_seen_either() {
    let mut course = Course::new(24, 100, 4);
    course.policy.fallback_replicas = Some(6);
    course.run(300);
    let learned = course.state.disruption_seconds;
    for poll in 0..24 {
        let decision = course.step_with(|sample| {
            *sample = Sample { at: sample.at, ..Sample::default() };
        });
        assert_eq!(decision.hold, Some(Hold::MetricsUnavailable), "{}", decision.reason);
        assert_eq!(decision.replicas, if poll < 20 { 4 } else { 6 }, "{poll}: {}", decision.reason);
    }
    course.step();
    assert_eq!(course.state.disruption_seconds, learned, "that was no rescale");
}

#[test]
fn rows_that_are_refused_hold_nobody_and_inserts_that_keep_failing_are_the_servers() {
    let mut course = Course::new(24, 100, 4);
    course.run(300);
    let failing = |course: &mut Course, polls: u64| {
        let mut last = None;
        for poll in 1..=polls {
            last = Some(course.step_with(|sample| sample.pods[0].insert_failures = poll));
        }
        last.unwrap()
    };
    assert_eq!(failing(&mut course, 1).cause, Cause::ComputeLimited, "once");
    let decision = failing(&mut course, 3);
    assert_eq!((decision.cause, decision.replicas), (Cause::SinkLimited, 4), "{}", decision.reason);
    assert!(decision.reason.contains("and inserts fail"), "{}", decision.reason);
}

#[test]
fn a_gateway_that_is_down_and_was_killed_for_its_memory_gets_fewer_partitions() {
    let mut course = Course::new(24, 40, 2);
    course.run(300);
    course.samples.workload.ready = 1;
    course.samples.workload.killed_at = Some(course.now);
    let mut decision = None;
    for _ in 0..3 {
        let mut sample = course.pass();
        sample.pods.truncate(1);
        sample.pods[0].partitions.retain(|partition| partition % 2 == 0);
        sample.group_stable = false;
        course.samples.history.push(sample);
        decision = Some(course.decide());
        if decision.as_ref().is_some_and(|decision| decision.replicas > 2) {
            break;
        }
    }
    let decision = decision.unwrap();
    assert_eq!((decision.replicas, decision.cause), (3, Cause::MemoryLimited), "{}", decision.reason);
}

#[test]
fn a_kill_of_long_ago_is_no_reason_for_anything() {
    let mut course = Course::new(24, 40, 2);
    course.samples.workload.killed_at = Some(Moment(course.now.0 - 700_000));
    let decision = course.run(300);
    assert_eq!((decision.replicas, decision.cause), (2, Cause::ComputeLimited), "{}", decision.reason);
}

#[test]
fn a_new_template_and_other_messages_drop_what_was_learned() {
    let mut course = Course::new(8, 100, 2);
    course.run(300);
    assert!(course.state.capacity.is_some());
    course.samples.workload.revision = "another".into();
    course.samples.history.push(Sample { at: course.now.plus_seconds(1), ..Sample::default() });
    assert_eq!(course.decide().next.capacity, None);
}

#[test]
fn memory_forces_two_steps_and_then_asks_for_a_larger_limit() {
    let mut course = Course::new(24, 40, 2);
    let mut most = 0;
    let mut said = None;
    for _ in 0..240 {
        let mut sample = course.pass();
        for pod in &mut sample.pods {
            (pod.memory_bytes, pod.memory_limit_bytes) = (480 << 20, 512 << 20);
        }
        course.samples.history.push(sample);
        let decision = course.decide();
        (course.samples.workload.desired, course.samples.workload.ready) =
            (decision.replicas, decision.replicas);
        most = most.max(decision.replicas);
        said = decision.limited.map(|limited| (limited, decision.reason));
    }
    assert_eq!(most, 4);
    let (limited, reason) = said.expect("something limits");
    assert_eq!(limited, Limit::Memory);
    assert!(
        reason.contains("or gateway.resources.limits.memory: 640Mi"),
        "480 of 640 are three quarters: {reason}"
    );
}

#[test]
fn where_no_gateway_may_be_added_memory_asks_for_a_larger_limit_at_once() {
    let mut course = Course::new(24, 40, 2);
    course.policy.replicas_max = Some(2);
    course.run(300);
    course.samples.workload.killed_at = Some(course.now);
    let decision = course.run(60);
    assert_eq!((decision.replicas, decision.limited), (2, Some(Limit::Memory)), "{}", decision.reason);
}

#[test]
fn blocks_that_wait_on_a_queue_volume_are_the_servers_to_take_though_the_workers_are_busy() {
    let mut course = Course::new(24, 40, 2);
    course.volumes = true;
    course.run(300);
    course.arrivals.fill(200);
    course.sink = 1_000;
    let decision = course.run(300);
    assert_eq!((decision.replicas, decision.cause), (2, Cause::SinkLimited), "{}", decision.reason);
    assert!(decision.reason.contains("in 100 % of the gateways blocks wait"), "{}", decision.reason);
    course.sink = u64::MAX;
    let decision = course.run(300);
    assert_eq!((decision.replicas > 2, decision.cause), (true, Cause::ComputeLimited), "{}", decision.reason);
}

#[test]
fn a_kill_for_memory_forces_a_step_at_once() {
    let mut course = Course::new(24, 40, 2);
    course.run(300);
    course.samples.workload.killed_at = Some(course.now);
    let decision = course.run(60);
    assert_eq!((decision.replicas, decision.cause), (3, Cause::MemoryLimited), "{}", decision.reason);
}

#[test]
fn recommend_says_it_and_external_leaves_it() {
    let mut course = Course::new(24, 200, 2);
    course.policy.mode = Mode::Recommend;
    let decision = course.run(300);
    assert_eq!(decision.replicas, 2);
    assert!(
        decision.recommended > 4 && decision.reason.starts_with("recommended only"),
        "{}",
        decision.reason
    );
    course.policy.mode = Mode::External;
    assert_eq!(course.run(300).replicas, 2);
}

#[test]
fn recommend_says_a_step_against_memory_as_long_as_it_is_needed() {
    let mut course = Course::new(24, 40, 2);
    course.policy.mode = Mode::Recommend;
    course.run(300);
    course.samples.workload.killed_at = Some(course.now);
    course.run(45);
    for _ in 0..20 {
        let decision = course.step();
        assert_eq!((decision.replicas, decision.recommended), (2, 3), "{}", decision.reason);
        assert_eq!(decision.next.memory_steps, 0, "none was taken");
    }
}

#[test]
fn a_pod_that_is_killed_before_anything_is_learned_gets_fewer_partitions() {
    let mut course = Course::new(24, 40, 1);
    course.samples.workload.ready = 0;
    let mut most = 0;
    for _ in 1..8 {
        let mut sample = course.pass();
        // No gateway reads its partitions while it is down.
        sample.pods.clear();
        sample.group_stable = false;
        course.samples.history.push(sample);
        course.samples.workload.killed_at = Some(course.now);
        let decision = course.decide();
        course.samples.workload.desired = decision.replicas;
        most = decision.replicas;
    }
    assert!((2..=3).contains(&most), "two steps at most: {most}");
}
