//! What is refused in one round, and whether something was not checked.

use crate::{defaults, observed, with};
use serde_json::json;
use sluice_crds::TracePipeline;
use sluice_plan::plan_or_refuse;

#[test]
fn parts_that_do_not_depend_on_each_other_are_refused_together() {
    let schema = |ttl: &str| json!({"ttl": ttl, "columns": [{"name": "ServiceName", "type": "String"}]});
    let shards = json!([{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://A:8123/"]}]);
    let (memory, queue) = ("spec.gateway.resources.limits.memory", "spec.queue.maxBytes");
    let (ttl, column) =
        ("spec.sink.clickhouse.schema.ttl", "spec.sink.clickhouse.schema.columns.ServiceName");
    for (values, expected, is_partial) in [
        (vec![("/spec/gateway/workers", json!(8))], vec![memory], false),
        (vec![("/spec/sink/clickhouse/schema", schema("forever"))], vec![ttl, column], false),
        (
            vec![("/spec/gateway/workers", json!(8)), ("/spec/sink/clickhouse/schema", schema("30d"))],
            vec![memory, column],
            false,
        ),
        (
            vec![
                ("/spec/sink/clickhouse/endpoints", json!(["tcp://a:1"])),
                ("/spec/sink/clickhouse/schema", schema("30d")),
            ],
            vec!["spec.sink.clickhouse.endpoints", column],
            false,
        ),
        (
            vec![
                ("/spec/gateway/workers", json!(8)),
                ("/spec/queue", json!({"size": "1Gi", "maxBytes": "1Gi"})),
            ],
            vec![memory, queue],
            true,
        ),
        (
            vec![("/metadata/name", json!("a.b")), ("/spec/sink/clickhouse", json!({"shards": shards}))],
            vec!["metadata.name", "spec.sink.clickhouse.shards[1].endpoints"],
            true,
        ),
    ] {
        let mut object = serde_json::to_value(with("/metadata/generation", json!(1))).unwrap();
        for (pointer, value) in values {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[field] = value;
        }
        let pipeline: TracePipeline = serde_json::from_value(object).unwrap();
        let refused = plan_or_refuse(&pipeline, &observed(&pipeline, 12), &defaults()).unwrap_err();
        let paths: Vec<&str> = refused.violations.iter().map(|one| one.path.as_str()).collect();
        assert_eq!((paths, refused.is_partial), (expected, is_partial), "{}", refused.violations);
    }
}
