//! Blocks on the queue volume that no partition of this process has taken over. An earlier run has left them, or a revoked partition.
//!
//! Place in the flow: delivery calls [`Orphans::look`] periodically. Kafka is asked about the blocks ([`crate::volume::only_copy`]). Blocks
//! whose rows are in the table, or whose messages the owner reads, are dropped. Blocks whose messages Kafka no longer has are inserted
//! under their old token, regardless of who owns the partition.
//!
//! ```text
//!  volume -- Leftovers --- taken over: continues with its partition
//!              |----- not taken over, or its partition does not come --> Kafka is asked --> dropped
//!  delivery ---'      (its partition was revoked: the same)                    `-------> inserted from here
//! ```
//!
//! Owner: the delivery task; Kafka is asked on a blocking thread. Limits: one question at a time, repeated until it is answered. Blocks
//! that are not inserted stay on the volume when this process ends, and the next one finds them. A block that cannot be sent, mostly
//! because it was encoded for columns that the table no longer has, waits for someone to act; the log says so, and other blocks continue.
//! If that turns out while a block is sent, the block is given back and comes here again from the volume. Each shard has its own places
//! ([`Places`]). Kafka is not asked again about a block, not even by the next run: the volume records the result
//! ([`crate::volume::only_copy::judge`]).
//!
//! Blocks of an earlier run wait for their partitions. A partition that comes takes over what it can. After a minute, Kafka is asked which of
//! the others are only copies: another owner of their partition may commit beyond messages that Kafka no longer has.

mod unsent;

use crate::{
    delivery::{
        places::Places,
        retry::{self, Pace},
        shipment::{End, Shard, Shipment},
        task::Shards,
    },
    volume::{
        only_copy::{Fits, Judged, Logs, OnlyCopyBlock, OnlyCopySender, RowLocation, judge, partition_of},
        ready_block::Ready,
        spool::{Ended, LeftBlock, Missing},
    },
};
use sluice_gateway_config::Kafka;
use sluice_kafka::{Drain, Patience, ReadError, TopicReader};
use sluice_ranges::PartitionId;
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;
use unsent::{Unsent, Waits};

/// How long brokers may take to answer. Chosen: longer than the election of a coordinator.
const PATIENCE: Patience = Patience { answer: Duration::from_secs(10), message: Duration::from_secs(10) };

/// How long the volume may take to record which blocks of a partition are only copies. Chosen: a slow disk gets this time, then the
/// question is repeated.
const JUDGE_WAIT: Duration = Duration::from_secs(10);

/// What Kafka is asked about.
#[derive(Default)]
struct Question {
    /// Partitions whose blocks wait to be taken over.
    waiting: BTreeSet<PartitionId>,
    blocks: Vec<LeftBlock>,
    /// Records that cannot be read.
    missing: Vec<Missing>,
}

/// A question that Kafka did not answer, and the error.
type Unanswered = (Question, ReadError);

/// The result of a look at blocks.
struct Answer {
    sendable: Sendable,
    /// The result of the question to Kafka; `None` when there was none.
    asked: Option<Result<(), Unanswered>>,
}

/// Blocks to insert.
#[derive(Default)]
struct Sendable {
    /// Now.
    ready: Vec<Ready>,
    /// Not now.
    unsent: Vec<OnlyCopyBlock>,
    /// What the unsent blocks wait for.
    waits: Waits,
}

/// Settings.
pub struct Policy {
    /// Whether the group is left: then no partition is assigned any more.
    pub drain: Drain,
    /// Whether offsets are committed once their rows are on the volume.
    pub enqueues: bool,
    /// Blocks of a shard that are sent at a time.
    pub sending_max: usize,
}

