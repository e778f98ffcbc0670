//! Kafka clients that only read: partitions of topics, committed offsets, first and last offsets. They never join a group.
//!
//! ```text
//!  sample -> clients: a connection per cluster -> Client: partitions, ends -> committed: of any group
//!               `-- permits for requests
//! ```
//!
//! A client belongs to one cluster and one way to connect to it ([`cluster::Cluster`]). All pipelines of that cluster share it. Everything
//! here blocks its thread, and runs only on tokio's blocking threads (`sample.rs`).

pub mod clients;
pub mod cluster;
mod committed;
pub mod own_logins;
mod refusal;
mod remedy;
pub mod sample;
pub mod security;
mod tokens;

use cluster::Cluster;
use committed::{Offsets, committed};
use rdkafka::{
    ClientConfig, ClientContext, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaError,
    types::RDKafkaErrorCode,
};
use refusal::Refusal;
use sluice_crds::{KafkaSource, PropertyValue};
use sluice_gateway_config::kafka_properties::owner;
use sluice_login::Renewal;
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Events of one client (its log lines) that are dropped before each request. Otherwise they would accumulate.
const EVENTS_DRAINED_MAX: usize = 1_000;
/// How long events are dropped at a time. With no time at all rdkafka returns after one event that is no error, and leaves those after it.
const EVENTS_WAIT: Duration = Duration::from_millis(1);
/// How long to wait for the reason of a lost connection: librdkafka may fail the request before it tells why. Chosen: many times what one
/// thread needs to tell another.
const REASON_WAIT: Duration = Duration::from_millis(250);
/// What librdkafka says when a connection ends during its TLS handshake (`rd_kafka_transport_ssl_handshake`), with the code of a lost connection.
const IN_HANDSHAKE: &str = "SSL handshake failed";
/// What librdkafka says when a broker closes a connection: one that wants TLS, or a login, closes it at the first request.
const CLOSED: &str = "Disconnected";
/// librdkafka's name for log lines about connections that ended.
const FAILED: &str = "FAIL";
/// What librdkafka says of a listener that takes longer than `socket.connection.setup.timeout.ms`, before the state of the connection.
const SETUP_SLOW: &str = "Connection setup timed out in state ";
/// The state of a connection that no listener has accepted.
const NOT_ACCEPTED: &str = "CONNECT";
/// What librdkafka says if that time is longer than its own limit for the first request.
const REQUEST_SLOW: &str = "ApiVersionRequest failed: Local: Timed out";

/// A failed request to Kafka.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// librdkafka refused its settings.
    #[error("cannot create a Kafka client for {brokers}: {source}")]
    Create { brokers: String, source: KafkaError },
    /// There is no token to log in with, so no broker was asked.
    #[error("cannot log in to Kafka at {brokers}: {source}")]
    Token { brokers: String, source: Box<sluice_login::Error> },
    /// A broker was reached, but the connection failed: TLS, user or password.
    #[error("cannot connect to Kafka at {brokers}: {reason}")]
    Refused {
        brokers: String,
        /// librdkafka's code: TLS, authentication, or a connection that the broker closed, did not answer or does not accept.
        code: RDKafkaErrorCode,
        reason: String,
    },
    /// No answer about a topic.
    #[error("cannot read the partitions of topic {topic}: {source}")]
    Metadata { topic: String, source: KafkaError },
    /// Kafka answered with an error about a topic.
    #[error("Kafka refuses to describe topic {topic}: {code}")]
    Topic { topic: String, code: RDKafkaErrorCode },
    /// No answer about committed offsets.
    #[error("cannot read the committed offsets of group {group}: {source}")]
    Committed { group: String, source: committed::Error },
    /// No answer about the ends of partitions.
    #[error("cannot read the first and last offsets of the partitions: {source}")]
    Ends { source: KafkaError },
}

