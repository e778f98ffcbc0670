//! The memory of one gateway, as its pod tells of it: what was asked for, what the node gives, and whether it was too little.

use crate::{ground::quantity, names::GATEWAY_CONTAINER};
use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, ResourceRequirements},
    jiff::Timestamp,
};

/// The kubelet's word for a container that the kernel ended for its memory.
const KILLED_FOR_MEMORY: &str = "OOMKilled";
/// The kubelet's condition of a pod whose new size waits.
const PENDING: &str = "PodResizePending";
/// Its condition of a pod that is being given its new size.
const IN_PROGRESS: &str = "PodResizeInProgress";
/// The longest text of the kubelet that is taken over, in characters.
const MESSAGE_CHARS_MAX: usize = 400;

/// Memory of one gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemorySeen {
    /// The limit in the pod's spec, bytes.
    pub limit_bytes: Option<u64>,
    /// The limit that the node gives, bytes.
    pub given_bytes: Option<u64>,
    /// When the kernel ended the container for its memory, if that is how it ended last.
    pub killed_at: Option<Timestamp>,
    /// What the kubelet says about a new size that it does not give yet.
    pub wait: Option<Wait>,
}

/// Why a pod does not have its new size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// The node has no room now, and tries again.
    Deferred(String),
    /// The node never has that much.
    Infeasible(String),
    /// It is on its way.
    InProgress(String),
}

impl MemorySeen {
    /// Reads a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let spec = containers.into_iter().find(|one: &&Container| one.name == GATEWAY_CONTAINER);
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let status = statuses.into_iter().find(|one: &&ContainerStatus| one.name == GATEWAY_CONTAINER);
        Self {
            limit_bytes: spec.and_then(|spec| limit(spec.resources.as_ref()?)),
            given_bytes: status.and_then(|status| limit(status.resources.as_ref()?)),
            killed_at: status.and_then(killed_at),
            wait: wait(pod),
        }
    }
}

fn limit(resources: &ResourceRequirements) -> Option<u64> {
    quantity::bytes(&resources.limits.as_ref()?.get("memory")?.0)
}

fn killed_at(container: &ContainerStatus) -> Option<Timestamp> {
    let now = container.state.as_ref().and_then(|state| state.terminated.as_ref());
    let before = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let end = now.or(before).filter(|end| end.reason.as_deref() == Some(KILLED_FOR_MEMORY))?;
    end.finished_at.as_ref().map(|time| time.0)
}

fn wait(pod: &Pod) -> Option<Wait> {
    let conditions = || pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = |kind| conditions().find(|one| one.type_ == kind && one.status == "True");
    let said = |message: Option<&str>| message.unwrap_or_default().chars().take(MESSAGE_CHARS_MAX).collect();
    if let Some(pending) = found(PENDING) {
        let message = said(pending.message.as_deref());
        let never = pending.reason.as_deref() == Some("Infeasible");
        return Some(if never { Wait::Infeasible(message) } else { Wait::Deferred(message) });
    }
    found(IN_PROGRESS).map(|progress| Wait::InProgress(said(progress.message.as_deref())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seen(container: &Value, conditions: &Value) -> MemorySeen {
        let mut status =
            json!({"name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 0});
        for (key, value) in container.as_object().unwrap() {
            status[key] = value.clone();
        }
        let pod = json!({
            "spec": {"containers": [
                {"name": "sidecar", "resources": {"limits": {"memory": "1Gi"}}},
                {"name": "gateway", "resources": {"limits": {"memory": "256Mi"}}},
            ]},
            "status": {"containerStatuses": [status], "conditions": conditions},
        });
        MemorySeen::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn limits_are_those_of_the_gateway() {
        let said = seen(&json!({"resources": {"limits": {"memory": "192Mi"}}}), &json!([]));
        assert_eq!((said.limit_bytes, said.given_bytes), (Some(256 << 20), Some(192 << 20)));
        let older = seen(&json!({}), &json!([]));
        assert_eq!((older.given_bytes, older.killed_at, older.wait), (None, None, None));
        assert_eq!(MemorySeen::of(&Pod::default()), MemorySeen::default());
    }

    #[test]
    fn only_the_kernels_kill_counts_and_only_while_it_is_the_last_end() {
        let end = |reason: &str| json!({"terminated": {"exitCode": 137, "reason": reason, "finishedAt": "2026-01-01T00:00:00Z"}});
        for (state, last, expected) in [
            (&end("OOMKilled"), &json!({}), true),
            (&json!({"running": {}}), &end("OOMKilled"), true),
            (&json!({"waiting": {}}), &end("OOMKilled"), true),
            (&end("Error"), &end("OOMKilled"), false),
            (&json!({"running": {}}), &end("Error"), false),
        ] {
            let said = seen(&json!({"state": state, "lastState": last}), &json!([]));
            assert_eq!(said.killed_at.is_some(), expected, "{state} {last}");
        }
    }

    #[test]
    fn the_kubelets_words_are_read() {
        let of = |kind: &str, reason: &str| json!([{"type": kind, "status": "True", "reason": reason, "message": "m"}]);
        for (conditions, expected) in [
            (of("PodResizePending", "Deferred"), Some(Wait::Deferred("m".into()))),
            (of("PodResizePending", "Infeasible"), Some(Wait::Infeasible("m".into()))),
            (of("PodResizeInProgress", ""), Some(Wait::InProgress("m".into()))),
            (of("Ready", ""), None),
        ] {
            assert_eq!(seen(&json!({}), &conditions).wait, expected);
        }
    }
}
