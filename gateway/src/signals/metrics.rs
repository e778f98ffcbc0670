//! The gateway's metrics: made once, handed to whoever counts. Labels come from closed sets.
//!
//! Nothing here is touched per span: workers add up per message or per turn, delivery per block.

mod guarantee;
mod messages;
mod open_transactions;
mod refused;
mod spool;
mod times;

pub use guarantee::GuaranteeMetrics;
pub use messages::MessageMetrics;
pub use open_transactions::OpenTransactionMetrics;
pub use refused::RefusedMetrics;
pub use spool::SpoolMetrics;
pub use times::TimeMetrics;

use crate::reading::reject::ROW_REFUSED;
use messages::REJECTED;
use prometheus::{
    Counter, CounterVec, Encoder as _, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec,
    IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
    core::{Collector, Desc},
    proto::MetricType,
};
use sluice_clickhouse::outcome::Class;
use sluice_gateway_config::Budget;
use std::cell::RefCell;

/// What a worker does with its time.
#[derive(Debug, Clone)]
pub struct WorkerSeconds {
    /// Walking, encoding, compressing.
    pub busy: Counter,
    /// Waiting for messages.
    pub source: Counter,
    /// Waiting for free chunks: blocks are not inserted as fast as they are made.
    pub buffers: Counter,
    /// Waiting to hand a block over.
    pub sink: Counter,
}

/// All metrics.
pub struct Metrics {
    registry: Registry,
    families: Vec<Family>,
    /// Messages that were read, or could not be.
    pub messages: MessageMetrics,
    /// Rows whose times are not what they should be.
    pub times: TimeMetrics,
    /// Messages and rows whose dead letters were acknowledged, by reason.
    pub dead_letters: IntCounterVec,
    /// Refusals of dead letters, by cause.
    pub dead_letters_refused: IntCounterVec,
    /// Messages that were passed over without a dead letter, by reason.
    pub messages_skipped: IntCounterVec,
    /// Rows that ClickHouse has acknowledged.
    pub rows_inserted: IntCounter,
    /// Rows of these that ClickHouse dropped because it knows their token.
    pub rows_deduplicated: IntCounter,
    /// Blocks that ClickHouse has acknowledged.
    pub blocks_inserted: IntCounter,
    /// Compressed bytes that ClickHouse has acknowledged.
    pub bytes_inserted: IntCounter,
    /// Seconds until a block was turned into columns.
    pub turn_seconds: Histogram,
    /// Blocks that could not be turned into columns, by why.
    pub blocks_not_turned: IntCounterVec,
    /// Seconds per successful insert.
    pub insert_seconds: Histogram,
    /// Failed tries by class.
    pub insert_failures: IntCounterVec,
    /// Seconds from the end of a block's latest span to its insert.
    pub freshness_seconds: Histogram,
    /// Partitions that stand in front of a batch that cannot be read, or of a message whose dead letter is refused.
    pub partitions_stopped: IntGauge,
    /// How old an open block may become now.
    pub block_age_seconds_max: Gauge,
    /// Blocks that wait for an insert or are being inserted.
    pub blocks_in_flight: IntGauge,
    /// Rows that were walked and of which nobody has said what became.
    pub rows_in_flight: IntGauge,
    /// 1 while sealed blocks wait for the sink; what workers wait for then is the sink, though they may read on.
    pub sink_behind: IntGauge,
    /// Partitions that are owned.
    pub partitions_owned: IntGauge,
    /// Messages between the committed offset and the end.
    pub lag_messages: IntGaugeVec,
    /// The last committed offset.
    pub committed_offset: IntGaugeVec,
    /// Where reading goes on.
    pub position: IntGaugeVec,
    /// Seconds until Kafka's retention overtakes what is not inserted.
    pub retention_seconds_left: GaugeVec,
    /// What waits behind open transactions.
    pub open_transactions: OpenTransactionMetrics,
    /// Messages that retention overtook.
    pub messages_lost: IntCounter,
    /// Those that are not counted yet.
    pub messages_overtaken: IntGaugeVec,
    /// Partitions that began without knowing what was in flight before.
    pub fresh_starts: IntCounter,
    /// Partitions that went over to the rule of this gateway.
    pub rule_changes: IntCounter,
    /// Ranges cut where an owner before may have sent longer ones.
    pub doubtful_ranges: IntCounter,
    /// Partitions that a newer version has read, and that this one must not.
    pub partitions_halted: IntGauge,
    /// 1 for every partition that stands still, with the reason.
    pub partition_still: IntGaugeVec,
    /// Rows that were walked and are nowhere.
    pub ledger_imbalance_rows: IntGauge,
    /// Rows whose generation ended before they were inserted.
    pub rows_abandoned: IntCounter,
    /// Assignments and revocations.
    pub rebalances: IntGauge,
    /// Ranges that settled after their partition had another owner.
    pub stale_ranges: IntGauge,
    /// Commits by result.
    pub commits: IntGaugeVec,
    /// Chunks of the pool by state.
    pub block_pool_bytes: IntGaugeVec,
    /// What is in use of the memory budget, by part; `process` is all of it.
    pub memory_used_bytes: IntGaugeVec,
    /// Those of its parts that the workers tell.
    pub memory_parts: MemoryParts,
    /// The queue volume by state.
    pub queue_volume_bytes: IntGaugeVec,
    /// Whether the table fitted when it was last looked at.
    pub table_fits: IntGauge,
    /// Whether the gateway is ready.
    pub ready: IntGauge,
    /// What is on the queue volume.
    pub spool: SpoolMetrics,
    /// What is promised, and what is in doubt.
    pub guarantee: GuaranteeMetrics,
    /// What the server does not take whole.
    pub refused: RefusedMetrics,
    worker_seconds: CounterVec,
}

