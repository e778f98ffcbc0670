//! How long the consumer group counts a gateway as a member although its pod does not run.
//!
//! With the classic protocol a gateway is a static member. It does not leave the group when its pod is deleted, so that it gets its
//! partitions back at once when it restarts. Until its session is over ([`SESSION_SECONDS`]) no other gateway reads them. Only a gateway
//! that drains leaves the group, also if it ends before it has drained. One that is killed does not, so all of them are waited for.

use crate::ground::pods::is_running;
use k8s_openapi::{
    api::core::v1::{ContainerState, ContainerStatus, Pod},
    jiff::{SignedDuration, Timestamp},
};
use sluice_gateway_config::SESSION_SECONDS;

/// Whether the group may count a gateway as a member although its pod does not run: it ends or ended, or its pod was made, less than a session
/// ago. A deleted pod may run until its grace period is over.
pub fn may_last(pod: &Pod, now: Timestamp) -> bool {
    if is_running(pod) {
        return false;
    }
    if let Some((asked, over)) = deletion(pod) {
        let is_past = now.duration_since(over) >= session();
        return !is_past && asked.duration_since(now) < session();
    }
    let last = ended(pod).or_else(|| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    last.is_some_and(|last| is_within_session(last, now))
}

/// Whether a gateway runs for less than a session. If it is asked to drain before it has joined the group, it never joins, and the group may
/// still count the one that ran before it.
pub fn has_just_started(pod: &Pod, now: Timestamp) -> bool {
    let running = containers(pod).filter_map(|container| container.state.as_ref()?.running.as_ref());
    running.filter_map(|running| running.started_at.as_ref()).any(|at| is_within_session(at.0, now))
}

/// When a pod was deleted, and when its grace period is over, which is the time in `deletionTimestamp`.
fn deletion(pod: &Pod) -> Option<(Timestamp, Timestamp)> {
    let over = pod.metadata.deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    Some((over.checked_sub(grace).unwrap_or(over), over))
}

/// Whether a session that was alive at `last` may not be over yet. A clock that is ahead by more than a session says nothing.
pub fn is_within_session(last: Timestamp, now: Timestamp) -> bool {
    now.duration_since(last).abs() < session()
}

fn session() -> SignedDuration {
    SignedDuration::from_secs(i64::from(SESSION_SECONDS))
}

/// The states of the gateway's container.
fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.filter(|container| container.name == crate::names::GATEWAY_CONTAINER)
}

/// When the gateway ended last.
fn ended(pod: &Pod) -> Option<Timestamp> {
    let states = containers(pod).flat_map(|container| [&container.state, &container.last_state]).flatten();
    let end = |state: &ContainerState| Some(state.terminated.as_ref()?.finished_at.as_ref()?.0);
    states.filter_map(end).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn lasts(metadata: &Value, container: &Value) -> bool {
        let pod = json!({"metadata": metadata, "status": {"containerStatuses": [container]}});
        may_last(&serde_json::from_value(pod).unwrap(), "2026-01-01T00:10:00Z".parse().unwrap())
    }

    fn container(state: &Value, last_state: &Value) -> Value {
        json!({"name": "gateway", "image": "", "imageID": "", "ready": false, "restartCount": 1,
            "state": state, "lastState": last_state})
    }

    #[test]
    fn a_gateway_may_be_a_member_for_a_session_after_its_end() {
        let made = json!({"name": "a-1", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let ended = |at: &str| json!({"terminated": {"exitCode": 0, "finishedAt": at}});
        let (early, late) = (ended("2026-01-01T00:09:15Z"), ended("2026-01-01T00:09:16Z"));
        let (none, waiting, running) = (json!({}), json!({"waiting": {}}), json!({"running": {}}));
        for (state, last, expected) in [
            (&running, &late, false),
            (&late, &none, true),
            (&early, &none, false),
            (&waiting, &late, true),
            (&waiting, &early, false),
            (&waiting, &none, false),
        ] {
            assert_eq!(lasts(&made, &container(state, last)), expected, "{state} {last}");
        }
    }

    #[test]
    fn a_pod_that_ends_or_was_just_made_stands_for_the_one_before() {
        let waiting = container(&json!({"waiting": {}}), &json!({}));
        let made = |at: &str| json!({"name": "a-1", "creationTimestamp": at});
        assert!(lasts(&made("2026-01-01T00:09:16Z"), &waiting));
        assert!(!lasts(&made("2026-01-01T00:09:15Z"), &waiting));
        let running = container(&json!({"running": {}}), &json!({}));
        let ends = |until: &str| json!({"name": "a-1", "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": until});
        // It has half a minute of grace, and its session begins when it is over at the latest.
        assert!(lasts(&ends("2026-01-01T00:10:30Z"), &running));
        assert!(lasts(&ends("2026-01-01T00:09:16Z"), &running));
        assert!(!lasts(&ends("2026-01-01T00:09:15Z"), &running), "its node does not answer");
        // However long the grace is.
        let graceful = |until: &str, seconds: u64| {
            let mut metadata = ends(until);
            metadata["deletionGracePeriodSeconds"] = seconds.into();
            metadata
        };
        assert!(lasts(&graceful("2026-01-01T00:11:00Z", 60), &running), "it was just deleted");
        assert!(lasts(&graceful("2026-01-01T00:39:00Z", 1_800), &running));
        assert!(!lasts(&graceful("2026-01-01T00:11:45Z", 60), &running), "the clock is wrong");
    }

    #[test]
    fn a_process_that_has_just_started_need_not_have_joined() {
        let started = |at: &str| {
            let state = json!({"running": {"startedAt": at}});
            let pod = json!({"metadata": {"name": "a-1"}, "status": {"containerStatuses": [container(&state, &json!({}))]}});
            has_just_started(&serde_json::from_value(pod).unwrap(), "2026-01-01T00:10:00Z".parse().unwrap())
        };
        assert!(started("2026-01-01T00:09:16Z"));
        assert!(!started("2026-01-01T00:09:15Z"));
    }
}
