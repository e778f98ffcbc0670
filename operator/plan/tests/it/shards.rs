//! Several shards, and the protocol of the consumer group: how they reach the gateways and the schema Job.

use crate::{
    defaults, observed, planned, sample,
    statuses::{condition, said},
    with,
};
use serde_json::{Value, json};
use sluice_crds::{TracePipeline, TracePipelineStatus};
use sluice_plan::{
    Observed, Planned, ServersSeen, WorkloadSeen, build, derived, objects, plan, servers_of_two_shards,
};

/// A pipeline with this many shards of one server each.
fn sharded(shards: u32) -> TracePipeline {
    let shards: Vec<Value> =
        (0..shards).map(|number| json!({"endpoints": [format!("http://c{number}:8123")]})).collect();
    with("/spec/sink/clickhouse", json!({"shards": shards}))
}

fn config_of(pipeline: &TracePipeline) -> String {
    planned(pipeline, &observed(pipeline, 12)).config_yaml()
}

/// The name of the schema Job's ConfigMap, and the config in it.
fn schema_config(pipeline: &TracePipeline) -> (String, String) {
    let parts = build(&planned(pipeline, &observed(pipeline, 12))).into_parts();
    let config_map = parts.schema_config_map.unwrap();
    (config_map.metadata.name.unwrap(), config_map.data.unwrap()["gateway.yaml"].clone())
}

#[test]
fn shards_reach_the_gateways_in_their_order() {
    let config: Value = serde_saphyr::from_str(&config_of(&sample("tracepipeline-sharded.yaml"))).unwrap();
    let clickhouse = &config["sink"]["clickhouse"];
    let host = |shard, replica| format!("http://clickhouse-{shard}-{replica}.clickhouse:8123");
    let expected: Vec<_> = (0..3).map(|shard| [host(shard, 0), host(shard, 1)]).collect();
    assert_eq!(clickhouse["shards"], json!(expected));
    assert_eq!(clickhouse.get("endpoints"), None);
    assert_eq!(config["source"]["kafka"]["groupProtocol"], "Consumer");
}

/// Names are for people and for the API server's rules: giving shards names restarts no gateway.
#[test]
fn names_of_shards_reach_no_config() {
    let mut named = sharded(3);
    for (number, shard) in named.spec.sink.clickhouse.shards.iter_mut().enumerate() {
        shard.name = Some(format!("shard-{number}"));
    }
    assert_eq!(config_of(&named), config_of(&sharded(3)));
    assert_eq!(schema_config(&named), schema_config(&sharded(3)));
}

/// An older operator accepted them, and a pipeline that runs must not stop with a new one.
#[test]
fn a_server_that_is_listed_twice_counts_once() {
    for (listed, once) in [
        (
            json!({"endpoints": ["http://a:8123", "http://A:8123/", "http://b:8123"]}),
            json!({"endpoints": ["http://a:8123", "http://b:8123"]}),
        ),
        (
            json!({"shards": [{"endpoints": ["http://a:8123", "http://a:8123/"]}, {"endpoints": ["http://b:8123"]}]}),
            json!({"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123"]}]}),
        ),
    ] {
        let [listed, once] = [listed, once].map(|servers| with("/spec/sink/clickhouse", servers));
        assert_eq!(config_of(&listed), config_of(&once));
        assert_eq!(schema_config(&listed), schema_config(&once));
    }
    // Its gateways were started with it, by an earlier version.
    let mut shared = of_two_shards("http://a:8123/");
    shared.status = Some(TracePipelineStatus { image: Some("i".into()), ..TracePipelineStatus::default() });
    let (_, config) = schema_config(&shared);
    assert!(config.contains("http://a:8123") && !config.contains("http://a:8123/"), "{config}");
}

#[test]
fn every_server_of_every_shard_gets_its_table() {
    let (_, config) = schema_config(&sample("tracepipeline-sharded.yaml"));
    let config: Value = serde_saphyr::from_str(&config).unwrap();
    let clickhouse = &config["sink"]["clickhouse"];
    assert_eq!(clickhouse["endpoints"].as_array().unwrap().len(), 6, "{clickhouse}");
    assert_eq!(clickhouse.get("shards"), None);
    // As many as a spec can have do not make the Job too large for its memory.
    let (_, config) = schema_config(&with_memory(&sharded(64), "8Gi"));
    assert!(config.contains("http://c63:8123"), "{config}");
}

#[test]
fn the_protocol_of_the_group_is_none_of_the_jobs_business() {
    let kafka = |protocol: &str| {
        let kafka = json!({
            "bootstrapServers": ["kafka:9092"], "topics": ["otlp_spans"], "groupProtocol": protocol,
        });
        with("/spec/source/kafka", kafka)
    };
    let (classic, consumer) = (kafka("Classic"), kafka("Consumer"));
    assert_eq!(schema_config(&classic), schema_config(&consumer));
    assert_ne!(config_of(&classic), config_of(&consumer));
    // A field that is not set is in no config, so a new operator version that knows the field restarts no gateway.
    assert!(!config_of(&classic).contains("groupProtocol"), "{}", config_of(&classic));
}

