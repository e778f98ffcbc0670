//! Why a connection to a broker came to nothing, in words that are the same for as long as it does: they stand in a condition, which is
//! written again when they change.
//!
//! librdkafka begins with the broker, of which there may be many, and ends with how long this connection took and how often it has kept the
//! same to itself: `ssl://b:9093/bootstrap: SSL handshake failed: ... (after 147ms in state SSL_HANDSHAKE, 3 identical error(s) suppressed)`.

use rdkafka::types::RDKafkaErrorCode;
use std::time::Instant;

/// How the end of librdkafka's words begins that is another one each time.
const TIMES: &str = " (after ";

/// Why a connection came to nothing.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    /// When.
    pub at: Instant,
    /// TLS or authentication.
    pub code: RDKafkaErrorCode,
    /// In librdkafka's words.
    pub reason: String,
}

impl Refusal {
    /// One that librdkafka tells at this moment, behind the one before. The same that another broker has said before stays said of that one.
    pub(super) fn now(code: RDKafkaErrorCode, said: &str, before: Option<Self>) -> Self {
        let reason = without_times(said);
        let same = before.filter(|before| before.code == code && cause(&before.reason) == cause(reason));
        let reason = same.map_or_else(|| reason.to_owned(), |before| before.reason);
        Self { at: Instant::now(), code, reason }
    }
}

fn without_times(said: &str) -> &str {
    let Some(at) = said.rfind(TIMES).filter(|_| said.ends_with(')')) else { return said };
    let rest = said[at + TIMES.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.starts_with("ms in state ") { &said[..at] } else { said }
}

/// The words behind the broker.
fn cause(reason: &str) -> &str {
    reason.split_once(": ").map_or(reason, |(_, cause)| cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use RDKafkaErrorCode::{SSL, SaslAuthenticationFailed};

    #[test]
    fn what_is_another_each_time_is_left_out_and_nothing_else() {
        let words = "ssl://b:9093/bootstrap: SSL handshake failed: certificate verify failed (in state 5)";
        for end in [
            "",
            " (after 147ms in state SSL_HANDSHAKE)",
            " (after 2ms in state SSL_HANDSHAKE, 3 identical error(s) suppressed)",
        ] {
            assert_eq!(without_times(&format!("{words}{end}")), words);
        }
        for other in ["no (after all)", "no (after 5 tries)", "(after 5ms in state CONNECT) it goes on"] {
            assert_eq!(without_times(other), other);
        }
    }

    #[test]
    fn what_several_brokers_say_is_said_of_the_first() {
        let of = |code, said: &str, before: &Refusal| Refusal::now(code, said, Some(before.clone())).reason;
        let first = Refusal::now(
            SSL,
            "ssl://a:9093/1: SSL handshake failed (after 5ms in state SSL_HANDSHAKE)",
            None,
        );
        let same = "ssl://b:9093/2: SSL handshake failed (after 7ms in state SSL_HANDSHAKE)";
        assert_eq!(of(SSL, same, &first), "ssl://a:9093/1: SSL handshake failed");
        assert_eq!(of(SaslAuthenticationFailed, same, &first), "ssl://b:9093/2: SSL handshake failed");
        assert_eq!(of(SSL, "ssl://b:9093/2: no certificate", &first), "ssl://b:9093/2: no certificate");
    }
}
