//! `source.otlp`: gateways that accept OTLP themselves, planned and told of without Kafka.

use crate::{defaults, observed, planned, sample, secret_seen};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use sluice_crds::{DrainState, DrainStatus, SecretUse, TracePipeline, TracePipelineStatus};
use sluice_gateway_config::parse;
use sluice_plan::{
    Intent, Observed, Planned, SecretSeen, WorkloadSeen, build, drain_job, group_of, objects,
    observed::inserts::{FailedInsert, InsertError, SinkSeen},
    plan,
    scale::{Policy, Standing},
    schema_job_name, status,
    volumes::Drain,
};

/// The minimal sample with another value at a JSON pointer.
fn with(pointer: &str, value: Value) -> TracePipeline {
    let mut pipeline = serde_json::to_value(sample("tracepipeline-otlp.yaml")).unwrap();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    pipeline.pointer_mut(parent).unwrap()[field] = value;
    serde_json::from_value(pipeline).unwrap()
}

fn secured() -> TracePipeline {
    sample("tracepipeline-otlp-secured.yaml")
}

fn parts(pipeline: &TracePipeline) -> sluice_plan::Parts {
    build(&planned(pipeline, &observed(pipeline, 0))).into_parts()
}

fn refused(pipeline: &TracePipeline) -> Vec<(String, String)> {
    let found = plan(pipeline, &observed(pipeline, 0), &defaults()).err();
    found.iter().flatten().map(|one| (one.path.clone(), one.message.clone())).collect()
}

#[test]
fn the_config_is_one_that_the_gateway_accepts() {
    for (pipeline, logs) in [(sample("tracepipeline-otlp.yaml"), 1), (secured(), 2)] {
        let data = parts(&pipeline).config_map.data.unwrap();
        let checked = parse::from_yaml(&data["gateway.yaml"]).unwrap().check().unwrap();
        let config = checked.config();
        assert!(config.source.kafka.is_none());
        let otlp = config.source.otlp.as_ref().unwrap();
        let spec = pipeline.spec.source.otlp.as_ref().unwrap();
        assert_eq!(otlp.listen.tls.is_some(), spec.tls.is_some());
        assert_eq!(otlp.listen.authentication.is_some(), spec.authentication.is_some());
        assert_eq!(checked.config().logs(), logs);
        assert_eq!(checked.otlp().unwrap().grpc.unwrap().port(), 4317);
        // Of 60 s, 5 are for the cluster to learn that the pod ends, and 10 for the process to end.
        assert_eq!(config.shutdown.deadline.as_millis(), 45_000);
    }
}

#[test]
fn gateways_have_a_service_of_their_own_in_front_of_those_that_are_ready() {
    let made = parts(&secured());
    let service = serde_json::to_value(made.otlp_service.unwrap()).unwrap();
    assert_eq!(service["metadata"]["name"], "otlp-secured-otlp");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], Value::Null);
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    assert_eq!(service["metadata"]["labels"]["example.com/team"], "observability");
    let ports: Vec<_> =
        service["spec"]["ports"].as_array().unwrap().iter().map(|p| p["port"].clone()).collect();
    assert_eq!(ports, [json!(4317), json!(4318)]);
    let template = serde_json::to_value(made.workload.unwrap().spec.unwrap().template).unwrap();
    let selector = service["spec"]["selector"].as_object().unwrap();
    assert!(selector.iter().all(|(key, value)| template["metadata"]["labels"][key] == *value));
    let ports = template["spec"]["containers"][0]["ports"].as_array().unwrap().clone();
    let ports: Vec<_> = ports.iter().map(|port| port["containerPort"].clone()).collect();
    assert_eq!(ports, [json!(9090), json!(4317), json!(4318)]);
    assert_eq!(made.service.metadata.name.as_deref(), Some("otlp-secured-gateway"), "the headless one stays");
    let only_http = with("/spec/source/otlp", json!({"grpc": {"enabled": false}, "http": {"port": 80}}));
    let plan = planned(&only_http, &observed(&only_http, 0));
    assert_eq!(plan.endpoints(), ["otlp-traces-otlp.tracing.svc:80"]);
}

