//! What follows from a spec and facts, and what does not change when nothing that matters does.

use crate::{defaults, golden::yaml, lacking, observed, planned, sample, with, with_credentials};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_crds::{KeyUse, SecretUse, TopicStatus, TracePipeline, TracePipelineStatus, status::reason};
use sluice_plan::{
    Applied, Defaults, Objects, Observed, Planned, SchemaFailed, SchemaFailure, SchemaSeen, SchemaStep,
    SecretSeen, SourceFailure, TopicSeen, build, plan, schema_job_name,
};

const DEMO: &str = "tracepipeline.yaml";

fn demo() -> TracePipeline {
    sample(DEMO)
}

/// The name of an object in the plan of a pipeline with 12 partitions.
pub fn names(pipeline: &TracePipeline, observed: &Observed) -> [Option<String>; 2] {
    let parts = build(&planned(pipeline, observed)).into_parts();
    [parts.config_map.metadata.name, parts.schema_job.and_then(|job| job.metadata.name)]
}

pub fn template(pipeline: &TracePipeline, observed: &Observed, defaults: &Defaults) -> String {
    let Ok(Planned::Ready(plan)) = plan(pipeline, observed, defaults) else { panic!() };
    let workload = build(&plan).into_parts().workload.unwrap();
    serde_json::to_string(&workload.spec.unwrap().template).unwrap()
}

#[test]
fn replicas_follow_the_partitions_unless_the_spec_says() {
    for (replicas, partitions, expected) in [(Value::Null, 12, 3), (json!(2), 12, 2), (json!(20), 12, 12)] {
        let pipeline = with("/spec/replicas", replicas);
        assert_eq!(planned(&pipeline, &observed(&pipeline, partitions)).replicas(), expected);
    }
}

#[test]
fn json_reaches_the_gateways_and_counts_in_their_memory() {
    let of_kafka = |format: &str, batch: &str| {
        let kafka = json!({
            "bootstrapServers": ["kafka:9092"], "topics": ["otlp_spans"], "format": format, "recordBatchBytesMax": batch,
        });
        with("/spec/source/kafka", kafka)
    };
    let pipeline = of_kafka("OtlpJson", "1Mi");
    let config_map = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts().config_map;
    assert!(config_map.data.unwrap().values().any(|config| config.contains("format: OtlpJson")));
    // 20 MiB a batch fit the sample's limit only while no worker needs twice that for itself.
    let fits = |format| {
        let pipeline = of_kafka(format, "20Mi");
        matches!(plan(&pipeline, &observed(&pipeline, 12), &defaults()), Ok(Planned::Ready(_)))
    };
    assert_eq!((fits("OtlpProto"), fits("OtlpJson")), (true, false));
}

#[test]
fn the_workload_has_no_replicas_and_waits_for_the_schema() {
    let pipeline = demo();
    let facts = |schema| Observed { schema, ..observed(&pipeline, 12) };
    let parts = build(&planned(&pipeline, &facts(SchemaSeen::Succeeded))).into_parts();
    assert_eq!(parts.workload.unwrap().spec.unwrap().replicas, None);
    for schema in [SchemaSeen::NotStarted, SchemaSeen::Running] {
        let parts = build(&planned(&pipeline, &facts(schema))).into_parts();
        assert!(parts.workload.is_none() && parts.schema_job.is_some());
    }
}

#[test]
fn without_management_there_is_no_job_and_nothing_is_waited_for() {
    let pipeline = with("/spec/sink/clickhouse/schema", json!({"management": "None"}));
    let facts = Observed { schema: SchemaSeen::NotNeeded, ..observed(&pipeline, 12) };
    let parts = build(&planned(&pipeline, &facts)).into_parts();
    assert!(parts.workload.is_some() && parts.schema_job.is_none() && parts.schema_config_map.is_none());
    assert_eq!(schema_job_name(&pipeline, &[].into(), &[].into(), None, &defaults()), None);
}

