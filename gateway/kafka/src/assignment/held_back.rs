//! Partitions that are not read further because a block of theirs waits for what may take for ever.
//!
//! Whatever is read behind such a block cannot be committed, and keeps memory that all partitions share: read on, one partition would bring
//! every other one to a stand. So its worker lets it go, it is paused, and others have its turn. What was read is sent as before. Once all of
//! it is settled and committed, the partition begins anew there ([`Assignment::renew`]).
//!
//! Owner: the poll thread, as all of [`Assignment`].

use super::{Assignment, Owned};
use crate::{
    clock,
    ranges::{Now, Wait},
};

/// Whether a partition is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldBack {
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
        let now = clock::now();
        let mut held_back = Vec::new();
        for (id, owned) in self.owned.iter_mut().filter(|(_, owned)| is_to_be_held_back(owned, now)) {
            owned.held_back = HeldBack::Yes;
            tracing::info!(
                partition = %id,
                for_someone_to_act = !owned.halted.is_empty(),
                "the partition is not read further: what was read of it cannot be committed for now"
            );
            self.stopped.push((id.clone(), owned.generation));
            held_back.push(id.clone());
        }
        self.recall(&held_back, false);
    }
}

/// Whether someone must act on a block of it, or the plan has no room for another range before an old one is settled.
fn is_to_be_held_back(owned: &Owned, now: Now) -> bool {
    owned.held_back == HeldBack::No
        && (!owned.halted.is_empty() || owned.ranges.waits_for(now) == Some(Wait::CutsFull))
}
