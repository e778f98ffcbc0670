//! Kubernetes' quantities, the only parser of them: the API server returns `1024Mi` as `1Gi` and `1000m` as `1`, so quantities are compared
//! by value.

/// Thousandths of a unit, by its suffix.
const UNITS: [(&str, u128); 14] = [
    ("", 1_000),
    ("m", 1),
    ("k", 1_000_000),
    ("M", 1_000_000_000),
    ("G", 1_000_000_000_000),
    ("T", 1_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000_000),
    ("Ki", 1_000 << 10),
    ("Mi", 1_000 << 20),
    ("Gi", 1_000 << 30),
    ("Ti", 1_000 << 40),
    ("Pi", 1_000 << 50),
    ("Ei", 1_000 << 60),
];

/// A quantity in thousandths; `None` for a text that is no quantity, is negative, needs smaller parts, or does not fit. Exponents (`1e9`) are
/// not read.
pub fn thousandths(text: &str) -> Option<u128> {
    let (dividend, divisor) = parsed(text)?;
    dividend.is_multiple_of(divisor).then(|| dividend / divisor)
}

/// A quantity in whole bytes, rounded down. `None` where [`thousandths`] is `None`, except for smaller parts. Also `None` for thousandths
/// (`m`), which are no size of a volume.
pub fn bytes(text: &str) -> Option<u64> {
    let (dividend, divisor) = parsed(text).filter(|_| !text.ends_with('m'))?;
    u64::try_from(dividend / divisor / 1_000).ok()
}

/// CPU in thousandths of a core: `500m`, `2` and `1.5` are read, with up to three digits behind the point.
pub(crate) fn millicores(text: &str) -> Option<u32> {
    let is_plain = text.ends_with(|c: char| c.is_ascii_digit() || c == 'm') && !text.starts_with('.');
    thousandths(text).filter(|_| is_plain)?.try_into().ok()
}

/// Thousandths, as a dividend and a power of ten.
fn parsed(text: &str) -> Option<(u128, u128)> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let (_, factor) = UNITS.iter().find(|(suffix, _)| *suffix == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let divisor = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    Some((digits.checked_mul(*factor)?, divisor))
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

    #[test]
    fn cpu_is_read_as_kubernetes_does() {
        for (text, expected) in
            [("500m", 500), ("2", 2_000), ("1.5", 1_500), ("0.25", 250), ("0.125", 125), ("64", 64_000)]
        {
            assert_eq!(millicores(text), Some(expected), "{text}");
        }
        for text in ["", "m", "+1", "-1", "1k", "1.2345", ".5", "1.", "99999999999"] {
            assert_eq!(millicores(text), None, "{text}");
        }
    }

    #[test]
    fn thousandths_are_exact() {
        for (text, expected) in [
            ("1000m", Some(1_000)),
            ("1", Some(1_000)),
            ("1.5", Some(1_500)),
            ("0.125", Some(125)),
            ("1.5Gi", Some(1_536_000 << 20)),
            ("0.0001", None),
            ("1.2.3", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(thousandths(text), expected, "{text}");
        }
    }
}
