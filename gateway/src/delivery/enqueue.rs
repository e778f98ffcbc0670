//! `delivery.commit: AfterEnqueue`: decides which blocks on the queue volume count as settled, so that their offsets are committed before
//! the blocks are inserted.
//!
//! Place in the flow: delivery passes every order, and calls [`Enqueue::look`] periodically.
//! Owner: the delivery task. Limits: two entries for each block on the volume: until it is committed, and until the poll thread has room
//! for its report.
//!
//! ```text
//!  range released --> spilled --> record synced --> Report::Settled --> commit --> ... --> inserted from the volume
//!       (planned)                                   the block is an only copy from here on
//! ```
//!
//! A commit gives up Kafka's copy of the messages and the partition's plan. It must not let two gateways send the same rows under different
//! tokens, and must not lose a token. The rules that ensure this:
//!
//! 1. **No record before the release.** A block goes to the volume only once its range may be sent. Its end then follows from the log or is
//!    in a stored plan ([`sluice_ranges`]), so every later owner makes the same range with the same token. The commit behind a record
//!    may be missing: the process died, or the partition moved. Then the next owner and this volume send the same rows under the same
//!    token, and the server drops one. A record of an unplanned range could overlap the next owner's ranges. So if the coordinator is away, spilling
//!    stops, and then reading, as with a full volume.
//! 2. **No commit before the sync.** A range counts as settled once its record is durable, one sync after its append, and a mark says so
//!    ([`sluice_spool::Queue::keep_blocks`]). So a record that is found torn was never relied on, whatever was committed since.
//! 3. **From then on the volume is responsible for it.** The block is sent whichever gateway owns the partition, also by the next run of
//!    the process and by `sluice-gateway drain`. It is not dropped when its offsets are committed: its record says that they may be
//!    ([`crate::blocks::spool_metadata`]). The config at that time does not matter. A block beyond the committed offset is handled as
//!    with `AfterInsert`: its owner reads its messages again, or takes the block over.
//! 4. **The refused parts are in the plan or on the volume, never in both.** The progress of a block that is sent in parts is in the plan
//!    while its range is in flight; such a range is not settled here. A block that is already an only copy keeps its parts on the volume.
//! 5. **One instance of a block at a time.** The running shipment continues; the end of its partition no longer ends it.
//! 6. **The volume records that no other process has sent it.** This needs a block that no earlier owner can have sent. Once the group has
//!    stored its commit, no other process reads its messages, and its record is marked ([`Spool::mark_sole`]). A later run then knows that the
//!    block was sent from this volume or not at all, however long ago that was.
//! 7. **No commit of rows that the table has no columns for.** Once the table was seen not to fit, nothing more is settled here: Kafka
//!    keeps the messages, and the next start makes rows that fit.
//!
//! What remains: the commit of a range may not have been stored when the process dies. Its next owner has then inserted it before this
//! volume returns. If that is later than the server remembers tokens, the table is asked whether it has the rows; if it cannot tell, they
//! are counted as possible duplicates. The same holds for a block whose commit was stored just before the process died, before its mark
//! was written. If a volume is lost, its rows are lost; if a record is damaged, its rows are lost, and `sluice_gateway_rows_lost_total`
//! counts them. A disk that loses a synced record's mark leaves a record that looks as if nothing had relied on it.

use crate::{
    ground::async_sender::AsyncSender,
    volume::{
        block_table::{BlockTable, Released},
        spool::Spool,
    },
};
use crossbeam_channel::TrySendError;
use sluice_kafka::{Order, Report};
use sluice_ranges::{Generation, PartitionId};
use sluice_spool::BlockId;
use std::collections::{BTreeMap, VecDeque};

/// Settles ranges whose blocks are durable on the volume.
pub struct Enqueue {
    /// Only copies that no other process sends once the group has stored the commit behind them, by generation and end of the range.
    uncommitted: BTreeMap<PartitionId, BTreeMap<(Generation, i64), BlockId>>,
    /// Settled, but not reported yet: the report channel was full.
    unreported: VecDeque<Report>,
    spool: Spool,
    reports: AsyncSender<Report>,
}

impl Enqueue {
    /// Without blocks.
    pub fn new(spool: Spool, reports: AsyncSender<Report>) -> Self {
        Self { uncommitted: BTreeMap::new(), unreported: VecDeque::new(), spool, reports }
    }

    /// Applies an order's information about commits.
    pub fn order(&mut self, order: &Order) {
        match order {
            Order::Proved { id, generation, offset, .. } => {
                let Some(of) = self.uncommitted.get_mut(id) else { return };
                let committed = of.extract_if((*generation, i64::MIN)..=(*generation, *offset), |_, _| true);
                self.spool.mark_sole(committed.map(|(_, record)| record).collect());
            }
            // The commit of the remaining ranges may or may not be stored.
            Order::Forget { id, generation, .. } => {
                if let Some(of) = self.uncommitted.get_mut(id) {
                    of.retain(|(of, _), _| of > generation);
                }
            }
            Order::Send { .. } | Order::TakeOver { .. } => {}
        }
    }

    /// Settles blocks that have become durable, both those being sent and those waiting, unless `may_settle` is false.
    pub fn look(&mut self, table: &mut BlockTable, may_settle: bool) {
        while may_settle && let Some((block, record)) = table.next_only_copy() {
            let Released { id, generation, range, is_inherited } = block;
            if !is_inherited {
                self.uncommitted.entry(id.clone()).or_default().insert((generation, range.next), record);
            }
            self.unreported.push_back(Report::Settled { id, generation, range });
        }
        self.report();
    }

    /// Reports settled blocks until the channel is full; the next look reports the rest.
    fn report(&mut self) {
        while let Some(report) = self.unreported.pop_front() {
            match self.reports.try_send(report) {
                Err(TrySendError::Full(report)) => {
                    self.unreported.push_front(report);
                    return;
                }
                // The poll thread has ended and commits nothing any more: the next run continues with the block.
                Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
