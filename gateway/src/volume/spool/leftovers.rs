//! Blocks that an earlier run has left on the volume: listed when it is opened, and taken over by partition. The rest become
//! [orphans](crate::delivery::orphans), and so do blocks of this run whose partition was revoked.
//!
//! ```text
//!  of a partition --kept()--> reserved --take()--> continues with its generation
//!        | ^                   |    `--- what the generation does not take over -.
//!        | `--(give_back())----'                                                 v
//!        `------------- its partition is not assigned ---------------------> orphans <-- recorded as an only copy
//! ```
//!
//! Owner: shared by the poll thread, which asks which blocks there are, and delivery, which takes them, behind a lock that is never held
//! while waiting. Delivery must find the blocks that the poll thread got from here, whatever becomes an orphan in between and however long
//! the order takes. So they are reserved for the generation that asked, until its order arrives, or until it is over without one.
//!
//! Limits: a header for each block, until its partition starts or [`LEFT_WAIT`] is over.

use super::left_block::{InWriting, LeftBlock, Takeable, sealed};
use crate::{
    blocks::block::Block,
    ground::account::RowAccount,
    volume::{
        block_table::OnVolume,
        only_copy::{Logs, RowLocation},
        spool::{Ended, Missing, Spool},
    },
};
use sluice_ranges::{Generation, OffsetRange, PartitionId, SpooledRange};
use sluice_spool::{BlockId, Directory, Fatal, Queue, Recovered};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

/// How long blocks wait for their partition to be assigned to this process. Chosen: longer than any rebalance. After that, another
/// process has the partition, and Kafka is asked whether it has their messages.
const LEFT_WAIT: Duration = Duration::from_mins(10);

/// The same for blocks whose offsets may be committed: no process reads their messages again, so their rows are late until they are
/// inserted. Kafka is asked then, too, which of the other blocks are only copies. It is not asked before: the partition may come and take
/// them over, and it takes over no only copy. Chosen: longer than a restart and the rebalance after it.
const ASSIGNED_WAIT: Duration = Duration::from_mins(1);

/// The blocks, by what happens to them.
#[derive(Default)]
struct Kinds {
    /// By partition, in the order of their appends: the partition may still be assigned.
    of: BTreeMap<PartitionId, Vec<LeftBlock>>,
    /// A generation of the partition has asked for them, and delivery has no order yet that says which ranges it takes over.
    reserved: BTreeMap<PartitionId, Reserved>,
    /// Their partition was assigned or revoked, and has not taken them over.
    orphans: Vec<LeftBlock>,
    /// Records that cannot be read.
    missing: Vec<Missing>,
}

/// What a generation got as an answer, possibly nothing.
struct Reserved {
    generation: Generation,
    blocks: Vec<LeftBlock>,
}

impl Kinds {
    /// Makes the reserved blocks of a partition available to any generation again.
    fn give_back(&mut self, id: &PartitionId) {
        let Some(Reserved { mut blocks, .. }) = self.reserved.remove(id) else { return };
        // In front: reserved blocks fit, and must be found before others with the same range that do not.
        blocks.extend(self.of.remove(id).unwrap_or_default());
        if !blocks.is_empty() {
            self.of.insert(id.clone(), blocks);
        }
    }

    fn take_all(&mut self) -> Vec<LeftBlock> {
        let (of, orphans) = (std::mem::take(&mut self.of), std::mem::take(&mut self.orphans));
        of.into_values().flatten().chain(orphans).collect()
    }
}

/// The blocks, behind a lock.
#[derive(Clone)]
pub struct Leftovers {
    kinds: Arc<Mutex<Kinds>>,
    since: Instant,
}

impl Leftovers {
    /// Reads the blocks of a queue that was just opened. The owner of a partition gives up blocks that cannot be read.
    pub(super) fn of(queue: &Queue<Directory>, recovered: &Recovered) -> Result<Self, Fatal> {
        let mut of: BTreeMap<PartitionId, Vec<LeftBlock>> = BTreeMap::new();
        let mut missing: Vec<Missing> = Missing::found(recovered).map(|(_, _, missing)| missing).collect();
        let mut orphans = Vec::new();
        for held in queue.held() {
            match LeftBlock::read(queue, &held)? {
                Some((block, _)) if block.only_copy.is_some() => orphans.push(block),
                Some((block, _)) => of.entry(block.partition()).or_default().push(block),
                // It could be read when the queue was opened.
                None => {
                    let (record, covers) = (Some(held.id), Some(held.coordinates.clone()));
                    let (is_only_copy, is_enqueued) = (held.only_copy.is_some(), held.relied_on);
                    missing.push(Missing { record, covers, is_only_copy, is_enqueued });
                }
            }
        }
        let enqueued = of.values().flatten().chain(&orphans).filter(|block| block.is_enqueued());
        let enqueued_segments = enqueued.map(|block| block.id.segment).collect();
        for missing in &mut missing {
            missing.learn(&enqueued_segments);
        }
        let kinds = Kinds { of, orphans, missing, ..Kinds::default() };
        Ok(Self { kinds: Arc::new(Mutex::new(kinds)), since: Instant::now() })
    }

