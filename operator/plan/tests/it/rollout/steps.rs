//! Single steps, the shape that they give to the StatefulSet, and what is said of them.

use super::model::terms;
use crate::{observed, planned, sample, statuses::said, with};
use k8s_openapi::{
    api::apps::v1::StatefulSet,
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use serde_json::json;
use sluice_crds::{RolloutState, RolloutStatus, TracePipeline, TracePipelineStatus};
use sluice_plan::{
    GatewaySeen, Observed, WorkloadSeen, build,
    objects::{configs_of, plan_hash, revision},
    rollout::{Memory, Seen, Step, Template, Terms, spec_hash, step},
};

fn now() -> Timestamp {
    Timestamp::from_second(1_790_000_000).unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now().checked_sub(SignedDuration::from_secs(seconds)).unwrap()
}

fn written(state: RolloutState, seconds_ago: i64) -> RolloutStatus {
    RolloutStatus {
        state,
        revision: "new".into(),
        proved: Some("old".into()),
        since: Time(ago(seconds_ago)),
        healthy_since: None,
        message: String::new(),
        failed_spec: None,
        held_since: None,
    }
}

/// Three gateways. The last one has the newest revision.
fn workload(last: impl FnOnce(&mut GatewaySeen)) -> WorkloadSeen {
    let mut gateways: Vec<GatewaySeen> = (0..3)
        .map(|ordinal| GatewaySeen {
            name: format!("a-gateway-{ordinal}"),
            ordinal,
            revision: Some(if ordinal == 2 { "b" } else { "a" }.into()),
            created: Some(ago(300)),
            ready_since: Some(ago(200)),
            ..GatewaySeen::default()
        })
        .collect();
    last(&mut gateways[2]);
    WorkloadSeen {
        is_observed: true,
        wanted: 3,
        replicas: 3,
        ready: 3,
        updated: 1,
        current_revision: Some("a".into()),
        update_revision: Some("b".into()),
        gateways,
        revision: Some("new".into()),
        proved: Some(sluice_plan::ProvedSeen { revision: "old".into(), image: None, config_hash: None }),
        partition: 2,
        ..WorkloadSeen::default()
    }
}

fn stepped(written: &RolloutStatus, workload: &WorkloadSeen, trouble: Option<&str>) -> Step {
    let terms = Terms { deadline_seconds: 600, ..terms() };
    let seen = Seen {
        workload: Some(workload),
        replicas: 3,
        revision: "new",
        spec: "spec",
        plan_hash: "plan",
        leaving: None,
        trouble: trouble.map(Into::into),
    };
    step(now(), &terms, Some(written), &seen)
}

/// An operator that starts after the deadline would otherwise fail the rollout for no cause that it knows.
#[test]
fn a_rollout_that_is_late_fails_with_the_cause_once_the_gateway_was_heard() {
    for (state, partition) in [(RolloutState::Canary, 2), (RolloutState::Rolling, 0)] {
        let late = |change: fn(&mut GatewaySeen)| {
            let late = workload(|last| {
                (last.ready_since, last.created) = (None, Some(ago(600)));
                change(last);
            });
            let gateways = late
                .gateways
                .into_iter()
                .map(|gateway| GatewaySeen { ready_since: gateway.ready_since.map(|_| ago(600)), ..gateway });
            WorkloadSeen { gateways: gateways.collect(), partition, ..late }
        };
        let waits = stepped(&written(state, 600), &late(|last| last.is_unheard = true), None);
        assert_eq!(waits.next.state, state, "{waits:?}");
        let heard = late(|last| last.says = Some("waits for the table".into()));
        let failed = stepped(&written(state, 600), &heard, None);
        assert_eq!(failed.next.state, RolloutState::RolledBack, "{failed:?}");
        assert!(failed.next.message.contains("a-gateway-2: waits for the table"), "{failed:?}");
        // What Kubernetes says of the pod is cause enough.
        let ended = late(|last| (last.is_unheard, last.trouble) = (true, Some("last exit 69: no".into())));
        let failed = stepped(&written(state, 600), &ended, None);
        assert_eq!(failed.next.state, RolloutState::RolledBack, "{failed:?}");
    }
}

#[test]
fn a_canary_passes_waits_or_fails_by_what_its_pod_says() {
    use RolloutState::{Canary, RolledBack, Rolling};
    type Change = fn(&mut GatewaySeen);
    let healthy = |seconds| RolloutStatus { healthy_since: Some(Time(ago(seconds))), ..written(Canary, 300) };
    let ready = |_: &mut GatewaySeen| {};
    let restarted = |one: &mut GatewaySeen| (one.ends, one.ready_since) = (1, Some(ago(10)));
    let unready = |one: &mut GatewaySeen| {
        (one.ready_since, one.trouble) = (None, Some("Error, last exit 69: no".into()));
    };
    let refused = |one: &mut GatewaySeen| (one.ready_since, one.exit_code) = (None, Some(64));
    let looped = |one: &mut GatewaySeen| (one.ready_since, one.ends) = (None, 3);
    let late = |one: &mut GatewaySeen| (one.ready_since, one.created) = (None, Some(ago(600)));
    let old = |one: &mut GatewaySeen| one.revision = Some("a".into());
    let table: [(&str, i64, Change, RolloutState); 9] = [
        ("well for long enough", 60, ready, Rolling),
        ("not for long enough", 59, ready, Canary),
        ("restarted since", 300, restarted, Canary),
        ("a server was away for a moment", 300, unready, Canary),
        ("its config is refused", 300, refused, RolledBack),
        ("it ends again and again", 300, looped, RolledBack),
        ("late, but not since it was made", 300, |one| one.ready_since = None, Canary),
        ("the pod is the old one", 300, old, Canary),
        ("well again", 0, ready, Canary),
    ];
    for (what, healthy_for, change, expected) in table {
        let step = stepped(&healthy(healthy_for), &workload(change), None);
        assert_eq!(step.next.state, expected, "{what}: {step:?}");
        let (template, partition) = match expected {
            Canary => (Template::Planned, 2),
            Rolling => (Template::Planned, 0),
            _ => (Template::Proved, 0),
        };
        assert_eq!(
            (step.template, step.partition, step.memory),
            (template, partition, Memory::Kept),
            "{what}"
        );
    }
    let step = stepped(&written(Canary, 601), &workload(late), None);
    assert_eq!(step.next.state, RolledBack);
    assert!(
        step.next.message.starts_with(
            "no progress for 600 s: a-gateway-2: is not ready; the operator rolled the gateways back"
        ),
        "{step:?}"
    );
    assert_eq!(step.next.failed_spec.as_deref(), Some("spec"));
}

#[test]
fn trouble_of_its_own_begins_the_wait_again_and_fails_by_the_deadline() {
    let healthy = RolloutStatus { healthy_since: Some(Time(ago(300))), ..written(RolloutState::Canary, 500) };
    let troubled = stepped(&healthy, &workload(|_| {}), Some("gateway 2 fails to deliver"));
    assert_eq!((troubled.next.state, troubled.next.healthy_since.clone()), (RolloutState::Canary, None));
    assert!(troubled.next.message.contains("fails to deliver"), "{troubled:?}");
    let calm = stepped(&troubled.next, &workload(|_| {}), None);
    assert_eq!((calm.next.state, calm.next.healthy_since), (RolloutState::Canary, Some(Time(now()))));
    let since_long = RolloutStatus { since: Time(ago(600)), ..healthy };
    let old = workload(|one| one.created = Some(ago(600)));
    assert_eq!(stepped(&since_long, &old, Some("x")).next.state, RolloutState::RolledBack);
}

#[test]
fn a_copy_that_is_older_than_the_status_brings_the_canary_again_and_no_more() {
    // The template was given and the status written; the copy of the StatefulSet is the one before.
    let stale = WorkloadSeen {
        revision: Some("old".into()),
        proved: None,
        partition: 0,
        update_revision: Some("a".into()),
        ..workload(|one| one.revision = Some("a".into()))
    };
    let step = stepped(&written(RolloutState::Canary, 1), &stale, None);
    assert_eq!((step.next.state, step.partition, step.memory), (RolloutState::Canary, 2, Memory::Live));
}

#[test]
fn others_may_take_their_time_to_leave_but_not_to_become_ready() {
    let rolling = written(RolloutState::Rolling, 10_000);
    let with = |change: fn(&mut GatewaySeen)| {
        let mut seen = workload(|one| one.ready_since = Some(ago(9_000)));
        seen.gateways
            .iter_mut()
            .for_each(|one| (one.ready_since, one.created) = (Some(ago(9_000)), Some(ago(9_900))));
        change(&mut seen.gateways[1]);
        WorkloadSeen { partition: 0, ..seen }
    };
    let state = |seen: &WorkloadSeen| stepped(&rolling, seen, None).next.state;
    assert_eq!(state(&with(|one| one.is_leaving = true)), RolloutState::Rolling);
    assert_eq!(
        state(&with(|one| one.ready_since = Some(ago(10)))),
        RolloutState::Rolling,
        "that is progress"
    );
    assert_eq!(state(&with(|_| {})), RolloutState::RolledBack);
}

/// The demo's workload as the server stores it after the plan was applied.
fn live(pipeline: &TracePipeline) -> StatefulSet {
    let plan = planned(pipeline, &observed(pipeline, 12));
    let first = Seen {
        workload: None,
        replicas: 3,
        revision: &revision(&plan),
        spec: &spec_hash(pipeline),
        plan_hash: &plan_hash(&plan),
        leaving: None,
        trouble: None,
    };
    let step = step(now(), &terms(), None, &first);
    assert_eq!(step.next.state, RolloutState::Rolling);
    let mut live = build(&plan).rolled(&step, None).into_parts().workload.unwrap();
    live.spec.as_mut().unwrap().replicas = Some(3);
    live.status = Some(
        serde_json::from_value(json!({"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3,
        "currentRevision": "a", "updateRevision": "a"}))
        .unwrap(),
    );
    live
}

/// A look at a workload with the plan of a pipeline: the step and the StatefulSet that is sent.
fn look(
    pipeline: &TracePipeline,
    live: &StatefulSet,
    written: Option<&RolloutStatus>,
) -> (Step, StatefulSet) {
    let plan = planned(pipeline, &observed(pipeline, 12));
    let workload = WorkloadSeen::of(live, &[]);
    let seen = Seen {
        workload: Some(&workload),
        replicas: 3,
        revision: &revision(&plan),
        spec: &spec_hash(pipeline),
        plan_hash: &plan_hash(&plan),
        leaving: None,
        trouble: None,
    };
    let step = step(now(), &terms(), written, &seen);
    let sent = build(&plan).rolled(&step, Some(live)).into_parts().workload.unwrap();
    (step, sent)
}

#[test]
fn what_is_gone_back_to_is_the_very_template_that_ran() {
    let before = sample("tracepipeline.yaml");
    let ran = live(&before);
    let (rest, sent) = look(&before, &ran, None);
    assert_eq!(rest.next.state, RolloutState::Complete);
    assert_eq!(
        sent.spec,
        build(&planned(&before, &observed(&before, 12))).into_parts().workload.unwrap().spec
    );
    // Another image: one gateway gets it, and the other template is kept beside it.
    let after = with("/spec/gateway/image", json!("other:1"));
    let (canary, mut tried) = look(&after, &ran, Some(&rest.next));
    let spec = tried.spec.clone().unwrap();
    assert_eq!(
        (canary.next.state, canary.next.proved.as_deref()),
        (RolloutState::Canary, Some(rest.next.revision.as_str()))
    );
    assert_eq!(spec.update_strategy.unwrap().rolling_update.unwrap().partition, Some(2));
    assert_eq!(spec.template.spec.unwrap().containers[0].image.as_deref(), Some("other:1"));
    assert_eq!(configs_of(&tried).len(), 1, "another image needs no other config");
    // It fails.
    tried.spec.as_mut().unwrap().replicas = Some(3);
    let failed = RolloutStatus {
        state: RolloutState::RolledBack,
        failed_spec: Some(spec_hash(&after)),
        ..canary.next
    };
    let (back, sent) = look(&after, &tried, Some(&failed));
    assert_eq!((back.template, &back.next), (Template::Proved, &failed));
    let spec = sent.spec.clone().unwrap();
    assert_eq!(Some(&spec.template), ran.spec.as_ref().map(|spec| &spec.template));
    assert_eq!(spec.update_strategy.unwrap().rolling_update, None);
    let seen = WorkloadSeen::of(&sent, &[]);
    assert_eq!(seen.revision.as_deref(), Some(rest.next.revision.as_str()));
    assert_eq!(seen.proved.unwrap().image.as_deref(), Some("sluice-gateway:0.1.0"));
}

#[test]
fn a_workload_whose_gateways_leave_keeps_all_that_belongs_to_its_template() {
    let ran = live(&sample("tracepipeline.yaml"));
    let (rest, _) = look(&sample("tracepipeline.yaml"), &ran, None);
    let (canary, mut tried) = look(&with("/spec/gateway/image", json!("other:1")), &ran, Some(&rest.next));
    assert_eq!(tried.metadata.resource_version, None, "what is planned is so in every version");
    tried.metadata.resource_version = Some("7".into());
    let edited = with("/spec/gateway/logLevel", json!("debug"));
    let plan = planned(&edited, &observed(&edited, 12));
    let stays = Step { template: Template::Live, replicas: 2, ..canary };
    let sent = build(&plan).rolled(&stays, Some(&tried)).into_parts().workload.unwrap();
    assert_eq!(sent.metadata.annotations, tried.metadata.annotations);
    assert_eq!(sent.spec, tried.spec);
    assert_eq!(sent.metadata.resource_version.as_deref(), Some("7"), "a newer template is not taken back");
}

#[test]
fn configs_of_both_templates_are_needed_while_one_is_tried() {
    let ran = live(&sample("tracepipeline.yaml"));
    let (rest, _) = look(&sample("tracepipeline.yaml"), &ran, None);
    let (_, tried) = look(&with("/spec/gateway/logLevel", json!("debug")), &ran, Some(&rest.next));
    let (names, old) = (configs_of(&tried), configs_of(&ran));
    assert_eq!((names.len(), old.len()), (2, 1));
    assert!(old.is_subset(&names));
}

#[test]
fn a_workload_of_an_operator_that_named_no_revision_is_left_alone() {
    let pipeline = sample("tracepipeline.yaml");
    let mut older = live(&pipeline);
    older.metadata.annotations.as_mut().unwrap().remove("sluice.dev/revision");
    let (step, sent) = look(&pipeline, &older, None);
    assert_eq!((step.next.state, step.partition), (RolloutState::Complete, 0));
    assert_eq!(sent.spec.map(|spec| spec.template), older.spec.clone().map(|spec| spec.template));
    // And what it ran is what is gone back to.
    let (step, _) = look(&with("/spec/gateway/image", json!("other:1")), &older, None);
    assert_eq!((step.next.state, step.memory), (RolloutState::Canary, Memory::Live));
}

#[test]
fn another_number_of_replicas_is_no_other_spec() {
    let hash = |pointer: &str, value| spec_hash(&with(pointer, value));
    let before = spec_hash(&sample("tracepipeline.yaml"));
    assert_eq!(hash("/spec/replicas", json!(7)), before);
    assert_ne!(hash("/spec/partitionsPerReplica", json!(7)), before);
    assert_ne!(hash("/spec/rollout", json!({"autoRollback": false})), before);
}

#[test]
fn what_became_of_a_rollout_is_said_in_all_three_conditions() {
    let pipeline = sample("tracepipeline.yaml");
    let of = |state, message: &str| {
        let workload = WorkloadSeen { wanted: 3, ..WorkloadSeen::of(&live(&pipeline), &[]) };
        let rollout = RolloutStatus { message: message.into(), ..written(state, 0) };
        Observed { workload: Some(workload), rollout: Some(rollout), ..observed(&pipeline, 12) }
    };
    let summary = |status: &TracePipelineStatus| {
        ["Ready", "Reconciling", "Stalled"].map(|kind| {
            let found = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
            format!("{}/{}", found.status, found.reason)
        })
    };
    for (state, expected) in [
        (RolloutState::Complete, ["True/Running", "False/Ok", "False/Ok"]),
        (RolloutState::Canary, ["False/Progressing", "True/RollingOut", "False/Ok"]),
        (RolloutState::RolledBack, ["False/RolledBack", "False/RolledBack", "True/RolledBack"]),
        (RolloutState::Failed, ["False/RolloutFailed", "False/RolloutFailed", "True/RolloutFailed"]),
    ] {
        let status = said(&pipeline, &of(state, "exit 64: no such codec"));
        assert_eq!(summary(&status), expected, "{state:?}");
        let ready = &status.conditions[0].message;
        assert_eq!(ready.contains("no such codec"), state != RolloutState::Complete, "{ready}");
        assert_eq!(status.rollout.map(|rollout| rollout.state), Some(state));
    }
}
