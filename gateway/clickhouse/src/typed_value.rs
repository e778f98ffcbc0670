//! The value of a path that a `JSON` column declares.
//!
//! Job: writes a value in the form of the declared type, without a tag, or reports that it does not fit. Place in the flow: the encoder
//! calls this for paths with [`crate::json_type::PathRule::Typed`]. Owner: the worker thread that owns the buffer. Limits: the list of
//! types below; [`crate::table::check`] refuses a table that declares a path with another type.
//!
//! | type | accepts |
//! |---|---|
//! | `String` | text |
//! | `Bool` | booleans; the texts `true` and `false` |
//! | `Int8` … `Int64`, `UInt8` … `UInt64` | integers and whole doubles in range; texts of such integers |
//! | `Float64`, `Float32` | doubles, integers that a double holds exactly, texts of numbers; `Float32` rounds |
//! | `DateTime64(p)`, with or without a zone | integers as ns since 1970; texts as RFC 3339, or without a zone in UTC |
//!
//! Each of them may be `Nullable`, and `String` may be `LowCardinality`. `Nullable` puts a byte before the value; `LowCardinality`
//! changes no byte.

use crate::date_time;
use crate::rowbinary::{put_string, put_u8};

/// The types that a declared path may have, as text for errors.
pub const SUPPORTED: &str = "Bool, Int8 to Int64, UInt8 to UInt64, Float32, Float64, String, DateTime64, \
                             each also as Nullable, and LowCardinality(String)";

/// A double represents all integers up to this one.
const EXACT_MAX: u64 = 1 << 53;

/// The type of a declared path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypedValue {
    scalar: Scalar,
    nullable: bool,
    low_cardinality: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalar {
    Text,
    Bool,
    /// An integer of this many bytes.
    Int(usize),
    /// An unsigned integer of this many bytes.
    UInt(usize),
    Float32,
    Float64,
    /// This many digits of a second's fraction.
    DateTime64(u32),
}

impl TypedValue {
    /// Parses the text of a type; `None` if it is not in the list.
    pub fn parse(type_name: &str) -> Option<Self> {
        let inside = |outer: &str| type_name.strip_prefix(outer)?.strip_suffix(')');
        if let Some(inner) = inside("LowCardinality(") {
            let typed = Self::parse(inner).filter(|typed| typed.scalar == Scalar::Text)?;
            return Some(Self { low_cardinality: true, ..typed });
        }
        if let Some(inner) = inside("Nullable(") {
            return Some(Self { scalar: Scalar::parse(inner)?, nullable: true, low_cardinality: false });
        }
        Some(Self { scalar: Scalar::parse(type_name)?, nullable: false, low_cardinality: false })
    }

    /// Whether a column stores its values in a dictionary; the bytes in a row are the same.
    #[cfg(feature = "native")]
    pub(crate) fn is_low_cardinality(self) -> bool {
        self.low_cardinality
    }

    /// Whether it is text, which accepts every value in textual form.
    #[inline]
    pub fn is_text(self) -> bool {
        self.scalar == Scalar::Text
    }

    /// Whether a flag byte precedes the value, and the bytes of the value; `None` for text, which has its own length.
    pub(crate) fn shape(self) -> (bool, Option<usize>) {
        let bytes = match self.scalar {
            Scalar::Text => None,
            Scalar::Bool => Some(1),
            Scalar::Int(bytes) | Scalar::UInt(bytes) => Some(bytes),
            Scalar::Float32 => Some(4),
            Scalar::Float64 | Scalar::DateTime64(_) => Some(8),
        };
        (self.nullable, bytes)
    }

    /// Appends text, if the type accepts it.
    #[must_use = "a value that does not fit has to go elsewhere"]
    pub fn put_text(self, out: &mut Vec<u8>, text: &[u8]) -> bool {
        match self.scalar {
            Scalar::Text => {
                self.put_presence(out);
                put_string(out, text);
                true
            }
            Scalar::Bool => match text {
                b"true" => self.put_bool(out, true),
                b"false" => self.put_bool(out, false),
                _ => false,
            },
            Scalar::Int(_) | Scalar::UInt(_) => self.put_wide(out, parsed(text)),
            Scalar::Float32 | Scalar::Float64 => {
                self.put_float(out, parsed(text).filter(|n| is_what_it_says(*n, text)))
            }
            Scalar::DateTime64(digits) => self.put_time(out, digits, date_time::unix_nanos(text)),
        }
    }

    /// Appends a boolean, if the type accepts it.
    #[must_use = "a value that does not fit has to go elsewhere"]
    pub fn put_bool(self, out: &mut Vec<u8>, value: bool) -> bool {
        let fits = self.scalar == Scalar::Bool;
        if fits {
            self.put_presence(out);
            put_u8(out, u8::from(value));
        }
        fits
    }

