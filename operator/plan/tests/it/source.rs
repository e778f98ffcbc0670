//! Kafka in the gateways' config: which group they stay in, and when the config may name other brokers.

use crate::{
    defaults, observed, planned, sample, secret_seen,
    statuses::{condition, running, said},
    with,
};
use serde_json::json;
use sluice_crds::{SecretUse, TopicStatus, TracePipeline, TracePipelineStatus};
use sluice_plan::{Observed, SourceFailure, TopicSeen, WorkloadSeen, build, plan};

#[test]
fn a_group_that_gateways_have_read_in_is_the_only_one_that_would_do() {
    let in_group = |asked: &str, running: Option<&str>| {
        let mut pipeline = with("/spec/source/kafka/consumerGroup", json!(asked));
        let consumer_group = running.map(str::to_owned);
        // Gateways were started with it.
        let image = Some("gateway:1".to_owned());
        pipeline.status =
            Some(TracePipelineStatus { consumer_group, image, ..TracePipelineStatus::default() });
        plan(&pipeline, &observed(&pipeline, 12), &defaults())
    };
    for (asked, running) in [
        ("", None),
        ("any", None),
        ("", Some("default.demo")),
        ("default.demo", Some("default.demo")),
        ("g", Some("g")),
    ] {
        assert!(in_group(asked, running).is_ok(), "{asked} {running:?}");
    }
    for (asked, running) in [("other", "default.demo"), ("", "g")] {
        let found = in_group(asked, Some(running)).unwrap_err().to_string();
        assert!(
            found.contains("spec.source.kafka.consumerGroup") && found.contains(&format!("{running:?}")),
            "{found}"
        );
    }
}

#[test]
fn a_change_of_kafka_waits_until_kafka_answers_to_it_and_no_other_does() {
    let before = with_topics(sample("tracepipeline.yaml"));
    let facts = observed(&before, 12);
    let workload = build(&planned(&before, &facts)).into_parts().workload.unwrap();
    let runs = Observed { workload: Some(WorkloadSeen::of(&workload, &[])), ..facts };
    let away = |failure| {
        let seen = TopicSeen::Unavailable { failure, message: "no answer".into() };
        Observed { partitions: [("otlp_spans".into(), seen)].into(), ..runs.clone() }
    };
    let brokers = with_topics(with("/spec/source/kafka/bootstrapServers", json!(["elsewhere:9092"])));
    let user = with_topics(with(
        "/spec/source/kafka/sasl",
        json!({"mechanism": "ScramSha512", "secretRef": {"name": "u"}}),
    ));
    let memory = with_topics(with("/spec/gateway/resources/limits/memory", json!("512Mi")));
    let version = |version: &str| {
        let mut secrets = runs.secrets.clone();
        secrets.insert(SecretUse::KafkaUser, secret_seen(version));
        secrets
    };
    for failure in [SourceFailure::Timeout, SourceFailure::AuthFailed] {
        for (edited, secrets, is_held) in [
            (&before, version("1"), false),
            (&memory, version("1"), false),
            (&brokers, version("1"), true),
            (&user, version("1"), true),
        ] {
            let facts = Observed { secrets, ..away(failure) };
            let plan = planned(edited, &facts);
            assert_eq!(plan.holds_source(), is_held, "{:?}", edited.spec.source);
            assert_eq!(build(&plan).into_parts().workload.is_none(), is_held);
            assert!(
                !planned(edited, &Observed { secrets: version("1"), ..runs.clone() }).holds_source(),
                "Kafka answers"
            );
        }
    }
    // Another password.
    let read = Observed { secrets: version("1"), ..runs.clone() };
    let workload = build(&planned(&user, &read)).into_parts().workload.unwrap();
    let workload = Some(WorkloadSeen::of(&workload, &[]));
    for (now, is_held) in [("1", false), ("2", true)] {
        let facts =
            Observed { secrets: version(now), workload: workload.clone(), ..away(SourceFailure::AuthFailed) };
        assert_eq!(planned(&user, &facts).holds_source(), is_held, "{now}");
    }
    // What an operator made that did not say how: nothing is known to differ.
    let silent = workload.map(|seen| WorkloadSeen { source_version: None, ..seen });
    let facts = Observed { workload: silent, ..away(SourceFailure::Timeout) };
    assert!(!planned(&brokers, &facts).holds_source());
}

