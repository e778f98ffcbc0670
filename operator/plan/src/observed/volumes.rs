//! The queue volumes: the claim of each gateway, what the StatefulSet makes new ones from, and the Jobs that drain those that no
//! gateway uses.

use crate::{
    ground::{pods::number_of, quantity},
    names::{CLAIM_UID, DRAIN_CONTAINER, DRAINED, NOT_DELETED, WORKLOAD_VERSION},
    observed::{
        HolderSeen,
        field_managers::scaled_last,
        job::{ContainerEnd, ended, not_started},
    },
};
use k8s_openapi::{
    api::{
        apps::v1::StatefulSet,
        batch::v1::Job,
        core::v1::{PersistentVolumeClaim, PersistentVolumeClaimStatus, Pod},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
    jiff::Timestamp,
};
use sluice_crds::ReplacementStatus;
use std::{collections::BTreeMap, time::Duration};

/// The annotation in which Kubernetes keeps the node that a volume was made for.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// States of a growth that does not go on by itself.
const RESIZE_FAILURES: [&str; 2] = ["ControllerResizeInfeasible", "NodeResizeInfeasible"];
/// Conditions that have what the storage driver said.
const RESIZE_ERRORS: [&str; 2] = ["ControllerResizeError", "NodeResizeError"];

/// All that concerns the volumes of one pipeline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumesSeen {
    /// The StatefulSet's side of it; `None` without a StatefulSet.
    pub template: Option<TemplateSeen>,
    /// The claims, by ordinal.
    pub claims: Vec<ClaimSeen>,
    /// The Jobs that drain, by ordinal.
    pub jobs: Vec<DrainJobSeen>,
    /// Whether a storage class lets volumes grow, as far as that was asked and may be known.
    pub expandable: BTreeMap<String, bool>,
    /// What the API server said when it did not let a volume grow.
    pub refusal: Option<String>,
    /// What the API server said when it did not let a claim be deleted that is to be replaced.
    pub not_replaced: Option<String>,
    /// The gateways' pods, by ordinal.
    pub holders: Vec<HolderSeen>,
    /// The gateway that gets a new volume: as the status says until that is decided anew, then from now on.
    pub replacing: Option<ReplacementStatus>,
    /// Gateways there are pods of while there is no StatefulSet: the highest ordinal and one. They are taken over as they are.
    pub left_alone: Option<u32>,
}

/// What a StatefulSet makes claims from, and what it does with them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateSeen {
    /// Size of new claims, as the StatefulSet writes it; `None` when it makes none.
    pub size: Option<String>,
    /// Storage class of new claims; `None` for the cluster's default.
    pub storage_class: Option<String>,
    /// Whether it keeps the claims of gateways that are scaled away.
    pub keeps_scaled: bool,
    /// Whether it keeps all of them when it is deleted.
    pub keeps_deleted: bool,
    /// Whether it is on its way out.
    pub is_going: bool,
    /// Changes whenever the number of replicas is set, and with the StatefulSet itself: while it is the same one, no gateway beyond that
    /// number had a volume. Of a server that does not note who set the number, it changes with every change of the spec.
    pub version: String,
}

/// The claim of one gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are true or not, each by itself")]
pub struct ClaimSeen {
    pub name: String,
    /// The very claim.
    pub uid: String,
    /// The gateway's number.
    pub ordinal: u32,
    /// Bytes that are asked for.
    pub requested: Option<u64>,
    /// Bytes that the volume has; `None` before there is one.
    pub capacity: Option<u64>,
    pub storage_class: Option<String>,
    /// Whether it has a volume; one that never had holds nothing.
    pub is_bound: bool,
    /// The volume's name.
    pub volume: Option<String>,
    /// The node that the volume was made for; other nodes may reach it too.
    pub selected_node: Option<String>,
    /// Whether the volume has grown and its file system has not.
    pub waits_for_file_system: bool,
    /// What keeps it from growing, as Kubernetes says it; `None` while nothing is known to.
    pub not_grown: Option<String>,
    /// Whether it carries the label that says so.
    pub is_drained: bool,
    /// What the API server said when it did not let it be deleted once it was drained; it is kept then.
    pub not_deleted: Option<String>,
    /// Whether it is on its way out, or goes with a pod that is.
    pub is_going: bool,
    /// Whether it was deleted, and exists only as long as a pod uses it.
    pub is_deleted: bool,
    /// Whether there is a pod of its gateway, in whatever state.
    pub has_gateway: bool,
    /// Whether the StatefulSet is among its owners: Kubernetes deletes it with that.
    pub goes_with_workload: bool,
}

