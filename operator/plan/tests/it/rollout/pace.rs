//! How many gateways a rollout has away at the same time.

use super::model::{CANARY_SECONDS, DEADLINE_SECONDS, Model};
use proptest::prelude::*;
use sluice_crds::RolloutState;
use sluice_plan::rollout::Unavailable;

/// This number of gateways. The first one has proved `good-1`.
fn rolling(replicas: u32, unavailable: Unavailable) -> Model {
    let mut model = Model::running(replicas);
    model.terms.unavailable = unavailable;
    model.edit("good-1");
    model.look(true, true);
    while model.state() != Some(RolloutState::Rolling) {
        model.control();
        model.start_pods();
        model.pass(CANARY_SECONDS);
        model.look(true, true);
    }
    model
}

/// Turns of the cluster until all gateways have the newest revision, from when the canary has passed. In each, the pods that were made by
/// the last one get ready.
fn turns_after_the_canary(replicas: u32, unavailable: Unavailable) -> u32 {
    let mut model = rolling(replicas, unavailable);
    for turn in 0.. {
        if model.revisions().iter().all(|revision| *revision == "good-1") {
            return turn;
        }
        model.control();
        model.look(true, true);
        model.control();
        model.start_pods();
        model.look(true, true);
        assert!(turn < 1_000, "{model:#?}");
    }
    unreachable!("the range has no end")
}

#[test]
fn as_many_gateways_as_may_be_away_are_replaced_at_the_same_time() {
    for (unavailable, turns) in [
        (Unavailable::Number(1), 95),
        (Unavailable::Number(10), 10),
        (Unavailable::Percent(25), 4),
        (Unavailable::Percent(100), 1),
    ] {
        let taken = turns_after_the_canary(96, unavailable);
        assert!((turns..=turns + 1).contains(&taken), "{unavailable:?}: {taken} turns");
    }
}

#[test]
fn those_that_fail_with_an_old_password_are_replaced_without_waiting_for_each_other() {
    let mut model = rolling(20, Unavailable::Number(5));
    (0..19).for_each(|ordinal| model.fail_outdated(ordinal));
    for taken in [5, 5, 5, 4] {
        model.control();
        model.look(true, true);
        assert_eq!(model.taken(), taken, "all others are away already, and that keeps none of them");
        model.control();
        // Those that fail do not get well by themselves.
        (0..20).for_each(|ordinal| {
            model.start_pod(ordinal);
            model.fail_outdated(ordinal);
        });
    }
    assert!(model.revisions().iter().all(|revision| *revision == "good-1"), "{model:#?}");
}

#[test]
fn gateways_go_back_at_the_same_pace() {
    let mut model = rolling(8, Unavailable::Number(3));
    for _ in 0..3 {
        model.control();
        model.look(true, true);
    }
    assert_eq!(model.taken(), 3);
    // They never get ready, although the first one did.
    model.pass(DEADLINE_SECONDS);
    model.look(true, true);
    assert_eq!(model.state(), Some(RolloutState::RolledBack));
    model.control();
    let mut turns = 0;
    while !model.revisions().iter().all(|revision| *revision == "good-0") {
        model.control();
        model.look(true, true);
        assert!(model.taken() <= 3, "{model:#?}");
        model.control();
        model.start_pods();
        turns += 1;
        assert!(turns <= 3, "{model:#?}");
    }
}

/// What happens while a change that works is rolled out.
#[derive(Debug, Clone)]
enum Turn {
    Look,
    /// The operator dies after this many deletions, and has written nothing but the StatefulSet.
    Killed {
        deletions: usize,
    },
    Control,
    Start(u32),
    FailOutdated(u32),
    Pass(u32),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = prop_oneof![
        4 => Just(Turn::Look),
        3 => (0usize..4).prop_map(|deletions| Turn::Killed { deletions }),
        6 => Just(Turn::Control),
        8 => (0u32..12).prop_map(Turn::Start),
        2 => (0u32..12).prop_map(Turn::FailOutdated),
        // Far from the deadline in all.
        2 => (1u32..=CANARY_SECONDS / 4).prop_map(Turn::Pass),
    ];
    // Enough to get past the canary.
    proptest::collection::vec(turn, 0..160)
}

fn carry_out(model: &mut Model, turn: &Turn) {
    match turn {
        Turn::Look => drop(model.look(true, true)),
        Turn::Killed { deletions } => drop(model.look_until(true, *deletions, false)),
        Turn::Control => model.control(),
        Turn::Start(ordinal) => model.start_pod(*ordinal),
        Turn::FailOutdated(ordinal) => model.fail_outdated(*ordinal),
        Turn::Pass(seconds) => model.pass(*seconds),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn never_more_are_taken_than_may_be_away_and_a_rollout_ends_whoever_dies_where(
        replicas in 2u32..12, most in 2u32..6, turns in turns(),
    ) {
        let mut model = Model::running(replicas);
        model.terms.unavailable = Unavailable::Number(most);
        model.edit("good-1");
        for turn in &turns {
            let before = model.away();
            carry_out(&mut model, turn);
            prop_assert!(model.taken() <= most, "{turn:?}: {model:#?}");
            let is_look = matches!(turn, Turn::Look | Turn::Killed { .. });
            // One that is ready is taken only while fewer are away than may be.
            prop_assert!(!is_look || model.away() <= most.max(before), "{turn:?}: {model:#?}");
        }
        model.settle();
        prop_assert_eq!(model.state(), Some(RolloutState::Complete));
        prop_assert!(model.revisions().iter().all(|revision| *revision == "good-1"), "{:?}", model);
    }
}
