//! Facts about a pod that several decisions need: which gateway it is, whether it is ready, whether it runs.

use crate::names::GATEWAY_CONTAINER;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

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

fn gateway(pod: &Pod) -> Option<&ContainerStatus> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    containers.iter().find(|container| container.name == GATEWAY_CONTAINER)
}
