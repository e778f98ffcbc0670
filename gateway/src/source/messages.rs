//! A log as a queue of messages: what a worker polls.
//!
//! Owner: the worker that has the log. It reads files, a message at a time; the appender's thread is not involved. What is damaged is counted
//! and logged, and passed: its file stays on the volume under another name. If the volume does not give an answer (an input/output error), nothing
//! is passed: the log rests, and is read again later.

use crate::source::{keeper::OnFatal, numbers::SourceNumbers, unreadable::ADVICE};
use sluice_kafka::{ConsumerStats, KafkaError, LogMessages, OwnedMessage, Timestamp};
use sluice_ranges::PartitionId;
use sluice_spool::{
    Fatal, Files,
    log::{Cursor, LostMessages, Message, Read},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a log rests that could not be read. Chosen: a disk that fails takes seconds for each try, and the thread has other logs.
const UNREADABLE_WAIT: Duration = Duration::from_mins(1);

/// What a queue is made with.
pub struct MessagesDeps {
    /// Where lost messages are counted.
    pub stats: Arc<ConsumerStats>,
    pub numbers: Arc<SourceNumbers>,
    pub on_fatal: OnFatal,
    /// The offset behind the message that was polled last.
    pub polled: Arc<AtomicI64>,
}

/// The messages of a log from an offset on.
pub struct Messages<F: Files> {
    id: PartitionId,
    cursor: Cursor<F>,
    deps: MessagesDeps,
    /// Whether the end was reported since the last message.
    end_told: bool,
    /// When the volume failed last; `None` while it can be read.
    failed: Option<Instant>,
}

impl<F: Files> Messages<F> {
    pub fn new(id: PartitionId, cursor: Cursor<F>, deps: MessagesDeps) -> Self {
        Self { id, cursor, deps, end_told: false, failed: None }
    }

    /// Ends the process if the volume could not be changed. If it could not be read, this log rests, and others go on.
    fn fail(&mut self, fatal: Fatal) {
        self.failed = Some(Instant::now());
        if !fatal.is_read {
            (self.deps.on_fatal)(fatal);
        } else if self.deps.numbers.unreadable.add(self.id.partition) {
            let offset = self.cursor.position();
            tracing::error!(log = %self.id, offset, error = %fatal, "a log on the queue volume cannot be read: {ADVICE}");
        }
    }

    fn count_lost(&self, lost: LostMessages) {
        self.deps.numbers.is_damaged.store(true, Ordering::Relaxed);
        self.deps.stats.messages_lost.fetch_add(lost.count(), Ordering::Relaxed);
        let LostMessages { first, next, is_exact } = lost;
        tracing::error!(
            log = %self.id,
            first,
            next,
            messages = lost.count(),
            is_exact,
            "messages on the queue volume cannot be read: their requests were answered with success, and their rows are lost; the damaged \
             file stays on the volume. Rows next to them may be stored twice if they were in flight"
        );
    }
}

/// Nothing is polled of a log that no worker has.
impl<F: Files> Drop for Messages<F> {
    fn drop(&mut self) {
        self.deps.polled.store(-1, Ordering::Release);
    }
}

/// A message of a log, as Kafka's are.
pub fn owned(id: &PartitionId, message: Message) -> OwnedMessage {
    let timestamp = Timestamp::CreateTime(i64::try_from(message.appended_ms).unwrap_or(i64::MAX));
    let topic = id.topic.to_string();
    OwnedMessage::new(Some(message.payload), None, topic, timestamp, id.partition, message.offset, None)
}

impl<F: Files + Send + Sync> LogMessages for Messages<F>
where
    F::File: Send + Sync,
{
    fn poll(&mut self) -> Option<Result<OwnedMessage, KafkaError>> {
        if self.failed.is_some_and(|failed| failed.elapsed() < UNREADABLE_WAIT) {
            return None;
        }
        loop {
            let read = self.cursor.read();
            self.deps.polled.store(self.cursor.position(), Ordering::Release);
            if read.is_ok() {
                self.failed = None;
                if self.deps.numbers.unreadable.remove(self.id.partition) {
                    tracing::info!(log = %self.id, "the log on the queue volume can be read again");
                }
            }
            match read {
                Ok(Read::Message(message)) => {
                    self.end_told = false;
                    return Some(Ok(owned(&self.id, message)));
                }
                Ok(Read::Lost(lost)) => {
                    // The end comes again: there the worker asks for the position behind these.
                    self.end_told = false;
                    self.count_lost(lost);
                }
                Ok(Read::End) => {
                    let was_told = std::mem::replace(&mut self.end_told, true);
                    return (!was_told).then_some(Err(KafkaError::PartitionEOF(self.id.partition)));
                }
                Err(fatal) => {
                    self.fail(fatal);
                    return None;
                }
            }
        }
    }

    fn position(&self) -> i64 {
        self.cursor.position()
    }
}
