//! A log as a queue of messages: what a worker polls.
//!
//! Owner: the worker that has the log. It reads files, a message at a time; the appender's thread is not involved. What is damaged is counted
//! and logged, and passed: its file stays on the volume under another name. If the volume does not give an answer (an input/output error), nothing
//! is passed: the log rests, and is read again later. After any other failure nothing is read: the process ends.

use crate::source::{
    keeper::{OnFatal, Wake},
    numbers::SourceNumbers,
    unreadable::Reader,
};
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
    /// Wakes the worker: it is to poll again.
    pub wake: Wake,
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
    /// Whether the process ends because of the volume.
    has_ended: bool,
}

impl<F: Files> Messages<F> {
    pub fn new(id: PartitionId, cursor: Cursor<F>, deps: MessagesDeps) -> Self {
        Self { id, cursor, deps, end_told: false, failed: None, has_ended: false }
    }

    /// If the disk does not give a message, this log rests, and others go on. Otherwise the process ends.
    fn fail(&mut self, fatal: Fatal) {
        if fatal.is_unreadable() {
            self.failed = Some(Instant::now());
            let offset = self.cursor.position();
            self.deps.numbers.unreadable.fail(&self.id, Reader::Worker, (offset, &fatal));
        } else {
            self.has_ended = true;
            (self.deps.on_fatal)(fatal);
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
        if self.has_ended || self.failed.is_some_and(|failed| failed.elapsed() < UNREADABLE_WAIT) {
            return None;
        }
        let read = self.cursor.read();
        self.deps.polled.store(self.cursor.position(), Ordering::Release);
        if read.is_ok() {
            self.failed = None;
            self.deps.numbers.unreadable.succeed(&self.id, Reader::Worker);
        }
        match read {
            Ok(Read::Message(message)) => {
                self.end_told = false;
                Some(Ok(owned(&self.id, message)))
            }
            Ok(Read::Lost(lost)) => {
                // The end comes again: there the worker asks for the position behind these.
                self.end_told = false;
                self.count_lost(lost);
                // There may be thousands of them, each on a slow disk: the thread has other logs, too.
                (self.deps.wake)();
                None
            }
            Ok(Read::End) => {
                let was_told = std::mem::replace(&mut self.end_told, true);
                (!was_told).then_some(Err(KafkaError::PartitionEOF(self.id.partition)))
            }
            Err(fatal) => {
                self.fail(fatal);
                None
            }
        }
    }

    fn position(&self) -> i64 {
        self.cursor.position()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_kafka::Message as _;
    use sluice_otlp_server::ByteBudget;
    use sluice_spool::{
        Directory,
        format::{RECORD_HEADER_BYTES, RECORDS_AT},
        log::{Log, LogOptions},
    };
    use std::{
        fs::File,
        io,
        path::PathBuf,
        sync::{Mutex, atomic::AtomicI32},
    };

    const EIO: i32 = 5;
    const EACCES: i32 = 13;
    const EMFILE: i32 = 24;

    /// A folder in which files cannot be opened, or not renamed, with these errors; 0 for none.
    struct Failing {
        directory: Directory,
        open: Arc<AtomicI32>,
        rename: Arc<AtomicI32>,
    }

    fn outcome(errno: &AtomicI32) -> io::Result<()> {
        match errno.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    impl Files for Failing {
        type File = File;

        fn names(&self) -> io::Result<Vec<String>> {
            self.directory.names()
        }

        fn create(&self, name: &str) -> io::Result<File> {
            self.directory.create(name)
        }

        fn open(&self, name: &str) -> io::Result<File> {
            outcome(&self.open)?;
            self.directory.open(name)
        }

        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            outcome(&self.rename)?;
            self.directory.rename(from, to)
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            self.directory.remove(name)
        }

        fn sync_directory(&self) -> io::Result<()> {
            self.directory.sync_directory()
        }
    }

    /// A log of three messages of one byte, and what is seen of it.
    struct Scene {
        path: PathBuf,
        messages: Messages<Failing>,
        open: Arc<AtomicI32>,
        rename: Arc<AtomicI32>,
        numbers: Arc<SourceNumbers>,
        fatals: Arc<Mutex<Vec<String>>>,
        woken: Arc<AtomicI64>,
    }

    impl Scene {
        /// Flips a bit of these messages.
        fn new(test: &str, damaged: &[usize]) -> Self {
            let path = std::env::temp_dir().join(format!("sluice-messages-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            let (open, rename) = (Arc::new(AtomicI32::new(0)), Arc::new(AtomicI32::new(0)));
            let directory = Directory::open(&path).unwrap();
            let files = Failing { directory, open: open.clone(), rename: rename.clone() };
            let (mut log, _offsets, _) = Log::open(files, LogOptions::new(7, 0, "otlp", 1 << 30)).unwrap();
            log.append(&[b"a", b"b", b"c"], 1, u64::MAX).unwrap();
            log.sync().unwrap();
            let segment = path.join("segment-0000000000000001.spool");
            let mut content = std::fs::read(&segment).unwrap();
            for message in damaged {
                content[usize::try_from(RECORDS_AT).unwrap() + RECORD_HEADER_BYTES + 24 + message] ^= 1;
            }
            std::fs::write(&segment, content).unwrap();
            let numbers = Arc::new(SourceNumbers::new(ByteBudget::new(1)));
            let (fatals, woken) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicI64::new(0)));
            let (seen, wakes) = (fatals.clone(), woken.clone());
            let deps = MessagesDeps {
                stats: Arc::default(),
                numbers: numbers.clone(),
                on_fatal: Arc::new(move |fatal: Fatal| seen.lock().unwrap().push(fatal.to_string())),
                polled: Arc::default(),
                wake: Arc::new(move || {
                    wakes.fetch_add(1, Ordering::Relaxed);
                }),
            };
            let id = PartitionId { topic: "otlp".into(), partition: 0 };
            let messages = Messages::new(id, log.view().read_from(0), deps);
            Self { path, messages, open, rename, numbers, fatals, woken }
        }

        /// The offset of the message that is polled, if there is one.
        fn poll(&mut self) -> Option<i64> {
            self.messages.poll().map(|polled| polled.unwrap().offset())
        }

        fn fatals(&self) -> usize {
            self.fatals.lock().unwrap().len()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.path).ok();
        }
    }

    #[test]
    fn a_log_that_the_disk_does_not_give_rests_and_after_another_error_nothing_is_read() {
        let mut scene = Scene::new("rests", &[]);
        scene.open.store(EIO, Ordering::Relaxed);
        assert_eq!((scene.poll(), scene.fatals()), (None, 0));
        assert_eq!(scene.numbers.unreadable.numbers(), [0]);
        scene.open.store(0, Ordering::Relaxed);
        assert_eq!(scene.poll(), None, "it rests");
        scene.messages.failed = None;
        assert_eq!(scene.poll(), Some(0));
        assert!(!scene.numbers.unreadable.any());
        let mut scene = Scene::new("ends", &[]);
        scene.open.store(EMFILE, Ordering::Relaxed);
        assert_eq!((scene.poll(), scene.fatals()), (None, 1));
        scene.open.store(0, Ordering::Relaxed);
        assert_eq!((scene.poll(), scene.fatals()), (None, 1));
        assert!(!scene.numbers.unreadable.any());
    }

    #[test]
    fn nothing_is_read_behind_damage_that_cannot_be_marked() {
        let mut scene = Scene::new("unmarked", &[0]);
        scene.rename.store(EACCES, Ordering::Relaxed);
        assert_eq!((scene.poll(), scene.fatals()), (None, 1));
        scene.rename.store(0, Ordering::Relaxed);
        assert_eq!((scene.poll(), scene.fatals(), scene.messages.position()), (None, 1, 0));
    }

    #[test]
    fn a_poll_passes_one_lost_message_and_wakes_the_worker_for_the_next() {
        let mut scene = Scene::new("lost", &[0, 1]);
        for lost in 1..=2 {
            assert_eq!((scene.poll(), scene.messages.position()), (None, lost));
            assert_eq!(scene.woken.load(Ordering::Relaxed), lost);
        }
        assert_eq!(scene.poll(), Some(2));
        assert_eq!(scene.messages.deps.stats.messages_lost.load(Ordering::Relaxed), 2);
    }
}
