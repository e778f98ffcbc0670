//! The StatefulSet of the gateways and what keeps its pods from being ready.

use crate::{
    ground::pods::number_of,
    names::{FAILED_REVISION, GATEWAY_CONTAINER, PLAN_HASH, REVISION, SOURCE_VERSION},
    observed::{
        GatewaySeen, Termination,
        field_managers::scaled_by_others,
        proved_template::{ProvedTemplate, image_of},
    },
};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{ContainerStatus, Pod, PodCondition, PodStatus},
};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A gateway that is not ready for this many seconds stays so until a person acts, as far as evictions are concerned. Chosen: the longest start
/// that the probes allow takes one minute, and a node that is drained a few.
pub const STAYS_UNREADY_SECONDS: i64 = 600;

/// The StatefulSet and its pods, as observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadSeen {
    /// The plan that was last applied, by the hash of the StatefulSet's spec.
    pub plan_hash: Option<String>,
    /// Whether the StatefulSet controller has seen the newest spec.
    pub is_observed: bool,
    /// `spec.replicas` of the StatefulSet.
    pub wanted: u32,
    /// The field managers that have set that number, if none of ours owns it ([`crate::observed::field_managers::scaled_by_others`]).
    pub scaled_by: Vec<String>,
    /// Pods that exist.
    pub replicas: u32,
    /// Pods that are ready.
    pub ready: u32,
    /// Pods that have not been ready for [`STAYS_UNREADY_SECONDS`].
    pub stay_unready: u32,
    /// Pods of the newest revision.
    pub updated: u32,
    /// The revision that all pods had at last.
    pub current_revision: Option<String>,
    /// The revision that pods are brought to.
    pub update_revision: Option<String>,
    /// Pods that are not ready, with what keeps them from it; by name.
    pub pods: Vec<PodSeen>,
    /// All pods, by ordinal.
    pub gateways: Vec<GatewaySeen>,
    /// The planned pod template that it was last given, by its hash; `None` when an operator made it that did not say so.
    pub revision: Option<String>,
    /// How its gateways reach Kafka, by its hash; `None` when an operator made it that did not say so.
    pub source_version: Option<String>,
    /// The image that its gateways are given.
    pub image: Option<String>,
    /// The revision for a rollback; `None` when none is kept.
    pub proved: Option<ProvedSeen>,
    /// The revision that was rolled back; `None` when the newest was not.
    pub failed: Option<FailedSeen>,
    /// Gateways with a lower ordinal keep the revision before.
    pub partition: u32,
}

/// A revision that failed and was rolled back. It is stored in an annotation of the StatefulSet, by the request that restores the former
/// template. So an operator that crashes after that request does not try the revision again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedSeen {
    /// The hash of its pod template as it was planned.
    pub revision: String,
    /// The spec that it came from: [`crate::rollout::spec_hash`].
    pub spec: String,
    /// What it failed of, for people.
    pub message: String,
}

/// The revision that would be gone back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvedSeen {
    /// The hash of its pod template as it was planned.
    pub revision: String,
    pub image: Option<String>,
    pub config_hash: Option<String>,
}

/// A pod that is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSeen {
    pub name: String,
    /// Why it is not ready, `None` while it is on its way as any new pod.
    pub trouble: Option<String>,
    /// How its gateway ended last, if that is the trouble.
    pub end: Option<Termination>,
    /// Whether its volume keeps it from nodes that might take it.
    pub is_kept_by_volume: bool,
    /// Since when no node takes it, whyever; `None` when one does.
    pub unscheduled_since: Option<Timestamp>,
    /// Set once the pod has a deletion timestamp.
    pub going: Option<GoingSeen>,
    /// Why its gateway takes no part, in its own words; `None` while it does not run, merely starts, drains, or was not asked.
    pub says: Option<String>,
    /// Whether that is not known yet, as after a start of the operator.
    pub is_unheard: bool,
}

/// A pod with a deletion timestamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoingSeen {
    /// When its grace period is over.
    pub until: Timestamp,
    pub node: String,
    /// What keeps it, once all of it has ended: its finalizers.
    pub kept_by: Option<String>,
}

impl GoingSeen {
    fn of(pod: &Pod) -> Option<Self> {
        let until = pod.metadata.deletion_timestamp.as_ref()?.0;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        let finalizers = pod.metadata.finalizers.as_ref().filter(|all| has_ended && !all.is_empty());
        Some(Self { until, node, kept_by: finalizers.map(|all| all.join(", ")) })
    }