#[test]
fn a_pipeline_of_kafka_has_no_such_service_and_no_such_port() {
    let pipeline = sample("tracepipeline.yaml");
    let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
    assert!(parts.otlp_service.is_none());
    let policy = serde_json::to_value(parts.network_policy.unwrap()).unwrap();
    assert_eq!(policy["spec"]["ingress"].as_array().unwrap().len(), 2);
}

#[test]
fn a_network_policy_lets_clients_in() {
    let policy = serde_json::to_value(parts(&secured()).network_policy.unwrap()).unwrap();
    let otlp = &policy["spec"]["ingress"][0];
    assert_eq!(otlp["from"], json!([{"namespaceSelector": {}}]));
    let ports: Vec<_> = otlp["ports"].as_array().unwrap().iter().map(|port| port["port"].clone()).collect();
    assert_eq!(ports, [json!(4317), json!(4318)]);
}

#[test]
fn the_number_is_that_of_the_spec_and_no_partition_bounds_it() {
    for (spec, expected) in [
        (json!({}), 2),
        (json!({"replicas": 7}), 7),
        (json!({"replicas": 0}), 0),
        (json!({"scaling": {"mode": "Auto", "maxReplicas": 8}}), 2),
        (json!({"scaling": {"mode": "Auto", "minReplicas": 3, "maxReplicas": 8}}), 3),
        (json!({"scaling": {"mode": "Auto", "maxReplicas": 1}}), 1),
    ] {
        let mut object = serde_json::to_value(with("/spec/replicas", Value::Null)).unwrap();
        for (field, value) in spec.as_object().unwrap() {
            object["spec"][field] = value.clone();
        }
        let pipeline: TracePipeline = serde_json::from_value(object).unwrap();
        assert_eq!(planned(&pipeline, &observed(&pipeline, 0)).replicas(), expected, "{spec}");
    }
}

#[test]
fn the_operator_refuses_a_number_that_nothing_limits() {
    for mode in ["Auto", "Recommend"] {
        let pipeline = with("/spec/scaling", json!({"mode": mode, "maxReplicas": null}));
        let refused = Policy::of(&pipeline.spec).unwrap_err().to_string();
        assert!(refused.starts_with("spec.scaling.maxReplicas: must be set with source.otlp"), "{refused}");
    }
}

#[test]
fn another_number_of_gateways_replaces_none() {
    let revision = |replicas: u32| {
        let pipeline = with("/spec/replicas", json!(replicas));
        objects::revision(&planned(&pipeline, &observed(&pipeline, 0)))
    };
    assert!([2, 3, 30, 300].iter().all(|replicas| revision(*replicas) == revision(1)));
}

#[test]
fn what_is_wrong_names_its_field_and_what_helps() {
    for (pointer, value, path, words) in [
        ("/spec/source", json!({}), "spec.source", "set one of them"),
        ("/spec/edge", json!({}), "spec.edge", "remove edge"),
        ("/spec/source/otlp", json!({"logs": 33}), "spec.source.otlp.logs", "32"),
        (
            "/spec/source/otlp",
            json!({"requestBytesMax": "9Mi"}),
            "spec.source.otlp.decompressedBytesMax",
            "less",
        ),
        ("/spec/source/otlp", json!({"requestBytesMax": "?"}), "spec.source.otlp.requestBytesMax", ""),
        (
            "/spec/source/otlp",
            json!({"grpc": {"enabled": false}, "http": {"enabled": false}}),
            "spec.source.otlp",
            "neither grpc nor http",
        ),
        ("/spec/source/otlp", json!({"authentication": {}}), "spec.source.otlp.authentication", ""),
        (
            "/spec/source/otlp",
            json!({"service": {"labels": {"a b": "c"}}}),
            "spec.source.otlp.service.labels",
            "",
        ),
        ("/spec/queue", json!({"mode": "Disabled"}), "spec.queue.mode", "Spill"),
        ("/spec/queue", json!({"size": "64Mi"}), "spec.queue.size", "increase queue.size"),
        ("/spec/delivery", json!({"commit": "AfterEnqueue"}), "spec.delivery.commit", "leave commit out"),
        (
            "/spec/delivery",
            json!({"deadLetter": {"topic": "t"}}),
            "spec.delivery.deadLetter.topic",
            "leave topic out",
        ),
        (
            "/spec/gateway",
            json!({"terminationGracePeriod": "15s"}),
            "spec.gateway.terminationGracePeriod",
            "",
        ),
    ] {
        let found = refused(&with(pointer, value.clone()));
        assert!(
            found.iter().any(|(at, said)| at == path && said.contains(words)),
            "{pointer} {value}: {found:?}"
        );
    }
}

