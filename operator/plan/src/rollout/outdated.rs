//! Replaces more than one outdated gateway at a time, if `rollout.maxUnavailable` allows it. The StatefulSet controller replaces one; it
//! replaces more only with the feature gate `MaxUnavailableStatefulSet`.
//!
//! ```text
//!  ordinal    0     1     2     3     4     5     6         with maxUnavailable 4, of seven gateways
//!            old   old   old   old   old   new   new
//!                          ^     ^     ^                    6 is not ready: the controller waits, three more are deleted
//!                    ^     ^     ^     |                    6 is ready: the controller takes 4, three more are deleted
//! ```
//!
//! Job: chooses the pods to delete now. Each comes back with the newest revision, the same volume and the same group membership, like a
//! pod that the controller deletes. Only outdated pods are deleted, and the controller continues in any case. So the rollout ends, also if
//! the operator crashes at any step.
//!
//! Limits: the gateways that were deleted and are not ready again, including the controller's, never exceed `maxUnavailable`. A ready
//! gateway is deleted only while fewer than `maxUnavailable` gateways are away for any reason. An unready one does not wait for other
//! unready ones, because its deletion makes no other gateway unready. Until one gateway is ready with the newest revision, the
//! controller works alone. Pure.

use super::{Unavailable, stuck::is_known};
use crate::observed::{GatewaySeen, WorkloadSeen};
use sluice_crds::{RolloutState, RolloutStatus};

/// The pods to delete now, in this order; `None` while the controller works alone. `is_draining` tells that gateways were asked to leave: no
/// two things are done to gateways at the same time.
pub fn outdated<'a>(
    rollout: &RolloutStatus,
    unavailable: Unavailable,
    workload: &'a WorkloadSeen,
    is_draining: bool,
) -> Option<Vec<&'a GatewaySeen>> {
    let most = unavailable.of(workload.wanted);
    let goes_on = matches!(rollout.state, RolloutState::Rolling | RolloutState::RolledBack);
    let is_alone = most < 2 || !goes_on || is_draining || workload.partition > 0;
    if is_alone || !is_known(rollout, workload) {
        return None;
    }
    let fleet = Fleet::of(workload);
    (!fleet.well.is_empty()).then(|| fleet.due(most))
}

/// The gateways that are to stay and are not told to end.
struct Fleet<'a> {
    /// How many there are to be.
    wanted: usize,
    /// Ordinals of those that are ready with the newest revision.
    well: Vec<u32>,
    /// Those of other revisions, the highest ordinal first.
    outdated: Vec<&'a GatewaySeen>,
}

impl<'a> Fleet<'a> {
    fn of(workload: &'a WorkloadSeen) -> Self {
        let is_meant = |gateway: &&GatewaySeen| gateway.ordinal < workload.wanted && !gateway.is_leaving;
        let (newest, others): (Vec<_>, Vec<_>) = workload
            .gateways
            .iter()
            .rev()
            .filter(is_meant)
            .partition(|gateway| gateway.revision == workload.update_revision);
        Self {
            wanted: size(workload.wanted),
            well: newest.iter().filter(|one| is_ready(one)).map(|one| one.ordinal).collect(),
            outdated: others.into_iter().filter(|one| one.revision.is_some()).collect(),
        }
    }

    fn due(self, most: u32) -> Vec<&'a GatewaySeen> {
        let most = size(most);
        let next = self.outdated.first().filter(|next| self.is_taken_by_the_controller(next));
        let (ready, unready): (Vec<_>, Vec<_>) = self.outdated.iter().partition(|one| is_ready(one));
        // Missing, ending, or not ready yet; and the one that is about to be.
        let begun = self.wanted.saturating_sub(self.well.len() + self.outdated.len());
        let away = begun + unready.len() + usize::from(next.is_some_and(|next| is_ready(next)));
        let begun = begun + usize::from(next.is_some());
        let is_left = |gateway: &&GatewaySeen| next.is_none_or(|next| next.ordinal != gateway.ordinal);
        let unready = unready.into_iter().filter(is_left).take(most.saturating_sub(begun));
        let ready = ready.into_iter().filter(is_left).take(most.saturating_sub(away));
        unready.chain(ready).collect()
    }

    /// Whether all above it are ready with the newest revision: the controller deletes it now, or has done so.
    fn is_taken_by_the_controller(&self, gateway: &GatewaySeen) -> bool {
        let above = self.well.iter().filter(|ordinal| **ordinal > gateway.ordinal).count();
        above + size(gateway.ordinal) + 1 == self.wanted
    }
}

