//! What is said in which situation.

use crate::{defaults, has_null, lacking, observed, planned, sample, with, with_credentials};
use k8s_openapi::{
    api::{apps::v1::StatefulSet, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use serde_json::{Value, json};
use sluice_crds::{KeyUse, Lag, Resources, SecretUse, TopicStatus, TracePipeline, TracePipelineStatus};
use sluice_plan::{
    Observed, ReconcileFailure, SchemaFailed, SchemaFailure, SchemaSeen, SecretSeen, SourceFailure,
    TopicSeen, WorkloadSeen, build, objects, observed::inserts::SinkSeen, plan, status,
};

pub fn now(second: u8) -> Time {
    Time(format!("2026-01-01T00:00:{second:02}Z").parse().unwrap())
}

/// The status at second 1.
pub fn said(pipeline: &TracePipeline, observed: &Observed) -> TracePipelineStatus {
    let outcome = plan(pipeline, observed, &defaults());
    let said = status(pipeline, observed, outcome.as_ref(), &now(1));
    for condition in &said.conditions {
        assert!(!condition.message.is_empty(), "{} says nothing", condition.type_);
    }
    assert!(!has_null(&serde_json::to_value(&said).unwrap()), "{said:?}");
    said
}

pub fn condition<'a>(status: &'a TracePipelineStatus, kind: &str) -> &'a Condition {
    status.conditions.iter().find(|condition| condition.type_ == kind).unwrap()
}

/// `Ready`, `Reconciling` and `Stalled` as `False/Reason` and so on.
pub fn summary(status: &TracePipelineStatus) -> [String; 3] {
    ["Ready", "Reconciling", "Stalled"].map(|kind| {
        let condition = condition(status, kind);
        format!("{}/{}", condition.status, condition.reason)
    })
}

/// `Ready` as `False/Reason` and so on.
pub fn summary_of(status: &TracePipelineStatus) -> String {
    summary(status)[0].clone()
}

/// The demo with 12 partitions and its workload as the server would return it, changed by `status`.
pub fn running(status: &Value, pods: &[Pod]) -> (TracePipeline, Observed) {
    let pipeline = sample("tracepipeline.yaml");
    let facts = observed(&pipeline, 12);
    let plan = planned(&pipeline, &facts);
    let mut workload: StatefulSet = build(&plan).into_parts().workload.unwrap();
    workload.metadata.generation = Some(1);
    workload.spec.as_mut().unwrap().replicas = Some(3);
    let mut merged = json!({"observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3,
        "currentRevision": "a", "updateRevision": "a"});
    merged.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    workload.status = Some(serde_json::from_value(merged).unwrap());
    let revision = Some(objects::revision(&plan));
    let workload = Some(WorkloadSeen { revision, ..WorkloadSeen::of(&workload, pods) });
    (pipeline, Observed { workload, lag: Some(Lag { messages: 1_234 }), ..facts })
}

#[test]
fn a_running_pipeline_says_so_with_every_count() {
    let (pipeline, facts) = running(&json!({}), &[]);
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status), ["True/Running", "False/Ok", "False/Ok"]);
    assert_eq!(condition(&status, "Ready").message, "3 gateways read 12 partitions");
    for kind in ["SourceReachable", "SinkReachable", "SchemaReady"] {
        assert_eq!(condition(&status, kind).status, "True", "{kind}");
    }
    let counts = [status.desired_replicas, status.replicas, status.ready_replicas, status.updated_replicas];
    assert_eq!((counts, status.ready.as_deref()), ([Some(3); 4], Some("3/3")));
    assert_eq!((status.partitions, status.lag), (Some(12), Some(Lag { messages: 1_200 })));
    assert_eq!(status.consumer_group.as_deref(), Some("default.demo"));
    assert_eq!(status.image.as_deref(), Some("sluice-gateway:0.1.0"));
    assert!(status.selector.unwrap().contains("app.kubernetes.io/instance=demo"));
    assert_eq!(status.observed_generation, Some(1));
    let mut derived = serde_json::to_value(&status.derived).unwrap();
    let advice = derived.as_object_mut().unwrap().remove("advice").unwrap();
    assert_eq!(
        derived,
        json!({
            "partitionsPerGateway": 4, "partitionsActivePerGateway": 12, "workers": 1, "memory": "256Mi",
            "memoryForBlocks": "129Mi", "queue": "972Mi", "insertConcurrency": 2, "deduplicationWindow": 20_000,
        })
    );
    assert!(advice.as_str().unwrap().contains("remember 20000 blocks"), "{advice}");
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(1)));
}

