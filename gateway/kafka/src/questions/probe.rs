//! Questions to the brokers for `sluice-gateway check`: can they be reached, do they accept the credentials, and do the topics
//! exist?
//!
//! librdkafka answers with "transport failure" whatever the cause, and retries until the time is over. The cause arrives separately, as
//! an error of the client: [`Connections`] keeps the first one, which ends the question.

use crate::ground::{
    login::renewal,
    security::ConnectionProblem,
    settings::{probe_settings, refused},
};
use rdkafka::{
    ClientConfig, ClientContext,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    config::RDKafkaLogLevel,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode},
};
use sluice_gateway_config::{Kafka, SecretFileError};
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long librdkafka waits at a time before the client's errors are checked. Chosen: a person waits for the result, and a handshake
/// takes milliseconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// How long the client's queue is read after each of these waits. With no time at all rdkafka returns after one log line, and the reason of a
/// failed connection comes after many of them. Chosen: thousands of lines are dropped in this time.
const EVENTS_WAIT: Duration = Duration::from_millis(20);

/// What librdkafka says when a broker closes a connection: one that wants TLS, or a login, closes it at the first request.
const CLOSED: &str = "Disconnected";

/// What librdkafka says of a listener that accepts a connection and does not answer on it; [`NOT_ACCEPTED`] is the exception.
const SILENT: &str = "Connection setup timed out in state ";

/// What it says of a connection that no listener has accepted.
const NOT_ACCEPTED: &str = "Connection setup timed out in state CONNECT";

/// How long the setup of a connection may take, and its property. Chosen: half of what a question may take; librdkafka's 30 s are longer.
const SETUP_TIMEOUT: (&str, &str) = ("socket.connection.setup.timeout.ms", "5000");

/// librdkafka's name for log lines about connections that ended.
const FAILED: &str = "FAIL";

/// A topic and how many partitions it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPartitions {
    pub topic: String,
    /// The number of its partitions; `None` if the topic does not exist.
    pub partitions: Option<usize>,
}

/// Why the brokers did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The user or password file cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings: for example, a file is missing or contains no certificate.
    #[error("cannot create a Kafka client for {brokers}: {why}")]
    Settings { brokers: String, why: String },
    /// There is no token to log in with, so no broker was asked.
    #[error("cannot log in to Kafka: {0}")]
    Token(Box<sluice_login::Error>),
    /// A broker was reached but rejected the connection, or was rejected.
    #[error("{}: {reason}; {advice}", match .problem {
        ConnectionProblem::Tls => "no TLS connection to a broker",
        ConnectionProblem::Credentials => "the broker refuses user and password",
        ConnectionProblem::Token => "the broker refuses the token",
    })]
    Refused {
        /// What was refused.
        problem: ConnectionProblem,
        reason: String,
        advice: String,
    },
    /// No broker answered in time.
    #[error("no broker of {brokers} answered within {seconds} s about topic {topic}: {source}{said}")]
    Unreachable { brokers: String, topic: String, seconds: u64, source: Box<KafkaError>, said: String },
}

/// The errors that a client reports about its connections.
#[derive(Default)]
struct Connections(Mutex<Said>);

#[derive(Default)]
struct Said {
    refused: Option<(ConnectionProblem, String)>,
    last: Option<String>,
}

impl ClientContext for Connections {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        // It is no error for librdkafka: it connects again.
        if facility == FAILED && (message.contains(CLOSED) || is_silence(message)) {
            let (_, reason) = message.split_once("]: ").unwrap_or(("", message));
            let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            said.last = Some(reason.to_owned());
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match ConnectionProblem::of(&error) {
            Some(problem) if said.refused.is_none() => said.refused = Some((problem, reason.to_owned())),
            Some(_) => {}
            // "All brokers down" follows the error with the reason.
            None if error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown) => {}
            None => said.last = Some(reason.to_owned()),
        }
    }
}

impl ConsumerContext for Connections {}

