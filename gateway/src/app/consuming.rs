//! What the poll thread reads: topics of Kafka, or logs of this process.
//!
//! Both hand partitions to the same workers, and release their ranges to the same delivery.

use super::leaving;
use crate::volume::spool::{Spool, Takeable};
use crossbeam_channel::Sender;
use sluice_gateway_config::InitialOffset;
use sluice_kafka::{Consumer, ConsumerStats, Drain, Error, LogConsumer, Report, Stop, TopicMadeAnew};
use sluice_ranges::{Destination, PartitionId};
use std::sync::{Arc, atomic::AtomicBool};

/// A consumer of either kind.
pub(super) enum Consuming {
    Kafka(Box<Consumer>),
    Logs(Box<LogConsumer>),
}

impl Consuming {
    /// The numbers for metrics.
    pub fn stats(&self) -> Arc<ConsumerStats> {
        match self {
            Self::Kafka(consumer) => consumer.stats(),
            Self::Logs(consumer) => consumer.stats(),
        }
    }

    /// Where workers and delivery send their reports.
    pub fn reports(&self) -> Sender<Report> {
        match self {
            Self::Kafka(consumer) => consumer.reports(),
            Self::Logs(consumer) => consumer.reports(),
        }
    }

    /// Sets where the ranges of a partition are sent.
    pub fn sends_to(&mut self, destination_of: impl Fn(&PartitionId) -> Destination + Send + Sync + 'static) {
        match self {
            Self::Kafka(consumer) => consumer.sends_to(Arc::new(destination_of)),
            Self::Logs(consumer) => consumer.sends_to(Arc::new(destination_of)),
        }
    }

    /// Takes over what an earlier run left on the queue volume. Logs spill nothing.
    pub fn takes_over(&self, spool: &Spool, columns: u64, initial: InitialOffset) {
        let Self::Kafka(consumer) = self else { return };
        let left = spool.left().clone();
        consumer.keeps(Box::new(move |id, generation, (cluster, former)| {
            left.kept((id, generation), Takeable { cluster, former, columns })
        }));
        let spool = spool.clone();
        consumer.asks_before_begin(Arc::new(move |id, beginning, settings| {
            spool.judge_beginning(id, beginning, (settings, initial, columns))
        }));
    }

    /// Moves what is not settled at the end to the queue volume, once `keeps` is set.
    pub fn keeps_rest(&mut self, spool: &Spool, keeps: &Arc<AtomicBool>) {
        if let Self::Kafka(consumer) = self {
            consumer.keeps_rest(leaving::rest(spool, keeps));
        }
    }

    /// Reads until `stop` is requested, and leaves.
    pub fn run(self, stop: &Stop, drain: &Drain, made_anew: impl Fn(TopicMadeAnew)) -> Result<(), Error> {
        match self {
            Self::Kafka(consumer) => consumer.run(stop, drain, made_anew),
            Self::Logs(consumer) => consumer.run(stop, drain),
        }
    }
}