#[test]
fn the_same_facts_give_an_equal_status_and_keep_the_times() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let first = said(&pipeline, &facts);
    pipeline.status = Some(first.clone());
    let outcome = plan(&pipeline, &facts, &defaults());
    assert_eq!(status(&pipeline, &facts, outcome.as_ref(), &now(59)), first);

    let (_, scaled) = running(&json!({"readyReplicas": 2}), &[]);
    let later = status(&pipeline, &scaled, outcome.as_ref(), &now(59));
    assert_eq!(condition(&later, "Ready").last_transition_time, now(59));
    assert_eq!(condition(&later, "Stalled").last_transition_time, now(1));
}

#[test]
fn each_step_of_a_rollout_has_its_words() {
    for (workload, reconciling, message) in [
        (json!({"observedGeneration": 0}), "True/RollingOut", "about to be replaced"),
        (
            json!({"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}),
            "True/Scaling",
            "2 of 3 gateways exist",
        ),
        (json!({"replicas": 4}), "True/Scaling", "4 gateways exist, and 3 are wanted"),
        (
            json!({"updatedReplicas": 1, "updateRevision": "b"}),
            "True/RollingOut",
            "1 of 3 gateways are replaced",
        ),
        (json!({"readyReplicas": 2}), "True/RollingOut", "2 of 3 gateways are ready"),
    ] {
        let (pipeline, facts) = running(&workload, &[]);
        let status = said(&pipeline, &facts);
        assert_eq!(summary(&status), ["False/Progressing", reconciling, "False/Ok"], "{workload}");
        assert!(condition(&status, "Ready").message.contains(message), "{workload}");
    }
}

#[test]
fn a_workload_of_another_plan_is_about_to_be_changed() {
    let (_, facts) = running(&json!({}), &[]);
    let changed = with("/spec/gateway/logLevel", json!("debug"));
    let status = said(&changed, &facts);
    assert_eq!(summary(&status), ["False/Progressing", "True/SpecChanged", "False/Ok"]);
}

#[test]
fn a_pod_whose_memory_limit_was_lowered_is_named() {
    let pod = |limit: &str| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "demo-gateway-1"},
            "spec": {"containers": [{"name": "gateway", "resources": {"limits": {"memory": limit}}}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap()
    };
    let words = |limit| {
        let (pipeline, facts) = running(&json!({}), &[pod(limit)]);
        let status = said(&pipeline, &facts);
        assert_eq!(summary_of(&status), "True/Running", "it has less room, and rows flow");
        condition(&status, "Ready").message.clone()
    };
    for enough in ["256Mi", "320Mi"] {
        assert_eq!(words(enough), "3 gateways read 12 partitions");
    }
    let lowered = words("192Mi");
    assert!(lowered.contains("below 256Mi,") && lowered.ends_with(": demo-gateway-1 has 192Mi"), "{lowered}");
}

#[test]
fn pods_in_trouble_are_named_and_counted() {
    let pods: Vec<Pod> = (0..5)
        .map(|ordinal| {
            serde_json::from_value(json!({
                "metadata": {"name": format!("demo-gateway-{ordinal}")},
                "status": {"containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": false,
                    "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 69, "message": "no such user"}}}]},
            }))
            .unwrap()
        })
        .collect();
    let (pipeline, facts) = running(&json!({"readyReplicas": 0}), &pods);
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status), ["False/ReplicasNotReady", "True/RollingOut", "False/Ok"]);
    // What gateways say may ask for an edit.
    assert!(condition(&status, "Stalled").message.ends_with("the message of Ready has what gateways need"));
    let message = &condition(&status, "Ready").message;
    assert!(
        message.starts_with("demo-gateway-0: CrashLoopBackOff, last exit 69: no such user; "),
        "{message}"
    );
    assert!(message.contains("; and 2 more. Exit code 69: "), "{message}");
}

#[test]
fn a_gateway_that_was_to_end_and_whose_node_says_nothing_is_named_with_its_node() {
    let told = |until: &str| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "demo-gateway-1", "deletionTimestamp": until}, "spec": {"nodeName": "node-b", "containers": []},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        }))
        .unwrap()
    };
    for (until, is_overdue) in [("2026-01-01T00:00:31Z", false), ("2025-12-31T23:59:01Z", true)] {
        let (pipeline, facts) = running(&json!({"readyReplicas": 2}), &[told(until)]);
        let status = said(&pipeline, &facts);
        let message = &condition(&status, "Ready").message;
        let names = message.starts_with(&format!(
            "demo-gateway-1: should have ended by {until}; Kubernetes creates no new pod until the node node-b"
        )) && message.ends_with("kubectl delete node node-b)");
        assert_eq!(names, is_overdue, "{message}");
        assert_eq!(
            message == "2 of 3 gateways are ready; not ready: demo-gateway-1 (is being deleted)",
            !is_overdue,
            "{message}"
        );
        let reason = if is_overdue { "False/ReplicasNotReady" } else { "False/Progressing" };
        assert_eq!(summary(&status), [reason, "True/RollingOut", "False/Ok"]);
    }
}

