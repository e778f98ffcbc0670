//! Blocks that an earlier run has left on the volume: listed when it is opened, taken over by partition; the rest
//! [orphans](crate::volume::orphans). So do those of this run whose partition has gone.
//!
//! ```text
//!  of a partition --kept()--> reserved --take()--> goes on with its generation
//!        | ^                   |    `--- what the generation does not go on with --.
//!        | `--(give_back())----'                                                   v
//!        `------------- its partition does not come ------------------------> orphans <-- written down as an only copy
//! ```
//!
//! Owner: shared by the poll thread, which asks what there is, and delivery, which takes it, behind a lock that nobody waits under.
//! What the one was told the other must find, whatever becomes an orphan in between, and however long its order is on its way: so it is
//! reserved for the generation that asked, until that has its order, or is over without one.
//! Limits: a header for each block, until its partition begins or [`LEFT_WAIT`] is over.

use crate::{
    blocks::{block::Block, message_rows::MessageRows},
    delivery::{
        held::{Ready, Stowed},
        route::Route,
    },
    signals::account::RowAccount,
    volume::{
        block_frames::BlockFrames,
        only_copy::{Logs, Subject, Whereabouts},
        passport::Passport,
        spool::{Ended, Missing, Spool},
    },
};
use sluice_kafka::{
    Generation, OffsetRange, PartitionId,
    ranges::{Destination, Kept, Parts, Release, Token},
};
use sluice_spool::{
    BlockHead, BlockId, BodyError, Directory, Fatal, Held, Queue, ReadError, Recovered, Sent,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

/// How long blocks of a partition wait that this process is not given. Chosen: above any rebalance; after it another process has the
/// partition, and Kafka is asked whether it has their messages.
const LEFT_WAIT: Duration = Duration::from_mins(10);

/// The same for blocks whose offsets may be committed: nobody reads their messages again, so that they are late until they are inserted.
/// Chosen: above a restart and the rebalance that follows it.
const ENQUEUED_WAIT: Duration = Duration::from_mins(1);

/// A block that was left.
pub struct LeftBlock {
    id: BlockId,
    head: BlockHead,
    sent: Sent,
    appended_ms: u64,
    only_copy: Option<InWriting>,
    /// Whether Kafka had its messages when its partition was about to begin here in front of them: then they are read again.
    is_read_again: bool,
    relied_on: Option<bool>,
    passport: Option<Passport>,
}

/// That a block is the only copy of its rows, as the volume has it in writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InWriting {
    /// Rows of it that are elsewhere too, or may be.
    pub rows_elsewhere: u64,
    /// Whether that was found just now.
    pub is_new: bool,
}

/// What was left.
#[derive(Default)]
struct Kinds {
    /// By partition, in the order in which it was appended: its partition may still come.
    of: BTreeMap<PartitionId, Vec<LeftBlock>>,
    /// A generation of its partition was told of it, and delivery has not heard which ranges that goes on with.
    reserved: BTreeMap<PartitionId, Reserved>,
    /// Its partition came, or went, and does not go on with it.
    orphans: Vec<LeftBlock>,
    /// Records that cannot be read.
    missing: Vec<Missing>,
}

/// What a generation was told of, if anything.
struct Reserved {
    generation: Generation,
    blocks: Vec<LeftBlock>,
}

