//! Counts are said in the words of their number, and what Kubernetes deletes is not said to be replaced.

use crate::statuses::{condition, running, said, summary};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use sluice_plan::{Observed, ReconcileFailure, WorkloadSeen};

/// A pipeline of one gateway, with this status of its StatefulSet.
fn alone(status: &Value, pods: &[Pod]) -> (sluice_crds::TracePipeline, Observed) {
    let mut all = json!({"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1});
    all.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    let (mut pipeline, facts) = running(&all, pods);
    pipeline.spec.replicas = Some(1);
    let workload = facts.workload.map(|seen| WorkloadSeen { wanted: 1, ..seen });
    (pipeline, Observed { workload, ..facts })
}

fn ready(status: &Value, pods: &[Pod]) -> String {
    let (pipeline, facts) = alone(status, pods);
    condition(&said(&pipeline, &facts), "Ready").message.clone()
}

#[test]
fn one_is_one() {
    for (status, words) in [
        (json!({}), "1 gateway reads 12 partitions"),
        (json!({"replicas": 0, "readyReplicas": 0, "updatedReplicas": 0}), "0 of 1 gateway exists"),
        (json!({"replicas": 6}), "6 gateways exist, and 1 is wanted"),
        (json!({"readyReplicas": 0}), "0 of 1 gateway is ready"),
        (json!({"updatedReplicas": 0, "updateRevision": "b"}), "0 of 1 gateway is replaced"),
    ] {
        assert_eq!(ready(&status, &[]), words, "{status}");
    }
    let (pipeline, facts) = alone(&json!({}), &[]);
    assert_eq!(condition(&said(&pipeline, &facts), "SourceReachable").message, "12 partitions in 1 topic");
}

#[test]
fn pods_that_are_deleted_with_their_namespace_are_not_said_to_be_replaced() {
    let going: Pod = serde_json::from_value(json!({
        "metadata": {"name": "demo-gateway-0", "deletionTimestamp": "2026-01-01T00:01:00Z"},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    }))
    .unwrap();
    let words = ready(&json!({"readyReplicas": 0, "updatedReplicas": 0}), &[going]);
    assert_eq!(words, "0 of 1 gateway is ready; not ready: demo-gateway-0 (is being deleted)");
}

#[test]
fn a_pipeline_whose_namespace_is_deleted_is_on_its_way_out() {
    let (pipeline, facts) = alone(&json!({}), &[]);
    let message = "the namespace is being deleted".to_owned();
    let reconcile_failure = Some(ReconcileFailure { reason: "Deleting", message, stays: false });
    let status = said(&pipeline, &Observed { reconcile_failure, ..facts });
    assert_eq!(summary(&status), ["False/Deleting", "True/Draining", "False/Ok"]);
}