/// The pipeline after the first answer of Kafka.
fn with_topics(mut pipeline: TracePipeline) -> TracePipeline {
    let topics = vec![TopicStatus { name: "otlp_spans".into(), partitions: 12 }];
    pipeline.status = Some(TracePipelineStatus { topics, ..TracePipelineStatus::default() });
    pipeline
}

#[test]
fn a_gateway_is_known_by_its_ordinal_whoever_added_it() {
    for (mode, replicas) in [("Fixed", 2), ("External", 7)] {
        let mut pipeline = with("/spec/scaling", json!({"mode": mode}));
        pipeline.spec.replicas = Some(replicas);
        let plan = planned(&pipeline, &observed(&pipeline, 12));
        let parts = build(&plan).into_parts();
        // Nothing that is made beforehand for each of them, and would be missing for one more.
        let text = serde_json::to_string(&parts.documents()).unwrap();
        assert!(!text.contains("demo-gateway-0"), "{text}");
        let spec = parts.workload.unwrap().spec.unwrap();
        let container = spec.template.spec.unwrap().containers.remove(0);
        let name = container.env.into_iter().flatten().find(|variable| variable.name == "POD_NAME").unwrap();
        let field = name.value_from.unwrap().field_ref.unwrap().field_path;
        assert_eq!(field, "metadata.name", "the StatefulSet numbers them");
        assert_eq!(spec.service_name.as_deref(), Some("demo-gateway"));
    }
}

/// At the limit of Kafka clients, an operator that has just started asks one cluster after another. What the last one found is said on: of a pipeline
/// that has run, and of one that never had a gateway.
#[test]
fn why_a_source_cannot_be_used_is_said_until_it_is_asked_again() {
    let (mut pipeline, well) = running(&json!({}), &[]);
    pipeline.metadata.generation = Some(3);
    let away = |failure, words: &str| TopicSeen::Unavailable { failure, message: words.into() };
    let never_ran = Observed { workload: None, ..well.clone() };
    for (base, has_run) in [(&well, true), (&never_ran, false)] {
        let of = |pipeline: &TracePipeline, seen: &TopicSeen| {
            let partitions = [("otlp_spans".into(), seen.clone())].into();
            let status = said(pipeline, &Observed { partitions, ..base.clone() });
            let words = ["SourceReachable", "Ready"].map(|kind| {
                let found = condition(&status, kind);
                (found.reason.clone(), found.message.clone())
            });
            (words, status)
        };
        let unasked = away(SourceFailure::NotAsked, "it waits");
        for (seen, reason) in [
            (away(SourceFailure::AuthFailed, "wrong password"), "AuthFailed"),
            (away(SourceFailure::TlsFailed, "no TLS"), "TlsFailed"),
            (away(SourceFailure::Timeout, "no answer"), "Timeout"),
            (TopicSeen::Missing, "TopicMissing"),
        ] {
            let before = if has_run { with_topics(pipeline.clone()) } else { pipeline.clone() };
            let (expected, status) = of(&before, &seen);
            assert_eq!([&*expected[0].0, &*expected[1].0], [reason, "SourceUnavailable"]);
            let mut before = TracePipeline { status: Some(status), ..before };
            assert_eq!(of(&before, &unasked).0, expected, "{has_run}");
            before.metadata.generation = Some(4);
            assert_eq!(of(&before, &unasked).0[0].0, "Unreachable", "brokers may be others");
        }
    }
}
