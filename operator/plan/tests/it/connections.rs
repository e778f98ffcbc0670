//! Shared connections: a pipeline that references one is planned as one that says the same itself, and shards are guarded where the
//! definition's rules see no change.

use crate::{defaults, golden, observed, planned, sample, with};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::{Value, json};
use sluice_crds::{
    ConnectionsStatus, QueueStatus, SecretUse, SuspensionStatus, TracePipeline, TracePipelineStatus,
    status::reason,
};
use sluice_plan::{
    ClaimSeen, ConnectionSeen, Observed, Planned, SecretSeen, ServersSeen, SourceFailure, TopicSeen,
    Unresolved, WorkloadSeen, build, objects, plan, resolved, rollout::spec_known_as, status,
};

/// What a pipeline says of its connections, as the spec of a connection.
pub fn spec_of(pipeline: &TracePipeline) -> Value {
    let spec = serde_json::to_value(&pipeline.spec).unwrap();
    let part = |of: &Value, fields: &[&str]| {
        let found = fields.iter().filter_map(|name| Some(((*name).to_owned(), of.get(*name)?.clone())));
        Value::Object(found.collect())
    };
    json!({
        "kafka": part(&spec["source"]["kafka"], &["bootstrapServers", "tls", "sasl"]),
        "clickhouse": part(&spec["sink"]["clickhouse"], &["endpoints", "shards", "tls", "credentials"]),
    })
}

/// The pipeline with references to a connection instead, and what that says in their place.
pub fn by_reference(pipeline: &TracePipeline, parts: &[&str], name: &str, spec: &Value) -> TracePipeline {
    let mut object = serde_json::to_value(pipeline).unwrap();
    for part in parts {
        let at = if *part == "kafka" { "/spec/source/kafka" } else { "/spec/sink/clickhouse" };
        let fields = object.pointer_mut(at).unwrap().as_object_mut().unwrap();
        for field in ["bootstrapServers", "sasl", "endpoints", "shards", "tls", "credentials"] {
            fields.remove(field);
        }
        fields.insert("connectionRef".into(), json!({"name": name}));
    }
    let referring: TracePipeline = serde_json::from_value(object).unwrap();
    let spec: sluice_crds::TraceConnectionSpec = serde_json::from_value(spec.clone()).unwrap();
    let (found, unresolved) = resolved(&referring, |_| ConnectionSeen::Known(Box::new(spec.clone())));
    assert_eq!(unresolved, Unresolved::default());
    found.into_owned()
}

const BOTH: [&str; 2] = ["kafka", "clickhouse"];

#[test]
fn a_pipeline_with_references_has_the_objects_of_one_that_says_the_same() {
    for name in [
        "tracepipeline.yaml",
        "tracepipeline-full.yaml",
        "tracepipeline-edge.yaml",
        "tracepipeline-sharded.yaml",
        "tracepipeline-oauth.yaml",
        "tracepipeline-clickhouse-pod-token.yaml",
    ] {
        let inline = sample(name);
        for parts in [&BOTH[..], &BOTH[..1], &BOTH[1..]] {
            let referring = by_reference(&inline, parts, "main", &spec_of(&inline));
            let facts = observed(&inline, 12);
            assert_eq!(observed(&referring, 12).secrets, facts.secrets, "{name}");
            let yaml = |pipeline: &TracePipeline| golden::yaml(&planned(pipeline, &facts));
            assert_eq!(yaml(&referring), yaml(&inline), "{name} {parts:?}");
            assert_eq!(
                spec_known_as(&referring, None),
                spec_known_as(&inline, None),
                "{name}: what failed is not tried again in the other form"
            );
        }
    }
}

#[test]
fn the_pipelines_of_the_sample_are_planned_with_its_connection() {
    let path = format!("{}/../../config/samples/traceconnection.yaml", env!("CARGO_MANIFEST_DIR"));
    let all: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (connections, pipelines): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|object| object["kind"] == "TraceConnection");
    let spec: sluice_crds::TraceConnectionSpec =
        serde_json::from_value(connections[0]["spec"].clone()).unwrap();
    let mut tables = Vec::new();
    for mut object in pipelines {
        object["metadata"]["uid"] = "u".into();
        let pipeline: TracePipeline = serde_json::from_value(object).unwrap();
        let (found, _) = resolved(&pipeline, |_| ConnectionSeen::Known(Box::new(spec.clone())));
        let plan = planned(&found, &observed(&found, 12));
        let config = plan.config().config();
        assert_eq!(config.source.kafka.as_ref().unwrap().bootstrap_servers.len(), 2);
        tables.push(config.sink.clickhouse.table.clone());
    }
    assert_eq!(tables, ["checkout_traces", "search_traces"]);
}

