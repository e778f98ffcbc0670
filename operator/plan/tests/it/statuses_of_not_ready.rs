//! What is said of gateways that are not ready for several causes, and what helps.

use crate::statuses::{condition, now, running, said, summary_of};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use sluice_crds::{RolloutState, RolloutStatus, TracePipeline};
use sluice_plan::{
    Observed,
    observed::{MissingTable, Silence, SilentSeen, UnusableTable},
};
use std::collections::{BTreeMap, BTreeSet};

fn pod(ordinal: u32, state: &Value, last: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": format!("demo-gateway-{ordinal}")},
        "status": {"containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": false,
            "restartCount": 1, "state": state, "lastState": last}]},
    }))
    .unwrap()
}

fn ended(ordinal: u32, code: i32, reason: &str) -> Pod {
    let ended = json!({"terminated": {"exitCode": code, "reason": reason}});
    pod(ordinal, &json!({"waiting": {"reason": "CrashLoopBackOff"}}), &ended)
}

fn silent(ordinal: u32, seconds: u64, how: Silence) -> SilentSeen {
    let address = format!("10.0.0.{ordinal}:9090");
    SilentSeen { name: format!("demo-gateway-{ordinal}"), address, seconds, how }
}

fn ready(pipeline: &TracePipeline, facts: &Observed) -> String {
    condition(&said(pipeline, facts), "Ready").message.clone()
}

#[test]
fn a_silent_gateway_is_named_beside_others_that_are_not_ready() {
    const SILENT: &str =
        "; demo-gateway-0 is ready, but does not answer the operator at 10.0.0.0:9090. Allow connections";
    let crashed = [ended(1, 137, "Error"), ended(2, 137, "Error")];
    let starting: [Pod; 0] = [];
    for (pods, begins) in [
        (&crashed[..], "demo-gateway-1: CrashLoopBackOff, last exit 137: killed; demo-gateway-2: "),
        (&starting[..], "1 of 3 gateways are ready"),
    ] {
        let (pipeline, mut facts) = running(&json!({"readyReplicas": 1}), pods);
        facts.silent = vec![silent(0, 59, Silence::Unreached)];
        assert!(!ready(&pipeline, &facts).contains("demo-gateway-0"));
        facts.silent = vec![silent(0, 60, Silence::Unreached)];
        let message = ready(&pipeline, &facts);
        assert!(message.starts_with(begins) && message.contains(SILENT), "{message}");
    }
}

/// An operator that has just started does not know how a gateway is silent.
#[test]
fn how_a_gateway_is_silent_is_kept_beside_others_and_alone() {
    let (mut pipeline, mut facts) = running(&json!({"readyReplicas": 2}), &[ended(1, 137, "Error")]);
    facts.silent = vec![silent(0, 60, Silence::Hangs)];
    let status = said(&pipeline, &facts);
    pipeline.status = Some(status.clone());
    facts.silent = vec![silent(0, 0, Silence::NotAsked)];
    assert_eq!(said(&pipeline, &facts), status);
    // The other one is ready again.
    let (_, well) = running(&json!({}), &[]);
    let alone = ready(&pipeline, &Observed { silent: facts.silent, ..well });
    assert!(alone.starts_with("demo-gateway-0 is ready, but takes connections at 10.0.0.0:9090"), "{alone}");
    assert!(alone.contains("kubectl delete pod demo-gateway-0 -n default"), "{alone}");
}

#[test]
fn each_cause_is_named_before_one_is_repeated_and_the_worst_first() {
    let waits = |ordinal| pod(ordinal, &json!({"running": {}}), &json!({}));
    let pull = json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
    let pods =
        [waits(0), waits(1), pod(2, &pull, &json!({})), ended(3, 137, "Error"), ended(4, 137, "Error")];
    let (pipeline, mut facts) = running(&json!({"readyReplicas": 0}), &pods);
    let says = [0_u32, 1].map(|ordinal| (ordinal, "waits for partitions".to_owned()));
    facts.workload.as_mut().unwrap().told_by(&BTreeMap::from(says), &BTreeSet::new());
    let message = ready(&pipeline, &facts);
    let begins = "demo-gateway-3: CrashLoopBackOff, last exit 137: killed; demo-gateway-2: ErrImagePull, not found; demo-gateway-0: waits for \
                  partitions; and 2 more. Exit code 137: ";
    assert!(message.starts_with(begins), "{message}");
}

