//! Blocks that an earlier run has left on the queue volume, or a partition that has gone, and that no partition of this process goes
//! on with.
//!
//! Place in the flow: delivery looks here now and then. Kafka is asked what is true of them ([`crate::volume::only_copy`]): what is
//! in the table, or is read by its owner, is dropped; what Kafka no longer has is inserted under its old token, whoever owns the partition.
//!
//! ```text
//!  volume -- Left --- taken over: goes on with its partition
//!              |----- not taken over, or its partition does not come --> asked about --> dropped
//!  delivery ---'      (its partition has gone: the same)                       `-------> inserted from here
//! ```
//!
//! Owner: the delivery task; brokers are asked on a blocking thread. Limits: one question at a time, asked again until it is answered; what
//! is not inserted stays on the volume when this process ends, and is found by the next one.

use crate::{
    delivery::{
        held::Ready,
        retry::{self, Pace},
        shipment::Shipment,
        task::Shards,
    },
    volume::{
        only_copy::{Adopter, Logs, Whereabouts, partition_of},
        spool::{Ended, LeftBlock, Missing},
    },
};
use sluice_gateway_config::Kafka;
use sluice_kafka::{Drain, PartitionId, Patience, ReadError, TopicReader};
use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::JoinSet};

/// How long brokers may take for an answer. Chosen: above an election of a coordinator.
const PATIENCE: Patience = Patience { answer: Duration::from_secs(10), message: Duration::from_secs(10) };

/// What is asked about.
#[derive(Default)]
struct Question {
    blocks: Vec<LeftBlock>,
    /// Records that cannot be read.
    missing: Vec<Missing>,
}

/// What came of a question: blocks to be inserted, or those that nobody has said anything of.
type Answer = Result<Vec<Ready>, (Question, ReadError)>;

/// What they go by.
pub struct Policy {
    /// Whether the group is to be left: then no partition comes any more.
    pub drain: Drain,
    /// Whether offsets are committed once their rows are on the volume.
    pub enqueues: bool,
    /// Blocks that are sent at a time.
    pub sending_max: usize,
}

/// The blocks.
pub struct Orphans {
    adopter: Adopter,
    kafka: Kafka,
    policy: Policy,
    /// To be asked about.
    question: Question,
    asking: Option<oneshot::Receiver<Answer>>,
    /// Questions without an answer, one after another, and when the next one may be asked.
    unanswered: u32,
    again: Instant,
    waiting: VecDeque<Ready>,
    shipments: JoinSet<PartitionId>,
}

impl Orphans {
    /// Nothing was found yet.
    pub fn new(adopter: Adopter, kafka: Kafka, policy: Policy) -> Self {
        Self {
            adopter,
            kafka,
            policy,
            question: Question::default(),
            asking: None,
            unanswered: 0,
            again: Instant::now(),
            waiting: VecDeque::new(),
            shipments: JoinSet::new(),
        }
    }

    /// Asks, takes answers, and sends what may be sent.
    pub fn look(&mut self, shards: &Shards) {
        let left = self.adopter.spool.left();
        self.question.blocks.extend(left.orphans(self.policy.drain.is_requested()));
        self.question.missing.extend(left.take_missing());
        self.take_answer(shards);
        if self.asking.is_none() && !self.question.is_empty() && Instant::now() >= self.again {
            self.ask();
        }
        while self.shipments.len() < self.policy.sending_max
            && let Some(ready) = self.waiting.pop_front()
        {
            let shard = shards.of(&ready.stowed.block, &ready.release);
            self.shipments.spawn(Shipment::new(shard, ready).run());
        }
        while self.shipments.try_join_next().is_some_and(|ended| ended.is_ok()) {}
    }

    fn ask(&mut self) {
        let (answer, asking) = oneshot::channel();
        let question = std::mem::take(&mut self.question);
        let (adopter, kafka, enqueues) = (self.adopter.clone(), self.kafka.clone(), self.policy.enqueues);
        self.asking = Some(asking);
        tokio::spawn(async move {
            if answer.send(judge(question, &adopter, (kafka, enqueues)).await).is_err() {
                // Delivery has ended; the next run asks.
            }
        });
    }