fn now() -> Time {
    Time(Timestamp::UNIX_EPOCH)
}

fn said<'a>(status: &'a TracePipelineStatus, kind: &str) -> (&'a str, &'a str, &'a str) {
    let found = status.conditions.iter().find(|one| one.type_ == kind).unwrap();
    (&found.status, &found.reason, &found.message)
}

#[test]
fn a_connection_that_is_missing_is_said_and_what_runs_stays() {
    let inline = sample("tracepipeline.yaml");
    let facts = observed(&inline, 12);
    let workload = build(&planned(&inline, &facts)).into_parts().workload.unwrap();
    let runs = Observed { workload: Some(WorkloadSeen::of(&workload, &[])), ..facts };
    let mut referring = by_reference(&inline, &BOTH, "main", &spec_of(&inline));
    for (missing, source, sink) in [
        (Unresolved { source: Some("no brokers".into()), sink: None, both: None }, true, false),
        (Unresolved { source: None, sink: Some("no servers".into()), both: None }, false, true),
        (
            Unresolved { source: Some("no brokers".into()), sink: Some("no servers".into()), both: None },
            true,
            true,
        ),
    ] {
        referring.spec.source.kafka.as_mut().unwrap().bootstrap_servers.clear();
        referring.spec.sink.clickhouse.endpoints.clear();
        let facts = Observed { unresolved: missing.clone(), ..runs.clone() };
        let outcome = plan(&referring, &facts, &defaults());
        let Ok(Planned::Waiting(waiting)) = &outcome else { panic!("{outcome:?}") };
        assert_eq!(
            (waiting.reason, Some(&waiting.message)),
            (reason::CONNECTION_MISSING, missing.words().as_ref())
        );
        let status = status(&referring, &facts, outcome.as_ref(), &now());
        assert_eq!(said(&status, "Ready").1, "ConnectionMissing");
        assert_eq!(said(&status, "Reconciling").1, "Waiting");
        assert_eq!(said(&status, "Stalled").0, "False");
        assert_eq!(said(&status, "SourceReachable").1 == "ConnectionMissing", source);
        assert_eq!(said(&status, "SinkReachable").1 == "ConnectionMissing", sink);
    }
}

#[test]
fn what_is_wrong_is_named_where_it_stands() {
    let inline = sample("tracepipeline-full.yaml");
    let referring = by_reference(&inline, &BOTH, "main", &spec_of(&inline));
    let facts = observed(&referring, 12);
    let missing = Observed { secrets: [(SecretUse::KafkaUser, SecretSeen::Missing)].into(), ..facts.clone() };
    let missing =
        Observed { secrets: facts.secrets.clone().into_iter().chain(missing.secrets).collect(), ..missing };
    let words = |facts: &Observed| match plan(&referring, facts, &defaults()) {
        Ok(Planned::Waiting(waiting)) => waiting.message,
        other => panic!("{other:?}"),
    };
    assert!(
        words(&missing).contains(
            "does not exist (spec.kafka.sasl.secretRef of the TraceConnection \"main\"): create it"
        ),
        "{}",
        words(&missing)
    );
    let mut incomplete = facts.clone();
    incomplete.secrets.insert(SecretUse::KafkaUser, crate::lacking(sluice_crds::KeyUse::Password));
    assert!(
        words(&incomplete).contains("spec.kafka.sasl.secretRef.passwordKey of the TraceConnection \"main\""),
        "{}",
        words(&incomplete)
    );
    let seen = TopicSeen::Unavailable { failure: SourceFailure::Timeout, message: "no answer".into() };
    let away = Observed {
        partitions: facts.partitions.keys().map(|topic| (topic.clone(), seen.clone())).collect(),
        ..facts
    };
    let outcome = plan(&referring, &away, &defaults());
    let status = status(&referring, &away, outcome.as_ref(), &now());
    assert_eq!(said(&status, "SourceReachable").2, "no answer (from the TraceConnection \"main\")");
    let mut twice = spec_of(&sample("tracepipeline.yaml"));
    twice["clickhouse"] =
        json!({"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://a:8123"]}]});
    let referring = by_reference(&sample("tracepipeline.yaml"), &BOTH, "main", &twice);
    let found = plan(&referring, &observed(&referring, 12), &defaults()).unwrap_err().to_string();
    assert!(found.starts_with("spec.clickhouse.shards of the TraceConnection \"main\": "), "{found}");
}