impl Error {
    /// The Kafka error code, if there is one.
    pub fn code(&self) -> Option<RDKafkaErrorCode> {
        match self {
            Self::Topic { code, .. } | Self::Refused { code, .. } => Some(*code),
            Self::Token { .. } => Some(RDKafkaErrorCode::Authentication),
            Self::Committed { source, .. } => source.code(),
            Self::Create { source, .. } | Self::Metadata { source, .. } | Self::Ends { source } => {
                source.rdkafka_error_code()
            }
        }
    }

    /// Whether a broker gave this answer, so that the cluster is reachable.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Topic { .. })
    }

    /// Whether the last connection ended during its TLS handshake: the listener speaks no TLS, or its broker is going away.
    pub fn is_cut_handshake(&self) -> bool {
        matches!(self, Self::Refused { reason, .. } if self.is_closed() && is_in_handshake(reason))
    }

    /// Whether the broker closed the last connection without a reason.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Refused { code: RDKafkaErrorCode::BrokerTransportFailure, .. })
    }

    /// Whether the client must be closed and not used again.
    pub fn is_clients_end(&self) -> bool {
        matches!(self, Self::Committed { source, .. } if source.is_clients_end())
    }
}

/// One partition's offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The group's committed offset, if it ever committed.
    pub committed: Option<i64>,
    /// Offset of the oldest message that Kafka still has; `None` without an answer for the partition.
    pub begin: Option<i64>,
    /// Offset after the newest message; `None` without an answer for the partition, such as when it has no leader.
    pub end: Option<i64>,
}

/// Drops librdkafka's log lines but those of connections that ended, since a request returns its error too. It keeps the reason of a failed connection:
/// the request itself only returns "timed out".
#[derive(Default)]
struct Silent {
    refused: Mutex<Option<Refusal>>,
}

impl Silent {
    fn refused(&self) -> MutexGuard<'_, Option<Refusal>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection ended without a refusal: a broker closed it or does not answer on it, or it could not be made. That hides nothing that
    /// another broker has refused, and what was first stays until it has not happened for long: brokers may do different things.
    fn note_ended(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut refused = self.refused();
        match &mut *refused {
            // An end within the TLS handshake says more than the same end without a word of it.
            Some(before) if before.is_recent() && (before.code != code || !is_in_handshake(reason)) => {
                if before.code == code {
                    before.at = Instant::now();
                }
            }
            _ => *refused = Some(Refusal::now(code, reason, refused.take())),
        }
    }
}

impl ClientContext for Silent {
    /// Such a connection is no error for librdkafka: it connects again.
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        if facility != FAILED {
            return;
        }
        let (_, reason) = message.split_once("]: ").unwrap_or(("", message));
        if is_silence(reason) {
            self.note_ended(RDKafkaErrorCode::OperationTimedOut, reason);
        } else if reason.contains(CLOSED) {
            self.note_ended(RDKafkaErrorCode::BrokerTransportFailure, reason);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        use RDKafkaErrorCode::{
            Authentication, BrokerTransportFailure, Resolve, SSL, SaslAuthenticationFailed,
        };
        match error.rdkafka_error_code() {
            Some(code @ (SSL | Authentication | SaslAuthenticationFailed)) => {
                let mut refused = self.refused();
                *refused = Some(Refusal::now(code, reason, refused.take()));
            }
            Some(code @ BrokerTransportFailure) if is_in_handshake(reason) => {
                self.note_ended(code, reason);
            }
            // The name is unknown, or no server listens.
            Some(code @ Resolve) => self.note_ended(code, reason),
            Some(BrokerTransportFailure) => self.note_ended(RDKafkaErrorCode::AllBrokersDown, reason),
            _ => {}
        }
    }
}

impl ConsumerContext for Silent {}

/// A client that only reads.
pub struct Client {
    consumer: BaseConsumer<Silent>,
    brokers: String,
    /// Tokens, for a cluster that is logged in to with tokens. Those who ask give librdkafka each new one.
    renewal: Renewal,
}

