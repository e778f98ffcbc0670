//! Metrics of partitions with messages behind an open transaction.

use super::Maker;
use prometheus::{GaugeVec, IntGaugeVec};
use sluice_kafka::OpenTransaction;
use sluice_ranges::PartitionId;
use std::collections::BTreeMap;

/// Handles of these metrics. A partition without an open transaction has no series.
#[derive(Debug, Clone)]
pub struct OpenTransactionMetrics {
    messages: IntGaugeVec,
    seconds: GaugeVec,
    first_offset: IntGaugeVec,
}

impl OpenTransactionMetrics {
    /// Creates and registers them.
    pub(super) fn new(make: &Maker) -> Self {
        let labels = ["topic", "partition"];
        Self {
            messages: make.gauges(
                "open_transaction_messages",
                "Messages between the last stable offset and the end of the partition, which the lag does not count; absent while no \
                 transaction is open.",
                &labels,
            ),
            seconds: make.float_gauges(
                "open_transaction_seconds",
                "Seconds since this gateway last saw the last stable offset move; absent while no transaction is open.",
                &labels,
            ),
            first_offset: make.gauges(
                "open_transaction_first_offset",
                "The last stable offset: where the first open transaction begins; absent while no transaction is open.",
                &labels,
            ),
        }
    }

    /// Shows these partitions and no others.
    pub fn show(&self, open: &BTreeMap<PartitionId, OpenTransaction>) {
        self.messages.reset();
        self.seconds.reset();
        self.first_offset.reset();
        for (id, OpenTransaction { first_offset, messages, age }) in open {
            let partition = id.partition.to_string();
            let labels = [&*id.topic, partition.as_str()];
            self.messages.with_label_values(&labels).set(i64::try_from(*messages).unwrap_or(i64::MAX));
            self.seconds.with_label_values(&labels).set(age.as_secs_f64());
            self.first_offset.with_label_values(&labels).set(*first_offset);
        }
    }
}
