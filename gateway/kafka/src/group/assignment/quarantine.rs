//! Quarantine: a partition is not read further because one of its blocks waits for manual action.
//!
//! Messages behind such a block cannot be committed, and their blocks keep memory that all partitions share. If the partition were read
//! on, it would stop all others. So its worker releases it, it is paused, and others have its turn. Blocks that exist are sent as before.
//! Once all are settled and committed, the partition restarts there ([`Assignment::renew`]).
//!
//! Owner: the poll thread, as for all of [`Assignment`].

use super::{Assignment, Owned};

/// Whether a partition is in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quarantine {
    /// Not yet: no worker has the partition. If a worker got the order to release it before it got the partition, it would keep it.
    NotGiven,
    No,
    /// Yes, and its worker got the order to release it.
    Yes,
}

impl Assignment {
    /// Puts partitions into quarantine. Their open blocks are dropped and read again later: they would keep memory too.
    pub(super) fn hold_back(&mut self) {
        let mut quarantine = Vec::new();
        for (id, owned) in self.owned.iter_mut().filter(|(_, owned)| is_to_be_held_back(owned)) {
            owned.quarantine = Quarantine::Yes;
            tracing::info!(
                partition = %id,
                "pausing the partition: one of its blocks cannot be settled and needs manual action"
            );
            self.stopped.push((id.clone(), owned.generation));
            quarantine.push(id.clone());
        }
        self.recall(&quarantine, false);
    }
}

/// Whether a block of it needs manual action. A plan without room is no reason: during an outage a plan has no room for long, and what is
/// read then still goes to the queue volume.
fn is_to_be_held_back(owned: &Owned) -> bool {
    owned.quarantine == Quarantine::No && !owned.halted.is_empty()
}