impl Client {
    /// The client can read the offsets of any group. It has a group of its own only because librdkafka needs one (`committed.rs`), and never
    /// joins it.
    fn new(cluster: &Cluster, group: &str) -> Result<Self, Error> {
        let mut config = ClientConfig::new();
        for (name, value) in cluster.settings(is_accepted) {
            config.set(name, value);
        }
        let brokers = cluster.bootstrap_servers().to_owned();
        let consumer: BaseConsumer<Silent> = config
            .set("group.id", group)
            .set_log_level(RDKafkaLogLevel::Info)
            .create_with_context(Silent::default())
            .map_err(|source| Error::Create { brokers: brokers.clone(), source })?;
        let renewal = Renewal::of(cluster.tokens());
        renewal.begin(consumer.client());
        Ok(Self { consumer, brokers, renewal })
    }

    /// Number of partitions of a topic; `None` if the topic does not exist.
    pub fn partitions(&self, topic: &str, deadline: Instant) -> Result<Option<u32>, Error> {
        self.log_in(deadline)?;
        self.drain();
        let metadata = self
            .consumer
            .fetch_metadata(Some(topic), left(deadline))
            .map_err(|source| self.refused(Error::Metadata { topic: topic.to_owned(), source }))?;
        *self.consumer.context().refused() = None;
        let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
            return Ok(None);
        };
        match found.error().map(RDKafkaErrorCode::from) {
            None => Ok(Some(u32::try_from(found.partitions().len()).unwrap_or(u32::MAX))),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(None),
            Some(code) => Err(Error::Topic { topic: topic.to_owned(), code }),
        }
    }

    /// Waits until there is a token, or until it is known why there is none.
    fn log_in(&self, deadline: Instant) -> Result<(), Error> {
        let begun = Instant::now();
        self.renewal.wait_until(self.consumer.client(), deadline);
        // At the deadline there would be no time left to ask Kafka.
        self.renewal.missing_after(begun.elapsed()).map_or(Ok(()), |source| Err(self.no_token(source)))
    }

    fn no_token(&self, source: sluice_login::Error) -> Error {
        Error::Token { brokers: self.brokers.clone(), source: Box::new(source) }
    }

    /// The group's committed offset, and the first and last offset, of all partitions of these topics.
    pub fn positions(
        &self,
        group: &str,
        topics: &[(String, u32)],
        deadline: Instant,
    ) -> Result<Vec<Position>, Error> {
        self.log_in(deadline)?;
        self.drain();
        let all = || topics.iter().flat_map(|(topic, count)| (0..*count).map(move |at| (topic.as_str(), at)));
        let committed = self.committed(group, &list(all(), Offset::Invalid), deadline)?;
        let ends = self.ends(list(all(), Offset::End), deadline)?;
        let begins = self.ends(list(all(), Offset::Beginning), deadline)?;
        let position = |at: (&str, u32)| {
            let at = key(at);
            let of = |offsets: &Offsets| offsets.get(&at).copied();
            Position { committed: of(&committed), begin: of(&begins), end: of(&ends) }
        };
        Ok(all().map(position).collect())
    }

    fn committed(&self, group: &str, list: &TopicPartitionList, deadline: Instant) -> Result<Offsets, Error> {
        if list.count() == 0 {
            return Ok(Offsets::new());
        }
        committed(self.consumer.client(), group, list, left(deadline))
            .map_err(|source| Error::Committed { group: group.to_owned(), source })
    }

    /// One request per broker, where watermarks would cost two per partition: "the first offset at or behind this
    /// time" with the times -1 and -2 is Kafka's way to ask for the end and the beginning.
    fn ends(&self, list: TopicPartitionList, deadline: Instant) -> Result<Offsets, Error> {
        if list.count() == 0 {
            return Ok(Offsets::new());
        }
        let found =
            self.consumer.offsets_for_times(list, left(deadline)).map_err(|source| Error::Ends { source })?;
        Ok(offsets(&found))
    }

    /// Why there is no next token if the last one has expired, or the reason of the failed connection if there is a recent one, else
    /// `otherwise`.
    fn refused(&self, otherwise: Error) -> Error {
        self.drain();
        let is_lost = otherwise.code() == Some(RDKafkaErrorCode::BrokerTransportFailure);
        let until = Instant::now() + REASON_WAIT;
        while is_lost && self.consumer.context().refused().is_none() && Instant::now() < until {
            self.drain();
        }
        if let Some(source) = self.renewal.overdue() {
            return self.no_token(source);
        }
        match &*self.consumer.context().refused() {
            Some(refusal) if refusal.is_recent() => Error::Refused {
                brokers: self.brokers.clone(),
                code: refusal.code,
                reason: refusal.reason.clone(),
            },
            Some(_) | None => otherwise,
        }
    }

    /// Empties the client's queue of log lines and errors.
    fn drain(&self) {
        for _ in 0..EVENTS_DRAINED_MAX {
            if self.consumer.poll(EVENTS_WAIT).is_none() {
                return;
            }
        }
    }
}

