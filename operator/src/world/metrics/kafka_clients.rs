//! Metrics of the operator's Kafka clients.

use prometheus::{IntCounter, IntGauge, Registry};

/// Metric handles of the Kafka clients.
#[derive(Debug, Clone)]
pub struct KafkaClientMetrics {
    open: IntGauge,
    most: IntGauge,
    replaced: IntCounter,
}

impl Default for KafkaClientMetrics {
    /// Handles that are not registered.
    fn default() -> Self {
        Self::make().expect("the names are constants and valid")
    }
}

impl KafkaClientMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let made = Self::make()?;
        registry.register(Box::new(made.open.clone()))?;
        registry.register(Box::new(made.most.clone()))?;
        registry.register(Box::new(made.replaced.clone()))?;
        Ok(made)
    }

    fn make() -> Result<Self, prometheus::Error> {
        Ok(Self {
            open: IntGauge::new(
                "sluice_operator_kafka_clients",
                "Open Kafka clients of the operator: one for each Kafka cluster and way to connect to it.",
            )?,
            most: IntGauge::new(
                "sluice_operator_kafka_clients_max",
                "Limit of open Kafka clients: --kafka-clients-max.",
            )?,
            replaced: IntCounter::new(
                "sluice_operator_kafka_clients_replaced_total",
                "Kafka clients that were closed for another one because of the limit.",
            )?,
        })
    }

    /// Sets the limit of open clients.
    pub(crate) fn set_most(&self, most: u16) {
        self.most.set(most.into());
    }

    /// Sets the number of open clients.
    pub(crate) fn set_open(&self, count: usize) {
        self.open.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a client that was closed to make room for another.
    pub(crate) fn replaced(&self) {
        self.replaced.inc();
    }

    /// Open and replaced clients.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (i64, u64) {
        (self.open.get(), self.replaced.get())
    }
}
