//! The gateway's metrics: created once, and passed to all code that counts. Labels come from closed sets.
//!
//! Nothing here is called per span: workers add per message or per turn, delivery per block.

mod attributes;
mod guarantee;
mod insert_error;
pub(crate) mod maker;
mod messages;
mod open_transactions;
mod refused;
mod requests;
mod sample;
mod server;
mod services;
mod spool;
mod table_parts;
mod times;
mod tokens;

pub use attributes::{AttributeMetrics, RuleCounters};
pub use guarantee::GuaranteeMetrics;
pub use insert_error::LastInsertError;
pub use maker::Family;
pub use messages::{MessageMetrics, ROW_REFUSED};
pub use open_transactions::OpenTransactionMetrics;
pub use refused::RefusedMetrics;
pub use requests::{RequestMetrics, RequestRefusal};
pub use server::ServerMetrics;
pub use spool::SpoolMetrics;
pub use table_parts::TablePartsMetrics;
pub use times::TimeMetrics;
pub use tokens::TokenMetrics;

use crate::rows::services::Services;
use maker::Maker;
use messages::REJECTED;
use prometheus::{
    Counter, CounterVec, Encoder as _, Gauge, GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Registry, TextEncoder,
};
use sluice_clickhouse::outcome::Class;
use sluice_gateway_config::Budget;
use std::sync::Arc;

/// How a worker spends its time.
#[derive(Debug, Clone)]
pub struct WorkerSeconds {
    /// Walking, encoding, compressing.
    pub busy: Counter,
    /// Waiting for messages.
    pub source: Counter,
    /// Waiting for free chunks: blocks are inserted more slowly than they are made.
    pub buffers: Counter,
    /// Waiting for delivery to take a block.
    pub sink: Counter,
}

pub struct Metrics {
    registry: Registry,
    families: Vec<Family>,
    /// Messages that were read, or could not be.
    pub messages: MessageMetrics,
    /// OTLP requests of `source.otlp`, and their logs.
    pub requests: RequestMetrics,
    /// Rows whose times had to be corrected, and expired rows.
    pub times: TimeMetrics,
    /// What a config does with attributes.
    pub attributes: AttributeMetrics,
    /// Rows by service.
    pub services: Arc<Services>,
    /// Messages and rows whose dead letters were acknowledged, by reason.
    pub dead_letters: IntCounterVec,
    /// Refusals of dead letters, by cause.
    pub dead_letters_refused: IntCounterVec,
    /// Messages that were skipped without a dead letter, by reason.
    pub messages_skipped: IntCounterVec,
    /// Rows that ClickHouse has acknowledged.
    pub rows_inserted: IntCounter,
    /// Rows among these that ClickHouse dropped because it knows their token.
    pub rows_deduplicated: IntCounter,
    /// Blocks that ClickHouse has acknowledged.
    pub blocks_inserted: IntCounter,
    /// Compressed bytes that ClickHouse has acknowledged.
    pub bytes_inserted: IntCounter,
    /// Seconds to transpose a block into columns.
    pub turn_seconds: Histogram,
    /// Blocks that were not transposed, by reason.
    pub blocks_not_turned: IntCounterVec,
    /// Seconds per successful insert.
    pub insert_seconds: Histogram,
    /// Failed tries by class.
    pub insert_failures: IntCounterVec,
    /// The last of them, which is no metric.
    pub insert_error: LastInsertError,
    /// Seconds from the end of a block's latest span to its insert.
    pub freshness_seconds: Histogram,
    /// Partitions that have stopped before a batch that cannot be read, or before a message whose dead letter Kafka refuses.
    pub partitions_stopped: IntGauge,
    /// The current maximum age of an open block.
    pub block_age_seconds_max: Gauge,
    /// Blocks that wait for an insert or are being inserted.
    pub blocks_in_flight: IntGauge,
    /// Rows that were read and have no result yet.
    pub rows_in_flight: IntGauge,
    /// 1 while sealed blocks wait for ClickHouse. The workers' waits then count as waits for ClickHouse.
    pub sink_behind: IntGauge,
    /// Partitions that this process owns.
    pub partitions_owned: IntGauge,
    /// Messages between the committed offset and the end.
    pub lag_messages: IntGaugeVec,
    /// The last committed offset.
    pub committed_offset: IntGaugeVec,
    /// The offset that is read next.
    pub position: IntGaugeVec,
    /// Seconds until Kafka's retention deletes messages that are not inserted.
    pub retention_seconds_left: GaugeVec,
    /// Messages behind open transactions.
    pub open_transactions: OpenTransactionMetrics,
    /// Messages that Kafka's retention deleted before they were read.
    pub messages_lost: IntCounter,
    /// Such messages that `messages_lost` does not count yet.
    pub messages_overtaken: IntGaugeVec,
    /// Partitions started without a plan of the ranges in flight.
    pub fresh_starts: IntCounter,
    /// Partitions that changed to this gateway's rule.
    pub rule_changes: IntCounter,
    /// Ranges cut where an earlier owner may have sent longer ones.
    pub doubtful_ranges: IntCounter,
    /// Partitions that a newer version has read, so that this one must not.
    pub partitions_halted: IntGauge,
    /// 1 for every partition that stands still, with the reason.
    pub partition_still: IntGaugeVec,
    /// Rows that were read and are counted nowhere.
    pub ledger_imbalance_rows: IntGauge,
    /// Rows whose generation ended before they were inserted.
    pub rows_abandoned: IntCounter,
    /// Assignments and revocations.
    pub rebalances: IntGauge,
    /// Ranges settled after their partition had another owner.
    pub stale_ranges: IntGauge,
    /// Commits, by result.
    pub commits: IntGaugeVec,
    /// Tokens that this process logs in to Kafka with.
    pub tokens: TokenMetrics,
    /// Bytes of the pool, by state.
    pub block_pool_bytes: IntGaugeVec,
    /// Memory in use, by part of the budget; `process` is all of it.
    pub memory_used_bytes: IntGaugeVec,
    /// The parts that the workers report.
    pub memory_parts: MemoryParts,
    /// The memory limit of the config.
    memory_limit_bytes: u64,
    /// Bytes of the queue volume, by state.
    pub queue_volume_bytes: IntGaugeVec,
    /// Whether the table fitted at the last look.
    pub table_fits: IntGauge,
    /// The parts of the table.
    pub table_parts: TablePartsMetrics,
    /// Whether the gateway is ready.
    pub ready: IntGauge,
    /// Metrics of the queue volume.
    pub spool: SpoolMetrics,
    /// The guarantee, and what is in doubt.
    pub guarantee: GuaranteeMetrics,
    /// Blocks and rows that ClickHouse refuses.
    pub refused: RefusedMetrics,
    worker_seconds: CounterVec,
}

