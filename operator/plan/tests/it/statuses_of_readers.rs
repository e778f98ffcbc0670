//! What is said of partitions that no gateway reads, and of gateways that say nothing.

use crate::statuses::{condition, now, running, said, summary, summary_of};
use serde_json::json;
use sluice_crds::{DrainState, DrainStatus, TracePipelineStatus};
use sluice_plan::{
    Observed,
    observed::{SilentSeen, UnreadSeen},
};

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
    let silent = |seconds, refusal: Option<&str>| {
        let (name, address) = ("demo-gateway-1".to_owned(), "10.0.0.1:9090".to_owned());
        let silent = SilentSeen { name, address, seconds, refusal: refusal.map(str::to_owned) };
        Observed { silent: vec![silent], ..facts.clone() }
    };
    assert_eq!(summary(&said(&pipeline, &silent(59, None)))[0], "True/Running", "a busy node");
    let status = said(&pipeline, &silent(60, None));
    let expected = ["False/ReplicasNotReady", "True/Waiting", "False/Ok"];
    assert_eq!(summary(&status), expected);
    assert_eq!(
        condition(&status, "Ready").message,
        "demo-gateway-1 is ready, but does not answer the operator at 10.0.0.1:9090. Allow connections from the operator to ports 9090 \
         and 9091 of gateways (NetworkPolicy, firewall)"
    );
    pipeline.status = Some(status.clone());
    assert_eq!(said(&pipeline, &silent(0, None)), status, "another operator has not asked it yet");
    assert_eq!(summary(&said(&pipeline, &facts))[0], "True/Running");
    let words = "10.0.0.1:9090 answers /state with status 500 Internal Server Error";
    assert_eq!(
        condition(&said(&pipeline, &silent(60, Some(words))), "Ready").message,
        format!("demo-gateway-1 is ready, but the operator cannot use its answer: {words}"),
        "no network is in the way"
    );
}

/// `Ready` would otherwise be true for the minute that a new operator counts.
#[test]
fn silent_gateways_stay_named_after_a_restart_also_if_another_pod_was_named_meanwhile() {
    let silent = |net: u32, seconds| -> Vec<SilentSeen> {
        let seen = |ordinal| SilentSeen {
            name: format!("demo-gateway-{ordinal}"),
            address: format!("10.0.{net}.{ordinal}:9090"),
            seconds,
            refusal: None,
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