/// The blocks that no partition has taken over.
pub struct Orphans {
    sender: OnlyCopySender,
    kafka: Kafka,
    policy: Policy,
    /// The next question to Kafka.
    question: Question,
    /// Whether it was asked about the blocks that wait for their partitions.
    asked_of_waiting: bool,
    asking: Option<oneshot::Receiver<Answer>>,
    /// Number of unanswered questions in a row.
    unanswered: u32,
    again: Instant,
    places: Places<(Arc<Shard>, Ready)>,
    unsent: Unsent,
}

impl Orphans {
    /// Without blocks.
    pub fn new(sender: OnlyCopySender, kafka: Kafka, policy: Policy) -> Self {
        let sending_max = policy.sending_max;
        Self {
            sender,
            kafka,
            policy,
            question: Question::default(),
            asked_of_waiting: false,
            asking: None,
            unanswered: 0,
            again: Instant::now(),
            places: Places::new(sending_max),
            unsent: Unsent::default(),
        }
    }

    /// Asks Kafka, takes answers, and sends what may be sent.
    pub fn look(&mut self, shards: &Shards) {
        let now = Instant::now();
        while let Some(End { is_given_up, .. }) = self.places.try_ended() {
            if is_given_up {
                self.unsent.postpone(now);
            }
        }
        self.take_orphans(now);
        self.take_answer(shards);
        let is_question_due = !self.question.is_empty() && now >= self.again;
        if self.asking.is_none() && (is_question_due || self.unsent.is_due(now)) {
            self.ask(is_question_due);
        }
        self.places.send(|(shard, ready)| Shipment::new(shard, ready).giving_back().run());
    }

    /// Takes over the orphaned blocks, and once the partitions of those that still wait. Kafka is not asked about blocks with a recorded
    /// result.
    fn take_orphans(&mut self, now: Instant) {
        let left = self.sender.spool.left();
        if !self.asked_of_waiting
            && let Some(waiting) = left.waiting(now)
        {
            self.question.waiting.extend(waiting);
            self.asked_of_waiting = true;
        }
        for block in left.orphans(self.policy.drain.is_requested()) {
            match block.in_writing() {
                Some(in_writing) => self.unsent.add(OnlyCopyBlock::new(block, in_writing), now),
                None => self.question.blocks.push(block),
            }
        }
        self.question.missing.extend(left.take_missing());
    }

    /// Asks Kafka if a question is due, and checks the table for the waiting blocks.
    fn ask(&mut self, is_question_due: bool) {
        let (answer, asking) = oneshot::channel();
        let question = if is_question_due { std::mem::take(&mut self.question) } else { Question::default() };
        // All of them each time, so that an answer has their total number.
        let unsent = self.unsent.take_all();
        let (sender, kafka, enqueues) = (self.sender.clone(), self.kafka.clone(), self.policy.enqueues);
        self.asking = Some(asking);
        tokio::spawn(async move {
            if answer.send(look_at(question, unsent, &sender, (kafka, enqueues)).await).is_err() {
                // Delivery has ended; the next run asks.
            }
        });
    }

    fn take_answer(&mut self, shards: &Shards) {
        let Some(Ok(answer)) = self.asking.as_mut().map(oneshot::Receiver::try_recv) else { return };
        self.asking = None;
        let Answer { sendable, asked } = answer;
        self.unsent.put((sendable.unsent, &sendable.waits), &self.sender.metrics, Instant::now());
        for mut ready in sendable.ready {
            shards.count_in();
            let shard = shards.of(&mut ready);
            self.places.add(shard.place(), (shard, ready));
        }
        match asked {
            None => {}
            Some(Ok(())) => self.unanswered = 0,
            Some(Err((question, error))) => {
                self.question.waiting.extend(question.waiting);
                self.question.blocks.extend(question.blocks);
                self.question.missing.extend(question.missing);
                self.unanswered = self.unanswered.saturating_add(1);
                self.again = Instant::now() + retry::wait(Pace::Slow, self.unanswered, 1.0);
                tracing::warn!(
                    %error,
                    "Kafka did not answer about blocks on the queue volume that no partition has taken over; asking again"
                );
            }
        }
    }
}

