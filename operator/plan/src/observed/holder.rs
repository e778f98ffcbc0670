//! A gateway's pod, as the replacement of its volume needs it: which container runs in it, and how it ended.

use crate::{
    ground::pods::ordinal,
    names::{COMPONENT, EDGE, GATEWAY_CONTAINER, REPLACES_VOLUME},
};
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    jiff::Timestamp,
};
use std::time::Duration;

/// Kubernetes' word for a container that the kubelet lost sight of: it is unknown what ran, and for how long.
const UNKNOWN: &str = "ContainerStatusUnknown";

/// Kubernetes' word for a pod that was written off because its node is gone: no kubelet has said that it ended.
const WRITTEN_OFF: &str = "DeletionByPodGC";

/// One pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HolderSeen {
    pub name: String,
    /// The very pod.
    pub uid: String,
    /// The gateway's number.
    pub ordinal: u32,
    /// The process that runs in it, by the id of its container: another one after each start.
    pub container: Option<String>,
    /// The process that ended in it last; set once the kubelet has finished with the pod, so that no process runs in it any more. Empty when
    /// the process is not known. Before that, an ended container proves nothing: the kubelet may be about to start the next one.
    pub ended: Option<String>,
    /// For how long its grace period has been over; `None` without a deletion timestamp.
    pub late_for: Option<Duration>,
    /// What it is marked with; `None` when it is not held.
    pub emptied: Option<Emptied>,
}

/// The annotation of a held pod, whose gateway answered a request to drain with "empty".
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Emptied {
    /// The container that answered.
    pub container: String,
    /// The claim that it has, by its uid.
    pub claim_uid: String,
    /// When the drain was requested, by the status. A later request has another time.
    pub since: String,
}

impl Emptied {
    /// As an annotation. None of the parts has a blank in it.
    pub fn text(&self) -> String {
        format!("{} {} {}", self.claim_uid, self.container, self.since)
    }

    /// `None` for what [`Emptied::text`] does not write.
    fn of(text: &str) -> Option<Self> {
        let mut parts = text.split(' ').map(str::to_owned);
        Some(Self { claim_uid: parts.next()?, container: parts.next()?, since: parts.next()? })
    }
}

impl HolderSeen {
    /// Reads a pod; `None` for one that is no gateway's.
    pub fn of(pod: &Pod, now: Timestamp) -> Option<Self> {
        let metadata = &pod.metadata;
        // The random end of its name may have digits only.
        let component = metadata.labels.as_ref().and_then(|labels| labels.get(COMPONENT));
        if component.is_some_and(|component| component == EDGE) {
            return None;
        }
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let container = statuses.into_iter().flatten().find(|one| one.name == GATEWAY_CONTAINER);
        let is_held = metadata.finalizers.iter().flatten().any(|one| one == REPLACES_VOLUME);
        let text = metadata.annotations.as_ref().and_then(|all| all.get(REPLACES_VOLUME));
        // The pod is held, but what it recorded cannot be read. It proves nothing, and the pod is released.
        let emptied = || text.and_then(|text| Emptied::of(text)).unwrap_or_default();
        let late = |at: Timestamp| Duration::try_from(now.duration_since(at)).unwrap_or_default();
        Some(Self {
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            ordinal: ordinal(pod)?,
            container: container.and_then(running),
            ended: container.filter(|_| is_finished(pod)).and_then(ended),
            late_for: metadata.deletion_timestamp.as_ref().map(|at| late(at.0)),
            emptied: is_held.then(emptied),
        })
    }
}

fn running(container: &ContainerStatus) -> Option<String> {
    container.state.as_ref()?.running.as_ref()?;
    container.container_id.clone().filter(|id| !id.is_empty() && !id.contains(' '))
}