/// A metric as it is registered, with or without series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels, in their order.
    pub labels: Vec<String>,
}

impl Family {
    fn of(collector: &impl Collector) -> Vec<Self> {
        let kinds = collector.collect().into_iter().map(|family| match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::HISTOGRAM => "histogram",
            _ => "gauge",
        });
        let described = collector.desc().into_iter().zip(kinds);
        let family = |(desc, kind): (&Desc, _)| Self {
            name: desc.fq_name.clone(),
            kind,
            labels: desc.variable_labels.clone(),
        };
        described.map(family).collect()
    }
}

/// Makes metrics of one registry under the gateway's prefix.
struct Maker {
    registry: Registry,
    families: RefCell<Vec<Family>>,
}

impl Maker {
    fn registered<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let collector = made.expect("the name and labels of a metric are constants that are valid");
        self.families.borrow_mut().extend(Family::of(&collector));
        self.registry.register(Box::new(collector.clone())).expect("every metric has a name of its own");
        collector
    }

    fn opts(name: &str, help: &str) -> Opts {
        Opts::new(format!("sluice_gateway_{name}"), help)
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.registered(IntCounter::with_opts(Self::opts(name, help)))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.registered(IntCounterVec::new(Self::opts(name, help), labels))
    }

    /// Counters by reason, all of them from the start: one that is first seen with what it has counted has not increased.
    fn by_reason(&self, name: &str, help: &str, reasons: &[&str]) -> IntCounterVec {
        let counters = self.counters(name, help, &["reason"]);
        for reason in reasons {
            counters.with_label_values(&[reason]);
        }
        counters
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.registered(IntGauge::with_opts(Self::opts(name, help)))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.registered(IntGaugeVec::new(Self::opts(name, help), labels))
    }

    fn real(&self, name: &str, help: &str) -> Gauge {
        self.registered(Gauge::with_opts(Self::opts(name, help)))
    }

    fn float_gauges(&self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.registered(GaugeVec::new(Self::opts(name, help), labels))
    }

    fn seconds(&self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let opts = HistogramOpts::new(format!("sluice_gateway_{name}"), help).buckets(buckets.to_vec());
        self.registered(Histogram::with_opts(opts))
    }
}

