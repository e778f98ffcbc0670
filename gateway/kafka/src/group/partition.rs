//! What the poll thread, the workers and delivery send each other.

use crate::group::batch_remedy::BatchRemedy;
use crate::group::rebalancing::Rebalancing;
#[cfg(doc)]
use rdkafka::error::KafkaError;
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _, base_consumer},
    error::KafkaResult,
    message::{BorrowedMessage, OwnedMessage},
};
use sluice_ranges::{Closed, Cutter, Generation, OffsetRange, PartitionId, RefusedParts, Release};
use std::{cell::RefCell, sync::Arc, time::Duration};
use tokio::sync::Notify;

/// The messages of one partition. Only the worker that owns the partition polls it.
pub enum PartitionQueue {
    /// A partition of a topic.
    Kafka(KafkaQueue),
    /// A log of this process. Polling changes it; it is in the hands of one worker.
    Log(RefCell<Box<dyn LogMessages>>),
}

/// The messages of a log that is read as a partition.
pub trait LogMessages: Send {
    /// The next message; `None` if there is none now. [`KafkaError::PartitionEOF`] says once, whenever it comes to the end, that everything
    /// was read.
    fn poll(&mut self) -> Option<KafkaResult<OwnedMessage>>;

    /// The offset behind what was polled last.
    fn position(&self) -> i64;
}

/// A message that was polled.
pub enum Polled<'a> {
    /// In librdkafka's memory.
    Kafka(BorrowedMessage<'a>),
    /// Read from a log.
    Log(OwnedMessage),
}

impl PartitionQueue {
    /// The next message or error. A queue of Kafka waits at most `timeout` for it.
    pub fn poll(&self, timeout: Duration) -> Option<KafkaResult<Polled<'_>>> {
        match self {
            Self::Kafka(queue) => queue.poll(timeout).map(|polled| polled.map(Polled::Kafka)),
            Self::Log(log) => log.borrow_mut().poll().map(|polled| polled.map(Polled::Log)),
        }
    }

    /// The offset behind what was polled last, whether that was a message or something else, like the end of a transaction. `None` before
    /// the first poll, and when librdkafka does not know. It asks a thread of librdkafka: not to be called per message.
    pub fn position(&self) -> Option<i64> {
        match self {
            Self::Kafka(queue) => queue.positions()?.of(&queue.id),
            Self::Log(log) => Some(log.borrow().position()),
        }
    }

    /// The positions of all partitions of the process, for the cost of one; `None` for logs, where a position costs nothing.
    pub fn positions(&self) -> Option<Positions> {
        match self {
            Self::Kafka(queue) => queue.positions(),
            Self::Log(_) => None,
        }
    }
}

/// The messages of a partition of a topic.
pub struct KafkaQueue {
    queue: base_consumer::PartitionQueue<Rebalancing>,
    consumer: Arc<BaseConsumer<Rebalancing>>,
    id: PartitionId,
}

impl KafkaQueue {
    /// Splits a partition's messages off into a queue of their own. `None` if librdkafka does not have the partition.
    pub(crate) fn split(consumer: &Arc<BaseConsumer<Rebalancing>>, id: &PartitionId) -> Option<Self> {
        let queue = consumer.split_partition_queue(&id.topic, id.partition)?;
        Some(Self { queue, consumer: consumer.clone(), id: id.clone() })
    }

    /// Sets a callback that librdkafka runs, on a thread of its own, when the queue gets messages.
    pub(crate) fn set_nonempty_callback(&mut self, callback: impl Fn() + Send + Sync + 'static) {
        self.queue.set_nonempty_callback(callback);
    }

    fn poll(&self, timeout: Duration) -> Option<KafkaResult<BorrowedMessage<'_>>> {
        let polled = self.queue.poll(timeout);
        if let Some(Err(error)) = &polled {
            self.consumer.context().stats().fails_to_fetch(&self.id, error);
        }
        polled
    }

    fn positions(&self) -> Option<Positions> {
        self.consumer.position().ok().map(Positions)
    }
}

/// The offset behind what was polled last, by partition: see [`PartitionQueue::position`].
pub struct Positions(TopicPartitionList);

impl Positions {
    /// The position of this partition.
    pub fn of(&self, id: &PartitionId) -> Option<i64> {
        match self.0.find_partition(&id.topic, id.partition)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    }
}

/// A partition that a worker now owns.
pub struct Partition {
    /// Which one.
    pub id: PartitionId,
    /// The generation under which it is read.
    pub generation: Generation,
    /// Its messages, from the cutter's position on.
    pub queue: PartitionQueue,
    /// Decides where its ranges end.
    pub cutter: Cutter,
    /// The end of the log when the start offset was read.
    pub log_end: i64,
    /// The Kafka cluster's id, a part of every token.
    pub cluster: Arc<str>,
}

