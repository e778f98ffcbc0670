//! Sizes and durations in text form: `64MiB`, `5s`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{fmt, str::FromStr};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Suffixes of sizes, largest first. `Mi` is the Kubernetes form of `MiB`. Both are read, the second is written.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", TIB),
    ("GiB", GIB),
    ("MiB", MIB),
    ("KiB", KIB),
    ("Ti", TIB),
    ("Gi", GIB),
    ("Mi", MIB),
    ("Ki", KIB),
    ("B", 1),
];

/// Units of durations, the largest first, with their milliseconds. Days are read, and written as hours.
const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A text that is not a size or a duration, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}: expected a whole number and a unit, such as {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// A number of bytes, written with a binary unit (`B`, `KiB`, `MiB`, `GiB`, `TiB`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

impl ByteSize {
    /// A number of bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A number of KiB; saturates at the largest number.
    pub const fn kib(kib: u64) -> Self {
        Self(kib.saturating_mul(KIB))
    }

    /// A number of MiB; saturates at the largest number.
    pub const fn mib(mib: u64) -> Self {
        Self(mib.saturating_mul(MIB))
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole MiB, rounded up: the unit of memory limits.
    pub const fn mib_ceil(self) -> u64 {
        self.0.div_ceil(MIB)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = SIZE_UNITS[..4].iter().find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match exact {
            Some((suffix, unit)) => write!(f, "{}{suffix}", self.0 / unit),
            None => write!(f, "{}B", self.0),
        }
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        number_and_unit(text, &SIZE_UNITS).map(Self).ok_or_else(|| UnitError {
            text: text.to_owned(),
            what: "size",
            example: "64MiB",
        })
    }
}

/// A duration of whole milliseconds, written with a unit (`ms`, `s`, `m`, `h`). Several are read, each at most once and the largest first, as
/// Go writes them and Prometheus reads them: `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// A number of milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(millis)
    }

    /// A number of seconds; saturates at the largest number.
    pub const fn secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// The number of milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// As the standard library's type.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (suffix, unit) = [("h", 3_600_000), ("m", 60_000), ("s", 1_000)]
            .into_iter()
            .find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit))
            .unwrap_or(("ms", 1));
        write!(f, "{}{suffix}", self.0 / unit)
    }
}

impl FromStr for Duration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        millis_of(text).map(Self).ok_or_else(|| UnitError {
            text: text.to_owned(),
            what: "duration",
            example: "500ms, 5s or 1h30m",
        })
    }
}

/// A whole number followed by one of the units; `None` for other texts, or if it does not fit 64 bits.
fn number_and_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = units.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))?;
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// The sum of whole numbers with a unit each, the largest unit first; `None` for other texts, or if it does not fit 64 bits.
fn millis_of(text: &str) -> Option<u64> {
    let (mut rest, mut sum, mut units) = (text, 0_u64, DURATION_UNITS.iter());
    while !rest.is_empty() {
        let (number, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let unit_end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, others) = behind.split_at(unit_end);
        // Goes on behind the unit before, so that none comes twice.
        let (_, millis) = units.find(|(suffix, _)| *suffix == unit)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*millis)?)?;
        rest = others;
    }
    (!text.is_empty()).then_some(sum)
}

macro_rules! as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

as_text!(ByteSize);
as_text!(Duration);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_with_both_spellings() {
        for (text, bytes) in
            [("1B", 1), ("64MiB", 64 << 20), ("64Mi", 64 << 20), ("2GiB", 2 << 30), ("3KiB", 3072)]
        {
            assert_eq!(text.parse::<ByteSize>().unwrap().get(), bytes, "{text}");
        }
    }

    #[test]
    fn durations_are_read() {
        for (text, millis) in [
            ("250ms", 250),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
            ("0s", 0),
            ("1h30m", 5_400_000),
            ("1h0m0s", 3_600_000),
            ("1d12h", 129_600_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("1m500ms", 60_500),
        ] {
            assert_eq!(text.parse::<Duration>().unwrap().as_millis(), millis, "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in ["", "64", "MiB", "-1MiB", "1.5MiB", "64 MiB", "64mib", "99999999999TiB"] {
            let error = text.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains("64MiB"), "{error}");
        }
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "1w",
            "5 s",
            "1h30",
            "30m1h",
            "1h1h",
            "1.5h",
            "1h 30m",
            "1hm",
            "1h-5m",
            "٣h",
            "18446744073709551615h",
            "213503982334d18446744073709551615ms",
        ] {
            let error = text.parse::<Duration>().unwrap_err().to_string();
            assert!(error.contains("such as 500ms, 5s or 1h30m"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes: u64, millis in 0u64..u64::MAX) {
            prop_assert_eq!(ByteSize::bytes(bytes).to_string().parse::<ByteSize>().unwrap().get(), bytes);
            prop_assert_eq!(Duration::millis(millis).to_string().parse::<Duration>().unwrap().as_millis(), millis);
        }

        #[test]
        fn a_duration_is_the_sum_of_its_parts(days in 0u64..99_999, hours in 0u64..999_999, minutes in 0u64..999_999,
            seconds in 0u64..999_999, millis in 0u64..999_999) {
            let parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"), (millis, "ms")];
            let text = parts.map(|(number, unit)| format!("{number}{unit}")).concat();
            let each = parts.map(|(number, unit)| format!("{number}{unit}").parse::<Duration>().unwrap().as_millis());
            prop_assert_eq!(text.parse::<Duration>().unwrap().as_millis(), each.iter().sum::<u64>());
        }

        #[test]
        fn no_text_panics(text: String) {
            drop(text.parse::<ByteSize>());
            drop(text.parse::<Duration>());
        }
    }
}
