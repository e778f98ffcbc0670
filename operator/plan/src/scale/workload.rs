//! The gateways' workload as a sample: from the `StatefulSet` and the status of its pods.

use super::sample::WorkloadSample;
use crate::{
    ground::{
        moment::Moment,
        pods::{conditions, has_condition, is_ready, ordinal},
    },
    observed::{MemorySeen, WorkloadSeen},
};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;

impl WorkloadSample {
    /// Reads the workload. `staying` is the number of gateways that are not on their way out: the others do nothing any more,
    /// and whether they are needed after all is decided as if they were gone already.
    pub fn of(seen: &WorkloadSeen, pods: &[Pod], staying: u32) -> Self {
        let desired = seen.wanted.min(staying);
        let stays = |pod: &&Pod| ordinal(pod).is_some_and(|ordinal| ordinal < desired);
        let count = |is: fn(&Pod) -> bool| {
            u32::try_from(pods.iter().filter(stays).filter(|pod| is(pod)).count()).unwrap_or(u32::MAX)
        };
        let waiting: BTreeSet<u32> =
            pods.iter().filter(|pod| is_unschedulable(pod)).filter_map(ordinal).collect();
        let last = (0..desired).rev().take_while(|ordinal| waiting.contains(ordinal)).count();
        Self {
            desired,
            ready: count(is_ready),
            unready_since: pods.iter().filter(stays).filter_map(unready_since).collect(),
            unschedulable: count(is_unschedulable),
            unschedulable_last: u32::try_from(last).unwrap_or(u32::MAX),
            rolling: seen.current_revision != seen.update_revision,
            revision: seen.update_revision.clone().unwrap_or_default(),
            killed_at: pods.iter().filter_map(killed_at).max(),
        }
    }
}

fn is_unschedulable(pod: &Pod) -> bool {
    has_condition(pod, "PodScheduled", "False", Some("Unschedulable"))
}

/// Since when a scheduled pod is not ready, as the kubelet or the node controller has written. A pod with a deletion timestamp is not
/// ready from the end of its grace period on, whatever its condition says.
fn unready_since(pod: &Pod) -> Option<(u32, Moment)> {
    if is_unschedulable(pod) {
        return None;
    }
    let unready = conditions(pod, "Ready", "False").next();
    let since = unready.and_then(|condition| condition.last_transition_time.as_ref());
    let since = since.or(pod.metadata.deletion_timestamp.as_ref())?.0.as_millisecond();
    Some((ordinal(pod)?, u64::try_from(since).ok().map(Moment)?))
}

/// When the gateway was killed for its memory, if that is how it ended last.
fn killed_at(pod: &Pod) -> Option<Moment> {
    let at = MemorySeen::of(pod).killed_at?;
    u64::try_from(at.as_millisecond()).ok().map(Moment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::pods::is_running;
    use serde_json::{Value, json};

    fn pod(name: &str, ready: &str, state: &Value, last_state: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 2,
                "state": state, "lastState": last_state}],
        }}))
        .unwrap()
    }

    #[test]
    fn the_newest_kill_for_memory_counts() {
        let running = json!({"running": {}});
        let ended = |reason: &str, second: u32| json!({"terminated": {"exitCode": 137, "reason": reason, "finishedAt": format!("2026-01-01T00:00:{second:02}Z")}});
        let sample = |pods: &[Pod]| WorkloadSample::of(&WorkloadSeen::default(), pods, u32::MAX).killed_at;
        let pods = [
            pod("a-0", "True", &running, &ended("OOMKilled", 7)),
            pod("a-1", "True", &running, &ended("OOMKilled", 9)),
            pod("a-2", "False", &ended("Error", 11), &json!({})),
        ];
        assert_eq!(sample(&pods), Some(Moment(1_767_225_609_000)));
        assert_eq!(sample(&pods[2..]), None);
    }

    #[test]
    fn gateways_on_their_way_out_are_not_counted() {
        let running = json!({"running": {}});
        let pods: Vec<Pod> =
            ["a-0", "a-1", "a-2"].iter().map(|name| pod(name, "True", &running, &json!({}))).collect();
        let seen = WorkloadSeen { wanted: 3, ..WorkloadSeen::default() };
        for (staying, expected) in [(u32::MAX, (3, 3)), (2, (2, 2)), (0, (0, 0))] {
            let sample = WorkloadSample::of(&seen, &pods, staying);
            assert_eq!((sample.desired, sample.ready), expected);
        }
    }

    #[test]
    fn of_pods_that_no_node_takes_those_at_the_end_are_counted_by_themselves() {
        let seen = WorkloadSeen { wanted: 5, ..WorkloadSeen::default() };
        for (waiting, expected) in
            [(vec![], 0), (vec![1], 0), (vec![4], 1), (vec![1, 3, 4], 2), (vec![0, 1, 2, 3, 4], 5)]
        {
            let pods: Vec<Pod> = waiting
                .iter()
                .map(|ordinal| {
                    let condition =
                        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
                    let name = format!("a-gateway-{ordinal}");
                    serde_json::from_value(
                        json!({"metadata": {"name": name}, "status": {"conditions": [condition]}}),
                    )
                    .unwrap()
                })
                .collect();
            let sample = WorkloadSample::of(&seen, &pods, u32::MAX);
            assert_eq!(sample.unschedulable_last, expected, "{waiting:?}");
            assert_eq!(usize::try_from(sample.unschedulable), Ok(waiting.len()));
        }
    }

    #[test]
    fn pods_that_no_node_takes_and_pods_that_end_are_told_apart() {
        let mut waiting = pod("a-1", "False", &json!({}), &json!({}));
        let condition = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
        waiting.status.as_mut().unwrap().conditions = serde_json::from_value(condition).unwrap();
        let mut ending = pod("a-0", "True", &json!({"running": {}}), &json!({}));
        assert!(is_ready(&ending) && is_running(&ending));
        ending.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert!(!is_ready(&ending) && !is_running(&ending));
        let seen = WorkloadSeen { wanted: 2, ..WorkloadSeen::default() };
        let sample = WorkloadSample::of(&seen, &[ending, waiting], u32::MAX);
        assert_eq!((sample.ready, sample.unschedulable, sample.unschedulable_last), (0, 1, 1));
    }

    #[test]
    fn it_is_known_since_when_each_pod_is_not_ready_that_has_a_node_and_is_to_stay() {
        let unready = |name: &str, second: u32, placed: &str| -> Pod {
            let since = format!("2026-01-01T00:00:{second:02}Z");
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": [
                {"type": "PodScheduled", "status": placed, "reason": "Unschedulable"},
                {"type": "Ready", "status": "False", "lastTransitionTime": since},
            ]}}))
            .unwrap()
        };
        let mut gone = unready("a-2", 3, "True");
        gone.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        // Its kubelet hangs, and its node does not seem to.
        let mut hanging = pod("a-5", "True", &json!({"running": {}}), &json!({}));
        hanging.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:09Z")).unwrap());
        let pods = [
            unready("a-0", 7, "True"),
            unready("a-1", 5, "False"),
            gone,
            pod("a-3", "True", &json!({"running": {}}), &json!({})),
            hanging,
            unready("a-6", 1, "True"),
        ];
        let seen = WorkloadSeen { wanted: 7, ..WorkloadSeen::default() };
        let sample = WorkloadSample::of(&seen, &pods, 6);
        let expected = [(0, 7), (2, 3), (5, 9)]
            .map(|(ordinal, second)| (ordinal, Moment(1_767_225_600_000 + second * 1_000)));
        assert_eq!(sample.unready_since, expected.into());
    }
}
