//! What Kafka says about a pipeline's topics: partitions and lag. Reads only.
//!
//! Kafka may be away, and a reconcile must not wait for it: a question runs on one of tokio's blocking threads, has
//! [`ASK_SECONDS`] to find its answer, and a reconcile waits [`WAIT_SECONDS`] for it; longer only for the first question about a
//! source. A later answer is kept for the next reconcile. At most [`QUESTIONS_MAX`] questions to one cluster run at the same time, and one
//! per source: an unreachable cluster delays no question to another one. One reconcile waits for the unreachable cluster; the others
//! continue with what is known.
//!
//! [`QUESTIONS_MAX`]: crate::read::kafka::clients::QUESTIONS_MAX

mod error;

pub use error::Error;

use super::{
    self as kafka, Position,
    clients::{CLIENTS_MAX_DEFAULT, Clients, Connected, Connection, IDLE_SECONDS_MAX},
    cluster::Cluster,
};
use crate::world::metrics::KafkaClientMetrics;
use sluice_plan::{SourceFailure, scale::PartitionSample};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::time::timeout;
use tracing::debug;

/// A question is given up after this many seconds: long enough for an answer from another continent, twice.
const ASK_SECONDS: u64 = 5;
/// A reconcile waits this many seconds for the answer.
const WAIT_SECONDS: u64 = 2;
/// An answer is used again for this many seconds: reconciles come in bursts while pods roll.
const FRESH_SECONDS: u64 = 5;
/// An answer counts for this many seconds while none comes that is newer: one question that fails while a broker restarts does not make
/// Kafka unreachable, the second one in a row, half a minute later, does. Scaling decides by no answer that is older than its last look.
const GOOD_SECONDS: u64 = 60;
/// A source that the operator does not ask, because it waits for other clusters, counts as unreachable after this many seconds. Until then, what the
/// status said before a restart holds. Chosen: at the limit, an operator that has just started asks some dozens of clusters one after another.
const UNASKED_SECONDS_MAX: u64 = 120;
/// What is known about a source is dropped if no reconcile asked for it for this many seconds.
const KNOWN_SECONDS_MAX: u64 = 2 * IDLE_SECONDS_MAX;

/// Which topics, read by whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// The cluster that has them.
    pub cluster: Cluster,
    /// The group whose committed offsets are asked for.
    pub consumer_group: String,
    /// Topics by name.
    pub topics: Vec<String>,
    /// Whether a partition without a committed offset is begun at its oldest message, or behind its newest.
    pub from_earliest: bool,
}

/// What Kafka answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// Topics with their partitions.
    pub topics: Vec<(String, u32)>,
    /// Topics that do not exist.
    pub missing: Vec<String>,
    /// Messages that the group has not committed yet; where all topics exist and the offsets could be read.
    pub lag_messages: Option<u64>,
    /// Offsets of all partitions, topics one after another; `None` for a partition for which no broker answers, and empty if
    /// `lag_messages` is `None`.
    pub partitions: Vec<Option<PartitionSample>>,
    /// When Kafka answered.
    pub answered: Option<Instant>,
}

impl Sample {
    /// Whether the group has committed an offset of any partition.
    pub fn has_committed(&self) -> bool {
        self.partitions.iter().flatten().any(|partition| partition.committed.is_some())
    }

    /// Whether of every partition Kafka has all that the group has not committed. One that it has committed nothing of, and that does
    /// not begin at 0 any more, may have been read from a message on that is gone; one that ends before the commit was made anew.
    pub fn has_uncommitted(&self) -> bool {
        let has = |partition: &PartitionSample| {
            (partition.log_start..=partition.end).contains(&partition.committed.unwrap_or(0))
        };
        !self.partitions.is_empty()
            && self.partitions.iter().all(|partition| partition.as_ref().is_some_and(has))
    }
}

