//! Numbers: from JSON numbers or strings to the types of the fields.

use serde::de::IgnoredAny;

/// A number from `serde_json`: integers of up to 64 bits exactly, all others as a double.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Unsigned(u64),
    Negative(i64),
    Float(f64),
}

/// 2^63: the smallest double that does not fit an `int64`.
const INT64_END: f64 = 9_223_372_036_854_775_808.0;

impl Number {
    /// A number in a string; `None` if it does not follow JSON's grammar (leading zeros are allowed).
    pub(crate) fn quoted(text: &str) -> Option<Self> {
        let (first, last) = (text.bytes().next()?, text.bytes().next_back()?);
        // Rust accepts a plus, serde_json accepts blanks; neither is part of a number.
        if !(first == b'-' || first.is_ascii_digit()) || !last.is_ascii_digit() {
            return None;
        }
        if let Ok(number) = text.parse() {
            return Some(Self::Unsigned(number));
        }
        if let Ok(number) = text.parse() {
            return Some(Self::Negative(number));
        }
        serde_json::from_str(text).ok().map(Self::Float)
    }

    /// As a time; `None` if it is not whole. What does not fit becomes the nearest that does, 0 or `u64::MAX`: the clock of its producer is
    /// wrong, which costs the row this time and not the whole message.
    pub(crate) fn time(self) -> Option<u64> {
        match self {
            Self::Unsigned(number) => Some(number),
            Self::Negative(_) => Some(0),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole, and the nearest is what is wanted"
            )]
            Self::Float(number) => (number.fract() == 0.0).then_some(number as u64),
        }
    }

    /// As an `int64`; `None` if it does not fit or is not whole.
    pub(crate) fn signed(self) -> Option<i64> {
        match self {
            Self::Unsigned(number) => number.try_into().ok(),
            Self::Negative(number) => Some(number),
            Self::Float(number) => {
                let fits = number.fract() == 0.0 && (-INT64_END..INT64_END).contains(&number);
                #[expect(clippy::cast_possible_truncation, reason = "checked: whole and in range")]
                fits.then_some(number as i64)
            }
        }
    }

    /// As a `double`: the nearest one.
    #[expect(clippy::cast_precision_loss, reason = "the nearest double is what is wanted")]
    pub(crate) fn double(self) -> f64 {
        match self {
            Self::Unsigned(number) => number as f64,
            Self::Negative(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

/// Whether this is a number by JSON's grammar, but beyond the range of a double, such as `1e400`.
pub(crate) fn is_out_of_range(text: &str) -> bool {
    // What is ignored is checked against the grammar alone.
    serde_json::from_str::<IgnoredAny>(text).is_ok() && text.parse().is_ok_and(f64::is_infinite)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2^64: the smallest double that does not fit a time.
    const UINT64_END: f64 = 18_446_744_073_709_551_616.0;

    #[test]
    fn strings_are_numbers_by_the_grammar_of_json() {
        let table: &[(&str, Option<Number>)] = &[
            ("0", Some(Number::Unsigned(0))),
            ("007", Some(Number::Unsigned(7))),
            ("18446744073709551615", Some(Number::Unsigned(u64::MAX))),
            ("18446744073709551616", Some(Number::Float(UINT64_END))),
            ("-9223372036854775808", Some(Number::Negative(i64::MIN))),
            ("1e3", Some(Number::Float(1000.0))),
            ("-1.5E+1", Some(Number::Float(-15.0))),
        ];
        for (text, number) in table {
            assert_eq!(Number::quoted(text), *number, "{text}");
        }
        for text in
            ["", "-", "+1", " 1", "1 ", "0x10", "1.", ".5", "1e", "nan", "inf", "1_000", "--1", "1e999"]
        {
            assert_eq!(Number::quoted(text), None, "{text}");
        }
    }

    #[test]
    fn integers_fit_or_do_not() {
        let float = Number::Float;
        assert_eq!(Number::Unsigned(u64::MAX).time(), Some(u64::MAX));
        assert_eq!(Number::Negative(-1).time(), Some(0));
        assert_eq!(float(1e3).time(), Some(1000));
        assert_eq!(float(-0.0).time(), Some(0));
        assert_eq!(float(-1e300).time(), Some(0));
        assert_eq!(float(0.5).time(), None);
        assert_eq!(float(-0.5).time(), None);
        assert_eq!(float(UINT64_END).time(), Some(u64::MAX));
        assert_eq!(float(1e300).time(), Some(u64::MAX));
        assert_eq!(Number::Unsigned(1 << 63).signed(), None);
        assert_eq!(Number::Negative(i64::MIN).signed(), Some(i64::MIN));
        assert_eq!(float(-INT64_END).signed(), Some(i64::MIN));
        assert_eq!(float(INT64_END).signed(), None);
        assert_eq!(float(f64::NAN).signed(), None);
        assert_eq!(float(f64::INFINITY).time(), None);
        assert_eq!(float(f64::NAN).time(), None);
    }

    #[test]
    fn numbers_that_no_double_holds_are_numbers_all_the_same() {
        for text in ["1e400", "-1e400", "1.5E+999", &"9".repeat(400)] {
            assert!(is_out_of_range(text), "{text}");
        }
        for text in ["", "1e308", "1e-400", "inf", "-inf", "1.e400", "01e400", " 1e400", "1e400x", "1e"] {
            assert!(!is_out_of_range(text), "{text}");
        }
    }
}
