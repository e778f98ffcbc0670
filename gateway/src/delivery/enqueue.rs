//! `delivery.commit: AfterEnqueue`: which blocks on the queue volume count as settled, so that their offsets are committed before they are
//! inserted.
//!
//! Place in the flow: delivery has one, tells it of every block that it begins to send and of every order, and has it look now and then.
//! Owner: the delivery task. Limits: one weak pointer for each block that is being sent, and two places for each block on the volume: until it
//! is committed, and until the poll thread has room for the report of it.
//!
//! ```text
//!  range released --> spilled --> record synced --> Report::Settled --> commit --> ... --> inserted from the volume
//!       (planned)                                   the block is an only copy from here on
//! ```
//!
//! A commit gives up what the messages in front of it were: Kafka's copy, and the partition's plan. That must not let two gateways send
//! the same rows under different tokens, nor lose what is known of a token. What sees to it:
//!
//! 1. **No record before the release.** A block goes to the volume only once its range may be sent, so that its end follows from the log or
//!    is in a plan that is stored ([`sluice_ranges`]). Whoever reads the messages again makes the same range with the same token:
//!    if the commit behind a record never came (the process died, the partition moved), its next owner and this volume send the same
//!    rows under the same token, and the server drops one. A record of a range that nobody had planned could lie across the next owner's.
//!    So the coordinator being away stops spilling, and then reading, as a full volume does.
//! 2. **No commit before the sync.** A range counts as settled once its record is durable, a sync later than its append, and a mark says that
//!    it is ([`sluice_spool::Queue::keep_blocks`]): a record that is found torn was never relied on, whatever is committed by then.
//! 3. **From then on the volume answers for it.** The block is sent whoever owns the partition, also by the next run of the process
//!    and by `sluice-gateway drain`, and is never dropped because its offsets are committed: its record says that they may be
//!    ([`crate::blocks::spool_metadata`]), whatever the config says when it is found. One that lies beyond the committed offset is as with
//!    `AfterInsert`: read again by its owner, or gone on with.
//! 4. **RefusedParts are the range's or the volume's, never both.** How far a block is that goes in parts is in the plan while its range is in
//!    flight; such a range is not settled here. A block that is an only copy first has its parts noted on the volume.
//! 5. **One instance of a block at a time.** The shipment that is under way goes on; its partition's end no longer ends it.
//!
//! 6. **Who else may have sent it is written down.** Once the group has stored the commit behind a block that no owner before can have
//!    sent, nobody else ever reads its messages, and its record is marked ([`Spool::mark_sole`]): whoever finds it knows that it was sent
//!    from this volume or not at all, however long ago that was.
//!
//! 7. **No commit of what the table has no columns for.** Once it was seen not to fit, nothing more is settled here: Kafka keeps the
//!    messages, of which the next start makes rows that fit.
//!
//! What stays: the commit of a range may not have been stored when the process dies. Its next owner has then inserted it by the time that
//! this volume comes back, and if that is later than the server remembers tokens, the table is asked for what became of it; where it
//! cannot tell, its rows are counted as possibly doubled. So are those of a block whose commit was stored a moment before the process
//! died, so that its mark was not written. A volume that is lost takes its rows with it, and a record that is damaged its own:
//! `sluice_gateway_rows_lost_total` counts the latter. A disk that loses what it has said to be synced, with its mark, leaves a record that
//! looks like one that nobody relied on.

use crate::{
    delivery::block_queue::BlockQueue,
    ground::async_sender::AsyncSender,
    volume::{block_frames::BlockFrames, ready_block::Ready, spool::Spool},
};
use crossbeam_channel::TrySendError;
use sluice_kafka::{Order, Report};
use sluice_ranges::{Generation, OffsetRange, PartitionId};
use sluice_spool::BlockId;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
};

/// A block that may become an only copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enqueuing {
    /// Of which partition.
    pub id: PartitionId,
    /// Read under which generation.
    pub generation: Generation,
    /// Its offsets.
    pub range: OffsetRange,
    /// Whether an owner before may have sent it.
    pub is_inherited: bool,
}

