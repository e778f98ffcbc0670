//! Blocks that an earlier run has left on the volume: listed when it is opened, taken over or given up by partition.
//!
//! Owner: shared by the poll thread, which asks what there is, and delivery, which takes it, behind a lock that nobody waits under.
//! Limits: a header for each block, until its partition begins or [`LEFT_WAIT`] is over.

use crate::{
    account::RowAccount,
    block::Block,
    cargo::Cargo,
    held::Stowed,
    message_rows::MessageRows,
    passport::Passport,
    spool::{Ended, Spool},
};
use sluice_kafka::{
    Generation, OffsetRange, PartitionId,
    ranges::{Kept, Token},
};
use sluice_spool::{BlockHead, BlockId, Directory, Queue, Sent};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

/// How long blocks of a partition wait that this process is not given. Chosen: above any rebalance; after it another process has the
/// partition, and has read its messages from Kafka.
const LEFT_WAIT: Duration = Duration::from_mins(10);

/// A block that was left.
struct LeftBlock {
    id: BlockId,
    head: BlockHead,
    is_marked: bool,
    passport: Option<Passport>,
}

/// What was left, by partition, in the order in which it was appended.
#[derive(Clone)]
pub struct Left {
    of: Arc<Mutex<BTreeMap<PartitionId, Vec<LeftBlock>>>>,
    since: Instant,
}

impl Left {
    /// Reads what a queue holds that was just opened. What cannot be read is given up by whoever takes its partition.
    pub(super) fn of(queue: &Queue<Directory>) -> Self {
        let mut of: BTreeMap<PartitionId, Vec<LeftBlock>> = BTreeMap::new();
        for held in queue.held() {
            let Ok((head, mut body)) = queue.read(held.id) else { continue };
            let mut metadata = vec![0; usize::try_from(head.metadata_bytes).unwrap_or(0)];
            let is_read = body.read(&mut metadata).is_ok();
            let range = OffsetRange { first: head.first, next: head.next };
            let passport =
                Passport::decode(&metadata, range).filter(|_| is_read).map(|(passport, _)| passport);
            let id = PartitionId { topic: head.topic.clone(), partition: head.partition };
            let is_marked = held.sent != Sent::Never;
            of.entry(id).or_default().push(LeftBlock { id: held.id, head, is_marked, passport });
        }
        Self { of: Arc::new(Mutex::new(of)), since: Instant::now() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PartitionId, Vec<LeftBlock>>> {
        // Whole whatever the thread that held it died of: each change is one removal.
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ranges of a partition whose blocks can be gone on with: of the log of this cluster, encoded for these columns.
    pub fn kept(&self, id: &PartitionId, cluster: &str, columns: u64) -> Vec<Kept> {
        let of = self.lock();
        let fits = |left: &LeftBlock| {
            let passport = left.passport.as_ref().filter(|passport| *passport.cluster == *cluster)?;
            passport.kept.filter(|_| left.head.columns == columns)
        };
        let mut kept: Vec<Kept> = of.get(id).into_iter().flatten().filter_map(fits).collect();
        kept.sort_by_key(|kept| kept.range.first);
        // One that was dropped and read again may be there twice.
        kept.dedup_by_key(|kept| kept.range.first);
        kept
    }

    /// A partition begins with the blocks of these ranges. What else is left of it is given up.
    pub fn take(
        &self,
        id: &PartitionId,
        (generation, ranges): (Generation, &[OffsetRange]),
        account: &RowAccount,
        spool: &Spool,
    ) -> Vec<Stowed> {
        let left = self.lock().remove(id).unwrap_or_default();
        let mut wanted: BTreeMap<i64, OffsetRange> =
            ranges.iter().map(|range| (range.first, *range)).collect();
        let mut taken = Vec::with_capacity(ranges.len());
        for block in left {
            let range = OffsetRange { first: block.head.first, next: block.head.next };
            let known = std::str::from_utf8(&block.head.token).ok().and_then(Token::parse);
            let is_wanted = wanted.get(&range.first) == Some(&range);
            match (block.passport.clone(), known) {
                (Some(passport), Some(known)) if is_wanted => {
                    wanted.remove(&range.first);
                    taken.push(stowed(&block, (id, generation), (known, passport), account));
                }
                _ => spool.end(block.id, Ended::Dropped),
            }
        }
        spool.numbers().taken_over.fetch_add(taken.len() as u64, Ordering::Relaxed);
        assert!(wanted.is_empty(), "a range is taken over only if its block was left");
        taken
    }

    /// Gives up what is left of partitions that this process was not given in time.
    pub fn give_up_late(&self, spool: &Spool) {
        if self.since.elapsed() < LEFT_WAIT {
            return;
        }
        for (id, blocks) in std::mem::take(&mut *self.lock()) {
            let rows: u64 = blocks.iter().map(|block| block.head.rows).sum();
            tracing::warn!(
                partition = %id,
                blocks = blocks.len(),
                rows,
                "the partition went to another process, which has read its messages from Kafka; its blocks on this volume are dropped"
            );
            for block in blocks {
                spool.end(block.id, Ended::Dropped);
            }
        }
    }
}

fn stowed(
    left: &LeftBlock,
    (id, generation): (&PartitionId, Generation),
    (token, passport): (Token, Passport),
    account: &RowAccount,
) -> Stowed {
    let LeftBlock { id: record, head, is_marked, .. } = left;
    let mut open = account.open();
    // An earlier run has walked them.
    open.walked(head.rows);
    let block = Block {
        id: id.clone(),
        generation,
        range: OffsetRange { first: head.first, next: head.next },
        token,
        rows: head.rows,
        account: open.seal(head.rows),
        // They are read with the frames, when the server refuses any.
        messages: MessageRows::default(),
        raw_bytes: head.raw_bytes,
        frames: Vec::new(),
        bytes: 0,
        span_end_nanos_max: head.span_end_nanos_max,
        passport,
    };
    Stowed { block, cargo: Cargo::left(*record, *is_marked) }
}