#[test]
fn the_job_does_what_the_management_allows() {
    for management in ["Validate", "CreateIfMissing", "Evolve"] {
        let pipeline = with("/spec/sink/clickhouse/schema", json!({"management": management}));
        let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
        let pod = parts.schema_job.unwrap().spec.unwrap().template.spec.unwrap();
        assert_eq!(pod.containers[0].args.as_ref().unwrap()[..2], ["ddl", "apply"]);
        let config = parts.schema_config_map.unwrap().data.unwrap();
        assert!(config["gateway.yaml"].contains(&format!("management: {management}")));
    }
}

#[test]
fn a_job_that_failed_is_left_out_once_it_is_to_be_run_again() {
    let pipeline = demo();
    let failed = |seconds| failed(reason::TABLE_MISSING, std::time::Duration::from_secs(seconds));
    for (seconds, step, is_there) in [(0, SchemaStep::Failed, true), (60, SchemaStep::RunAgain, false)] {
        let plan = planned(&pipeline, &Observed { schema: failed(seconds), ..observed(&pipeline, 12) });
        assert_eq!(plan.schema_step(), step);
        assert_eq!(build(&plan).into_parts().schema_job.is_some(), is_there);
    }
}

#[test]
fn gateways_run_beside_a_table_that_only_a_person_may_change() {
    let pipeline = demo();
    for (word, minutes, is_kept) in [
        (reason::SCHEMA_DIFFERS, 10, true),
        (reason::SCHEMA_DIFFERS, 60, false),
        (reason::SERVERS_NOT_REACHED, 0, true),
        (reason::SERVERS_NOT_REACHED, 1, false),
    ] {
        let schema = failed(word, std::time::Duration::from_mins(minutes));
        let parts = build(&planned(&pipeline, &Observed { schema, ..observed(&pipeline, 12) })).into_parts();
        assert!(parts.workload.is_some(), "nothing waits: {word}");
        assert_eq!(parts.schema_job.is_some(), is_kept, "{word} after {minutes} min");
    }
}

fn failed(reason: &'static str, ago: std::time::Duration) -> SchemaSeen {
    let failure = SchemaFailure { reason, message: "as it is".into() };
    SchemaSeen::Failed(SchemaFailed { failure, times: 1, ago, ..SchemaFailed::default() })
}

#[test]
fn the_job_that_is_looked_at_is_the_job_that_is_built() {
    let pipeline = with_credentials();
    let facts = observed(&pipeline, 12);
    let [_, built] = names(&pipeline, &facts);
    assert_eq!(schema_job_name(&pipeline, &facts.secrets, &facts.partitions, None, &defaults()), built);
    assert_eq!(planned(&pipeline, &facts).schema().map(sluice_plan::SchemaPlan::name), built);
}

#[test]
fn the_job_runs_again_for_what_concerns_the_table_alone() {
    let (before, facts) = (with_credentials(), observed(&with_credentials(), 12));
    let [_, job] = names(&before, &facts);
    for (pointer, value, again) in [
        ("/spec/sink/clickhouse/table", json!("other"), true),
        ("/spec/sink/clickhouse/schema", json!({"management": "Validate"}), true),
        ("/spec/sink/clickhouse/schema", json!({"ttl": "30d"}), true),
        ("/spec/sink/clickhouse/schema", json!({"views": ["TraceTimes"]}), true),
        ("/spec/sink/clickhouse/schema", json!({"columns": [{"name": "a", "type": "String"}]}), true),
        ("/spec/sink/clickhouse/schema", json!({"typedPaths": {"span": {"a": "Int64"}}}), true),
        ("/spec/sink/clickhouse/insert", json!({"settings": {"insert_quorum": "2"}}), false),
        ("/spec/gateway/image", json!("other:1"), true),
        // Where its pod may run is part of it: one that found no node is made again where it does.
        ("/spec/gateway/podTemplate", json!({"nodeSelector": {"a": "b"}}), true),
        ("/spec/gateway/podTemplate", json!({"affinity": {"podAntiAffinity": {}}}), false),
        ("/spec/gateway/resources", json!({"requests": {"cpu": 4}, "limits": {"memory": "1Gi"}}), false),
        ("/spec/gateway/logLevel", json!("debug"), false),
        ("/spec/replicas", json!(1), false),
        ("/spec/delivery", json!({"deadLetter": {"topic": "unread"}}), false),
        ("/spec/queue", json!({"size": "10Gi", "maxBytes": "8Gi"}), false),
        ("/spec/source/kafka/recordBatchBytesMax", json!("2Mi"), false),
        ("/spec/source/kafka/bootstrapServers", json!(["new:9092"]), false),
        ("/spec/source/kafka/topics", json!(["others"]), false),
        ("/spec/source/kafka/initialOffset", json!("Latest"), false),
        ("/spec/source/kafka/format", json!("OtlpJson"), false),
    ] {
        let mut after = serde_json::to_value(&before).unwrap();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        after.pointer_mut(parent).unwrap()[field] = value;
        let after = serde_json::from_value(after).unwrap();
        let [_, other] = names(&after, &observed(&after, 12));
        assert_eq!(other != job, again, "{pointer}");
    }
    // More partitions need a longer memory of tokens, in large steps.
    let with_partitions = |count| names(&before, &observed(&before, count))[1].clone();
    assert_eq!(with_partitions(16), job);
    assert_ne!(with_partitions(96), job);
}