#[test]
fn a_gateway_that_has_ended_and_is_still_there_is_named_with_what_keeps_it() {
    let pod = json!({
        "metadata": {
            "name": "demo-gateway-1", "deletionTimestamp": "2025-12-31T23:59:01Z", "finalizers": ["example.org/backup"],
        },
        "status": {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]},
    });
    let (pipeline, facts) = running(&json!({"readyReplicas": 2}), &[serde_json::from_value(pod).unwrap()]);
    let message = condition(&said(&pipeline, &facts), "Ready").message.clone();
    assert_eq!(message, "demo-gateway-1: has ended, but its finalizers keep it (example.org/backup)");
}

#[test]
fn a_wrong_spec_is_stalled_and_keeps_what_is_known() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    let before = said(&pipeline, &facts);
    pipeline.status = Some(before.clone());
    pipeline.spec.gateway.resources = Resources::default().with_memory("64Mi");
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status), ["False/SpecInvalid", "False/SpecInvalid", "True/SpecInvalid"]);
    assert!(
        condition(&status, "Ready")
            .message
            .contains("spec.gateway.resources.limits.memory: 64Mi is too small")
    );
    assert_eq!((status.partitions, status.topics), (before.partitions, before.topics));
    assert_eq!(status.ready_replicas, Some(3));
}

#[test]
fn a_source_that_is_not_there_is_waited_for() {
    let (pipeline, well) = running(&json!({}), &[]);
    let away = |failure| TopicSeen::Unavailable { failure, message: "no answer".into() };
    for (seen, reason) in [
        (TopicSeen::Missing, "TopicMissing"),
        (away(SourceFailure::Timeout), "Timeout"),
        (away(SourceFailure::Unreachable), "Unreachable"),
        (away(SourceFailure::AuthFailed), "AuthFailed"),
    ] {
        let facts = Observed { partitions: [("otlp_spans".into(), seen)].into(), ..well.clone() };
        let status = said(&pipeline, &facts);
        assert_eq!(summary(&status), ["False/SourceUnavailable", "True/Waiting", "False/Ok"], "{reason}");
        assert_eq!(condition(&status, "SourceReachable").reason, reason);
    }
}

