//! What is said of partitions that no gateway reads, and of gateways that say nothing.

use crate::statuses::{condition, now, running, said, summary, summary_of};
use serde_json::json;
use sluice_crds::{DrainState, DrainStatus, TracePipelineStatus};
use sluice_plan::{
    Observed,
    observed::{Silence, SilentSeen, UnreadSeen},
};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn partitions_without_a_reader_are_said_after_half_a_minute_and_then_until_they_have_one() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let named: Vec<String> = ["spans/1", "spans/4", "spans/7"].map(str::to_owned).into();
    let unread = |seconds| {
        let unread = UnreadSeen { partitions: 5, of: 12, seconds, named: named.clone() };
        Observed { unread: Some(unread), ..facts.clone() }
    };
    let expected = ["False/PartitionsUnread", "True/Waiting", "False/Ok"];
    assert_eq!(summary(&said(&pipeline, &unread(29)))[0], "True/Running");
    let status = said(&pipeline, &unread(30));
    assert_eq!(summary(&status), expected);
    let words = &condition(&status, "Ready").message;
    let begin =
        "5 of 12 partitions have no reader (spans/1, spans/4, spans/7 and 2 more): no gateway owns them";
    assert!(words.starts_with(begin) && words.len() < 250, "{words}");
    assert!(words.ends_with("If none has, add a gateway (kubectl scale)"), "{words}");
    pipeline.status = Some(status);
    assert_eq!(summary(&said(&pipeline, &unread(0))), expected, "another operator has just begun to count");
    assert_eq!(summary(&said(&pipeline, &facts))[0], "True/Running");
    // Who is missing reads nothing, and that is the reason.
    let (pipeline, facts) = running(&json!({"readyReplicas": 2}), &[]);
    let unread = UnreadSeen { partitions: 4, of: 12, seconds: 60, named: Vec::new() };
    let facts = Observed { unread: Some(unread), ..facts };
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status)[0], "False/Progressing");
    let words = &condition(&status, "Ready").message;
    assert!(words.ends_with("; 4 of 12 partitions have no reader"), "{words}");
}

/// A pod that is deleted while it drains may keep partitions, those of other gateways that leave too.
#[test]
fn partitions_without_a_reader_are_said_also_while_gateways_leave() {
    let (mut pipeline, mut facts) = running(&json!({}), &[]);
    pipeline.spec.replicas = Some(1);
    facts.scaling.drain = Some(DrainStatus {
        state: DrainState::Draining,
        target: 1,
        from: 3,
        since: now(0),
        reason: "1 of 2 are empty".into(),
        outcome: None,
    });
    let words = |seconds| {
        let unread = UnreadSeen { partitions: 1, of: 12, seconds, named: vec!["spans/3".into()] };
        let status = said(&pipeline, &Observed { unread: Some(unread), ..facts.clone() });
        assert_eq!(summary(&status), ["False/Progressing", "True/Scaling", "False/Ok"]);
        condition(&status, "Ready").message.clone()
    };
    assert_eq!(words(29), "scaling in from 3 to 1 gateway: 1 of 2 are empty", "it may be a rebalance");
    assert!(words(30).ends_with("; 1 of 12 partitions have no reader (spans/3)"), "{}", words(30));
}

#[test]
fn a_ready_gateway_that_does_not_answer_is_named_with_its_address_after_a_minute() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let silent = |seconds, how| {
        let (name, address) = ("demo-gateway-1".to_owned(), "10.0.0.1:9090".to_owned());
        let silent = SilentSeen { name, address, seconds, how };
        Observed { silent: vec![silent], ..facts.clone() }
    };
    assert_eq!(summary(&said(&pipeline, &silent(59, Silence::Unreached)))[0], "True/Running", "a busy node");
    let status = said(&pipeline, &silent(60, Silence::Unreached));
    let expected = ["False/ReplicasNotReady", "True/Waiting", "False/Ok"];
    assert_eq!(summary(&status), expected);
    assert_eq!(
        condition(&status, "Ready").message,
        "demo-gateway-1 is ready, but does not answer the operator at 10.0.0.1:9090. Allow connections from the operator to ports 9090 \
         and 9091 of gateways (NetworkPolicy, firewall)"
    );
    pipeline.status = Some(status.clone());
    let not_asked = silent(0, Silence::NotAsked);
    assert_eq!(said(&pipeline, &not_asked), status, "another operator has not asked it yet");
    assert_eq!(summary(&said(&pipeline, &facts))[0], "True/Running");
    let words = "10.0.0.1:9090 answers /state with status 500 Internal Server Error";
    assert_eq!(
        condition(&said(&pipeline, &silent(60, Silence::Strange(words.into()))), "Ready").message,
        format!("demo-gateway-1 is ready, but the operator cannot use its answer: {words}"),
        "no network is in the way"
    );
    let hangs = said(&pipeline, &silent(60, Silence::Hangs));
    let message = &condition(&hangs, "Ready").message;
    assert!(message.contains("its process hangs or is stopped"), "{message}");
    assert!(
        message.contains("a proxy (service mesh) accepts") && message.contains("grace period"),
        "{message}"
    );
    for advice in ["logs", "delete pod"] {
        assert!(message.contains(&format!("kubectl {advice} demo-gateway-1 -n default")), "{message}");
    }
    assert!(message.contains("No span is lost") && !message.contains("NetworkPolicy"), "{message}");
    // How it is silent is not known before it is asked, and is no reason to say something else.
    pipeline.status = Some(hangs.clone());
    assert_eq!(said(&pipeline, &not_asked), hangs);
}