    fn lock(&self) -> MutexGuard<'_, Kinds> {
        // Poisoning is harmless: each change is one removal.
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of all columns that the blocks were encoded for.
    pub(super) fn columns(&self) -> BTreeSet<u64> {
        let kinds = self.lock();
        kinds.of.values().flatten().chain(&kinds.orphans).map(LeftBlock::columns).collect()
    }

    /// The partitions with waiting blocks that look settled once another process has committed beyond them. `None` while their partitions
    /// may still come to this process. Excludes blocks whose offsets may be committed: Kafka is asked about these once their partition has
    /// started without them, before it has read and committed their messages.
    pub fn waiting(&self, now: Instant) -> Option<BTreeSet<PartitionId>> {
        if now.duration_since(self.since) < ASSIGNED_WAIT {
            return None;
        }
        let kinds = self.lock();
        let may_look_settled = |blocks: &[LeftBlock]| blocks.iter().any(|block| !block.is_enqueued());
        let waiting = kinds.of.iter().filter(|(_, blocks)| may_look_settled(blocks));
        Some(waiting.map(|(id, _)| id.clone()).collect())
    }

    /// The ranges of a partition whose blocks can be taken over. They are reserved for the generation that asks until it
    /// [takes](Self::take) them, or they are [given back](Self::give_back). If another generation asks later, it gets what was reserved for
    /// the earlier one, which is over.
    pub fn kept(
        &self,
        (id, generation): (&PartitionId, Generation),
        takeable: Takeable<'_>,
    ) -> Vec<SpooledRange> {
        let mut kinds = self.lock();
        kinds.give_back(id);
        let mut kept = Vec::new();
        let fits = |block: &mut LeftBlock| {
            let fitting = block.kept(takeable);
            kept.extend(fitting);
            fitting.is_some()
        };
        let blocks = kinds.of.get_mut(id).map(|of| of.extract_if(.., fits).collect()).unwrap_or_default();
        // Also with nothing to reserve: the order of an earlier generation then has no effect.
        kinds.reserved.insert(id.clone(), Reserved { generation, blocks });
        kept.sort_by_key(|kept| kept.range.first);
        // A block that was dropped and read again may be there twice.
        kept.dedup_by_key(|kept| kept.range.first);
        kept
    }

    /// The records of those blocks that a generation which starts now takes over, if it takes over these of the ranges that [`Self::kept`]
    /// returns to it. Reserves nothing.
    pub(super) fn taken_over(
        &self,
        id: &PartitionId,
        takeable: Takeable<'_>,
        taken_over: impl FnOnce(&[SpooledRange]) -> &[SpooledRange],
    ) -> BTreeSet<BlockId> {
        let kinds = self.lock();
        let reserved = kinds.reserved.get(id).map(|reserved| &reserved.blocks);
        let blocks = reserved.into_iter().chain(kinds.of.get(id)).flatten();
        let of_block = |block: &LeftBlock| Some((block.kept(takeable)?, block.id));
        let mut kept: Vec<(SpooledRange, BlockId)> = blocks.filter_map(of_block).collect();
        kept.sort_by_key(|(kept, _)| kept.range.first);
        kept.dedup_by_key(|(kept, _)| kept.range.first);
        let ranges: Vec<SpooledRange> = kept.iter().map(|(kept, _)| *kept).collect();
        let taken: BTreeSet<i64> = taken_over(&ranges).iter().map(|kept| kept.range.first).collect();
        let of_taken = kept.into_iter().filter(|(kept, _)| taken.contains(&kept.range.first));
        of_taken.map(|(_, record)| record).collect()
    }

    /// Records that a generation has ended. If it never started, the ranges that [`Self::kept`] reserved for it are free again.
    pub fn give_back(&self, id: &PartitionId, generation: Generation) {
        let mut kinds = self.lock();
        if kinds.reserved.get(id).is_some_and(|reserved| reserved.generation <= generation) {
            kinds.give_back(id);
        }
    }

