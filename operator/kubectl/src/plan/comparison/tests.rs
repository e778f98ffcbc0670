//! What restarts when a sample is changed, with the planner that the operator has.

use super::*;
use crate::{
    args::PluginArgs,
    plan::{Outcome, outline},
};
use clap::CommandFactory as _;
use k8s_openapi::{
    api::apps::v1::{Deployment, StatefulSet, StatefulSetStatus},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use serde_json::Value;
use sluice_crds::RolloutStatus;
use sluice_plan::{
    ClaimSeen, Unresolved, build,
    names::{REVISION, SECRETS_VERSION},
    rollout::spec_hash,
};

const CONNECTED: &str = include_str!("../../../../../config/samples/traceconnection.yaml");

/// The image of gateways without `gateway.image`.
const IMAGE: &str = "sluice-gateway:0.1.0";

/// Some fields of the spec, each with its value as JSON.
type Fields<'a> = &'a [(&'a str, &'a str)];

fn assumed(partitions: u32) -> Assumed {
    Assumed {
        partitions,
        server: None,
        gateway_image: IMAGE.into(),
        namespace: "tracing".into(),
        pipeline: None,
        connections: Vec::new(),
    }
}

/// A sample with other fields, as `plan` reads it from a file.
fn file(name: &str, fields: Fields<'_>) -> TracePipeline {
    let path = format!("{}/../../config/samples/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut object: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for (field, value) in fields {
        let mut at = &mut object["spec"];
        for name in field.split('.') {
            at = &mut at[name];
        }
        *at = serde_json::from_str(value).unwrap();
    }
    let outline = outline(&object.to_string(), &assumed(12)).unwrap_or_else(|found| panic!("{found}"));
    *outline.pipeline
}

/// A cluster without the pipeline.
fn nothing() -> Live {
    Live {
        pipeline: None,
        unresolved: Unresolved::default(),
        workload: None,
        edge: Ok(None),
        claims: Ok(Vec::new()),
    }
}

/// A cluster in which the operator has carried out this pipeline, and all is well.
fn running(file: &TracePipeline, partitions: u32) -> Live {
    let (mut pipeline, empty, assumed) = (with_defaults(file), nothing(), assumed(partitions));
    let Rendered { plan, decides } = Facts::of(&empty, &assumed).rendered(&pipeline).unwrap();
    let seen = Seen {
        workload: None,
        replicas: plan.replicas(),
        revision: &decides.gateways,
        spec: &spec_hash(&pipeline),
        plan_hash: &plan_hash(&plan),
        leaving: None,
        trouble: None,
    };
    let first = step(Timestamp::UNIX_EPOCH, &Terms::of(&pipeline.spec).unwrap(), None, &seen);
    let parts = build(&plan).rolled(&first, None).into_parts();
    let ready = json!({"type": "Ready", "status": "True", "reason": "Running", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let ready: Condition = serde_json::from_value(ready).unwrap();
    pipeline.status = Some(TracePipelineStatus {
        conditions: vec![ready],
        topics: plan.topics().to_vec(),
        consumer_group: file.spec.source.kafka.as_ref().map(|_| plan.names().consumer_group()),
        image: Some(plan.image().to_owned()),
        default_image: Some(IMAGE.to_owned()),
        operator_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        rollout: Some(RolloutStatus { state: RolloutState::Complete, ..first.next }),
        ..TracePipelineStatus::default()
    });
    let edge = plan.edge().ready().map(|edge| edge.scale().first());
    let edge = parts.edge.zip(edge).map(|(parts, replicas)| with_pods(parts.workload, replicas));
    Live {
        pipeline: Some(pipeline),
        workload: parts.workload.map(|workload| with_gateways(workload, plan.replicas())),
        edge: Ok(edge),
        ..empty
    }
}

fn with_gateways(mut workload: StatefulSet, replicas: u32) -> StatefulSet {
    let replicas = i32::try_from(replicas).unwrap();
    workload.spec.as_mut().unwrap().replicas = Some(replicas);
    workload.status = Some(StatefulSetStatus {
        replicas,
        ready_replicas: Some(replicas),
        updated_replicas: Some(replicas),
        current_revision: Some("a".into()),
        update_revision: Some("a".into()),
        ..StatefulSetStatus::default()
    });
    workload
}

fn with_pods(mut workload: Deployment, replicas: u32) -> Deployment {
    workload.spec.as_mut().unwrap().replicas = Some(i32::try_from(replicas).unwrap());
    workload
}

fn status(live: &mut Live) -> &mut TracePipelineStatus {
    live.pipeline.as_mut().unwrap().status.as_mut().unwrap()
}

/// What restarts if a sample that runs with some fields gets others.
fn changed(name: &str, before: Fields<'_>, after: Fields<'_>) -> Restarts {
    restarts(&running(&file(name, before), 12), &file(name, after), &assumed(12))
}

const DEMO: &str = "tracepipeline.yaml";
const OTLP: &str = "tracepipeline-otlp.yaml";
const EDGE: &str = "tracepipeline-edge.yaml";
const SCALED: &str = "tracepipeline-autoscaled.yaml";
const OTHER: (&str, &str) = ("gateway.image", "\"registry.example.com/sluice-gateway:1.2.4\"");

/// A sample, the fields with which it runs, the fields of the file, and the message.
type Case = (&'static str, Fields<'static>, Fields<'static>, &'static str);

#[test]
fn what_replaces_no_pod_is_said_to_restart_none() {
    const CASES: [Case; 12] = [
        (DEMO, &[], &[], "none"),
        (SCALED, &[], &[("scaling.maxReplicas", "12"), ("scaling.minReplicas", "3")], "none"),
        (DEMO, &[("replicas", "3")], &[("replicas", "6")], "none (replicas 3 -> 6 adds 3 gateways)"),
        (DEMO, &[("replicas", "3")], &[("replicas", "2")], "none (replicas 3 -> 2 removes 1 gateway)"),
        (DEMO, &[], &[("suspend", "true")], "none (replicas 3 -> 0 removes 3 gateways)"),
        (DEMO, &[], &[("rollout.maxUnavailable", "2"), ("scaling.targetLag", "\"5m\"")], "none"),
        (OTLP, &[], &[("source.otlp.grpc.port", "14317")], "none"),
        (EDGE, &[], &[("edge.grpc.port", "14317")], "none"),
        (EDGE, &[], &[("edge.replicas", "4")], "none (replicas 3 -> 4 adds 1 pod of the edge)"),
        (EDGE, &[], &[("edge", "null")], "none (replicas 3 -> 0 removes 3 pods of the edge)"),
        (DEMO, &[], &[("edge", "{\"replicas\": 2}")], "none (replicas 0 -> 2 adds 2 pods of the edge)"),
        (
            DEMO,
            &[],
            &[("managementState", "\"Unmanaged\""), OTHER],
            "none (managementState Unmanaged: the operator changes nothing)",
        ),
    ];
    for (name, before, after, expected) in CASES {
        let found = changed(name, before, after);
        assert_eq!(found.message, expected, "{name} {after:?}");
        let all = [found.gateways, found.edge];
        assert!(all.iter().flatten().all(|change| change.restarts == Some(0) && change.because.is_empty()));
    }
}

#[test]
fn pods_that_restart_are_said_with_their_order_and_with_the_fields_that_cause_it() {
    const CASES: [Case; 9] = [
        (
            DEMO,
            &[],
            &[OTHER],
            "3 gateways, one after the other (canary first), because spec.gateway.image changes",
        ),
        (
            DEMO,
            &[("replicas", "1")],
            &[("replicas", "1"), OTHER],
            "1 gateway, because spec.gateway.image changes",
        ),
        (
            DEMO,
            &[("replicas", "3")],
            &[("replicas", "6"), OTHER],
            "3 gateways, one after the other (canary first), because spec.gateway.image changes (replicas 3 -> 6 adds 3 \
             gateways)",
        ),
        (
            DEMO,
            &[],
            &[OTHER, ("rollout.maxUnavailable", "2")],
            "3 gateways, one first (canary), then up to 2 at a time, because spec.gateway.image changes",
        ),
        (
            DEMO,
            &[],
            &[OTHER, ("rollout.strategy", "\"RollingUpdate\"")],
            "3 gateways, one after the other, because spec.gateway.image changes",
        ),
        (
            DEMO,
            &[],
            &[("gateway.logLevel", "\"debug\""), OTHER, ("networkPolicy.enabled", "false")],
            "3 gateways, one after the other (canary first), because spec.gateway.image, spec.gateway.logLevel change",
        ),
        (
            OTLP,
            &[],
            &[("source.otlp.connectionAgeMax", "\"7m\"")],
            "2 gateways, one after the other (canary first), because spec.source.otlp.connectionAgeMax changes",
        ),
        (
            EDGE,
            &[],
            &[("edge.connectionAgeMax", "\"7m\"")],
            "3 pods of the edge, each after a new one is ready, because spec.edge.connectionAgeMax changes",
        ),
        (
            EDGE,
            &[],
            &[("source.kafka.bootstrapServers", "[\"another:9092\"]")],
            "3 gateways, one after the other (canary first), because spec.source.kafka.bootstrapServers changes; 3 pods of \
             the edge, each after a new one is ready, because spec.source.kafka.bootstrapServers changes",
        ),
    ];
    for (name, before, after, expected) in CASES {
        assert_eq!(changed(name, before, after).message, expected, "{name} {after:?}");
    }
}

#[test]
fn a_field_of_a_connection_is_named_where_it_stands() {
    let of = |text: &str| {
        let assumed = Assumed { pipeline: Some("checkout-traces".into()), ..assumed(12) };
        *outline(text, &assumed).unwrap().pipeline
    };
    let live = running(&of(CONNECTED), 12);
    let other = CONNECTED.replace("\"kafka-1.kafka:9093\"", "\"kafka-2.kafka:9093\"");
    let found = restarts(&live, &of(&other), &assumed(12));
    assert_eq!(
        found.gateways.unwrap().because,
        ["spec.kafka.bootstrapServers of the TraceConnection \"main\""]
    );
}

#[test]
fn a_pipeline_that_the_cluster_does_not_have_is_new() {
    let message = |live: &Live, fields: Fields<'_>| {
        let found = restarts(live, &file(EDGE, fields), &assumed(12));
        (found.outcome, found.message)
    };
    assert_eq!(
        message(&nothing(), &[]),
        (Outcome::New, "none (the pipeline is new: it starts 3 gateways and 3 pods of the edge)".to_owned())
    );
    let suspended = message(&nothing(), &[("suspend", "true"), ("edge", "null")]).1;
    assert_eq!(suspended, "none (the pipeline is new: it starts 0 gateways)");
    let orphaned = Live { pipeline: None, ..running(&file(EDGE, &[]), 12) };
    let (outcome, words) = message(&orphaned, &[]);
    assert_eq!(outcome, Outcome::NotKnown);
    assert!(words.starts_with("not known: there is a StatefulSet edge-traces-gateway without"), "{words}");
}

#[test]
fn the_partitions_in_the_status_count_and_not_the_assumed_ones() {
    let live = running(&file(DEMO, &[]), 48);
    assert_eq!(restarts(&live, &file(DEMO, &[]), &assumed(12)).message, "none");
    let found = restarts(&live, &file(DEMO, &[OTHER]), &assumed(12));
    assert!(found.message.starts_with("12 gateways, "), "{}", found.message);
}

#[test]
fn what_the_operator_would_refuse_restarts_none() {
    let found = changed(DEMO, &[], &[("source.kafka.consumerGroup", r#""another""#)]);
    assert_eq!((found.outcome, &found.gateways), (Outcome::Refused, &None));
    let words = "none (the operator does not carry out the file and keeps what runs: spec.source.kafka.consumerGroup: ";
    assert!(found.message.starts_with(words), "{}", found.message);
}

#[test]
fn a_change_that_was_rolled_back_is_tried_again_by_another_spec_and_not_by_another_number() {
    let mut live = running(&file(DEMO, &[]), 12);
    let failed = with_defaults(&file(DEMO, &[OTHER]));
    let written = status(&mut live).rollout.clone().unwrap();
    let proved = Some(written.revision.clone());
    status(&mut live).rollout = Some(RolloutStatus {
        state: RolloutState::RolledBack,
        revision: "failed".into(),
        proved,
        failed_spec: Some(spec_hash(&failed)),
        ..written
    });
    live.pipeline.as_mut().unwrap().spec = failed.spec;
    let found = |fields: Fields<'_>| restarts(&live, &file(DEMO, fields), &assumed(12));
    assert_eq!(found(&[]).message, "none", "the gateways have this pod template");
    assert_eq!(found(&[OTHER]).message, "none");
    let scaled = found(&[OTHER, ("replicas", "2")]);
    assert_eq!(scaled.message, "none (replicas 3 -> 2 removes 1 gateway)");
    let again = found(&[OTHER, ("scaling.targetLag", "\"5m\"")]);
    assert_eq!(
        again.message,
        "3 gateways, one after the other (canary first), because spec.scaling.targetLag changes, and the operator tries \
         again what it rolled back"
    );
    assert!(again.gateways.unwrap().is_retry);
}

/// The change in the cluster has not reached the gateways, since its schema Job fails, say. The file takes it back.
#[test]
fn a_pod_template_that_gateways_have_already_restarts_none_whatever_version_their_secrets_have() {
    let (first, assumed) = (file(DEMO, &[]), assumed(12));
    let mut live = running(&first, 12);
    let plan = Facts::of(&nothing(), &assumed).rendered(&first).unwrap().plan;
    let mut workload = live.workload.take().unwrap();
    let template = &mut workload.spec.as_mut().unwrap().template;
    let annotations = template.metadata.as_mut().unwrap().annotations.as_mut().unwrap();
    assert!(annotations.insert(SECRETS_VERSION.to_owned(), "another".to_owned()).is_some());
    let given = revision_with_secrets_of(&plan, &workload);
    assert_ne!(given, revision(&plan));
    workload.metadata.annotations.as_mut().unwrap().insert(REVISION.to_owned(), given);
    live.workload = Some(workload);
    live.pipeline.as_mut().unwrap().spec = file(DEMO, &[OTHER]).spec;
    let found = restarts(&live, &first, &assumed);
    assert_eq!(found.message, "none");
    assert_eq!(found.gateways.unwrap().restarts, Some(0));
    let other = file(DEMO, &[("gateway.logLevel", "\"debug\"")]);
    let found = restarts(&live, &other, &assumed);
    assert_eq!(found.gateways.unwrap().restarts, Some(3));
}

#[test]
fn what_gateways_of_an_unmanaged_pipeline_run_is_known_only_if_it_is_what_the_file_asks_for() {
    let unmanaged = file(DEMO, &[("managementState", "\"Unmanaged\"")]);
    let live = running(&unmanaged, 12);
    assert_eq!(restarts(&live, &file(DEMO, &[]), &assumed(12)).message, "none");
    let found = restarts(&live, &file(DEMO, &[OTHER]), &assumed(12));
    assert_eq!((found.outcome, found.gateways), (Outcome::NotKnown, None));
    assert!(found.message.starts_with("not known: the pipeline in the cluster is Unmanaged"));
}

#[test]
fn gateways_that_get_a_new_volume_restart_with_it() {
    let mut live = running(&file(DEMO, &[]), 12);
    let claim = |ordinal: u32| ClaimSeen {
        ordinal,
        requested: Some(1 << 30),
        storage_class: Some("slow".into()),
        is_bound: true,
        has_gateway: true,
        ..ClaimSeen::default()
    };
    live.claims = Ok((0..3).map(claim).collect());
    let found = |live: &Live, field, value| restarts(live, &file(DEMO, &[(field, value)]), &assumed(12));
    let other_class = ("queue.storageClassName", "\"fast\"");
    let changed = found(&live, other_class.0, other_class.1);
    assert_eq!(
        changed.message,
        "3 gateways, one after the other, each with a new queue volume, because spec.queue.storageClassName changes"
    );
    assert_eq!(changed.gateways.unwrap().restarts, Some(0), "their pod template stays");
    assert_eq!(found(&live, "queue.storageClassName", "\"slow\"").message, "none");
    assert_eq!(found(&live, "queue.size", "\"2Gi\"").message, "none", "volumes grow while gateways run");
    assert_eq!(found(&live, "queue.size", "\"512Mi\"").volumes.unwrap().because, ["spec.queue.size"]);
    live.claims = Err("forbidden".into());
    let unread = found(&live, other_class.0, other_class.1).not_known;
    assert!(unread.contains(&"whether gateways get new queue volumes: forbidden".to_owned()), "{unread:?}");
}

#[test]
fn pods_of_an_edge_that_cannot_be_counted_are_said_to_restart_all() {
    let live = Live { edge: Err("forbidden".into()), ..running(&file(EDGE, &[]), 12) };
    let found = restarts(&live, &file(EDGE, &[("edge.connectionAgeMax", "\"7m\"")]), &assumed(12));
    let words =
        "all pods of the edge, each after a new one is ready, because spec.edge.connectionAgeMax changes";
    assert_eq!((found.message.as_str(), found.edge.unwrap().restarts), (words, None));
    assert!(found.not_known.contains(&"how many pods the edge has: forbidden".to_owned()));
}

#[test]
fn what_could_not_be_found_out_is_said() {
    let not_known =
        |live: &Live, fields: Fields<'_>| restarts(live, &file(EDGE, fields), &assumed(12)).not_known;
    let usual = "whether the content of the Secret clickhouse-writer has changed, which replaces pods, too";
    let mut live = running(&file(EDGE, &[]), 12);
    assert_eq!(not_known(&live, &[]), [usual], "Secrets of clients replace none");
    assert_eq!(not_known(&live, &[("sink.clickhouse.credentials", "null")]), [""; 0]);
    let topic = [("source.kafka.topics", "[\"otlp_spans\", \"more\"]"), ("edge", "null")];
    let found = not_known(&live, &topic);
    assert_eq!(found[1..], ["how many partitions more has: --partitions 12 is assumed"]);
    status(&mut live).operator_version = Some("9.9.9".into());
    let found = not_known(&live, &[]);
    assert!(found[1].starts_with("whether the operator, 9.9.9, makes the same pods"), "{found:?}");
    status(&mut live).operator_version = None;
    status(&mut live).conditions[0].status = "False".into();
    status(&mut live).conditions[0].reason = "SchemaJobFailed".into();
    assert_eq!(not_known(&live, &[]), [usual], "the gateways have this pod template");
    let found = not_known(&live, &[OTHER]);
    assert_eq!(
        found[1..],
        ["whether an earlier change still replaces gateways: Ready is False (SchemaJobFailed)"]
    );
    status(&mut live).rollout.as_mut().unwrap().state = RolloutState::Canary;
    let found = not_known(&live, &[OTHER]);
    assert_eq!(found[1..], ["which gateways an earlier change still replaces: its rollout is under way"]);
}

#[test]
fn the_names_in_the_json_are_those_of_the_help() {
    let found = json!(changed(EDGE, &[], &[OTHER]));
    let gateways = json!({
        "restarts": 3, "replicasBefore": 3, "replicasAfter": 3, "order": "Canary", "atATime": 1,
        "because": ["spec.gateway.image"], "isRetry": false,
    });
    assert_eq!(found["gateways"], gateways);
    let mut edge = gateways;
    edge["order"] = "Surge".into();
    assert_eq!(found["edge"], edge);
    assert_eq!(found["outcome"], "Compared");
    let names: BTreeSet<&str> = found.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = ["comparedWith", "edge", "gateways", "message", "notKnown", "outcome", "volumes"];
    assert_eq!(names, BTreeSet::from(expected));
    let mut command = PluginArgs::command();
    let help = command.find_subcommand_mut("plan").unwrap().render_long_help().to_string();
    let of_pods = edge.as_object().unwrap().keys().map(String::as_str);
    let values = ["New", "Compared", "Refused", "Unmanaged", "NotKnown", "Canary", "Rolling", "Surge"];
    for word in names.into_iter().chain(of_pods).chain(values) {
        assert!(help.contains(word), "{word} is missing in\n{help}");
    }
}
