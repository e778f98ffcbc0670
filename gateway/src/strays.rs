//! Blocks that an earlier run has left on the queue volume, and that no partition of this process goes on with.
//!
//! Place in the flow: delivery looks here now and then. Kafka is asked what is true of them ([`crate::only_copy`]): what is in the table,
//! or is read by its owner, is dropped; what Kafka no longer has is inserted under its old token, whoever owns the partition.
//!
//! ```text
//!  volume -- Left --- taken over: goes on with its partition
//!              `----- not taken over, or its partition does not come --> asked about --> dropped
//!                                                                              `-------> inserted from here
//! ```
//!
//! Owner: the delivery task; brokers are asked on a blocking thread. Limits: one question at a time, asked again until it is answered; what
//! is not inserted stays on the volume when this process ends, and is found by the next one.

use crate::{
    delivery::Docks,
    held::Ready,
    only_copy::{Caster, Logs, Whereabouts},
    retry::{self, Pace},
    shipment::Shipment,
    spool::{Ended, LeftBlock},
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

/// What came of a question: blocks to be inserted, or those that nobody has said anything of.
type Answer = Result<Vec<Ready>, (Vec<LeftBlock>, ReadError)>;

/// The blocks.
pub struct Strays {
    caster: Caster,
    kafka: Kafka,
    /// Whether the group is to be left: then no partition comes any more.
    drain: Drain,
    /// To be asked about.
    blocks: Vec<LeftBlock>,
    asking: Option<oneshot::Receiver<Answer>>,
    /// Questions without an answer, one after another, and when the next one may be asked.
    unanswered: u32,
    again: Instant,
    waiting: VecDeque<Ready>,
    shipments: JoinSet<PartitionId>,
    sending_max: usize,
}

impl Strays {
    /// None were found yet. `sending_max` of them are sent at a time.
    pub fn new(caster: Caster, kafka: Kafka, drain: Drain, sending_max: usize) -> Self {
        Self {
            caster,
            kafka,
            drain,
            blocks: Vec::new(),
            asking: None,
            unanswered: 0,
            again: Instant::now(),
            waiting: VecDeque::new(),
            shipments: JoinSet::new(),
            sending_max,
        }
    }

    /// Asks, takes answers, and sends what may be sent.
    pub fn look(&mut self, docks: &Docks) {
        self.blocks.extend(self.caster.spool.left().strays(self.drain.is_requested()));
        self.take_answer(docks);
        if self.asking.is_none() && !self.blocks.is_empty() && Instant::now() >= self.again {
            self.ask();
        }
        while self.shipments.len() < self.sending_max
            && let Some(ready) = self.waiting.pop_front()
        {
            let dock = docks.of(&ready.stowed.block, &ready.release);
            self.shipments.spawn(Shipment::new(dock, ready).run());
        }
        while self.shipments.try_join_next().is_some_and(|ended| ended.is_ok()) {}
    }

    fn ask(&mut self) {
        let (answer, asking) = oneshot::channel();
        let (blocks, caster, kafka) =
            (std::mem::take(&mut self.blocks), self.caster.clone(), self.kafka.clone());
        self.asking = Some(asking);
        tokio::spawn(async move {
            if answer.send(judge(blocks, &caster, kafka).await).is_err() {
                // Delivery has ended; the next run asks.
            }
        });
    }

    fn take_answer(&mut self, docks: &Docks) {
        let Some(Ok(answer)) = self.asking.as_mut().map(oneshot::Receiver::try_recv) else { return };
        self.asking = None;
        match answer {
            Ok(ready) => {
                self.unanswered = 0;
                for _ in &ready {
                    docks.count_in();
                }
                self.waiting.extend(ready);
            }
            Err((blocks, error)) => {
                self.blocks.extend(blocks);
                self.unanswered = self.unanswered.saturating_add(1);
                self.again = Instant::now() + retry::wait(Pace::Slow, self.unanswered, 1.0);
                tracing::warn!(%error, "Kafka does not say what is true of blocks that an earlier run has left; asking again");
            }
        }
    }
}

/// Asks Kafka about blocks, drops those that are somewhere else, and gives the others.
async fn judge(blocks: Vec<LeftBlock>, caster: &Caster, kafka: Kafka) -> Answer {
    let partitions: BTreeSet<PartitionId> = blocks.iter().map(LeftBlock::partition).collect();
    let asked = tokio::task::spawn_blocking(move || {
        let reader = TopicReader::new(&kafka, "strays", PATIENCE)?;
        Logs::ask(&reader, &kafka, &partitions)
    });
    let logs = match asked.await {
        Ok(Ok(logs)) => logs,
        Ok(Err(error)) => return Err((blocks, error)),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    };
    let mut ready = Vec::new();
    let (mut settled, mut in_kafka, mut unfit) = (0_u64, 0_u64, 0_u64);
    for block in blocks {
        match logs.whereabouts(&block) {
            Whereabouts::Settled => settled += 1,
            Whereabouts::InKafka => in_kafka += 1,
            Whereabouts::OnlyCopy(only) => {
                match caster.ready(&block, only, &logs).await {
                    Some(block) => ready.push(block),
                    None => unfit += 1,
                }
                continue;
            }
        }
        caster.spool.end(block.record(), Ended::Dropped);
    }
    let inserted = ready.len();
    tracing::info!(
        settled,
        in_kafka,
        inserted,
        "blocks of an earlier run are dropped, or nowhere else and inserted"
    );
    if unfit > 0 {
        tracing::error!(
            blocks = unfit,
            "blocks on the queue volume are the only copy of their rows, and encoded for other columns than the table has now; they stay there"
        );
    }
    Ok(ready)
}