    /// Appends an integer, if the type accepts it.
    #[must_use = "a value that does not fit has to go elsewhere"]
    pub fn put_int(self, out: &mut Vec<u8>, value: i64) -> bool {
        match self.scalar {
            Scalar::Int(_) | Scalar::UInt(_) => self.put_wide(out, Some(value.into())),
            Scalar::Float32 | Scalar::Float64 => {
                #[expect(clippy::cast_precision_loss, reason = "what would lose digits is not taken")]
                let double = (value.unsigned_abs() <= EXACT_MAX).then_some(value as f64);
                self.put_float(out, double)
            }
            Scalar::DateTime64(digits) => self.put_time(out, digits, Some(value)),
            Scalar::Text | Scalar::Bool => false,
        }
    }

    /// Appends a double, if the type accepts it.
    #[must_use = "a value that does not fit has to go elsewhere"]
    pub fn put_double(self, out: &mut Vec<u8>, value: f64) -> bool {
        match self.scalar {
            Scalar::Float32 | Scalar::Float64 => self.put_float(out, Some(value)),
            Scalar::Int(_) | Scalar::UInt(_) => self.put_wide(out, whole(value)),
            Scalar::Text | Scalar::Bool | Scalar::DateTime64(_) => false,
        }
    }

    fn put_wide(self, out: &mut Vec<u8>, value: Option<i128>) -> bool {
        let Some(value) = value else { return false };
        let (bytes, least, most) = match self.scalar {
            Scalar::Int(bytes) => (bytes, -(1_i128 << (8 * bytes - 1)), (1_i128 << (8 * bytes - 1)) - 1),
            Scalar::UInt(bytes) => (bytes, 0, (1_i128 << (8 * bytes)) - 1),
            _ => return false,
        };
        let fits = (least..=most).contains(&value);
        if fits {
            self.put_presence(out);
            out.extend_from_slice(&value.to_le_bytes()[..bytes]);
        }
        fits
    }

    fn put_float(self, out: &mut Vec<u8>, value: Option<f64>) -> bool {
        let Some(value) = value else { return false };
        if self.scalar == Scalar::Float64 {
            self.put_presence(out);
            out.extend_from_slice(&value.to_le_bytes());
            return true;
        }
        #[expect(clippy::cast_possible_truncation, reason = "the column's owner chose the shorter type")]
        let short = value as f32;
        // A finite number that becomes infinite would be another number.
        let fits = short.is_finite() || !value.is_finite();
        if fits {
            self.put_presence(out);
            out.extend_from_slice(&short.to_le_bytes());
        }
        fits
    }

    fn put_time(self, out: &mut Vec<u8>, digits: u32, nanos: Option<i64>) -> bool {
        let Some(nanos) = nanos.filter(|nanos| *nanos >= date_time::NANOS_MIN) else { return false };
        self.put_presence(out);
        let unit = 10_i64.pow(9 - digits);
        out.extend_from_slice(&nanos.div_euclid(unit).to_le_bytes());
        true
    }

    fn put_presence(self, out: &mut Vec<u8>) {
        if self.nullable {
            put_u8(out, 0);
        }
    }
}

impl Scalar {
    fn parse(type_name: &str) -> Option<Self> {
        Some(match type_name {
            "String" => Self::Text,
            "Bool" => Self::Bool,
            "Int8" => Self::Int(1),
            "Int16" => Self::Int(2),
            "Int32" => Self::Int(4),
            "Int64" => Self::Int(8),
            "UInt8" => Self::UInt(1),
            "UInt16" => Self::UInt(2),
            "UInt32" => Self::UInt(4),
            "UInt64" => Self::UInt(8),
            "Float32" => Self::Float32,
            "Float64" => Self::Float64,
            other => {
                let arguments = other.strip_prefix("DateTime64(")?.strip_suffix(')')?;
                let digits = arguments.split(',').next()?.parse().ok()?;
                return (digits <= 9).then_some(Self::DateTime64(digits));
            }
        })
    }
}

fn parsed<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Whether the double equals the number in the text: numbers beyond the range of a double are parsed as infinite.
fn is_what_it_says(double: f64, text: &[u8]) -> bool {
    double.is_finite() || !text.iter().any(u8::is_ascii_digit)
}

