//! What the poll thread, the commit thread and workers see of the logs.
//!
//! Any thread. The committed offset of a log is written by the commit thread alone; the appender reads it, and removes segments below it.

use crate::source::{
    gate::Gate,
    messages::{Messages, MessagesDeps, owned},
    numbers::SourceNumbers,
    opening::OpenedLog,
};
use sluice_kafka::{Beginning, ConsumerStats, LogKeeper, LogMessages, LogState, OwnedMessage};
use sluice_ranges::{Commit, Log, METADATA_BYTES_MAX, PartitionId, Plan};
use sluice_spool::{
    Directory, Fatal,
    log::{Committed, LogView, Offsets, Read},
};
use std::{
    fs::File,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

/// Ends the process, because the volume has failed.
pub type OnFatal = Arc<dyn Fn(Fatal) + Send + Sync>;

/// Stands for "nothing is committed".
const NOT_COMMITTED: i64 = -1;

/// A log.
struct KeptLog {
    id: PartitionId,
    view: LogView<Directory>,
    offsets: Mutex<Offsets<File>>,
    /// Up to where an earlier run may have sent ranges of which no commit can be read; 0 if that is not so.
    doubtful_up_to: i64,
    /// The offset that was stored last.
    committed: AtomicI64,
    /// The offset behind the message that a worker polled last.
    polled: Arc<AtomicI64>,
    /// Wakes the workers.
    wake: Mutex<Option<Box<dyn Fn() + Send + Sync>>>,
}

/// The logs of this process.
pub struct Keeper {
    volume_id: [u8; 16],
    cluster: Arc<str>,
    logs: Vec<KeptLog>,
    gate: Gate,
    stats: OnceLock<Arc<ConsumerStats>>,
    numbers: Arc<SourceNumbers>,
    on_fatal: OnFatal,
}

impl Keeper {
    /// Keeps these logs.
    pub fn new(
        volume_id: [u8; 16],
        logs: Vec<OpenedLog>,
        gate: Gate,
        numbers: Arc<SourceNumbers>,
        on_fatal: OnFatal,
    ) -> Self {
        let kept = |log: OpenedLog| KeptLog {
            committed: AtomicI64::new(
                log.offsets.committed().map_or(NOT_COMMITTED, |committed| committed.offset),
            ),
            doubtful_up_to: if log.is_commit_doubtful { log.view.end() } else { 0 },
            id: log.id,
            view: log.view,
            offsets: Mutex::new(log.offsets),
            polled: Arc::default(),
            wake: Mutex::default(),
        };
        Self {
            volume_id,
            cluster: format!("{:032x}", u128::from_be_bytes(volume_id)).into(),
            logs: logs.into_iter().map(kept).collect(),
            gate,
            stats: OnceLock::new(),
            numbers,
            on_fatal,
        }
    }

    /// Sets where lost messages are counted. Must be called before the logs are read.
    pub fn counts_in(&self, stats: Arc<ConsumerStats>) {
        self.stats.get_or_init(|| stats);
    }

    /// The committed offset of a log, by its place; 0 if nothing was committed.
    pub fn committed(&self, place: usize) -> i64 {
        self.logs.get(place).map_or(0, |log| log.committed.load(Ordering::Acquire).max(0))
    }

    /// Tells workers that a log has more messages.
    pub fn wake(&self, place: usize) {
        let Some(log) = self.logs.get(place) else { return };
        let wake = log.wake.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wake) = &*wake {
            wake();
        }
    }

    /// Whether requests may be appended to a log, by its place: what is appended to one that cannot be read is not inserted.
    pub fn is_readable(&self, place: usize) -> bool {
        self.logs.get(place).is_some_and(|log| !self.is_unreadable(log))
    }

    fn is_unreadable(&self, log: &KeptLog) -> bool {
        self.numbers.unreadable.has(log.id.partition)
    }

    /// Reads one message again; `None` if the log no longer has it.
    pub fn message(&self, id: &PartitionId, offset: i64) -> Result<Option<OwnedMessage>, Fatal> {
        let Some(log) = self.log(id) else { return Ok(None) };
        match log.view.read_from(offset).read() {
            Ok(Read::Message(message)) if message.offset == offset => Ok(Some(owned(id, message))),
            Ok(_) => Ok(None),
            Err(fatal) if fatal.is_read => Err(fatal),
            Err(fatal) => {
                // The process ends. The message is not said to be gone meanwhile.
                let source = std::io::Error::other(fatal.to_string());
                let again = Fatal { action: "use", file: fatal.file.clone(), source, is_read: false };
                (self.on_fatal)(fatal);
                Err(again)
            }
        }
    }

    /// Messages that can be read and are not committed.
    pub fn messages_left(&self) -> u64 {
        let left = |log: &KeptLog| {
            let committed = log.committed.load(Ordering::Acquire);
            let from = if committed == NOT_COMMITTED { log.view.start() } else { committed };
            u64::try_from(log.view.end().saturating_sub(from)).unwrap_or(0)
        };
        self.logs.iter().filter(|log| !self.is_unreadable(log)).map(left).sum()
    }

    fn log(&self, id: &PartitionId) -> Option<&KeptLog> {
        self.logs.iter().find(|log| log.id == *id)
    }

    fn stats(&self) -> Arc<ConsumerStats> {
        self.stats.get().cloned().unwrap_or_default()
    }
}