#[test]
fn what_is_right_for_the_gateways_is_right_for_the_job_that_reads_nothing() {
    let long = "a".repeat(240);
    for topics in [["spans", "spans.dead-letter"], ["spans", &long]] {
        let mut pipeline = with("/spec/delivery", json!({"deadLetter": {"topic": "unread"}}));
        pipeline.spec.source.kafka.as_mut().unwrap().topics = topics.map(str::to_owned).into();
        assert!(
            planned(&pipeline, &observed(&pipeline, 12)).schema_step().lets_gateways_start(),
            "{topics:?}"
        );
    }
}

#[test]
fn an_edit_of_how_the_table_is_made_restarts_no_gateway() {
    let before = template(&demo(), &observed(&demo(), 12), &defaults());
    let schema = json!({"management": "Evolve", "layout": "Map", "ttl": "30d", "views": ["Operations", "TraceTimes"],
        "columns": [{"name": "a", "type": "String", "default": "SpanName"}], "orderBy": ["TraceId"]});
    let after = with("/spec/sink/clickhouse/schema", schema);
    let parts = build(&planned(&after, &observed(&after, 12))).into_parts();
    let config = &parts.schema_config_map.unwrap().data.unwrap()["gateway.yaml"];
    for line in
        ["ttl: 720h", "layout: Map", "traceTimes: true", "deduplicationWindow: 20000", "default: SpanName"]
    {
        assert!(config.contains(line), "{line} in {config}");
    }
    let of_gateways = parts.config_map.data.unwrap()["gateway.yaml"].clone();
    assert!(of_gateways.contains("management: Evolve") && !of_gateways.contains("ttl"), "{of_gateways}");
    let evolve = with("/spec/sink/clickhouse/schema", json!({"management": "Evolve"}));
    assert_eq!(
        template(&after, &observed(&after, 12), &defaults()),
        template(&evolve, &observed(&evolve, 12), &defaults())
    );
    assert_ne!(
        template(&after, &observed(&after, 12), &defaults()),
        before,
        "the management is the gateways' too"
    );
}

#[test]
fn optional_columns_are_the_jobs_business_and_the_gateways() {
    let with_columns =
        |columns: Value| with("/spec/sink/clickhouse/schema", json!({"optionalColumns": columns}));
    let pipeline = with_columns(json!(["KafkaHeaders", "TraceFlags"]));
    let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
    for map in [parts.config_map, parts.schema_config_map.unwrap()] {
        let config = &map.data.unwrap()["gateway.yaml"];
        let (_, columns) = config.split_once("optionalColumns:").unwrap();
        let (flags, headers) = (columns.find("TraceFlags").unwrap(), columns.find("KafkaHeaders").unwrap());
        assert!(flags < headers, "they are a set: {config}");
    }
    let template = |pipeline: TracePipeline| template(&pipeline, &observed(&pipeline, 12), &defaults());
    assert_eq!(template(pipeline), template(with_columns(json!(["TraceFlags", "KafkaHeaders"]))));
    assert_ne!(
        template(demo()),
        template(with_columns(json!([]))),
        "none is another wish than no word of it"
    );
    let parts = build(&planned(&demo(), &observed(&demo(), 12))).into_parts();
    assert!(!parts.config_map.data.unwrap()["gateway.yaml"].contains("optionalColumns"));
}