impl Question {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.blocks.is_empty() && self.missing.is_empty()
    }

    fn partitions(&self) -> BTreeSet<PartitionId> {
        let missing = self.missing.iter().filter_map(|missing| missing.covers.as_ref()).map(partition_of);
        let waiting = self.waiting.iter().cloned();
        self.blocks.iter().map(LeftBlock::partition).chain(missing).chain(waiting).collect()
    }
}

/// Asks Kafka about new blocks, if there are any, and returns what to insert of them and of the waiting blocks. The result for the waiting
/// blocks is known and stays the same.
async fn look_at(
    question: Question,
    mut blocks: Vec<OnlyCopyBlock>,
    sender: &OnlyCopySender,
    (kafka, enqueues): (Kafka, bool),
) -> Answer {
    let (mut judged, mut asked) = (Judged::default(), None);
    if !question.is_empty() {
        match ask_kafka(question, sender, (kafka, enqueues)).await {
            Ok(answer) => (judged, asked) = (answer, Some(Ok(()))),
            Err(unanswered) => asked = Some(Err(unanswered)),
        }
    }
    let Judged { settled, in_kafka, only_copies } = judged;
    for block in settled.iter().chain(&in_kafka) {
        sender.spool.end(block.record(), Ended::Dropped);
    }
    blocks.extend(only_copies);
    let sendable = adopt(blocks, sender).await;
    let (settled, in_kafka, inserted) = (settled.len(), in_kafka.len(), sendable.ready.len());
    if settled > 0 || in_kafka > 0 || inserted > 0 {
        tracing::info!(
            settled,
            in_kafka,
            inserted,
            "blocks that no partition has taken over: dropped if their rows are in the table or Kafka has their messages, else inserted"
        );
    }
    Answer { sendable, asked }
}

/// Asks Kafka about blocks and decides what happens to them.
async fn ask_kafka(
    question: Question,
    sender: &OnlyCopySender,
    (kafka, enqueues): (Kafka, bool),
) -> Result<Judged, Unanswered> {
    let (partitions, waiting) = (question.partitions(), question.waiting.clone());
    let spool = sender.spool.clone();
    let asked = tokio::task::spawn_blocking(move || {
        // Brokers log this as the client id; quotas and alerts may use it, so it stays the same.
        let reader = TopicReader::new(&kafka, "strays", PATIENCE)?;
        let logs = Logs::ask(&reader, &kafka, &partitions)?;
        // Whether a topic is deleted for good is asked only once no partition of it is assigned.
        let there = waiting.iter().filter(|id| logs.log(id).bounds.is_some());
        let has_all = there.into_iter().all(|id| spool.judge(id, &logs, JUDGE_WAIT));
        Ok::<_, ReadError>((logs, has_all))
    });
    let logs = match asked.await {
        Ok(Ok((logs, has_all))) => {
            if !has_all {
                tracing::warn!(
                    "the queue volume is slow: it has not recorded yet which of its blocks are the only copy of their rows"
                );
            }
            logs
        }
        Ok(Err(error)) => return Err((question, error)),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    };
    for missing in &question.missing {
        let found = logs.whereabouts_of_missing(missing, enqueues);
        judge_missing(missing, (found, missing.is_enqueued(enqueues)), sender);
    }
    Ok(judge(question.blocks, &logs, &sender.spool).await)
}

/// Prepares the blocks that can be sent with the current table.
async fn adopt(blocks: Vec<OnlyCopyBlock>, sender: &OnlyCopySender) -> Sendable {
    let (mut sendable, mut fits) = (Sendable::default(), Fits::default());
    for block in blocks {
        match sender.ready(&block, &mut fits).await {
            Ok(ready) => sendable.ready.push(ready),
            Err(why) => {
                sendable.waits.add(&why);
                sendable.unsent.push(block.waiting());
            }
        }
    }
    sendable
}