/// At the limit of Kafka clients, an operator that has just started asks one cluster after another.
#[test]
fn a_source_that_was_well_and_is_not_asked_yet_stays_well_for_the_same_spec() {
    let (mut pipeline, well) = running(&json!({}), &[]);
    pipeline.metadata.generation = Some(3);
    pipeline.status = Some(said(&pipeline, &well));
    let with = |failure| {
        let seen = TopicSeen::Unavailable { failure, message: "it waits".into() };
        Observed { partitions: [("otlp_spans".into(), seen)].into(), ..well.clone() }
    };
    let reasons = |pipeline: &TracePipeline, failure| {
        let status = said(pipeline, &with(failure));
        ["SourceReachable", "Ready"].map(|kind| condition(&status, kind).reason.clone())
    };
    assert_eq!(reasons(&pipeline, SourceFailure::NotAsked), ["Ok", "Running"]);
    assert_eq!(reasons(&pipeline, SourceFailure::Unreachable), ["Unreachable", "SourceUnavailable"]);
    let mut edited = pipeline.clone();
    edited.metadata.generation = Some(4);
    assert_eq!(reasons(&edited, SourceFailure::NotAsked)[0], "Unreachable", "brokers may be others");
    pipeline.status = Some(said(&pipeline, &with(SourceFailure::Unreachable)));
    assert_eq!(reasons(&pipeline, SourceFailure::NotAsked), ["Unreachable", "SourceUnavailable"]);
}

#[test]
fn a_source_that_went_away_keeps_the_plan_and_says_so() {
    let (mut pipeline, well) = running(&json!({}), &[]);
    let topics = vec![TopicStatus { name: "otlp_spans".into(), partitions: 12 }];
    pipeline.status = Some(TracePipelineStatus { topics, ..TracePipelineStatus::default() });
    let away = TopicSeen::Unavailable { failure: SourceFailure::Timeout, message: "no answer".into() };
    let status = said(&pipeline, &Observed { partitions: [("otlp_spans".into(), away)].into(), ..well });
    assert_eq!(summary(&status), ["False/SourceUnavailable", "True/Waiting", "False/Ok"]);
    assert_eq!((status.partitions, status.desired_replicas), (Some(12), Some(3)));
}

#[test]
fn a_missing_secret_of_kafka_is_said_of_the_source() {
    let pipeline = sample("tracepipeline-full.yaml");
    let mut facts = observed(&pipeline, 12);
    facts.secrets.insert(SecretUse::KafkaUser, lacking(KeyUse::Username));
    let status = said(&pipeline, &facts);
    assert_eq!(summary(&status), ["False/SourceUnavailable", "True/Waiting", "False/Ok"]);
    let source = condition(&status, "SourceReachable");
    assert_eq!(
        (source.reason.as_str(), source.message.as_str()),
        (
            "SecretIncomplete",
            "the Secret \"kafka-user\" has no username; it has other: add the key, or name another in \
             spec.source.kafka.sasl.secretRef.usernameKey, or write the name into username beside secretRef"
        )
    );
    assert_eq!(condition(&status, "SinkReachable").reason, "Ok");
}

#[test]
fn a_sink_that_is_not_as_it_must_be_is_waited_for() {
    let pipeline = with_credentials();
    let well = observed(&pipeline, 12);
    let secret = |secret| Observed { secrets: [(SecretUse::ClickHouseUser, secret)].into(), ..well.clone() };
    let failed = |reason| {
        let failure = SchemaFailure { reason, message: "m".into() };
        Observed {
            schema: SchemaSeen::Failed(SchemaFailed { failure, ..SchemaFailed::default() }),
            ..well.clone()
        }
    };
    let check = |facts: &Observed, sink: &str, schema: &str| {
        let status = said(&pipeline, facts);
        assert_eq!(summary(&status), ["False/SinkUnavailable", "True/Waiting", "False/Ok"], "{sink}");
        let of = |kind| format!("{}/{}", condition(&status, kind).status, condition(&status, kind).reason);
        assert_eq!((of("SinkReachable").as_str(), of("SchemaReady").as_str()), (sink, schema));
    };
    check(&secret(SecretSeen::Missing), "False/SecretMissing", "True/Ok");
    check(&secret(lacking(KeyUse::Password)), "False/SecretIncomplete", "True/Ok");
    for (reason, sink) in [
        ("AuthFailed", "False/AuthFailed"),
        ("Timeout", "False/Timeout"),
        ("TableMissing", "True/Ok"),
        ("ColumnMismatch", "True/Ok"),
        ("JobFailed", "Unknown/JobFailed"),
    ] {
        check(&failed(reason), sink, &format!("False/{reason}"));
    }
}

