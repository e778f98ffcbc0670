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
//! is not inserted stays on the volume when this process ends, and is found by the next one. What cannot be sent, above all because it was
//! encoded for columns that the table no longer has, waits for someone, who is told, and holds nobody else up. Kafka is not asked about it
//! again: what it has said stands ([`Adoptee`]).

mod unsent;

use crate::{
    delivery::{
        held::Ready,
        retry::{self, Pace},
        shipment::Shipment,
        task::Shards,
    },
    volume::{
        only_copy::{Adoptee, Adopter, Fits, Logs, Whereabouts, partition_of},
        spool::{Ended, LeftBlock, Missing, Spool},
    },
};
use sluice_gateway_config::Kafka;
use sluice_kafka::{Drain, PartitionId, Patience, ReadError, TopicReader};
use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::JoinSet};
use unsent::{Unsent, Waits};

/// How long brokers may take for an answer. Chosen: above an election of a coordinator.
const PATIENCE: Patience = Patience { answer: Duration::from_secs(10), message: Duration::from_secs(10) };

/// What is asked about.
#[derive(Default)]
struct Question {
    blocks: Vec<LeftBlock>,
    /// Records that cannot be read.
    missing: Vec<Missing>,
}

/// All of a question, when Kafka has not said anything, and why.
type Unanswered = (Question, ReadError);

/// What came of a look at blocks.
struct Answer {
    judged: Judged,
    /// What became of the question to Kafka; `None` when there was none.
    asked: Option<Result<(), Unanswered>>,
}

/// What Kafka has said of blocks.
#[derive(Default)]
struct Found {
    only_copies: Vec<Adoptee>,
    /// How many of the others were dropped, and why.
    settled: u64,
    in_kafka: u64,
}

