//! Facts about a pod that several decisions need: which gateway it is, whether it is ready, whether it runs.

use crate::{ground::moment::Moment, names::GATEWAY_CONTAINER};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod, PodCondition},
    jiff::{SignedDuration, Timestamp},
};

/// After this time on a node, a pod has its volumes, if they exist. Chosen: longer than a cloud takes to attach a volume.
const MOUNTED_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// The number at the end of a pod's name.
pub fn ordinal(pod: &Pod) -> Option<u32> {
    number_of(pod.metadata.name.as_deref()?)
}

/// The number at the end of a name.
pub(crate) fn number_of(name: &str) -> Option<u32> {
    name.rsplit_once('-')?.1.parse().ok()
}

/// Whether a pod is ready and is to stay so.
pub fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && has_condition(pod, "Ready", "True", None)
}

/// Whether the gateway of a pod runs and is not told to end: what runs may hold something.
pub fn is_running(pod: &Pod) -> bool {
    let runs =
        |container: &ContainerStatus| container.state.as_ref().is_some_and(|state| state.running.is_some());
    pod.metadata.deletion_timestamp.is_none() && gateway(pod).is_some_and(runs)
}

pub(crate) fn has_condition(pod: &Pod, kind: &str, status: &str, reason: Option<&str>) -> bool {
    conditions(pod, kind, status).any(|condition| reason.is_none() || condition.reason.as_deref() == reason)
}

pub(crate) fn conditions<'a>(
    pod: &'a Pod,
    kind: &'a str,
    status: &'a str,
) -> impl Iterator<Item = &'a PodCondition> {
    let all = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.filter(move |condition| condition.type_ == kind && condition.status == status)
}

/// That a pod still has no containers because its volumes are not mounted, and which ones it has. kubelet mounts them first, and says only
/// in an event which one it cannot mount.
pub fn unmounted(pod: &Pod, now: Timestamp) -> Option<String> {
    conditions(pod, "PodReadyToStartContainers", "False").next()?;
    let scheduled = conditions(pod, "PodScheduled", "True").next()?.last_transition_time.as_ref()?.0;
    if pod.metadata.deletion_timestamp.is_some() || now.duration_since(scheduled) < MOUNTED_AFTER {
        return None;
    }
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let needed: Vec<String> = volumes
        .filter_map(|volume| {
            let secret = volume.secret.as_ref().filter(|secret| secret.optional != Some(true));
            let secret = secret.and_then(|secret| Some(format!("Secret {}", secret.secret_name.as_ref()?)));
            let config_map = volume.config_map.as_ref().filter(|map| map.optional != Some(true));
            let config_map = config_map.map(|map| format!("ConfigMap {}", map.name));
            let claim = volume.persistent_volume_claim.as_ref();
            let claim = claim.map(|claim| format!("PersistentVolumeClaim {}", claim.claim_name));
            secret.or(config_map).or(claim)
        })
        .collect();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    Some(format!(
        "not all of its volumes can be mounted ({}): kubectl describe pod {name} says which one is missing",
        needed.join(", ")
    ))
}

/// Since when the process of a gateway has not been ready, by the kubelet's account: since it was last ready, or since it began. `None` while it is
/// ready, and if the kubelet does not say.
pub fn unready_since(pod: &Pod) -> Option<Moment> {
    let unready = conditions(pod, "Ready", "False").next()?.last_transition_time.as_ref()?.0;
    let begun =
        gateway(pod).and_then(|gateway| gateway.state.as_ref()?.running.as_ref()?.started_at.as_ref());
    Some(Moment::of_timestamp(begun.map_or(unready, |begun| begun.0.max(unready))))
}

fn gateway(pod: &Pod) -> Option<&ContainerStatus> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    containers.iter().find(|container| container.name == GATEWAY_CONTAINER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_process_is_not_ready_since_it_was_last_ready_or_since_it_began() {
        let since = |ready: &str, transition: Option<&str>, begun: Option<&str>| {
            let pod = json!({"metadata": {"name": "prod-gateway-0"}, "status": {
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": transition}],
                "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"running": {"startedAt": begun}}}],
            }});
            unready_since(&serde_json::from_value(pod).unwrap())
        };
        let (early, late) = (Some("1970-01-01T00:00:05Z"), Some("1970-01-01T00:00:09Z"));
        assert_eq!(since("False", late, early), Some(Moment(9_000)), "it was ready before");
        assert_eq!(since("False", early, late), Some(Moment(9_000)), "it was started again");
        assert_eq!(since("False", early, None), Some(Moment(5_000)));
        assert_eq!(since("False", None, early), None);
        assert_eq!(since("True", early, early), None);
    }

    #[test]
    fn a_pod_whose_volumes_are_not_mounted_says_so_after_a_minute() {
        let pod = |ready: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "prod-gateway-0"},
                "spec": {"containers": [], "volumes": [
                    {"name": "a", "configMap": {"name": "tools"}},
                    {"name": "b", "secret": {"secretName": "certs"}},
                    {"name": "c", "secret": {"secretName": "extra", "optional": true}},
                    {"name": "d", "persistentVolumeClaim": {"claimName": "queue-0"}},
                    {"name": "e", "emptyDir": {}},
                ]},
                "status": {"conditions": [
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "PodReadyToStartContainers", "status": ready},
                ]},
            }))
            .unwrap()
        };
        let at = |time: &str, ready: &str| unmounted(&pod(ready), time.parse().unwrap());
        assert_eq!(at("2026-01-01T00:00:59Z", "False"), None);
        let said = at("2026-01-01T00:01:00Z", "False").unwrap();
        assert!(said.contains("(ConfigMap tools, Secret certs, PersistentVolumeClaim queue-0)"), "{said}");
        assert!(said.contains("kubectl describe pod prod-gateway-0"), "{said}");
        assert_eq!(at("2026-01-01T00:09:00Z", "True"), None);
    }
}
