//! The thread that owns the logs: appends requests, syncs once for all that wait, answers, and removes what is committed.
//!
//! ```text
//!  wait for a request -> take all others that wait -> records -> the log with the fewest bytes -> one sync a log -> answer, wake workers
//! ```
//!
//! A record has what came together, up to [`RECORD_BYTES`]. A small turn is one record in one log, and one sync. A large turn is
//! spread over the logs.
//!
//! Limits: [`APPENDS_MAX`] requests wait, whose memory the permits bound; [`TURN_BYTES_MAX`] a turn; all logs together have at most
//! `log_bytes_max` on the volume.

use crate::{
    ground::metrics::Metrics,
    source::{
        fullness,
        gate::Entered,
        keeper::{Keeper, OnFatal},
        numbers::SourceNumbers,
    },
};
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use sluice_gateway_config::VolumeLimit;
use sluice_otlp_server::BytePermit;
use sluice_spool::{
    Directory, Fatal, Full,
    log::{LOG_SEGMENTS_MAX, Log, LogError, Payload, RECORD_MESSAGES_MAX},
};
use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::oneshot;

/// Requests that wait for the thread. Chosen: more than the server has under way.
const APPENDS_MAX: usize = 1_024;

/// Bytes of a record, unless a single request is larger. Chosen: a worker reads its table of messages at once, and a damaged header loses a record.
const RECORD_BYTES: usize = 1 << 20;

/// Bytes of requests that share a sync. Chosen: a disk writes them in some tenths of a second, so that the first of them is not late.
const TURN_BYTES_MAX: usize = 32 << 20;

/// How often committed segments are removed, if no request comes. Chosen: a volume that was full takes requests soon after ClickHouse does.
const REMOVE_INTERVAL: Duration = Duration::from_millis(200);

/// A request on its way into a log.
#[derive(Debug)]
pub struct Append {
    /// The request as protobuf, or that packed.
    pub message: Bytes,
    /// If it is packed, the bytes that it had before.
    pub raw_bytes: Option<u32>,
    pub spans: u64,
    /// Its memory, held until the answer.
    pub permit: BytePermit,
    pub entered: Entered,
    /// When its body was complete.
    pub begun: Instant,
    pub answer: oneshot::Sender<Result<(), Unstored>>,
}

impl Append {
    /// What is stored of it.
    fn payload(&self) -> Payload<'_> {
        Payload { bytes: &self.message, raw_bytes: self.raw_bytes }
    }
}

/// Why a request is not in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unstored {
    /// It cannot be read.
    Malformed(String),
    /// It is too large.
    TooLarge(String),
    /// It can be sent again. `spans` were counted for its tenant.
    Full { why: String, spans: u64 },
    /// No thread is free, or the process ends.
    Busy(&'static str),
}

/// What the thread works with.
pub struct Appender {
    pub logs: Vec<Log<Directory>>,
    /// The first so many logs get requests.
    pub accepting: usize,
    /// Bytes of logs that could not be opened.
    pub unreadable_bytes: u64,
    pub keeper: Arc<Keeper>,
    pub metrics: Arc<Metrics>,
    pub numbers: Arc<SourceNumbers>,
    /// The volume's path, and its size in bytes.
    pub volume: (String, u64),
    pub on_fatal: OnFatal,
}

