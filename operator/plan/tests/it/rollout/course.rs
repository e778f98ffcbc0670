//! Whole courses.

use super::model::{CANARY_SECONDS, DEADLINE_SECONDS, Model};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use sluice_crds::{RolloutState, RolloutStatus, RolloutStrategy};
use sluice_plan::rollout::{Template, Unavailable};

#[test]
fn one_gateway_first_then_the_others() {
    let mut model = Model::running(3);
    model.edit("good-1");
    model.look(true, true);
    for _ in 0..3 {
        model.control();
        model.start_pods();
    }
    assert_eq!(model.revisions(), ["good-0", "good-0", "good-1"]);
    model.look(true, true);
    model.pass(59);
    model.look(true, true);
    assert_eq!((model.state(), model.partition), (Some(RolloutState::Canary), 2));
    model.pass(1);
    model.look(true, true);
    assert_eq!((model.state(), model.partition), (Some(RolloutState::Rolling), 0));
    model.settle();
    assert_eq!(model.state(), Some(RolloutState::Complete));
    assert_eq!((model.revisions(), model.proved.as_deref()), (vec!["good-1"; 3], None));
}

#[test]
fn what_fails_goes_back_by_itself_and_the_others_never_notice() {
    let mut model = Model::running(3);
    let before: Vec<u32> = model.pods.values().map(|pod| pod.uid).collect();
    model.edit("bad-1");
    model.settle();
    assert_eq!(model.state(), Some(RolloutState::RolledBack));
    let status = model.status.clone().unwrap();
    assert!(status.message.starts_with("a-gateway-2: ImagePullBackOff, no such image"), "{}", status.message);
    assert_eq!((status.revision.as_str(), status.proved.as_deref()), ("bad-1", Some("good-0")));
    let after: Vec<u32> = model.pods.values().map(|pod| pod.uid).collect();
    assert_eq!((model.revisions(), &after[..2]), (vec!["good-0"; 3], &before[..2]));
    // Nothing happens any more until a user edits the spec. An edit that gives the same template counts, too.
    model.settle();
    assert_eq!(model.status.clone().unwrap(), status);
    model.edit("bad-1");
    model.look(true, true);
    assert_eq!((model.state(), model.template.as_str()), (Some(RolloutState::Canary), "bad-1"));
    model.edit("good-2");
    model.settle();
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::Complete), vec!["good-2"; 3]));
}

#[test]
fn another_revision_is_tried_with_the_same_spec_and_the_old_one_is_at_rest_at_once() {
    let mut model = Model::running(2);
    model.edit("bad-1");
    model.settle();
    // A Secret was mended: another template of the same spec.
    model.wanted.0 = "good-1".into();
    model.settle();
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::Complete), vec!["good-1"; 2]));
    model.edit("bad-2");
    model.settle();
    let uids: Vec<u32> = model.pods.values().map(|pod| pod.uid).collect();
    model.edit("good-1");
    model.look(true, true);
    assert_eq!((model.state(), model.proved.as_deref()), (Some(RolloutState::Complete), None));
    model.settle();
    assert_eq!(model.pods.values().map(|pod| pod.uid).collect::<Vec<_>>(), uids, "it ran already");
}

#[test]
fn a_single_gateway_is_replaced_at_once_and_goes_back_too() {
    let mut model = Model::running(1);
    model.edit("good-1");
    model.look(true, true);
    assert_eq!((model.state(), model.partition), (Some(RolloutState::Rolling), 0));
    model.settle();
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::Complete), vec!["good-1"]));
    model.edit("bad-2");
    model.settle();
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::RolledBack), vec!["good-1"]));
}

