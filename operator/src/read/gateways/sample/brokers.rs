//! What one gateway says of brokers that it does not reach.

use sluice_gateway_config::{GatewaySample, UNCONNECTED_CHARS_MAX, UnconnectedState};

/// Why it reaches none, while it does not; `None` as well when it does not say it.
pub fn unconnected(sample: &GatewaySample) -> Option<UnconnectedState> {
    let said = sample.unconnected.as_ref()?;
    // It goes into a condition, on one line.
    let reason = said.reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason: String = reason.chars().take(UNCONNECTED_CHARS_MAX).collect();
    (!reason.is_empty()).then_some(UnconnectedState { reason, seconds: said.seconds })
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
}