/// The integer value of a double without a fraction, if 64 bits may hold it.
fn whole(value: f64) -> Option<i128> {
    // Beyond 2^64 nothing fits any type of the list.
    let is_whole = value.fract() == 0.0 && value.abs() <= 18_446_744_073_709_551_616.0;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^64")]
    is_whole.then_some(value as i128)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(type_name: &str) -> TypedValue {
        TypedValue::parse(type_name).unwrap()
    }

    fn bytes(write: impl FnOnce(&mut Vec<u8>) -> bool) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let fits = write(&mut out);
        assert!(fits || out.is_empty(), "what does not fit leaves nothing behind");
        fits.then_some(out)
    }

    #[test]
    fn only_the_types_of_the_list_are_read() {
        for text in [
            "LowCardinality(String)",
            "Nullable(Int8)",
            "LowCardinality(Nullable(String))",
            "DateTime64(0, 'UTC')",
        ] {
            assert!(TypedValue::parse(text).is_some(), "{text}");
        }
        for text in [
            "Array(String)",
            "LowCardinality(Int64)",
            "Nullable(Nullable(Bool))",
            "Date",
            "Int128",
            "DateTime64(10)",
            "",
        ] {
            assert_eq!(TypedValue::parse(text), None, "{text}");
        }
    }

    #[test]
    fn nullable_puts_a_byte_before_the_value_and_low_cardinality_none() {
        let hi = |type_name| bytes(|out| typed(type_name).put_text(out, b"hi"));
        assert_eq!(hi("String"), Some(b"\x02hi".to_vec()));
        assert_eq!(hi("LowCardinality(String)"), Some(b"\x02hi".to_vec()));
        assert_eq!(hi("Nullable(String)"), Some(b"\0\x02hi".to_vec()));
        assert_eq!(hi("LowCardinality(Nullable(String))"), Some(b"\0\x02hi".to_vec()));
        assert_eq!(bytes(|out| typed("Nullable(Int16)").put_int(out, -2)), Some(vec![0, 0xfe, 0xff]));
    }

    #[test]
    fn integers_fit_by_range() {
        for (type_name, value, fits) in [
            ("Int8", 127, true),
            ("Int8", 128, false),
            ("Int8", -128, true),
            ("UInt8", 255, true),
            ("UInt8", -1, false),
            ("UInt64", i64::MAX, true),
            ("Int64", i64::MIN, true),
            ("Float64", 1 << 53, true),
            ("Float64", (1 << 53) + 1, false),
            ("Bool", 1, false),
        ] {
            assert_eq!(
                bytes(|out| typed(type_name).put_int(out, value)).is_some(),
                fits,
                "{type_name} {value}"
            );
        }
    }

    #[test]
    fn texts_fit_when_they_are_the_value_in_writing() {
        for (type_name, text, expected) in [
            ("Int64", "42", Some(42_i64.to_le_bytes().to_vec())),
            ("Int64", "-7", Some((-7_i64).to_le_bytes().to_vec())),
            ("Int64", "4.0", None),
            ("Int64", "", None),
            ("UInt64", "18446744073709551615", Some(u64::MAX.to_le_bytes().to_vec())),
            ("UInt64", "18446744073709551616", None),
            ("Float64", "0.5", Some(0.5_f64.to_le_bytes().to_vec())),
            ("Float64", "half", None),
            ("Float64", "1e999", None),
            ("Float64", "-Infinity", Some(f64::NEG_INFINITY.to_le_bytes().to_vec())),
            ("Bool", "true", Some(vec![1])),
            ("Bool", "1", None),
            (
                "DateTime64(3)",
                "2023-11-14T22:13:20.123999Z",
                Some(1_700_000_000_123_i64.to_le_bytes().to_vec()),
            ),
            ("DateTime64(3)", "yesterday", None),
        ] {
            assert_eq!(
                bytes(|out| typed(type_name).put_text(out, text.as_bytes())),
                expected,
                "{type_name} {text}"
            );
        }
        assert_eq!(bytes(|out| typed("Int64").put_text(out, b"\xff")), None);
    }

    #[test]
    fn doubles_fit_whole_numbers_and_floats() {
        let double = |type_name, value| bytes(|out| typed(type_name).put_double(out, value));
        assert_eq!(double("Int64", 3.0), Some(3_i64.to_le_bytes().to_vec()));
        assert_eq!(double("Int64", 3.5), None);
        assert_eq!(double("Int64", f64::NAN), None);
        assert_eq!(double("Int64", 1e300), None);
        assert_eq!(double("UInt64", 18_446_744_073_709_551_616.0), None);
        assert_eq!(double("Float32", 0.1), Some(0.1_f32.to_le_bytes().to_vec()));
        assert_eq!(double("Float32", 1e300), None);
        assert_eq!(double("Float32", f64::INFINITY), Some(f32::INFINITY.to_le_bytes().to_vec()));
        assert!(double("Float64", f64::NAN).is_some());
        assert_eq!(double("Bool", 1.0), None);
        assert_eq!(double("DateTime64(9)", 1.0), None);
    }

    #[test]
    fn times_are_scaled_to_the_digits_of_the_type() {
        let time = |type_name, nanos| bytes(|out| typed(type_name).put_int(out, nanos));
        assert_eq!(time("DateTime64(9)", 5), Some(5_i64.to_le_bytes().to_vec()));
        assert_eq!(time("DateTime64(6)", 5_999), Some(5_i64.to_le_bytes().to_vec()));
        assert_eq!(time("DateTime64(0)", -1), Some((-1_i64).to_le_bytes().to_vec()));
        assert_eq!(time("DateTime64(9)", i64::MIN), None);
    }
}