/// Whether the kubelet has told the final state of the pod and has given it up: it writes a phase that is an end, and then deletes the
/// pod without any time left, which a finalizer alone survives. Both are also written where the node is gone, which is not meant.
fn is_finished(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let is_over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let is_written_off =
        status.conditions.iter().flatten().any(|condition| condition.reason.as_deref() == Some(WRITTEN_OFF));
    is_over && !is_written_off && pod.metadata.deletion_grace_period_seconds == Some(0)
}

fn ended(container: &ContainerStatus) -> Option<String> {
    let end = container.state.as_ref()?.terminated.as_ref()?;
    let is_known = end.reason.as_deref() != Some(UNKNOWN);
    Some(end.container_id.clone().filter(|_| is_known).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seen(metadata: &Value, state: &Value) -> HolderSeen {
        seen_in(metadata, state, &json!({}))
    }

    fn seen_in(metadata: &Value, state: &Value, status: &Value) -> HolderSeen {
        let mut pod = json!({
            "metadata": {"name": "a-gateway-3", "uid": "p"},
            "status": {"containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": "containerd://c2", "state": state}]},
        });
        for (place, changes) in [("metadata", metadata), ("status", status)] {
            for (key, value) in changes.as_object().unwrap() {
                pod[place][key] = value.clone();
            }
        }
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        HolderSeen::of(&serde_json::from_value(pod).unwrap(), now).unwrap()
    }

    #[test]
    fn the_process_is_known_while_it_runs_and_after_its_end() {
        let running = seen(&json!({}), &json!({"running": {}}));
        assert_eq!((running.container.as_deref(), running.ended), (Some("containerd://c2"), None));
        let end = |reason: &str| json!({"terminated": {"exitCode": 0, "reason": reason, "containerID": "containerd://c2"}});
        let (told, failed) = (json!({"deletionGracePeriodSeconds": 0}), json!({"phase": "Failed"}));
        let ended = seen_in(&told, &end("Completed"), &json!({"phase": "Succeeded"}));
        assert_eq!((ended.container, ended.ended.as_deref()), (None, Some("containerd://c2")));
        assert_eq!(seen_in(&told, &end(UNKNOWN), &failed).ended.as_deref(), Some(""));
        assert_eq!(seen_in(&told, &json!({"waiting": {}}), &failed).ended, None);
    }

    #[test]
    fn a_container_that_ended_is_no_end_before_the_kubelet_has_finished_with_the_pod() {
        let end = json!({"terminated": {"exitCode": 0, "containerID": "containerd://c2"}});
        let written_off = json!([{"type": "DisruptionTarget", "status": "True", "reason": WRITTEN_OFF}]);
        for (grace, status, why) in [
            (json!(0), json!({"phase": "Running"}), "it is about to be started again"),
            (json!(30), json!({"phase": "Failed"}), "the kubelet still has it"),
            (json!(null), json!({"phase": "Failed"}), "nobody has told it to end"),
            (json!(0), json!({"phase": "Failed", "conditions": written_off}), "nobody has seen its end"),
        ] {
            let seen = seen_in(&json!({"deletionGracePeriodSeconds": grace}), &end, &status);
            assert_eq!(seen.ended, None, "{why}");
        }
    }

    #[test]
    fn a_pod_says_what_it_is_held_for_and_how_late_it_is() {
        let emptied =
            Emptied { container: "containerd://c1".into(), claim_uid: "u".into(), since: "then".into() };
        let held = json!({"finalizers": [REPLACES_VOLUME], "annotations": {REPLACES_VOLUME: emptied.text()},
            "deletionTimestamp": "2026-01-01T00:00:20Z"});
        let seen_held = seen(&held, &json!({"running": {}}));
        assert_eq!(seen_held.emptied, Some(emptied));
        assert_eq!(seen_held.late_for, Some(Duration::from_secs(40)));
        let unread = json!({"finalizers": [REPLACES_VOLUME]});
        assert_eq!(seen(&unread, &json!({"running": {}})).emptied, Some(Emptied::default()));
        assert_eq!(seen(&json!({"annotations": held["annotations"]}), &json!({})).emptied, None);
    }
}