/// Asks about every topic of the config. Blocks for up to `timeout` per topic.
pub fn probe_topics(kafka: &Kafka, timeout: Duration) -> Result<Vec<TopicPartitions>, ProbeError> {
    let client: BaseConsumer<Connections> = client_config(kafka)
        .map_err(ProbeError::Secret)?
        .create_with_context(Connections::default())
        .map_err(|error| ProbeError::Settings { brokers: brokers(kafka), why: refused(&error) })?;
    let renewal = renewal(kafka);
    renewal.wait(client.client());
    if let Some(missing) = renewal.missing() {
        return Err(ProbeError::Token(Box::new(missing)));
    }
    kafka.topics.iter().map(|topic| Question { kafka, client: &client, topic }.ask(timeout)).collect()
}

fn brokers(kafka: &Kafka) -> String {
    kafka.bootstrap_servers.join(",")
}

/// The question about one topic.
struct Question<'a> {
    kafka: &'a Kafka,
    client: &'a BaseConsumer<Connections>,
    topic: &'a str,
}

impl Question<'_> {
    fn ask(&self, timeout: Duration) -> Result<TopicPartitions, ProbeError> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            let answer = self.client.fetch_metadata(Some(self.topic), left.min(LOOK_INTERVAL));
            let source = match answer {
                Ok(metadata) => return Ok(self.partitions(&metadata)),
                Err(KafkaError::MetadataFetch(
                    RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition,
                )) => return Ok(TopicPartitions { topic: self.topic.to_owned(), partitions: None }),
                Err(source) => source,
            };
            // The client's errors are delivered only when it is polled; there is nothing else to poll for.
            while self.client.poll(EVENTS_WAIT).is_some() {}
            self.refused()?;
            if Instant::now() >= deadline {
                return Err(self.unreachable(timeout, source));
            }
        }
    }

    fn partitions(&self, metadata: &rdkafka::metadata::Metadata) -> TopicPartitions {
        let found =
            metadata.topics().iter().find(|found| found.name() == self.topic && found.error().is_none());
        let partitions = found.map(|found| found.partitions().len()).filter(|count| *count > 0);
        TopicPartitions { topic: self.topic.to_owned(), partitions }
    }

    fn refused(&self) -> Result<(), ProbeError> {
        let said = self.client.context().0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((problem, reason)) = said.refused.clone() else { return Ok(()) };
        let problem = problem.with(self.kafka);
        let advice = if takes_no_login(&reason) {
            "check the port of the listener, which takes no logins, or remove source.kafka.sasl".to_owned()
        } else {
            problem.advice(self.kafka)
        };
        Err(ProbeError::Refused { problem, reason, advice })
    }

    fn unreachable(&self, timeout: Duration, source: KafkaError) -> ProbeError {
        let last = self.client.context().0.lock().unwrap_or_else(PoisonError::into_inner).last.clone();
        // With TLS 1.3 a broker rejects the client's certificate after the handshake, which looks like a lost connection.
        let advice = self.kafka.tls.is_some().then(|| ConnectionProblem::Tls.advice(self.kafka));
        let is_plain = self.kafka.tls.is_none() || self.kafka.sasl.is_none();
        let is_closed = last.as_ref().is_some_and(|last| last.contains(CLOSED));
        let is_silent = last.as_ref().is_some_and(|last| is_silence(last));
        let silent = is_silent.then(|| {
            "a listener accepts connections and does not answer: check for a broker that hangs, a proxy without a broker, or a listener of another protocol".to_owned()
        });
        let wants = (is_plain && is_closed).then(|| {
            "a broker accepts connections and closes them: check whether its listener wants source.kafka.tls or source.kafka.sasl".to_owned()
        });
        let all = last.into_iter().chain(advice).chain(wants).chain(silent);
        let said = all.fold(String::new(), |said, text| said + "; " + &text);
        ProbeError::Unreachable {
            brokers: brokers(self.kafka),
            topic: self.topic.to_owned(),
            seconds: timeout.as_secs(),
            source: Box::new(source),
            said,
        }
    }
}