#[test]
fn settings_of_inserts_are_the_gateways_business() {
    let pipeline = with("/spec/sink/clickhouse/insert", json!({"settings": {"insert_quorum": "2"}}));
    let parts = build(&planned(&pipeline, &observed(&pipeline, 12))).into_parts();
    let yaml = |map: k8s_openapi::api::core::v1::ConfigMap| map.data.unwrap()["gateway.yaml"].clone();
    assert!(yaml(parts.config_map).contains("insert_quorum"));
    assert!(!yaml(parts.schema_config_map.unwrap()).contains("insert_quorum"));
}

#[test]
fn a_change_of_the_number_of_gateways_restarts_none() {
    let one = template(&with("/spec/replicas", json!(3)), &observed(&demo(), 24), &defaults());
    for replicas in 4..=24 {
        let other = template(&with("/spec/replicas", json!(replicas)), &observed(&demo(), 24), &defaults());
        assert_eq!(one, other, "{replicas}");
    }
    // Those that all leave are not made anew before they do.
    let none = template(&with("/spec/replicas", json!(0)), &observed(&demo(), 24), &defaults());
    assert_eq!(none, one);
}

#[test]
fn nothing_of_the_pipelines_own_metadata_reaches_an_object() {
    let mut pipeline = demo();
    let plain = yaml(&planned(&pipeline, &observed(&pipeline, 12)));
    pipeline.metadata.labels = Some([("argocd.argoproj.io/instance".into(), "x".into())].into());
    pipeline.metadata.annotations = Some([("a".into(), "x".into())].into());
    pipeline.metadata.generation = Some(7);
    pipeline.metadata.resource_version = Some("9".into());
    assert_eq!(yaml(&planned(&pipeline, &observed(&pipeline, 12))), plain);
}

#[test]
fn another_operator_with_the_same_image_changes_nothing() {
    let pipeline = demo();
    let newer = Defaults { operator_version: "9.9.9".into(), ..defaults() };
    assert_eq!(
        template(&pipeline, &observed(&pipeline, 12), &defaults()),
        template(&pipeline, &observed(&pipeline, 12), &newer)
    );
}

#[test]
fn what_is_outside_of_the_spec_is_waited_for() {
    let pipeline = with_credentials();
    let well = observed(&pipeline, 12);
    let topic = |seen| Observed { partitions: [("otlp_spans".into(), seen)].into(), ..well.clone() };
    let secret = |secret| Observed { secrets: [(SecretUse::ClickHouseUser, secret)].into(), ..well.clone() };
    let away = TopicSeen::Unavailable { failure: SourceFailure::Timeout, message: "no answer".into() };
    let waits = |facts: &Observed, reason: &str, message: &str| {
        let Ok(Planned::Waiting(waiting)) = plan(&pipeline, facts, &defaults()) else { panic!("{facts:?}") };
        assert_eq!(waiting.reason, reason);
        assert!(waiting.message.contains(message), "{}", waiting.message);
    };
    let is_missing = "the topic \"otlp_spans\" does not exist";
    waits(&topic(TopicSeen::Missing), reason::SOURCE_UNAVAILABLE, is_missing);
    waits(&topic(TopicSeen::Known(0)), reason::SOURCE_UNAVAILABLE, is_missing);
    waits(&topic(away), reason::SOURCE_UNAVAILABLE, "no answer");
    waits(&Observed { partitions: [].into(), ..well.clone() }, reason::SOURCE_UNAVAILABLE, "not known yet");
    waits(&secret(SecretSeen::Missing), reason::SINK_UNAVAILABLE, "\"writer\" does not exist");
    waits(&secret(lacking(KeyUse::Password)), reason::SINK_UNAVAILABLE, "has no password");
}

