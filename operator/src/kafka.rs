//! Kafka clients that only ask: partitions of topics, committed and end offsets. They never join a group.
//!
//! A client belongs to one set of brokers and one consumer group, because librdkafka asks for committed offsets only in
//! the name of the group it was made for. They are shared between reconciles, at most [`CLIENTS_MAX`] are open, and one
//! that nobody used for [`IDLE_SECONDS_MAX`] is closed. Everything here blocks its thread and is called on tokio's
//! blocking threads alone (`sample.rs`).

use crate::kafka_security::KafkaSecurity;
use rdkafka::{
    ClientConfig, ClientContext, Offset, TopicPartitionList,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::KafkaError,
    types::RDKafkaErrorCode,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Clients open at the same time. Each costs librdkafka one thread and one connection per broker, so a hundred brokers
/// of one cluster stay in the low hundreds of threads. Beyond it the one used longest ago is closed.
const CLIENTS_MAX: usize = 64;
/// A client that nobody used for this many seconds is closed: ten times the interval between two questions.
pub const IDLE_SECONDS_MAX: u64 = 300;
/// Events of one client (its log lines) that are thrown away before each question; they pile up otherwise.
const EVENTS_DRAINED_MAX: usize = 1_000;

/// Whose brokers, and which group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientKey {
    /// Brokers to ask first, `host:port,host:port`.
    pub bootstrap_servers: String,
    /// The group whose committed offsets are asked for.
    pub consumer_group: String,
    /// TLS, user and password.
    pub security: KafkaSecurity,
}

/// What went wrong with a question to Kafka.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// librdkafka refused its settings.
    #[error("cannot make a Kafka client for {brokers}: {source}")]
    Create {
        /// The brokers.
        brokers: String,
        /// What librdkafka said.
        source: KafkaError,
    },
    /// A broker was reached, and the connection came to nothing: TLS, user or password.
    #[error("cannot connect to Kafka at {brokers}: {reason}")]
    Refused {
        /// The brokers.
        brokers: String,
        /// librdkafka's code: TLS or authentication.
        code: RDKafkaErrorCode,
        /// What librdkafka said.
        reason: String,
    },
    /// No answer about a topic.
    #[error("cannot read the partitions of topic {topic}: {source}")]
    Metadata {
        /// The topic.
        topic: String,
        /// What librdkafka said.
        source: KafkaError,
    },
    /// The answer about a topic is an error.
    #[error("Kafka refuses to describe topic {topic}: {code}")]
    Topic {
        /// The topic.
        topic: String,
        /// Kafka's code.
        code: RDKafkaErrorCode,
    },
    /// No answer about committed offsets.
    #[error("cannot read the offsets that group {group} committed: {source}")]
    Committed {
        /// The group.
        group: String,
        /// What librdkafka said.
        source: KafkaError,
    },
    /// No answer about the ends of partitions.
    #[error("cannot read the offsets at which partitions begin and end: {source}")]
    Ends {
        /// What librdkafka said.
        source: KafkaError,
    },
}

impl Error {
    /// The code of the error, where there is one.
    pub fn code(&self) -> Option<RDKafkaErrorCode> {
        match self {
            Self::Topic { code, .. } | Self::Refused { code, .. } => Some(*code),
            Self::Create { source, .. }
            | Self::Metadata { source, .. }
            | Self::Committed { source, .. }
            | Self::Ends { source } => source.rdkafka_error_code(),
        }
    }
}

/// One partition's offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Where the group goes on, if it ever committed.
    pub committed: Option<i64>,
    /// The oldest message that Kafka still has; `None` when nobody answers for the partition.
    pub begin: Option<i64>,
    /// Behind the newest message; `None` when nobody answers for the partition, as when it has no leader.
    pub end: Option<i64>,
}

/// Takes librdkafka's log lines and drops them: every error comes back as the answer to a question too. But one that says why
/// a connection came to nothing: the answer is "timed out" then, so that the reason is kept.
#[derive(Default)]
struct Silent {
    refused: Mutex<Option<(RDKafkaErrorCode, String)>>,
}

impl Silent {
    fn refused(&self) -> MutexGuard<'_, Option<(RDKafkaErrorCode, String)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Silent {
    fn log(&self, _level: RDKafkaLogLevel, _facility: &str, _message: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().filter(|code| {
            use RDKafkaErrorCode::{Authentication, SSL, SaslAuthenticationFailed};
            matches!(code, SSL | Authentication | SaslAuthenticationFailed)
        });
        if let Some(code) = code {
            *self.refused() = Some((code, reason.to_owned()));
        }
    }
}