impl Appender {
    /// Starts the thread. It ends once all senders are dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(self) -> std::io::Result<(Sender<Append>, thread::JoinHandle<()>)> {
        let (appends, appends_in) = bounded(APPENDS_MAX);
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || self.run(&appends_in))?;
        Ok((appends, thread))
    }

    fn run(mut self, appends: &Receiver<Append>) {
        let mut removed = Instant::now();
        loop {
            let first = appends.recv_timeout(REMOVE_INTERVAL);
            let turn = match first {
                Ok(first) => self.turn(take_turn(first, appends)),
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let kept = turn.and_then(|()| {
                if removed.elapsed() < REMOVE_INTERVAL {
                    return Ok(());
                }
                removed = Instant::now();
                self.remove_committed()
            });
            self.count();
            if let Err(fatal) = kept {
                // Requests that wait get no success: their senders are dropped.
                return (self.on_fatal)(fatal);
            }
        }
        self.close();
    }

    /// Appends the requests of a turn, syncs, and answers.
    fn turn(&mut self, turn: Vec<Append>) -> Result<(), Fatal> {
        if !(0..self.accepting).any(|place| self.keeper.is_readable(place)) {
            let why = format!("no log on the queue volume {} can be read", self.volume.0);
            for append in turn {
                answer_full(append, &why);
            }
            return Ok(());
        }
        let mut stored = Vec::with_capacity(turn.len());
        let mut dirty = vec![false; self.logs.len()];
        for record in records(turn) {
            match self.append(&record) {
                Ok(place) => {
                    dirty[place] = true;
                    stored.extend(record);
                }
                Err(LogError::Fatal(fatal)) => return Err(fatal),
                Err(unfit @ LogError::Unfit { .. }) => {
                    for append in record {
                        answer(append, Err(Unstored::TooLarge(unfit.to_string())));
                    }
                }
                Err(LogError::Full(full)) => {
                    self.numbers.fullness.refuse(fullness::limit(full), Instant::now());
                    let why = self.why_full(full);
                    for append in record {
                        answer_full(append, &why);
                    }
                }
            }
        }
        let begun = Instant::now();
        for (log, is_dirty) in self.logs.iter_mut().zip(&dirty) {
            if *is_dirty {
                log.sync()?;
            }
        }
        if !stored.is_empty() {
            self.metrics.requests.sync_seconds.observe(begun.elapsed().as_secs_f64());
        }
        for append in stored {
            self.count_stored(&append);
            answer(append, Ok(()));
        }
        dirty
            .iter()
            .enumerate()
            .filter(|(_, is_dirty)| **is_dirty)
            .for_each(|(place, _)| self.keeper.wake(place));
        Ok(())
    }

    /// Appends a record to the log with the fewest bytes, of those that can be read and may begin a segment. If there is no room, what is committed is
    /// removed first. Returns the log's place.
    fn append(&mut self, record: &[Append]) -> Result<usize, LogError> {
        let messages: Vec<Payload<'_>> = record.iter().map(Append::payload).collect();
        let logs = self.logs[..self.accepting].iter().enumerate();
        let rank = |place: usize, log: &Log<Directory>| {
            (!self.keeper.is_readable(place), !log.may_begin_segment(), log.file_bytes())
        };
        let emptiest = logs.min_by_key(|(place, log)| rank(*place, log));
        let (place, _) = emptiest.expect("the config says at least one log");
        let room = self.room();
        match self.logs[place].append_payloads(&messages, now_ms(), room) {
            Err(LogError::Full(_)) if self.has_committed() => {
                for (place, log) in self.logs.iter_mut().enumerate() {
                    log.compact(self.keeper.committed(place))?;
                    log.sync()?;
                }
                let room = self.room();
                self.logs[place].append_payloads(&messages, now_ms(), room)?;
            }
            appended => {
                appended?;
            }
        }
        Ok(place)
    }

    /// Bytes that the logs may still take together.
    fn room(&self) -> u64 {
        self.numbers.log_bytes_max.load(Ordering::Relaxed).saturating_sub(self.used())
    }

    /// Bytes of all logs.
    fn used(&self) -> u64 {
        self.logs.iter().map(Log::file_bytes).fold(self.unreadable_bytes, u64::saturating_add)
    }

    /// Whether something may be removed: a full volume is not compacted for each request.
    fn has_committed(&self) -> bool {
        self.logs.iter().enumerate().any(|(place, log)| log.start() < self.keeper.committed(place))
    }

    fn remove_committed(&mut self) -> Result<(), Fatal> {
        for (place, log) in self.logs.iter_mut().enumerate() {
            log.remove_below(self.keeper.committed(place))?;
            log.sync()?;
        }
        Ok(())
    }

    /// The answer to a request for which there is no room.
    fn why_full(&self, full: Full) -> String {
        let used = self.used();
        let most = self.numbers.log_bytes_max.load(Ordering::Relaxed);
        let (path, volume_bytes) = &self.volume;
        format!(
            "the queue volume {path} has no room ({full}): requests that ClickHouse does not have yet take {used} of {most} bytes, and the \
             volume has {volume_bytes}; send it again. If ClickHouse is slow for longer, {}",
            more_room(fullness::limit(full))
        )
    }

    fn count_stored(&self, append: &Append) {
        let metrics = &self.metrics.requests;
        metrics.stored.inc();
        metrics.spans.inc_by(append.spans);
        let payload = append.payload();
        metrics.bytes.inc_by(payload.message_bytes());
        metrics.stored_bytes.inc_by(payload.bytes.len() as u64);
        metrics.store_seconds.observe(append.begun.elapsed().as_secs_f64());
    }

    fn count(&self) {
        self.numbers.log_bytes.store(self.used(), Ordering::Relaxed);
    }

    /// Closes the logs: those that are empty leave no segment.
    fn close(self) {
        for (place, log) in self.logs.into_iter().enumerate() {
            if let Err(fatal) = log.close(self.keeper.committed(place)) {
                // What was answered is synced. The next start does the rest again.
                tracing::warn!(error = %fatal, "a log on the queue volume was not closed in order");
            }
        }
    }
}