#[test]
fn a_limit_without_room_for_requests_is_refused_with_one_that_has_room() {
    let with_limit = |memory: &str| {
        let mut pipeline = with("/spec/source/otlp", json!({"decompressedBytesMax": "64Mi"}));
        pipeline.spec.gateway.resources =
            serde_json::from_value(json!({"limits": {"memory": memory}})).unwrap();
        pipeline
    };
    let found = refused(&with_limit("256Mi"));
    let (_, said) = found.iter().find(|(path, _)| path == "spec.gateway.resources.limits.memory").unwrap();
    assert!(said.contains("requests of 4MiB (decompressed 64MiB)"), "{said}");
    let (_, least) = said.rsplit_once("set at least ").unwrap();
    assert!(refused(&with_limit(least)).is_empty(), "{least}");
}

#[test]
fn secrets_of_clients_are_mounted_and_restart_nobody() {
    let pipeline = secured();
    let template = |facts: &Observed| {
        let workload = build(&planned(&pipeline, facts)).into_parts().workload.unwrap();
        serde_json::to_value(workload.spec.unwrap().template).unwrap()
    };
    let facts = observed(&pipeline, 0);
    let before = template(&facts);
    let volumes: Vec<_> =
        before["spec"]["volumes"].as_array().unwrap().iter().map(|v| v["name"].as_str().unwrap()).collect();
    for name in
        ["sluice-otlp-certificate", "sluice-otlp-client-ca", "sluice-otlp-tokens", "sluice-otlp-users"]
    {
        assert!(volumes.contains(&name), "{volumes:?}");
    }
    for (of, is_restarted) in [
        (SecretUse::OtlpCertificate, false),
        (SecretUse::OtlpBearerTokens, false),
        (SecretUse::ClickHouseUser, true),
    ] {
        let mut facts = facts.clone();
        facts.secrets.insert(of, secret_seen("2222222222"));
        assert_eq!(template(&facts) != before, is_restarted, "{of:?}");
    }
}

#[test]
fn it_has_no_group_and_its_jobs_no_secret_of_clients() {
    let pipeline = secured();
    assert_eq!(group_of(&pipeline), None);
    let facts = observed(&pipeline, 0);
    let plan = planned(&pipeline, &facts);
    let job = schema_job_name(&pipeline, &facts.secrets, &facts.partitions, None, &defaults());
    assert_eq!(job, plan.schema().map(sluice_plan::SchemaPlan::name), "both know the same number of logs");
    let job = serde_json::to_value(parts(&pipeline).schema_job.unwrap()).unwrap().to_string();
    assert!(!job.contains("sluice-otlp"), "{job}");
    let [claim, claim_uid, workload_version] = ["queue-0", "u", "w"].map(str::to_owned);
    let drain = Drain { ordinal: 0, claim, claim_uid, workload_version };
    let job = serde_json::to_value(drain_job(&plan, &drain)).unwrap().to_string();
    assert!(!job.contains("sluice-otlp"), "{job}");
}

pub fn said(pipeline: &TracePipeline, facts: &Observed) -> TracePipelineStatus {
    let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
    status(pipeline, facts, plan(pipeline, facts, &defaults()).as_ref(), &now)
}

pub fn condition<'a>(said: &'a TracePipelineStatus, kind: &str) -> &'a Condition {
    said.conditions.iter().find(|one| one.type_ == kind).unwrap()
}

/// The pipeline with so many of its gateways ready.
pub fn running(pipeline: &TracePipeline, ready: u32) -> Observed {
    let facts = observed(pipeline, 0);
    let plan = planned(pipeline, &facts);
    let workload = WorkloadSeen {
        plan_hash: Some(objects::plan_hash(&plan)),
        is_observed: true,
        wanted: plan.replicas(),
        replicas: plan.replicas(),
        ready,
        updated: plan.replicas(),
        ..WorkloadSeen::default()
    };
    Observed { workload: Some(workload), ..facts }
}

