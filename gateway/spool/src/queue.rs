//! The queue: finished blocks on a volume, in the order in which they were appended.
//!
//! ```text
//!  append, append, ... sync      the caller decides how many share a sync; it makes all earlier appends durable
//!  held                          what is in it, in order
//!  keep_blocks                   makes these durable; they are told from a torn tail: the caller relies on them
//!  mark_sole                     no other process has the block to send
//!  mark_only_copy, sync_blocks   its rows are nowhere else, whatever happens later
//!  mark_sent, sync               before a block's first send
//!  read -> head, Body            its frames, piece by piece
//!  settle, ... sync              it is in ClickHouse: gone; a segment whose blocks are all settled is removed
//! ```
//!
//! Owner: one thread; other threads may read bodies. No clock: the caller passes the time.
//!
//! Guarantees after a crash at any time:
//!
//! - A block whose append was followed by a sync is there until it is settled, with the appended bytes.
//! - A block whose settling was followed by a sync never returns. One whose settling was not may return; it then has its old token, and
//!   counts as sent if it was marked.
//! - A block that was marked as sent, and synced, returns as sent. One that was marked as the only copy of its rows returns as that.
//!
//! Limits: `format`. [`Options::bytes_max`] bounds the bytes on the volume; the limits of blocks and segments bound memory and open
//! files. A block that does not fit is refused before anything is written: the caller stops reading from Kafka.
//!
//! Errors: [`Full`] is back-pressure. A sync that finds no space is not, since the appends before it are in doubt. [`Fatal`] must end the
//! process: after a failed write or sync the state is unknown, and every later call fails as well. (After a failed sync, the next run may
//! still read data from the system's cache that is lost with the machine: after such an error the volume is not to be trusted.)

mod room;

use crate::{
    body::Body,
    entry::{BlockId, Coordinates, Entry, PartitionName, Sent, State},
    failure::Failure,
    files::{Fatal, Files, is_short},
    format::{
        RECORD_HEADER_BYTES, RECORDS_AT, SEGMENT_BYTES_MIN, SEGMENTS_MAX, TOKEN_BYTES_MAX, TOPIC_BYTES_MAX,
        VERSION,
    },
    record::{BlockHead, RecordHeader},
    recover::Partitions,
    recovered::Lost,
    segment::{Segment, Stamp, WriteError, body_bytes},
};
use std::{collections::BTreeMap, sync::Arc};

/// Parameters of a queue.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Of the pipeline: segments with another identity are not changed.
    pub identity: u64,
    /// Of the segments that it creates.
    pub version: u32,
    /// Maximum bytes of all its files.
    pub bytes_max: u64,
    /// Maximum bytes of a segment, except for a single larger block.
    pub segment_bytes: u64,
    /// Whether the caller relies on blocks that are [kept](Queue::keep_blocks). The segments record it: it matters if a block is found
    /// damaged later.
    pub relied_on: bool,
    /// Whether every body is read when the queue is opened, at the speed of the disk. Otherwise bodies of sealed segments are not read:
    /// the seal says that they were durable. A sender then [verifies](Body::verify) a body first.
    pub reads_all: bool,
}

impl Options {
    /// Chooses a segment size that suits the queue's size; every body is read when the queue is opened.
    pub fn new(identity: u64, bytes_max: u64, relied_on: bool) -> Self {
        // A large queue stays below half of SEGMENTS_MAX, since a restart ends a segment early; a small one has 8 segments that can be
        // removed one by one.
        let half = u64::try_from(SEGMENTS_MAX).unwrap_or(u64::MAX).div_ceil(2).max(1);
        let large = bytes_max.checked_div(half).unwrap_or(0);
        let small = (bytes_max >> 3).max(RECORDS_AT.saturating_mul(2));
        let segment_bytes = SEGMENT_BYTES_MIN.min(small).max(large);
        Self { identity, version: VERSION, bytes_max, segment_bytes, relied_on, reads_all: true }
    }
}

/// The limit that was reached. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The files have their maximum size.
    #[error("the queue has reached its maximum size (queue.maxBytes)")]
    Bytes,
    /// The index is full.
    #[error("the queue has reached its maximum number of blocks")]
    Blocks,
    /// The maximum number of segments is open.
    #[error("the queue has reached its maximum number of segments")]
    Segments,
    /// The file system is full.
    #[error("the queue volume's file system is full")]
    Device,
}