fn is_ready(gateway: &GatewaySeen) -> bool {
    gateway.ready_since.is_some()
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    /// One letter a gateway, from ordinal 0 on: `o`ld, `n`ew, in capitals while it is not ready; `l`eaving, `-` missing.
    fn workload(gateways: &str) -> WorkloadSeen {
        let gateway = |(ordinal, letter): (u32, char)| {
            let revision = if letter.eq_ignore_ascii_case(&'n') { "new" } else { "old" };
            (letter != '-').then(|| GatewaySeen {
                ordinal,
                revision: Some(revision.into()),
                ready_since: letter.is_ascii_lowercase().then_some(Timestamp::UNIX_EPOCH),
                is_leaving: letter == 'l',
                ..GatewaySeen::default()
            })
        };
        WorkloadSeen {
            is_observed: true,
            wanted: u32::try_from(gateways.len()).unwrap(),
            update_revision: Some("new".into()),
            revision: Some("r".into()),
            gateways: (0..).zip(gateways.chars()).filter_map(gateway).collect(),
            ..WorkloadSeen::default()
        }
    }

    fn rollout(state: RolloutState) -> RolloutStatus {
        RolloutStatus {
            state,
            revision: "r".into(),
            proved: None,
            since: Time(Timestamp::UNIX_EPOCH),
            healthy_since: None,
            message: String::new(),
            failed_spec: None,
            held_since: None,
        }
    }

    fn found(most: u32, workload: &WorkloadSeen) -> Option<Vec<u32>> {
        let found = outdated(&rollout(RolloutState::Rolling), Unavailable::Number(most), workload, false);
        found.map(|found| found.into_iter().map(|gateway| gateway.ordinal).collect())
    }

    #[test]
    fn as_many_are_deleted_as_may_be_away_beside_those_that_are() {
        for (most, gateways, expected) in [
            (1, "oooooon", None),
            // The controller takes the highest.
            (2, "oooooon", Some(vec![4])),
            (4, "ooooonn", Some(vec![3, 2, 1])),
            (9, "ooooonn", Some(vec![3, 2, 1, 0])),
            (2, "n", Some(vec![])),
            (2, "nn", Some(vec![])),
            // It waits for one that it has taken.
            (4, "oooool-n", Some(vec![4, 3])),
            (4, "oooooNNn", Some(vec![4, 3])),
            (2, "oooooNNn", Some(vec![])),
            // One that is new and fails.
            (2, "ooooonN", Some(vec![4])),
            // Those that are not ready go first, and keep those that are.
            (2, "oOooonn", Some(vec![1])),
            (3, "oOooonn", Some(vec![1, 3])),
            (4, "OOOOOOn", Some(vec![4, 3, 2])),
            (4, "oOOOONn", Some(vec![4, 3, 2])),
            (2, "oOOOONN", None),
            // No gateway has shown yet that the newest revision can be ready.
            (4, "ooooooo", None),
            (4, "ooooooN", None),
            (4, "oooooo-", None),
        ] {
            assert_eq!(found(most, &workload(gateways)), expected, "{most} of {gateways}");
        }
    }

    #[test]
    fn nothing_is_deleted_where_something_else_is_done_or_not_known() {
        use RolloutState::{Canary, Complete, Failed, Pending, RolledBack, Rolling};
        let seen = workload("ooooonn");
        let found = |state, workload: &WorkloadSeen, is_draining| {
            outdated(&rollout(state), Unavailable::Percent(50), workload, is_draining)
                .map(|found| found.len())
        };
        assert_eq!(found(Rolling, &seen, false), Some(2));
        assert_eq!(found(RolledBack, &seen, false), Some(2), "the way back has been tried, too");
        for state in [Canary, Complete, Failed, Pending] {
            assert_eq!(found(state, &seen, false), None, "{state:?}");
        }
        assert_eq!(found(Rolling, &seen, true), None, "gateways leave");
        for seen in [
            WorkloadSeen { partition: 6, ..seen.clone() },
            WorkloadSeen { is_observed: false, ..seen.clone() },
            WorkloadSeen { update_revision: None, ..seen.clone() },
            WorkloadSeen { revision: Some("another".into()), ..seen.clone() },
        ] {
            assert_eq!(found(Rolling, &seen, false), None, "{seen:?}");
        }
        let leaves = WorkloadSeen { wanted: 5, ..workload("oooonoo") };
        assert_eq!(found(Rolling, &leaves, false), Some(1), "those above are no gateways any more");
    }
}
