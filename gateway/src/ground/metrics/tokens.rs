//! Tokens for Kafka: how many there were, and until when the last one holds.

use super::maker::Maker;
use prometheus::{Gauge, IntCounter};
use std::time::Duration;

/// Tokens for Kafka.
#[derive(Debug, Clone)]
pub struct TokenMetrics {
    /// Tokens that were got.
    pub granted: IntCounter,
    /// Tries that failed.
    pub failed: IntCounter,
    /// When the last token expires, in seconds since 1970.
    pub expires: Gauge,
}

impl TokenMetrics {
    pub(crate) fn new(make: &Maker) -> Self {
        let counts = make.counters(
            "kafka_tokens_total",
            "Tries to get a token for Kafka (SASL OAUTHBEARER), by result.",
            &["result"],
        );
        Self {
            granted: counts.with_label_values(&["ok"]),
            failed: counts.with_label_values(&["failed"]),
            expires: make.real(
                "kafka_token_expires_timestamp_seconds",
                "When the last token for Kafka expires, in seconds since 1970; 0 without one.",
            ),
        }
    }

    /// Raises the counters to sums that are kept elsewhere, one scrape at a time.
    pub fn show(&self, granted: u64, failed: u64, expires_ms: Option<i64>) {
        self.granted.inc_by(granted.saturating_sub(self.granted.get()));
        self.failed.inc_by(failed.saturating_sub(self.failed.get()));
        let expires_ms = expires_ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
        self.expires.set(Duration::from_millis(expires_ms).as_secs_f64());
    }
}