    fn take_answer(&mut self, shards: &Shards) {
        let Some(Ok(answer)) = self.asking.as_mut().map(oneshot::Receiver::try_recv) else { return };
        self.asking = None;
        match answer {
            Ok(ready) => {
                self.unanswered = 0;
                for _ in &ready {
                    shards.count_in();
                }
                self.waiting.extend(ready);
            }
            Err((question, error)) => {
                self.question.blocks.extend(question.blocks);
                self.question.missing.extend(question.missing);
                self.unanswered = self.unanswered.saturating_add(1);
                self.again = Instant::now() + retry::wait(Pace::Slow, self.unanswered, 1.0);
                tracing::warn!(%error, "Kafka does not say what is true of blocks that no partition goes on with; asking again");
            }
        }
    }
}

impl Question {
    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.missing.is_empty()
    }

    fn partitions(&self) -> BTreeSet<PartitionId> {
        let missing = self.missing.iter().filter_map(|missing| missing.covers.as_ref()).map(partition_of);
        self.blocks.iter().map(LeftBlock::partition).chain(missing).collect()
    }
}

/// Asks Kafka about blocks, drops those that are somewhere else, and gives the others.
async fn judge(question: Question, adopter: &Adopter, (kafka, enqueues): (Kafka, bool)) -> Answer {
    let partitions = question.partitions();
    let asked = tokio::task::spawn_blocking(move || {
        // What brokers log as the client; quotas and alerts may go by it, so that it stays as it was.
        let reader = TopicReader::new(&kafka, "strays", PATIENCE)?;
        Logs::ask(&reader, &kafka, &partitions)
    });
    let logs = match asked.await {
        Ok(Ok(logs)) => logs,
        Ok(Err(error)) => return Err((question, error)),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    };
    for missing in &question.missing {
        let found = logs.whereabouts_of_missing(missing, enqueues);
        judge_missing(missing, (found, missing.is_enqueued(enqueues)), adopter);
    }
    let mut ready = Vec::new();
    let (mut settled, mut in_kafka, mut unfit) = (0_u64, 0_u64, 0_u64);
    for block in question.blocks {
        match logs.whereabouts(&block) {
            Whereabouts::Settled => settled += 1,
            Whereabouts::InKafka => in_kafka += 1,
            Whereabouts::OnlyCopy(only) => {
                match adopter.ready(&block, only, &logs).await {
                    Some(block) => ready.push(block),
                    None => unfit += 1,
                }
                continue;
            }
        }
        adopter.spool.end(block.record(), Ended::Dropped);
    }
    let inserted = ready.len();
    tracing::info!(
        settled,
        in_kafka,
        inserted,
        "blocks that no partition goes on with are dropped, or nowhere else and inserted"
    );
    if unfit > 0 {
        tracing::error!(
            blocks = unfit,
            "blocks on the queue volume are the only copy of their rows, and encoded for other columns than the table has now; they stay there"
        );
    }
    Ok(ready)
}

/// Says what becomes of a record that cannot be read, and counts what is lost. Its file is kept aside.
fn judge_missing(missing: &Missing, (found, is_enqueued): (Option<Whereabouts>, bool), adopter: &Adopter) {
    let covers = missing.covers.as_ref();
    let partition = covers.map(|covers| partition_of(covers).to_string());
    let (first, next) = (covers.map(|covers| covers.first), covers.map(|covers| covers.next));
    match found {
        Some(Whereabouts::Settled) => {
            tracing::warn!(
                partition,
                first,
                next,
                "a record on the queue volume is damaged; its rows are in the table"
            );
        }
        Some(Whereabouts::InKafka) => {
            tracing::warn!(
                partition,
                first,
                next,
                "a record on the queue volume is damaged; its messages are read again"
            );
        }
        Some(Whereabouts::OnlyCopy(_)) => {
            let rows = covers.map_or(0, |covers| covers.rows);
            adopter.metrics.spool.rows_lost.inc_by(rows);
            tracing::error!(
                partition,
                first,
                next,
                rows,
                "a record on the queue volume is damaged, and its rows are nowhere else: they are lost"
            );
        }
        None if is_enqueued => {
            adopter.metrics.spool.unknown_lost.inc();
            tracing::error!(
                "a record on the queue volume is damaged with its header: its rows may be nowhere else, and nobody can say which they are"
            );
        }
        // Its offsets were not committed before it was inserted: whoever owns its partition reads them, or misses them.
        None => tracing::error!(
            "a record on the queue volume is damaged with its header: nobody can say what it covers; it was not committed before it was inserted"
        ),
    }
    if let Some(record) = missing.record {
        adopter.spool.end(record, Ended::Damaged);
    }
}