/// A Job that drains the volume of one gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainJobSeen {
    pub name: String,
    /// The gateway's number.
    pub ordinal: u32,
    /// The claim that it was made for.
    pub claim_uid: String,
    /// [`TemplateSeen::version`] when it was made: with another one, a gateway may have used the volume since.
    pub workload_version: String,
    /// How far it is.
    pub state: DrainJobState,
    /// Why its pod does not start, for people; `None` where it does, and once the Job has ended.
    pub not_started: Option<String>,
    /// For how long it has been on its way out; `None` when it is to stay.
    pub going_for: Option<Duration>,
}

/// How far a Job that drains is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DrainJobState {
    /// At work.
    Running,
    /// The volume is empty.
    Succeeded,
    Failed {
        /// How long ago.
        ago: Duration,
        /// What it said, for people.
        message: String,
    },
}

impl TemplateSeen {
    /// Reads the StatefulSet.
    pub fn of(workload: &StatefulSet) -> Self {
        let spec = workload.spec.clone().unwrap_or_default();
        let metadata = &workload.metadata;
        let claims = || spec.volume_claim_templates.iter().flatten();
        let size = claims().find_map(|claim| size(claim, "storage"));
        let storage_class = claims().find_map(|claim| claim.spec.as_ref()?.storage_class_name.clone());
        let retention = spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
        let keeps_deleted = retention.when_deleted.as_deref() != Some("Delete");
        Self {
            size,
            storage_class,
            keeps_scaled: retention.when_scaled.as_deref() != Some("Delete"),
            keeps_deleted,
            is_going: metadata.deletion_timestamp.is_some(),
            version: version(workload),
        }
    }

    /// Whether it throws no claim away, whatever happens to it.
    pub fn keeps_all(&self) -> bool {
        self.keeps_scaled && self.keeps_deleted
    }
}

impl ClaimSeen {
    /// Reads the claim; `None` when its name is not that of a gateway's claim. `prefix` is the name without the number, `pods` are
    /// all gateways'.
    pub fn of(claim: &PersistentVolumeClaim, prefix: &str, pods: &[Pod]) -> Option<Self> {
        let metadata = &claim.metadata;
        let name = metadata.name.clone()?;
        let ordinal = name.strip_prefix(prefix)?;
        let pod = format!("{}{ordinal}", prefix.split_once('-')?.1);
        let status = claim.status.clone().unwrap_or_default();
        let mut owners = metadata.owner_references.iter().flatten();
        let goes_with_pod = owners.clone().any(|owner| owner.kind == "Pod");
        let goes_with_workload = owners.any(|owner| Self::is_workload(owner, prefix));
        let not_grown = not_grown(&status);
        let conditions = status.conditions.iter().flatten();
        Some(Self {
            ordinal: ordinal.parse().ok()?,
            uid: metadata.uid.clone()?,
            requested: size(claim, "storage").as_deref().and_then(quantity::bytes),
            capacity: status.capacity.and_then(|capacity| quantity::bytes(&capacity.get("storage")?.0)),
            storage_class: claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()),
            is_bound: claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some()),
            volume: claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()),
            selected_node: metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE)).cloned(),
            waits_for_file_system: conditions
                .clone()
                .any(|condition| condition.type_ == "FileSystemResizePending" && condition.status == "True"),
            not_grown,
            is_drained: metadata
                .labels
                .iter()
                .flatten()
                .any(|(key, value)| key == DRAINED && value == "true"),
            not_deleted: metadata.annotations.as_ref().and_then(|all| all.get(NOT_DELETED)).cloned(),
            is_going: metadata.deletion_timestamp.is_some() || goes_with_pod,
            is_deleted: metadata.deletion_timestamp.is_some(),
            has_gateway: pods.iter().any(|other| other.metadata.name.as_ref() == Some(&pod)),
            goes_with_workload,
            name,
        })
    }

    /// Whether this owner of a claim is the StatefulSet of the gateways, also one of that name that is gone: a claim goes with either.
    /// `prefix` is as for [`Self::of`].
    pub fn is_workload(owner: &OwnerReference, prefix: &str) -> bool {
        let name = prefix.strip_suffix('-').and_then(|prefix| prefix.split_once('-'));
        owner.kind == "StatefulSet" && name.is_some_and(|(_, name)| owner.name == name)
    }
}