/// A pipeline whose gateways were given the servers of `before`, and what is planned with those of `after`. `names` are those that the status
/// remembers; `None` for a pipeline that named its servers itself.
fn changed(before: &str, names: Option<&[&str]>, after: &str, runs: &Runs) -> Option<String> {
    let of = |clickhouse: &str| with("/spec/sink/clickhouse", serde_json::from_str(clickhouse).unwrap());
    let old = of(before);
    let facts = observed(&old, 12);
    let parts = build(&planned(&old, &facts)).into_parts();
    let workload = parts.workload.unwrap();
    assert_eq!(objects::live_config_of(&workload), parts.config_map.metadata.name.as_deref());
    let servers = ServersSeen::of(&parts.config_map);
    let servers = Vec::from_iter(servers);
    assert_eq!(servers.len(), 1);
    let mut pipeline = if runs.by_reference {
        by_reference(&of(after), &BOTH[1..], "main", &spec_of(&of(after)))
    } else {
        of(after)
    };
    let connections = names.map(|names| ConnectionsStatus {
        kafka: None,
        clickhouse: runs.by_reference.then(|| "main".into()),
        shards: names.iter().map(|name| (*name).to_owned()).collect(),
    });
    pipeline.status = Some(TracePipelineStatus { connections, ..TracePipelineStatus::default() });
    let seen =
        WorkloadSeen { wanted: runs.gateways, replicas: runs.gateways, ..WorkloadSeen::of(&workload, &[]) };
    let facts = Observed { workload: Some(seen), servers, ..observed(&pipeline, 12) };
    plan(&pipeline, &facts, &defaults()).err().map(|found| found.to_string())
}

struct Runs {
    by_reference: bool,
    gateways: u32,
}

const RUNS: Runs = Runs { by_reference: true, gateways: 3 };

const A: &str = r#"{"endpoints": ["http://a:8123"]}"#;
const B: &str = r#"{"endpoints": ["http://b:8123"]}"#;
const A_B: &str = r#"{"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123"]}]}"#;
const B_A: &str = r#"{"shards": [{"endpoints": ["http://b:8123"]}, {"endpoints": ["http://a:8123"]}]}"#;
const A_B_C: &str = r#"{"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123"]}, {"endpoints": ["http://c:8123"]}]}"#;
const C_D: &str = r#"{"shards": [{"endpoints": ["http://c:8123"]}, {"endpoints": ["http://d:8123"]}]}"#;
const ONE: &str = r#"{"shards": [{"endpoints": ["http://a:8123"]}]}"#;
const AD_B: &str =
    r#"{"shards": [{"endpoints": ["http://a:8123", "http://d:8123"]}, {"endpoints": ["http://b:8123"]}]}"#;
const A_BD: &str =
    r#"{"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123", "http://d:8123"]}]}"#;
const NAMED: &str = r#"{"shards": [{"name": "x", "endpoints": ["http://a:8123"]}, {"name": "y", "endpoints": ["http://b:8123"]}]}"#;
const NAMED_ELSEWHERE: &str = r#"{"shards": [{"name": "x", "endpoints": ["http://c:8123"]}, {"name": "y", "endpoints": ["http://d:8123"]}]}"#;
const NAMED_OTHERWISE: &str = r#"{"shards": [{"name": "x", "endpoints": ["http://a:8123"]}, {"name": "z", "endpoints": ["http://b:8123"]}]}"#;
const NAMED_SWAPPED: &str = r#"{"shards": [{"name": "x", "endpoints": ["http://b:8123"]}, {"name": "y", "endpoints": ["http://a:8123"]}]}"#;
const NAMED_SWAPPED_SPELT: &str = r#"{"shards": [{"name": "x", "endpoints": ["http://B:8123"]}, {"name": "y", "endpoints": ["http://a:8123/"]}]}"#;
const SPELT: &str = r#"{"shards": [{"endpoints": ["http://A:8123/"]}, {"endpoints": ["http://b.:8123"]}]}"#;