#[test]
fn the_status_says_where_gateways_accept_and_has_nothing_of_kafka() {
    let pipeline = sample("tracepipeline-otlp.yaml");
    let well = said(&pipeline, &running(&pipeline, 2));
    let source = condition(&well, "SourceReachable");
    assert_eq!(source.status, "True");
    assert_eq!(
        source.message,
        "2 gateways accept OTLP at otlp-traces-otlp.tracing.svc:4317 (gRPC) and :4318 (HTTP)"
    );
    assert_eq!(condition(&well, "Ready").message, source.message);
    assert_eq!(well.endpoints, ["otlp-traces-otlp.tracing.svc:4317", "otlp-traces-otlp.tracing.svc:4318"]);
    assert_eq!((&well.partitions, &well.consumer_group), (&None, &None));
    assert!(well.topics.is_empty() && well.bootstrap_servers.is_empty());
    assert_eq!(well.derived.unwrap().partitions_per_gateway, 1);
}

#[test]
fn a_gateway_that_inserts_nothing_of_its_logs_is_named() {
    let pipeline = sample("tracepipeline-otlp.yaml");
    let mut facts = running(&pipeline, 2);
    // A gateway that is not wanted any more, such as after another number was set, is not named.
    facts.scaling.standing = Some(Standing { stuck: vec![1, 2], ..Standing::default() });
    let ready = condition(&said(&pipeline, &facts), "Ready").clone();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "SinkUnavailable"));
    assert!(ready.message.starts_with("otlp-traces-gateway-1: no request"), "{}", ready.message);
    assert!(ready.message.ends_with("; see the logs of the pod"), "{}", ready.message);
    facts.sink = SinkSeen::Failing { all: false };
    let message = "connection refused".into();
    let error = InsertError { class: "Retry".into(), message, ..InsertError::default() };
    for (ordinal, why) in
        [(1, "; no answer of ClickHouse: connection refused"), (0, "; see the logs of the pod")]
    {
        facts.insert_error = Some(FailedInsert { ordinal, error: error.clone() });
        let ready = condition(&said(&pipeline, &facts), "Ready").clone();
        assert!(ready.message.ends_with(why), "of gateway {ordinal}: {}", ready.message);
    }
}

#[test]
fn a_gateway_that_cannot_read_a_log_is_named() {
    let pipeline = sample("tracepipeline-otlp.yaml");
    let mut facts = running(&pipeline, 2);
    facts.scaling.standing = Some(Standing { stuck: vec![1], unreadable: vec![0] });
    let ready = condition(&said(&pipeline, &facts), "Ready").clone();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "SinkUnavailable"));
    for words in
        ["otlp-traces-gateway-1: no request", "; otlp-traces-gateway-0: a log on the volume cannot be read"]
    {
        assert!(ready.message.contains(words), "{}", ready.message);
    }
}

/// Samples of three minutes show that a gateway stands, and an operator that starts has none.
#[test]
fn a_gateway_that_stands_stays_named_after_a_restart() {
    for sink in [SinkSeen::NotKnown, SinkSeen::Well, SinkSeen::Failing { all: false }] {
        let mut pipeline = sample("tracepipeline-otlp.yaml");
        let mut facts = Observed { sink, ..running(&pipeline, 2) };
        facts.scaling.standing = Some(Standing { stuck: vec![1], ..Standing::default() });
        let before = said(&pipeline, &facts);
        pipeline.status = Some(before.clone());
        (facts.scaling.standing, facts.sink) = (None, SinkSeen::NotKnown);
        let after = said(&pipeline, &facts);
        assert_eq!(condition(&after, "Ready"), condition(&before, "Ready"), "{sink:?}");
        (facts.scaling.standing, facts.sink) = (Some(Standing::default()), SinkSeen::Well);
        assert_eq!(condition(&said(&pipeline, &facts), "Ready").status, "True", "{sink:?}");
    }
    // Inserts that failed everywhere are no such gateway.
    let mut pipeline = sample("tracepipeline-otlp.yaml");
    let mut facts = Observed { sink: SinkSeen::Failing { all: true }, ..running(&pipeline, 2) };
    pipeline.status = Some(said(&pipeline, &facts));
    facts.sink = SinkSeen::Well;
    assert_eq!(condition(&said(&pipeline, &facts), "Ready").status, "True");
}