#[test]
fn while_kafka_is_away_the_remembered_partitions_are_kept() {
    let mut pipeline = demo();
    let topics = vec![TopicStatus { name: "otlp_spans".into(), partitions: 12 }];
    pipeline.status = Some(TracePipelineStatus { topics, ..TracePipelineStatus::default() });
    let away = TopicSeen::Unavailable { failure: SourceFailure::Unreachable, message: "no broker".into() };
    let facts = Observed { partitions: [("otlp_spans".into(), away)].into(), ..observed(&pipeline, 12) };
    assert_eq!(planned(&pipeline, &facts), planned(&pipeline, &observed(&pipeline, 12)));
}

#[test]
fn gateways_that_cannot_work_are_refused_with_each_field_and_the_number_that_would_do() {
    assert_refused(&[
        (
            "/spec/gateway/workers",
            json!(8),
            "spec.gateway.resources.limits.memory: 256Mi is too small for 8 workers",
        ),
        ("/spec/gateway/workers", json!(8), "set at least 4"),
        (
            "/spec/gateway/resources/limits/memory",
            json!("64Mi"),
            "spec.gateway.resources.limits.memory: 64Mi is too small for 1 workers and record batches of 1MiB; set at least 127Mi",
        ),
        (
            "/spec/gateway/resources/limits/memory",
            json!("much"),
            "memory: \"much\" is not a size: expected a whole number",
        ),
        (
            "/spec/gateway/resources/cpuRequest",
            json!("much"),
            "cpuRequest: \"much\" is not a number of cores, such as",
        ),
        (
            "/spec/gateway/terminationGracePeriod",
            json!("5s"),
            "terminationGracePeriod: 5s is not between 15s and 1h",
        ),
        (
            "/spec/queue",
            json!({"size": "1Gi", "maxBytes": "1Gi"}),
            "spec.queue.maxBytes: 1GiB is more than 95 %",
        ),
        ("/spec/queue", json!({"size": "1Gi", "maxBytes": "1Gi"}), "set at most 972Mi"),
        ("/spec/queue", json!({"size": "1Gi", "maxBytes": "80%"}), "spec.queue.maxBytes: "),
        (
            "/spec/queue",
            json!({"size": "1Gi", "maxBytes": "16Mi"}),
            "spec.queue.maxBytes: must be at least 32MiB",
        ),
    ]);
}

#[test]
fn a_source_or_sink_that_cannot_work_is_refused_with_what_would_do() {
    assert_refused(&[
        (
            "/spec/delivery",
            json!({"deadLetter": {"topic": "otlp_spans"}}),
            "spec.delivery.deadLetter.topic: \"otlp_spans\" is a topic of the source",
        ),
        ("/spec/source/kafka/recordBatchBytesMax", json!("1M"), "recordBatchBytesMax: \"1M\" is not a size"),
        ("/spec/source/kafka/topics", json!(["a b"]), "topics: \"a b\" is not a topic: 1 to 249 of"),
        (
            "/spec/source/kafka/properties",
            json!({"ssl.ca.location": "/ca"}),
            "spec.source.kafka.properties.ssl.ca.location: cannot be set here: set tls",
        ),
        (
            "/spec/sink/clickhouse/insert",
            json!({"settings": {"async_insert": "1"}}),
            "spec.sink.clickhouse.insert.settings.async_insert: cannot be set here: one INSERT is one block",
        ),
        (
            "/spec/sink/clickhouse/schema",
            json!({"management": "None", "ttl": "30 days"}),
            "spec.sink.clickhouse.schema.ttl: \"30 days\" is not a duration",
        ),
        (
            "/spec/sink/clickhouse/schema",
            json!({"columns": [{"name": "a", "type": "String", "default": "1), DROP COLUMN (b"}]}),
            "schema.columns.a.default: \"1), DROP COLUMN (b\" is not one whole expression: brackets and quotes",
        ),
        (
            "/spec/sink/clickhouse/schema",
            json!({"optionalColumns": ["TraceFlags"], "columns": [{"name": "TraceFlags", "type": "UInt32"}]}),
            "schema.columns.TraceFlags: the gateway fills this column, since optionalColumns asks for it",
        ),
        ("/spec/sink/clickhouse/endpoints", json!(["tcp://a:1"]), "\"tcp://a:1\" is not http://host:port"),
        ("/metadata/name", json!("a.b"), "metadata.name: \"a.b\" must consist of a-z, 0-9"),
        ("/metadata/uid", Value::Null, "metadata.uid: must be set"),
    ]);
}

