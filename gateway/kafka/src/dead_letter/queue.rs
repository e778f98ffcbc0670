//! The entry of dead letters: letters wait for the thread that sends them, and a receipt of each waits for the brokers' answer.
//!
//! Any thread may send. Limits: [`LETTERS_MAX`] letters and [`LETTER_QUEUE_BYTES`] from [`DeadLetters::send`] to the answer. Above them a
//! letter is refused; the caller holds its partition and tries again.

use crate::dead_letter::{
    LETTER_QUEUE_BYTES, LETTERS_MAX, Letter,
    answers::{Answers, Watched, watched},
    letter::Record,
    log_sender::{LetterStore, LogSender},
    outcome::{Delivered, Refused},
    sender::Sender,
    settings::producer_settings,
};
use crate::ground::{login::renewal, settings::refused};
use crossbeam_channel::{TrySendError, bounded};
use rdkafka::{ClientConfig, config::RDKafkaLogLevel};
use sluice_gateway_config::{Kafka, OnMissing, SecretFileError};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};
use tokio::sync::oneshot;

/// Why dead letters cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file of the user, password or certificates cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings.
    #[error("cannot create a Kafka producer for dead letters: {why}")]
    Settings { why: String },
    /// The thread could not be started.
    #[error("cannot start the thread for dead letters: {source}")]
    Thread { source: std::io::Error },
}

/// The maximum number of letters is under way: send this one again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many dead letters wait for Kafka")]
pub struct Full;

/// Sends dead letters; cheap to clone. Its thread ends once all clones are dropped and every letter has its answer.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    requests: crossbeam_channel::Sender<Request>,
    load: Arc<Load>,
}

/// A letter that waits for the thread.
#[derive(Debug)]
pub(super) struct Request {
    pub record: Record,
    pub reply: Reply,
}

/// The size of all letters under way.
#[derive(Debug, Default)]
struct Load {
    letters: AtomicUsize,
    bytes: AtomicU64,
}

/// Answers a letter, and frees its room in the queue.
#[derive(Debug)]
pub(super) struct Reply {
    /// Who is answered.
    to: Addressee,
    bytes: u64,
    load: Arc<Load>,
}

/// Who waits for the answer to a letter.
#[derive(Debug)]
enum Addressee {
    /// The holder of a receipt; none after the answer.
    Receipt(Option<oneshot::Sender<Result<Delivered, Refused>>>),
    Worker(Watched),
}

/// The pending outcome of a letter: a future, and a value to check now and then.
#[derive(Debug)]
#[must_use = "a range may only settle once its letters are delivered"]
pub struct Receipt(oneshot::Receiver<Result<Delivered, Refused>>);

impl DeadLetters {
    /// Starts the thread. `topic` is the topic of all letters; if it is none, each source topic has its own
    /// ([`crate::dead_letter::default_topic`]). Brokers are not contacted before the first letter.
    ///
    /// # Errors
    /// [`StartError`] if secrets cannot be read, or if librdkafka refuses the settings.
    pub fn start(kafka: &Kafka, topic: Option<&str>, client_id: &str) -> Result<Self, StartError> {
        let mut config = ClientConfig::new();
        for (name, value) in producer_settings(kafka, client_id).map_err(StartError::Secret)? {
            config.set(name, value);
        }
        config.set_log_level(RDKafkaLogLevel::Warning);
        config.create_native_config().map_err(|error| StartError::Settings { why: refused(&error) })?;
        let (requests, requests_in) = bounded(LETTERS_MAX);
        let sender = Sender::new(config, topic.map(str::to_owned), requests_in, renewal(kafka));
        std::thread::Builder::new()
            .name("dead-letters".to_owned())
            .spawn(move || sender.run())
            .map_err(|source| StartError::Thread { source })?;
        Ok(Self { requests, load: Arc::default() })
    }

    /// Starts the thread for letters that go to a log of this process.
    ///
    /// # Errors
    /// [`StartError`] if the thread cannot be started.
    pub fn start_log(store: Box<dyn LetterStore>) -> Result<Self, StartError> {
        let (requests, requests_in) = bounded(LETTERS_MAX);
        let sender = LogSender::new(store, requests_in);
        std::thread::Builder::new()
            .name("dead-letters".to_owned())
            .spawn(move || sender.run())
            .map_err(|source| StartError::Thread { source })?;
        Ok(Self { requests, load: Arc::default() })
    }

    /// Takes a letter and copies it. Never blocks.
    ///
    /// # Errors
    /// [`Full`] if too many letters are under way.
    pub fn send(&self, letter: &Letter<'_>) -> Result<Receipt, Full> {
        let (receipt, answer) = oneshot::channel();
        self.enqueue(letter, Addressee::Receipt(Some(receipt)))?;
        Ok(Receipt(answer))
    }

