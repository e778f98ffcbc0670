//! Requests of the poll thread to the group coordinator, one at a time, on a thread of their own.
//!
//! Why a thread: librdkafka reports the outcome of an asynchronous commit only to a callback, and its event
//! interface, which the Rust client uses, never calls it. A synchronous commit reports the outcome, but blocks while
//! the coordinator is away. The poll thread must not block.
//!
//! At most one request is in flight. So no commit can overtake another and move the group back, and start offsets are
//! never read while a commit of this process may still change them.
//!
//! The start of a partition is reported only once [`BeforeBegin`] has returned `true`: from then on commits pass
//! whatever the partition leaves out.

use crate::{
    ground::cluster::{self, UNNAMED},
    group::{arrivals::Wanted, log_consumer::LogKeeper, rebalancing::Rebalancing},
    questions::{
        first_seen::FirstSeen,
        topic_descriptions::{Descriptions, describe},
    },
};
use crossbeam_channel::{Receiver, Sender, bounded};
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
};
use sluice_gateway_config::InitialOffset;
use sluice_ranges::{ClusterNumber, Commit, CommitOutcome, Generation, Log, PartitionId, Settings, TopicId};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

/// How long the coordinator may take to return committed offsets, and a broker to return the cluster id.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the leader of one partition may take to return where its log ends.
const LOG_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a broker may take to return topic ids. Commits wait for it.
const TOPICS_TIMEOUT: Duration = Duration::from_secs(3);

/// How long all leaders together may take. Leaders that were not asked by then are asked first with the next request.
/// Commits wait for it.
const LOGS_TIMEOUT: Duration = Duration::from_secs(5);

/// Records durably on the queue volume what a partition's start with these settings means for its blocks there: those before the start may
/// be the only copy of their rows, unless the partition takes them over. `false` if that was not done in time; the partition then does not
/// start, and is asked about again. Blocks for some seconds at most: commits wait for it.
pub type BeforeBegin = Arc<dyn Fn(&PartitionId, &Beginning, &Settings) -> bool + Send + Sync>;

/// The hook, and the settings that it is called with.
pub type Before = (BeforeBegin, Wanted);

/// One partition's commit.
pub type Commitment = (PartitionId, Generation, Commit);

/// Commits to be made.
pub type Commits = Vec<Commitment>;

/// Commits that were not stored, or whose outcome is unknown.
#[derive(Debug)]
pub struct Refused {
    /// The error of the first one.
    pub error: KafkaError,
    /// The partitions in the order of the request; at least one.
    pub partitions: Vec<PartitionId>,
}

/// A request to the thread.
enum Request {
    /// Commit these offsets.
    Commit(Commits),
    /// Read where these partitions start, and call the hook before the result is returned.
    Read(Vec<PartitionId>, Option<Before>),
    /// Read the ids of these topics.
    Identify(Vec<Arc<str>>),
}

/// The result of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Of a commit.
    Committed {
        partitions: Vec<(PartitionId, Generation, CommitOutcome)>,
        /// The partitions that were not stored, and the error.
        problem: Option<Refused>,
    },
    /// Of start offsets: one entry for every partition of the request.
    Read(Vec<(PartitionId, Result<Beginning, Unread>)>),
    /// Of topic ids.
    Identified(KafkaResult<Descriptions>),
}

/// What is known of a partition before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// The committed offset and its metadata.
    pub commit: Option<(i64, String)>,
    pub log: Log,
    /// The cluster's id.
    pub cluster: Arc<str>,
    /// The topic's id.
    pub topic_id: TopicId,
    /// Whether the partition did not exist when this process first saw its topic.
    pub is_new: bool,
}

impl Beginning {
    /// Whether reading continues exactly at the committed offset. Otherwise no owner reads the messages between that
    /// offset and the start, and the next commit passes them all the same.
    pub fn is_gapless(&self) -> bool {
        let Log { start, end } = self.log;
        self.commit.as_ref().is_some_and(|(offset, _)| (start..=end).contains(offset))
    }

    /// Whether a partition without a committed offset is read from its oldest message. A new partition always is,
    /// whatever `initialOffset` says: all its messages are newer than the pipeline.
    pub fn begins_at_oldest(&self, initial: InitialOffset) -> bool {
        self.is_new || initial == InitialOffset::Earliest
    }

