//! Tokens for Kafka: how many there were, and until when the last one holds.

use super::maker::Maker;
use prometheus::{Gauge, IntCounter};

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
    pub(super) fn new(make: &Maker) -> Self {
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
}
