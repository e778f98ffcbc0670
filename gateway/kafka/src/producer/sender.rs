//! The handle of the producer: room for messages, and sending them.
//!
//! Any thread may send. Sending puts a message into librdkafka's queue, copies no value, and never blocks; [`Producer::room`] waits for
//! room before that. The caller allocates a value after it has taken the room, and the value is freed before its room is given back.

use crate::{
    ground::{login::renewal, settings::refused},
    producer::{
        MESSAGE_OVERHEAD_BYTES, NotStored, RequestReply, SizeLimits,
        acknowledgements::{Acknowledgements, serve},
        produce::produce,
        settings::producer_settings,
        signal::{self, Signal},
        topic_watch::{TopicState, TopicWatch},
        upkeep::Upkeep,
    },
};
use crossbeam_channel::{Sender, bounded};
use rdkafka::{
    ClientConfig,
    config::RDKafkaLogLevel,
    producer::{BaseProducer, Producer as _},
};
use sluice_gateway_config::{Kafka, SecretFileError};
use sluice_login::{Counts, Tokens};
use std::{
    convert::Infallible,
    ffi::CString,
    sync::{Arc, PoisonError, RwLock},
    thread,
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// The limits of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerLimits {
    /// Bytes of all messages under way, each with [`MESSAGE_OVERHEAD_BYTES`]. At least a message of the largest size.
    pub queue_bytes: usize,
    /// The largest record batch that the topic's readers take, decompressed.
    pub batch_bytes_max: usize,
    /// How long a message waits for its acknowledgement.
    pub timeout: Duration,
}

/// Why there is no producer.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file of the user, password or certificates cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings.
    #[error("cannot create a Kafka producer for topic {topic}: {why}")]
    Settings { topic: String, why: String },
    /// A thread could not be started.
    #[error("cannot start the thread {thread} of the producer: {source}")]
    Thread { thread: &'static str, source: std::io::Error },
    /// There is no descriptor for the signal of acknowledgements.
    #[error("cannot make the descriptor that says when Kafka has acknowledged messages: {0}")]
    Signal(std::io::Error),
}

/// A message to send.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pub partition: u32,
    pub key: &'a [u8],
    pub value: Vec<u8>,
    /// Whether it has a single span, so that it cannot be sent in smaller messages.
    pub is_single: bool,
}

impl Outgoing<'_> {
    /// Bytes that it takes of the queue.
    fn bytes(&self) -> usize {
        queue_bytes_of(self.key.len(), self.value.len())
    }
}

fn queue_bytes_of(key: usize, value: usize) -> usize {
    key.saturating_add(value).saturating_add(MESSAGE_OVERHEAD_BYTES)
}

/// Room for messages in the queue.
#[derive(Debug)]
pub struct Room(OwnedSemaphorePermit);

impl Room {
    /// Takes the room of a message with a key and a value of this many bytes out of this one; `None` if it is not in it.
    pub fn part(&mut self, key_bytes: usize, value_bytes: usize) -> Option<Self> {
        self.0.split(queue_bytes_of(key_bytes, value_bytes)).map(Self)
    }
}

/// The producer of a topic; cheap to clone. Its threads and its task end once all clones are dropped; messages under way are then not
/// stored, or not acknowledged.
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
    /// Nothing is ever sent; dropping it ends the threads.
    _ends: Sender<Infallible>,
}

/// What handles and threads share.
pub(super) struct Shared {
    pub(super) topic: String,
    /// The same for librdkafka.
    topic_for_c: CString,
    /// Replaced after a fatal error, which is rare: readers never wait for each other.
    pub(super) producer: RwLock<Arc<BaseProducer<Acknowledgements>>>,
    pub(super) state: Arc<TopicState>,
    room: Arc<Semaphore>,
    queue_bytes: usize,
    tokens: Option<Arc<Tokens>>,
}