#[derive(Debug, Default)]
struct Known {
    asking: bool,
    /// When the last question ended; `None` while there was none.
    ended: Option<Instant>,
    /// What came of it, where it was no answer.
    error: Option<Error>,
    /// Since when it is due to be asked, and is not; `None` once it was asked.
    unasked_since: Option<Instant>,
    /// The last answer, and when it came.
    good: Option<(Instant, Sample)>,
}

impl Known {
    fn learn(&mut self, answer: Result<Sample, Error>) {
        let now = Instant::now();
        (self.asking, self.ended) = (false, Some(now));
        let is_unasked = answer.as_ref().is_err_and(|error| error.failure == SourceFailure::NotAsked);
        self.unasked_since = is_unasked.then(|| self.unasked_since.unwrap_or(now));
        self.error = match answer {
            Ok(sample) => {
                self.good = Some((now, sample));
                None
            }
            Err(error) if self.is_long_unasked() => {
                Some(Error { failure: SourceFailure::Unreachable, ..error })
            }
            Err(error) => Some(error),
        };
    }

    fn is_long_unasked(&self) -> bool {
        let age_max = Duration::from_secs(UNASKED_SECONDS_MAX);
        self.unasked_since.is_some_and(|since| since.elapsed() >= age_max)
    }

    /// The last answer, if it is not older than this many seconds.
    fn good(&self, seconds: u64) -> Option<&Sample> {
        let (at, sample) = self.good.as_ref()?;
        (at.elapsed() < Duration::from_secs(seconds)).then_some(sample)
    }
}

/// Asks Kafka, and remembers.
#[derive(Clone)]
pub struct Sampler {
    clients: Arc<Clients>,
    known: Arc<Mutex<HashMap<Source, Known>>>,
}

impl Default for Sampler {
    fn default() -> Self {
        Self::new(CLIENTS_MAX_DEFAULT, KafkaClientMetrics::default())
    }
}

impl Sampler {
    /// Asks with at most this many clients at the same time.
    pub fn new(clients_max: u16, metrics: KafkaClientMetrics) -> Self {
        Self { clients: Arc::new(Clients::new(clients_max, metrics)), known: Arc::default() }
    }

    /// Asks, unless an answer is fresh.
    pub async fn sample(&self, source: &Source) -> Result<Sample, Error> {
        if let Some(sample) = self.fresh(source) {
            return Ok(sample);
        }
        if let Some(wait_seconds) = self.begin(source) {
            let turn = self.clients.turn(&source.cluster);
            let (sampler, asked) = (self.clone(), source.clone());
            let question = tokio::spawn(async move { sampler.ask(asked).await });
            if let Some(_turn) = turn {
                // Too late is no error here: the answer is kept, and `last` says what is known until then.
                timeout(Duration::from_secs(wait_seconds), question).await.ok();
            }
        }
        self.last(source)
    }

    /// Closes idle clients and forgets sources that no reconcile asks for. `run` calls it every minute.
    pub async fn tidy(&self) {
        let age_max = Duration::from_secs(KNOWN_SECONDS_MAX);
        self.known().retain(|_, known| known.asking || known.ended.is_some_and(|at| at.elapsed() < age_max));
        let clients = Arc::clone(&self.clients);
        // Closing a client waits for its threads. A panic there is none of ours.
        let close = move || clients.close_idle(Duration::from_secs(IDLE_SECONDS_MAX));
        tokio::task::spawn_blocking(close).await.ok();
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Source, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self, source: &Source) -> Option<Sample> {
        let known = self.known();
        let known = known.get(source).filter(|known| known.error.is_none())?;
        // Look for a missing topic each time: a pipeline waits for it.
        known.good(FRESH_SECONDS).filter(|sample| sample.missing.is_empty()).cloned()
    }