/// Why no queue accepts a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The topic's name is empty or too long.
    #[error("the topic's name must have 1 to {TOPIC_BYTES_MAX} bytes")]
    Topic,
    /// The token is too long.
    #[error("the token has more than {TOKEN_BYTES_MAX} bytes")]
    Token,
    /// It has more metadata than allowed, or than its body has bytes.
    #[error("the block has {0} bytes of metadata, more than the queue accepts")]
    Metadata(u32),
    /// It is larger than a block or the whole queue may be.
    #[error("the block has {0} bytes, more than the queue accepts")]
    Bytes(u64),
}

/// Why a block was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Wait until blocks were settled.
    #[error(transparent)]
    Full(#[from] Full),
    /// It never will be: send it without the queue.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// End the process.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}

impl From<WriteError> for AppendError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Full => Self::Full(Full::Device),
            WriteError::Fatal(fatal) => Self::Fatal(fatal),
        }
    }
}

/// Why a block cannot be read. If it is damaged: [`Queue::set_aside`], then read its range from Kafka again.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It was settled, or never appended.
    #[error("block {0:?} is not in the queue")]
    Absent(BlockId),
    /// Its header is damaged.
    #[error("the header of block {0:?} is damaged")]
    Damaged(BlockId),
    /// The volume failed; the block may be intact.
    #[error(transparent)]
    Failed(#[from] Fatal),
}

/// A block in the queue, as the index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held<'a> {
    /// Where it is.
    pub id: BlockId,
    /// What it covers.
    pub coordinates: &'a Coordinates,
    pub body_bytes: u64,
    /// When it was appended, in ms since 1970.
    pub appended_ms: u64,
    /// Whether it may be in ClickHouse.
    pub sent: Sent,
    /// Set if it was [marked](Queue::mark_only_copy) as the only copy of its rows; the number of rows that are stored elsewhere too.
    pub only_copy: Option<u64>,
    /// Whether the caller relies on it once it is kept; `None` if the segment does not record it.
    pub relied_on: Option<bool>,
}

/// How full the queue is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks that are held.
    pub blocks: u64,
    /// Their rows.
    pub rows: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Blocks that cannot be read and are not settled.
    pub lost: u64,
    /// Bytes of all files: what [`Options::bytes_max`] bounds.
    pub file_bytes: u64,
    /// Of those, bytes of damaged files without unsettled blocks, which stay until a user removes them.
    pub kept_bytes: u64,
    /// When the oldest block was appended, in ms since 1970.
    pub oldest_ms: Option<u64>,
}

/// An open queue.
#[derive(Debug)]
pub struct Queue<F: Files> {
    pub(crate) files: F,
    pub(crate) options: Options,
    pub(crate) segments: BTreeMap<u64, Segment<F::File>>,
    pub(crate) partitions: Partitions,
    /// The sequence of the next segment.
    pub(crate) next: u64,
    /// Bytes of damaged files without unsettled blocks.
    pub(crate) kept_bytes: u64,
    /// Bytes of files that were removed since the last sync of the directory: a crash can restore them, beside the files that took their
    /// space.
    pub(crate) removed_bytes: u64,
    pub(crate) directory_dirty: bool,
    /// The fatal error, after one.
    pub(crate) failure: Failure,
}

impl<F: Files> Queue<F> {
    /// Appends a block, whose body is the concatenation of these pieces. It is durable after the next [`Queue::sync`].
    pub fn append<B: AsRef<[u8]>>(
        &mut self,
        head: &BlockHead,
        body: &[B],
        now_ms: u64,
    ) -> Result<BlockId, AppendError> {
        self.failure.check("the queue")?;
        let body_bytes = body_bytes(body);
        self.fits(head, body_bytes)?;
        let record_bytes = body_bytes.saturating_add(RECORD_HEADER_BYTES as u64);
        let outcome = self.make_room(record_bytes).and_then(|sequence| {
            let name = PartitionName { topic: head.topic.clone(), partition: head.partition };
            let stamp =
                Stamp { identity: self.options.identity, now_ms, partition: self.partitions.get(name) };
            let segment = self.segments.get_mut(&sequence).expect("the segment that has room is there");
            Ok(segment.append(head, body, stamp)?)
        });
        if let Err(AppendError::Fatal(fatal)) = &outcome {
            self.failure.note(fatal);
        }
        outcome
    }