#[test]
fn what_all_had_is_gone_back_to_also_when_nobody_wrote_that_down() {
    for replicas in [1, 3] {
        let mut model = Model::running(replicas);
        model.edit("good-1");
        model.settle();
        // As if the operator had been cut off between the StatefulSet and the status.
        let status = model.status.as_mut().unwrap();
        (status.state, status.proved) = (RolloutState::Rolling, Some("good-0".into()));
        model.edit("bad-2");
        model.settle();
        assert_eq!(model.state(), Some(RolloutState::RolledBack));
        assert_eq!(model.revisions(), vec!["good-1"; replicas as usize]);
    }
}

#[test]
fn what_all_had_is_complete_though_gateways_are_added_and_nobody_wrote_that_down() {
    let mut model = Model::running(1);
    model.wanted.2 = 2;
    model.edit("good-1");
    model.look(true, true);
    model.control();
    model.control();
    model.start_pods();
    model.control();
    model.pass(DEADLINE_SECONDS);
    // The operator is cut off between the StatefulSet, which has one gateway more, and the status.
    assert_eq!(model.look(true, false).next.state, RolloutState::Complete);
    model.look(true, true);
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::Complete), vec!["good-1"]));
    model.edit("bad-2");
    model.settle();
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::RolledBack), vec!["good-1"; 2]));
}

#[test]
fn what_an_edit_took_back_is_complete_though_gateways_are_added_and_nobody_wrote_that_down() {
    let mut model = Model::running(3);
    model.edit("good-1");
    model.look(true, true);
    model.edit("good-0");
    model.look(true, true);
    model.control();
    model.look(true, true);
    model.pass(CANARY_SECONDS);
    model.look(true, true);
    assert_eq!(model.state(), Some(RolloutState::Rolling));
    model.pass(DEADLINE_SECONDS);
    model.wanted.2 = 5;
    model.control();
    assert_eq!(model.look(true, false).next.state, RolloutState::Complete);
    model.look(true, true);
    model.edit("bad-1");
    model.settle();
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::RolledBack), vec!["good-0"; 5]));
}

#[test]
fn what_was_taken_back_is_not_tried_again_when_nobody_wrote_that_down() {
    for replicas in [1, 3] {
        let mut model = Model::running(replicas);
        model.edit("bad-1");
        model.look(true, true);
        // The operator is always cut off between the StatefulSet and the status.
        let is_taken_back = |model: &mut Model| {
            model.control();
            model.start_pods();
            model.pass(10);
            model.look(true, false).next.state == RolloutState::RolledBack
        };
        assert!((0..100).any(|_| is_taken_back(&mut model)), "{model:#?}");
        assert_ne!(model.state(), Some(RolloutState::RolledBack));
        let step = model.look(true, true);
        assert_eq!((step.next.state, step.template), (RolloutState::RolledBack, Template::Proved));
        assert!(step.next.message.contains("ImagePullBackOff"), "{}", step.next.message);
        model.edit("bad-1");
        assert_eq!(model.look(true, true).template, Template::Planned, "an edit tries it again");
    }
}

#[test]
fn without_a_way_back_it_stays_as_far_as_it_got_and_goes_on_when_it_is_well() {
    let mut model = Model::running(3);
    model.terms.auto_rollback = false;
    model.edit("bad-1");
    model.settle();
    assert_eq!((model.state(), model.partition), (Some(RolloutState::Failed), 2));
    assert_eq!(model.revisions(), ["good-0", "good-0", "bad-1"]);
    model.edit("good-2");
    model.settle();
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::Complete), vec!["good-2"; 3]));
}

#[test]
fn nothing_is_tried_while_gateways_leave_for_a_minute_at_the_most() {
    let mut model = Model::running(4);
    model.leave(2);
    model.edit("good-1");
    let status =
        model.status.clone().map(|status| RolloutStatus { held_since: Some(Time(model.now)), ..status });
    let step = model.look(true, true);
    assert_eq!((step.template, step.replicas, &model.status), (Template::Live, 4, &status));
    model.wanted.2 = 2;
    assert_eq!(model.look(true, true).replicas, 2, "those that leave are taken away meanwhile");
    model.pass(59);
    model.control();
    assert_eq!(model.look(true, true).template, Template::Live);
    model.leaving = None;
    model.look(true, true);
    assert_eq!((model.state(), model.partition), (Some(RolloutState::Canary), 1), "of those that stay");
    assert_eq!(model.status.as_ref().unwrap().held_since, None);
    model.settle();
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::Complete), vec!["good-1"; 2]));
    // What is to be changed may be what keeps them from leaving.
    model.leave(1);
    model.edit("good-2");
    model.look(true, true);
    model.pass(60);
    assert_eq!(model.look(true, true).next.state, RolloutState::Canary);
    // One that is under way goes on.
    model.leave(1);
    assert_eq!(model.look(true, true).template, Template::Planned);
}

