//! What one gateway says of brokers that it does not reach, or that give it no messages.

use sluice_gateway_config::{GatewaySample, UNCONNECTED_CHARS_MAX, UnconnectedState, UnfetchedState};

/// Why it reaches none, while it does not; `None` as well when it does not say it.
pub fn unconnected(sample: &GatewaySample) -> Option<UnconnectedState> {
    let said = sample.unconnected.as_ref()?;
    let reason = line(&said.reason);
    (!reason.is_empty()).then_some(UnconnectedState { reason, seconds: said.seconds })
}

/// Which messages it does not get, while it does not; `None` as well when it does not say it.
pub fn unfetched(sample: &GatewaySample) -> Option<UnfetchedState> {
    let said = sample.unfetched.as_ref()?;
    let topic = said.topic.as_deref().map(line);
    let error = said.error.as_deref().map(line).filter(|error| !error.is_empty());
    Some(UnfetchedState { topic, error, ..*said })
}

/// It goes into a condition, on one line.
fn line(said: &str) -> String {
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(UNCONNECTED_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        let of = |reason: &str| {
            let said = UnconnectedState { reason: reason.to_owned(), seconds: 75 };
            unconnected(&GatewaySample { unconnected: Some(said), ..GatewaySample::default() })
        };
        let expected = UnconnectedState { reason: "a:9092/1: refused".into(), seconds: 75 };
        assert_eq!(of("a:9092/1:\n refused"), Some(expected));
        assert_eq!(of(&"x".repeat(9_000)).unwrap().reason.len(), UNCONNECTED_CHARS_MAX);
        assert_eq!(of(" "), None);
        assert_eq!(unconnected(&GatewaySample::default()), None);
    }
    #[test]
    fn an_error_of_a_fetch_is_one_line_and_what_else_is_said_stays() {
        let said = UnfetchedState {
            topic: Some("spans".into()),
            partitions: 4,
            error: Some("Local:\n timed out".into()),
            seconds: 75,
            ..UnfetchedState::default()
        };
        let sample = GatewaySample { unfetched: Some(said.clone()), ..GatewaySample::default() };
        let expected = UnfetchedState { error: Some("Local: timed out".into()), ..said };
        assert_eq!(unfetched(&sample), Some(expected));
        assert_eq!(unfetched(&GatewaySample::default()), None);
    }
}