    /// Makes all earlier appends, marks and settlings durable. After an error the process must end.
    pub fn sync(&mut self) -> Result<(), Fatal> {
        self.guarded(|queue| {
            for segment in queue.segments.values_mut() {
                segment.sync()?;
            }
            queue.sync_directory()
        })
    }

    /// Makes these blocks and their earlier marks durable: syncs only their segments. After an error the process must end.
    pub fn sync_blocks(&mut self, ids: &[BlockId]) -> Result<(), Fatal> {
        self.guarded(|queue| {
            for id in ids {
                if let Some(segment) = queue.segments.get_mut(&id.segment) {
                    segment.sync()?;
                }
            }
            queue.sync_directory()
        })
    }

    /// [Makes these blocks durable](Self::sync_blocks), and marks them as kept: the caller relies on them from now on. A block that is
    /// later found [cut](crate::Cut) off is then none of them. The marks are not synced: a loss of power may remove marks, but not the
    /// blocks; a process crash removes neither.
    pub fn keep_blocks(&mut self, ids: &[BlockId]) -> Result<(), Fatal> {
        self.sync_blocks(ids)?;
        self.guarded(|queue| {
            for id in ids {
                if let Some(segment) = queue.segments.get_mut(&id.segment) {
                    segment.mark_kept(id.ordinal)?;
                }
            }
            Ok(())
        })
    }

    /// Makes durable the earlier marks and settlings in sealed segments, and the removal of segments. After an error the process must
    /// end.
    pub fn sync_sealed(&mut self) -> Result<(), Fatal> {
        self.guarded(|queue| {
            for segment in queue.segments.values_mut().filter(|segment| segment.sealed) {
                segment.sync()?;
            }
            queue.sync_directory()
        })
    }

    /// Bytes of a block's body; `None` if it is not held.
    pub fn body_bytes(&self, id: BlockId) -> Option<u64> {
        let entry = self.segments.get(&id.segment)?.entry(id.ordinal)?;
        (entry.state == State::Held).then_some(entry.body_bytes)
    }