/// What workers hold of the memory budget.
pub struct MemoryParts {
    /// Row buffers that were made.
    pub rows: IntGauge,
    /// Scratch of all workers, between two messages.
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

/// Bounds of insert and freshness histograms, in seconds: from a fast insert to a retry after the longest wait.
const SECONDS_BUCKETS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

impl Metrics {
    /// Makes all metrics and registers them.
    #[expect(clippy::too_many_lines, reason = "one line per metric; a table reads best in one piece")]
    pub fn new(budget: &Budget) -> Self {
        let make = Maker { registry: Registry::new(), families: RefCell::default() };
        let insert_failures = make.counters(
            "insert_failures_total",
            "Tries of blocks that failed, by what is done about it; in_doubt also when no server said what became of the last one.",
            &["class"],
        );
        for class in Class::ALL {
            insert_failures.with_label_values(&[class.label()]);
        }
        let parts = make.gauges("memory_budget_bytes", "The memory limit, divided.", &["part"]);
        for (part, bytes) in budget.parts() {
            parts.with_label_values(&[part]).set(i64::try_from(bytes.get()).unwrap_or(i64::MAX));
        }
        let memory_used_bytes = make.gauges(
            "memory_used_bytes",
            "Memory in use of parts of the budget: kafka, rows, workers, letters and blocks; and the resident set of the process.",
            &["part"],
        );
        let info = make.gauges("build_info", "1, with the version of the program.", &["version"]);
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Self {
            messages: MessageMetrics::new(&make),
            times: TimeMetrics::new(&make),
            dead_letters: make.by_reason(
                "dead_letters_total",
                "Messages and rows that the dead-letter topic has acknowledged, by why they went there.",
                &[&REJECTED[..], &[ROW_REFUSED]].concat(),
            ),
            dead_letters_refused: make.counters(
                "dead_letters_refused_total",
                "Dead letters that their topic does not take, by cause; each counts once, however often it is sent again.",
                &["cause"],
            ),
            messages_skipped: make.by_reason(
                "messages_skipped_total",
                "Messages passed over without a dead letter, because deadLetter.onMissing is Skip.",
                &REJECTED,
            ),
            rows_deduplicated: make.counter(
                "rows_deduplicated_total",
                "Rows of those that ClickHouse dropped because it knows the token of their block.",
            ),
            rows_inserted: make.counter("rows_inserted_total", "Rows that ClickHouse has acknowledged."),
            blocks_inserted: make
                .counter("blocks_inserted_total", "Blocks that ClickHouse has acknowledged."),
            bytes_inserted: make
                .counter("inserted_bytes_total", "Compressed bytes that ClickHouse has acknowledged."),
            turn_seconds: make.seconds(
                "turn_seconds",
                "Seconds until a block was turned into columns, the wait for its turn included.",
                &SECONDS_BUCKETS,
            ),
            blocks_not_turned: make.counters(
                "blocks_not_turned_total",
                "Blocks that went as rows though insert.format is Native, by what they have too much of, or because they were refused.",
                &["reason"],
            ),
            insert_seconds: make.seconds(
                "insert_seconds",
                "Seconds per successful insert.",
                &SECONDS_BUCKETS,
            ),
            insert_failures,
            freshness_seconds: make.seconds(
                "freshness_seconds",
                "Seconds from the end of a block's latest span to its insert.",
                &SECONDS_BUCKETS,
            ),
            partitions_stopped: make.gauge(
                "partitions_stopped",
                "Partitions that stand in front of a batch that cannot be read, or of a message whose dead letter is refused.",
            ),
            block_age_seconds_max: make.real(
                "block_age_seconds_max",
                "How old a block becomes before it is inserted, unless it is full before: insert.maxInterval, or half a second for each block that is open.",
            ),
            blocks_in_flight: make.gauge("blocks_in_flight", "Blocks sealed and not yet inserted."),
            rows_in_flight: make.gauge(
                "rows_in_flight",
                "Rows walked and not yet settled: in open blocks, in blocks that wait for an insert, and on the queue volume.",
            ),
            sink_behind: make.gauge("sink_behind", "1 while sealed blocks have waited for the sink for 2 s."),
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
                "The offset at which reading goes on, ahead of what is committed.",
                &["topic", "partition"],
            ),
            retention_seconds_left: make.float_gauges(
                "retention_seconds_left",
                "Seconds until Kafka's retention overtakes what is not inserted; absent where nothing is to be overtaken.",
                &["topic", "partition"],
            ),
            open_transactions: OpenTransactionMetrics::new(&make),
            messages_lost: make.counter(
                "messages_lost_total",
                "Messages that Kafka's retention overtook before they were read, each counted once, by the owner whose commit passes it; must stay 0.",
            ),
            messages_overtaken: make.gauges(
                "messages_overtaken",
                "Messages that Kafka's retention has overtaken and that messages_lost_total does not count yet; absent where there are none.",
                &["topic", "partition"],
            ),
            fresh_starts: make.counter(
                "fresh_starts_total",
                "Partitions that began without knowing what was in flight before; rows of it may be doubled once.",
            ),
            rule_changes: make.counter(
                "rule_changes_total",
                "Partitions read up to where another size rule, number of shards or server may have been used, and that begin anew by those of this gateway.",
            ),
            doubtful_ranges: make.counter(
                "doubtful_ranges_total",
                "Ranges cut where an owner before may have sent longer ones; their rows may be doubled.",
            ),
            partitions_halted: make.gauge(
                "partitions_halted",
                "Partitions that are not read because a newer version has read them; roll forward to it.",
            ),
            partition_still: make.gauges(
                "partition_still",
                "1 for every partition that stands still longer than it may, with the reason.",
                &["topic", "partition", "reason"],
            ),
            ledger_imbalance_rows: make.gauge(
                "ledger_imbalance_rows",
                "Rows walked - settled by insert - dead-lettered - given up - in flight; must be 0 at rest.",
            ),
            rows_abandoned: make.counter(
                "rows_abandoned_total",
                "Rows given up because their partition went before they were inserted; its next owner reads them again.",
            ),
            rebalances: make.gauge("rebalances", "Assignments and revocations since the start."),
            stale_ranges: make.gauge(
                "stale_ranges",
                "Ranges settled after their partition had another owner, since the start; their rows may be doubled.",
            ),
            commits: make.gauges("commits", "Offset commits since the start.", &["result"]),
            block_pool_bytes: make.gauges(
                "block_pool_bytes",
                "The pool that holds compressed blocks.",
                &["state"],
            ),
            memory_parts: MemoryParts::of(&memory_used_bytes),
            memory_used_bytes,
            queue_volume_bytes: make.gauges("queue_volume_bytes", "The queue volume.", &["state"]),
            table_fits: make.gauge("table_fits", "1 when the table's columns were those that rows are encoded for."),
            ready: make.gauge("ready", "1 when the gateway is ready."),
            spool: SpoolMetrics::new(&make),
            guarantee: GuaranteeMetrics::new(&make),
            refused: RefusedMetrics::new(&make),
            worker_seconds: make.registered(CounterVec::new(
                    Maker::opts(
                        "worker_seconds_total",
                        "Seconds of the workers by what they do or wait for.",
                    ),
                    &["worker", "state"],
                ),
            ),
            families: make.families.into_inner(),
            registry: make.registry,
        }
    }

