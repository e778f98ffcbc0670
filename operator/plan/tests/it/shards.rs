//! Several shards, and the protocol of the consumer group: how they reach the gateways and the schema Job.

use crate::{defaults, observed, planned, sample, with};
use serde_json::{Value, json};
use sluice_crds::TracePipeline;
use sluice_plan::{Planned, build, derived, plan};

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
    let shards = json!({"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://a:8123/"]}]});
    let (_, config) = schema_config(&with("/spec/sink/clickhouse", shards));
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

fn with_memory(pipeline: &TracePipeline, memory: &str) -> TracePipeline {
    let mut pipeline = pipeline.clone();
    pipeline.spec.gateway.resources = pipeline.spec.gateway.resources.with_memory(memory);
    pipeline
}
