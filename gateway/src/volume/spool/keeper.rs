//! The spool thread's loop: handles requests in turns, the smallest first.

use super::{
    Ended, Leaving, LeftBlock, Leftovers, Note, Request, Shared, Told, Usage, columns::ColumnFiles,
    parts_file::PartsFile,
};
use crate::volume::{
    block_table::Arrival,
    only_copy::{Finding, Logs, RowLocation},
};
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use sluice_clickhouse::column::TableColumns;
use sluice_kafka::Throttle;
use sluice_ranges::PartitionId;
use sluice_spool::{AppendError, BlockId, Directory, Fatal, Full, Held, Lost, Queue, ReadError};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::oneshot;

/// How often marks are synced without a request, and how soon a block is tried again when there was no room. Chosen: a mark that is lost
/// with the machine costs one retry under a known token.
const TICK: Duration = Duration::from_secs(1);

/// The owner of the queue and state of the thread.
pub(super) struct Keeper {
    queue: Queue<Directory>,
    shared: Arc<Shared>,
    left: Leftovers,
    notes: PartsFile,
    columns: ColumnFiles,
    /// Columns that blocks are encoded for and that are not recorded yet.
    unwritten: Option<(u64, Arc<TableColumns>)>,
    /// Blocks on their way.
    spills: VecDeque<(Leaving, Arrival)>,
    /// Callers that wait for a mark to be durable.
    marked: Vec<(BlockId, oneshot::Sender<()>)>,
    /// Callers that wait for room for a note.
    noting: Vec<(Note, oneshot::Sender<()>)>,
    last_tick: Instant,
    /// The line that there is no room. A full volume is tried again at every [`TICK`], possibly for hours.
    full: Throttle,
    /// Whether something was appended or ended since the volume's use was last reported.
    has_changed: bool,
    /// The caller that waits for the end.
    closing: Option<Sender<()>>,
}

impl Keeper {
    pub fn new(
        queue: Queue<Directory>,
        shared: Arc<Shared>,
        (left, notes, columns): (Leftovers, PartsFile, ColumnFiles),
    ) -> Self {
        let keeper = Self {
            queue,
            shared,
            left,
            notes,
            columns,
            unwritten: None,
            spills: VecDeque::new(),
            marked: Vec::new(),
            noting: Vec::new(),
            last_tick: Instant::now(),
            full: Throttle::default(),
            has_changed: false,
            closing: None,
        };
        keeper.tell_usage();
        keeper
    }