#[test]
fn a_source_without_a_gateway_that_accepts_is_not_reachable() {
    let pipeline = sample("tracepipeline-otlp.yaml");
    let none = said(&pipeline, &running(&pipeline, 0));
    let source = condition(&none, "SourceReachable");
    assert_eq!((source.status.as_str(), source.reason.as_str()), ("False", "ReplicasNotReady"));
    assert!(source.message.starts_with("0 of 2 gateways are ready"), "{}", source.message);
    let before = said(&pipeline, &observed(&pipeline, 0));
    assert_eq!(condition(&before, "SourceReachable").status, "Unknown");
    let mut rests = pipeline;
    rests.spec.suspend = true;
    assert_eq!(Intent::of(&rests), Intent::Suspend);
    let rests = said(&rests, &observed(&rests, 0));
    assert_eq!(condition(&rests, "SourceReachable").reason, "Suspended");
    assert!(condition(&rests, "Ready").message.contains("no request is accepted"));
}

#[test]
fn a_secret_of_clients_that_is_missing_is_waited_for() {
    let pipeline = secured();
    let mut facts = observed(&pipeline, 0);
    facts.secrets.insert(SecretUse::OtlpBearerTokens, SecretSeen::Missing);
    assert!(matches!(plan(&pipeline, &facts, &defaults()), Ok(Planned::Waiting(_))));
    let said = said(&pipeline, &facts);
    let source = condition(&said, "SourceReachable");
    assert_eq!(source.reason, "SecretMissing");
    assert!(
        source.message.contains("spec.source.otlp.authentication.bearerTokensSecretRef"),
        "{}",
        source.message
    );
    assert_eq!(condition(&said, "Ready").reason, "SourceUnavailable");
}

/// Type, status and reason of each condition.
fn words(conditions: &Value) -> Vec<[String; 3]> {
    let of = |one: &Value| ["type", "status", "reason"].map(|field| one[field].as_str().unwrap().to_owned());
    conditions.as_array().unwrap().iter().map(of).collect()
}

/// Argo CD's health script and kstatus are tested with these.
#[test]
fn the_states_of_argo_cd_are_what_the_operator_says() {
    let pipeline = sample("tracepipeline-otlp.yaml");
    let mut unusable = running(&pipeline, 2);
    unusable.sink = SinkSeen::Failing { all: true };
    let mut rests = pipeline.clone();
    rests.spec.suspend = true;
    let fewer = with("/spec/replicas", json!(1));
    let mut held = running(&fewer, 1);
    let workload = held.workload.take().unwrap();
    held.workload = Some(WorkloadSeen { wanted: 2, replicas: 2, updated: 2, ..workload });
    held.scaling.drain = Some(DrainStatus {
        state: DrainState::Waiting,
        target: 1,
        from: 2,
        since: Time("2026-01-01T00:00:00Z".parse().unwrap()),
        reason: "gateway 1 does not run".into(),
        outcome: None,
    });
    for (state, found) in [
        ("otlp-starting", said(&pipeline, &running(&pipeline, 1))),
        ("otlp-running", said(&pipeline, &running(&pipeline, 2))),
        ("otlp-table-missing", said(&pipeline, &unusable)),
        ("otlp-drained", said(&rests, &observed(&rests, 0))),
        ("otlp-gateway-stopped", said(&fewer, &held)),
    ] {
        let path = format!("{}/../../config/argocd/testdata/{state}.yaml", env!("CARGO_MANIFEST_DIR"));
        let stored: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let found = serde_json::to_value(&found.conditions).unwrap();
        assert_eq!(words(&found), words(&stored["status"]["conditions"]), "{state}");
    }
}

/// A volume may have the only copy of requests, whatever the deletion policy is.
#[test]
fn no_volume_is_left_for_kubernetes_to_delete() {
    let mut pipeline = sample("tracepipeline-otlp.yaml");
    pipeline.spec.deletion_policy = sluice_crds::DeletionPolicy::Immediate;
    let workload = parts(&pipeline).workload.unwrap();
    let policy = workload.spec.unwrap().persistent_volume_claim_retention_policy.unwrap();
    let keeps = |policy: Option<String>| policy.as_deref() == Some("Retain");
    assert!(keeps(policy.when_deleted) && keeps(policy.when_scaled));
}