    /// Takes over the blocks of these ranges for a partition that starts; [`Self::kept`] returned all of them. The partition's
    /// other blocks are dropped if they are read again, else they are [orphans](Self::orphans). Does nothing if a later generation has
    /// asked for them.
    pub fn take(
        &self,
        id: &PartitionId,
        (generation, ranges): (Generation, &[OffsetRange]),
        account: &RowAccount,
        spool: &Spool,
    ) -> Vec<(Block, OnVolume)> {
        let mut kinds = self.lock();
        if kinds.reserved.get(id).is_some_and(|reserved| reserved.generation > generation) {
            return Vec::new();
        }
        kinds.give_back(id);
        let left = kinds.of.remove(id).unwrap_or_default();
        drop(kinds);
        let mut wanted: BTreeMap<i64, OffsetRange> =
            ranges.iter().map(|range| (range.first, *range)).collect();
        let (mut taken, mut orphans) = (Vec::with_capacity(ranges.len()), Vec::new());
        let mut dropped = Vec::new();
        for block in left {
            let range = OffsetRange { first: block.head.first, next: block.head.next };
            let is_wanted = wanted.get(&range.first) == Some(&range);
            match (block.spool_metadata.clone(), block.token()) {
                (Some(spool_metadata), Some(known)) if is_wanted => {
                    wanted.remove(&range.first);
                    let (is_marked, is_in_kafka) = (block.is_marked(), block.is_read_again);
                    let record = OnVolume { id: block.id, is_marked, is_in_kafka };
                    taken.push((sealed(&block, (id, generation), (known, spool_metadata), account), record));
                }
                // Asked now, Kafka might answer that it is committed, because this generation has read and inserted its messages.
                _ if block.is_read_again => dropped.push(block.id),
                _ => orphans.push(block),
            }
        }
        self.lock().orphans.extend(orphans);
        for record in dropped {
            spool.end(record, Ended::Dropped);
        }
        spool.numbers().taken_over.fetch_add(taken.len() as u64, Ordering::Relaxed);
        assert!(wanted.is_empty(), "a range is taken over only if its block was reserved for the generation");
        taken
    }

    /// All blocks that no generation has asked for. Afterwards they cannot be taken over.
    pub fn take_all(&self) -> Vec<LeftBlock> {
        self.lock().take_all()
    }

    /// Records found since the last call that cannot be read.
    pub fn take_missing(&self) -> Vec<Missing> {
        std::mem::take(&mut self.lock().missing)
    }

    /// Records that these records cannot be read and no process has their blocks.
    pub(super) fn miss(&self, missing: impl IntoIterator<Item = Missing>) {
        self.lock().missing.extend(missing);
    }

    /// For a partition that is about to start: records the blocks whose messages Kafka has, so that no question about them is needed.
    pub(super) fn begins(&self, id: &PartitionId, logs: &Logs) {
        let mut kinds = self.lock();
        let Kinds { of, reserved, .. } = &mut *kinds;
        let reserved = reserved.get_mut(id).map(|reserved| &mut reserved.blocks);
        for block in of.get_mut(id).into_iter().chain(reserved).flatten() {
            block.is_read_again = logs.row_location(block) == RowLocation::InKafka;
        }
    }

    /// Records that these blocks are the only copies of their rows, with the number of rows that are elsewhere too. No partition takes
    /// them over. A generation that was already told of one starts with it, or gives it back.
    pub(super) fn are_only_copies(&self, found: &BTreeMap<BlockId, u64>) {
        let mut kinds = self.lock();
        let Kinds { of, orphans, .. } = &mut *kinds;
        for blocks in of.values_mut() {
            for mut block in blocks.extract_if(.., |block| found.contains_key(&block.id)) {
                let in_writing = |rows: &u64| InWriting { rows_elsewhere: *rows, is_new: true };
                block.only_copy = found.get(&block.id).map(in_writing);
                orphans.push(block);
            }
        }
        of.retain(|_, blocks| !blocks.is_empty());
    }

    /// Adds a block of this run whose partition was revoked.
    pub(super) fn orphan(&self, block: LeftBlock) {
        self.lock().orphans.push(block);
    }

    /// The blocks that no partition of this process takes over: their partitions were revoked, have started without them, or were not
    /// assigned within [`LEFT_WAIT`] or [`ASSIGNED_WAIT`]. With `everything`, all blocks except those of a generation whose order is on
    /// its way.
    pub fn orphans(&self, everything: bool) -> Vec<LeftBlock> {
        self.orphans_at(everything, Instant::now())
    }

    pub(crate) fn orphans_at(&self, everything: bool, now: Instant) -> Vec<LeftBlock> {
        let mut kinds = self.lock();
        let waited = now.duration_since(self.since);
        if everything || waited >= LEFT_WAIT {
            return kinds.take_all();
        }
        let mut orphans = std::mem::take(&mut kinds.orphans);
        if waited >= ASSIGNED_WAIT {
            for blocks in kinds.of.values_mut() {
                orphans.extend(blocks.extract_if(.., |block| block.is_enqueued()));
            }
        }
        orphans
    }
}

#[cfg(test)]
mod tests;