/// Each of these values alone, at its place, is refused with these words.
fn assert_refused(cases: &[(&str, Value, &str)]) {
    for (pointer, value, expected) in cases {
        let pipeline = with(pointer, value.clone());
        let found = plan(&pipeline, &observed(&pipeline, 12), &defaults()).unwrap_err().to_string();
        assert!(found.contains(expected), "{pointer} {value}: {found}");
    }
}

#[test]
fn a_wrong_spec_is_refused_whether_or_not_kafka_answers() {
    let pipeline = with("/spec/gateway/resources/limits/memory", json!("64Mi"));
    assert!(plan(&pipeline, &Observed::default(), &defaults()).is_err());
}

#[test]
fn the_limit_that_is_named_does() {
    let small = with("/spec/gateway/workers", json!(8));
    let found = plan(&small, &observed(&small, 12), &defaults()).unwrap_err().to_string();
    let named = found.rsplit_once(' ').unwrap().1;
    let mut enough = small;
    enough.spec.gateway.resources = enough.spec.gateway.resources.with_memory(named);
    planned(&enough, &observed(&enough, 12));
}

#[test]
fn what_was_confirmed_is_what_was_handed_over() {
    let desired = build(&planned(&demo(), &observed(&demo(), 12)));
    let applied = Objects::<Applied>::confirm(desired.clone().into_parts());
    assert_eq!(applied.parts(), desired.parts());
}

prop_compose! {
    fn any_pipeline()(
        replicas in proptest::option::of(0u32..40),
        per_replica in 1u32..16,
        memory in 64u64..4_096,
        workers in proptest::option::of(1u32..8),
        credentials: bool,
        disabled: bool,
        topics in proptest::collection::btree_set("[a-z]{1,8}", 1..4),
    ) -> TracePipeline {
        let mut pipeline = if credentials { with_credentials() } else { demo() };
        pipeline.spec.replicas = replicas;
        pipeline.spec.partitions_per_replica = per_replica;
        pipeline.spec.gateway.resources = pipeline.spec.gateway.resources.with_memory(format!("{memory}Mi"));
        pipeline.spec.gateway.workers = workers;
        pipeline.spec.source.kafka.as_mut().unwrap().topics = topics.into_iter().collect();
        if disabled {
            pipeline.spec.queue.mode = sluice_crds::QueueMode::Disabled;
        }
        pipeline
    }
}

proptest! {
    #[test]
    fn the_plan_is_pure_and_deterministic(pipeline in any_pipeline(), partitions in 1u32..200) {
        let facts = observed(&pipeline, partitions);
        // The same pipeline as another process would read it, with its topics in another order.
        let mut again: TracePipeline = serde_json::from_str(&serde_json::to_string(&pipeline).unwrap()).unwrap();
        again.spec.source.kafka.as_mut().unwrap().topics.reverse();
        match (plan(&pipeline, &facts, &defaults()), plan(&again, &facts, &defaults())) {
            (Ok(Planned::Ready(one)), Ok(Planned::Ready(other))) => {
                prop_assert_eq!(yaml(&one), yaml(&other));
                prop_assert!(one.replicas() <= one.partitions());
            }
            (one, other) => prop_assert_eq!(one, other),
        }
    }
}
