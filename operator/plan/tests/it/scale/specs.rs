//! From a spec to the number of gateways: who sets it in each mode, and that a change of only this number restarts no gateway.

use crate::{observed, planned, sample, with};
use serde_json::{Value, json};
use sluice_crds::{DrainState, DrainStatus, SuspensionStatus, TracePipeline, TracePipelineStatus};
use sluice_plan::{
    Moment, Observed, ScalingSeen, WorkloadSeen,
    scale::{Decision, Mode, Policy, Rests, Samples, State, Zone, decide},
};

const PARTITIONS: u32 = 96;

fn pipeline(scaling: &Value, replicas: Option<u32>) -> TracePipeline {
    let mut pipeline = with("/spec/scaling", scaling.clone());
    pipeline.spec.replicas = replicas;
    pipeline
}

fn decision(replicas: u32) -> Decision {
    let nothing = decide(Moment(0), &Policy::default(), &State::default(), &Samples::default());
    Decision { replicas, ..nothing }
}

fn facts(pipeline: &TracePipeline, decided: Option<u32>, there: u32) -> Observed {
    Observed {
        scaling: ScalingSeen { decision: decided.map(decision), ..ScalingSeen::default() },
        workload: Some(WorkloadSeen { wanted: there, ..WorkloadSeen::default() }),
        ..observed(pipeline, PARTITIONS)
    }
}

#[test]
fn the_number_is_whose_the_mode_says() {
    for (mode, in_spec, decided, there, expected) in [
        ("Fixed", Some(5), Some(9), 7, 5),
        ("Fixed", None, Some(9), 7, 24),
        ("External", Some(5), None, 7, 5),
        ("External", Some(0), None, 7, 0),
        ("External", Some(500), None, 7, PARTITIONS),
        ("Recommend", Some(5), Some(9), 7, 5),
        ("Recommend", None, Some(9), 7, 7),
        ("Auto", None, Some(9), 7, 9),
        // Not decided yet: what there is stays.
        ("Auto", None, None, 7, 7),
        ("Recommend", None, None, 7, 7),
        // Idle topics left none, and only Auto would bring them back.
        ("Recommend", None, Some(0), 0, 24),
        ("Recommend", None, None, 0, 24),
        ("Recommend", Some(5), None, 0, 5),
    ] {
        let pipeline = pipeline(&json!({"mode": mode}), in_spec);
        let plan = planned(&pipeline, &facts(&pipeline, decided, there));
        assert_eq!(plan.replicas(), expected, "{mode} {in_spec:?} {decided:?} {there}");
    }
}

#[test]
fn whoever_was_told_to_leave_goes_on_leaving_until_something_is_decided() {
    let pipeline = pipeline(&json!({"mode": "Auto"}), None);
    let since = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let drain = DrainStatus {
        state: DrainState::Draining,
        target: 3,
        from: 7,
        since,
        reason: String::new(),
        outcome: None,
    };
    let mut facts = facts(&pipeline, None, 7);
    facts.scaling.drain = Some(drain);
    assert_eq!(planned(&pipeline, &facts).replicas(), 3);
}

#[test]
fn a_rest_that_is_left_for_recommend_ends_however_far_it_was() {
    let mut pipeline = pipeline(&json!({"mode": "Recommend"}), None);
    // Gateways were on their way out.
    let since = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let drain = DrainStatus {
        state: DrainState::Draining,
        target: 0,
        from: 7,
        since,
        reason: String::new(),
        outcome: None,
    };
    let mut leaving = facts(&pipeline, None, 7);
    leaving.scaling.drain = Some(drain);
    assert_eq!(planned(&pipeline, &leaving).replicas(), 7);
    // It was suspended while it had none, and is resumed.
    let suspension = Some(SuspensionStatus { replicas: 0, has_committed: true, is_empty: true });
    pipeline.status = Some(TracePipelineStatus { suspension, ..TracePipelineStatus::default() });
    assert_eq!(planned(&pipeline, &facts(&pipeline, None, 0)).replicas(), 24);
}

