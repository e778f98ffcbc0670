//! Metrics of `source.otlp`: requests, the logs that keep them, and dead letters on the queue volume. All stay 0 with `source.kafka`.

use super::{Maker, ServerMetrics};
use crate::ground::measure::Measure;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge};

/// Buckets in seconds: from a sync of a fast disk to the longest wait of a request.
const SECONDS_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// Why a request gets no success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestRefusal {
    /// It cannot be read.
    Malformed,
    /// It is too large as protobuf.
    TooLarge,
    /// Its tenant sends more than it may.
    Tenant(Measure),
    /// No thread, or no memory, is free.
    Busy,
    /// The queue volume has no room.
    Full,
    /// It was not stored in time.
    Slow,
    /// The gateway drains, or ends.
    Draining,
}

impl RequestRefusal {
    const ALL: [Self; 8] = [
        Self::Malformed,
        Self::TooLarge,
        Self::Tenant(Measure::Spans),
        Self::Tenant(Measure::Bytes),
        Self::Busy,
        Self::Full,
        Self::Slow,
        Self::Draining,
    ];

    /// Whether the gateway lacks something: another gateway, or this one later, stores the request.
    const fn is_want(self) -> bool {
        match self {
            Self::Busy | Self::Full | Self::Slow => true,
            Self::Malformed | Self::TooLarge | Self::Tenant(_) | Self::Draining => false,
        }
    }

    /// The reason as a metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Tenant(measure) => measure.refusal_label(),
            Self::Busy => "busy",
            Self::Full => "full",
            Self::Slow => "slow",
            Self::Draining => "draining",
        }
    }
}

/// The metrics.
pub struct RequestMetrics {
    /// Requests that were answered with success.
    pub stored: IntCounter,
    /// Requests that were not, by reason.
    refused: IntCounterVec,
    /// Spans of stored requests.
    pub spans: IntCounter,
    /// Bytes of stored requests as protobuf.
    pub bytes: IntCounter,
    /// Bytes that they take in the logs, without headers.
    pub stored_bytes: IntCounter,
    /// Seconds from a request's last byte until it is durable.
    pub store_seconds: Histogram,
    /// Seconds of a sync.
    pub sync_seconds: Histogram,
    /// Requests between their last byte and their answer.
    pub in_flight: IntGauge,
    /// Tenants that have sent lately.
    pub tenants: IntGauge,
    /// Bytes of the logs' files, and the most that they may have.
    pub log_bytes: IntGauge,
    pub log_bytes_max: IntGauge,
    /// Bytes of the files of dead letters.
    pub letter_bytes: IntGauge,
    /// 1 while the volume has files of logs or dead letters that cannot be read as a whole.
    pub damaged: IntGauge,
    /// What the OTLP server counts.
    pub server: ServerMetrics,
}

impl RequestMetrics {
    pub(super) fn new(make: &Maker) -> Self {
        Self {
            stored: make.counter(
                "otlp_requests_total",
                "OTLP requests that are durable in a log, and were answered with success.",
            ),
            refused: make.by_reason(
                "otlp_requests_refused_total",
                "OTLP requests that got an error after their body was read, by reason.",
                &RequestRefusal::ALL.map(RequestRefusal::label),
            ),
            spans: make.counter("otlp_spans_total", "Spans of these requests."),
            bytes: make.counter(
                "otlp_request_bytes_total",
                "Bytes of these requests, as protobuf without compression.",
            ),
            stored_bytes: make.counter(
                "otlp_request_stored_bytes_total",
                "Bytes of these requests in the logs: large ones are compressed.",
            ),
            store_seconds: make.seconds(
                "otlp_store_seconds",
                "Seconds from a request's last byte until it is durable.",
                &SECONDS_BUCKETS,
            ),
            sync_seconds: make.seconds(
                "log_sync_seconds",
                "Seconds of a sync of the logs.",
                &SECONDS_BUCKETS,
            ),
            in_flight: make
                .gauge("otlp_requests_in_flight", "OTLP requests that are read and not answered yet."),
            tenants: make.gauge("otlp_tenants", "Tenants whose limits are kept; 0 with source.kafka."),
            log_bytes: make.gauge("log_bytes", "Bytes of the files of all logs on the queue volume."),
            log_bytes_max: make.gauge("log_bytes_max", "Maximum bytes of these files; 0 with source.kafka."),
            letter_bytes: make
                .gauge("dead_letter_log_bytes", "Bytes of the files of dead letters on the queue volume."),
            damaged: make.gauge(
                "log_damaged",
                "1 while files of logs or dead letters on the queue volume are damaged, or a log cannot be read; they stay there.",
            ),
            server: ServerMetrics::new(make),
        }
    }

    /// Requests that the gateway would have stored with more memory, room or time.
    pub fn refused_for_want(&self) -> u64 {
        let wants = RequestRefusal::ALL.into_iter().filter(|refusal| refusal.is_want());
        wants.map(|refusal| self.refused.with_label_values(&[refusal.label()]).get()).sum()
    }

    /// Counts a request that gets an error.
    pub fn refuse(&self, refusal: RequestRefusal) {
        self.refused.with_label_values(&[refusal.label()]).inc();
    }
}