/// `Ready` would otherwise be true for the minute that a new operator counts.
#[test]
fn silent_gateways_stay_named_after_a_restart_also_if_another_pod_was_named_meanwhile() {
    let silent = |net: u32, seconds| -> Vec<SilentSeen> {
        let seen = |ordinal| SilentSeen {
            name: format!("demo-gateway-{ordinal}"),
            address: format!("10.0.{net}.{ordinal}:9090"),
            seconds,
            how: if seconds == 0 { Silence::NotAsked } else { Silence::Unreached },
        };
        (0..5).map(seen).collect()
    };
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let with = |silent| Observed { silent, ..facts.clone() };
    let status = said(&pipeline, &with(silent(0, 60)));
    let ready = condition(&status, "Ready").clone();
    assert!(ready.message.contains("; and 2 more. Allow connections"), "{}", ready.message);
    pipeline.status = Some(status);
    // The new operator has asked no gateway yet, and another pod is not ready.
    let (_, rolling) = running(&json!({"readyReplicas": 2}), &[]);
    let meanwhile = said(&pipeline, &Observed { silent: silent(0, 0), ..rolling });
    assert_eq!(summary_of(&meanwhile), "False/Progressing");
    pipeline.status = Some(meanwhile);
    let status = said(&pipeline, &with(silent(0, 0)));
    assert_eq!(condition(&status, "Ready"), &ready);
    // The first one answers, and does not answer the next look.
    pipeline.status = Some(status);
    let status = said(&pipeline, &with(silent(0, 30).split_off(1)));
    let words = |status: &TracePipelineStatus| condition(status, "Ready").message.clone();
    assert!(words(&status).starts_with("demo-gateway-1 ") && words(&status).contains("and 1 more"));
    pipeline.status = Some(status);
    let status = said(&pipeline, &with(silent(0, 0)));
    assert!(words(&status).starts_with("demo-gateway-1 "), "{}", words(&status));
    pipeline.status = Some(status);
    let anew = said(&pipeline, &with(silent(1, 0)));
    assert_eq!(summary_of(&anew), "True/Running", "all pods were made anew, and may not listen yet");
    assert_eq!(anew.silent_gateways, []);
}

/// Without this, `Ready` would say for the first look of a new operator only how many are ready.
#[test]
fn the_cause_of_a_gateway_that_a_new_operator_has_not_heard_stays() {
    let pod = serde_json::from_value(json!({"metadata": {"name": "demo-gateway-1"}})).unwrap();
    let (mut pipeline, mut facts) = running(&json!({"readyReplicas": 2}), &[pod]);
    let mut heard = |says: &[(u32, String)], unheard: &[u32]| {
        let workload = facts.workload.as_mut().unwrap();
        workload.told_by(&says.iter().cloned().collect(), &unheard.iter().copied().collect());
        facts.clone()
    };
    let waits = [(1, "waits for the table".to_owned())];
    let (told, unheard, silent) = (heard(&waits, &[]), heard(&[], &[1]), heard(&[], &[]));
    assert_eq!(summary_of(&said(&pipeline, &unheard)), "False/Progressing", "there is no former cause");
    let status = said(&pipeline, &told);
    assert_eq!(condition(&status, "Ready").message, "demo-gateway-1: waits for the table");
    pipeline.status = Some(status.clone());
    assert_eq!(said(&pipeline, &unheard), status);
    assert_eq!(summary_of(&said(&pipeline, &silent)), "False/Progressing", "it has no reason any more");
    // Another pod that was not heard has nothing to do with it.
    let elsewhere = serde_json::from_value(json!({"metadata": {"name": "demo-gateway-2"}})).unwrap();
    let (_, mut other) = running(&json!({"readyReplicas": 2}), &[elsewhere]);
    other.workload.as_mut().unwrap().told_by(&BTreeMap::new(), &BTreeSet::from([2]));
    assert_eq!(summary_of(&said(&pipeline, &other)), "False/Progressing");
}
