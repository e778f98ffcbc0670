//! What passes between the poll thread and the workers: partitions, and what became of the messages in them.

use crate::group::rebalancing::Rebalancing;
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _, base_consumer},
    error::KafkaResult,
    message::BorrowedMessage,
};
use sluice_ranges::{Closed, Cutter, Generation, OffsetRange, PartitionId, RefusedParts, Release};
use std::{sync::Arc, time::Duration};
use tokio::sync::Notify;

/// The messages of one partition. Only the worker that owns the partition polls it.
pub struct PartitionQueue {
    queue: base_consumer::PartitionQueue<Rebalancing>,
    consumer: Arc<BaseConsumer<Rebalancing>>,
    id: PartitionId,
}

impl PartitionQueue {
    /// Splits a partition off, so that its messages arrive here alone. `None` when librdkafka has no such partition.
    pub(crate) fn split(consumer: &Arc<BaseConsumer<Rebalancing>>, id: &PartitionId) -> Option<Self> {
        let queue = consumer.split_partition_queue(&id.topic, id.partition)?;
        Some(Self { queue, consumer: consumer.clone(), id: id.clone() })
    }

    /// Sets what is called, on a thread of librdkafka, when there are messages again.
    pub(crate) fn set_nonempty_callback(&mut self, callback: impl Fn() + Send + Sync + 'static) {
        self.queue.set_nonempty_callback(callback);
    }

    /// The next message, or what is wrong; waits for it at the most so long.
    pub fn poll(&self, timeout: Duration) -> Option<KafkaResult<BorrowedMessage<'_>>> {
        self.queue.poll(timeout)
    }

    /// Behind what was polled last, be it a message or something that is none, like the end of a transaction. `None` before
    /// the first, and when librdkafka does not say. It asks a thread of librdkafka: not to be called per message.
    pub fn position(&self) -> Option<i64> {
        self.positions()?.of(&self.id)
    }

    /// The same of all partitions of the process, for the price of one.
    pub fn positions(&self) -> Option<Positions> {
        self.consumer.position().ok().map(Positions)
    }
}

/// Behind what was polled last, partition by partition: see [`PartitionQueue::position`].
pub struct Positions(TopicPartitionList);

impl Positions {
    /// Of this partition.
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
    /// Under which generation.
    pub generation: Generation,
    /// Its messages, from the cutter's position on.
    pub queue: PartitionQueue,
    /// Says where its ranges end.
    pub cutter: Cutter,
    /// Where the log ended when its beginning was read.
    pub log_end: i64,
    /// The Kafka cluster's id, a part of every token.
    pub cluster: Arc<str>,
}

/// What the poll thread tells a worker.
pub enum Ownership {
    /// Read this partition.
    Gained(Box<Partition>),
    /// Let this partition go, and answer with [`Report::Released`].
    Lost {
        /// Which one.
        id: PartitionId,
        /// Of which generation.
        generation: Generation,
        /// Whether what is open of it is to be sealed first, because this process goes on until it is inserted. Otherwise it is
        /// dropped, and the next owner reads it.
        seal: bool,
    },
}

/// What workers and delivery tell the poll thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// A worker has ended a range. Its block, if it has rows, is on its way to delivery, which holds it until it is told to
    /// [send](Order::Send) it; without rows it is settled.
    Closed {
        /// Of which partition.
        id: PartitionId,
        /// Read under which generation.
        generation: Generation,
        /// The range.
        closed: Closed,
        /// Whether it has rows, and so a block.
        has_rows: bool,
    },
    /// Every row of a range is in ClickHouse, or accounted for otherwise.
    Settled {
        /// Of which partition.
        id: PartitionId,
        /// Read under which generation.
        generation: Generation,
        /// The offsets.
        range: OffsetRange,
    },
    /// The block of a range goes in parts: nothing of this may be acted on before it is written down.
    Parted {
        /// Of which partition.
        id: PartitionId,
        /// Read under which generation.
        generation: Generation,
        /// The range.
        range: OffsetRange,
        /// How far it is.
        parts: RefusedParts,
        /// Who is told once it is written down.
        noted: PlanStored,
    },
    /// Rows of a range are refused, and its block waits for someone to act; over once it is settled.
    Halted {
        /// Of which partition.
        id: PartitionId,
        /// Under which generation it was read.
        generation: Generation,
        /// The range.
        range: OffsetRange,
    },
    /// Nothing of a partition can be read any more before someone acts: it is paused, and others have its turn.
    Stopped {
        /// Which one.
        id: PartitionId,
        /// Under which generation it was read.
        generation: Generation,
    },
    /// Nothing more of a partition is read for now: the dead letter of its next message is under way, for long or refused. Or that is
    /// over.
    Lettering {
        /// Which one.
        id: PartitionId,
        /// Under which generation it is read.
        generation: Generation,
        /// Whether it waits.
        waits: bool,
    },
    /// A block of a partition is gone that nobody has sent: the partition is to begin anew where it is committed.
    ReadAgain {
        /// Of which partition.
        id: PartitionId,
        /// Read under which generation.
        generation: Generation,
    },
    /// A worker has let a partition go; it closes no more ranges of this generation.
    Released {
        /// Which one.
        id: PartitionId,
        /// Under which generation it was read.
        generation: Generation,
        /// Why it did so unasked: its next generation is to begin where this one has been settled up to.
        renew: Option<Renew>,
    },
}

/// Tells delivery that what it [reported](Report::Parted) is in a stored plan. Never told when the generation is over.
#[derive(Debug, Clone, Default)]
pub struct PlanStored(Arc<Notify>);

impl PlanStored {
    /// Says so.
    pub fn tell(&self) {
        self.0.notify_one();
    }

    /// Waits until it is said, once.
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

/// Why a partition begins anew, in the same process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renew {
    /// Another size rule is to come into force.
    Rule,
    /// Kafka does not have the next offset.
    OutOfRange,
    /// The next batch cannot be read, which may have happened on its way: it is fetched once more.
    Batch,
    /// An open range may not be ended, and no memory is left to fill it: its memory was given back.
    Memory,
    /// It waited for a dead letter, and what was read of it was given back meanwhile.
    Letter,
}

/// What the poll thread tells delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Insert the block of this range.
    Send {
        /// Of which partition.
        id: PartitionId,
        /// Read under which generation.
        generation: Generation,
        /// The range.
        release: Release,
    },
    /// A generation begins with ranges whose blocks are kept from an earlier run; what else is kept of the partition is none of its
    /// ranges.
    TakeOver {
        /// Of which partition.
        id: PartitionId,
        /// The generation.
        generation: Generation,
        /// The ranges, in the order of the log.
        ranges: Vec<OffsetRange>,
    },
    /// The group has stored a commit of this member: until then nobody else had the partition.
    Proved {
        /// Which partition.
        id: PartitionId,
        /// Under which generation.
        generation: Generation,
        /// When that commit was begun, by [`crate::ground::clock`].
        at: Duration,
        /// What is committed: nobody reads again what lies below.
        offset: i64,
    },
    /// The generation is over: drop its blocks, try none of them again.
    Forget {
        /// Of which partition.
        id: PartitionId,
        /// Which one; those before it are over too.
        generation: Generation,
        /// Whether this process leaves, and may come back as the same member: what is on its queue volume stays there.
        is_leaving: bool,
    },
}
