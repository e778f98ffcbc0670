//! What the poll thread, the commit thread and workers see of the logs.
//!
//! Any thread. The committed offset of a log is written by the commit thread alone; the appender reads it, and removes segments below it.

use crate::source::{
    gate::Gate,
    messages::{Messages, MessagesDeps, owned},
    numbers::SourceNumbers,
    opening::OpenedLog,
    unreadable::Reader,
};
use sluice_kafka::{Beginning, ConsumerStats, LogKeeper, LogMessages, LogState, OwnedMessage};
use sluice_ranges::{Commit, Log, METADATA_BYTES_MAX, PartitionId, Plan};
use sluice_spool::{
    Directory, Fatal,
    log::{Committed, LogView, Offsets, OffsetsFound, Read},
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

/// Wakes a worker.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Stands for "nothing is committed".
const NOT_COMMITTED: i64 = -1;

/// A log.
struct KeptLog {
    id: PartitionId,
    view: LogView<Directory>,
    offsets: Mutex<Offsets<File>>,
    /// Ranges below this offset may have been sent by an earlier run whose commit cannot be read; 0 if every commit can be read.
    doubtful_up_to: i64,
    /// The offset that was stored last.
    committed: AtomicI64,
    /// The offset behind the message that a worker polled last.
    polled: Arc<AtomicI64>,
    /// Wakes the workers.
    wake: Mutex<Option<Wake>>,
}

impl KeptLog {
    /// Messages that are not committed.
    fn messages_left(&self) -> u64 {
        let committed = self.committed.load(Ordering::Acquire);
        let from = if committed == NOT_COMMITTED { self.view.start() } else { committed };
        let end = self.view.end();
        let offsets = u64::try_from(end.saturating_sub(from)).unwrap_or(0);
        offsets.saturating_sub(self.view.absent_between(from, end))
    }
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
            doubtful_up_to: if log.offsets_found == OffsetsFound::Doubtful { log.view.end() } else { 0 },
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

    /// Reads one message again; `None` if the log has removed it.
    pub fn message(&self, id: &PartitionId, offset: i64) -> Result<Option<OwnedMessage>, Fatal> {
        let Some(log) = self.log(id) else { return Ok(None) };
        self.read_again(id, offset, log.view.read_from(offset).read())
    }

    fn read_again(
        &self,
        id: &PartitionId,
        offset: i64,
        read: Result<Read, Fatal>,
    ) -> Result<Option<OwnedMessage>, Fatal> {
        match read {
            Ok(read) => {
                self.numbers.unreadable.succeed(id, Reader::Letters);
                Ok(match read {
                    Read::Message(message) if message.offset == offset => Some(owned(id, message)),
                    Read::Message(_) | Read::Lost(_) | Read::End => None,
                })
            }
            Err(fatal) if fatal.is_unreadable() => {
                self.numbers.unreadable.fail(id, Reader::Letters, (offset, &fatal));
                Err(fatal)
            }
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
        self.logs.iter().filter(|log| !self.is_unreadable(log)).map(KeptLog::messages_left).sum()
    }

    /// Messages that are not committed, also those that cannot be read now.
    pub fn messages_kept(&self) -> u64 {
        self.logs.iter().map(KeptLog::messages_left).sum()
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
            // Read before the end: what is appended meanwhile counts as there.
            let start = log.view.start();
            let end = log.view.end();
            let committed = (committed != NOT_COMMITTED).then_some(committed);
            LogState {
                id: log.id.clone(),
                start,
                end,
                absent: log.view.absent_between(committed.unwrap_or(start), end),
                committed,
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
        // Everything below the committed offset is done, also messages in the oldest segment: with another volume id they are not read again.
        let start = commit.as_ref().map_or(start, |(offset, _)| *offset);
        let (cluster, topic_id) = (self.cluster.clone(), Some(self.volume_id));
        Beginning { commit, log: Log { start, end }, cluster, topic_id, is_new: false }
    }

    fn commit(&self, id: &PartitionId, commit: &Commit) -> bool {
        let Some(log) = self.log(id) else { return false };
        let committed =
            Committed { offset: commit.offset, metadata: commit.metadata.clone(), end: log.view.floor() };
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
        let wake: Wake = wake.into();
        *log.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake.clone());
        log.polled.store(position, Ordering::Release);
        // Blocks of an earlier generation, which waited for messages of theirs, are gone.
        self.numbers.unreadable.succeed(id, Reader::Letters);
        let cursor = log.view.read_from(position);
        let (numbers, on_fatal) = (self.numbers.clone(), self.on_fatal.clone());
        let deps = MessagesDeps { stats: self.stats(), numbers, on_fatal, polled: log.polled.clone(), wake };
        Box::new(Messages::new(id.clone(), cursor, deps))
    }

    fn may_append(&self) -> bool {
        self.gate.may_append()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_kafka::Drain;
    use sluice_otlp_server::ByteBudget;

    #[test]
    fn a_log_of_which_a_message_cannot_be_read_for_its_letter_is_unreadable_until_it_can() {
        let numbers = Arc::new(SourceNumbers::new(ByteBudget::new(1)));
        let fatals = Arc::new(AtomicI64::new(0));
        let seen = fatals.clone();
        let on_fatal: OnFatal = Arc::new(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
        });
        let gate = Gate::new(Drain::default());
        let keeper = Keeper::new([0; 16], Vec::new(), gate, numbers.clone(), on_fatal);
        let id = PartitionId { topic: "otlp".into(), partition: 3 };
        let fatal = |errno, is_read| Fatal {
            action: "read",
            file: "segment".to_owned(),
            source: std::io::Error::from_raw_os_error(errno),
            is_read,
        };
        // EIO
        assert!(keeper.read_again(&id, 7, Err(fatal(5, true))).is_err());
        assert_eq!((numbers.unreadable.numbers(), fatals.load(Ordering::Relaxed)), (vec![3], 0));
        assert!(keeper.read_again(&id, 7, Ok(Read::End)).unwrap().is_none());
        assert!(!numbers.unreadable.any());
        // EMFILE, and a failed rename
        for (errno, is_read, count) in [(24, true, 1), (5, false, 2)] {
            assert!(keeper.read_again(&id, 7, Err(fatal(errno, is_read))).is_err());
            assert_eq!((numbers.unreadable.any(), fatals.load(Ordering::Relaxed)), (false, count));
        }
    }
}