    /// Why it is still there at this moment; `None` while it is not overdue.
    fn trouble_at(&self, now: Timestamp) -> Option<String> {
        let Self { until, node, kept_by } = self;
        if !until.checked_add(OVERDUE_AFTER).is_ok_and(|due| now >= due) {
            return None;
        }
        Some(match kept_by {
            Some(finalizers) => format!("has ended, but its finalizers keep it ({finalizers})"),
            None => format!(
                "should have ended by {until}; Kubernetes creates no new pod until the node {node} confirms the end (if that node is \
                 gone for good: kubectl delete node {node})"
            ),
        })
    }
}

/// A pod that has not ended this long after its grace period is reported. Chosen: the kubelet confirms an end within seconds, and
/// Kubernetes reports nothing before that.
const OVERDUE_AFTER: Duration = Duration::from_mins(1);

/// Clauses with which the scheduler says that a volume cannot be had on a node: as of Kubernetes 1.33, before, and of one that is gone
/// itself. It says so in words alone; nothing but words follows from it here.
const VOLUME_CONFLICTS: [&str; 3] = [
    "match PersistentVolume's node affinity",
    "had volume node affinity conflict",
    "bound to non-existent pv(s)",
];

impl WorkloadSeen {
    /// Reads the StatefulSet and its pods.
    pub fn of(workload: &StatefulSet, pods: &[Pod]) -> Self {
        let status = workload.status.clone().unwrap_or_default();
        let annotations = workload.metadata.annotations.as_ref();
        let mut unready: Vec<_> = pods.iter().filter_map(PodSeen::of).collect();
        unready.sort_by(|one, other| one.name.cmp(&other.name));
        let mut gateways: Vec<_> = pods.iter().filter_map(GatewaySeen::of).collect();
        gateways.sort_by_key(|gateway| gateway.ordinal);
        Self {
            plan_hash: annotations.and_then(|all| all.get(PLAN_HASH)).cloned(),
            is_observed: status.observed_generation >= workload.metadata.generation,
            wanted: count(workload.spec.as_ref().and_then(|spec| spec.replicas)),
            scaled_by: scaled_by_others(workload),
            replicas: count(Some(status.replicas)),
            ready: count(status.ready_replicas),
            stay_unready: 0,
            updated: count(status.updated_replicas),
            current_revision: status.current_revision,
            update_revision: status.update_revision,
            pods: unready,
            gateways,
            revision: annotations.and_then(|all| all.get(REVISION)).cloned(),
            source_version: annotations.and_then(|all| all.get(SOURCE_VERSION)).cloned(),
            image: workload.spec.as_ref().and_then(|spec| image_of(&spec.template)),
            proved: ProvedTemplate::kept_by(workload).map(|proved| proved.seen()),
            failed: annotations
                .and_then(|all| all.get(FAILED_REVISION))
                .and_then(|text| serde_json::from_str(text).ok()),
            partition: partition(workload),
        }
    }

    /// Records how many gateways stay unready, as of `now`.
    pub fn count_unready(&mut self, now: Timestamp) {
        let stays = |since: Timestamp| now.as_second() - since.as_second() >= STAYS_UNREADY_SECONDS;
        let staying = self.gateways.iter().filter(|gateway| gateway.unready_since.is_some_and(stays)).count();
        self.stay_unready = u32::try_from(staying).unwrap_or(u32::MAX);
    }

    /// What those that run and are not ready say of it, and which of them were not heard yet, by their ordinals.
    pub fn told_by(&mut self, says: &BTreeMap<u32, String>, unheard: &BTreeSet<u32>) {
        for pod in &mut self.pods {
            let Some(ordinal) = number_of(&pod.name) else { continue };
            (pod.says, pod.is_unheard) = (says.get(&ordinal).cloned(), unheard.contains(&ordinal));
        }
        for gateway in self.gateways.iter_mut().filter(|gateway| gateway.ready_since.is_none()) {
            gateway.says = says.get(&gateway.ordinal).cloned();
            gateway.is_unheard = unheard.contains(&gateway.ordinal);
        }
    }

    /// Whether no pod of an older revision is left, so that what only older ones read may be removed.
    pub fn is_rolled_out(&self) -> bool {
        self.is_observed && self.updated == self.replicas && self.current_revision == self.update_revision
    }
}

fn partition(workload: &StatefulSet) -> u32 {
    let strategy = workload.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    count(strategy.and_then(|strategy| strategy.rolling_update.as_ref()?.partition))
}

