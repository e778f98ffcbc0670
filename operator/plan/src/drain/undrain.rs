//! Gateways that drain although the operator did not ask them to. Any client that reaches a gateway's control port can make it leave its
//! consumer group, and it would never come back. So the operator resumes such a gateway.
//!
//! ```text
//!  runs, not ready, not asked ---> says that it drains ---> still so by the pod itself, and says so again ---> POST /resume, event
//!        suspects()                     drains()                  suspects()
//! ```
//!
//! Three kinds of gateways may drain: those that the operator asked to, by the status or by the one about to be written; those whose pod is
//! held; and those that a person drains: `kubectl sluice drain` marks the pod before it asks the gateway. Pure: no clock and no client.

use crate::{
    ground::pods::{is_ready, is_running, ordinal},
    names::{KEPT_OUT, REPLACES_VOLUME},
};
use k8s_openapi::api::core::v1::Pod;
use sluice_crds::{DrainStatus, ReplacementStatus};
use std::collections::BTreeMap;

/// Who is meant to leave, or may be on the way out or back.
#[derive(Debug, Clone, Copy)]
pub struct Leaving<'a> {
    /// Gateways that leave, by the status and by the status about to be written.
    pub drains: [Option<&'a DrainStatus>; 2],
    /// The gateway that gets a new volume, by the status and by the status about to be written.
    pub replacing: [Option<&'a ReplacementStatus>; 2],
    /// Gateways that there are to be: those above are taken away.
    pub replicas: u32,
}

impl Leaving<'_> {
    fn has(&self, ordinal: u32) -> bool {
        let drains = self.drains.iter().flatten();
        let replacing = self.replacing.iter().flatten();
        ordinal >= self.replicas
            || drains.into_iter().any(|drain| (drain.target..drain.from).contains(&ordinal))
            || replacing.into_iter().any(|replacing| replacing.gateway == ordinal)
    }
}

/// What one gateway reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    Drains,
    /// That it does not: it has another reason not to be ready.
    TakesPart,
    /// An older gateway says only what it holds. It may drain, and to be told to take part does nothing to one that does.
    Nothing,
    /// It did not answer in time.
    Silent,
}

/// Gateways that may drain without anybody having asked for it: they run and are not ready, as one that drains is.
pub fn suspects<'a>(pods: impl IntoIterator<Item = &'a Pod>, leaving: &Leaving<'_>) -> Vec<u32> {
    let is_suspect = |pod: &&Pod| is_running(pod) && !is_ready(pod) && !is_kept_out(pod) && !is_held(pod);
    let ordinals = pods.into_iter().filter(is_suspect).filter_map(ordinal);
    ordinals.filter(|ordinal| !leaving.has(*ordinal)).collect()
}

/// Those of them that the operator resumes.
pub fn drains(said: &BTreeMap<u32, Says>) -> impl Iterator<Item = (u32, Says)> {
    let said = said.iter().map(|(ordinal, says)| (*ordinal, *says));
    said.filter(|(_, says)| matches!(says, Says::Drains | Says::Nothing))
}

/// What a person reads of those that take part again, all in one.
pub fn words(taken_back: &[u32]) -> String {
    let named = taken_back.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let gateways = if taken_back.len() == 1 { "gateway" } else { "gateways" };
    format!(
        "{gateways} {named} drained, which the operator had not requested; it told them to read again. To keep a gateway drained, use \
         `kubectl sluice drain`, which marks its pod ({KEPT_OUT})"
    )
}

/// What a person reads of a gateway that another person keeps out, behind the name of its pod.
pub fn kept_out_words(pod: &str) -> String {
    format!(
        "a person drained it and keeps it out ({KEPT_OUT}); kubectl sluice drain {pod} --resume lets it read again"
    )
}

/// Whether a person keeps the gateway of this pod out of its consumer group.
pub fn is_kept_out(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(KEPT_OUT))
}