impl DrainJobSeen {
    /// Reads the Job and its pods; `None` when it is no Job that drains.
    pub fn of(job: &Job, pods: &[Pod], now: Timestamp) -> Option<Self> {
        let metadata = &job.metadata;
        let annotation = |key| metadata.annotations.as_ref()?.get(key).cloned();
        let since = |at: Timestamp| Duration::try_from(now.duration_since(at)).unwrap_or_default();
        let end = ContainerEnd::of(pods, DRAIN_CONTAINER);
        let is_done = ended(job, "Complete").is_some() || end.as_ref().is_some_and(ContainerEnd::is_success);
        let state = match (ended(job, "Failed"), end) {
            _ if is_done => DrainJobState::Succeeded,
            (Some(failed), end) => {
                let at = failed.last_transition_time.as_ref().map_or(now, |time| time.0);
                let said = end.map(|end| end.words());
                let message = said.or_else(|| failed.message.clone()).unwrap_or_default();
                DrainJobState::Failed { ago: since(at), message }
            }
            // What else runs in the pod keeps the Job from trying another one, and from failing until its deadline.
            (None, Some(end)) if end.pod_runs => {
                DrainJobState::Failed { ago: since(end.at.unwrap_or(now)), message: end.words() }
            }
            (None, _) => DrainJobState::Running,
        };
        let name = metadata.name.clone()?;
        Some(Self {
            ordinal: number_of(&name)?,
            name,
            claim_uid: annotation(CLAIM_UID)?,
            // The number may have been set again later in the second in which it was set, which the version does not tell: a Job that was
            // made in that second proves nothing.
            workload_version: annotation(WORKLOAD_VERSION)
                .map(|version| if is_made_after(job, &version) { version } else { String::new() })?,
            not_started: not_started(pods, DRAIN_CONTAINER, now).filter(|_| state == DrainJobState::Running),
            state,
            going_for: metadata.deletion_timestamp.as_ref().map(|at| since(at.0)),
        })
    }
}

/// [`TemplateSeen::version`]. It ends with when the number was set, in seconds, or with the generation.
fn version(workload: &StatefulSet) -> String {
    let metadata = &workload.metadata;
    let uid = metadata.uid.as_deref().unwrap_or_default();
    match scaled_last(workload) {
        Some((seconds, who)) => {
            let replicas = workload.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
            format!("{uid}.{replicas}.{who}.{seconds}")
        }
        None => format!("{uid}.{}", metadata.generation.unwrap_or_default()),
    }
}

/// Whether a Job was made later than the second that a version ends with.
fn is_made_after(job: &Job, version: &str) -> bool {
    let seconds = version.rsplit('.').next().and_then(|seconds| seconds.parse().ok());
    let made = job.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
    made.zip(seconds).is_none_or(|(made, seconds): (i64, i64)| made > seconds)
}

/// Why a volume does not grow: a condition has the words of the storage driver; where there is none, the state has to do.
fn not_grown(status: &PersistentVolumeClaimStatus) -> Option<String> {
    let state = status.allocated_resource_statuses.as_ref().and_then(|all| all.get("storage"));
    let state = state.filter(|state| RESIZE_FAILURES.contains(&state.as_str()));
    let mut conditions = status.conditions.iter().flatten();
    let failed = conditions
        .find(|condition| RESIZE_ERRORS.contains(&condition.type_.as_str()) && condition.status == "True");
    let words = failed.map(|condition| {
        let kind = state.unwrap_or(&condition.type_);
        condition.message.as_ref().map_or_else(|| kind.clone(), |message| format!("{kind}: {message}"))
    });
    words.or_else(|| state.cloned())
}