impl PodSeen {
    /// `None` when the pod is ready, and is to stay.
    fn of(pod: &Pod) -> Option<Self> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let status = pod.status.clone().unwrap_or_default();
        let is_ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        let unschedulable = unschedulable(&status);
        let message = unschedulable.and_then(|condition| condition.message.as_deref());
        let is_kept_by_volume =
            message.is_some_and(|message| VOLUME_CONFLICTS.iter().any(|clause| message.contains(clause)));
        let unscheduled_since =
            unschedulable.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0);
        // A pod that is being deleted ends as intended, and another takes its place.
        let going = GoingSeen::of(pod);
        let trouble = trouble(&status, GATEWAY_CONTAINER).filter(|_| going.is_none());
        let own = status.container_statuses.iter().flatten().find(|one| one.name == GATEWAY_CONTAINER);
        let end = own.and_then(last_end).filter(|_| trouble.is_some());
        let stays = is_ready && going.is_none();
        (!stays).then_some(Self {
            name,
            trouble,
            end,
            is_kept_by_volume,
            unscheduled_since,
            going,
            says: None,
            is_unheard: false,
        })
    }

    /// Why it is not ready, for people; `None` while it is on its way, or on its way out in time.
    pub(crate) fn trouble_at(&self, now: Timestamp) -> Option<String> {
        match &self.going {
            Some(going) => going.trouble_at(now),
            None => self.trouble.clone().or_else(|| self.says.clone()),
        }
    }
}

fn count(number: Option<i32>) -> u32 {
    // The server never counts below zero.
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

/// The container's last end, also when it runs again.
pub(super) fn last_end(container: &ContainerStatus) -> Option<Termination> {
    let now = container.state.as_ref().and_then(|state| state.terminated.as_ref());
    let before = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    now.or(before).map(Termination::of)
}

/// What keeps a pod from being ready: no node for it, an image that cannot be had, or a container that ends. `container` is the operator's;
/// if nothing keeps that one, another may be the cause, such as an injected sidecar, and is named.
pub(super) fn trouble(status: &PodStatus, container: &str) -> Option<String> {
    if let Some(condition) = unschedulable(status) {
        return Some(joined(condition.reason.as_deref(), condition.message.as_deref()));
    }
    let own = status.container_statuses.iter().flatten().find(|one| one.name == container);
    let statuses = [&status.init_container_statuses, &status.container_statuses];
    let mut others =
        statuses.into_iter().flatten().flatten().filter(|one| one.name != container && !one.ready);
    own.and_then(trouble_of).or_else(|| {
        others.find_map(|other| Some(format!("container {}: {}", other.name, trouble_of(other)?)))
    })
}

fn trouble_of(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    match (last_end(container), reason) {
        (Some(end), reason) => {
            Some(joined(reason, Some(&format!("last exit {}: {}", end.exit_code, end.message))))
        }
        (None, None | Some("ContainerCreating" | "PodInitializing")) => None,
        (None, reason) => Some(joined(reason, waiting.and_then(|waiting| waiting.message.as_deref()))),
    }
}

fn unschedulable(status: &PodStatus) -> Option<&PodCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False")
}