/// The first request, and those that wait behind it. Those are left out whose clients have gone, or have another answer already: they are
/// sent again, and would be stored twice while the disk is slow.
fn take_turn(first: Append, appends: &Receiver<Append>) -> Vec<Append> {
    let (mut bytes, mut turn) = (0_usize, Vec::new());
    let mut next = Some(first);
    while let Some(append) = next {
        if !append.answer.is_closed() {
            bytes = bytes.saturating_add(append.message.len());
            turn.push(append);
        }
        let has_room = bytes < TURN_BYTES_MAX && turn.len() < RECORD_MESSAGES_MAX;
        next = if has_room { appends.try_recv().ok() } else { None };
    }
    turn
}

/// The requests of a turn in records.
fn records(turn: Vec<Append>) -> Vec<Vec<Append>> {
    let mut records: Vec<Vec<Append>> = Vec::new();
    let mut bytes = 0_usize;
    for append in turn {
        let more = append.message.len();
        match records.last_mut() {
            Some(record) if bytes.saturating_add(more) <= RECORD_BYTES => {
                bytes = bytes.saturating_add(more);
                record.push(append);
            }
            _ => {
                bytes = more;
                records.push(vec![append]);
            }
        }
    }
    records
}

/// Answers a request, and gives its memory back.
fn answer(append: Append, result: Result<(), Unstored>) {
    let Append { message, permit, entered, answer, .. } = append;
    drop((message, permit));
    if answer.send(result).is_err() {
        // The client has gone, or has another answer already.
    }
    drop(entered);
}

/// What gives requests more room.
fn more_room(limit: VolumeLimit) -> String {
    match limit {
        VolumeLimit::Bytes => "raise queue.maxBytes, or increase the volume".to_owned(),
        VolumeLimit::Device => "increase the volume".to_owned(),
        VolumeLimit::Segments => format!(
            "send more spans in a request, or raise source.otlp.logs: each log has at most {LOG_SEGMENTS_MAX} files, and a larger volume \
             does not change that"
        ),
    }
}

fn answer_full(append: Append, why: &str) {
    let (why, spans) = (why.to_owned(), append.spans);
    answer(append, Err(Unstored::Full { why, spans }));
}

/// Now, in ms since 1970.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "appender_tests.rs"]
mod tests;