impl ConsumerContext for Silent {}

/// A client that asks.
pub struct Client {
    consumer: BaseConsumer<Silent>,
    brokers: String,
    group: String,
}

impl Client {
    fn new(key: &ClientKey) -> Result<Self, Error> {
        let mut config = ClientConfig::new();
        for (name, value) in key.security.settings() {
            config.set(name, value);
        }
        let consumer = config
            .set("bootstrap.servers", &key.bootstrap_servers)
            .set("group.id", &key.consumer_group)
            .set("client.id", "sluice-operator")
            // Asking must not make anything: neither topics nor offsets.
            .set("allow.auto.create.topics", "false")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // The default of 10 s would let a broker that is back look dead for two questions.
            .set("reconnect.backoff.max.ms", "1000")
            .set("socket.connection.setup.timeout.ms", "3000")
            .set_log_level(RDKafkaLogLevel::Emerg)
            .create_with_context(Silent::default())
            .map_err(|source| Error::Create { brokers: key.bootstrap_servers.clone(), source })?;
        let (brokers, group) = (key.bootstrap_servers.clone(), key.consumer_group.clone());
        Ok(Self { consumer, brokers, group })
    }

    /// How many partitions a topic has; `None` when there is no such topic.
    pub fn partitions(&self, topic: &str, deadline: Instant) -> Result<Option<u32>, Error> {
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

    /// Committed, first and last offsets of all partitions of these topics.
    pub fn positions(&self, topics: &[(String, u32)], deadline: Instant) -> Result<Vec<Position>, Error> {
        self.drain();
        let all = || topics.iter().flat_map(|(topic, count)| (0..*count).map(move |at| (topic.as_str(), at)));
        let committed = self
            .consumer
            .committed_offsets(list(all(), Offset::Invalid), left(deadline))
            .map_err(|source| Error::Committed { group: self.group.clone(), source })?;
        let committed = offsets(&committed);
        let ends = self.ends(list(all(), Offset::End), deadline)?;
        let begins = self.ends(list(all(), Offset::Beginning), deadline)?;
        let position = |at: (&str, u32)| {
            let at = key(at);
            let of = |offsets: &HashMap<_, i64>| offsets.get(&at).copied();
            Position { committed: of(&committed), begin: of(&begins), end: of(&ends) }
        };
        Ok(all().map(position).collect())
    }

    /// One request per broker, where watermarks would cost two per partition: "the first offset at or behind this
    /// time" with the times -1 and -2 is Kafka's way to ask for the end and the beginning.
    fn ends(
        &self,
        list: TopicPartitionList,
        deadline: Instant,
    ) -> Result<HashMap<(String, i32), i64>, Error> {
        if list.count() == 0 {
            return Ok(HashMap::new());
        }
        let found =
            self.consumer.offsets_for_times(list, left(deadline)).map_err(|source| Error::Ends { source })?;
        Ok(offsets(&found))
    }

    /// Why there was no answer, when a broker said so.
    fn refused(&self, otherwise: Error) -> Error {
        self.drain();
        match self.consumer.context().refused().take() {
            Some((code, reason)) => Error::Refused { brokers: self.brokers.clone(), code, reason },
            None => otherwise,
        }
    }

    /// Log lines and errors wait in the client's queue until somebody takes them.
    fn drain(&self) {
        for _ in 0..EVENTS_DRAINED_MAX {
            if self.consumer.poll(Duration::ZERO).is_none() {
                return;
            }
        }
    }
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

/// Those that have an offset and no error.
fn offsets(list: &TopicPartitionList) -> HashMap<(String, i32), i64> {
    list.elements()
        .iter()
        .filter(|element| element.error().is_ok())
        .filter_map(|element| match element.offset() {
            Offset::Offset(offset) => Some(((element.topic().to_owned(), element.partition()), offset)),
            _ => None,
        })
        .collect()
}

/// Time that is left, at least a millisecond: librdkafka reads zero as "do not even look".
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

struct Open {
    client: Arc<Client>,
    used: Instant,
}

/// The open clients.
#[derive(Default)]
pub struct Clients {
    open: Mutex<HashMap<ClientKey, Open>>,
}

impl Clients {
    /// The client for a key; made when there is none. Closes another one when there are too many.
    pub fn get(&self, key: &ClientKey) -> Result<Arc<Client>, Error> {
        let now = Instant::now();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = open.get_mut(key) {
            found.used = now;
            return Ok(Arc::clone(&found.client));
        }
        let client = Arc::new(Client::new(key)?);
        open.insert(key.clone(), Open { client: Arc::clone(&client), used: now });
        let surplus = if open.len() > CLIENTS_MAX { oldest(&open) } else { None };
        let closed = surplus.and_then(|key| open.remove(&key));
        // Closing waits for librdkafka's threads; nobody may wait for that at the lock.
        drop(open);
        drop(closed);
        Ok(client)
    }

    /// Closes the clients that nobody used for `idle`.
    pub fn close_idle(&self, idle: Duration) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let closed: Vec<Open> =
            open.extract_if(|_, client| client.used.elapsed() >= idle).map(|(_, client)| client).collect();
        drop(open);
        drop(closed);
    }
}

fn oldest(open: &HashMap<ClientKey, Open>) -> Option<ClientKey> {
    open.iter().min_by_key(|(_, client)| client.used).map(|(key, _)| key.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::{
        consumer::CommitMode,
        mocking::MockCluster,
        producer::{BaseProducer, BaseRecord, Producer},
    };

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn client_key(servers: &str) -> ClientKey {
        ClientKey {
            bootstrap_servers: servers.to_owned(),
            consumer_group: "tracing.prod".to_owned(),
            security: KafkaSecurity::default(),
        }
    }

    fn produce(servers: &str, topic: &str, partition: i32, count: usize) {
        let producer: BaseProducer = ClientConfig::new().set("bootstrap.servers", servers).create().unwrap();
        for _ in 0..count {
            let record = BaseRecord::<(), str>::to(topic).partition(partition).payload("x");
            producer.send(record).unwrap();
        }
        producer.flush(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_topic_has_partitions() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("spans", 3, 1).unwrap();
        let client = Client::new(&client_key(&cluster.bootstrap_servers())).unwrap();
        assert_eq!(client.partitions("spans", soon()).unwrap(), Some(3));
    }

    #[test]
    fn positions_are_committed_begin_and_end() {
        let cluster = MockCluster::new(1).unwrap();
        let servers = cluster.bootstrap_servers();
        cluster.create_topic("spans", 2, 1).unwrap();
        produce(&servers, "spans", 0, 5);
        produce(&servers, "spans", 1, 2);
        let key = client_key(&servers);
        let client = Client::new(&key).unwrap();
        let mut commit = TopicPartitionList::new();
        commit.add_partition_offset("spans", 0, Offset::Offset(3)).unwrap();
        client.consumer.commit(&commit, CommitMode::Sync).unwrap();

        let positions = client.positions(&[("spans".to_owned(), 2)], soon()).unwrap();
        assert_eq!(positions[0], Position { committed: Some(3), begin: Some(0), end: Some(5) });
        assert_eq!(positions[1], Position { committed: None, begin: Some(0), end: Some(2) });
    }

    #[test]
    fn kafka_away_is_an_error_in_time() {
        let begun = Instant::now();
        let client = Client::new(&client_key("127.0.0.1:1")).unwrap();
        assert!(client.partitions("spans", begun + Duration::from_millis(300)).is_err());
        assert!(begun.elapsed() < Duration::from_secs(3));
    }

    #[test]
    fn clients_are_shared_and_closed_when_idle() {
        let clients = Clients::default();
        let key = client_key("127.0.0.1:1");
        let first = clients.get(&key).unwrap();
        assert!(Arc::ptr_eq(&first, &clients.get(&key).unwrap()));
        clients.close_idle(Duration::from_mins(1));
        assert!(Arc::ptr_eq(&first, &clients.get(&key).unwrap()));
        clients.close_idle(Duration::ZERO);
        assert!(!Arc::ptr_eq(&first, &clients.get(&key).unwrap()));
    }

    #[test]
    fn no_more_clients_are_open_than_allowed() {
        let clients = Clients::default();
        for group in 0..=CLIENTS_MAX {
            let key = ClientKey { consumer_group: group.to_string(), ..client_key("127.0.0.1:1") };
            clients.get(&key).unwrap();
        }
        assert_eq!(clients.open.lock().unwrap().len(), CLIENTS_MAX);
    }
}