    /// What decides where ranges start.
    pub fn committed(&self, initial: InitialOffset) -> sluice_ranges::Committed<'_> {
        let begin = if self.begins_at_oldest(initial) { self.log.start } else { self.log.end };
        let commit = self.commit.as_ref().map(|(offset, metadata)| (*offset, metadata.as_str()));
        sluice_ranges::Committed { commit, begin, log: self.log }
    }

    /// The cluster by whose id the tokens of the ranges in flight are made, if the cluster has got its id since, or lost it.
    pub fn former_cluster(&self, settings: &Settings) -> Option<ClusterNumber> {
        let unnamed = ClusterNumber::of(UNNAMED);
        let former = self.committed(InitialOffset::Earliest).former_cluster(settings);
        former.filter(|former| *former == unnamed || settings.cluster == Some(unnamed))
    }
}

/// Why a partition's start is unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unread {
    /// No broker reports the cluster id.
    #[error("no broker reports the cluster id: {0}")]
    Cluster(KafkaError),
    /// The brokers do not report the topic's id.
    #[error("no broker reports the topic's id: {0}")]
    Topic(KafkaError),
    /// The coordinator does not report the committed offset.
    #[error("the group coordinator does not report the committed offset: {0}")]
    Coordinator(KafkaError),
    /// The leader does not report where the log begins and ends.
    #[error("the partition's leader does not report where the log begins and ends: {0}")]
    Leader(KafkaError),
    /// The leaders of other partitions used all the time.
    #[error("the partition's leader was not asked: the leaders of other partitions were too slow")]
    NotAsked,
    /// [`BeforeBegin`] returned `false`.
    #[error("the queue volume did not record in time which blocks are the only copy of their rows")]
    Volume,
}

/// The poll thread's handle of the commit thread.
pub struct Committer {
    requests: Sender<Request>,
    outcomes: Receiver<Outcome>,
    in_flight: bool,
}

impl Committer {
    /// Starts the thread. It ends when this handle or the consumer is dropped.
    pub fn start(consumer: Weak<BaseConsumer<Rebalancing>>) -> std::io::Result<Self> {
        let mut first_seen = FirstSeen::default();
        Self::answering(move |request| {
            let consumer = consumer.upgrade()?;
            Some(match request {
                Request::Commit(commits) => commit(&consumer, commits),
                Request::Read(ids, before) => {
                    Outcome::Read(read(&consumer, &ids, &mut first_seen, before.as_ref()))
                }
                Request::Identify(topics) => {
                    let described = describe(consumer.client(), &topics, TOPICS_TIMEOUT);
                    if let Ok(described) = &described {
                        first_seen.take(described);
                    }
                    Outcome::Identified(described)
                }
            })
        })
    }

    /// Starts the thread for logs of this process, which their keeper commits. It ends when this handle is dropped.
    pub fn of_logs(keeper: Arc<dyn LogKeeper>) -> std::io::Result<Self> {
        Self::answering(move |request| {
            Some(match request {
                Request::Commit(commits) => {
                    let outcome = |(id, generation, commit): Commitment| {
                        let is_stored = keeper.commit(&id, &commit);
                        let outcome = if is_stored { CommitOutcome::Stored } else { CommitOutcome::Unknown };
                        (id, generation, outcome)
                    };
                    let partitions = commits.into_iter().map(outcome).collect();
                    // The keeper has said why a commit was not stored: the process ends.
                    Outcome::Committed { partitions, problem: None }
                }
                Request::Read(ids, _) => {
                    let beginning = |id: PartitionId| {
                        let beginning = keeper.beginning(&id);
                        (id, Ok(beginning))
                    };
                    Outcome::Read(ids.into_iter().map(beginning).collect())
                }
                // A log is never made anew.
                Request::Identify(_) => Outcome::Identified(Ok(Descriptions::new())),
            })
        })
    }

    /// Starts a thread that answers requests until `answer` returns `None`.
    fn answering(
        mut answer: impl FnMut(Request) -> Option<Outcome> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (requests, requests_in) = bounded::<Request>(1);
        let (outcomes_out, outcomes) = bounded(1);
        let work = move || {
            for request in requests_in {
                let Some(outcome) = answer(request) else { return };
                #[expect(
                    clippy::disallowed_methods,
                    reason = "on a thread of its own; one request is in flight at a time"
                )]
                let sent = outcomes_out.send(outcome);
                if sent.is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("commit".to_owned()).spawn(work)?;
        Ok(Self { requests, outcomes, in_flight: false })
    }

