//! The Deployment of the edge and what keeps its pods from being ready.

use crate::{names::EDGE_CONTAINER, observed::workload::trouble};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};

/// The edge's pods, as observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EdgeSeen {
    /// Whether there is a Deployment.
    pub is_made: bool,
    /// Whether the Deployment controller has seen the newest spec.
    pub is_observed: bool,
    /// `spec.replicas` of the Deployment.
    pub wanted: u32,
    /// Pods that are ready.
    pub ready: u32,
    /// Pods of the newest revision.
    pub updated: u32,
    /// Pods that the Deployment counts.
    pub replicas: u32,
    /// Pods that exist, also those that end.
    pub pods: u32,
    /// Pods that are not ready, each with what keeps it from it; by name.
    pub troubles: Vec<(String, String)>,
    /// Why Kubernetes does not create pods, in its words; `None` while it does.
    pub refused: Option<String>,
}

impl EdgeSeen {
    /// Reads the Deployment and its pods; `None` if there is neither.
    pub fn of(workload: Option<&Deployment>, pods: &[Pod]) -> Option<Self> {
        if workload.is_none() && pods.is_empty() {
            return None;
        }
        let number = |number: Option<i32>| number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        let status = workload.and_then(|workload| workload.status.clone()).unwrap_or_default();
        let spec = workload.and_then(|workload| workload.spec.as_ref());
        let mut troubles: Vec<_> = pods.iter().filter_map(trouble_of).collect();
        troubles.sort();
        let failure = status.conditions.iter().flatten();
        let mut failure = failure.filter(|one| one.type_ == "ReplicaFailure" && one.status == "True");
        Some(Self {
            is_made: workload.is_some(),
            is_observed: workload
                .is_some_and(|workload| status.observed_generation >= workload.metadata.generation),
            wanted: number(spec.and_then(|spec| spec.replicas)),
            ready: number(status.ready_replicas),
            updated: number(status.updated_replicas),
            replicas: number(status.replicas),
            pods: u32::try_from(pods.len()).unwrap_or(u32::MAX),
            troubles,
            refused: failure.next().map(|one| one.message.clone().unwrap_or_default()),
        })
    }

    /// Whether no pod of an older revision is left.
    pub fn is_rolled_out(&self) -> bool {
        self.is_observed && self.updated == self.wanted && self.replicas == self.wanted
    }
}

/// What keeps a pod from being ready; `None` while it is ready, on its way, or ends.
fn trouble_of(pod: &Pod) -> Option<(String, String)> {
    let status = pod.status.as_ref()?;
    let is_ready = status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    if is_ready || pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some((pod.metadata.name.clone().unwrap_or_default(), trouble(status, EDGE_CONTAINER)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn there_is_nothing_to_see_without_a_deployment_and_pods() {
        assert_eq!(EdgeSeen::of(None, &[]), None);
        let left = EdgeSeen::of(None, &[Pod::default()]).unwrap();
        assert_eq!((left.is_made, left.pods), (false, 1));
    }

    #[test]
    fn pods_that_cannot_start_are_told_with_the_reason_and_pods_on_their_way_are_not() {
        let workload: Deployment = serde_json::from_value(json!({
            "metadata": {"generation": 2}, "spec": {"replicas": 3, "selector": {}, "template": {}},
            "status": {"observedGeneration": 2, "replicas": 3, "readyReplicas": 1, "updatedReplicas": 3,
                "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}]},
        }))
        .unwrap();
        let pod = |name: &str, reason: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"containerStatuses": [{
                "name": "edge", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": "no such image"}}}]}}))
            .unwrap()
        };
        let pods = [pod("b", "ImagePullBackOff"), pod("a", "ContainerCreating")];
        let seen = EdgeSeen::of(Some(&workload), &pods).unwrap();
        assert_eq!((seen.wanted, seen.ready, seen.pods), (3, 1, 2));
        assert_eq!(seen.troubles, [("b".to_owned(), "ImagePullBackOff, no such image".to_owned())]);
        assert_eq!(seen.refused.as_deref(), Some("exceeded quota"));
        assert!(seen.is_rolled_out());
    }
}
