//! What holds whatever happens: random courses of load, sinks, damage and bounds.

use super::course::Course;
use proptest::{collection::vec, prelude::*};
use sluice_plan::{
    Moment,
    scale::{Alignment, Bounds, Mode, Policy, State, decide},
};

/// One poll: messages a second for each partition, what the sink takes, and what is damaged.
#[derive(Debug, Clone)]
struct Poll {
    arrival: u64,
    sink: u64,
    damage: u8,
}

fn poll() -> impl Strategy<Value = Poll> {
    (0_u64..3_000, prop_oneof![Just(u64::MAX), 0_u64..2_000], 0_u8..12)
        .prop_map(|(arrival, sink, damage)| Poll { arrival, sink, damage })
}

/// Polls that hold for a while each, so that windows fill.
fn polls() -> impl Strategy<Value = Vec<(Poll, usize)>> {
    vec((poll(), 1_usize..50), 1..8)
}

fn policy() -> impl Strategy<Value = Policy> {
    let mode = prop_oneof![
        Just(Mode::Auto),
        Just(Mode::Auto),
        Just(Mode::Fixed),
        Just(Mode::Recommend),
        Just(Mode::External)
    ];
    let alignment = prop_oneof![Just(Alignment::Balanced), Just(Alignment::Even), Just(Alignment::None)];
    (mode, alignment, 0_u32..20, proptest::option::of(1_u32..40), proptest::option::of(0_u32..60)).prop_map(
        |(mode, alignment, replicas_min, replicas_max, replicas)| Policy {
            mode,
            alignment,
            replicas_min,
            replicas_max,
            replicas,
            fallback_replicas: replicas,
            ..Policy::default()
        },
    )
}

/// Plays polls; every decision is shown, with the number of gateways before it and whether its sample was whole.
fn play(course: &mut Course, polls: &[(Poll, usize)], mut see: impl FnMut(&Course, u32, bool)) {
    for (poll, times) in polls {
        for _ in 0..*times {
            course.arrivals.iter_mut().for_each(|arrival| *arrival = poll.arrival);
            course.sink = poll.sink;
            let mut sample = course.pass();
            let mut whole = true;
            match poll.damage {
                0 => {
                    sample.partitions[0] = None;
                    whole = false;
                }
                1 => {
                    sample.group_stable = false;
                    whole = false;
                }
                2 => {
                    sample.pods.clear();
                    whole = false;
                }
                3 => course.samples.workload.killed_at = Some(course.now),
                6 => {
                    // One pod is silent.
                    sample.pods.pop();
                    whole = false;
                }
                7 => {
                    // Kafka's answer is an old one.
                    sample.at = Moment(sample.at.0 - 60_000);
                    whole = false;
                }
                _ => {}
            }
            if poll.damage == 4 {
                whole = false;
            } else {
                course.samples.history.push(sample);
            }
            let before = course.samples.workload.desired;
            let decision = course.decide();
            (course.samples.workload.desired, course.samples.workload.ready) =
                (decision.replicas, decision.replicas);
            see(course, before, whole);
        }
    }
}

#[test]
fn a_surplus_that_has_lasted_waits_for_the_next_sample() {
    let mut course = Course::new(2, 0, 2);
    let busy = Poll { arrival: 20, sink: u64::MAX, damage: 5 };
    let idle = Poll { arrival: 0, ..busy.clone() };
    let unseen = Poll { damage: 4, ..idle.clone() };
    let mut replicas = Vec::new();
    // The down window is 600 s, which are 40 polls: it is full at the first one that sees nothing.
    play(&mut course, &[(busy, 8), (idle.clone(), 31), (unseen, 3), (idle, 41)], |course, _, _| {
        replicas.push(course.replicas());
    });
    assert_eq!(replicas[..42], [2; 42]);
    assert_eq!(replicas.last(), Some(&1));
}

#[test]
fn gateways_with_few_messages_do_not_hide_that_the_others_wait_for_the_sink() {
    // Three gateways have two partitions and wait a third of the time; two have one, and never wait.
    let mut course = Course::new(8, 100, 5);
    course.policy.down_enabled = false;
    course.run(600);
    course.arrivals.fill(596);
    course.sink = 8 * 596 * 70 / 100;
    for _ in 0..5 {
        let decision = course.step();
        assert!(decision.replicas <= 5, "{}", decision.reason);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn replicas_stay_within_partitions_and_bounds(
        partitions in 1_usize..40, replicas in 0_u32..60, policy in policy(), polls in polls(),
    ) {
        let mut course = Course::new(partitions, 0, replicas);
        course.policy = policy;
        let mut broken = None;
        play(&mut course, &polls, |course, before, _| {
            let known = course.state.partitions;
            let bounds = Bounds::of(&course.policy, course.now, known);
            let replicas = course.replicas();
            let is_only_said = course.policy.mode == Mode::Recommend;
            let is_outside = !is_only_said && (replicas < bounds.min || replicas > bounds.max);
            let is_moved = is_only_said && known > 0 && replicas != before.min(known);
            if (known > 0 && replicas > known) || is_outside || is_moved {
                broken = Some((replicas, bounds, known));
            }
        });
        prop_assert_eq!(broken, None);
    }

    #[test]
    fn no_scale_up_while_the_sink_is_the_limit(
        partitions in 2_usize..40, replicas in 1_u32..8, arrivals in vec((100_u64..3_000, 1_usize..40), 1..6), percent in 0_u64..75,
        volumes: bool,
    ) {
        let mut course = Course::new(partitions, 100, replicas.min(u32::try_from(partitions).unwrap()));
        course.policy.rescales_per_hour = 60;
        // With them, gateways read on and are busy: nothing waits but their blocks.
        course.volumes = volumes;
        course.run(600);
        for (arrival, times) in arrivals {
            course.arrivals.iter_mut().for_each(|one| *one = arrival);
            for _ in 0..times {
                let before = course.replicas();
                // What ClickHouse takes is less than what arrives, and less than what the gateways could do that are there now.
                let could = (arrival * course.arrivals.len() as u64).min(1_000 * u64::from(before));
                course.sink = could * percent / 100;
                let decision = course.step();
                prop_assert!(decision.replicas <= before, "{}", decision.reason);
            }
        }
    }

    #[test]
    fn no_scale_down_on_missing_samples(partitions in 1_usize..40, replicas in 1_u32..40, polls in polls()) {
        let mut course = Course::new(partitions, 0, replicas.min(u32::try_from(partitions).unwrap()));
        let mut broken = None;
        play(&mut course, &polls, |course, before, whole| {
            if !whole && course.replicas() < before {
                broken = Some((before, course.replicas()));
            }
        });
        prop_assert_eq!(broken, None);
    }

    #[test]
    fn the_decision_is_pure_and_deterministic(
        partitions in 1_usize..40, replicas in 0_u32..60, policy in policy(), polls in polls(),
    ) {
        let mut course = Course::new(partitions, 0, replicas);
        course.policy = policy;
        let mut broken = None;
        play(&mut course, &polls, |course, _, _| {
            let now = Moment(course.now.0 + 1_000);
            let written: State = serde_json::from_str(&serde_json::to_string(&course.state).unwrap()).unwrap();
            let one = decide(now, &course.policy, &course.state, &course.samples);
            let other = decide(now, &course.policy, &written, &course.samples);
            if one != other {
                broken = Some((one, other));
            }
        });
        prop_assert_eq!(broken, None);
    }
}