    /// A committer whose commits get these answers, one after another.
    #[cfg(test)]
    pub(crate) fn of_answers(mut answers: impl Iterator<Item = KafkaResult<()>> + Send + 'static) -> Self {
        let answer = move |request| {
            let Request::Commit(commits) = request else { return None };
            let result = answers.next()?;
            Some(outcome(commits, |_| result.clone()))
        };
        Self::answering(answer).unwrap()
    }

    /// A committer that answers each request after a token from `may_answer`.
    #[cfg(test)]
    pub(crate) fn answering_after(may_answer: Receiver<()>) -> Self {
        let answer = move |_| may_answer.recv().ok().map(|()| Outcome::Read(Vec::new()));
        Self::answering(answer).unwrap()
    }

    /// Whether a request is in flight.
    pub fn is_busy(&self) -> bool {
        self.in_flight
    }

    /// Begins a commit.
    ///
    /// # Panics
    /// When a request is in flight.
    pub fn begin(&mut self, commits: Commits) {
        self.request(Request::Commit(commits));
    }

    /// Starts to read where partitions start.
    ///
    /// # Panics
    /// When a request is in flight.
    pub fn read(&mut self, ids: Vec<PartitionId>, before: Option<Before>) {
        self.request(Request::Read(ids, before));
    }

    /// Starts to read topic ids.
    ///
    /// # Panics
    /// When a request is in flight.
    pub fn identify(&mut self, topics: Vec<Arc<str>>) {
        self.request(Request::Identify(topics));
    }

    fn request(&mut self, request: Request) {
        assert!(!self.in_flight, "one request is in flight at a time");
        // The thread ends only after the consumer.
        self.in_flight = self.requests.try_send(request).is_ok();
    }

    /// The outcome of the request in flight, waiting for it until `deadline`. `None` if there is no request or no
    /// outcome by then.
    pub fn outcome_by(&mut self, deadline: Instant) -> Option<Outcome> {
        if !self.in_flight {
            return None;
        }
        // Even after the deadline, an outcome that is already there is taken.
        let outcome =
            self.outcomes.recv_deadline(deadline.max(Instant::now() + Duration::from_micros(1))).ok()?;
        self.in_flight = false;
        Some(outcome)
    }
}

fn commit(consumer: &BaseConsumer<Rebalancing>, commits: Commits) -> Outcome {
    outcome(commits, |commits| {
        let mut list = TopicPartitionList::with_capacity(commits.len());
        for (id, _, commit) in commits {
            let mut element = list.add_partition(&id.topic, id.partition);
            element
                .set_offset(Offset::Offset(commit.offset))
                .expect("a position is one past the offset of a message, which is valid in a list");
            element.set_metadata(&commit.metadata);
        }
        consumer.commit(&list, CommitMode::Sync)
    })
}

/// Sends all commits in one request. If the coordinator refuses some for reasons of the partition itself, sends them
/// again in halves, down to single partitions: librdkafka reports that a partition of a request was refused, but not
/// which, and the coordinator has stored the others. So only the refused partition stops. `store` sends a request.
///
/// Cost: one request. If k of n partitions are refused, about 2 k log2(n) more.
fn outcome(commits: Commits, mut store: impl FnMut(&[Commitment]) -> KafkaResult<()>) -> Outcome {
    let mut outcomes = vec![CommitOutcome::Unknown; commits.len()];
    let mut problem = None;
    // The first half of a refused request is sent first.
    let mut requests: Vec<_> = std::iter::once(0..commits.len()).collect();
    while let Some(request) = requests.pop() {
        let stored = store(&commits[request.clone()]);
        match stored {
            Err(error) if request.len() > 1 && is_of_a_partition(&error) => {
                let middle = request.start + request.len() / 2;
                requests.extend([middle..request.end, request.start..middle]);
            }
            stored => {
                outcomes[request.clone()].fill(sort(&stored));
                if let Err(error) = stored {
                    let refused = problem.get_or_insert_with(|| Refused { error, partitions: Vec::new() });
                    refused.partitions.extend(commits[request].iter().map(|(id, ..)| id.clone()));
                }
            }
        }
    }
    let partitions = commits.into_iter().zip(outcomes);
    let partitions = partitions.map(|((id, generation, _), outcome)| (id, generation, outcome)).collect();
    Outcome::Committed { partitions, problem }
}