    /// Claims the question about a source, and says for how many seconds its answer is waited for; `None` when it is
    /// being asked already. The first question is waited for until it ends, since nothing else is known.
    fn begin(&self, source: &Source) -> Option<u64> {
        let mut known = self.known();
        let known = known.entry(source.clone()).or_default();
        let wait_seconds = if known.ended.is_some() { WAIT_SECONDS } else { ASK_SECONDS + 1 };
        (!std::mem::replace(&mut known.asking, true)).then_some(wait_seconds)
    }

    async fn ask(&self, source: Source) {
        let answer = match self.clients.connect(&source.cluster) {
            Some(connected) => answer(connected, &source).await,
            None => Err(Error::too_many(&source, self.clients.most())),
        };
        self.known().entry(source).or_default().learn(answer);
    }

    /// The result of the last question. An answer still counts for a while if another question is under way, or if a later question got no answer. A
    /// refusal counts at once.
    fn last(&self, source: &Source) -> Result<Sample, Error> {
        let known = self.known();
        let Some(known) = known.get(source) else { return Err(Error::slow(source)) };
        let error = match (&known.error, &known.good) {
            (None, Some((_, sample))) if !known.asking => return Ok(sample.clone()),
            (Some(error), _) if !error.is_silence => return Err(error.clone()),
            (Some(error), _) => error.clone(),
            (None, _) => Error::slow(source),
        };
        known.good(GOOD_SECONDS).cloned().ok_or(error)
    }
}

/// Asks from one of the cluster's places.
async fn answer(connected: Connected, source: &Source) -> Result<Sample, Error> {
    let Connected { connection, given_up } = connected;
    let place = connection.place().await;
    let asked = source.clone();
    let question = move || {
        // The limit of clients is never exceeded: the other client is closed first. The limit is rarely reached.
        drop(given_up);
        let answer = ask(&connection, &asked);
        connection.note(answer.as_ref().map_or_else(kafka::Error::is_answer, |asked| !asked.is_late));
        drop(place);
        answer.map(|asked| asked.sample)
    };
    match tokio::task::spawn_blocking(question).await {
        Ok(answer) => answer.map_err(|error| Error::of(&error, source)),
        Err(broken) => Err(Error::broken_off(&broken)),
    }
}

/// What came of a question.
struct Asked {
    sample: Sample,
    /// The offsets did not come in time. The cluster is waited for by one reconcile alone then, as one that does not answer at all.
    is_late: bool,
}

/// Blocks its thread for [`ASK_SECONDS`], and for as long as a client that is given up takes to close.
fn ask(connection: &Connection, source: &Source) -> Result<Asked, kafka::Error> {
    let deadline = Instant::now() + Duration::from_secs(ASK_SECONDS);
    let client = connection.client(&source.consumer_group)?;
    let (mut sample, mut is_late) = (Sample::default(), false);
    for topic in &source.topics {
        match client.partitions(topic, deadline)? {
            Some(partitions) => sample.topics.push((topic.clone(), partitions)),
            None => sample.missing.push(topic.clone()),
        }
    }
    if sample.missing.is_empty() {
        match client.positions(&source.consumer_group, &sample.topics, deadline) {
            Ok(positions) => {
                sample.lag_messages = Some(lag_messages(&positions, source.from_earliest));
                sample.partitions = positions.iter().map(partition).collect();
            }
            // Partitions without offsets are still useful: their number does not depend on the coordinator.
            Err(error) => {
                debug!(%error, group = %source.consumer_group, "no lag");
                is_late = error.is_clients_end();
                if is_late {
                    connection.retire(&client);
                }
            }
        }
    }
    sample.answered = Some(Instant::now());
    Ok(Asked { sample, is_late })
}

/// Offsets below zero are Kafka's way to say that there is none.
fn partition(position: &Position) -> Option<PartitionSample> {
    let offset = |offset: i64| u64::try_from(offset).ok();
    Some(PartitionSample {
        log_start: position.begin.and_then(offset)?,
        end: position.end.and_then(offset)?,
        committed: position.committed.and_then(offset),
        // Gateways say that.
        position: None,
    })
}

