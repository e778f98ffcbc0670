//! The last error of a connection to a broker, in librdkafka's words, which name the broker and the reason.
//!
//! librdkafka reports each error once to a callback, which runs on `io`. What later fails because of it (a question that no broker answers,
//! a message that times out) has a code alone. Limits: one error, [`WORDS_BYTES_MAX`].

use rdkafka::{error::KafkaError, types::RDKafkaErrorCode as Code};
use std::time::{Duration, Instant};

/// How long an error may have been the reason for what fails now. Chosen: librdkafka connects again at least every 10 s, and then fails again.
const AGE_MAX: Duration = Duration::from_secs(30);

/// Bytes of an error, after which it is cut. Chosen: it is part of an answer, and names a host and a reason.
const WORDS_BYTES_MAX: usize = 384;

/// The last error.
#[derive(Debug, Default)]
pub(super) struct ConnectionErrors {
    last: Option<(String, Instant)>,
}

impl ConnectionErrors {
    /// Keeps an error if it is one of a connection and names its broker.
    pub(super) fn note(&mut self, error: &KafkaError, reason: &str, now: Instant) {
        let is_of_connection = matches!(
            error.rdkafka_error_code(),
            Some(
                Code::BrokerTransportFailure
                    | Code::Resolve
                    | Code::SSL
                    | Code::Authentication
                    | Code::SaslAuthenticationFailed
                    | Code::OperationTimedOut
            )
        );
        if is_of_connection && !reason.is_empty() {
            // What follows differs each time: how long the connection had its state, and how often the error was suppressed.
            let (words, _) = reason.split_once(" (after ").unwrap_or((reason, ""));
            let mut words = words.to_owned();
            words.truncate(words.floor_char_boundary(WORDS_BYTES_MAX));
            self.last = Some((words, now));
        }
    }

    /// A broker has answered.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// The error that is new enough to be the reason.
    pub(super) fn recent(&self, now: Instant) -> Option<&str> {
        let (words, at) = self.last.as_ref()?;
        (now.saturating_duration_since(*at) <= AGE_MAX).then_some(words.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_of_a_connection_is_the_reason_for_a_while() {
        let (mut errors, begun) = (ConnectionErrors::default(), Instant::now());
        let refused = "k:9092/bootstrap: Connect to ipv4#10.0.0.1:9092 failed: Connection refused";
        let reported = format!("{refused} (after 0ms in state CONNECT, 4 identical error(s) suppressed)");
        errors.note(&KafkaError::Global(Code::BrokerTransportFailure), &reported, begun);
        errors.note(&KafkaError::Global(Code::AllBrokersDown), "1/1 brokers are down", begun);
        errors.note(&KafkaError::Global(Code::Resolve), "", begun);
        assert_eq!(errors.recent(begun + AGE_MAX), Some(refused));
        assert_eq!(errors.recent(begun + AGE_MAX + Duration::from_secs(1)), None);
        errors.forget();
        assert_eq!(errors.recent(begun), None);
        errors.note(&KafkaError::Global(Code::Resolve), &"\u{fc}".repeat(1_000), begun);
        assert_eq!(errors.recent(begun).unwrap().len(), WORDS_BYTES_MAX);
    }
}
