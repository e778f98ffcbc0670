//! The spec by its hash: a change that failed is tried again with another spec, and not for another operator.
//!
//! A hash that was written by an earlier operator must stay the hash of the same spec, so these are left out:
//!
//! - the number of replicas, since an autoscaler that writes it tries nothing again;
//! - the edge, which is no part of gateways;
//! - how many gateways may be away, since older operators knew no such field;
//! - references to connections, since what these say is part of the spec that is hashed;
//! - a field that has its default, where an earlier definition had no default for it. Its server did not fill it in, and an object does not
//!   tell whether a person wrote it. If a person did, the earlier hash includes it: [`spec_known_as`] finds that hash.

use crate::{ground::hash, observed::WorkloadSeen};
use sluice_crds::{
    DisruptionBudget, Durability, InsertFormat, Observability, OnZoneLoss, TracePipeline, TracePipelineSpec,
    UpgradeStrategy,
};

/// A field that 0.1.0 had no default for: whether it has its default now, and how to set and unset that.
struct LateDefault {
    is_default: fn(&TracePipelineSpec) -> bool,
    set: fn(&mut TracePipelineSpec, is_written: bool),
}

/// All of them.
static LATE_DEFAULTS: [LateDefault; 6] = [
    LateDefault {
        is_default: |spec| spec.gateway.upgrade_strategy == Some(UpgradeStrategy::default()),
        set: |spec, is_written| spec.gateway.upgrade_strategy = is_written.then(UpgradeStrategy::default),
    },
    LateDefault {
        is_default: |spec| spec.sink.clickhouse.schema.durability == Some(Durability::default()),
        set: |spec, is_written| spec.sink.clickhouse.schema.durability = is_written.then(Durability::default),
    },
    LateDefault {
        is_default: |spec| spec.sink.clickhouse.insert.format == Some(InsertFormat::default()),
        set: |spec, is_written| spec.sink.clickhouse.insert.format = is_written.then(InsertFormat::default),
    },
    LateDefault {
        is_default: |spec| spec.queue.on_zone_loss == Some(OnZoneLoss::default()),
        set: |spec, is_written| spec.queue.on_zone_loss = is_written.then(OnZoneLoss::default),
    },
    LateDefault {
        is_default: |spec| spec.pod_disruption_budget == Some(DisruptionBudget::default()),
        set: |spec, is_written| spec.pod_disruption_budget = is_written.then(DisruptionBudget::default),
    },
    LateDefault {
        is_default: |spec| spec.observability == Some(Observability::default()),
        set: |spec, is_written| spec.observability = is_written.then(Observability::default),
    },
];

/// The hash of a spec.
pub fn spec_hash(pipeline: &TracePipeline) -> String {
    hash::of_object(&without_defaults(pipeline))
}

/// The hash of a spec: the one that stands in the status or at the StatefulSet for a change that failed, if an operator of 0.1.0 would have
/// given it to this spec.
pub fn spec_known_as(pipeline: &TracePipeline, workload: Option<&WorkloadSeen>) -> String {
    let found = spec_hash(pipeline);
    let rollout = pipeline.status.as_ref().and_then(|status| status.rollout.as_ref());
    let written = rollout.and_then(|rollout| rollout.failed_spec.as_ref());
    let kept = workload.and_then(|workload| workload.failed.as_ref()).map(|failed| &failed.spec);
    let known = written.into_iter().chain(kept).find(|known| **known == found || is_earlier(pipeline, known));
    known.cloned().unwrap_or(found)
}

fn without_defaults(pipeline: &TracePipeline) -> TracePipelineSpec {
    let mut spec = pipeline.spec.clone();
    spec.replicas = None;
    spec.edge = None;
    spec.rollout.max_unavailable = None;
    // What it says stands in the spec by now: the same change fails again in either form.
    if let Some(kafka) = &mut spec.source.kafka {
        kafka.connection_ref = None;
    }
    spec.sink.clickhouse.connection_ref = None;
    for field in LATE_DEFAULTS.iter().filter(|field| (field.is_default)(&pipeline.spec)) {
        (field.set)(&mut spec, false);
    }
    spec
}

