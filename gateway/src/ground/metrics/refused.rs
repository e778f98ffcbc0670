//! Metrics of blocks that ClickHouse does not accept whole, and of the rows that it refuses.

use super::Maker;
use prometheus::{IntCounter, IntGauge, IntGaugeVec};
use sluice_clickhouse::outcome::Actor;

/// Handles of these metrics.
#[derive(Debug, Clone)]
pub struct RefusedMetrics {
    /// Blocks that are, or were, sent in parts.
    pub blocks_in_parts: IntCounter,
    /// Blocks in parts that wait for someone to act.
    pub blocks_halted: IntGauge,
    blocks_waiting: IntGaugeVec,
    /// Rows without a dead letter.
    pub rows_skipped: IntCounter,
}

impl RefusedMetrics {
    /// Creates and registers them.
    pub(super) fn new(make: &Maker) -> Self {
        let blocks_waiting = make.gauges(
            "blocks_waiting_for_action",
            "Blocks that wait because ClickHouse refuses them or the table lacks their columns, by who must act.",
            &["actor"],
        );
        for actor in Actor::ALL {
            blocks_waiting.with_label_values(&[actor.label()]);
        }
        Self {
            blocks_waiting,
            blocks_in_parts: make.counter(
                "blocks_in_parts_total",
                "Blocks sent in parts, because ClickHouse refuses rows of them or cannot take them at once.",
            ),
            blocks_halted: make.gauge(
                "blocks_halted",
                "Blocks sent in parts that wait for someone to act: ClickHouse refuses too many rows, or Kafka refuses their dead letters.",
            ),
            rows_skipped: make.counter(
                "rows_skipped_total",
                "Rows that ClickHouse refuses, skipped without a dead letter because deadLetter.onMissing is Skip.",
            ),
        }
    }

    /// Blocks that wait for this actor.
    pub fn blocks_waiting_for(&self, actor: Actor) -> IntGauge {
        self.blocks_waiting.with_label_values(&[actor.label()])
    }
}
