//! What is said of the source while the operator describes the topics, and Kafka gives gateways no messages.

use crate::{
    secret_seen,
    statuses::{condition, running, said},
    with,
};
use serde_json::json;
use sluice_crds::{SecretUse, TracePipeline};
use sluice_gateway_config::{UnfetchedCause, UnfetchedState};
use sluice_plan::{Observed, observed::UnfetchedSeen};

fn seen(ordinal: usize, cause: UnfetchedCause, seconds: u64) -> UnfetchedSeen {
    let topic = (cause != UnfetchedCause::GroupRefused).then(|| "spans".to_owned());
    let partitions = if topic.is_some() { 4 } else { 0 };
    UnfetchedSeen {
        name: format!("demo-gateway-{ordinal}"),
        said: UnfetchedState { cause, topic, partitions, error: None, seconds },
    }
}

fn facts_with(facts: &Observed, seen: Vec<UnfetchedSeen>) -> Observed {
    Observed { unfetched: Some(seen), ..facts.clone() }
}

/// `SourceReachable` and `Ready`, each with its message.
fn conditions(pipeline: &TracePipeline, facts: &Observed) -> [(String, String); 2] {
    let status = said(pipeline, facts);
    ["SourceReachable", "Ready"].map(|kind| {
        let found = condition(&status, kind);
        (format!("{}/{}", found.status, found.reason), found.message.clone())
    })
}

#[test]
fn a_user_without_read_on_the_topic_makes_neither_the_source_reachable_nor_the_pipeline_ready() {
    use UnfetchedCause::TopicRefused;
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let two = facts_with(&facts, vec![seen(0, TopicRefused, 10), seen(2, TopicRefused, 70)]);
    let [(source, words), (ready, of_ready)] = conditions(&pipeline, &two);
    assert_eq!((source.as_str(), ready.as_str()), ("False/AuthFailed", "False/SourceUnavailable"));
    let expected = "messages wait unread: demo-gateway-0 and 1 other gateway get none from 8 partitions of the topic \"spans\", because \
                    Kafka refuses the user the right to read it. Give the user Read on the topic (kafka-acls.sh --bootstrap-server \
                    kafka.sluice-stack.svc.cluster.local:9092 --add --allow-principal User:NAME --operation Read --topic spans)";
    assert_eq!(words, expected);
    assert_eq!(of_ready, words);
    // Another operator has not asked the gateways yet: the conditions hold until one answers.
    pipeline.status = Some(said(&pipeline, &two));
    assert_eq!(conditions(&pipeline, &facts), [(source, words.clone()), (ready, words)]);
    let [source, ready] = conditions(&pipeline, &facts_with(&facts, Vec::new()));
    assert_eq!((source.0.as_str(), ready.0.as_str()), ("True/Ok", "True/Running"));
    let [source, _] = conditions(&pipeline, &facts_with(&facts, vec![seen(0, TopicRefused, 9)]));
    assert_eq!(source.0, "True/Ok");
}

#[test]
fn the_secret_of_the_user_is_named() {
    let (_, mut facts) = running(&json!({}), &[]);
    let sasl = json!({"mechanism": "ScramSha512", "secretRef": {"name": "kafka-user"}});
    let pipeline: TracePipeline = with("/spec/source/kafka/sasl", sasl);
    facts.secrets.insert(SecretUse::KafkaUser, secret_seen("1111111111"));
    let refused = vec![seen(0, UnfetchedCause::TopicRefused, 10)];
    let [(_, words), _] = conditions(&pipeline, &facts_with(&facts, refused));
    let expected = " --operation Read --topic spans); the credentials are those of the Secret \"kafka-user\"";
    assert!(words.contains(expected), "{words}");
}

#[test]
fn each_cause_has_its_reason_and_what_helps() {
    use UnfetchedCause::{GroupRefused, NoLeader, Other, TopicUnknown};
    let (pipeline, facts) = running(&json!({}), &[]);
    for (cause, seconds, reason, expected) in [
        (
            GroupRefused,
            10,
            "AuthFailed",
            "demo-gateway-0 gets none, because Kafka refuses the user the consumer group",
        ),
        (GroupRefused, 10, "AuthFailed", "Give the user Read on the group"),
        (GroupRefused, 10, "AuthFailed", " --operation Read --group default.demo)"),
        (TopicUnknown, 60, "TopicMissing", "because Kafka does not know them. Make the topic"),
        (NoLeader, 60, "Unreachable", "because no broker leads them. Bring the brokers back"),
        (
            Other,
            60,
            "Unreachable",
            "and no error was reported. Check the brokers, and the log of demo-gateway-0",
        ),
    ] {
        let [source, ready] = conditions(&pipeline, &facts_with(&facts, vec![seen(0, cause, seconds)]));
        assert_eq!(source.0, format!("False/{reason}"), "{cause:?}");
        assert!(source.1.contains(expected), "{}", source.1);
        assert_eq!(ready, ("False/SourceUnavailable".to_owned(), source.1));
        let [early, _] = conditions(&pipeline, &facts_with(&facts, vec![seen(0, cause, seconds - 1)]));
        assert_eq!(early.0, "True/Ok", "{cause:?}");
    }
    let mut failed = seen(1, Other, 70);
    failed.said.error = Some("Message consumption error: NotLeader".into());
    let graver = seen(2, NoLeader, 60);
    let [source, _] = conditions(&pipeline, &facts_with(&facts, vec![failed.clone()]));
    assert!(source.1.contains("Its last error: Message consumption error: NotLeader. Check"), "{}", source.1);
    let [source, _] = conditions(&pipeline, &facts_with(&facts, vec![failed, graver]));
    assert!(
        source.1.starts_with("messages wait unread: demo-gateway-2 gets none from 4 partitions"),
        "{}",
        source.1
    );
}
