//! Kubernetes' quantities of bytes as numbers, so that sizes are compared by value: `1024Mi` comes back as `1Gi`.

/// Units, by their suffix.
const UNITS: [(&str, u64); 12] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];

/// A quantity in whole bytes, rounded down; `None` for what is none, what is below zero and what does not fit. Exponents (`1e9`) and
/// thousandths (`m`), which nobody uses for the size of a volume, are not read.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find(|(suffix, _)| text.ends_with(suffix));
    let (number, factor) =
        unit.map_or((text, 1), |(suffix, factor)| (text.trim_end_matches(suffix), *factor));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = digits(whole)?.checked_mul(factor)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = u128::from(digits(fraction)?).checked_mul(u128::from(factor))? / scale;
    whole.checked_add(u64::try_from(part).ok()?)
}

fn digits(text: &str) -> Option<u64> {
    // `parse` alone would take a sign.
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_numbers_of_bytes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1073741824", Some(1 << 30)),
            ("1Gi", Some(1 << 30)),
            ("1024Mi", Some(1 << 30)),
            ("1.5Gi", Some(3 << 29)),
            ("10G", Some(10_000_000_000)),
            ("2Ti", Some(2 << 40)),
            ("1k", Some(1_000)),
            ("", None),
            ("Gi", None),
            ("-1Gi", None),
            ("1.Gi", Some(1 << 30)),
            ("much", None),
            ("99999999999Ei", None),
            ("1e9", None),
            ("500m", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }
}