#[test]
fn shards_of_a_connection_keep_the_rules_of_the_definition() {
    let (none, xy): (Option<&[&str]>, Option<&[&str]>) = (Some(&[]), Some(&["x", "y"]));
    for (before, names, after, refusal) in [
        (A, none, A, None),
        (A, none, B, None),
        (A, none, A_B, None),
        (A, none, B_A, Some("the first of shards has none of the former endpoints http://a:8123")),
        (A_B, none, A_B, None),
        (A_B, none, A_B_C, None),
        (A_B, none, AD_B, None),
        (A_B, none, NAMED, None),
        (ONE, none, B, None),
        (A_B, none, A, Some("endpoints would replace 2 shards")),
        (A_B_C, none, A_B, Some("there would be 2 of 3 shards")),
        (A_B, none, B_A, Some("the shard 1 of the list would have none of its endpoints http://a:8123")),
        (A_B, none, C_D, Some("the shard 1 of the list would have none of its endpoints")),
        (AD_B, none, A_BD, Some("http://d:8123 would move away from the shard 1")),
        (NAMED, xy, NAMED_ELSEWHERE, None),
        (NAMED, xy, NAMED_OTHERWISE, Some("the shard 2 of the list would no longer be \"y\"")),
        (NAMED, xy, A_B, None),
        (NAMED, xy, C_D, Some("the shard 1 of the list would have none of its endpoints")),
        (NAMED, xy, NAMED_SWAPPED, Some("would move away from the shard 1")),
        (NAMED, xy, NAMED_SWAPPED_SPELT, Some("http://a:8123/ would move away from the shard 1")),
        (A_B, none, SPELT, None),
        // The names are not known: an operator before this one wrote the status. Each shard keeps an endpoint.
        (NAMED, None, NAMED, None),
        (NAMED, None, NAMED_ELSEWHERE, Some("would have none of its endpoints")),
    ] {
        let found = changed(before, names, after, &RUNS);
        match (&found, refusal) {
            (None, None) => {}
            (Some(found), Some(refusal)) => {
                assert!(found.starts_with("spec.sink.clickhouse: ") && found.contains(refusal), "{found}");
                assert!(found.contains("(from the TraceConnection \"main\")"), "{found}");
            }
            _ => panic!("{before} -> {after}: {found:?}"),
        }
    }
}

#[test]
fn servers_of_the_spec_keep_the_rules_too_because_a_reference_may_have_stood_between_two_edits() {
    let (inline, xy): (_, Option<&[&str]>) = (Runs { by_reference: false, ..RUNS }, Some(&["x", "y"]));
    for (before, names, after, refusal) in [
        (A, None, B, None),
        (A_B, None, A_B_C, None),
        (A_B, None, B_A, Some("the shard 1 of the list would have none of its endpoints http://a:8123")),
        (A_B, None, A, Some("endpoints would replace 2 shards")),
        (A_B_C, None, A_B, Some("there would be 2 of 3 shards")),
        (NAMED, xy, NAMED_ELSEWHERE, None),
        (NAMED, xy, NAMED_SWAPPED, Some("would move away from the shard 1")),
    ] {
        let found = changed(before, names, after, &inline);
        assert_eq!(found.is_some(), refusal.is_some(), "{before} -> {after}: {found:?}");
        if let (Some(found), Some(refusal)) = (found, refusal) {
            assert!(found.contains(refusal) && !found.contains("TraceConnection"), "{found}");
        }
    }
}

#[test]
fn gateways_without_a_workload_keep_their_shards_too() {
    let of = |clickhouse: &str| with("/spec/sink/clickhouse", serde_json::from_str(clickhouse).unwrap());
    let (old, new) = (of(A_B), of(B_A));
    let parts = build(&planned(&old, &observed(&old, 12))).into_parts();
    let mut facts = observed(&new, 12);
    facts.servers = Vec::from_iter(ServersSeen::of(&parts.config_map));
    assert!(plan(&new, &facts, &defaults()).is_ok(), "nothing is on its way");
    facts.volumes.left_alone = Some(2);
    assert!(plan(&new, &facts, &defaults()).is_err());
}

