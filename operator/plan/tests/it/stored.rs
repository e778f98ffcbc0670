//! What is planned for objects that API servers have stored for earlier versions.

use crate::{golden::yaml, observed, planned, sample};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::Value;
use sluice_crds::{RolloutState, RolloutStatus, TracePipeline, TracePipelineStatus};
use sluice_plan::rollout::spec_known_as;

/// An object in `crds/tests/stored`, with an identity as that of [`sample`] and without a status.
fn stored(name: &str) -> Value {
    let path = format!("{}/../../crds/tests/stored/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut object: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    object.as_object_mut().unwrap().remove("status");
    object["metadata"] = serde_json::to_value(sample(name).metadata).unwrap();
    object
}

/// The objects, each with the hash that 0.1.0 gave to its spec.
const OBJECTS: [(&str, &str); 7] = [
    ("tracepipeline.yaml", "11f39cb76c"),
    ("tracepipeline-autoscaled.yaml", "e9d2d1dbc3"),
    ("tracepipeline-full.yaml", "726dbcee22"),
    ("tracepipeline-gitops.yaml", "2d2971fe20"),
    ("tracepipeline-sharded.yaml", "12f2836b81"),
    ("tracepipeline-side-by-side.yaml", "006ad46c4c"),
    ("tracepipeline-tls-sasl.yaml", "e361b5b7e7"),
];

/// Fields that samples have got since then.
const LATER: [&str; 15] = [
    "/spec/edge",
    "/spec/networkPolicy/otlpFrom",
    "/spec/sink/clickhouse/schema/optionalColumns",
    "/spec/attributes",
    "/spec/networkPolicy/metricsFrom",
    "/spec/networkPolicy/egressTo",
    "/spec/gateway/podTemplate/serviceAccountAnnotations",
    "/spec/gateway/podTemplate/env",
    "/spec/gateway/podTemplate/volumes",
    "/spec/gateway/podTemplate/volumeMounts",
    "/spec/gateway/podTemplate/dnsPolicy",
    "/spec/gateway/podTemplate/dnsConfig",
    "/spec/gateway/podTemplate/hostAliases",
    "/spec/gateway/podTemplate/securityContext",
    "/spec/gateway/podTemplate/containerSecurityContext",
];

/// The sample of today without the fields that it did not have then.
fn sample_without_later(name: &str) -> TracePipeline {
    let mut object = serde_json::to_value(sample(name)).unwrap();
    for pointer in LATER {
        let (inside, field) = pointer.rsplit_once('/').unwrap();
        if let Some(Value::Object(fields)) = object.pointer_mut(inside) {
            fields.remove(field);
        }
    }
    serde_json::from_value(object).unwrap()
}

/// The samples say the same in today's form, so no gateway restarts when the form is changed.
#[test]
fn a_stored_object_has_the_objects_of_its_sample_of_today() {
    for (name, _) in OBJECTS {
        let before: TracePipeline = serde_json::from_value(stored(name)).unwrap();
        let after = sample_without_later(name);
        let of = |pipeline: &TracePipeline| yaml(&planned(pipeline, &observed(pipeline, 12)));
        assert!(of(&before) == of(&after), "{name}");
    }
}

/// A change that failed is remembered by this hash: with another one, an operator would try it again when it is upgraded.
#[test]
fn a_stored_spec_is_known_by_the_hash_that_it_had() {
    for (name, hash) in OBJECTS {
        let mut pipeline: TracePipeline = serde_json::from_value(stored(name)).unwrap();
        let rollout = RolloutStatus {
            state: RolloutState::RolledBack,
            revision: "r".into(),
            proved: None,
            since: Time(Timestamp::UNIX_EPOCH),
            healthy_since: None,
            message: String::new(),
            failed_spec: Some(hash.into()),
            held_since: None,
        };
        pipeline.status =
            Some(TracePipelineStatus { rollout: Some(rollout), ..TracePipelineStatus::default() });
        assert_eq!(spec_known_as(&pipeline, None), hash, "{name}");
        pipeline.spec.partitions_per_replica += 1;
        assert_ne!(spec_known_as(&pipeline, None), hash, "{name}");
    }
}
