//! Between counts and amounts.

/// A count as an amount; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
pub fn count(value: u64) -> f64 {
    value as f64
}

/// An amount as a count, rounded to the nearest; 0 for a negative amount.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is clamped first")]
pub fn whole(value: f64) -> u64 {
    value.round().clamp(0.0, 9.0e15) as u64
}

/// An amount of gateways, rounded up; at least 1.
pub fn gateways(value: f64) -> u32 {
    u32::try_from(whole(value.ceil())).unwrap_or(u32::MAX).max(1)
}