/// Whether it is the hash of this spec with some of the defaults written out. At most 2^6 are tried, and only where a change has failed.
fn is_earlier(pipeline: &TracePipeline, known: &str) -> bool {
    let spec = without_defaults(pipeline);
    let fields: Vec<_> = LATE_DEFAULTS.iter().filter(|field| (field.is_default)(&pipeline.spec)).collect();
    (1_u32..1 << fields.len()).any(|written| {
        let mut spec = spec.clone();
        for (_, field) in fields.iter().enumerate().filter(|(place, _)| written & (1 << place) != 0) {
            (field.set)(&mut spec, true);
        }
        hash::of_object(&spec) == known
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::FailedSeen;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use serde_json::{Value, json};
    use sluice_crds::{RolloutState, RolloutStatus, TracePipelineStatus};

    fn pipeline(written: &Value) -> TracePipeline {
        let mut object = json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "TracePipeline", "metadata": {"name": "a"},
            "spec": {
                "source": {"kafka": {"bootstrapServers": ["a:9092"], "topics": ["a"]}},
                "sink": {"clickhouse": {"endpoints": ["http://a:8123"]}},
            },
        });
        for (pointer, value) in written.as_object().unwrap() {
            let mut at = &mut object["spec"];
            for field in pointer.split('.') {
                at = &mut at[field];
            }
            *at = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    /// Each field as its default, by a person.
    fn written() -> [(&'static str, Value); 6] {
        [
            ("gateway.upgradeStrategy", json!("Manual")),
            ("sink.clickhouse.schema.durability", json!("Process")),
            ("sink.clickhouse.insert.format", json!("RowBinary")),
            ("queue.onZoneLoss", json!("Wait")),
            ("podDisruptionBudget", json!({})),
            ("observability", json!({})),
        ]
    }

    /// As 0.1.0 read an object: only what stood in it.
    fn earlier(pipeline: &TracePipeline, has: &[usize]) -> String {
        let mut spec = without_defaults(pipeline);
        for place in has {
            (LATE_DEFAULTS[*place].set)(&mut spec, true);
        }
        hash::of_object(&spec)
    }

    fn failed(pipeline: &TracePipeline, hash: &str) -> TracePipeline {
        let rollout = RolloutStatus {
            state: RolloutState::RolledBack,
            revision: "r".into(),
            proved: None,
            since: Time(Timestamp::UNIX_EPOCH),
            healthy_since: None,
            message: String::new(),
            failed_spec: Some(hash.to_owned()),
            held_since: None,
        };
        let status = TracePipelineStatus { rollout: Some(rollout), ..TracePipelineStatus::default() };
        TracePipeline { status: Some(status), ..pipeline.clone() }
    }

    #[test]
    fn a_default_is_no_other_spec_and_another_value_is() {
        let before = spec_hash(&pipeline(&json!({})));
        for (field, value) in written() {
            assert_eq!(spec_hash(&pipeline(&json!({field: value}))), before, "{field}");
        }
        assert_ne!(spec_hash(&pipeline(&json!({"queue.onZoneLoss": "Recreate"}))), before);
        assert_ne!(spec_hash(&pipeline(&json!({"gateway.upgradeStrategy": "Automatic"}))), before);
    }

    #[test]
    fn what_an_earlier_operator_took_back_is_known_whatever_was_written_out() {
        const WRITTEN_OUT: [&[usize]; 5] = [&[], &[0], &[3], &[0, 1, 4], &[0, 1, 2, 3, 4, 5]];
        let all = written();
        for has in WRITTEN_OUT {
            let fields = has.iter().map(|place| (all[*place].0.to_owned(), all[*place].1.clone()));
            let object = pipeline(&Value::Object(fields.collect()));
            let hash = earlier(&object, has);
            assert_eq!(spec_known_as(&failed(&object, &hash), None), hash, "{has:?}");
            let known = FailedSeen { revision: "r".into(), spec: hash.clone(), message: String::new() };
            let workload = WorkloadSeen { failed: Some(known), ..WorkloadSeen::default() };
            assert_eq!(spec_known_as(&object, Some(&workload)), hash, "{has:?}");
        }
    }

    #[test]
    fn another_spec_than_the_one_that_failed_has_its_own_hash() {
        let other = pipeline(&json!({"partitionsPerReplica": 7}));
        let hash = spec_hash(&pipeline(&json!({})));
        assert_eq!(spec_known_as(&failed(&other, &hash), None), spec_hash(&other));
    }
}