    /// Works until there are no callers any more, then syncs everything.
    pub fn run(mut self, requests: &Receiver<Request>) -> Result<(), Fatal> {
        while self.closing.is_none() || !self.spills.is_empty() {
            if self.spills.is_empty() {
                match requests.recv_timeout(TICK) {
                    Ok(request) => self.take(request)?,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            while let Ok(request) = requests.try_recv() {
                self.take(request)?;
            }
            self.sync_marks()?;
            self.take_told()?;
            // The largest piece of work, one at a time: requests for marks and bodies are served in between.
            self.append_next()?;
            if std::mem::take(&mut self.has_changed) {
                self.tell_usage();
            }
            if self.last_tick.elapsed() >= TICK {
                self.tick()?;
            }
        }
        self.take_told()?;
        let usage = self.queue.usage();
        self.queue.close()?;
        if usage.blocks == 0 && usage.kept_bytes == 0 {
            self.columns.remove_all()?;
        }
        if self.closing.is_some_and(|done| done.try_send(()).is_err()) {
            // The caller no longer waits.
        }
        Ok(())
    }

    fn take(&mut self, request: Request) -> Result<(), Fatal> {
        match request {
            Request::Spill { leaving, arrival } => self.spills.push_back((leaving, arrival)),
            Request::Mark { id, now_ms, done } => {
                self.queue.mark_sent(id, now_ms)?;
                self.marked.push((id, done));
            }
            Request::OnlyCopies { found, answer } => {
                let before = found.iter().map(|(id, _)| self.queue.get(*id)?.only_copy).collect();
                self.write_findings(found.into_iter().filter_map(|(_, finding)| finding).collect())?;
                if answer.send(before).is_err() {
                    // The caller has ended; the next run finds it.
                }
            }
            Request::Judge { id, logs, taken_over, done } => {
                // First, so that the result covers these blocks.
                self.take_told()?;
                // Blocks on their way do not belong to the partition that is about to start either.
                while !self.spills.is_empty() {
                    self.append_next()?;
                }
                self.write_findings(self.find(&id, &logs, &taken_over)?)?;
                if done.try_send(()).is_err() {
                    // The caller no longer waits, and asks again.
                }
            }
            Request::Open { id, answer } => {
                let opened = match self.queue.read(id) {
                    Err(ReadError::Failed(fatal)) => return Err(fatal),
                    opened => opened,
                };
                if matches!(opened, Err(ReadError::Damaged(_))) && self.set_aside(id)?.is_some() {
                    // The caller reports what is lost.
                }
                if answer.send(opened).is_err() {
                    // The caller has given up the block.
                }
            }
            Request::Note { note, done } => self.write_note(note, done)?,
            Request::Noted { token, range, answer } => {
                if answer.send(self.notes.read(token, range)?).is_err() {
                    // The caller has ended.
                }
            }
            Request::Columns { number, columns } => {
                self.unwritten = Some((number, columns));
                // An earlier version may have left blocks with these columns without recording them.
                if self.queue.usage().blocks > 0 {
                    self.write_columns()?;
                }
            }
            Request::ColumnsOf { number, answer } => {
                if answer.send(self.columns.read(number)?).is_err() {
                    // The caller has ended.
                }
            }
            Request::Look => {}
            Request::Failed(fatal) => return Err(fatal),
            Request::Close { done } => self.closing = Some(done),
        }
        Ok(())
    }

    /// Writes a note, or keeps it for the next tick if there is no room. Its block must not continue without the note; everything else
    /// does.
    fn write_note(&mut self, note: Note, done: oneshot::Sender<()>) -> Result<(), Fatal> {
        if !self.notes.write(&note)? {
            self.refuse(&Full::Device);
            self.noting.push((note, done));
        } else if done.send(()).is_err() {
            // The caller has given up the block.
        }
        Ok(())
    }

    /// The blocks of a partition that are only copies, by what is known of its log, that are not recorded as such, and that it does not
    /// take over.
    fn find(
        &self,
        id: &PartitionId,
        logs: &Logs,
        taken_over: &BTreeSet<BlockId>,
    ) -> Result<Vec<Finding>, Fatal> {
        let is_unjudged = |held: &Held<'_>| {
            let of = &held.coordinates.partition;
            let is_of_it = (&of.topic, of.partition) == (&id.topic, id.partition);
            is_of_it && held.only_copy.is_none() && !taken_over.contains(&held.id)
        };
        let mut findings = Vec::new();
        for held in self.queue.held().filter(is_unjudged) {
            let Some((block, messages)) = LeftBlock::read(&self.queue, &held)? else { continue };
            match logs.row_location(&block) {
                RowLocation::OnlyCopy(only) => {
                    findings.push(Finding::of(&block, only, messages.as_ref(), logs));
                }
                RowLocation::Settled | RowLocation::InKafka => {}
            }
        }
        Ok(findings)
    }

    /// Records which blocks are only copies. Durable when this returns.
    fn write_findings(&mut self, findings: Vec<Finding>) -> Result<(), Fatal> {
        let mut found = BTreeMap::new();
        for Finding { record, rows_elsewhere, note } in findings {
            let Some(held) = self.queue.get(record).filter(|held| held.only_copy.is_none()) else { continue };
            let rows = held.coordinates.rows;
            // Without the note the block would be sent whole, although parts of it may be stored.
            let is_noted = note.map_or(Ok(true), |note| self.notes.write(&note))?;
            let rows_elsewhere = if is_noted { rows_elsewhere } else { rows };
            self.queue.mark_only_copy(record, rows_elsewhere)?;
            found.insert(record, rows_elsewhere);
        }
        self.queue.sync_blocks(&found.keys().copied().collect::<Vec<_>>())?;
        self.left.are_only_copies(&found);
        Ok(())
    }

    fn sync_marks(&mut self) -> Result<(), Fatal> {
        if self.marked.is_empty() {
            return Ok(());
        }
        let (ids, waiting): (Vec<BlockId>, Vec<_>) = std::mem::take(&mut self.marked).into_iter().unzip();
        self.queue.sync_blocks(&ids)?;
        for done in waiting {
            if done.send(()).is_err() {
                // The caller has given up the block.
            }
        }
        Ok(())
    }

    /// Applies the information about blocks. The next sync makes the marks durable: a block that returns after a crash of the machine
    /// still has its token.
    fn take_told(&mut self) -> Result<(), Fatal> {
        let told = std::mem::take(&mut *self.shared.told.lock().unwrap_or_else(PoisonError::into_inner));
        let Told { sole, unnoted, ended } = told;
        sole.into_iter().try_for_each(|id| self.queue.mark_sole(id))?;
        unnoted.into_iter().try_for_each(|token| self.notes.remove(token))?;
        for (id, ended) in ended {
            self.end_block(id, ended)?;
        }
        Ok(())
    }

    fn end_block(&mut self, id: BlockId, ended: Ended) -> Result<(), Fatal> {
        let bytes = self.queue.body_bytes(id).unwrap_or(0);
        match ended {
            Ended::Orphaned => return self.orphan(id),
            Ended::Left => return Ok(()),
            // The caller has counted it.
            Ended::Damaged => drop(self.set_aside(id)?),
            Ended::Settled | Ended::Dropped => {}
        }
        self.queue.settle(id)?;
        self.has_changed = true;
        self.shared.numbers.ended(ended, bytes);
        self.shared.is_full.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a block that its partition has not taken over an orphan, like those that an earlier run has left.
    fn orphan(&mut self, id: BlockId) -> Result<(), Fatal> {
        let Some(held) = self.queue.get(id) else { return Ok(()) };
        let block = LeftBlock::read(&self.queue, &held)?;
        // This run has written metadata with each. Only copies may be another version's.
        let is_whole = |block: &LeftBlock| block.has_passport() || block.in_writing().is_some();
        match block.filter(|(block, _)| is_whole(block)) {
            Some((block, _)) => self.left.orphan(block),
            None => {
                if let Some(lost) = self.set_aside(id)? {
                    self.left.miss([lost.into()]);
                }
            }
        }
        Ok(())
    }

    fn set_aside(&mut self, id: BlockId) -> Result<Option<Lost>, Fatal> {
        let lost = self.queue.set_aside(id)?;
        if let Some(lost) = &lost {
            self.shared.numbers.set_aside.fetch_add(1, Ordering::Relaxed);
            self.has_changed = true;
            tracing::error!(
                ?lost,
                "a block on the queue volume is damaged; its file is kept under another name"
            );
        }
        Ok(lost)
    }

    /// Appends one block, or, if appends are synced, all waiting blocks with one sync; and reports each.
    fn append_next(&mut self) -> Result<(), Fatal> {
        let syncs = self.shared.syncs;
        let count = if syncs { self.spills.len() } else { self.spills.len().min(1) };
        let mut appended = Vec::with_capacity(count);
        for (leaving, arrival) in self.spills.drain(..count).collect::<Vec<_>>() {
            appended.push((arrival, self.append(leaving)?));
        }
        if syncs {
            let ids: Vec<BlockId> = appended.iter().filter_map(|(_, id)| *id).collect();
            // Before their offsets can be committed: a record that is found torn was then never relied on.
            self.queue.keep_blocks(&ids)?;
        }
        for (arrival, id) in appended {
            if let (Some(ended), Some(id)) = (arrival.arrive(id, syncs), id) {
                self.end_block(id, ended)?;
            }
        }
        if count > 0 {
            // Before the count of spills: without blocks and spills the volume counts as empty.
            self.tell_usage();
        }
        self.shared.spills.fetch_sub(count as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Records the columns that blocks are encoded for, unless they are recorded. `false` if there is no room. Then there is no room for
    /// a block either, because without its columns it could not be sent once the table has others.
    fn write_columns(&mut self) -> Result<bool, Fatal> {
        let Some((number, columns)) = &self.unwritten else { return Ok(true) };
        let is_written = self.columns.write(*number, columns)?;
        if is_written {
            self.unwritten = None;
        } else {
            self.refuse(&Full::Device);
        }
        Ok(is_written)
    }

    /// Appends a block. `None` when there is no room for it.
    fn append(&mut self, Leaving { head, metadata, body }: Leaving) -> Result<Option<BlockId>, Fatal> {
        if !self.write_columns()? {
            return Ok(None);
        }
        let bytes = body.len();
        let pieces: Vec<Bytes> =
            std::iter::once(metadata).chain(body.chunks().unwrap_or_default().iter().cloned()).collect();
        let appended = self.queue.append(&head, &pieces, now_ms());
        // Its chunks return to the pool with the last copy.
        drop((pieces, body));
        match appended {
            Ok(id) => {
                self.shared.numbers.appended.add(self.queue.body_bytes(id).unwrap_or(bytes));
                self.has_changed = true;
                Ok(Some(id))
            }
            Err(AppendError::Fatal(fatal)) => Err(fatal),
            Err(AppendError::Full(full)) => {
                self.refuse(&full);
                Ok(None)
            }
            Err(AppendError::Unfit(unfit)) => {
                self.refuse(&unfit);
                Ok(None)
            }
        }
    }

    /// Records that there is no room: blocks stay in memory, and reading waits for inserts as without a volume.
    fn refuse(&mut self, why: &dyn std::error::Error) {
        self.shared.numbers.refused.fetch_add(1, Ordering::Relaxed);
        self.shared.is_full.store(true, Ordering::Relaxed);
        if self.full.is_due((), Instant::now()) {
            tracing::warn!(%why, "the queue volume takes no more blocks; reading waits for inserts");
        }
    }

    fn tick(&mut self) -> Result<(), Fatal> {
        self.last_tick = Instant::now();
        self.shared.is_full.store(false, Ordering::Relaxed);
        for (note, done) in std::mem::take(&mut self.noting) {
            self.write_note(note, done)?;
        }
        self.queue.sync_sealed()
    }

    fn tell_usage(&self) {
        let usage = self.queue.usage();
        self.shared.numbers.tell(Usage {
            blocks: usage.blocks,
            rows: usage.rows,
            bytes: usage.file_bytes,
            is_damaged: usage.lost > 0 || usage.kept_bytes > 0,
            oldest_ms: usage.oldest_ms,
        });
    }
}

/// Now, in ms since 1970.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
