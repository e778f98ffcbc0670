//! Produces the value of a letter to the topic that it came from.
//!
//! Owner: the command that replays, one thread. Limits: one message at a time. It is in the topic, or refused, within [`REPLAY_TIMEOUT`].

use crate::{
    dead_letter::{
        headers::{REPLAYED, is_own},
        settings::producer_settings,
    },
    ground::{login::renewal, settings::refused},
};
use crossbeam_channel::{Receiver, Sender, bounded};
use rdkafka::{
    ClientConfig, ClientContext,
    config::RDKafkaLogLevel,
    error::KafkaError,
    message::{DeliveryResult, Header, Headers as _, Message, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext},
};
use sluice_gateway_config::{Kafka, SecretFileError};
use sluice_login::Renewal;
use std::time::Duration;

/// How long brokers may take to acknowledge a message.
pub const REPLAY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long one poll for the acknowledgement lasts.
const POLL_WAIT: Duration = Duration::from_millis(100);

/// Why a message is not in the topic.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file of the user, password or certificates cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings.
    #[error("cannot create a Kafka producer for replayed messages: {0}")]
    Create(String),
    /// There is no token to log in with.
    #[error("cannot log in to Kafka: {0}")]
    Login(sluice_login::Error),
    /// The brokers refused it, or did not answer in time.
    #[error("cannot produce to topic {topic}, partition {partition}: {source}")]
    Produce { topic: String, partition: i32, source: Box<KafkaError> },
}

/// A message to produce again.
#[derive(Debug)]
pub struct Replayed<'a, M> {
    /// Topic, partition and offset of its letter, as text.
    pub letter: &'a str,
    /// The message whose key and headers are used: the letter, or the original.
    pub original: &'a M,
    pub value: Option<&'a [u8]>,
    /// The topic that it goes to.
    pub topic: &'a str,
    pub partition: i32,
}

/// Produces replayed messages.
pub struct Replayer {
    producer: BaseProducer<Acknowledged>,
    answers: Receiver<Result<i64, KafkaError>>,
    renewal: Renewal,
}

/// Passes on the one acknowledgement.
struct Acknowledged(Sender<Result<i64, KafkaError>>);

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let answer = result.as_ref().map(Message::offset).map_err(|(error, _)| error.clone());
        self.0.try_send(answer).expect("one message is under way at a time");
    }
}

impl Replayer {
    /// A producer for the source's brokers.
    pub fn new(kafka: &Kafka) -> Result<Self, ReplayError> {
        let mut config = ClientConfig::new();
        let client_id = format!("{}-replay", kafka.consumer_group);
        for (name, value) in producer_settings(kafka, &client_id).map_err(ReplayError::Secret)? {
            config.set(name, value);
        }
        config.set("message.timeout.ms", REPLAY_TIMEOUT.as_millis().to_string());
        config.set("linger.ms", "0");
        config.set_log_level(RDKafkaLogLevel::Warning);
        let (sender, answers) = bounded(1);
        let producer: BaseProducer<Acknowledged> = config
            .create_with_context(Acknowledged(sender))
            .map_err(|error| ReplayError::Create(refused(&error)))?;
        let renewal = renewal(kafka);
        renewal.first(producer.client()).map_err(ReplayError::Login)?;
        Ok(Self { producer, answers, renewal })
    }

    /// Produces a message and waits for the brokers; returns its offset.
    pub fn replay<M: Message>(&self, replayed: &Replayed<'_, M>) -> Result<i64, ReplayError> {
        let Replayed { topic, partition, .. } = *replayed;
        let refused =
            |source| ReplayError::Produce { topic: topic.to_owned(), partition, source: Box::new(source) };
        let mut record =
            BaseRecord::<[u8], [u8], ()>::to(topic).partition(partition).headers(headers(replayed));
        record.key = replayed.original.key();
        record.payload = replayed.value;
        self.renewal.renew(self.producer.client());
        self.producer.send(record).map_err(|(error, _)| refused(error))?;
        loop {
            // This ends by the producer's own time limit for messages.
            self.producer.poll(POLL_WAIT);
            if let Ok(answer) = self.answers.try_recv() {
                return answer.map_err(refused);
            }
        }
    }
}

/// The original's headers, and the one that names the message's letter.
fn headers<M: Message>(replayed: &Replayed<'_, M>) -> OwnedHeaders {
    let first = OwnedHeaders::new().insert(Header { key: REPLAYED, value: Some(replayed.letter) });
    let Some(found) = replayed.original.headers() else { return first };
    let kept = found.iter().filter(|header| !is_own(header.key) && header.key != REPLAYED);
    kept.fold(first, OwnedHeaders::insert)
}
