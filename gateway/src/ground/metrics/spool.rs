//! Metrics of the queue volume. Each scrape copies them from the spool's numbers.

use super::Maker;
use prometheus::{Gauge, IntCounter, IntGauge};

/// Blocks and their bytes.
pub struct Moved {
    pub blocks: IntCounter,
    /// Compressed bytes.
    pub bytes: IntCounter,
}

impl Moved {
    fn new(make: &Maker, name: &str, what: &str) -> Self {
        Self {
            blocks: make.counter(&format!("spool_{name}_blocks_total"), &format!("Blocks {what}.")),
            bytes: make.counter(
                &format!("spool_{name}_bytes_total"),
                &format!("Compressed bytes of blocks {what}."),
            ),
        }
    }
}

/// The use of the queue volume, and what happened to its blocks.
pub struct SpoolMetrics {
    /// Bytes of its files.
    pub bytes: IntGauge,
    /// Maximum bytes of its files.
    pub bytes_max: IntGauge,
    /// Blocks on it.
    pub blocks: IntGauge,
    /// Their rows.
    pub rows: IntGauge,
    /// Age of the oldest block.
    pub oldest_seconds: Gauge,
    /// Blocks and bytes moved to it.
    pub appended: Moved,
    /// Inserted from it.
    pub drained: Moved,
    /// Dropped because Kafka has their messages.
    pub dropped: Moved,
    /// Blocks of an earlier run that were taken over.
    pub taken_over: IntCounter,
    /// Blocks that could not be read.
    pub damaged: IntCounter,
    /// Blocks for which there was no room.
    pub refused: IntCounter,
    /// Rows lost: their blocks could not be read and were the only copy.
    pub rows_lost: IntCounter,
    /// Blocks that could not be read, including their headers, while offsets are committed from the volume.
    pub unknown_lost: IntCounter,
}

impl SpoolMetrics {
    pub(super) fn new(make: &Maker) -> Self {
        Self {
            bytes: make.gauge("spool_bytes", "Bytes of the files on the queue volume."),
            bytes_max: make.gauge(
                "spool_bytes_max",
                "Maximum bytes of the files on the queue volume; 0 without one.",
            ),
            blocks: make.gauge("spool_blocks", "Blocks on the queue volume."),
            rows: make.gauge("spool_rows", "Rows of the blocks on the queue volume."),
            oldest_seconds: make.real(
                "spool_oldest_seconds",
                "Seconds since the oldest block on the queue volume was appended; 0 without one.",
            ),
            appended: Moved::new(make, "appended", "moved to the queue volume"),
            drained: Moved::new(make, "drained", "inserted from the queue volume"),
            dropped: Moved::new(
                make,
                "dropped",
                "dropped from the queue volume because Kafka has their messages",
            ),
            taken_over: make.counter(
                "spool_taken_over_blocks_total",
                "Blocks of an earlier run that this one has taken over.",
            ),
            damaged: make.counter(
                "spool_damaged_blocks_total",
                "Blocks on the queue volume that could not be read; their messages are read again, or rows_lost_total counts their rows.",
            ),
            refused: make
                .counter("spool_refused_blocks_total", "Blocks for which the queue volume had no room."),
            rows_lost: make.counter(
                "rows_lost_total",
                "Rows lost: their blocks on the queue volume cannot be read and Kafka no longer has the messages; must stay 0.",
            ),
            unknown_lost: make.counter(
                "blocks_lost_unknown_total",
                "Blocks on the queue volume that cannot be read, including their headers, while offsets are committed from there: their \
                 rows may be lost; must stay 0.",
            ),
        }
    }
}
