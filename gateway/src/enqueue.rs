//! `delivery.commit: AfterEnqueue`: which blocks on the queue volume count as settled, so that their offsets are committed before they are
//! inserted.
//!
//! Place in the flow: delivery has one, tells it of every block that it begins to send, and has it look now and then. Owner: the delivery
//! task. Limits: one weak pointer for each block that is being sent.
//!
//! ```text
//!  range released --> spilled --> record synced --> Report::Settled --> commit --> ... --> inserted from the volume
//!       (planned)                                   the cargo is an only copy from here on
//! ```
//!
//! A commit gives up what the messages in front of it were: Kafka's copy, and the partition's plan. That must not let two gateways send
//! the same rows under different tokens, nor lose what is known of a token. What sees to it:
//!
//! 1. **No record before the release.** A block goes to the volume only once its range may be sent, so that its end follows from the log or
//!    is in a plan that is stored ([`sluice_kafka::ranges`]). Whoever reads the messages again makes the same range with the same token:
//!    if the commit behind a record never came (the process died, the partition moved), its next owner and this volume send the same
//!    rows under the same token, and the server drops one. A record of a range that nobody had planned could lie across the next owner's.
//!    So the coordinator being away stops spilling, and then reading, as a full volume does.
//! 2. **No commit before the sync.** A range counts as settled once its record is durable, a sync later than its append.
//! 3. **From then on the volume answers for it.** The block is sent whoever owns the partition, also by the next run of the process
//!    and by `sluice-gateway drain`, and is never dropped because its offsets are committed: its record says that they may be
//!    ([`crate::passport`]), whatever the config says when it is found. One that lies beyond the committed offset is as with
//!    `AfterInsert`: read again by its owner, or gone on with.
//! 4. **Parts are the range's or the volume's, never both.** How far a block is that goes in parts is in the plan while its range is in
//!    flight; such a range is not settled here. A block that is an only copy first has its parts noted on the volume.
//! 5. **One instance of a block at a time.** The shipment that is under way goes on; its partition's end no longer ends it.
//!
//! What stays: the commit of a range may not have been stored when the process dies. Its next owner has then inserted it by the time that
//! this volume comes back, and if that is later than the server remembers tokens, the table is asked for what became of it; where it
//! cannot tell, its rows are counted as possibly doubled. A volume that is lost takes its rows with it, and a record that is damaged
//! its own: `sluice_gateway_rows_lost_total` counts the latter.

use crate::{cargo::Cargo, held::Held};
use crossbeam_channel::Sender;
use sluice_kafka::{Generation, OffsetRange, PartitionId, Report};
use std::sync::{Arc, Weak};

/// A block that is being sent.
struct Sending {
    cargo: Weak<Cargo>,
    id: PartitionId,
    generation: Generation,
    range: OffsetRange,
}

/// Has ranges settled whose blocks are durable on the volume.
pub struct Enqueue {
    sending: Vec<Sending>,
    reports: Sender<Report>,
}

impl Enqueue {
    /// Nothing is sent yet.
    pub fn new(reports: Sender<Report>) -> Self {
        Self { sending: Vec::new(), reports }
    }

    /// A block begins to be sent.
    pub fn add(
        &mut self,
        cargo: &Arc<Cargo>,
        id: PartitionId,
        (generation, range): (Generation, OffsetRange),
    ) {
        self.sending.push(Sending { cargo: Arc::downgrade(cargo), id, generation, range });
    }

    /// Settles what has become durable, among what is sent and what waits for that.
    pub fn look(&mut self, held: &mut Held) {
        let mut settled = held.become_only_copies();
        self.sending.retain(|sending| {
            let Some(cargo) = sending.cargo.upgrade() else { return false };
            if cargo.become_only_copy() {
                settled.push((sending.id.clone(), sending.generation, sending.range));
            }
            !cargo.is_only_copy()
        });
        for (id, generation, range) in settled {
            if self.reports.send(Report::Settled { id, generation, range }).is_err() {
                // The poll thread has ended and commits nothing any more: the next run goes on with the block.
            }
        }
    }
}