impl Shared {
    pub(super) fn current(&self) -> Arc<BaseProducer<Acknowledgements>> {
        self.producer.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Producer {
    /// Starts the producer of a topic. Waits for no broker. A task of `io`, which must have tokio's I/O, answers requests: without turns of
    /// that runtime, none has an answer.
    ///
    /// # Errors
    /// [`StartError`] if secrets cannot be read, or if librdkafka refuses the settings.
    pub fn start(
        kafka: &Kafka,
        topic: &str,
        client_id: &str,
        limits: ProducerLimits,
        io: &Handle,
    ) -> Result<Self, StartError> {
        let (producer, upkeep, watch) = Self::build(kafka, topic, client_id, limits, io)?;
        start("upkeep", move || upkeep.run())?;
        start("topic", move || watch.run())?;
        Ok(producer)
    }

    /// Builds the producer with its task, and what its threads will run.
    pub(super) fn build(
        kafka: &Kafka,
        topic: &str,
        client_id: &str,
        limits: ProducerLimits,
        io: &Handle,
    ) -> Result<(Self, Upkeep, TopicWatch), StartError> {
        let mut config = ClientConfig::new();
        for (name, value) in producer_settings(kafka, client_id, &limits).map_err(StartError::Secret)? {
            config.set(name, value);
        }
        config.set_log_level(RDKafkaLogLevel::Warning);
        let settings = |why: String| StartError::Settings { topic: topic.to_owned(), why };
        let topic_for_c = CString::new(topic).map_err(|error| settings(error.to_string()))?;
        let kafka = Kafka { topics: vec![topic.to_owned()], ..kafka.clone() };
        let state = Arc::new(TopicState::new(&kafka.bootstrap_servers, limits.batch_bytes_max));
        let signal = Signal::new().map_err(StartError::Signal)?;
        let context = Acknowledgements::new(topic, &kafka, &state, signal.clone());
        let producer: BaseProducer<Acknowledgements> =
            config.create_with_context(context.clone()).map_err(|error| settings(refused(&error)))?;
        signal::enable(producer.client());
        let renewal = renewal(&kafka);
        let shared = Arc::new(Shared {
            topic: topic.to_owned(),
            topic_for_c,
            producer: RwLock::new(Arc::new(producer)),
            state,
            room: Arc::new(Semaphore::new(limits.queue_bytes)),
            queue_bytes: limits.queue_bytes,
            tokens: renewal.tokens(),
        });
        let (ends, ended) = bounded(0);
        let upkeep = Upkeep { shared: shared.clone(), config, context, renewal, ended: ended.clone() };
        let watch = TopicWatch::new(shared.clone(), kafka, ended)
            .map_err(|source| StartError::Thread { thread: "topic", source })?;
        let signal = {
            let _inside = io.enter();
            signal.registered().map_err(StartError::Signal)?
        };
        // Its first turn serves what came before the signal was enabled.
        io.spawn(serve(signal, Arc::downgrade(&shared)));
        Ok((Self { shared, _ends: ends }, upkeep, watch))
    }

    /// How many partitions the topic has; `None` until a broker has answered, and while the topic does not exist.
    pub fn partitions(&self) -> Option<u32> {
        self.shared.state.partitions()
    }

    /// How large messages may be.
    pub fn size_limits(&self) -> SizeLimits {
        self.shared.state.size_limits()
    }

    /// Why no message can be stored until a person acts, or until the first broker has answered. Brokers that are away later are no such
    /// reason.
    pub fn problem(&self) -> Option<String> {
        self.shared.state.problem(&self.shared.topic)
    }

    /// Why the first producer cannot send yet, although a broker has answered: it has no id. A message would wait for the id. Ends after 5 s in
    /// any case.
    pub fn awaits_id(&self) -> Option<String> {
        self.shared.state.awaits_id(&self.shared.topic)
    }

    /// Why no broker answers now, although one did before: a message would wait for its whole time.
    pub fn away(&self) -> Option<String> {
        self.shared.state.away(&self.shared.topic)
    }

    /// The reason why a message has no acknowledgement at the end of its time.
    pub fn timed_out(&self) -> NotStored {
        NotStored::TimedOut { topic: self.shared.topic.clone(), why: self.shared.state.unacknowledged() }
    }

    /// The reason why there is no room for a message at the end of its time.
    pub fn no_room(&self) -> NotStored {
        NotStored::NoRoom { topic: self.shared.topic.clone(), why: self.shared.state.unacknowledged() }
    }

    /// Bytes of the messages under way.
    pub fn queued_bytes(&self) -> usize {
        self.shared.queue_bytes.saturating_sub(self.shared.room.available_permits())
    }

    /// The tokens that the client logs in with, for metrics; `None` if it uses none.
    pub fn token_counts(&self) -> Option<Counts> {
        self.shared.tokens.as_ref().map(|tokens| tokens.counts())
    }

    /// Waits for the room of a message with a key and a value of this many bytes. First come, first served.
    pub async fn room(&self, key_bytes: usize, value_bytes: usize) -> Room {
        let bytes = queue_bytes_of(key_bytes, value_bytes).min(self.shared.queue_bytes);
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let room = self.shared.room.clone().acquire_many_owned(permits).await;
        Room(room.expect("the semaphore is never closed"))
    }

    /// The room of messages with keys of this many bytes and these values, if there is room for all of them now.
    pub fn room_now(&self, key_bytes: usize, values: impl Iterator<Item = usize>) -> Option<Room> {
        let bytes = values.fold(0_usize, |sum, value| sum.saturating_add(queue_bytes_of(key_bytes, value)));
        self.shared.room.clone().try_acquire_many_owned(u32::try_from(bytes).ok()?).ok().map(Room)
    }

    /// Waits until no message is under way.
    pub async fn flushed(&self) {
        let all = u32::try_from(self.shared.queue_bytes).unwrap_or(u32::MAX);
        drop(self.shared.room.acquire_many(all).await);
    }

    /// Passes a message to librdkafka. `request` is answered for it in any case.
    pub fn send(&self, message: Outgoing<'_>, room: Room, request: &RequestReply) {
        let Shared { topic, topic_for_c, .. } = &*self.shared;
        debug_assert!(message.bytes() <= self.shared.queue_bytes, "a message fits into an empty queue");
        let Outgoing { partition, key, value, is_single } = message;
        let ticket = Box::new(request.ticket(value, is_single, room.0));
        let place = (topic_for_c.as_c_str(), i32::try_from(partition).unwrap_or(i32::MAX));
        if let Err((error, ticket)) = produce(&self.shared.current(), place, key, ticket) {
            self.shared.state.refuse(&error, &ticket);
            let bytes = ticket.value().len();
            let unacknowledged = || self.shared.state.unacknowledged();
            ticket.answer(Err(NotStored::of(&error, topic, bytes, unacknowledged)));
        }
    }
}

fn start(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|source| StartError::Thread { thread: name, source })
}
