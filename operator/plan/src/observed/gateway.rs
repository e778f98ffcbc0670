//! One gateway's pod, as a rollout looks at it: which revision it has, how well it is, and how it ended.

use crate::{
    ground::pods::{is_ready, ordinal},
    names::{GATEWAY_CONTAINER, POD_REVISION},
    observed::{
        MemorySeen,
        workload::{last_end, trouble},
    },
};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod, PodCondition},
    jiff::Timestamp,
};

/// One pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewaySeen {
    pub name: String,
    /// Which of the pods that have had this name.
    pub uid: String,
    /// Its version at the API server, which any change of it raises.
    pub version: Option<String>,
    /// The number in its name.
    pub ordinal: u32,
    /// The StatefulSet's revision that it was made from.
    pub revision: Option<String>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Since when it is ready; `None` while it is not.
    pub ready_since: Option<Timestamp>,
    /// Since when it is not ready; `None` while it is.
    pub unready_since: Option<Timestamp>,
    /// Whether it has a deletion timestamp.
    pub is_leaving: bool,
    /// How often its container ended.
    pub ends: u32,
    /// How it ended last.
    pub exit_code: Option<i32>,
    /// Kubernetes' word for what its container waits for.
    pub waiting: Option<String>,
    /// What keeps it from being ready, for people; `None` while it is ready, or on its way as any new pod.
    pub trouble: Option<String>,
    /// Why it takes no part, in its own words; `None` while it is ready, does not run, merely starts, drains, or was not asked.
    pub says: Option<String>,
    /// Whether that is not known yet, as after a start of the operator.
    pub is_unheard: bool,
    pub memory: MemorySeen,
}

impl GatewaySeen {
    /// Reads a pod; `None` for one that is no gateway's.
    pub fn of(pod: &Pod) -> Option<Self> {
        let (metadata, status) = (&pod.metadata, pod.status.clone().unwrap_or_default());
        let container = status.container_statuses.iter().flatten().find(|one| one.name == GATEWAY_CONTAINER);
        let ready = status.conditions.iter().flatten().find(|one| one.type_ == "Ready");
        let made = metadata.creation_timestamp.as_ref().map(|time| time.0);
        // A server that does not say since when: since the pod is there.
        let since = ready.and_then(|ready| ready.last_transition_time.as_ref()).map(|time| time.0).or(made);
        let is_ready = is_ready(pod);
        Some(Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone().unwrap_or_default(),
            version: metadata.resource_version.clone(),
            ordinal: ordinal(pod)?,
            revision: metadata.labels.as_ref().and_then(|labels| labels.get(POD_REVISION)).cloned(),
            created: made,
            ready_since: if is_ready { since.or(Some(Timestamp::UNIX_EPOCH)) } else { None },
            unready_since: if is_ready { None } else { unready_since(pod, ready) },
            is_leaving: metadata.deletion_timestamp.is_some(),
            ends: container.map_or(0, ends),
            exit_code: container.and_then(last_end).map(|end| end.exit_code),
            waiting: container.and_then(waiting),
            trouble: if is_ready { None } else { trouble(&status, GATEWAY_CONTAINER) },
            says: None,
            is_unheard: false,
            memory: MemorySeen::of(pod),
        })
    }
}

/// A deleted pod is not ready from the end of its grace period on, whatever its condition says.
fn unready_since(pod: &Pod, ready: Option<&PodCondition>) -> Option<Timestamp> {
    let metadata = &pod.metadata;
    let since = match ready {
        Some(ready) if ready.status == "False" => ready.last_transition_time.as_ref(),
        Some(_) => metadata.deletion_timestamp.as_ref(),
        None => None,
    };
    since.or(metadata.deletion_timestamp.as_ref()).or(metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

fn waiting(container: &ContainerStatus) -> Option<String> {
    container.state.as_ref()?.waiting.as_ref()?.reason.clone()
}

/// Each restart follows an end, and one end may still wait for its restart.
fn ends(container: &ContainerStatus) -> u32 {
    let has_ended = |state: &Option<_>| {
        let state: Option<&k8s_openapi::api::core::v1::ContainerState> = state.as_ref();
        state.is_some_and(|state| state.terminated.is_some())
    };
    let runs = container.state.as_ref().is_some_and(|state| state.running.is_some());
    let is_down = has_ended(&container.state) || (!runs && has_ended(&container.last_state));
    u32::try_from(container.restart_count).unwrap_or(0).saturating_add(u32::from(is_down))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seen(ready: &str, state: &Value, last_state: &Value) -> GatewaySeen {
        let pod = json!({
            "metadata": {"name": "a-gateway-3", "uid": "u", "labels": {"controller-revision-hash": "a-gateway-b"},
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:01:00Z"}],
                "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 2,
                    "state": state, "lastState": last_state}],
            },
        });
        GatewaySeen::of(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    #[test]
    fn a_pod_is_well_since_its_last_transition() {
        let running = json!({"running": {}});
        let well = seen("True", &running, &json!({}));
        assert_eq!((well.ordinal, well.revision.as_deref()), (3, Some("a-gateway-b")));
        assert_eq!(well.ready_since.unwrap().to_string(), "2026-01-01T00:01:00Z");
        assert_eq!((well.ends, well.exit_code, well.trouble), (2, None, None));
        let ill = seen("False", &running, &json!({}));
        assert_eq!((well.unready_since, ill.ready_since), (None, None));
        assert_eq!(ill.unready_since.unwrap().to_string(), "2026-01-01T00:01:00Z");
    }

    #[test]
    fn a_ready_pod_that_is_told_to_end_stays_ready_until_its_grace_is_over() {
        let pod = json!({
            "metadata": {"name": "a-gateway-3", "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:30Z"},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}]},
        });
        let ending = GatewaySeen::of(&serde_json::from_value(pod).unwrap()).unwrap();
        assert_eq!(ending.unready_since.unwrap().to_string(), "2026-01-02T00:00:30Z");
    }

    #[test]
    fn an_end_that_waits_for_its_restart_counts() {
        let ended = json!({"terminated": {"exitCode": 64, "message": "no"}});
        let back_off = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        for (state, last, ends) in
            [(&json!({"running": {}}), &ended, 2), (&back_off, &ended, 3), (&ended, &ended, 3)]
        {
            let seen = seen("False", state, last);
            assert_eq!((seen.ends, seen.exit_code), (ends, Some(64)), "{state}");
        }
        assert_eq!(seen("False", &back_off, &ended).waiting.as_deref(), Some("CrashLoopBackOff"));
    }
}