#[test]
fn a_gateway_that_has_ended_is_named_with_what_helps() {
    for (code, reason, helps) in [
        (1, "Error", ". Exit code 1: an error while it ran"),
        (64, "Error", ". Exit code 64: its config is wrong"),
        (69, "Error", ". Exit code 69: Kafka or ClickHouse is away"),
        (134, "Error", ". Exit code 134: kubectl logs"),
        (137, "Error", "kubectl describe pod demo-gateway-1 -n default has the events"),
        (137, "OOMKilled", "increase gateway.resources.limits.memory"),
    ] {
        let pods = [ended(1, code, reason), ended(2, code, reason)];
        let (pipeline, facts) = running(&json!({"readyReplicas": 1}), &pods);
        assert_eq!(summary_of(&said(&pipeline, &facts)), "False/ReplicasNotReady");
        let message = ready(&pipeline, &facts);
        let logs = "kubectl logs demo-gateway-1 -n default --previous has its last words";
        assert!(message.contains(helps) && message.ends_with(logs), "{message}");
        assert_eq!(message.matches("--previous").count(), 1, "once for the same code: {message}");
    }
    // The words of a rollout that has failed name the gateway, and not what helps.
    let (pipeline, mut facts) = running(&json!({"readyReplicas": 2}), &[ended(1, 1, "Error")]);
    let message = "no progress for 20 s: demo-gateway-1: Error, last exit 1: Error".to_owned();
    facts.rollout = Some(RolloutStatus {
        state: RolloutState::Failed,
        revision: "b".into(),
        proved: None,
        since: now(0),
        healthy_since: None,
        message,
        failed_spec: None,
        held_since: None,
    });
    let message = ready(&pipeline, &facts);
    assert!(message.contains("last exit 1: Error. Exit code 1: an error while it ran"), "{message}");
    let (pipeline, facts) = running(&json!({"readyReplicas": 2}), &[ended(1, 0, "Completed")]);
    assert_eq!(ready(&pipeline, &facts), "demo-gateway-1: CrashLoopBackOff, last exit 0: Completed");
}

#[test]
fn a_gateway_that_waits_at_its_start_is_named_with_the_condition_that_has_what_helps() {
    let pods = [pod(1, &json!({"running": {}}), &json!({}))];
    let (pipeline, mut facts) = running(&json!({"readyReplicas": 2}), &pods);
    let says = [(1, "waits for the table".to_owned())];
    facts.workload.as_mut().unwrap().told_by(&BTreeMap::from(says), &BTreeSet::new());
    let begins = "demo-gateway-1: waits for the table";
    let unusable =
        |gateway: &str, reason| UnusableTable { gateway: gateway.into(), reason, words: "w".into() };
    let missing = |gateway: &str| MissingTable { gateway: gateway.into(), words: "w".into(), database: None };
    for (missing_table, unusable_table, helps) in [
        (None, None, ""),
        (Some(missing("demo-gateway-0")), None, ""),
        (Some(missing("demo-gateway-1")), None, ". The condition SchemaReady (TableMissing) has what helps"),
        (
            None,
            Some(unusable("demo-gateway-1", "ColumnMismatch")),
            ". The condition SchemaReady (ColumnMismatch) has what helps",
        ),
        (
            None,
            Some(unusable("demo-gateway-1", "Unreachable")),
            ". The condition SinkReachable (Unreachable) has what helps",
        ),
    ] {
        let facts = Observed { missing_table, unusable_table, ..facts.clone() };
        assert_eq!(ready(&pipeline, &facts), format!("{begins}{helps}"));
    }
    // Without a schema Job, SchemaReady is true. A managed pipeline would have another plan than these gateways.
    let mut unmanaged = serde_json::to_value(&pipeline).unwrap();
    unmanaged["spec"]["sink"]["clickhouse"]["schema"] = json!({"management": "None"});
    unmanaged["spec"]["managementState"] = json!("Unmanaged");
    let unmanaged: TracePipeline = serde_json::from_value(unmanaged).unwrap();
    facts.missing_table = Some(missing("demo-gateway-1"));
    let message = ready(&unmanaged, &facts);
    assert!(message.contains(". What helps: create the table (sluice-gateway ddl print"), "{message}");
}
