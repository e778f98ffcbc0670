//! The edge's metrics: created once, and passed to all code that counts. Labels come from closed sets.

use crate::ground::{
    measure::Measure,
    metrics::{Family, ServerMetrics, TokenMetrics, maker::Maker},
};
use prometheus::{
    Encoder as _, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
};
use sluice_gateway_config::ByteSize;
use sluice_kafka::producer::NotStored;
use std::sync::Arc;

/// Buckets of the time of a request, in seconds: from an acknowledgement on an idle machine to the longest wait.
const SECONDS_BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Why a request gets no success, besides what the producer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot be read.
    Malformed,
    /// It cannot be split within the limits.
    TooLarge,
    /// Its tenant sends more than it may.
    Tenant(Measure),
    /// No thread, or no memory, is free.
    Busy,
    /// The topic is not known, or refused.
    NoTopic,
    /// No broker answers, although one did before.
    NoBroker,
}

impl Refusal {
    const ALL: [Self; 7] = [
        Self::Malformed,
        Self::TooLarge,
        Self::Tenant(Measure::Spans),
        Self::Tenant(Measure::Bytes),
        Self::Busy,
        Self::NoTopic,
        Self::NoBroker,
    ];

    /// The reason as a metric label. Those of the producer begin with `kafka_`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Tenant(measure) => measure.refusal_label(),
            Self::Busy => "busy",
            Self::NoTopic => "no_topic",
            Self::NoBroker => "no_broker",
        }
    }
}

pub struct EdgeMetrics {
    registry: Registry,
    families: Vec<Family>,
    /// Requests that were answered with success.
    pub requests: IntCounter,
    /// Requests that were not, by reason.
    pub refused: IntCounterVec,
    /// Spans of requests that were answered with success, without those that were rejected.
    pub spans: IntCounter,
    /// Spans that were rejected for good though their request was taken.
    pub spans_rejected: IntCounterVec,
    /// Bytes of requests that were answered with success, decompressed.
    pub request_bytes: IntCounter,
    /// Messages that Kafka has acknowledged.
    pub messages: IntCounter,
    /// Their bytes, before compression.
    pub message_bytes: IntCounter,
    /// Seconds from a request's last byte to the acknowledgement of its last message.
    pub produce_seconds: Histogram,
    /// Seconds of it until the last message was passed to the producer.
    pub split_seconds: Histogram,
    /// Requests between their last byte and their answer.
    pub requests_in_flight: IntGauge,
    /// Bytes in use, by part of the budget.
    pub memory_used_bytes: IntGaugeVec,
    /// Partitions of the topic.
    pub partitions: IntGauge,
    /// The largest message that is sent.
    pub message_bytes_max: IntGauge,
    /// Tenants that have sent lately.
    pub tenants: IntGauge,
    pub ready: IntGauge,
    /// What the OTLP server counts.
    pub server: ServerMetrics,
    /// Tokens that this process logs in to Kafka with.
    pub tokens: TokenMetrics,
}

impl EdgeMetrics {
    /// Creates all metrics and registers them. `budget` has the parts of the memory limit.
    pub fn new(budget: &[(&'static str, ByteSize)]) -> Arc<Self> {
        let make = Maker::with_prefix("sluice_edge");
        let parts = make.gauges(
            "memory_budget_bytes",
            "The memory limit, divided into the parts of the budget.",
            &["part"],
        );
        for (part, bytes) in budget {
            parts.with_label_values(&[part]).set(i64::try_from(bytes.get()).unwrap_or(i64::MAX));
        }
        make.gauges("build_info", "1, with the version of the program.", &["version"])
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        let kafka = NotStored::LABELS.map(|label| format!("kafka_{label}"));
        let reasons: Vec<_> =
            Refusal::ALL.map(Refusal::label).into_iter().chain(kafka.iter().map(String::as_str)).collect();
        Arc::new(Self {
            requests: make.counter("requests_total", "Requests of which Kafka has every span that is not rejected."),
            refused: make.by_reason("requests_refused_total", "Requests that got an error, by reason.", &reasons),
            spans: make.counter("spans_total", "Spans that Kafka has acknowledged."),
            spans_rejected: make.by_reason(
                "spans_rejected_total",
                "Spans that were rejected for good, though the rest of their request was stored.",
                &["too_large"],
            ),
            request_bytes: make.counter("request_bytes_total", "Bytes of stored requests, decompressed."),
            messages: make.counter("messages_total", "Messages that Kafka has acknowledged."),
            message_bytes: make.counter("message_bytes_total", "Bytes of these messages, before compression."),
            produce_seconds: make.seconds(
                "produce_seconds",
                "Seconds from a request's last byte until Kafka has all of it.",
                &SECONDS_BUCKETS,
            ),
            split_seconds: make.seconds(
                "split_seconds",
                "Seconds from a request's last byte until the producer has all of its messages: waits for a thread and for room \
                 included.",
                &SECONDS_BUCKETS,
            ),
            requests_in_flight: make.gauge("requests_in_flight", "Requests that are read and not answered yet."),
            memory_used_bytes: make.gauges(
                "memory_used_bytes",
                "Memory in use by part of the budget (requests, messages), and the resident set of the process.",
                &["part"],
            ),
            partitions: make.gauge("topic_partitions", "Partitions of the topic; 0 while it is not known."),
            message_bytes_max: make.gauge(
                "message_bytes_max",
                "Bytes of the largest message that is sent; a span that is larger is rejected.",
            ),
            tenants: make.gauge("tenants", "Tenants whose limits are kept."),
            ready: make.gauge("ready", "1 when the edge is ready."),
            server: ServerMetrics::new(&make),
            tokens: TokenMetrics::new(&make),
            families: make.families.into_inner(),
            registry: make.registry,
        })
    }

    /// Counts a request that gets an error.
    pub fn refuse(&self, refusal: Refusal) {
        self.refused.with_label_values(&[refusal.label()]).inc();
    }

    /// Counts a request that gets an error because of Kafka.
    pub fn refuse_stored(&self, failure: &NotStored) {
        self.refused.with_label_values(&[format!("kafka_{}", failure.label()).as_str()]).inc();
    }

    /// All metrics, including those without series.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// The text that Prometheus reads.
    ///
    /// # Errors
    /// Never, as far as the encoder of today goes.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
