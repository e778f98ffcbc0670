//! Between counts and shares: the only place where a count loses digits or a share is rounded to a count.

/// A count as a number; exact up to 2^53, which no offset or byte count reaches.
#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^53")]
pub fn count(value: u64) -> f64 {
    value as f64
}

/// The smallest whole number of gateways that is not below.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the value is clamped first")]
pub fn ceil(value: f64) -> u32 {
    if value.is_nan() { 0 } else { value.ceil().clamp(0.0, f64::from(u32::MAX)) as u32 }
}

/// Rounded to six digits behind the point: what is written into a status is read back as the same number.
pub fn written(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Moves what is known by a weight towards what was measured.
pub fn blend(known: f64, measured: f64, weight: f64) -> f64 {
    known + weight * (measured - known)
}
