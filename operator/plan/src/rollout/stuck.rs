//! Pods stuck on an obsolete revision, neither the newest nor the one before, which the StatefulSet controller does not replace, or not
//! before others are ready (kubernetes#67250). The operator deletes such a pod, and it comes back with a current revision.

use crate::{
    observed::{GatewaySeen, WorkloadSeen},
    rollout::judgement::seconds_between,
};
use k8s_openapi::jiff::Timestamp;
use sluice_crds::RolloutStatus;

/// A pod that is not ready and says no reason has this many seconds to become so: twice the longest start that the probes allow.
const START_SECONDS: i64 = 120;

/// The pod to delete now; one at a time, and none while another one ends. `is_draining` tells that gateways were asked to leave, which
/// are not ready either.
pub fn stuck<'a>(
    now: Timestamp,
    rollout: &RolloutStatus,
    workload: &'a WorkloadSeen,
    is_draining: bool,
) -> Option<&'a GatewaySeen> {
    if !is_known(rollout, workload) || is_draining || workload.gateways.iter().any(|one| one.is_leaving) {
        return None;
    }
    workload.gateways.iter().rev().find(|gateway| is_stuck(now, workload, gateway))
}

/// Whether it is known which revision is the newest: the controller has seen the template, and the status tells of it.
pub(super) fn is_known(rollout: &RolloutStatus, workload: &WorkloadSeen) -> bool {
    let is_told = workload.revision.as_deref() == Some(rollout.revision.as_str())
        || workload.revision == rollout.proved;
    workload.is_observed && workload.update_revision.is_some() && is_told
}

fn is_stuck(now: Timestamp, workload: &WorkloadSeen, gateway: &GatewaySeen) -> bool {
    let is_kept = gateway.ordinal < workload.partition && gateway.revision == workload.current_revision;
    let is_outdated = gateway.revision.is_some() && gateway.revision != workload.update_revision && !is_kept;
    let age_seconds = gateway.created.map_or(0, |made| seconds_between(made, now));
    let is_broken = gateway.trouble.is_some() || age_seconds >= START_SECONDS;
    is_outdated && gateway.ready_since.is_none() && is_broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use sluice_crds::RolloutState;

    fn gateway(ordinal: u32, revision: &str, trouble: Option<&str>) -> GatewaySeen {
        let ready_since = if trouble.is_none() { Some(Timestamp::UNIX_EPOCH) } else { None };
        GatewaySeen {
            ordinal,
            revision: Some(revision.into()),
            created: Some(Timestamp::UNIX_EPOCH),
            ready_since,
            trouble: trouble.map(Into::into),
            ..GatewaySeen::default()
        }
    }

    /// Of `old`, on its way to `new`, which the first gateway alone gets.
    fn workload(gateways: Vec<GatewaySeen>) -> WorkloadSeen {
        WorkloadSeen {
            is_observed: true,
            current_revision: Some("old".into()),
            update_revision: Some("new".into()),
            revision: Some("r".into()),
            partition: 3,
            gateways,
            ..WorkloadSeen::default()
        }
    }

    fn found(workload: &WorkloadSeen, is_draining: bool) -> Option<u32> {
        let rollout = RolloutStatus {
            state: RolloutState::Canary,
            revision: "r".into(),
            proved: None,
            since: Time(Timestamp::UNIX_EPOCH),
            healthy_since: None,
            message: String::new(),
            failed_spec: None,
            held_since: None,
        };
        stuck(Timestamp::UNIX_EPOCH, &rollout, workload, is_draining).map(|gateway| gateway.ordinal)
    }

    #[test]
    fn only_what_is_broken_and_of_no_revision_that_is_meant_is_deleted() {
        let (bad, well) = (Some("CrashLoopBackOff"), None);
        for (gateways, expected) in [
            (vec![gateway(0, "old", well), gateway(1, "broken", bad), gateway(3, "new", bad)], Some(1)),
            (vec![gateway(0, "broken", bad), gateway(1, "broken", bad)], Some(1)),
            (vec![gateway(1, "broken", well)], None),
            (vec![gateway(1, "old", bad)], None),
            (vec![gateway(3, "new", bad)], None),
            // The controller replaces it anyway, but only after those above.
            (vec![gateway(3, "old", bad)], Some(3)),
        ] {
            assert_eq!(found(&workload(gateways.clone()), false), expected, "{gateways:?}");
            assert_eq!(found(&workload(gateways), true), None);
        }
    }

    #[test]
    fn one_at_a_time_and_not_before_the_newest_revision_is_known() {
        let broken = gateway(1, "broken", Some("CrashLoopBackOff"));
        let mut one_ends = workload(vec![broken.clone(), gateway(2, "old", None)]);
        assert_eq!(found(&one_ends, false), Some(1));
        one_ends.gateways[1].is_leaving = true;
        assert_eq!(found(&one_ends, false), None);
        assert_eq!(
            found(&WorkloadSeen { is_observed: false, ..workload(vec![broken.clone()]) }, false),
            None
        );
        let another = Some("another".into());
        assert_eq!(found(&WorkloadSeen { revision: another, ..workload(vec![broken]) }, false), None);
    }
}