#[test]
fn every_shard_counts_in_the_memory_of_a_gateway() {
    let inserts = |shards| {
        let pipeline = with_memory(&sharded(shards), "1Gi");
        derived(&planned(&pipeline, &observed(&pipeline, 12))).insert_concurrency
    };
    assert_eq!((inserts(2), inserts(6)), (2 * inserts(1), 6 * inserts(1)));
    let many = with_memory(&sharded(64), "256Mi");
    let found = plan(&many, &observed(&many, 12), &defaults()).unwrap_err().to_string();
    assert!(found.contains("spec.gateway.resources.limits.memory"), "{found}");
    // The smallest limit that is named for it does.
    let smallest = found.rsplit(' ').next().unwrap().trim_end_matches("Mi").to_owned() + "Mi";
    let enough = with_memory(&many, &smallest);
    let planned = plan(&enough, &observed(&enough, 12), &defaults());
    assert!(matches!(planned, Ok(Planned::Ready(_))), "{smallest}: {planned:?}");
}

#[test]
fn a_server_belongs_to_one_shard() {
    let twice = json!([{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123", "http://a:8123"]}]);
    let pipeline = with("/spec/sink/clickhouse", json!({"shards": twice}));
    let found = plan(&pipeline, &observed(&pipeline, 12), &defaults()).unwrap_err().to_string();
    assert!(found.starts_with("spec.sink.clickhouse.shards: \"http://a:8123\" is listed twice"), "{found}");
}

/// A pipeline whose second shard has this server beside `http://a:8123` of the first one.
fn of_two_shards(server: &str) -> TracePipeline {
    let shards = json!([{"endpoints": ["http://a:8123"]}, {"endpoints": [server]}]);
    with("/spec/sink/clickhouse", json!({"shards": shards}))
}

#[test]
fn a_server_belongs_to_one_shard_in_any_spelling() {
    for (first, second) in [
        ("http://h:8123", "http://H:8123/"),
        ("http://h:8123", "http://h.:8123"),
        ("http://127.0.0.1:8123", "http://127.1:8123"),
        ("http://[::1]:8123", "http://[0:0:0:0:0:0:0:1]:8123"),
    ] {
        let shards = json!([{"endpoints": [first]}, {"endpoints": ["http://b:8123", second]}]);
        let pipeline = with("/spec/sink/clickhouse", json!({"shards": shards}));
        let found = plan(&pipeline, &observed(&pipeline, 12), &defaults()).unwrap_err().to_string();
        assert_eq!(
            found,
            format!(
                "spec.sink.clickhouse.shards[1].endpoints: {second:?} and {first:?} of shards[0] are one address, so two shards share one \
                 server; list each server in one shard"
            )
        );
    }
}

/// Facts of this pipeline, whose three gateways run as they were started for the spec of `before` by a version that took it.
fn given(pipeline: &TracePipeline, before: &TracePipeline) -> Observed {
    let status = TracePipelineStatus { image: Some("i".into()), ..TracePipelineStatus::default() };
    let started = TracePipeline { status: Some(status), ..before.clone() };
    let plan = planned(&started, &observed(&started, 12));
    let parts = build(&plan).into_parts();
    let mut workload = parts.workload.unwrap();
    workload.metadata.generation = Some(1);
    workload.spec.as_mut().unwrap().replicas = Some(3);
    let counts = json!({"observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3,
        "currentRevision": "a", "updateRevision": "a"});
    workload.status = Some(serde_json::from_value(counts).unwrap());
    let revision = Some(objects::revision(&plan));
    let workload = Some(WorkloadSeen { revision, ..WorkloadSeen::of(&workload, &[]) });
    let servers = Vec::from_iter(ServersSeen::of(&parts.config_map));
    Observed { workload, servers, ..observed(pipeline, 12) }
}

/// A new version of the operator must neither stop it nor keep later changes from it.
#[test]
fn a_pipeline_that_runs_with_one_server_in_two_shards_goes_on_and_ready_says_so() {
    let shared = of_two_shards("http://A:8123/");
    let facts = given(&shared, &shared);
    let outcome = plan(&shared, &facts, &defaults());
    assert!(matches!(outcome, Ok(Planned::Ready(_))), "{outcome:?}");
    let status = said(&shared, &facts);
    let ready = condition(&status, "Ready");
    assert_eq!(ready.status, "True", "{ready:?}");
    let words =
        "3 gateways read 12 partitions; spec.sink.clickhouse.shards[1].endpoints: \"http://A:8123/\" and ";
    assert!(ready.message.starts_with(words) && ready.message.contains("suspend: true"), "{ready:?}");
    // What helps is taken: a server of its own for the second shard.
    let mended = with(
        "/spec/sink/clickhouse",
        json!({"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://A:8123/", "http://b:8123"]}]}),
    );
    let outcome = plan(&mended, &given(&mended, &shared), &defaults());
    assert!(matches!(outcome, Ok(Planned::Ready(_))), "{outcome:?}");
    let apart = of_two_shards("http://b:8123");
    let outcome = plan(&apart, &given(&apart, &mended), &defaults());
    assert!(matches!(outcome, Ok(Planned::Ready(_))), "{outcome:?}");
    assert_eq!(servers_of_two_shards(&apart.spec), Vec::<String>::new());
    // A pipeline that runs without it does not get it by an edit.
    let found = plan(&shared, &given(&shared, &apart), &defaults()).unwrap_err().to_string();
    assert!(found.contains("two shards share one server"), "{found}");
}

fn with_memory(pipeline: &TracePipeline, memory: &str) -> TracePipeline {
    let mut pipeline = pipeline.clone();
    pipeline.spec.gateway.resources = pipeline.spec.gateway.resources.with_memory(memory);
    pipeline
}