/// The workers' use of the memory budget.
pub struct MemoryParts {
    /// Row buffers.
    pub rows: IntGauge,
    /// Scratch memory of all workers, between two messages.
    pub workers: IntGauge,
    /// Dead letters under way.
    pub letters: IntGauge,
}

impl MemoryParts {
    fn of(used: &IntGaugeVec) -> Self {
        let part = |name| used.with_label_values(&[name]);
        Self { rows: part("rows"), workers: part("workers"), letters: part("letters") }
    }
}

/// Buckets of the insert and freshness histograms, in seconds: from a fast insert to a retry after the longest wait.
const SECONDS_BUCKETS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

impl Metrics {
    /// Creates all metrics and registers them.
    #[expect(clippy::too_many_lines, reason = "one line per metric; a table reads best in one piece")]
    pub fn new(budget: &Budget) -> Self {
        let make = Maker::default();
        let insert_failures = make.counters(
            "insert_failures_total",
            "Failed tries to insert a block, by what the gateway does next; in_doubt also when no server could say whether the last one \
             was stored.",
            &["class"],
        );
        for class in Class::ALL {
            insert_failures.with_label_values(&[class.label()]);
        }
        let parts = make.gauges(
            "memory_budget_bytes",
            "The memory limit, divided into the parts of the budget.",
            &["part"],
        );
        for (part, bytes) in budget.parts() {
            parts.with_label_values(&[part]).set(i64::try_from(bytes.get()).unwrap_or(i64::MAX));
        }
        let memory_used_bytes = make.gauges(
            "memory_used_bytes",
            "Memory in use by part of the budget (kafka, rows, workers, letters, blocks, requests), and the resident set of the process.",
            &["part"],
        );
        let info = make.gauges("build_info", "1, with the version of the program.", &["version"]);
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Self {
            messages: MessageMetrics::new(&make),
            requests: RequestMetrics::new(&make),
            times: TimeMetrics::new(&make),
            attributes: AttributeMetrics::new(&make),
            services: services::services(&make),
            dead_letters: make.by_reason(
                "dead_letters_total",
                "Messages and rows that Kafka has acknowledged in the dead-letter topic, by reason.",
                &[&REJECTED[..], &[ROW_REFUSED]].concat(),
            ),
            dead_letters_refused: make.counters(
                "dead_letters_refused_total",
                "Dead letters that Kafka refuses, or for which the queue volume has no room, by cause; each counts once, however often it is sent again.",
                &["cause"],
            ),
            messages_skipped: make.by_reason(
                "messages_skipped_total",
                "Messages skipped without a dead letter, because deadLetter.onMissing is Skip.",
                &REJECTED,
            ),
            rows_deduplicated: make.counter(
                "rows_deduplicated_total",
                "Acknowledged rows that ClickHouse dropped because it knows the token of their block.",
            ),
            rows_inserted: make.counter("rows_inserted_total", "Rows that ClickHouse has acknowledged."),
            blocks_inserted: make
                .counter("blocks_inserted_total", "Blocks that ClickHouse has acknowledged."),
            bytes_inserted: make
                .counter("inserted_bytes_total", "Compressed bytes that ClickHouse has acknowledged."),
            turn_seconds: make.seconds(
                "turn_seconds",
                "Seconds to transpose a block into columns, including the wait for its turn.",
                &SECONDS_BUCKETS,
            ),
            blocks_not_turned: make.counters(
                "blocks_not_turned_total",
                "Blocks sent as rows although insert.format is Native, by the limit that they exceed, or because ClickHouse refused \
                 them as columns.",
                &["reason"],
            ),
            insert_seconds: make.seconds(
                "insert_seconds",
                "Seconds per successful insert.",
                &SECONDS_BUCKETS,
            ),
            insert_failures,
            insert_error: LastInsertError::default(),
            freshness_seconds: make.seconds(
                "freshness_seconds",
                "Seconds from the end of a block's latest span to its insert.",
                &SECONDS_BUCKETS,
            ),
            partitions_stopped: make.gauge(
                "partitions_stopped",
                "Partitions that have stopped before a batch that cannot be read, or before a message whose dead letter Kafka refuses.",
            ),
            block_age_seconds_max: make.real(
                "block_age_seconds_max",
                "Maximum age of a block before it is inserted, unless it is full earlier: insert.maxInterval, or half a second for each \
                 open block; longer while ClickHouse or its merges are behind.",
            ),
            blocks_in_flight: make.gauge("blocks_in_flight", "Blocks sealed and not yet inserted."),
            rows_in_flight: make.gauge(
                "rows_in_flight",
                "Rows read and not yet settled: in open blocks, in blocks that wait for an insert, and on the queue volume.",
            ),
            sink_behind: make.gauge("sink_behind", "1 while sealed blocks have waited for ClickHouse for 2 s."),
            partitions_owned: make.gauge("partitions_owned", "Partitions that this gateway reads."),
            lag_messages: make.gauges(
                "lag_messages",
                "Messages between the committed offset and the end of the partition.",
                &["topic", "partition"],
            ),
            committed_offset: make.gauges(
                "committed_offset",
                "The last committed offset.",
                &["topic", "partition"],
            ),
            position: make.gauges(
                "position",
                "The offset at which the gateway reads next; ahead of the committed offset.",
                &["topic", "partition"],
            ),
            retention_seconds_left: make.float_gauges(
                "retention_seconds_left",
                "Seconds until Kafka's retention deletes messages that are not inserted; absent while there are none.",
                &["topic", "partition"],
            ),
            open_transactions: OpenTransactionMetrics::new(&make),
            messages_lost: make.counter(
                "messages_lost_total",
                "Messages that Kafka's retention deleted before they were read; counted once, by the owner whose commit passes them. With \
                 source.otlp, messages of a log that cannot be read, counted by each run that reads past them. Must stay 0.",
            ),
            messages_overtaken: make.gauges(
                "messages_overtaken",
                "Messages that Kafka's retention has deleted and that messages_lost_total does not count yet; absent while there are none.",
                &["topic", "partition"],
            ),
            fresh_starts: make.counter(
                "fresh_starts_total",
                "Partitions started without a plan of the ranges in flight; rows of those ranges may be duplicated once.",
            ),
            rule_changes: make.counter(
                "rule_changes_total",
                "Partitions read up to the end of ranges of another size rule, number of shards or server, from where this gateway uses its own.",
            ),
            doubtful_ranges: make.counter(
                "doubtful_ranges_total",
                "Ranges whose messages an earlier owner may have sent under another token; their rows count in possible_duplicate_rows_total.",
            ),
            partitions_halted: make.gauge(
                "partitions_halted",
                "Partitions that this gateway does not read because a newer version has read them; upgrade to that version.",
            ),
            partition_still: make.gauges(
                "partition_still",
                "1 for every partition that has stood still for longer than allowed, with the reason.",
                &["topic", "partition", "reason"],
            ),
            ledger_imbalance_rows: make.gauge(
                "ledger_imbalance_rows",
                "Rows read - inserted - dead-lettered - given up - in flight; must be 0 at rest.",
            ),
            rows_abandoned: make.counter(
                "rows_abandoned_total",
                "Rows given up because their partition was revoked before they were inserted; its next owner reads them again.",
            ),
            rebalances: make.gauge("rebalances", "Assignments and revocations since the start."),
            stale_ranges: make.gauge(
                "stale_ranges",
                "Ranges settled after their partition had another owner, since the start; their rows may be duplicated.",
            ),
            commits: make.gauges("commits", "Offset commits since the start.", &["result"]),
            tokens: TokenMetrics::new(&make),
            block_pool_bytes: make.gauges(
                "block_pool_bytes",
                "Bytes of the pool for compressed blocks, by state.",
                &["state"],
            ),
            memory_parts: MemoryParts::of(&memory_used_bytes),
            memory_used_bytes,
            memory_limit_bytes: budget.limit.get(),
            queue_volume_bytes: make.gauges("queue_volume_bytes", "Bytes of the queue volume, by state.", &["state"]),
            table_fits: make.gauge("table_fits", "1 when the table has the columns that rows are encoded for."),
            table_parts: TablePartsMetrics::new(&make),
            ready: make.gauge("ready", "1 when the gateway is ready."),
            spool: SpoolMetrics::new(&make),
            guarantee: GuaranteeMetrics::new(&make),
            refused: RefusedMetrics::new(&make),
            worker_seconds: make.registered(CounterVec::new(
                    make.opts(
                        "worker_seconds_total",
                        "Seconds of each worker, by what it does or waits for.",
                    ),
                    &["worker", "state"],
                ),
            ),
            families: make.families.into_inner(),
            registry: make.registry,
        }
    }