/// What the poll thread tells a worker.
pub enum Ownership {
    /// Read this partition.
    Gained(Box<Partition>),
    /// Release this partition, and answer with [`Report::Released`].
    Lost {
        /// Which one.
        id: PartitionId,
        generation: Generation,
        /// Whether the worker seals its open block first, because this process continues until that block is inserted. Otherwise the
        /// block is dropped, and the next owner reads its messages again.
        seal: bool,
    },
}

/// What workers and delivery tell the poll thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A worker has ended a range. If it has rows, its block goes to delivery, which holds it until the order to [send](Order::Send) it.
    /// A range without rows is settled.
    Closed {
        /// The partition.
        id: PartitionId,
        /// The generation under which it was read.
        generation: Generation,
        /// The range.
        closed: Closed,
        /// Whether the range has rows, and so a block.
        has_rows: bool,
    },
    /// Every row of a range is in ClickHouse, or accounted for otherwise.
    Settled {
        /// The partition.
        id: PartitionId,
        /// The generation under which it was read.
        generation: Generation,
        /// The offsets.
        range: OffsetRange,
    },
    /// The block of a range is sent in parts. Delivery must not act on these parts before a stored plan contains them.
    Parted {
        /// The partition.
        id: PartitionId,
        /// The generation under which it was read.
        generation: Generation,
        range: OffsetRange,
        /// How far sending in parts is.
        parts: RefusedParts,
        /// Notified once a stored plan contains the parts.
        noted: PlanStored,
    },
    /// ClickHouse refuses rows of a range, and its block needs manual action. Over once the range is settled.
    Halted {
        /// The partition.
        id: PartitionId,
        /// The generation under which it was read.
        generation: Generation,
        range: OffsetRange,
    },
    /// The rest of a partition cannot be read without manual action: it is paused, and others have its turn.
    Stopped {
        /// Which one.
        id: PartitionId,
        /// Under which generation it was read.
        generation: Generation,
        /// What lets it be read.
        remedy: BatchRemedy,
    },
    /// Whether a partition's worker waits for the dead letter of the next message, which takes long or is refused.
    Lettering {
        /// Which one.
        id: PartitionId,
        /// The generation under which it is read.
        generation: Generation,
        /// Whether it waits.
        waits: bool,
    },
    /// A block of a partition was lost before it was sent: the partition must restart at its committed offset.
    ReadAgain {
        /// The partition.
        id: PartitionId,
        /// The generation under which it was read.
        generation: Generation,
    },
    /// A worker has released a partition. It closes no more ranges of this generation.
    Released {
        /// Which one.
        id: PartitionId,
        /// The generation under which it was read.
        generation: Generation,
        /// Why the worker released it on its own. The next generation starts where this one has been settled up to.
        renew: Option<Renew>,
    },
}

/// Tells delivery that the parts that it [reported](Report::Parted) are in a stored plan. Never told once the generation is over.
#[derive(Debug, Clone, Default)]
pub struct PlanStored(Arc<Notify>);

impl PlanStored {
    /// Notifies delivery.
    pub fn tell(&self) {
        self.0.notify_one();
    }

    /// Waits for the notification, once.
    pub async fn told(&self) {
        self.0.notified().await;
    }
}

impl PartialEq for PlanStored {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PlanStored {}

/// Why a partition restarts in the same process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renew {
    /// Another size rule takes effect.
    Rule,
    /// Kafka does not have the next offset.
    OutOfRange,
    /// The next batch cannot be read. It may have been damaged in transit: it is fetched once more.
    Batch,
    /// An open range may not be ended, and there is no memory to continue it: its memory was freed.
    Memory,
    /// It waited for a dead letter, and what was read of it was dropped meanwhile.
    Letter,
}

/// What the poll thread tells delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Insert the block of this range.
    Send {
        /// The partition.
        id: PartitionId,
        /// The generation under which it was read.
        generation: Generation,
        /// The range.
        release: Release,
    },
    /// A generation begins with ranges whose blocks an earlier run left on the queue volume. Other blocks of the partition there are not
    /// ranges of it.
    TakeOver {
        /// The partition.
        id: PartitionId,
        generation: Generation,
        /// The ranges, in the order of the log.
        ranges: Vec<OffsetRange>,
    },
    /// The group has stored a commit of this member. This proves that no other member had the partition until then.
    Proved {
        /// The partition.
        id: PartitionId,
        generation: Generation,
        /// When that commit was started, by [`crate::ground::clock`].
        at: Duration,
        /// The committed offset: messages below it are not read again.
        offset: i64,
    },
    /// The generation is over: drop its blocks and do not retry them.
    Forget {
        /// The partition.
        id: PartitionId,
        /// The generation; earlier ones are over too.
        generation: Generation,
        /// Whether this process shuts down and may return as the same member. Its blocks on the queue volume then stay there.
        is_leaving: bool,
    },
}
