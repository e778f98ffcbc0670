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
use sluice_login::Renewal;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Events of one client (its log lines) that are dropped before each request. Otherwise they would accumulate.
const EVENTS_DRAINED_MAX: usize = 1_000;
/// How long events are dropped at a time. With no time at all rdkafka returns after one event that is no error, and leaves those after it.
const EVENTS_WAIT: Duration = Duration::from_millis(1);
/// The reason of a failed connection is used for this many seconds. librdkafka repeats it after 30 s at the earliest, so that this is twice
/// as long.
const REFUSED_SECONDS_MAX: u64 = 60;

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
        /// librdkafka's code: TLS or authentication.
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

/// Drops librdkafka's log lines, since a request returns its error too. It keeps the reason of a failed connection: the request itself only
/// returns "timed out".
#[derive(Default)]
struct Silent {
    refused: Mutex<Option<Refusal>>,
}

impl Silent {
    fn refused(&self) -> MutexGuard<'_, Option<Refusal>> {
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
            let mut refused = self.refused();
            *refused = Some(Refusal::now(code, reason, refused.take()));
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
            .set_log_level(RDKafkaLogLevel::Emerg)
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
        if let Some(source) = self.renewal.overdue() {
            return self.no_token(source);
        }
        match &*self.consumer.context().refused() {
            Some(Refusal { at, code, reason }) if at.elapsed().as_secs() < REFUSED_SECONDS_MAX => {
                Error::Refused { brokers: self.brokers.clone(), code: *code, reason: reason.clone() }
            }
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

/// Whether librdkafka knows a setting and accepts this value.
fn is_accepted(name: &str, value: &str) -> bool {
    ClientConfig::new().set(name, value).create_native_config().is_ok()
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
mod tests {
    use super::*;
    use crate::read::kafka::{
        own_logins::OwnLogins,
        security::{KafkaSecrets, KafkaSecurity},
    };
    use cluster::tests::cluster;
    use rdkafka::{
        consumer::CommitMode,
        mocking::{MockCluster, MockCoordinator},
        producer::{BaseProducer, BaseRecord, Producer},
        types::{RDKafkaApiKey, RDKafkaRespErr},
    };
    use sluice_crds::SecretUse;
    use std::{
        io::{Read as _, Write as _},
        sync::Arc,
    };

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn client(servers: &str) -> Client {
        Client::new(&cluster(servers, &[]), "of-another").unwrap()
    }

    fn commit(servers: &str, group: &str, partition: i32, offset: i64) {
        let mut config = ClientConfig::new();
        let consumer: BaseConsumer =
            config.set("bootstrap.servers", servers).set("group.id", group).create().unwrap();
        let mut commit = TopicPartitionList::new();
        commit.add_partition_offset("spans", partition, Offset::Offset(offset)).unwrap();
        consumer.commit(&commit, CommitMode::Sync).unwrap();
    }

    fn spans(partitions: u32) -> Vec<(String, u32)> {
        vec![("spans".to_owned(), partitions)]
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
        let kafka = MockCluster::new(1).unwrap();
        kafka.create_topic("spans", 3, 1).unwrap();
        let client = client(&kafka.bootstrap_servers());
        assert_eq!(client.partitions("spans", soon()).unwrap(), Some(3));
    }

    #[test]
    fn positions_are_committed_begin_and_end_of_whichever_group() {
        let kafka = MockCluster::new(2).unwrap();
        let servers = kafka.bootstrap_servers();
        kafka.create_topic("spans", 2, 1).unwrap();
        produce(&servers, "spans", 0, 5);
        produce(&servers, "spans", 1, 2);
        commit(&servers, "one", 0, 3);
        commit(&servers, "other", 1, 1);
        let client = client(&servers);
        let of = |committed, end| Position { committed, begin: Some(0), end: Some(end) };
        for (group, committed) in
            [("one", [Some(3), None]), ("other", [None, Some(1)]), ("none", [None, None])]
        {
            let positions = client.positions(group, &spans(2), soon()).unwrap();
            assert_eq!(positions, [of(committed[0], 5), of(committed[1], 2)], "{group}");
        }
        assert_eq!(client.positions("one", &[], soon()).unwrap(), []);
    }

    #[test]
    fn a_coordinator_that_has_moved_ends_the_client_and_not_the_process() {
        let kafka = MockCluster::new(1).unwrap();
        let servers = kafka.bootstrap_servers();
        kafka.create_topic("spans", 1, 1).unwrap();
        let client = client(&servers);
        for (error, is_end) in [
            (RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_COORDINATOR, true),
            (RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, false),
        ] {
            kafka.request_errors(RDKafkaApiKey::OffsetFetch, &[error]);
            let found = client.positions("one", &spans(1), soon()).unwrap_err();
            assert_eq!((found.code(), found.is_clients_end()), (Some(error.into()), is_end), "{found}");
        }
        client.positions("one", &spans(1), soon()).unwrap();
    }

    #[test]
    fn an_answer_that_comes_too_late_ends_the_client_and_not_the_process() {
        let kafka = MockCluster::new(2).unwrap();
        let servers = kafka.bootstrap_servers();
        kafka.create_topic("spans", 1, 1).unwrap();
        kafka.partition_leader("spans", 0, Some(1)).unwrap();
        kafka.coordinator(MockCoordinator::Group("one".to_owned()), 2).unwrap();
        kafka.broker_down(2).unwrap();
        let client = client(&servers);
        assert_eq!(client.partitions("spans", soon()).unwrap(), Some(1));
        let in_a_moment = || Instant::now() + Duration::from_millis(300);
        for _ in 0..3 {
            let found = client.positions("one", &spans(1), in_a_moment()).unwrap_err();
            assert!(found.is_clients_end(), "{found}");
        }
        // What was asked is still there, and finds its coordinator.
        kafka.broker_up(2).unwrap();
        let positions = client.positions("one", &spans(1), soon()).unwrap();
        assert_eq!(positions.len(), 1);
        // And a client closes with requests that got no answer.
        kafka.broker_down(2).unwrap();
        let again = Client::new(&cluster(&servers, &[]), "one").unwrap();
        again.positions("one", &spans(1), in_a_moment()).unwrap_err();
    }

    #[test]
    fn a_group_that_has_no_name_is_an_error() {
        let kafka = MockCluster::new(1).unwrap();
        kafka.create_topic("spans", 1, 1).unwrap();
        let client = client(&kafka.bootstrap_servers());
        let found = client.positions("a\0b", &spans(1), soon()).unwrap_err();
        assert_eq!((found.code(), found.is_clients_end()), (None, false));
    }

    #[test]
    fn kafka_away_is_an_error_in_time() {
        let begun = Instant::now();
        let client = client("127.0.0.1:1");
        let found = client.partitions("spans", begun + Duration::from_millis(300)).unwrap_err();
        assert!(!found.is_answer());
        assert!(begun.elapsed() < Duration::from_secs(3));
    }

    #[test]
    fn a_connection_that_comes_to_nothing_is_told_in_the_same_words_each_time() {
        // It speaks no TLS.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            // What is closed before its bytes were read is reset, and the client does not see the answer.
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if stream.read(&mut [0; 512]).is_ok_and(|bytes| bytes > 0) {
                    stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").ok();
                }
                open.push(stream);
            }
        });
        let spec = serde_json::json!({"bootstrapServers": [address], "topics": ["spans"], "tls": {}});
        let spec = serde_json::from_value(spec).unwrap();
        let security = KafkaSecurity::of(&spec, &KafkaSecrets::new(), &OwnLogins::default()).unwrap();
        let client = Client::new(&Cluster::of(&spec, security), "one").unwrap();
        let asked = || client.partitions("spans", Instant::now() + Duration::from_secs(2)).unwrap_err();
        let found = [asked(), asked()].map(|error| (error.code(), error.to_string()));
        assert_eq!(found[0], found[1]);
        assert_eq!(found[0].0, Some(RDKafkaErrorCode::SSL), "{found:?}");
        assert!(!found[0].1.contains("ms in state"), "{found:?}");
    }