#[test]
fn while_a_failed_job_is_run_again_everything_is_said_as_before() {
    let (mut pipeline, well) = running(&json!({}), &[]);
    for reason in ["Unreachable", "AuthFailed", "SchemaDiffers", "ServersNotReached", "JobFailed"] {
        let failure = SchemaFailure { reason, message: "m".into() };
        let failed = SchemaFailed { failure, times: 3, at: now(0).0, ..SchemaFailed::default() };
        let schema_job = Some("demo-schema-1".to_owned());
        let facts = Observed { schema: SchemaSeen::Failed(failed), schema_job, ..well.clone() };
        let before = said(&pipeline, &facts);
        let remembered = before.schema.clone().unwrap();
        assert_eq!((remembered.failures, remembered.reason.as_str()), (3, reason));
        pipeline.status = Some(before.clone());
        for waits in [SchemaSeen::NotStarted, SchemaSeen::Running] {
            let schema = waits.remembering("demo-schema-1", before.schema.as_ref());
            assert_eq!(said(&pipeline, &Observed { schema, ..facts.clone() }), before, "{reason}");
        }
        let over = said(&pipeline, &well);
        assert_eq!((over.schema, summary_of(&before) == "True/Running"), (None, reason.starts_with('S')));
    }
}

#[test]
fn a_sink_that_takes_nothing_is_said_to_be_away_whatever_the_job_saw() {
    let (mut pipeline, well) = running(&json!({}), &[]);
    let of = |pipeline: &TracePipeline, sink| {
        let status = said(pipeline, &Observed { sink, ..well.clone() });
        let reachable = condition(&status, "SinkReachable");
        (format!("{}/{}", reachable.status, reachable.reason), reachable.message.clone(), status)
    };
    assert_eq!(of(&pipeline, SinkSeen::NotKnown).0, "True/Ok");
    assert_eq!(of(&pipeline, SinkSeen::Well).0, "True/Ok");
    for (all, words) in [(true, "every gateway"), (false, "some of the gateways")] {
        let (reachable, message, status) = of(&pipeline, SinkSeen::Failing { all });
        assert_eq!(reachable, "False/InsertsFailing");
        assert!(message.contains(words), "{message}");
        assert_eq!(
            summary(&status),
            ["False/SinkUnavailable", "True/Waiting", "False/Ok"],
            "no rows come through"
        );
        assert_eq!(condition(&status, "Ready").message, message);
        pipeline.status = Some(status.clone());
        assert_eq!(of(&pipeline, SinkSeen::NotKnown).2, status, "an operator that has just begun");
    }
    assert_eq!(of(&pipeline, SinkSeen::Well).0, "True/Ok");
    let rests = Observed { workload: None, ..well.clone() };
    assert_eq!(condition(&said(&pipeline, &rests), "SinkReachable").reason, "Ok", "nobody inserts");
}

#[test]
fn while_the_schema_job_runs_the_old_config_is_what_gateways_have() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    pipeline.status = Some(said(&pipeline, &facts));
    let before = pipeline.status.clone().unwrap();
    pipeline.spec.sink.clickhouse.table = "other".into();
    let status = said(&pipeline, &Observed { schema: SchemaSeen::Running, ..facts });
    assert_eq!(summary(&status), ["False/Progressing", "True/SpecChanged", "False/Ok"]);
    assert_eq!(condition(&status, "SchemaReady").reason, "JobRunning");
    assert_eq!(status.config_hash, before.config_hash);
}

#[test]
fn a_pipeline_that_rests_says_so_whatever_is_wrong_with_its_spec() {
    let mut pipeline = with("/spec/gateway", json!({"workers": 64, "resources": {"memory": "128Mi"}}));
    for (suspend, status, reason) in [(true, "True", "Suspended"), (false, "False", "Ok")] {
        pipeline.spec.suspend = suspend;
        let said = said(&pipeline, &observed(&pipeline, 12));
        assert_eq!(summary(&said), ["False/SpecInvalid", "False/SpecInvalid", "True/SpecInvalid"]);
        let found = condition(&said, "Suspended");
        assert_eq!((found.status.as_str(), found.reason.as_str()), (status, reason));
    }
    let (mut pipeline, facts) = running(&json!({}), &[]);
    pipeline.spec.gateway.workers = Some(64);
    pipeline.spec.suspend = true;
    let said = said(&pipeline, &facts);
    let found = condition(&said, "Suspended");
    assert_eq!((found.status.as_str(), found.reason.as_str()), ("False", "Draining"));
    assert!(found.message.starts_with("3 gateways drain"), "{}", found.message);
}