    /// Every metric that there is, also those that have no series yet.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// The seconds of one worker.
    pub fn worker(&self, number: usize) -> WorkerSeconds {
        let number = number.to_string();
        let of = |state: &str| self.worker_seconds.with_label_values(&[number.as_str(), state]);
        WorkerSeconds { busy: of("busy"), source: of("source"), buffers: of("buffers"), sink: of("sink") }
    }

    /// Everything, in Prometheus' text format.
    ///
    /// # Errors
    /// When a metric cannot be written, which is a defect of ours.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// What tests take where any gateway will do.
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
        }
    }

    /// Its metrics.
    pub fn metrics() -> Metrics {
        Metrics::new(&Budget::divide(&sizing()).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::reject::Reason;

    #[test]
    fn every_reason_is_counted_before_it_is_given() {
        let malformed = Reason::Malformed(sluice_otlp::validate(b"no trace").unwrap_err());
        for reason in [malformed, Reason::MessageTooLong, Reason::RowTooLarge, Reason::MessageTooLarge] {
            // One that is added does not compile before it is here.
            let expected = match reason {
                Reason::Malformed(_) | Reason::MalformedJson(_) => REJECTED[0],
                Reason::MessageTooLong => REJECTED[2],
                Reason::RowTooLarge => REJECTED[3],
                Reason::MessageTooLarge => REJECTED[4],
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