    /// Takes a letter of a worker, which a token wakes after every answer. With [`OnMissing::Stop`] a refused letter stays here, and is
    /// sent again every [`super::topic::REFUSAL_KEPT`] until it is delivered or the answers are dropped.
    ///
    /// # Errors
    /// [`Full`] if too many letters are under way.
    pub fn send_watched(
        &self,
        letter: &Letter<'_>,
        on_missing: OnMissing,
        wake: &crossbeam_channel::Sender<()>,
    ) -> Result<Answers, Full> {
        let (watched, answers) = watched(on_missing, wake);
        self.enqueue(letter, Addressee::Worker(watched))?;
        Ok(answers)
    }

    fn enqueue(&self, letter: &Letter<'_>, to: Addressee) -> Result<(), Full> {
        let reply = Reply::reserve(&self.load, letter.size(), to).ok_or(Full)?;
        match self.requests.try_send(Request { record: Record::of(letter), reply }) {
            Err(TrySendError::Full(_)) => Err(Full),
            // If the thread has panicked, the answer is that the letter was not sent.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }

    /// Whether a letter of this [`Letter::size`] would be accepted now.
    pub fn has_room(&self, size: u64) -> bool {
        self.waiting() < LETTERS_MAX
            && self.load.bytes.load(Ordering::Relaxed).saturating_add(size) <= LETTER_QUEUE_BYTES
    }

    /// Bytes of the letters under way, as passed in.
    pub fn bytes(&self) -> u64 {
        self.load.bytes.load(Ordering::Relaxed)
    }

    /// Letters under way.
    pub fn waiting(&self) -> usize {
        self.load.letters.load(Ordering::Relaxed)
    }
}

impl Reply {
    fn reserve(load: &Arc<Load>, bytes: u64, to: Addressee) -> Option<Self> {
        let one_more = |letters: usize| (letters < LETTERS_MAX).then_some(letters + 1);
        load.letters.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more).ok()?;
        let more = |held: u64| held.checked_add(bytes).filter(|held| *held <= LETTER_QUEUE_BYTES);
        if load.bytes.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_err() {
            load.letters.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Self { to, bytes, load: Arc::clone(load) })
    }

    /// Whether a refused letter is to be sent again.
    pub(super) fn keeps(&mut self, refused: &Refused) -> bool {
        match &mut self.to {
            Addressee::Receipt(_) => false,
            Addressee::Worker(watched) => watched.keeps(refused),
        }
    }

    /// Whether the worker of a refused letter no longer waits.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(&self.to, Addressee::Worker(watched) if !watched.is_listened_to())
    }

    pub(super) fn answer(mut self, answer: Result<Delivered, Refused>) {
        let to = std::mem::replace(&mut self.to, Addressee::Receipt(None));
        // Before the answer: its receiver may send the next letter.
        drop(self);
        match to {
            Addressee::Receipt(receipt) => {
                let receipt = receipt.expect("a letter is answered once");
                if receipt.send(answer).is_err() {
                    // The sender has given up its partition; the next owner sends the letter again.
                }
            }
            Addressee::Worker(watched) => watched.tell(answer),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.load.letters.fetch_sub(1, Ordering::AcqRel);
        self.load.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Receipt {
    /// The outcome of the letter; none while it is under way, however long the brokers are away. Must not be called after an answer.
    pub fn try_get(&mut self) -> Option<Result<Delivered, Refused>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(Refused::Ended)),
        }
    }
}

impl Future for Receipt {
    type Output = Result<Delivered, Refused>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or(Err(Refused::Ended)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(load: &Arc<Load>, bytes: u64) -> Option<Reply> {
        Reply::reserve(load, bytes, Addressee::Receipt(Some(oneshot::channel().0)))
    }

    #[test]
    fn a_queue_has_room_for_so_many_bytes_and_gives_them_back() {
        let load = Arc::default();
        let half = LETTER_QUEUE_BYTES / 2;
        let (first, second) = (reserve(&load, half), reserve(&load, half));
        assert!(first.is_some() && second.is_some());
        assert!(reserve(&load, half).is_none());
        assert_eq!(load.letters.load(Ordering::Relaxed), 2);
        drop(first);
        assert!(reserve(&load, half).is_some());
    }

    #[test]
    fn a_queue_has_room_for_so_many_letters() {
        let load = Arc::default();
        let held: Vec<_> = (0..LETTERS_MAX).map(|_| reserve(&load, 1).unwrap()).collect();
        assert!(reserve(&load, 1).is_none());
        drop(held);
        assert_eq!(load.bytes.load(Ordering::Relaxed), 0);
        assert!(reserve(&load, 1).is_some());
    }

    #[test]
    fn a_letter_that_nobody_can_send_is_not_sent() {
        let (reply, answer) = oneshot::channel();
        let mut receipt = Receipt(answer);
        assert_eq!(receipt.try_get(), None);
        drop(Reply::reserve(&Arc::default(), 1, Addressee::Receipt(Some(reply))));
        assert_eq!(receipt.try_get(), Some(Err(Refused::Ended)));
    }
}