/// A block that has become an only copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enqueued {
    /// Which one.
    pub enqueuing: Enqueuing,
    /// Its record.
    pub record: BlockId,
}

impl Enqueuing {
    /// A block that may be sent.
    pub fn of(ready: &Ready) -> Self {
        let block = &ready.sealed.block;
        let (id, generation, range) = (block.id.clone(), block.generation, block.range);
        Self { id, generation, range, is_inherited: ready.release.is_inherited }
    }
}

/// Has ranges settled whose blocks are durable on the volume.
pub struct Enqueue {
    sending: Vec<(Weak<BlockFrames>, Enqueuing)>,
    /// Only copies that nobody else has to send once the group has stored the commit behind them: by generation and end of the range.
    uncommitted: BTreeMap<PartitionId, BTreeMap<(Generation, i64), BlockId>>,
    /// Settled, but not reported yet: the report channel was full.
    unreported: VecDeque<Report>,
    spool: Spool,
    reports: AsyncSender<Report>,
}

impl Enqueue {
    /// Nothing is sent yet.
    pub fn new(spool: Spool, reports: AsyncSender<Report>) -> Self {
        let (sending, uncommitted, unreported) = (Vec::new(), BTreeMap::new(), VecDeque::new());
        Self { sending, uncommitted, unreported, spool, reports }
    }

    /// A block begins to be sent.
    pub fn add(&mut self, ready: &Ready) {
        self.sending.push((Arc::downgrade(&ready.sealed.frames), Enqueuing::of(ready)));
    }

    /// Takes down what an order says of commits.
    pub fn order(&mut self, order: &Order) {
        match order {
            Order::Proved { id, generation, offset, .. } => {
                let Some(of) = self.uncommitted.get_mut(id) else { return };
                let committed = of.extract_if((*generation, i64::MIN)..=(*generation, *offset), |_, _| true);
                self.spool.mark_sole(committed.map(|(_, record)| record).collect());
            }
            // The commit of what is left may or may not be stored.
            Order::Forget { id, generation, .. } => {
                if let Some(of) = self.uncommitted.get_mut(id) {
                    of.retain(|(of, _), _| of > generation);
                }
            }
            Order::Send { .. } | Order::TakeOver { .. } => {}
        }
    }

    /// Settles what has become durable, among what is sent and what waits for that, unless nothing may be settled; what has ended is
    /// forgotten in any case.
    pub fn look(&mut self, queue: &mut BlockQueue, may_settle: bool) {
        if !may_settle {
            self.report();
            self.sending.retain(|(frames, _)| frames.strong_count() > 0);
            return;
        }
        let mut enqueued = queue.become_only_copies();
        self.sending.retain(|(frames, enqueuing)| {
            let Some(frames) = frames.upgrade() else { return false };
            if let Some(record) = frames.become_only_copy() {
                enqueued.push(Enqueued { enqueuing: enqueuing.clone(), record });
            }
            !frames.is_only_copy()
        });
        for Enqueued { enqueuing, record } in enqueued {
            self.settle(enqueuing, record);
        }
        self.report();
    }

    fn settle(&mut self, enqueuing: Enqueuing, record: BlockId) {
        let Enqueuing { id, generation, range, is_inherited } = enqueuing;
        if !is_inherited {
            self.uncommitted.entry(id.clone()).or_default().insert((generation, range.next), record);
        }
        self.unreported.push_back(Report::Settled { id, generation, range });
    }

    /// Reports settled blocks until the channel is full; the next look reports the rest.
    fn report(&mut self) {
        while let Some(report) = self.unreported.pop_front() {
            match self.reports.try_send(report) {
                Err(TrySendError::Full(report)) => {
                    self.unreported.push_front(report);
                    return;
                }
                // The poll thread has ended and commits nothing any more: the next run goes on with the block.
                Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
