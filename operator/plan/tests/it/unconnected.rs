//! What is said of the source while the operator reaches the brokers, and gateways do not.

use crate::statuses::{condition, running, said};
use serde_json::json;
use sluice_crds::TracePipeline;
use sluice_plan::{Observed, SourceFailure, TopicSeen, observed::UnconnectedSeen};

const REASON: &str = "kafka-0.lan:9092/1: Failed to resolve 'kafka-0.lan:9092': Name or service not known";

fn source(pipeline: &TracePipeline, facts: &Observed) -> (String, String) {
    let status = said(pipeline, facts);
    let found = condition(&status, "SourceReachable");
    (format!("{}/{}", found.status, found.reason), found.message.clone())
}

#[test]
fn gateways_that_reach_no_broker_for_a_minute_make_the_source_unreachable() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let with = |seconds: &[u64]| {
        let seen = |(ordinal, seconds): (usize, &u64)| UnconnectedSeen {
            name: format!("demo-gateway-{ordinal}"),
            reason: REASON.to_owned(),
            seconds: *seconds,
        };
        let seen = seconds.iter().enumerate().map(seen).collect();
        Observed { unconnected: Some(seen), ..facts.clone() }
    };
    assert_eq!(source(&pipeline, &with(&[59])).0, "True/Ok", "a broker restarts");
    let (verdict, words) = source(&pipeline, &with(&[3, 60]));
    assert_eq!(verdict, "False/Unreachable");
    assert_eq!(
        words,
        format!(
            "the operator reaches the brokers, but demo-gateway-1 does not: {REASON}. Check that pods can reach this address, which may \
             be one that a broker announces (advertised.listeners)"
        )
    );
    let (_, of_all) = source(&pipeline, &with(&[60, 70, 80]));
    assert!(
        of_all.contains("but demo-gateway-0 and 2 other gateways do not: kafka-0.lan:9092/1: "),
        "{of_all}"
    );
    // Another operator has not asked the gateways yet: the condition holds until one answers.
    pipeline.status = Some(said(&pipeline, &with(&[3, 60])));
    assert_eq!(source(&pipeline, &facts), (verdict, words));
    assert_eq!(source(&pipeline, &with(&[])).0, "True/Ok");
    assert_eq!(source(&pipeline, &with(&[0, 3])).0, "True/Ok", "they were connected meanwhile");
}

#[test]
fn what_the_operator_finds_itself_is_said_first_and_not_taken_for_the_gateways_own() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let seen = UnconnectedSeen { name: "demo-gateway-0".into(), reason: REASON.into(), seconds: 600 };
    let failure = SourceFailure::Unreachable;
    let away = TopicSeen::Unavailable { failure, message: "cannot connect to kafka:9092".into() };
    let partitions = facts.partitions.keys().map(|topic| (topic.clone(), away.clone())).collect();
    let away = Observed { partitions, unconnected: Some(vec![seen]), ..facts.clone() };
    let (verdict, words) = source(&pipeline, &away);
    assert_eq!(verdict, "False/Unreachable");
    assert!(words.starts_with("cannot connect to kafka:9092"), "{words}");
    pipeline.status = Some(said(&pipeline, &away));
    assert_eq!(source(&pipeline, &facts).0, "True/Ok", "no gateway has said anything");
}
