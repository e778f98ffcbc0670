//! What has become of the pod of an audit. Pure.

use super::pod::AUDIT;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, Pod, PodStatus};

/// Exit codes from here on are those of signals: the program ended none of these ways by itself.
const KILLED_CODES_FROM: i32 = 128;

/// The state of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The program has not started yet. `words` say why, as far as the pod says it; `is_explained` whether they say more than the state.
    Waits { words: String, is_explained: bool },
    /// The program runs.
    Runs,
    /// The program ran to its end, with this exit code.
    Ended(u8),
    /// The program did not start, or something ended it.
    Killed(String),
}

impl State {
    pub(super) fn of(pod: &Pod) -> Self {
        let nothing = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&nothing);
        // By name: a webhook may have added containers, such as those of a service mesh.
        let container = status.container_statuses.iter().flatten().find(|one| one.name == AUDIT);
        let container = container.and_then(|one| one.state.as_ref());
        let ended = container.and_then(|state| state.terminated.as_ref()).map(Self::ended);
        // Before the reason of the pod: an added container may keep the pod running until its deadline.
        if let Some(Self::Ended(code)) = ended {
            return Self::Ended(code);
        }
        // The kubelet ends a pod that takes too long, or for which its node has no room, and says so of the pod.
        let reason = status.reason.as_deref().filter(|_| status.phase.as_deref() == Some("Failed"));
        if let Some(reason) = reason {
            return Self::Killed(said(reason, status.message.as_deref()));
        }
        if let Some(killed) = ended {
            return killed;
        }
        match container {
            _ if pod.metadata.deletion_timestamp.is_some() => Self::Killed("the pod is being deleted".into()),
            _ if status.phase.as_deref() == Some("Failed") => Self::Killed("the pod has failed".into()),
            Some(ContainerState { running: Some(_), .. }) => Self::Runs,
            Some(ContainerState { waiting: Some(waiting), .. }) => {
                let reason = waiting.reason.as_deref().unwrap_or("it waits for its container");
                let words = said(reason, waiting.message.as_deref());
                Self::Waits { words, is_explained: waiting.message.is_some() }
            }
            _ => Self::unscheduled(status),
        }
    }

    fn ended(ended: &ContainerStateTerminated) -> Self {
        let reason = ended.reason.as_deref().filter(|reason| !["Completed", "Error"].contains(reason));
        match (reason, u8::try_from(ended.exit_code)) {
            (None, Ok(code)) if ended.exit_code < KILLED_CODES_FROM => Self::Ended(code),
            (reason, _) => {
                let words = reason.map_or_else(|| format!("exit code {}", ended.exit_code), str::to_owned);
                Self::Killed(said(&words, ended.message.as_deref()))
            }
        }
    }

    fn unscheduled(status: &PodStatus) -> Self {
        let conditions = status.conditions.iter().flatten();
        let mut refused = conditions.filter(|one| one.type_ == "PodScheduled" && one.status == "False");
        let refused = refused.find_map(|one| Some(said(one.reason.as_deref()?, one.message.as_deref())));
        let is_explained = refused.is_some();
        Self::Waits { words: refused.unwrap_or_else(|| "it waits for a node".into()), is_explained }
    }
}

fn said(reason: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(status: &Value) -> State {
        State::of(&serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap())
    }

    fn container(state: &Value) -> State {
        of(
            &json!({"phase": "Pending", "containerStatuses": [{"name": "audit", "image": "i", "imageID": "i", "ready": false,
            "restartCount": 0, "state": state}]}),
        )
    }

    #[test]
    fn a_pod_that_waits_says_for_what() {
        let unschedulable = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient memory."}]});
        let image =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"a\""}});
        for (state, expected, explained) in [
            (of(&json!({})), "it waits for a node", false),
            (of(&unschedulable), "Unschedulable: 0/3 nodes are available: 3 Insufficient memory.", true),
            (container(&image), "ImagePullBackOff: Back-off pulling image \"a\"", true),
            (container(&json!({"waiting": {"reason": "ContainerCreating"}})), "ContainerCreating", false),
        ] {
            assert_eq!(state, State::Waits { words: expected.into(), is_explained: explained });
        }
    }

    #[test]
    fn the_exit_code_is_the_programs_only_if_the_program_ended() {
        let ended = |code: i32, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
        for (state, expected) in [
            (container(&json!({"running": {}})), State::Runs),
            (container(&ended(0, "Completed")), State::Ended(0)),
            (container(&ended(65, "Error")), State::Ended(65)),
            (container(&ended(137, "OOMKilled")), State::Killed("OOMKilled".into())),
            (container(&ended(137, "Error")), State::Killed("exit code 137".into())),
        ] {
            assert_eq!(state, expected);
        }
        let mut late =
            json!({"phase": "Failed", "reason": "DeadlineExceeded", "message": "Pod was active too long"});
        late["containerStatuses"] = json!([{"name": "audit", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}]);
        assert_eq!(of(&late), State::Killed("DeadlineExceeded: Pod was active too long".into()));
        let refused = json!({"phase": "Failed", "reason": "OutOfmemory", "message": "Node has no room"});
        assert_eq!(of(&refused), State::Killed("OutOfmemory: Node has no room".into()));
    }

    #[test]
    fn the_state_is_that_of_the_audits_container() {
        let beside = |sidecar: &Value, audit: &Value| {
            let containers = [("istio-proxy", sidecar), (AUDIT, audit)].map(|(name, state)| {
                json!({"name": name, "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
                    "state": state})
            });
            json!({"phase": "Running", "containerStatuses": containers})
        };
        let (running, done) =
            (json!({"running": {}}), json!({"terminated": {"exitCode": 0, "reason": "Completed"}}));
        let found = json!({"terminated": {"exitCode": 65, "reason": "Error"}});
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        let waits = State::Waits { words: "ContainerCreating".into(), is_explained: false };
        assert_eq!(of(&beside(&running, &creating)), waits);
        assert_eq!(of(&beside(&done, &running)), State::Runs);
        assert_eq!(of(&beside(&running, &found)), State::Ended(65));
        // The sidecar did not end, so the kubelet ended the pod, after the audit.
        let mut late = beside(&json!({"terminated": {"exitCode": 137, "reason": "Error"}}), &done);
        late["phase"] = "Failed".into();
        late["reason"] = "DeadlineExceeded".into();
        assert_eq!(of(&late), State::Ended(0));
    }

    #[test]
    fn a_pod_that_somebody_deletes_is_not_waited_for() {
        let pod = json!({"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Running"}});
        assert_eq!(
            State::of(&serde_json::from_value(pod).unwrap()),
            State::Killed("the pod is being deleted".into())
        );
    }
}