    #[test]
    fn a_token_endpoint_that_does_not_answer_is_told_and_kafka_is_not_asked() {
        // Connections are taken by the system, and nobody reads them.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/token", listener.local_addr().unwrap());
        let spec = serde_json::from_value(serde_json::json!({
            "bootstrapServers": ["127.0.0.1:1"], "topics": ["spans"],
            "sasl": {"mechanism": "OAuthBearer", "oauth": {"clientCredentials": {
                "tokenEndpoint": endpoint, "clientId": "me", "secretRef": {"name": "client"},
            }}},
        }))
        .unwrap();
        let secret = serde_json::json!({"data": {"client-secret": "czNjcmV0"}});
        let secret = Arc::new(serde_json::from_value(secret).unwrap());
        let secrets: KafkaSecrets = [(SecretUse::KafkaClient, secret)].into();
        let security = KafkaSecurity::of(&spec, &secrets, &OwnLogins::default()).unwrap();
        let client = Client::new(&Cluster::of(&spec, security), "one").unwrap();
        let found = client.partitions("spans", Instant::now() + Duration::from_secs(1)).unwrap_err();
        assert!(matches!(found, Error::Token { .. }), "{found}");
        let said = found.to_string();
        assert!(
            said.contains("the token endpoint http://127.0.0.1:") && said.contains("within 1 s"),
            "{said}"
        );
    }

    #[test]
    fn a_setting_that_librdkafka_does_not_take_is_left_out() {
        let properties = [("socket.receive.bufer.bytes", "65536"), ("socket.send.buffer.bytes", "many")];
        assert!(Client::new(&cluster("127.0.0.1:1", &properties), "one").is_ok());
        assert!(is_accepted("socket.send.buffer.bytes", "65536"));
    }
}
