//! The metrics of blocks that the server does not take whole, and of the rows that it refuses.

use super::Maker;
use prometheus::{IntCounter, IntGauge};

/// Handles of these metrics.
#[derive(Debug, Clone)]
pub struct RefusedMetrics {
    /// Blocks that are, or were, sent in parts.
    pub blocks_in_parts: IntCounter,
    /// Those that wait for someone to act.
    pub blocks_halted: IntGauge,
    /// Rows without a dead letter.
    pub rows_skipped: IntCounter,
}

impl RefusedMetrics {
    /// Makes and registers them.
    pub(super) fn new(make: &Maker) -> Self {
        Self {
            blocks_in_parts: make.counter(
                "blocks_in_parts_total",
                "Blocks sent in parts, because rows of them are refused or they are too much at once.",
            ),
            blocks_halted: make.gauge(
                "blocks_halted",
                "Blocks sent in parts that wait for someone to act: too many rows are refused, or their dead letters are.",
            ),
            rows_skipped: make.counter(
                "rows_skipped_total",
                "Rows that ClickHouse refuses, passed over without a dead letter because deadLetter.onMissing is Skip.",
            ),
        }
    }
}