#[test]
fn what_the_cluster_does_not_let_us_do_comes_before_what_is_waited_for() {
    let (pipeline, well) = running(&json!({}), &[]);
    let failed = |stays| {
        let reconcile_failure = ReconcileFailure { reason: "ApplyFailed", message: "quota".into(), stays };
        said(&pipeline, &Observed { reconcile_failure: Some(reconcile_failure), ..well.clone() })
    };
    assert_eq!(summary(&failed(true)), ["False/ApplyFailed", "False/ApplyFailed", "True/ApplyFailed"]);
    assert_eq!(summary(&failed(false)), ["False/ApplyFailed", "True/ApplyFailed", "False/Ok"]);
    assert_eq!(condition(&failed(false), "Ready").message, "quota");
    assert_eq!(condition(&failed(true), "SourceReachable").status, "True", "the rest is said as ever");
}

#[test]
fn whoever_else_sets_the_number_is_what_limits_it() {
    let (pipeline, mut facts) = running(&json!({}), &[]);
    assert_eq!(condition(&said(&pipeline, &facts), "ScalingLimited").reason, "Ok");
    facts.scaling.replica_conflict = Some("an HPA does".into());
    let status = said(&pipeline, &facts);
    let limited = condition(&status, "ScalingLimited");
    assert_eq!(
        (limited.status.as_str(), limited.reason.as_str(), limited.message.as_str()),
        ("True", "ScalingConflict", "an HPA does")
    );
}

/// It stays so until they stop, and a command that waits for `Ready` would not return.
#[test]
fn a_pipeline_with_somebody_elses_number_is_ready_once_all_of_those_gateways_are() {
    let (mut pipeline, mut facts) = running(&json!({}), &[]);
    pipeline.spec.replicas = Some(2);
    let words = |facts: &Observed| {
        let status = said(&pipeline, facts);
        assert_eq!((status.desired_replicas, status.replicas), (Some(2), Some(3)));
        (summary(&status), condition(&status, "Ready").message.clone())
    };
    assert_eq!(words(&facts).0, ["False/Progressing", "True/Scaling", "False/Ok"]);
    facts.scaling.replica_conflict = Some("kubectl has set it".into());
    let (summary, message) = words(&facts);
    assert_eq!(summary, ["True/Running", "False/Ok", "False/Ok"]);
    assert_eq!(
        message,
        "3 gateways read 12 partitions; the operator plans 2, but another client has set the number (see ScalingLimited)"
    );
    facts.workload.as_mut().unwrap().ready = 2;
    let (summary, message) = words(&facts);
    assert_eq!(summary[0], "False/Progressing");
    assert_eq!(message, "2 of 3 gateways are ready");
}

#[test]
fn more_replicas_than_partitions_are_said_to_be_too_many() {
    let (mut pipeline, facts) = running(&json!({}), &[]);
    pipeline.spec.replicas = Some(9);
    let facts = Observed { partitions: [("otlp_spans".into(), TopicSeen::Known(3))].into(), ..facts };
    let mut workload: StatefulSet = build(&planned(&pipeline, &facts)).into_parts().workload.unwrap();
    workload.spec.as_mut().unwrap().replicas = Some(3);
    let counts = json!({"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3});
    workload.status = Some(serde_json::from_value(counts).unwrap());
    let status = said(&pipeline, &Observed { workload: Some(WorkloadSeen::of(&workload, &[])), ..facts });
    assert!(
        condition(&status, "Ready").message.contains("replicas asks for 9"),
        "{:?}",
        condition(&status, "Ready")
    );
}
