//! The reason of a failed connection to a broker, as a text that stays the same while the failure lasts. The text is part of a condition,
//! and each change of it is a write.
//!
//! librdkafka's text varies in two places. It begins with the broker, and ends with the duration and the number of suppressed errors:
//! `ssl://b:9093/bootstrap: SSL handshake failed: ... (after 147ms in state SSL_HANDSHAKE, 3 identical error(s) suppressed)`.

use rdkafka::types::RDKafkaErrorCode;
use std::time::Instant;

/// Start of the varying end of librdkafka's text.
const TIMES: &str = " (after ";

/// The reason of a failed connection is used for this many seconds. librdkafka repeats it after 30 s at the earliest, so that this is twice
/// as long.
const REFUSED_SECONDS_MAX: u64 = 60;

/// The reason of a failed connection.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    /// When librdkafka last reported it.
    pub at: Instant,
    /// TLS, authentication, or a connection that the broker closed, did not answer or does not accept.
    pub code: RDKafkaErrorCode,
    /// librdkafka's text without its varying end.
    pub reason: String,
}

impl Refusal {
    /// The reason that librdkafka reports now. If the previous reason differs only in the broker, its text stays.
    pub(super) fn now(code: RDKafkaErrorCode, said: &str, before: Option<Self>) -> Self {
        let reason = without_times(said);
        let same = before.filter(|before| before.code == code && cause(&before.reason) == cause(reason));
        let reason = same.map_or_else(|| reason.to_owned(), |before| before.reason);
        Self { at: Instant::now(), code, reason }
    }

    /// Whether it may be the reason of what fails now.
    pub(super) fn is_recent(&self) -> bool {
        self.at.elapsed().as_secs() < REFUSED_SECONDS_MAX
    }
}

fn without_times(said: &str) -> &str {
    let Some(at) = said.rfind(TIMES).filter(|_| said.ends_with(')')) else { return said };
    let rest = said[at + TIMES.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.starts_with("ms in state ") { &said[..at] } else { said }
}

/// The text after the broker.
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