    /// All metrics, including those without series.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// The metrics of one worker.
    pub fn worker(&self, number: usize) -> WorkerSeconds {
        let number = number.to_string();
        let of = |state: &str| self.worker_seconds.with_label_values(&[number.as_str(), state]);
        WorkerSeconds { busy: of("busy"), source: of("source"), buffers: of("buffers"), sink: of("sink") }
    }

    /// All metrics in Prometheus' text format.
    ///
    /// # Errors
    /// If a metric cannot be written, which is a defect of this program.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Values for tests that do not depend on the config.
#[cfg(test)]
pub(crate) mod reference {
    use super::{Budget, Metrics};
    use sluice_gateway_config::{ByteSize, Format, InsertFormat, Sizing};

    /// The smallest of the reference sizes: 192 MiB for 2 workers, 8 active partitions, record batches to 1 MiB.
    pub fn sizing() -> Sizing {
        Sizing {
            limit: ByteSize::mib(192),
            workers: 2,
            partitions_active_max: 8,
            record_batch_bytes_max: ByteSize::mib(1),
            format: Format::OtlpProto,
            insert_concurrency: 2,
            insert_format: InsertFormat::RowBinary,
            requests: None,
        }
    }

    /// The metrics of that size.
    pub fn metrics() -> Metrics {
        Metrics::new(&Budget::divide(&sizing()).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{reading::reject::Reason, rows::attributes::RowLimit};

    #[test]
    fn every_reason_is_counted_before_it_is_given() {
        let malformed = Reason::Malformed(sluice_otlp::validate(b"no trace").unwrap_err());
        let framing = Reason::Framing(crate::reading::framing::FrameError::MagicUnknown(1));
        for reason in [
            malformed,
            framing,
            Reason::MessageTooLong,
            Reason::RowTooLarge(RowLimit::Bytes),
            Reason::MessageTooLarge,
        ] {
            // A new metric does not compile until it is listed here.
            let expected = match reason {
                Reason::Malformed(_) | Reason::MalformedJson(_) => REJECTED[0],
                Reason::MessageTooLong => REJECTED[2],
                Reason::RowTooLarge(_) => REJECTED[3],
                Reason::MessageTooLarge => REJECTED[4],
                Reason::Framing(_) => REJECTED[5],
            };
            assert_eq!(reason.label(), expected);
        }
        let metrics = br#"{"resourceMetrics":[]}"#;
        for no_traces in [
            Reason::Malformed(sluice_otlp::validate(b"\x12\x00").unwrap_err()),
            Reason::MalformedJson(sluice_otlp_json::validate(metrics).unwrap_err()),
        ] {
            assert_eq!(no_traces.label(), REJECTED[1]);
        }
        let text = reference::metrics().text().unwrap();
        let is_there = |name: &str, reason: &str| {
            let line = format!("sluice_gateway_{name}_total{{reason=\"{reason}\"}} 0\n");
            assert!(text.contains(&line), "{line}");
        };
        for reason in REJECTED {
            is_there("messages_rejected", reason);
            is_there("dead_letters", reason);
            is_there("messages_skipped", reason);
        }
        is_there("dead_letters", ROW_REFUSED);
    }
}