fn is_in_handshake(reason: &str) -> bool {
    reason.contains(IN_HANDSHAKE)
}

/// Whether a listener accepted a connection and did not answer on it.
fn is_silence(reason: &str) -> bool {
    let state = reason.split_once(SETUP_SLOW).map(|(_, rest)| rest.split(' ').next().unwrap_or_default());
    state.map_or_else(|| reason.contains(REQUEST_SLOW), |state| state != NOT_ACCEPTED)
}

/// Whether librdkafka knows a setting and accepts this value.
fn is_accepted(name: &str, value: &str) -> bool {
    owner(name).is_none() && refusal(name, value).is_none()
}

/// Why librdkafka refuses a setting; `None` if it accepts it. Gateways of the operator's own release have the same version of librdkafka.
fn refusal(name: &str, value: &str) -> Option<String> {
    match ClientConfig::new().set(name, value).create_native_config() {
        Ok(_) => None,
        // librdkafka's own text names the setting; rdkafka's repeats name and value behind that.
        Err(KafkaError::ClientConfig(_, why, ..)) => Some(why),
        Err(other) => Some(other.to_string()),
    }
}

/// The properties of a spec that librdkafka refuses, each with why. A gateway with one of them would not start. Settings that no spec may set are not
/// tried: the plan refuses them, and librdkafka would load the libraries of `plugin.library.paths` at once.
pub fn refused_properties(kafka: &KafkaSource) -> BTreeMap<String, String> {
    let refused = |(name, value): (&String, &PropertyValue)| Some((name.clone(), refusal(name, &value.0)?));
    kafka.properties.iter().filter(|(name, _)| owner(name).is_none()).filter_map(refused).collect()
}

fn key((topic, partition): (&str, u32)) -> (String, i32) {
    (topic.to_owned(), i32::try_from(partition).unwrap_or(i32::MAX))
}

fn list<'a>(partitions: impl Iterator<Item = (&'a str, u32)>, offset: Offset) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for at in partitions {
        let (topic, partition) = key(at);
        // Fails only for an offset that cannot be written, and these are constants.
        list.add_partition_offset(&topic, partition, offset).ok();
    }
    list
}

/// The offsets of the partitions without an error.
fn offsets(list: &TopicPartitionList) -> Offsets {
    list.elements()
        .iter()
        .filter(|element| element.error().is_ok())
        .filter_map(|element| match element.offset() {
            Offset::Offset(offset) => Some(((element.topic().to_owned(), element.partition()), offset)),
            _ => None,
        })
        .collect()
}

/// Time until the deadline, at least 1 ms: with zero librdkafka returns at once.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests;