fn size(claim: &PersistentVolumeClaim, of: &str) -> Option<String> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    requests.get(of).map(|quantity| quantity.0.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(name: &str, change: &Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": name, "uid": "u"},
            "spec": {"storageClassName": "fast", "volumeName": "v", "resources": {"requests": {"storage": "2Gi"}}},
            "status": {"capacity": {"storage": "1Gi"}},
        });
        for (pointer, value) in change.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            claim.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    fn seen(name: &str, change: &Value, pods: &[&str]) -> Option<ClaimSeen> {
        let pod = |name: &&str| serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let pods: Vec<Pod> = pods.iter().map(pod).collect();
        ClaimSeen::of(&claim(name, change), "queue-a-gateway-", &pods)
    }

    #[test]
    fn a_claim_is_read_with_its_gateway() {
        let plain = seen("queue-a-gateway-3", &json!({}), &["a-gateway-3"]).unwrap();
        assert_eq!((plain.ordinal, plain.requested, plain.capacity), (3, Some(2 << 30), Some(1 << 30)));
        assert!(plain.has_gateway && plain.is_bound && !plain.is_going && !plain.is_drained);
        assert_eq!((plain.volume.as_deref(), plain.selected_node), (Some("v"), None));
        let placed = json!({"/metadata/annotations": {SELECTED_NODE: "node-b"}});
        let placed = seen("queue-a-gateway-3", &placed, &[]).unwrap();
        assert_eq!(placed.selected_node.as_deref(), Some("node-b"));
        assert!(!seen("queue-a-gateway-3", &json!({}), &["a-gateway-33"]).unwrap().has_gateway);
        for name in ["queue-b-gateway-0", "queue-a-gateway-x", "other"] {
            assert_eq!(seen(name, &json!({}), &[]), None, "{name}");
        }
    }

    /// Each step of a rollout changes the spec. No step gives a volume to a gateway without one.
    #[test]
    fn a_version_changes_with_the_number_of_gateways_and_with_nothing_else() {
        let version = |generation: u32, set: Value| {
            let workload = json!({"metadata": {"uid": "w", "generation": generation, "managedFields": set},
                "spec": {"replicas": 1, "selector": {}, "template": {}}});
            TemplateSeen::of(&serde_json::from_value(workload).unwrap()).version
        };
        let entry = |who: &str, field: &str, time: &str| json!({"manager": who, "time": time, "fieldsV1": {"f:spec": {field: {}}}});
        let set = |time: &str| entry("scaler", "f:replicas", time);
        let template = |time: &str| entry("sluice-operator", "f:template", time);
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        let before = version(1, json!([template(early), set(early)]));
        assert_eq!(before, "w.1.scaler.1767225600");
        assert_eq!(version(2, json!([template(late), set(early)])), before);
        assert_ne!(version(2, json!([template(early), set(late)])), before);
        assert_ne!(version(2, json!([set(early), entry("kubectl", "f:replicas", late)])), before);
        // A server that does not say so.
        assert_eq!([1, 2].map(|generation| version(generation, json!([]))), ["w.1", "w.2"]);

        let proves = |made: &str| {
            let job = json!({"metadata": {"name": "a-drain-1", "creationTimestamp": made,
                "annotations": {CLAIM_UID: "u", WORKLOAD_VERSION: before}}});
            let job = serde_json::from_value(job).unwrap();
            DrainJobSeen::of(&job, &[], Timestamp::UNIX_EPOCH).unwrap().workload_version == before
        };
        assert!(proves(late) && !proves(early), "the number may have been set again in that second");
    }

    #[test]
    fn what_becomes_of_a_claim_is_read_from_it() {
        let of = |change: Value| seen("queue-a-gateway-3", &change, &[]).unwrap();
        let deleted = of(json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}));
        assert!(deleted.is_going && deleted.is_deleted);
        let owner = |kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "a", "uid": "u"}]);
        let with_pod = of(json!({"/metadata/ownerReferences": owner("Pod")}));
        assert!(with_pod.is_going && !with_pod.is_deleted);
        let named =
            |kind: &str, name: &str| json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": "u"}]);
        for (kind, name, expected) in [
            ("StatefulSet", "a-gateway", true),
            ("StatefulSet", "a", false),
            ("Deployment", "a-gateway", false),
        ] {
            let seen = of(json!({"/metadata/ownerReferences": named(kind, name)}));
            assert_eq!((seen.goes_with_workload, seen.is_going), (expected, false), "{kind} {name}");
        }
        assert!(of(json!({"/metadata/labels": {DRAINED: "true"}})).is_drained);
        assert!(!of(json!({"/spec/volumeName": null})).is_bound);
        let refused = of(json!({"/metadata/annotations": {NOT_DELETED: "forbidden"}}));
        assert_eq!(refused.not_deleted.as_deref(), Some("forbidden"));
        let pending = json!([{"type": "FileSystemResizePending", "status": "True"}]);
        let pending = of(json!({"/status/conditions": pending}));
        assert_eq!((pending.waits_for_file_system, pending.not_grown), (true, None));
    }

    #[test]
    fn what_keeps_a_volume_from_growing_is_read_in_the_words_of_kubernetes() {
        let of = |state: &str, conditions: Value| {
            let state = json!({"storage": state});
            let change =
                json!({"/status/allocatedResourceStatuses": state, "/status/conditions": conditions});
            seen("queue-a-gateway-3", &change, &[]).unwrap().not_grown
        };
        let failed = |kind: &str| json!([{"type": kind, "status": "True", "message": "quota is 10Ti"}]);
        for (state, conditions, expected) in [
            ("ControllerResizeInProgress", json!([]), None),
            ("NodeResizePending", json!([{"type": "FileSystemResizePending", "status": "True"}]), None),
            ("ControllerResizeInfeasible", json!([]), Some("ControllerResizeInfeasible")),
            ("NodeResizeInfeasible", failed("NodeResizeError"), Some("NodeResizeInfeasible: quota is 10Ti")),
            (
                "ControllerResizeInProgress",
                failed("ControllerResizeError"),
                Some("ControllerResizeError: quota is 10Ti"),
            ),
        ] {
            assert_eq!(of(state, conditions).as_deref(), expected, "{state}");
        }
    }

    #[test]
    fn a_job_is_read_with_what_its_pod_said() {
        let job = |status: Value| -> Job {
            serde_json::from_value(json!({
                "metadata": {"name": "a-drain-3", "annotations": {CLAIM_UID: "u", WORKLOAD_VERSION: "w.2"}},
                "status": status,
            }))
            .unwrap()
        };
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let of = |status: Value, pods: &[Pod]| DrainJobSeen::of(&job(status), pods, now).unwrap();
        assert_eq!(of(json!({}), &[]).state, DrainJobState::Running);
        let ended = |how: &str| {
            json!({"conditions": [{"type": how, "status": "True", "message": "late",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
        };
        let unschedulable: Pod = serde_json::from_value(json!({"metadata": {"name": "a-drain-3-x"}, "status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu"}]}}))
        .unwrap();
        let stuck = of(json!({}), std::slice::from_ref(&unschedulable));
        assert_eq!(stuck.not_started.as_deref(), Some("a-drain-3-x: Unschedulable, Insufficient cpu"));
        assert_eq!(of(ended("Failed"), &[unschedulable]).not_started, None);
        let done = of(ended("Complete"), &[]);
        assert_eq!((done.ordinal, done.state.clone()), (3, DrainJobState::Succeeded));
        assert_eq!((done.claim_uid.as_str(), done.workload_version.as_str()), ("u", "w.2"));
        let failed = |message: &str| DrainJobState::Failed {
            ago: Duration::from_mins(1),
            message: message.to_owned(),
        };
        assert_eq!(of(ended("Failed"), &[]).state, failed("late"));
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p"}, "status": {"containerStatuses": [{
                "name": "drain", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 69, "message": "no server answers"}},
            }]}}))
            .unwrap();
        assert_eq!(
            of(ended("Failed"), &[pod]).state,
            failed("no server answers (exit code 69; kubectl logs p)")
        );
        // Beside a container that was injected and runs on, its own result counts; what that one says is about something else.
        let beside = |exit_code: i32, phase: &str| -> Pod {
            let container = |name: &str, state: Value| json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            let ended = |code: i32, words: &str| json!({"terminated": {"exitCode": code, "message": words, "finishedAt": "2026-01-01T00:00:00Z"}});
            let other = if phase == "Running" { json!({"running": {}}) } else { ended(1, "mesh") };
            let statuses = [container("mesh", other), container("drain", ended(exit_code, "said"))];
            serde_json::from_value(json!({"status": {"phase": phase, "containerStatuses": statuses}}))
                .unwrap()
        };
        let at_work = json!({"conditions": []});
        assert_eq!(of(at_work.clone(), &[beside(0, "Running")]).state, DrainJobState::Succeeded);
        assert_eq!(of(ended("Failed"), &[beside(0, "Failed")]).state, DrainJobState::Succeeded);
        assert_eq!(
            of(at_work.clone(), &[beside(69, "Running")]).state,
            failed("said (exit code 69; kubectl logs )")
        );
        assert_eq!(
            of(ended("Failed"), &[beside(69, "Failed")]).state,
            failed("said (exit code 69; kubectl logs )")
        );
        assert_eq!(of(at_work, &[beside(69, "Failed")]).state, DrainJobState::Running, "another pod follows");
        let none: Job = serde_json::from_value(json!({"metadata": {"name": "a-schema-3"}})).unwrap();
        assert_eq!(DrainJobSeen::of(&none, &[], now), None);
    }
}