#[test]
fn the_minute_begins_with_the_change_and_not_again_with_each_gateway_that_leaves() {
    let mut model = Model::running(5);
    // They leave for long already.
    model.leave(4);
    model.pass(1_000);
    model.edit("good-1");
    assert_eq!(model.look(true, true).template, Template::Live);
    for target in [3, 2] {
        model.pass(29);
        model.leave(target);
        assert_eq!(model.look(true, true).template, Template::Live);
    }
    model.pass(2);
    model.leave(1);
    assert_eq!(model.look(true, true).next.state, RolloutState::Canary);
    // A change that is taken back before it has begun leaves nothing behind.
    let mut model = Model::running(3);
    model.leave(2);
    model.edit("good-1");
    model.look(true, true);
    model.edit("good-0");
    model.look(true, true);
    let status = model.status.clone().unwrap();
    assert_eq!((status.state, status.held_since), (RolloutState::Complete, None));
}

#[test]
fn gateways_are_added_once_the_canary_has_passed() {
    let mut model = Model::running(2);
    model.edit("good-1");
    model.wanted.2 = 4;
    model.look(true, true);
    model.control();
    assert_eq!((model.replicas, model.pods.len()), (2, 1), "one is being replaced");
    model.settle();
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::Complete), vec!["good-1"; 4]));
}

#[test]
fn a_gateway_that_is_stuck_where_nobody_replaces_it_comes_back() {
    let mut model = Model::running(3);
    model.terms.strategy = RolloutStrategy::RollingUpdate;
    model.edit("bad-1");
    model.look(true, true);
    model.control();
    model.control();
    // Another one is lost, and comes back with the bad one too.
    model.lose(0);
    model.control();
    assert_eq!(model.revisions(), ["bad-1", "good-0", "bad-1"]);
    model.terms.strategy = RolloutStrategy::Canary;
    model.edit("good-2");
    model.look(true, true);
    assert_eq!(model.partition, 2, "the controller replaces the last one alone");
    model.control();
    model.start_pods();
    model.control();
    model.start_pods();
    model.look(true, true);
    model.control();
    assert_eq!(model.revisions(), ["good-0", "good-0", "good-2"]);
}

#[test]
fn there_is_nothing_to_try_while_nothing_runs() {
    let mut model = Model::running(2);
    model.wanted.2 = 0;
    model.edit("bad-1");
    model.look(true, true);
    model.control();
    model.settle();
    assert_eq!((model.state(), model.proved.as_deref()), (Some(RolloutState::Pending), Some("good-0")));
    let status = model.status.clone();
    model.pass(100_000);
    model.settle();
    assert_eq!(model.status, status);
    model.wanted.2 = 2;
    model.settle();
    assert_eq!((model.state(), model.revisions()), (Some(RolloutState::RolledBack), vec!["good-0"; 2]));
}