fn joined(reason: Option<&str>, message: Option<&str>) -> String {
    let parts = [reason, message].into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    fn pod(name: &str, status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap()
    }

    fn container(state: &Value, last_state: &Value) -> Value {
        json!({"containerStatuses": [{"name": GATEWAY_CONTAINER, "image": "", "imageID": "", "ready": false,
            "restartCount": 1, "state": state, "lastState": last_state}]})
    }

    #[test]
    fn a_gateway_stays_unready_after_ten_minutes() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let gateway = |since| GatewaySeen { unready_since: since, ..GatewaySeen::default() };
        let gateways = vec![gateway(None), gateway(Some(at(1_000))), gateway(Some(at(1_300)))];
        let mut seen = WorkloadSeen { gateways, ..WorkloadSeen::default() };
        for (now, expected) in [(1_599, 0), (1_600, 1), (1_899, 1), (1_900, 2)] {
            seen.count_unready(at(now));
            assert_eq!(seen.stay_unready, expected, "{now}");
        }
    }

    #[test]
    fn a_ready_pod_is_not_listed() {
        assert_eq!(
            PodSeen::of(&pod("a", &json!({"conditions": [{"type": "Ready", "status": "True"}]}))),
            None
        );
    }

    #[test]
    fn trouble_is_named_and_a_start_is_none() {
        let crash = container(
            &json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}),
            &json!({"terminated": {"exitCode": 64, "message": "memory.limit: too small"}}),
        );
        let pull =
            container(&json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}}), &json!({}));
        let start = container(&json!({"waiting": {"reason": "ContainerCreating"}}), &json!({}));
        let unschedulable = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available"}]});
        for (status, expected) in [
            (&crash, Some("CrashLoopBackOff, last exit 64: memory.limit: too small")),
            (&pull, Some("ErrImagePull, not found")),
            (&start, None),
            (&unschedulable, Some("Unschedulable, 0/1 nodes are available")),
            (&json!({}), None),
        ] {
            assert_eq!(PodSeen::of(&pod("a", status)).unwrap().trouble.as_deref(), expected, "{status}");
        }
    }

    #[test]
    fn a_sidecar_that_keeps_a_pod_from_being_ready_is_named() {
        let named = |name: &str, ready: bool, state: &Value| json!({"name": name, "image": "", "imageID": "", "ready": ready, "restartCount": 1, "state": state, "lastState": {}});
        let (runs, waits) = (json!({"running": {}}), json!({"waiting": {"reason": "ContainerCreating"}}));
        let crashes = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
        let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let gateway = |state| named(GATEWAY_CONTAINER, false, state);
        for (init, containers, expected) in [
            (
                json!([]),
                json!([named("proxy", false, &crashes), gateway(&runs)]),
                Some("container proxy: CrashLoopBackOff, back-off"),
            ),
            (
                json!([named("setup", false, &crashes)]),
                json!([gateway(&waits)]),
                Some("container setup: CrashLoopBackOff, back-off"),
            ),
            // An init container that ended well.
            (json!([named("setup", true, &ended)]), json!([gateway(&runs)]), None),
            (json!([]), json!([named("proxy", false, &waits), gateway(&runs)]), None),
            (
                json!([]),
                json!([named("proxy", false, &crashes), gateway(&crashes)]),
                Some("CrashLoopBackOff, back-off"),
            ),
        ] {
            let status = json!({"initContainerStatuses": init, "containerStatuses": containers});
            assert_eq!(PodSeen::of(&pod("a", &status)).unwrap().trouble.as_deref(), expected, "{status}");
        }
    }

    #[test]
    fn that_a_pod_ends_which_is_told_to_go_is_no_trouble() {
        let ended = container(&json!({"terminated": {"exitCode": 0, "reason": "Completed"}}), &json!({}));
        let mut gone = pod("a", &ended);
        let trouble = |pod: &Pod| PodSeen::of(pod).unwrap().trouble;
        assert_eq!(trouble(&gone).as_deref(), Some("last exit 0: Completed"));
        gone.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(trouble(&gone), None);
    }

    #[test]
    fn a_volume_that_keeps_a_pod_from_nodes_is_told_from_everything_else_that_does() {
        for (words, expected) in [
            (
                "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match PersistentVolume's node affinity.",
                true,
            ),
            ("0/2 nodes are available: 2 node(s) had volume node affinity conflict.", true),
            (
                "0/1 nodes are available: 1 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s).",
                true,
            ),
            ("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.", false),
            ("0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.", false),
        ] {
            let status = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": words}]});
            assert_eq!(PodSeen::of(&pod("a", &status)).unwrap().is_kept_by_volume, expected, "{words}");
        }
    }

    #[test]
    fn a_workload_is_rolled_out_when_the_controller_has_seen_it_and_no_old_pod_is_left() {
        let seen = |generation: i64, updated: i32, current: &str| {
            let status = json!({"observedGeneration": 2, "replicas": 3, "readyReplicas": 3, "updatedReplicas": updated,
                "currentRevision": current, "updateRevision": "b"});
            let workload: StatefulSet = serde_json::from_value(json!({
                "metadata": {"generation": generation, "annotations": {PLAN_HASH: "h"}}, "status": status,
            }))
            .unwrap();
            WorkloadSeen::of(&workload, &[])
        };
        assert_eq!(seen(2, 3, "b").plan_hash.as_deref(), Some("h"));
        assert!(seen(2, 3, "b").is_rolled_out());
        assert!(
            !seen(3, 3, "b").is_rolled_out()
                && !seen(2, 2, "b").is_rolled_out()
                && !seen(2, 3, "a").is_rolled_out()
        );
    }
}