/// The plan of a commit, in which ranges that begin below an offset are doubtful. Its planned ranges stay the same, and with them their tokens. A
/// range behind them may have been sent with another end: its rows are counted as possible duplicates.
fn doubted(committed: &Committed, doubtful_up_to: i64) -> String {
    let metadata = committed.metadata.clone();
    if doubtful_up_to <= committed.offset {
        return metadata;
    }
    let Ok(plan) = Plan::decode(committed.offset, &metadata) else {
        // Without a plan, everything is in doubt, and is said to be.
        return metadata;
    };
    let doubtful_up_to = doubtful_up_to.max(plan.doubtful_up_to);
    let doubted = Plan { doubtful_up_to, ..plan }.encode();
    // One that is too long would not be read.
    if doubted.len() <= METADATA_BYTES_MAX { doubted } else { metadata }
}

impl LogKeeper for Keeper {
    fn logs(&self) -> Vec<LogState> {
        let state = |log: &KeptLog| {
            let committed = log.committed.load(Ordering::Acquire);
            LogState {
                id: log.id.clone(),
                // Read before the end: what is appended meanwhile counts as there.
                start: log.view.start(),
                end: log.view.end(),
                committed: (committed != NOT_COMMITTED).then_some(committed),
                polled: log.polled.load(Ordering::Acquire),
                is_unreadable: self.is_unreadable(log),
            }
        };
        self.logs.iter().map(state).collect()
    }

    fn beginning(&self, id: &PartitionId) -> Beginning {
        let log = self.log(id);
        let commit = log.and_then(|log| {
            let offsets = log.offsets.lock().unwrap_or_else(PoisonError::into_inner);
            let committed = offsets.committed()?;
            Some((committed.offset, doubted(committed, log.doubtful_up_to)))
        });
        let (start, end) = log.map_or((0, 0), |log| (log.view.start(), log.view.end()));
        // Everything below the committed offset is done, also if the oldest segment still has it: with another volume id it is not read again.
        let start = commit.as_ref().map_or(start, |(offset, _)| *offset);
        let (cluster, topic_id) = (self.cluster.clone(), Some(self.volume_id));
        Beginning { commit, log: Log { start, end }, cluster, topic_id, is_new: false }
    }

    fn commit(&self, id: &PartitionId, commit: &Commit) -> bool {
        let Some(log) = self.log(id) else { return false };
        let committed =
            Committed { offset: commit.offset, metadata: commit.metadata.clone(), end: log.view.end() };
        let stored = log.offsets.lock().unwrap_or_else(PoisonError::into_inner).store(committed);
        match stored {
            Ok(()) => {
                log.committed.store(commit.offset, Ordering::Release);
                true
            }
            Err(fatal) => {
                (self.on_fatal)(fatal);
                false
            }
        }
    }

    fn messages(
        &self,
        id: &PartitionId,
        position: i64,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> Box<dyn LogMessages> {
        let log = self.log(id).expect("only logs of this keeper are read");
        *log.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
        log.polled.store(position, Ordering::Release);
        let cursor = log.view.read_from(position);
        let (numbers, on_fatal) = (self.numbers.clone(), self.on_fatal.clone());
        let deps = MessagesDeps { stats: self.stats(), numbers, on_fatal, polled: log.polled.clone() };
        Box::new(Messages::new(id.clone(), cursor, deps))
    }

    fn may_append(&self) -> bool {
        self.gate.may_append()
    }
}