/// Whether the brokers would create a topic with this many partitions; none is created.
///
/// # Errors
/// The brokers' reason. A client that cannot be created is reported here as well; [`ProbeError`]s are for questions that need an answer.
pub async fn would_make(
    kafka: &Kafka,
    topic: &str,
    partitions: usize,
    timeout: Duration,
) -> Result<(), String> {
    let config = client_config(kafka).map_err(|error| error.to_string())?;
    let client: AdminClient<DefaultClientContext> = config.create().map_err(|error| error.to_string())?;
    let renewal = renewal(kafka);
    renewal.wait(client.inner());
    let options = AdminOptions::new().request_timeout(Some(timeout)).validate_only(true);
    let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
    // The brokers' default number of replicas: fewer may be requested, never more.
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
    let made = client.create_topics([&new], &options).await.map_err(|error| error.to_string())?;
    match made.into_iter().next() {
        None | Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(()),
        Some(Err((_, code))) => Err(code.to_string()),
    }
}

/// Whether a listener accepted a connection and did not answer on it.
fn is_silence(message: &str) -> bool {
    message.contains(SILENT) && !message.contains(NOT_ACCEPTED)
}

/// Whether the broker has named its mechanisms, and has none.
fn takes_no_login(reason: &str) -> bool {
    let mechanisms = reason.split_once("supported mechanisms:").map(|(_, mechanisms)| mechanisms);
    // librdkafka appends the time and the state of the connection.
    mechanisms.is_some_and(|rest| rest.split_once("(after").map_or(rest, |(rest, _)| rest).trim().is_empty())
}

fn client_config(kafka: &Kafka) -> Result<ClientConfig, SecretFileError> {
    let mut config = ClientConfig::new();
    config.set(SETUP_TIMEOUT.0, SETUP_TIMEOUT.1);
    for (name, value) in probe_settings(kafka)? {
        config.set(name, value);
    }
    // A person asks why a connection ends: librdkafka writes a log line about that at this level.
    config.set("log.connection.close", "true").set_log_level(RDKafkaLogLevel::Info);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::settings::tests::kafka;
    use sluice_gateway_config::Tls;
    use std::io::{Read as _, Write as _};

    #[test]
    fn a_listener_without_logins_is_told_by_its_mechanisms() {
        for (reason, expected) in [
            ("broker's supported mechanisms:  (after 3ms in state AUTH_HANDSHAKE)", true),
            ("broker's supported mechanisms: PLAIN (after 3ms in state AUTH_HANDSHAKE)", false),
            ("wrong password", false),
        ] {
            assert_eq!(takes_no_login(reason), expected, "{reason}");
        }
    }

    /// As a listener that wants TLS, or a login.
    #[test]
    fn a_broker_that_closes_connections_may_want_tls_or_a_login() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                drop(stream.unwrap().read(&mut [0; 4_096]));
            }
        });
        let mut kafka = kafka();
        (kafka.bootstrap_servers, kafka.tls, kafka.sasl) = (vec![address], None, None);
        let closed = probe_topics(&kafka, Duration::from_secs(2)).unwrap_err().to_string();
        assert!(closed.contains("check whether its listener wants source.kafka.tls or"), "{closed}");
    }

    #[test]
    fn a_listener_that_does_not_answer_is_told() {
        // The system accepts its connections.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut kafka = kafka();
        kafka.bootstrap_servers = vec![listener.local_addr().unwrap().to_string()];
        (kafka.tls, kafka.sasl) = (None, None);
        let silent = probe_topics(&kafka, Duration::from_secs(10)).unwrap_err().to_string();
        assert!(silent.contains("a listener accepts connections and does not answer"), "{silent}");
        assert!(!is_silence("Connection setup timed out in state CONNECT (after 3001ms in state CONNECT)"));
    }

    #[test]
    fn the_reason_of_a_failed_connection_is_found_behind_log_lines() {
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
        let mut kafka = kafka();
        kafka.bootstrap_servers = vec![address];
        kafka.tls = Some(Tls { ca_file: None, certificate_file: None, key_file: None });
        kafka.properties = [("debug".into(), "all".into())].into();
        let refused = probe_topics(&kafka, Duration::from_secs(5)).unwrap_err();
        assert!(matches!(refused, ProbeError::Refused { problem: ConnectionProblem::Tls, .. }), "{refused}");
    }
}