/// What is to be inserted.
#[derive(Default)]
struct Judged {
    /// At once.
    ready: Vec<Ready>,
    /// Not now.
    unsent: Vec<Adoptee>,
    /// What those wait for.
    waits: Waits,
}

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
    unsent: Unsent,
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
            unsent: Unsent::default(),
        }
    }

    /// Asks, takes answers, and sends what may be sent.
    pub fn look(&mut self, shards: &Shards) {
        let left = self.adopter.spool.left();
        self.question.blocks.extend(left.orphans(self.policy.drain.is_requested()));
        self.question.missing.extend(left.take_missing());
        self.take_answer(shards);
        let now = Instant::now();
        let is_question_due = !self.question.is_empty() && now >= self.again;
        if self.asking.is_none() && (is_question_due || self.unsent.is_due(now)) {
            self.ask(is_question_due);
        }
        while self.shipments.len() < self.policy.sending_max
            && let Some(ready) = self.waiting.pop_front()
        {
            let shard = shards.of(&ready.stowed.block, &ready.release);
            self.shipments.spawn(Shipment::new(shard, ready).run());
        }
        while self.shipments.try_join_next().is_some_and(|ended| ended.is_ok()) {}
    }

    /// Asks Kafka, if its question is due, and looks at the table for what waits.
    fn ask(&mut self, is_question_due: bool) {
        let (answer, asking) = oneshot::channel();
        let question = if is_question_due { std::mem::take(&mut self.question) } else { Question::default() };
        // All of them each time, so that an answer says how many there are.
        let unsent = self.unsent.take_all();
        let (adopter, kafka, enqueues) = (self.adopter.clone(), self.kafka.clone(), self.policy.enqueues);
        self.asking = Some(asking);
        tokio::spawn(async move {
            if answer.send(judge(question, unsent, &adopter, (kafka, enqueues)).await).is_err() {
                // Delivery has ended; the next run asks.
            }
        });
    }

    fn take_answer(&mut self, shards: &Shards) {
        let Some(Ok(answer)) = self.asking.as_mut().map(oneshot::Receiver::try_recv) else { return };
        self.asking = None;
        let Answer { judged, asked } = answer;
        self.unsent.put((judged.unsent, &judged.waits), &self.adopter.metrics, Instant::now());
        for _ in &judged.ready {
            shards.count_in();
        }
        self.waiting.extend(judged.ready);
        match asked {
            None => {}
            Some(Ok(())) => self.unanswered = 0,
            Some(Err((question, error))) => {
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

/// Asks Kafka about blocks that nobody has asked about, if there are any, and gives what is to be inserted of them and of those that wait.
/// Of these it is not asked: what was found of them stands.
async fn judge(
    question: Question,
    mut adoptees: Vec<Adoptee>,
    adopter: &Adopter,
    (kafka, enqueues): (Kafka, bool),
) -> Answer {
    let (mut found, mut asked) = (Found::default(), None);
    if !question.is_empty() {
        match ask_kafka(question, adopter, (kafka, enqueues)).await {
            Ok(answer) => (found, asked) = (answer, Some(Ok(()))),
            Err(unanswered) => asked = Some(Err(unanswered)),
        }
    }
    let Found { only_copies, settled, in_kafka } = found;
    adoptees.extend(only_copies);
    let judged = adopt(adoptees, adopter).await;
    let inserted = judged.ready.len();
    if settled > 0 || in_kafka > 0 || inserted > 0 {
        tracing::info!(
            settled,
            in_kafka,
            inserted,
            "blocks that no partition goes on with are dropped, or nowhere else and inserted"
        );
    }
    Answer { judged, asked }
}

/// Asks Kafka about blocks, drops those that are somewhere else, and gives the others.
async fn ask_kafka(
    question: Question,
    adopter: &Adopter,
    (kafka, enqueues): (Kafka, bool),
) -> Result<Found, Unanswered> {
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
    Ok(drop_others(question.blocks, &logs, &adopter.spool))
}

/// Drops what is in the table or is read again, and gives what is left.
fn drop_others(blocks: Vec<LeftBlock>, logs: &Logs, spool: &Spool) -> Found {
    let mut found = Found::default();
    for block in blocks {
        match logs.whereabouts(&block) {
            Whereabouts::Settled => found.settled += 1,
            Whereabouts::InKafka => found.in_kafka += 1,
            Whereabouts::OnlyCopy(only) => {
                found.only_copies.push(Adoptee::new(block, only, logs));
                continue;
            }
        }
        spool.end(block.record(), Ended::Dropped);
    }
    found
}

/// Makes ready what can be sent, as the table is now.
async fn adopt(adoptees: Vec<Adoptee>, adopter: &Adopter) -> Judged {
    let (mut judged, mut fits) = (Judged::default(), Fits::default());
    for adoptee in adoptees {
        match adopter.ready(&adoptee, &mut fits).await {
            Ok(ready) => judged.ready.push(ready),
            Err(why) => {
                judged.waits.add(&adoptee, &why);
                judged.unsent.push(adoptee.waiting());
            }
        }
    }
    judged
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        blocks::buffers::Pool,
        delivery::{held::Stowed, route::Route},
        signals::{account::RowAccount, metrics::reference},
        volume::{
            block_frames::tests::{Volume, stowed},
            only_copy::Tables,
        },
    };
    use sluice_kafka::OffsetRange;
    use std::sync::Arc;

    /// What the blocks of these tests are encoded for, as a number. Nobody has written down which columns that is.
    const COLUMNS: u64 = 9;

    /// What inserts while rows are encoded for these columns. No server can be asked.
    fn adopter(spool: &Spool, columns: u64) -> Adopter {
        Adopter {
            spool: spool.clone(),
            account: RowAccount::default(),
            metrics: Arc::new(reference::metrics()),
            route: Route::new(1),
            tables: Tables { columns, shards: Vec::new() },
        }
    }

    /// What Kafka says of a log whose retention has left it the offsets from 40.
    fn logs(block: &LeftBlock, committed: i64) -> Logs {
        Logs::of_one(block.partition(), OffsetRange { first: 40, next: 90 }, committed)
    }

    /// All that is left, found while the group's offset was 20.
    pub(super) fn only_copies(spool: &Spool) -> Vec<Adoptee> {
        let blocks = spool.left().take_all();
        let logs = logs(&blocks[0], 20);
        let count = blocks.len();
        let found = drop_others(blocks, &logs, spool);
        assert_eq!((found.only_copies.len(), found.settled, found.in_kafka), (count, 0, 0));
        found.only_copies
    }

    /// A volume on which an earlier run has left the offsets from 20 to 30, unsent.
    async fn left_unsent(volume: &Volume) -> Spool {
        let (spool, pool) = (volume.open(64 << 20), Pool::new(4 << 20, 1, 1));
        let Stowed { block, frames } = stowed(&pool, 20, false);
        block.account.settled();
        spool.spill(&frames);
        while frames.is_in_memory() {
            tokio::task::yield_now().await;
        }
        assert!(spool.close(Duration::from_mins(1)));
        volume.open(64 << 20)
    }

    /// The only block that is ready.
    fn only_one(judged: Judged) -> Ready {
        assert!(judged.unsent.is_empty());
        let [ready] = <[Ready; 1]>::try_from(judged.ready).expect("one block is ready");
        ready
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_only_copy_that_has_waited_is_sent_although_its_owner_has_committed_behind_the_gap() {
        let volume = Volume::new("waited");
        let spool = left_unsent(&volume).await;
        let adoptees = only_copies(&spool);
        let judged = adopt(adoptees, &adopter(&spool, COLUMNS + 1)).await;
        let unfit = &judged.waits.unfit;
        assert_eq!((judged.ready.len(), unfit.blocks, unfit.known_to_this_run_alone), (0, 1, 1));
        let block = judged.unsent[0].block();
        assert_eq!(logs(block, 60).whereabouts(block), Whereabouts::Settled, "whoever asks Kafka again");
        let ready = only_one(adopt(judged.unsent, &adopter(&spool, COLUMNS)).await);
        assert_eq!(ready.release.range, OffsetRange { first: 20, next: 30 });
        assert!(
            ready.release.is_inherited,
            "its owner may have had its messages, and have sent it meanwhile"
        );
        ready.stowed.block.account.settled();
        assert_eq!(spool.numbers().dropped.blocks(), 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_only_copy_that_has_not_waited_was_sent_by_nobody() {
        let volume = Volume::new("at_once");
        let spool = left_unsent(&volume).await;
        let ready = only_one(adopt(only_copies(&spool), &adopter(&spool, COLUMNS)).await);
        assert!(!ready.release.is_inherited);
        ready.stowed.block.account.settled();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn no_column_is_asked_for_on_account_of_a_token_that_this_version_does_not_know() {
        let volume = Volume::new("foreign");
        let spool = left_unsent(&volume).await;
        let block = spool.left().take_all().remove(0).under_a_foreign_token();
        let logs = logs(&block, 20);
        let found = drop_others(vec![block], &logs, &spool);
        let Waits { unfit, unknown, foreign } =
            adopt(found.only_copies, &adopter(&spool, COLUMNS + 1)).await.waits;
        assert_eq!((unfit.blocks, unknown.blocks, foreign.blocks), (0, 0, 1));
    }
}