#[test]
fn shards_may_move_while_no_gateway_runs_and_no_volume_is_bound() {
    assert_eq!(changed(A_B, Some(&[]), B_A, &Runs { gateways: 0, ..RUNS }), None, "no row is on its way");
}

/// A gateway that reported 0 blocks and then fell silent may hold some: only what it confirmed when it left counts, or the mark of a Job.
#[test]
fn shards_stay_while_a_volume_is_not_known_to_be_empty() {
    let of = |clickhouse: &str| with("/spec/sink/clickhouse", serde_json::from_str(clickhouse).unwrap());
    let (old, mut new) = (of(A_B), of(B_A));
    let parts = build(&planned(&old, &observed(&old, 12))).into_parts();
    let mut facts = observed(&new, 12);
    facts.servers = Vec::from_iter(ServersSeen::of(&parts.config_map));
    let claim =
        ClaimSeen { name: "queue-a-gateway-2".into(), ordinal: 2, is_bound: true, ..ClaimSeen::default() };
    let left = |replicas, is_empty| Some(SuspensionStatus { replicas, is_empty, has_committed: false });
    for (claim, suspension, is_moved) in [
        (claim.clone(), None, false),
        (claim.clone(), left(3, false), false),
        (claim.clone(), left(3, true), true),
        // The claim of a gateway that was scaled in before, which no Job has drained yet.
        (claim.clone(), left(2, true), false),
        (ClaimSeen { is_drained: true, ..claim.clone() }, left(2, true), true),
        (ClaimSeen { is_drained: true, ..claim.clone() }, None, true),
        (ClaimSeen { is_bound: false, ..claim }, None, true),
    ] {
        facts.volumes.claims = vec![claim.clone()];
        let queue = Some(QueueStatus { blocks: 0, bytes: 0 });
        new.status = Some(TracePipelineStatus { queue, suspension, ..TracePipelineStatus::default() });
        let found = plan(&new, &facts, &defaults()).err().map(|found| found.to_string());
        assert_eq!(found.is_none(), is_moved, "{claim:?} {suspension:?} {found:?}");
        if let Some(found) = found {
            assert!(found.contains("The queue volume queue-a-gateway-2 may hold blocks"), "{found}");
            assert!(found.contains("resume the pipeline"), "{found}");
        }
    }
}

#[test]
fn the_status_remembers_the_connections_that_gateways_were_given() {
    let connections = |pipeline: &TracePipeline, unresolved: Unresolved| {
        let facts = Observed { unresolved, ..observed(pipeline, 12) };
        let outcome = plan(pipeline, &facts, &defaults());
        status(pipeline, &facts, outcome.as_ref(), &now()).connections
    };
    let inline = with("/spec/sink/clickhouse", serde_json::from_str(NAMED).unwrap());
    let named = ConnectionsStatus { shards: vec!["x".into(), "y".into()], ..ConnectionsStatus::default() };
    assert_eq!(connections(&inline, Unresolved::default()), Some(named));
    assert_eq!(connections(&sample("tracepipeline.yaml"), Unresolved::default()), None);
    let mut referring = by_reference(&inline, &BOTH, "main", &spec_of(&inline));
    let both = ConnectionsStatus {
        kafka: Some("main".into()),
        clickhouse: Some("main".into()),
        shards: vec!["x".into(), "y".into()],
    };
    let expected = Some(both.clone());
    assert_eq!(connections(&referring, Unresolved::default()), expected);
    // What is not known any more stays remembered.
    referring.status =
        Some(TracePipelineStatus { connections: expected.clone(), ..TracePipelineStatus::default() });
    let missing = Unresolved { sink: Some("gone".into()), ..Unresolved::default() };
    assert_eq!(connections(&referring, missing), expected);
    let half = by_reference(&inline, &BOTH[..1], "main", &spec_of(&inline));
    let expected = ConnectionsStatus { clickhouse: None, ..both };
    assert_eq!(connections(&half, Unresolved::default()), Some(expected));
}