/// Whether the coordinator returns this error for single partitions and stores the others of the request: a topic
/// without read access, a topic that no longer exists, or metadata larger than the broker keeps
/// (`offset.metadata.max.bytes`).
fn is_of_a_partition(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::OffsetMetadataTooLarge
                | RDKafkaErrorCode::InvalidCommitOffsetSize
        )
    )
}

/// What a coordinator's answer means for this member. A member that missed a rebalance keeps its generation: the
/// rebalance callback tells which partitions are lost.
fn sort(outcome: &KafkaResult<()>) -> CommitOutcome {
    match outcome {
        Ok(()) => CommitOutcome::Stored,
        Err(error) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::FencedInstanceId) => {
            CommitOutcome::Fenced
        }
        Err(_) => CommitOutcome::Unknown,
    }
}

fn read(
    consumer: &BaseConsumer<Rebalancing>,
    ids: &[PartitionId],
    first_seen: &mut FirstSeen,
    before: Option<&Before>,
) -> Vec<(PartitionId, Result<Beginning, Unread>)> {
    let deadline = Instant::now() + LOGS_TIMEOUT;
    let topics: BTreeSet<Arc<str>> = ids.iter().map(|id| id.topic.clone()).collect();
    let topics: Vec<_> = topics.into_iter().collect();
    let any = topics.first().map(AsRef::as_ref).unwrap_or_default();
    let cluster = cluster::id(consumer.client(), any, ASK_TIMEOUT).map_err(Unread::Cluster);
    let asked = cluster.and_then(|cluster| {
        // Before reading the commits: a commit of the deleted topic must not be taken for one of its successor.
        let topics = describe(consumer.client(), &topics, TOPICS_TIMEOUT).map_err(Unread::Topic)?;
        first_seen.take(&topics);
        let committed = committed(consumer, ids).map_err(Unread::Coordinator)?;
        Ok((Arc::<str>::from(cluster), topics, committed))
    });
    let beginning = |id: &PartitionId| {
        let (cluster, topics, committed) = asked.as_ref().map_err(Clone::clone)?;
        let topic = topics.get(&id.topic).expect("each one is in the answer");
        let topic = topic.as_ref().map_err(|error| Unread::Topic(error.clone()))?;
        let is_new = first_seen.is_new(id, topic.id);
        if Instant::now() >= deadline {
            return Err(Unread::NotAsked);
        }
        let commit = match committed.get(id) {
            Some(Ok(commit)) => commit.clone(),
            Some(Err(error)) => return Err(Unread::Coordinator(error.clone())),
            None => None,
        };
        // The client reads committed messages only, so the end is the last stable offset.
        let (start, end) =
            consumer.fetch_watermarks(&id.topic, id.partition, LOG_TIMEOUT).map_err(Unread::Leader)?;
        let (log, cluster) = (Log { start, end }, cluster.clone());
        let beginning = Beginning { commit, log, cluster, topic_id: topic.id, is_new };
        let is_recorded = |(before, wanted): &Before| before(id, &beginning, &wanted.of(id, &beginning));
        if before.is_none_or(is_recorded) { Ok(beginning) } else { Err(Unread::Volume) }
    };
    ids.iter().map(|id| (id.clone(), beginning(id))).collect()
}

/// Committed offset and metadata by partition; `None` for a partition without a commit.
type Committed = BTreeMap<PartitionId, KafkaResult<Option<(i64, String)>>>;

fn committed(consumer: &BaseConsumer<Rebalancing>, ids: &[PartitionId]) -> KafkaResult<Committed> {
    let mut asked = TopicPartitionList::with_capacity(ids.len());
    for id in ids {
        asked.add_partition(&id.topic, id.partition);
    }
    let answered = consumer.committed_offsets(asked, ASK_TIMEOUT)?;
    let commit = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
        element.error()?;
        // foreign_text.c has made text of it.
        Ok(match element.offset() {
            Offset::Offset(offset) => Some((offset, element.metadata().to_owned())),
            _ => None,
        })
    };
    Ok(answered
        .elements()
        .iter()
        .map(|element| {
            let id = PartitionId { topic: element.topic().into(), partition: element.partition() };
            (id, commit(element))
        })
        .collect())
}

#[cfg(test)]
#[path = "committer_tests.rs"]
mod tests;
