//! Events about queue volumes: they grow or cannot grow, and volumes without a gateway are drained or not.
//! Pure: two statuses in, events out.

use super::events::happened;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::{Event, EventType};
use sluice_crds::{
    TracePipelineStatus,
    status::{condition, reason},
};

/// Conditions of volumes, each with the reason of the event when it becomes `True` again.
const CONDITIONS: [(&str, &str); 2] =
    [(condition::VOLUMES_RESIZED, "VolumesResized"), (condition::VOLUMES_DRAINED, "VolumesDrained")];

/// Events for the changes between two statuses. A condition that is `True` from the beginning is no event.
pub fn volume_events(before: &TracePipelineStatus, after: &TracePipelineStatus) -> Vec<Event> {
    let changed = CONDITIONS.into_iter().filter_map(|(kind, when_true)| {
        let now = after.condition(kind)?;
        let was = before.condition(kind).map(|was| (was.status.as_str(), was.reason.as_str()));
        let is_news = was.map_or(now.status != "True", |was| was != (&now.status, &now.reason));
        is_news.then(|| event(now, when_true))
    });
    changed.collect()
}

fn event(now: &Condition, when_true: &str) -> Event {
    let (what, gravity) = match now.reason.as_str() {
        _ if now.status == "True" => (when_true, EventType::Normal),
        reason::RESIZING => ("VolumesResizing", EventType::Normal),
        reason::REPLACING => ("VolumesReplacing", EventType::Normal),
        reason::DRAINING => ("VolumesDraining", EventType::Normal),
        reason::FILE_SYSTEM_RESIZE_PENDING => (reason::FILE_SYSTEM_RESIZE_PENDING, EventType::Normal),
        other => (other, EventType::Warning),
    };
    happened(what, gravity, &now.message, "Store")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    fn status(kind: &str, status: &str, reason: &str) -> TracePipelineStatus {
        let condition = Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: "m".to_owned(),
            observed_generation: Some(1),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        };
        TracePipelineStatus { conditions: vec![condition], ..TracePipelineStatus::default() }
    }

    #[test]
    fn events_tell_of_volumes_that_grow_and_of_those_that_are_left_behind() {
        use condition::{VOLUMES_DRAINED, VOLUMES_RESIZED};
        let none = TracePipelineStatus::default();
        let (well, grows) =
            (status(VOLUMES_RESIZED, "True", "UpToDate"), status(VOLUMES_RESIZED, "False", "Resizing"));
        let fixed = status(VOLUMES_RESIZED, "False", "NotExpandable");
        let (empty, left) =
            (status(VOLUMES_DRAINED, "True", "Ok"), status(VOLUMES_DRAINED, "False", "Draining"));
        let failed = status(VOLUMES_DRAINED, "False", "DrainFailed");
        let replaced = status(VOLUMES_RESIZED, "False", "Replacing");
        for (before, after, expected) in [
            (&none, &well, None),
            (&well, &replaced, Some(("VolumesReplacing", EventType::Normal))),
            (&well, &well, None),
            (&well, &grows, Some(("VolumesResizing", EventType::Normal))),
            (&grows, &well, Some(("VolumesResized", EventType::Normal))),
            (&none, &fixed, Some(("NotExpandable", EventType::Warning))),
            (&empty, &left, Some(("VolumesDraining", EventType::Normal))),
            (&left, &failed, Some(("DrainFailed", EventType::Warning))),
            (&failed, &empty, Some(("VolumesDrained", EventType::Normal))),
        ] {
            let events = volume_events(before, after);
            let found = events.first().map(|event| (event.reason.as_str(), event.type_));
            assert_eq!(found, expected);
        }
    }
}