#[test]
fn another_number_of_gateways_is_no_reason_to_restart_them() {
    for (mode, in_spec) in [("Auto", false), ("External", true)] {
        let hash = |number: u32| {
            let pipeline = pipeline(&json!({"mode": mode}), in_spec.then_some(number));
            planned(&pipeline, &facts(&pipeline, Some(number), number)).config_hash()
        };
        let all: std::collections::BTreeSet<_> = [1, 2, 3, 6, 12, 24, 48, 96].map(hash).into();
        assert_eq!(all.len(), 1, "{mode}");
    }
}

#[test]
fn idle_topics_have_no_gateways_and_their_gateways_no_other_config() {
    let idle = pipeline(&json!({"mode": "Auto", "minReplicas": 0, "idle": {"after": "30m"}}), None);
    let number = |decided| planned(&idle, &facts(&idle, Some(decided), 3)).replicas();
    assert_eq!([0, 1, 5].map(number), [0, 1, 5]);
    let hash = |pipeline: &TracePipeline, there: u32| {
        planned(pipeline, &facts(pipeline, Some(there), there)).config_hash()
    };
    let always = pipeline(&json!({"mode": "Auto"}), None);
    let all: std::collections::BTreeSet<_> = [0, 1, 12, 96].map(|there| hash(&idle, there)).into();
    assert_eq!(all, [hash(&always, 12)].into());
    // An operator that has just started decides nothing yet.
    assert_eq!(planned(&idle, &facts(&idle, None, 0)).replicas(), 0);
    let policy = Policy::of(&sample("tracepipeline-idle.yaml").spec).unwrap();
    assert_eq!(policy.rests, Some(Rests { after_seconds: 1_800, refresh_seconds: 86_400 }));
}

#[test]
fn the_full_sample_is_the_policy_that_it_reads_like() {
    let policy = Policy::of(&sample("tracepipeline-full.yaml").spec).unwrap();
    let [office] = &policy.schedules[..] else { panic!() };
    assert_eq!((policy.mode, policy.replicas_min, policy.replicas_max), (Mode::Recommend, 2, Some(12)));
    assert_eq!((policy.catch_up_seconds, policy.down_after_seconds), (600.0, 600));
    assert_eq!(policy.fallback_replicas, Some(6));
    assert_eq!((office.days, office.from_minute, office.to_minute), (0b1_1111, 480, 1_080));
    assert_eq!(Some(&office.zone), Zone::ahead_of_utc(120).as_ref());
    assert_eq!((office.replicas_min, office.replicas_max), (Some(4), Some(12)));
}

#[test]
fn what_was_stored_before_a_rule_was_there_is_a_violation() {
    for (scaling, path) in [
        (json!({"targetLag": "soon"}), "spec.scaling.targetLag"),
        (json!({"scaleDownAfter": "10"}), "spec.scaling.scaleDownAfter"),
        (json!({"drain": {"timeout": ""}}), "spec.scaling.drain.timeout"),
        (json!({"idle": {"after": "soon"}}), "spec.scaling.idle.after"),
        (json!({"idle": {"after": "1h", "refreshEvery": ""}}), "spec.scaling.idle.refreshEvery"),
        (json!({"schedules": [{"name": "a", "from": "8", "to": "18:00"}]}), "spec.scaling.schedules[0].from"),
        (
            json!({"schedules": [{"name": "a", "from": "08:00", "to": "18:00", "timeZone": "Nowhere/There", "minReplicas": 2}]}),
            "spec.scaling.schedules[0].timeZone",
        ),
    ] {
        let pipeline = pipeline(&scaling, None);
        let found =
            sluice_plan::plan(&pipeline, &observed(&pipeline, PARTITIONS), &crate::defaults()).unwrap_err();
        let paths: Vec<_> = found.iter().map(|violation| violation.path.clone()).collect();
        assert_eq!(paths, [path]);
    }
}