#[derive(Debug, Clone)]
enum Event {
    Edit(&'static str),
    Scale(u32),
    Leave(u32),
    Left,
    Look { applies: bool, writes: bool },
    Control,
    StartPods,
    Fail(u32),
    Lose(u32),
    Pass(u32),
    ForgetStatus,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let revision = prop_oneof![Just("good-0"), Just("good-1"), Just("good-2"), Just("bad-1"), Just("bad-2")];
    let look = (any::<bool>(), any::<bool>()).prop_map(|(applies, writes)| Event::Look { applies, writes });
    let event = prop_oneof![
        2 => revision.prop_map(Event::Edit),
        1 => (2u32..6).prop_map(Event::Scale),
        1 => (0u32..6).prop_map(Event::Leave),
        1 => Just(Event::Left),
        6 => Just(Event::Look { applies: true, writes: true }),
        2 => look,
        6 => Just(Event::Control),
        6 => Just(Event::StartPods),
        1 => (0u32..6).prop_map(Event::Fail),
        1 => (0u32..6).prop_map(Event::Lose),
        3 => (1u32..700).prop_map(Event::Pass),
        1 => Just(Event::ForgetStatus),
    ];
    proptest::collection::vec(event, 0..80)
}

fn happen(model: &mut Model, event: &Event) {
    match event {
        Event::Edit(revision) => model.edit(revision),
        Event::Scale(replicas) => model.wanted.2 = *replicas,
        Event::Leave(target) => model.leave(*target),
        Event::Left => model.leaving = None,
        Event::Look { applies, writes } => drop(model.look(*applies, *writes)),
        Event::Control => model.control(),
        Event::StartPods => model.start_pods(),
        Event::Fail(ordinal) => model.fail(*ordinal),
        Event::Lose(ordinal) => model.lose(*ordinal),
        Event::Pass(seconds) => model.pass(*seconds),
        Event::ForgetStatus => {
            // The status is lost between two rollouts. In the middle of a rollout, its loss would also lose which steps it has passed.
            if model.state() == Some(RolloutState::Complete) {
                model.status = None;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn never_more_than_one_gateway_has_a_revision_that_is_not_tried(
        replicas in 2u32..6, most in 1u32..4, events in events(),
    ) {
        let mut model = Model::running(replicas);
        model.terms.unavailable = Unavailable::Number(most);
        for event in &events {
            happen(&mut model, event);
            prop_assert!(model.untried() <= 1, "{event:?}: {model:#?}");
        }
    }

    #[test]
    fn a_revision_that_failed_comes_back_with_an_edit_alone(replicas in 1u32..5, events in events()) {
        let mut model = Model::running(replicas);
        model.edit("bad-1");
        model.settle();
        prop_assert_eq!(model.state(), Some(RolloutState::RolledBack));
        for event in events.iter().filter(|event| !matches!(event, Event::Edit(_))) {
            happen(&mut model, event);
            prop_assert_eq!(model.template.as_str(), "good-0", "{:?}", event);
        }
    }

    #[test]
    fn whatever_happened_the_last_spec_is_everywhere_or_taken_back(
        replicas in 1u32..6, most in 1u32..4, events in events(),
    ) {
        let mut model = Model::running(replicas);
        model.terms.unavailable = Unavailable::Number(most);
        for event in &events {
            happen(&mut model, event);
        }
        model.settle();
        let is_late = model.status.as_ref().is_some_and(|status| status.message.starts_with("no progress"));
        if is_late {
            // The pods were not started in time, whatever their revision is.
            let revision = model.wanted.0.clone();
            model.edit(&revision);
            model.settle();
        }
        let revisions = model.revisions();
        prop_assert_eq!(revisions.len(), model.wanted.2 as usize);
        prop_assert!(revisions.iter().all(|revision| *revision == revisions[0]), "{:?}", model);
        if model.wanted.0.starts_with("bad") {
            prop_assert_eq!(model.state(), Some(RolloutState::RolledBack));
            prop_assert!(revisions[0].starts_with("good"), "{:?}", revisions);
        } else {
            prop_assert_eq!(model.state(), Some(RolloutState::Complete));
            prop_assert_eq!(revisions[0], model.wanted.0.as_str());
        }
        let (status, proved) = (model.status.clone(), model.proved.clone());
        model.settle();
        prop_assert_eq!((model.status, model.proved), (status, proved), "it does not rest");
    }
}
