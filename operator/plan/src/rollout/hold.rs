//! A rollout does not begin while gateways drain. The first gateway to be replaced would be one of them, and no other gateway would read its
//! partitions until its session is over. The wait has a limit, because the change may be what lets the gateways drain.
//!
//! The limit counts from the start of the wait, which the status has. If more gateways are asked to drain meanwhile, or the spec changes
//! again, the wait does not start anew.

use super::{Memory, Step, Template, Turn, judgement::seconds_between};
use crate::observed::WorkloadSeen;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sluice_crds::{DrainState, RolloutStatus};

/// Seconds that a rollout waits for gateways that leave. Chosen: one that can insert is empty within seconds.
const LEAVING_SECONDS_MAX: i64 = 60;

impl Turn<'_> {
    /// Whether nothing is begun yet because gateways leave.
    pub(super) fn waits_for_leaving(&self, workload: &WorkloadSeen, written: &RolloutStatus) -> bool {
        let leaves = self.seen.leaving.is_some_and(|drain| drain.state == DrainState::Draining);
        let is_given = self.live(workload) == Some(self.seen.revision);
        let waited_seconds = seconds_between(self.held_since(written).0, self.now).abs();
        !is_given && leaves && waited_seconds < LEAVING_SECONDS_MAX
    }

    /// Nothing changes, except that gateways drain.
    pub(super) fn stay(&self, workload: &WorkloadSeen, written: &RolloutStatus) -> Step {
        Step {
            next: RolloutStatus { held_since: Some(self.held_since(written)), ..written.clone() },
            template: Template::Live,
            partition: workload.partition,
            memory: if workload.proved.is_some() { Memory::Kept } else { Memory::Nothing },
            replicas: self.seen.replicas.min(workload.wanted),
        }
    }

    fn held_since(&self, written: &RolloutStatus) -> Time {
        written.held_since.clone().unwrap_or(Time(self.now))
    }
}