/// What it put on its volume would count as proved empty.
fn is_held(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|one| one == REPLACES_VOLUME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::moment::Moment;
    use serde_json::{Value, json};
    use sluice_crds::DrainState;

    const NOBODY: Leaving<'_> = Leaving { drains: [None, None], replacing: [None, None], replicas: 4 };

    fn pod(ordinal: u32, ready: &str, metadata: &Value) -> Pod {
        let mut pod = json!({
            "metadata": metadata,
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "containerStatuses": [{"name": "gateway", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                    "state": {"running": {}}}],
            },
        });
        pod["metadata"]["name"] = format!("a-gateway-{ordinal}").into();
        serde_json::from_value(pod).unwrap()
    }

    fn unready() -> Vec<Pod> {
        (0..4).map(|ordinal| pod(ordinal, "False", &json!({}))).collect()
    }

    fn drain(state: DrainState, target: u32, from: u32) -> DrainStatus {
        DrainStatus { state, target, from, since: Moment(0).time(), reason: String::new(), outcome: None }
    }

    fn replacing(gateway: u32) -> ReplacementStatus {
        let written =
            json!({"gateway": gateway, "state": "Draining", "since": "2026-01-01T00:00:00Z", "reason": ""});
        serde_json::from_value(written).unwrap()
    }

    #[test]
    fn who_runs_and_is_not_ready_may_drain_unless_a_person_or_the_operator_keeps_it_out() {
        for (ready, metadata, is_suspect) in [
            ("False", json!({}), true),
            ("False", json!({"annotations": {"a": "b"}, "finalizers": ["a"]}), true),
            ("True", json!({}), false),
            ("False", json!({"annotations": {KEPT_OUT: "true"}}), false),
            ("False", json!({"finalizers": [REPLACES_VOLUME]}), false),
            ("False", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), false),
        ] {
            let found = suspects([&pod(2, ready, &metadata)], &NOBODY);
            assert_eq!(found, if is_suspect { vec![2] } else { vec![] }, "{ready} {metadata}");
        }
        let mut ended = pod(2, "False", &json!({}));
        ended.status.as_mut().unwrap().container_statuses = None;
        assert!(suspects([&ended], &NOBODY).is_empty(), "nobody is there to be told");
    }

    #[test]
    fn who_is_meant_to_leave_is_no_suspect_whether_that_is_written_or_about_to_be() {
        let pods = unready();
        let of = |leaving: Leaving<'_>| suspects(&pods, &leaving);
        assert_eq!(of(NOBODY), [0, 1, 2, 3]);
        assert_eq!(of(Leaving { replicas: 2, ..NOBODY }), [0, 1]);
        for state in [DrainState::Draining, DrainState::Resuming, DrainState::Waiting] {
            let drain = drain(state, 1, 3);
            assert_eq!(of(Leaving { drains: [Some(&drain), None], ..NOBODY }), [0, 3], "{state:?}");
            assert_eq!(of(Leaving { drains: [None, Some(&drain)], ..NOBODY }), [0, 3], "{state:?}");
        }
        let replacing = replacing(3);
        assert_eq!(of(Leaving { replacing: [Some(&replacing), None], ..NOBODY }), [0, 1, 2]);
        assert_eq!(of(Leaving { replacing: [None, Some(&replacing)], ..NOBODY }), [0, 1, 2]);
    }

    #[test]
    fn who_says_that_it_drains_is_taken_back_and_so_is_an_older_gateway_that_cannot_say_it() {
        let said = [(0, Says::Drains), (1, Says::TakesPart), (2, Says::Nothing), (3, Says::Silent)].into();
        assert_eq!(drains(&said).collect::<Vec<_>>(), [(0, Says::Drains), (2, Says::Nothing)]);
        assert!(
            words(&[3]).starts_with("gateway 3 drained")
                && words(&[0, 3]).starts_with("gateways 0, 3 drained")
        );
    }
}
