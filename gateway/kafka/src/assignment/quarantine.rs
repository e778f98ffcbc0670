//! Partitions that are not read further because a block of theirs waits for what may take for ever.
//!
//! Whatever is read behind such a block cannot be committed, and keeps memory that all partitions share: read on, one partition would bring
//! every other one to a stand. So its worker lets it go, it is paused, and others have its turn. What was read is sent as before. Once all of
//! it is settled and committed, the partition begins anew there ([`Assignment::renew`]).
//!
//! Owner: the poll thread, as all of [`Assignment`].

use super::{Assignment, Owned};

/// Whether a partition is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quarantine {
    /// No worker was told to read it yet: one that was told before to let it go would keep it.
    NotGiven,
    /// It is not.
    No,
    /// It is.
    Yes,
}

impl Assignment {
    /// Holds those back that have to be. What is open of them is given up, and read again: it would keep memory too.
    pub(super) fn hold_back(&mut self) {
        let mut quarantine = Vec::new();
        for (id, owned) in self.owned.iter_mut().filter(|(_, owned)| is_to_be_held_back(owned)) {
            owned.quarantine = Quarantine::Yes;
            tracing::info!(
                partition = %id,
                "pausing the partition: one of its blocks has refused rows and needs manual action"
            );
            self.stopped.push((id.clone(), owned.generation));
            quarantine.push(id.clone());
        }
        self.recall(&quarantine, false);
    }
}

/// Whether someone must act on a block of it. A plan without room is no reason: during an outage it has none for long, and what is read
/// then still goes to the volume.
fn is_to_be_held_back(owned: &Owned) -> bool {
    owned.quarantine == Quarantine::No && !owned.halted.is_empty()
}