fn lag_messages(positions: &[Position], from_earliest: bool) -> u64 {
    let behind = |position: &Position| {
        // A partition without a leader has no end for now; it counts nothing rather than everything.
        let Some(end) = position.end else { return 0 };
        let first = if from_earliest { position.begin.unwrap_or(end) } else { end };
        let at = position.committed.unwrap_or(first);
        // A topic that was made again ends before what was committed on the old one.
        u64::try_from(end.saturating_sub(at)).unwrap_or(0)
    };
    positions.iter().map(behind).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::kafka::{clients::QUESTIONS_MAX, cluster::tests::cluster};
    use futures::future::join_all;
    use rdkafka::mocking::MockCluster;

    fn source(servers: &str) -> Source {
        Source {
            cluster: cluster(servers, &[]),
            consumer_group: "g".to_owned(),
            topics: vec!["spans".to_owned()],
            from_earliest: true,
        }
    }

    fn sources(servers: &str, count: usize) -> Vec<Source> {
        let group = |number: usize| Source { consumer_group: number.to_string(), ..source(servers) };
        (0..count).map(group).collect()
    }

    #[test]
    fn lag_is_what_is_behind_the_committed_offset() {
        let of = |committed, begin, end| Position { committed, begin: Some(begin), end: Some(end) };
        let positions = [of(Some(90), 100, 100), of(None, 40, 100), of(Some(7), 7, 7)];
        assert_eq!(lag_messages(&positions, true), 70);
        assert_eq!(lag_messages(&positions, false), 10);
    }

    #[test]
    fn a_topic_that_was_made_again_has_no_negative_lag() {
        assert_eq!(lag_messages(&[Position { committed: Some(500), begin: Some(3), end: Some(3) }], true), 0);
    }

    #[test]
    fn a_partition_that_nobody_answers_for_is_missing_and_has_no_lag() {
        let known = Position { committed: None, begin: Some(2), end: Some(9) };
        let sample = PartitionSample { log_start: 2, end: 9, committed: None, position: None };
        assert_eq!(partition(&known), Some(sample));
        let negative = Position { committed: Some(-1_001), ..known };
        assert_eq!(partition(&negative), Some(sample));
        for missing in [
            Position { begin: None, ..known },
            Position { end: None, ..known },
            Position { end: Some(-1), ..known },
        ] {
            assert_eq!(partition(&missing), None);
        }
        assert_eq!(lag_messages(&[Position { committed: Some(4), begin: None, end: None }], true), 0);
    }

    #[tokio::test]
    async fn an_answer_has_partitions_and_lag() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("spans", 4, 1).unwrap();
        let sampler = Sampler::default();
        let sample = sampler.sample(&source(&cluster.bootstrap_servers())).await.unwrap();
        assert_eq!(sample.topics, [("spans".to_owned(), 4)]);
        assert_eq!(sample.lag_messages, Some(0));
        assert_eq!(sample.partitions, vec![Some(PartitionSample::default()); 4]);
        assert!(sample.answered.is_some());
    }

    #[tokio::test]
    async fn kafka_away_holds_nobody_up() {
        let sampler = Sampler::default();
        let away = source("127.0.0.1:1");
        let error = sampler.sample(&away).await.unwrap_err();
        assert_eq!(error.failure, SourceFailure::Unreachable, "{error}");
        // The next one waits less, and the one beside it not at all: the question is asked once.
        let begun = Instant::now();
        let (one, other) = tokio::join!(sampler.sample(&away), async {
            let answer = sampler.sample(&away).await;
            (answer, begun.elapsed())
        });
        assert!(one.is_err() && other.0.is_err());
        assert!(other.1 < Duration::from_millis(500), "{:?}", other.1);
        assert!(begun.elapsed() < Duration::from_secs(WAIT_SECONDS + 1), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_cluster_that_is_away_delays_no_question_to_another() {
        let kafka = MockCluster::new(1).unwrap();
        kafka.create_topic("spans", 4, 1).unwrap();
        let sampler = Sampler::default();
        let away = sources("127.0.0.1:1", 8 * QUESTIONS_MAX);
        let asked = away.iter().map(|source| {
            let (sampler, source) = (sampler.clone(), source.clone());
            tokio::spawn(async move { sampler.sample(&source).await })
        });
        let asked: Vec<_> = asked.collect();
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let healthy = sources(&kafka.bootstrap_servers(), 2 * QUESTIONS_MAX);
        let answers = join_all(healthy.iter().map(|source| sampler.sample(source))).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert!(begun.elapsed() < Duration::from_secs(ASK_SECONDS), "{:?}", begun.elapsed());
        asked.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn an_answer_counts_for_a_while_when_the_next_question_finds_nobody() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("spans", 4, 1).unwrap();
        let source = source(&cluster.bootstrap_servers());
        let sampler = Sampler::default();
        let known = sampler.sample(&source).await.unwrap();
        let silent = Error::silence(SourceFailure::Unreachable, "nobody".into());
        let refused = Error { failure: SourceFailure::AuthFailed, message: "no".into(), is_silence: false };
        sampler.known().get_mut(&source).unwrap().learn(Err(silent.clone()));
        assert_eq!(sampler.last(&source), Ok(known.clone()));
        sampler.known().get_mut(&source).unwrap().learn(Err(refused.clone()));
        assert_eq!(sampler.last(&source), Err(refused), "who refuses has answered");
        // A minute later nothing has come that is newer.
        let past = Instant::now().checked_sub(Duration::from_secs(GOOD_SECONDS)).unwrap();
        let age = || sampler.known().get_mut(&source).unwrap().good = Some((past, known.clone()));
        sampler.known().get_mut(&source).unwrap().learn(Err(silent.clone()));
        age();
        assert_eq!(sampler.last(&source), Err(silent));
        sampler.known().get_mut(&source).unwrap().learn(Ok(known.clone()));
        age();
        assert_eq!(sampler.last(&source), Ok(known.clone()), "nobody has asked since");
        sampler.known().get_mut(&source).unwrap().asking = true;
        assert_eq!(sampler.last(&source), Err(Error::slow(&source)));
    }

    #[test]
    fn a_source_that_waits_for_other_clusters_counts_as_unreachable_after_two_minutes() {
        let error = Error::too_many(&source("127.0.0.1:1"), 1);
        assert!(error.message.contains("1 other cluster, ") && error.message.contains("kafkaClientsMax"));
        let mut known = Known::default();
        let failure = |known: &Known| known.error.as_ref().map(|error| error.failure);
        known.learn(Err(error.clone()));
        assert_eq!(failure(&known), Some(SourceFailure::NotAsked));
        let past = Instant::now().checked_sub(Duration::from_secs(UNASKED_SECONDS_MAX)).unwrap();
        known.unasked_since = Some(past);
        known.learn(Err(error.clone()));
        assert_eq!(failure(&known), Some(SourceFailure::Unreachable));
        known.learn(Ok(Sample::default()));
        known.learn(Err(error));
        assert_eq!(failure(&known), Some(SourceFailure::NotAsked), "it was asked in between");
    }

    #[tokio::test]
    async fn a_cluster_that_is_away_is_waited_for_by_one_reconcile() {
        let sampler = Sampler::default();
        sampler.sample(&source("127.0.0.1:1")).await.unwrap_err();
        let away = sources("127.0.0.1:1", 10);
        let waited = join_all(away.iter().map(async |source| {
            let begun = Instant::now();
            sampler.sample(source).await.unwrap_err();
            begun.elapsed()
        }));
        let waited = waited.await;
        let long = waited.iter().filter(|waited| **waited > Duration::from_secs(1)).count();
        assert_eq!(long, 1, "{waited:?}");
    }
}