impl Kinds {
    /// What is reserved of a partition is again what any generation may be told of.
    fn give_back(&mut self, id: &PartitionId) {
        let Some(Reserved { mut blocks, .. }) = self.reserved.remove(id) else { return };
        // In front, so that what fits is found before what does not and has the same range.
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

/// What was left, behind a lock.
#[derive(Clone)]
pub struct Left {
    kinds: Arc<Mutex<Kinds>>,
    since: Instant,
}

impl Left {
    /// Reads what a queue holds that was just opened. What cannot be read is given up by whoever takes its partition.
    pub(super) fn of(queue: &Queue<Directory>, recovered: &Recovered) -> Result<Self, Fatal> {
        let mut of: BTreeMap<PartitionId, Vec<LeftBlock>> = BTreeMap::new();
        let mut missing: Vec<Missing> = Missing::found(recovered).map(|(_, _, missing)| missing).collect();
        let mut orphans = Vec::new();
        for held in queue.held() {
            match LeftBlock::read(queue, &held)? {
                Some((block, _)) if block.only_copy.is_some() => orphans.push(block),
                Some((block, _)) => of.entry(block.partition()).or_default().push(block),
                // It could be read a moment ago.
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
        // Whole whatever the thread that held it died of: each change is one removal.
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of all columns that what is left was encoded for.
    pub(super) fn columns(&self) -> BTreeSet<u64> {
        let kinds = self.lock();
        kinds.of.values().flatten().chain(&kinds.orphans).map(LeftBlock::columns).collect()
    }

    /// The partitions that blocks wait for which look settled once somebody has committed behind them. Those whose offsets may be committed do
    /// not: of them it is asked once their partition has begun without them, and soon, before it has read and committed their messages.
    pub fn waiting(&self) -> BTreeSet<PartitionId> {
        let kinds = self.lock();
        let may_look_settled = |blocks: &[LeftBlock]| blocks.iter().any(|block| !block.is_enqueued());
        kinds.of.iter().filter(|(_, blocks)| may_look_settled(blocks)).map(|(id, _)| id.clone()).collect()
    }

    /// The ranges of a partition whose blocks can be gone on with: of the log of this cluster, encoded for these columns. They are
    /// reserved for the generation that asks until it [takes](Self::take) them, or they are [given back](Self::give_back): nobody else is given
    /// them meanwhile. One that asks after another one has what was reserved for that, which is over.
    pub fn kept(
        &self,
        (id, generation): (&PartitionId, Generation),
        cluster: &str,
        columns: u64,
    ) -> Vec<Kept> {
        let mut kinds = self.lock();
        kinds.give_back(id);
        let mut kept = Vec::new();
        let fits = |block: &mut LeftBlock| {
            let fitting = block.kept(cluster, columns);
            kept.extend(fitting);
            fitting.is_some()
        };
        let blocks = kinds.of.get_mut(id).map(|of| of.extract_if(.., fits).collect()).unwrap_or_default();
        // Also where there is none: the order of one before comes to nothing then.
        kinds.reserved.insert(id.clone(), Reserved { generation, blocks });
        kept.sort_by_key(|kept| kept.range.first);
        // One that was dropped and read again may be there twice.
        kept.dedup_by_key(|kept| kept.range.first);
        kept
    }

    /// A generation has ended. If it never began, the ranges that [`Self::kept`] reserved for it are free again.
    pub fn give_back(&self, id: &PartitionId, generation: Generation) {
        let mut kinds = self.lock();
        if kinds.reserved.get(id).is_some_and(|reserved| reserved.generation <= generation) {
            kinds.give_back(id);
        }
    }

    /// A partition begins with the blocks of these ranges, all of which it was [told](Self::kept) of. What else is left of it is dropped if
    /// it is read again, or [orphans](Self::orphans). Nothing when a later generation was told of them since: then this one is over.
    pub fn take(
        &self,
        id: &PartitionId,
        (generation, ranges): (Generation, &[OffsetRange]),
        account: &RowAccount,
        spool: &Spool,
    ) -> Vec<Stowed> {
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
            let known = std::str::from_utf8(&block.head.token).ok().and_then(Token::parse);
            let is_wanted = wanted.get(&range.first) == Some(&range);
            match (block.passport.clone(), known) {
                (Some(passport), Some(known)) if is_wanted => {
                    wanted.remove(&range.first);
                    taken.push(stowed(&block, (id, generation), (known, passport), account));
                }
                // Asked by now, Kafka may say that it is committed: because this generation has read and inserted its messages.
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

    /// Everything that is left and that no generation was told of: none of it is taken over any more.
    pub fn take_all(&self) -> Vec<LeftBlock> {
        self.lock().take_all()
    }

    /// Records that cannot be read, since this was asked last.
    pub fn take_missing(&self) -> Vec<Missing> {
        std::mem::take(&mut self.lock().missing)
    }

    /// Records cannot be read, and nobody has their blocks.
    pub(super) fn miss(&self, missing: impl IntoIterator<Item = Missing>) {
        self.lock().missing.extend(missing);
    }

    /// A partition is about to begin: takes down of which of its blocks Kafka has the messages, so that they need not be asked about.
    pub(super) fn begins(&self, id: &PartitionId, logs: &Logs) {
        let mut kinds = self.lock();
        let Kinds { of, reserved, .. } = &mut *kinds;
        let reserved = reserved.get_mut(id).map(|reserved| &mut reserved.blocks);
        for block in of.get_mut(id).into_iter().chain(reserved).flatten() {
            block.is_read_again = logs.whereabouts(block) == Whereabouts::InKafka;
        }
    }

    /// It was written down of these blocks that they are the only copies of their rows, but for so many: no partition goes on with them. One
    /// that a generation was told of already begins with it, or gives it back.
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

    /// The partition of a block of this run has gone.
    pub(super) fn orphan(&self, block: LeftBlock) {
        self.lock().orphans.push(block);
    }

    /// What no partition of this process goes on with: their partitions have gone, or begun without them, or were not given to it in
    /// [`LEFT_WAIT`], or [`ENQUEUED_WAIT`]. With `everything` none comes any more, but those whose order is on its way.
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
        if waited >= ENQUEUED_WAIT {
            for blocks in kinds.of.values_mut() {
                orphans.extend(blocks.extract_if(.., |block| block.is_enqueued()));
            }
        }
        orphans
    }
}

impl LeftBlock {
    /// Reads a block that is held, and which message each of its rows is of, if that is known. `None` when its header cannot be read any
    /// more; an error when the volume has failed.
    pub(super) fn read(
        queue: &Queue<Directory>,
        held: &Held<'_>,
    ) -> Result<Option<(Self, Option<MessageRows>)>, Fatal> {
        let (header, mut content) = match queue.read(held.id) {
            Ok(read) => read,
            Err(ReadError::Failed(fatal)) => return Err(fatal),
            Err(ReadError::Absent(_) | ReadError::Damaged(_)) => return Ok(None),
        };
        let mut metadata = vec![0; usize::try_from(header.metadata_bytes).unwrap_or(0)];
        let is_read = match content.read(&mut metadata) {
            Ok(_) => true,
            Err(BodyError::Damaged(_)) => false,
            Err(BodyError::Failed(fatal)) => return Err(fatal),
        };
        let range = OffsetRange { first: header.first, next: header.next };
        let (passport, messages) = Passport::decode(&metadata, range).filter(|_| is_read).unzip();
        let Held { id, sent, appended_ms, relied_on, .. } = *held;
        let only_copy = held.only_copy.map(|rows_elsewhere| InWriting { rows_elsewhere, is_new: false });
        let is_read_again = false;
        let block =
            Self { id, head: header, sent, appended_ms, only_copy, is_read_again, relied_on, passport };
        Ok(Some((block, messages)))
    }

    /// Whether this program knows what is kept with it.
    pub(super) fn has_passport(&self) -> bool {
        self.passport.is_some()
    }

    /// Its range, if it can be gone on with: of the log of this cluster, encoded for these columns.
    fn kept(&self, cluster: &str, columns: u64) -> Option<Kept> {
        let passport = self.passport.as_ref().filter(|passport| *passport.cluster == *cluster)?;
        passport.kept.filter(|_| self.head.columns == columns && self.token().is_some())
    }

    /// Set where it was written down that it is the only copy of its rows.
    pub fn in_writing(&self) -> Option<InWriting> {
        self.only_copy
    }

    /// Its record.
    pub fn record(&self) -> BlockId {
        self.id
    }

    /// Which partition it is of.
    pub fn partition(&self) -> PartitionId {
        PartitionId { topic: self.head.topic.clone(), partition: self.head.partition }
    }

    /// Its offsets.
    pub fn range(&self) -> OffsetRange {
        OffsetRange { first: self.head.first, next: self.head.next }
    }

    /// The number that says where its range was first sent, if that was written down.
    pub fn routing_epoch(&self) -> Option<u32> {
        self.head.routing_epoch
    }

    /// Its rows.
    pub fn rows(&self) -> u64 {
        self.head.rows
    }

    /// The columns that it was encoded for, as a number.
    pub fn columns(&self) -> u64 {
        self.head.columns
    }

    /// The cluster that its messages were read from, if that is known.
    pub fn cluster(&self) -> Option<&str> {
        self.passport.as_ref().map(|passport| &*passport.cluster).filter(|cluster| !cluster.is_empty())
    }

    /// What the server knows it by; `None` for a token that is none of ours.
    pub fn token(&self) -> Option<Token> {
        std::str::from_utf8(&self.head.token).ok().and_then(Token::parse)
    }

    /// Whether its offsets may be committed while it is on the volume.
    pub fn is_enqueued(&self) -> bool {
        // What is kept with it may be another version's.
        self.passport.as_ref().map_or(self.relied_on == Some(true), |passport| passport.is_enqueued)
    }

    /// What is asked about it.
    pub fn subject(&self) -> Subject<'_> {
        Subject { range: self.range(), cluster: self.cluster(), is_enqueued: self.is_enqueued() }
    }

    /// Whether it may be on another shard than it goes to now: it may have been sent, and nobody has written down where to.
    pub fn may_be_elsewhere(&self, route: Route) -> bool {
        let may_be_sent = self.is_marked() || (self.is_enqueued() && self.sent != Sent::Sole);
        may_be_sent && self.head.routing_epoch.is_none() && route.shards() > 1
    }

    /// Whether it was sent, or may have been.
    pub fn is_marked(&self) -> bool {
        self.sent.is_marked()
    }

    /// Whether its end follows from the log alone.
    pub fn is_derivable(&self) -> bool {
        self.passport.as_ref().and_then(|passport| passport.kept).is_some_and(|kept| kept.is_derivable)
    }

    /// To be inserted whoever owns its partition, since nobody reads its messages again; `parts` says how far it is if it was sent in
    /// parts before.
    pub fn only_copy(
        &self,
        (token, parts): (Token, Option<Parts>),
        route: Route,
        account: &RowAccount,
    ) -> Ready {
        let passport = self.passport.clone().unwrap_or_default();
        // No generation of a partition has this number.
        let stowed = stowed(self, (&self.partition(), Generation(0)), (token, passport), account);
        let stowed = Stowed { frames: BlockFrames::only_copy(self.id, self.is_marked()), ..stowed };
        let first_sent = match self.sent {
            Sent::At(ms) => ms / 1_000,
            // The commit that it was appended for may not have been stored: then another owner has sent it, later than that.
            Sent::Never | Sent::Sole => self.appended_ms / 1_000,
            // At a time that nobody knows: the token is taken to be forgotten.
            Sent::Doubtful => 0,
        };
        let release = Release {
            range: self.range(),
            first_sent,
            is_inherited: self.is_marked() || (self.is_enqueued() && self.sent != Sent::Sole),
            parts,
            routing_epoch: self.head.routing_epoch.unwrap_or(route.epoch()),
            destination: self.head.destination.and_then(Destination::of_number),
        };
        Ready { stowed, release, generation: Arc::default(), columns: None, rows_elsewhere: 0 }
    }
}

#[cfg(test)]
impl LeftBlock {
    /// The same under a token that another version of this program may have given it.
    pub(crate) fn under_a_foreign_token(mut self) -> Self {
        self.head.token = Box::from(&b"of another version"[..]);
        self
    }
}

fn stowed(
    left: &LeftBlock,
    (id, generation): (&PartitionId, Generation),
    (token, passport): (Token, Passport),
    account: &RowAccount,
) -> Stowed {
    let LeftBlock { id: record, head, sent, .. } = left;
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
    Stowed { block, frames: BlockFrames::left(*record, sent.is_marked(), left.is_enqueued()) }
}