/// Logs the result for a record that cannot be read, and counts lost rows. Its file is kept.
fn judge_missing(
    missing: &Missing,
    (found, is_enqueued): (Option<RowLocation>, bool),
    sender: &OnlyCopySender,
) {
    let covers = missing.covers.as_ref();
    let partition = covers.map(|covers| partition_of(covers).to_string());
    let (first, next) = (covers.map(|covers| covers.first), covers.map(|covers| covers.next));
    match found {
        Some(RowLocation::Settled) => {
            tracing::warn!(
                partition,
                first,
                next,
                "a record on the queue volume is damaged; its rows are in the table"
            );
        }
        Some(RowLocation::InKafka) => {
            tracing::warn!(
                partition,
                first,
                next,
                "a record on the queue volume is damaged; its messages are read again"
            );
        }
        Some(RowLocation::OnlyCopy(_)) => {
            let rows = covers.map_or(0, |covers| covers.rows);
            sender.metrics.spool.rows_lost.inc_by(rows);
            tracing::error!(
                partition,
                first,
                next,
                rows,
                "a record on the queue volume is damaged and was the only copy of its rows: they are lost"
            );
        }
        None if is_enqueued => {
            sender.metrics.spool.unknown_lost.inc();
            tracing::error!(
                "a record on the queue volume is damaged, including its header: it may have been the only copy of its rows, which are \
                 then lost"
            );
        }
        // Its offsets were not committed before its insert. So the partition's owner reads the messages, or counts them as lost.
        None => tracing::error!(
            "a record on the queue volume is damaged, including its header, so its offsets are unknown; if its rows are not in the \
             table, they were not committed"
        ),
    }
    if let Some(record) = missing.record {
        sender.spool.end(record, Ended::Damaged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ground::{account::RowAccount, metrics::reference, route::Route},
        volume::{
            only_copy::Tables,
            spool::Spool,
            test_volume::{Volume, left_as},
        },
    };
    use sluice_ranges::OffsetRange;
    use std::sync::Arc;

    /// The number of the columns that the blocks of these tests are encoded for. The columns are not recorded.
    const COLUMNS: u64 = 9;

    fn orphans(spool: &Spool) -> Orphans {
        let kafka = serde_json::json!({"bootstrapServers": ["127.0.0.1:1"], "topics": ["spans"], "consumerGroup": "g"});
        let policy = Policy { drain: Drain::default(), enqueues: false, sending_max: 1 };
        Orphans::new(sender(spool, COLUMNS), serde_json::from_value(kafka).unwrap(), policy)
    }

    /// A sender whose rows are encoded for these columns. No server can be reached.
    fn sender(spool: &Spool, columns: u64) -> OnlyCopySender {
        OnlyCopySender {
            spool: spool.clone(),
            account: RowAccount::default(),
            metrics: Arc::new(reference::metrics()),
            route: Route::new(1),
            tables: Tables { columns, shards: Vec::new() },
        }
    }

    /// Kafka's answers about a log in which retention has left the offsets from 40.
    fn logs(block: &LeftBlock, committed: i64) -> Logs {
        Logs::of_one(block.partition(), OffsetRange { first: 40, next: 90 }, committed)
    }

    /// All blocks that are left, found while the group's committed offset was 20.
    pub(super) async fn only_copies(spool: &Spool) -> Vec<OnlyCopyBlock> {
        let blocks = spool.left().take_all();
        let logs = logs(&blocks[0], 20);
        let count = blocks.len();
        let judged = judge(blocks, &logs, spool).await;
        let Judged { settled, in_kafka, only_copies } = judged;
        assert_eq!((only_copies.len(), settled.len(), in_kafka.len()), (count, 0, 0));
        only_copies
    }

    /// A volume on which an earlier run has left the offsets from 20 to 30, unsent.
    async fn left_unsent(volume: &Volume) -> Spool {
        left_as(volume, &[20], false).await
    }

    /// The only block that is ready.
    fn only_one(sendable: Sendable) -> Ready {
        assert!(sendable.unsent.is_empty());
        let [ready] = <[Ready; 1]>::try_from(sendable.ready).expect("one block is ready");
        ready
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_only_copy_that_has_waited_is_sent_although_its_owner_has_committed_behind_the_gap() {
        let volume = Volume::new("waited");
        let spool = left_unsent(&volume).await;
        let blocks = only_copies(&spool).await;
        let sendable = adopt(blocks, &sender(&spool, COLUMNS + 1)).await;
        assert_eq!((sendable.ready.len(), sendable.waits.unfit.blocks), (0, 1));
        let block = sendable.unsent[0].block();
        assert_eq!(logs(block, 60).row_location(block), RowLocation::Settled, "whoever asks Kafka again");
        let ready = only_one(adopt(sendable.unsent, &sender(&spool, COLUMNS)).await);
        assert_eq!(ready.release.range, OffsetRange { first: 20, next: 30 });
        assert!(
            ready.release.is_inherited,
            "its owner may have had its messages, and have sent it meanwhile"
        );
        ready.sealed.block.account.settled();
        assert_eq!(spool.numbers().dropped.blocks(), 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_only_copy_of_an_earlier_run_is_sent_without_asking_kafka() {
        let volume = Volume::new("earlier");
        let spool = left_unsent(&volume).await;
        drop(only_copies(&spool).await);
        assert!(spool.close(Duration::from_mins(1)));
        let spool = volume.open(64 << 20);
        let later = Instant::now() + Duration::from_mins(1);
        assert_eq!(
            spool.left().waiting(later),
            Some(BTreeSet::new()),
            "its partition does not go on with it"
        );
        let mut orphans = orphans(&spool);
        orphans.take_orphans(Instant::now());
        assert!(orphans.question.is_empty() && orphans.unsent.is_due(Instant::now()));
        let ready = only_one(adopt(orphans.unsent.take_all(), &orphans.sender).await);
        assert!(ready.release.is_inherited, "its owner may have sent it meanwhile");
        ready.sealed.block.account.settled();
    }

    /// Its partition may come, and take it over although Kafka has lost a part of it.
    #[tokio::test(flavor = "current_thread")]
    async fn kafka_is_asked_about_a_block_that_waits_once_its_partition_has_not_come_for_a_minute() {
        let volume = Volume::new("waits");
        let spool = left_unsent(&volume).await;
        let mut orphans = orphans(&spool);
        orphans.take_orphans(Instant::now());
        assert!(orphans.question.is_empty());
        let later = Instant::now() + Duration::from_mins(1);
        orphans.take_orphans(later);
        assert_eq!(orphans.question.waiting.len(), 1);
        orphans.question = Question::default();
        orphans.take_orphans(later);
        assert!(orphans.question.is_empty(), "it is asked once");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_only_copy_that_has_not_waited_was_sent_by_nobody() {
        let volume = Volume::new("at_once");
        let spool = left_unsent(&volume).await;
        let ready = only_one(adopt(only_copies(&spool).await, &sender(&spool, COLUMNS)).await);
        assert!(!ready.release.is_inherited);
        ready.sealed.block.account.settled();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn no_column_is_asked_for_on_account_of_a_token_that_this_version_does_not_know() {
        let volume = Volume::new("foreign");
        let spool = left_unsent(&volume).await;
        let block = spool.left().take_all().remove(0).under_a_foreign_token();
        let logs = logs(&block, 20);
        let judged = judge(vec![block], &logs, &spool).await;
        let Waits { unfit, unknown, foreign } =
            adopt(judged.only_copies, &sender(&spool, COLUMNS + 1)).await.waits;
        assert_eq!((unfit.blocks, unknown.blocks, foreign.blocks), (0, 0, 1));
    }
}
