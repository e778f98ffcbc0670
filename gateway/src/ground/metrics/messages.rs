//! Metrics of the messages that workers read from Kafka.

use super::Maker;
use prometheus::{IntCounter, IntCounterVec, IntGauge};
use sluice_gateway_config::GatewaySample;
use std::time::{SystemTime, UNIX_EPOCH};

/// Why a message is rejected: the labels of [`Reason`](crate::reading::reject::Reason).
pub const REJECTED: [&str; 6] =
    ["malformed", "not_traces", "message_too_long", "row_too_large", "message_too_large", "framing"];

/// The reason for rows that ClickHouse refuses, in their dead letters and as a metric label.
pub const ROW_REFUSED: &str = "row_refused";

/// Why a message that can be read has no spans.
const WITHOUT_SPANS: [&str; 3] = [NO_VALUE, EMPTY_VALUE, NO_SPANS];

/// It has no value in Kafka, which marks a key as deleted in a compacted topic.
const NO_VALUE: &str = "no_value";

const EMPTY_VALUE: &str = "empty_value";

/// It is a request without spans.
const NO_SPANS: &str = "no_spans";

/// Handles of these metrics.
#[derive(Debug, Clone)]
pub struct MessageMetrics {
    spans: IntCounter,
    read: IntCounter,
    bytes: IntCounter,
    frames_skipped: IntCounter,
    without_spans: IntCounterVec,
    headers_cut: IntCounter,
    rejected: IntCounterVec,
    rejected_at: IntGauge,
}

impl MessageMetrics {
    /// Creates and registers them.
    pub(super) fn new(make: &Maker) -> Self {
        Self {
            spans: make.counter("spans_total", "Spans read and encoded."),
            read: make.counter("messages_total", "Messages read."),
            bytes: make.counter("message_bytes_total", "Bytes of the messages read, decompressed."),
            frames_skipped: make.counter(
                "message_frames_skipped_total",
                "Messages read without the frame that a serializer of Confluent put in front of them.",
            ),
            without_spans: make.by_reason(
                "messages_without_spans_total",
                "Messages without spans, by reason: no value in Kafka, an empty value, or a request without spans.",
                &WITHOUT_SPANS,
            ),
            headers_cut: make.counter(
                "message_headers_cut_total",
                "Messages whose rows lack some of their Kafka headers, which were too many or too long.",
            ),
            rejected: make.by_reason("messages_rejected_total", "Messages that cannot be read.", &REJECTED),
            rejected_at: make.gauge(
                "message_rejected_timestamp_seconds",
                "Unix time in seconds at which a message was last rejected; 0 before the first.",
            ),
        }
    }

    /// Counts a message that was read, with its number of spans.
    pub fn count(&self, spans: u64, value: Option<&[u8]>) {
        self.spans.inc_by(spans);
        self.read.inc();
        self.bytes.inc_by(value.map_or(0, |bytes| bytes.len() as u64));
        // A message that was read and begins with 0 has a frame: `reading::framing`.
        if value.is_some_and(|bytes| bytes.first() == Some(&0)) {
            self.frames_skipped.inc();
        }
        if spans == 0 {
            let reason = match value {
                None => NO_VALUE,
                Some([]) => EMPTY_VALUE,
                Some(_) => NO_SPANS,
            };
            self.without_spans.with_label_values(&[reason]).inc();
        }
    }

    /// Counts a message if its rows lack some of its headers.
    pub fn count_cut_headers(&self, are_cut: bool) {
        if are_cut {
            self.headers_cut.inc();
        }
    }

    /// Counts a batch that cannot be read. Its partition stops in front of it: nothing is rejected, and there is no dead letter.
    pub fn stop_at_batch(&self, reason: &str) {
        self.rejected.with_label_values(&[reason]).inc();
    }

    /// Counts a message that cannot be read.
    pub fn reject(&self, reason: &str) {
        self.rejected.with_label_values(&[reason]).inc();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.rejected_at.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    }

    /// Writes what is counted here into a sample.
    pub(super) fn fill(&self, sample: &mut GatewaySample) {
        let by = |counters: &IntCounterVec, reason: &str| counters.with_label_values(&[reason]).get();
        sample.messages = Some(self.read.get());
        sample.message_bytes = Some(self.bytes.get());
        sample.messages_without_spans =
            WITHOUT_SPANS.iter().map(|reason| by(&self.without_spans, reason)).sum();
        sample.messages_rejected =
            REJECTED.iter().map(|reason| ((*reason).to_owned(), by(&self.rejected, reason))).collect();
        sample.message_rejected_at = u64::try_from(self.rejected_at.get()).ok();
    }
}

#[cfg(test)]
mod tests {
    use crate::ground::metrics::reference;

    fn lines(text: &str, of: &str) -> Vec<String> {
        let lines = text.lines().filter(|line| line.starts_with(of) && !line.ends_with(" 0"));
        lines.map(|line| line.trim_start_matches("sluice_gateway_").to_owned()).collect()
    }

    #[test]
    fn messages_without_spans_are_counted_by_why() {
        let metrics = reference::metrics();
        for (spans, value) in
            [(0, None), (0, Some(&b""[..])), (0, Some(b"{}")), (0, Some(b"\x0a\x00")), (3, Some(b"spans"))]
        {
            metrics.messages.count(spans, value);
        }
        let text = metrics.text().unwrap();
        assert_eq!(
            lines(&text, "sluice_gateway_messages_without_spans_total"),
            [
                "messages_without_spans_total{reason=\"empty_value\"} 1",
                "messages_without_spans_total{reason=\"no_spans\"} 2",
                "messages_without_spans_total{reason=\"no_value\"} 1"
            ]
        );
        assert_eq!(lines(&text, "sluice_gateway_messages_total"), ["messages_total 5"]);
        assert_eq!(lines(&text, "sluice_gateway_message_bytes_total"), ["message_bytes_total 9"]);
    }

    #[test]
    fn messages_that_lack_headers_are_counted() {
        let metrics = reference::metrics();
        for are_cut in [true, false, true] {
            metrics.messages.count_cut_headers(are_cut);
        }
        let text = metrics.text().unwrap();
        assert_eq!(lines(&text, "sluice_gateway_message_headers_cut_total"), ["message_headers_cut_total 2"]);
    }

    #[test]
    fn frames_in_front_of_messages_are_counted() {
        let metrics = reference::metrics();
        for value in [&b"\x00\x00\x00\x00\x01\x00\x0a\x00"[..], b"\x0a\x00", b""] {
            metrics.messages.count(1, Some(value));
        }
        let text = metrics.text().unwrap();
        let skipped = lines(&text, "sluice_gateway_message_frames_skipped_total");
        assert_eq!(skipped, ["message_frames_skipped_total 1"]);
    }

    #[test]
    fn a_rejected_message_leaves_its_time() {
        let metrics = reference::metrics();
        let at = || lines(&metrics.text().unwrap(), "sluice_gateway_message_rejected_timestamp_seconds");
        metrics.messages.stop_at_batch("batch_too_large");
        assert!(at().is_empty(), "a batch that stops its partition is not rejected");
        metrics.messages.reject("not_traces");
        assert_eq!(at().len(), 1);
        let counted = lines(&metrics.text().unwrap(), "sluice_gateway_messages_rejected_total");
        assert_eq!(
            counted,
            [
                "messages_rejected_total{reason=\"batch_too_large\"} 1",
                "messages_rejected_total{reason=\"not_traces\"} 1"
            ]
        );
    }
}