    /// The blocks that are held, in order.
    pub fn held(&self) -> impl Iterator<Item = Held<'_>> {
        self.segments.values().flat_map(move |segment| {
            let ids = (0..segment.blocks()).map(|ordinal| BlockId { segment: segment.sequence, ordinal });
            ids.filter_map(|id| self.get(id))
        })
    }

    /// A block, if it is held.
    pub fn get(&self, id: BlockId) -> Option<Held<'_>> {
        let segment = self.segments.get(&id.segment)?;
        let (entry, relied_on) = (segment.entry(id.ordinal)?, segment.relied_on);
        let coordinates = entry.coordinates.as_ref().filter(|_| entry.state == State::Held)?;
        let Entry { body_bytes, appended_ms, sent, only_copy, .. } = *entry;
        Some(Held { id, coordinates, body_bytes, appended_ms, sent, only_copy, relied_on })
    }

    /// Reads a block. Its body can be read even after the block is settled.
    pub fn read(&self, id: BlockId) -> Result<(BlockHead, Body<F::File>), ReadError> {
        let segment = self.segments.get(&id.segment).ok_or(ReadError::Absent(id))?;
        let entry = segment.entry(id.ordinal).filter(|entry| entry.state == State::Held);
        let at = entry.ok_or(ReadError::Absent(id))?.at;
        let mut bytes = [0; RECORD_HEADER_BYTES];
        let is_whole = match crate::files::FileAt::read_exact_at(&*segment.file, &mut bytes, at) {
            Err(error) if !is_short(&error) => {
                return Err(Fatal::of_read("read", &segment.name)(error).into());
            }
            read => read.is_ok(),
        };
        let header = RecordHeader::decode(&bytes).filter(|_| is_whole);
        let ours = |header: &RecordHeader| header.sequence == id.segment && header.ordinal == id.ordinal;
        let header = header.filter(ours).ok_or(ReadError::Damaged(id))?;
        let body_at = at.saturating_add(RECORD_HEADER_BYTES as u64);
        let file = (Arc::clone(&segment.file), segment.name.as_str().into());
        let body = Body::new(file, (body_at, header.body_bytes), header.body_crc);
        Ok((header.head, body))
    }

    /// Marks a block that may have been sent. The mark must be synced before the block is sent.
    pub fn mark_sent(&mut self, id: BlockId, now_ms: u64) -> Result<(), Fatal> {
        self.guarded(|queue| match queue.segments.get_mut(&id.segment) {
            Some(segment) => segment.mark_sent(id.ordinal, now_ms),
            None => Ok(()),
        })
    }

    /// Marks a block that was not sent and that no other process has to send. It need not be synced: without the mark, others may have
    /// sent the block. Does nothing to a block that may have been sent from here.
    pub fn mark_sole(&mut self, id: BlockId) -> Result<(), Fatal> {
        self.guarded(|queue| match queue.segments.get_mut(&id.segment) {
            Some(segment) => segment.mark_sole(id.ordinal),
            None => Ok(()),
        })
    }

    /// Marks a block as the only copy of its rows, except for `rows_elsewhere`. An existing mark stays. The mark must be synced before
    /// the caller relies on it: then every later open finds it, until the block is settled.
    pub fn mark_only_copy(&mut self, id: BlockId, rows_elsewhere: u64) -> Result<(), Fatal> {
        self.guarded(|queue| match queue.segments.get_mut(&id.segment) {
            Some(segment) => segment.mark_only_copy(id.ordinal, rows_elsewhere),
            None => Ok(()),
        })
    }

    /// Removes a block: it is in ClickHouse, or accounted for otherwise. Lost blocks are settled like others. Settling again changes
    /// nothing.
    pub fn settle(&mut self, id: BlockId) -> Result<(), Fatal> {
        self.guarded(|queue| queue.settle_unguarded(id))
    }

    /// Records that a block cannot be read: it is no longer held, and its segment's file is renamed and never removed. Its range must be
    /// read from Kafka again, or counted; then it is settled.
    pub fn set_aside(&mut self, id: BlockId) -> Result<Option<Lost>, Fatal> {
        self.guarded(|queue| {
            let Some(segment) = queue.segments.get_mut(&id.segment) else { return Ok(None) };
            if segment.entry(id.ordinal).is_none_or(|entry| entry.state != State::Held) {
                return Ok(None);
            }
            let relied_on = segment.relied_on;
            let entry = segment.entry_mut(id.ordinal);
            entry.state = State::Lost;
            let lost = Lost::of(id, entry, relied_on);
            // Nothing more is appended to a damaged file.
            segment.seal()?;
            queue.rename_damaged(id.segment)?;
            queue.sync_directory()?;
            Ok(Some(lost))
        })
    }

    /// How full it is.
    pub fn usage(&self) -> Usage {
        let mut usage =
            Usage { file_bytes: self.file_bytes(), kept_bytes: self.kept_bytes, ..Usage::default() };
        for held in self.held() {
            usage.blocks = usage.blocks.saturating_add(1);
            usage.rows = usage.rows.saturating_add(held.coordinates.rows);
            usage.body_bytes = usage.body_bytes.saturating_add(held.body_bytes);
            usage.oldest_ms = Some(usage.oldest_ms.map_or(held.appended_ms, |ms| ms.min(held.appended_ms)));
        }
        let live = self.segments.values().map(|segment| u64::from(segment.live)).sum::<u64>();
        usage.lost = live.saturating_sub(usage.blocks);
        usage
    }

    /// Closes the queue: makes everything durable. An empty queue leaves no files on the volume.
    pub fn close(mut self) -> Result<(), Fatal> {
        self.guarded(|queue| {
            let sequences: Vec<u64> = queue.segments.keys().copied().collect();
            for sequence in sequences {
                if let Some(segment) = queue.segments.get_mut(&sequence) {
                    segment.seal()?;
                }
                queue.remove_if_empty(sequence)?;
            }
            for segment in queue.segments.values_mut() {
                segment.sync()?;
            }
            queue.sync_directory()
        })
    }

    fn settle_unguarded(&mut self, id: BlockId) -> Result<(), Fatal> {
        let Some(segment) = self.segments.get_mut(&id.segment) else { return Ok(()) };
        if segment.settle(id.ordinal)? && segment.sealed {
            self.remove_if_empty(id.segment)?;
        }
        Ok(())
    }

    fn guarded<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Fatal>) -> Result<T, Fatal> {
        self.failure.check("the queue")?;
        let outcome = act(self);
        self.failure.keep(outcome)
    }
}
