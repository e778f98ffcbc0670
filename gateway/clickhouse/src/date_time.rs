//! Textual times, for declared paths of type `DateTime64`.
//!
//! Job: RFC 3339 text to nanoseconds since 1970. Place in the flow: [`crate::typed_value`]. Pure. Limits: years 1900 to
//! 2262-04-11, which is what `DateTime64(9)` and an `i64` of nanoseconds hold.
//!
//! ```text
//! 2026-11-21T10:00:00[.123456789][Z|+01:00]      also accepted: t and z, a space instead of T, and no zone (then UTC)
//! ```

/// 1900-01-01 00:00:00 UTC, the earliest time that the server prints unchanged (ClickHouse documentation, `DateTime64`).
pub const NANOS_MIN: i64 = -2_208_988_800 * 1_000_000_000;

/// Digits of a second that are kept; further ones are cut.
const FRACTION_DIGITS: usize = 9;

/// Nanoseconds since 1970; `None` if the text is not a time or is out of range.
pub fn unix_nanos(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let (b'T' | b't' | b' ', rest) = rest.split_first()? else { return None };
    let (clock, rest) = rest.split_at_checked(8)?;
    let days = days(numbers(date, b'-')?)?;
    let seconds_of_day = seconds_of_day(numbers(clock, b':')?)?;
    let (nanos, rest) = fraction(rest)?;
    let seconds = days * 86_400 + seconds_of_day - offset_seconds(rest)?;
    let nanos = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    (nanos >= NANOS_MIN).then_some(nanos)
}

/// Three numbers; the first may have any length, the others have two digits.
fn numbers(text: &[u8], separator: u8) -> Option<[i64; 3]> {
    let first = text.len().checked_sub(6)?;
    let (a, b, c) = (&text[..first], &text[first + 1..first + 3], &text[first + 4..]);
    let separated = text[first] == separator && text[first + 3] == separator;
    if separated { Some([number(a)?, number(b)?, number(c)?]) } else { None }
}

/// A number of one to nine digits.
fn number(digits: &[u8]) -> Option<i64> {
    let valid =
        !digits.is_empty() && digits.len() <= FRACTION_DIGITS && digits.iter().all(u8::is_ascii_digit);
    valid.then(|| digits.iter().fold(0, |n, digit| n * 10 + i64::from(digit - b'0')))
}

/// Days from 1970-01-01 in the Gregorian calendar.
fn days([year, month, day]: [i64; 3]) -> Option<i64> {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let months = usize::try_from(month).ok().filter(|month| (1..=12).contains(month))?;
    if !(1..=lengths[months - 1]).contains(&day) || year < 1 {
        return None;
    }
    let before = year - 1;
    let days_before_year = before * 365 + before / 4 - before / 100 + before / 400;
    // 719,162 days lie between 0001-01-01 and 1970-01-01.
    Some(days_before_year - 719_162 + lengths[..months - 1].iter().sum::<i64>() + day - 1)
}

fn seconds_of_day([hour, minute, second]: [i64; 3]) -> Option<i64> {
    // A leap second has the number 60; it becomes the first second of the next minute.
    let valid = hour < 24 && minute < 60 && second <= 60;
    valid.then_some(hour * 3_600 + minute * 60 + second)
}

/// Nanoseconds from `.123`, and the rest of the text.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(rest) = text.strip_prefix(b".") else { return Some((0, text)) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let kept = digits.min(FRACTION_DIGITS);
    let missing = u32::try_from(FRACTION_DIGITS - kept).ok()?;
    Some((number(&rest[..kept])? * 10_i64.pow(missing), &rest[digits..]))
}

fn offset_seconds(text: &[u8]) -> Option<i64> {
    let (sign, rest) = match text {
        [] | [b'Z' | b'z'] => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let &[h1, h2, b':', m1, m2] = rest else { return None };
    let (hours, minutes) = (number(&[h1, h2])?, number(&[m1, m2])?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_nanoseconds() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2023-11-14T22:13:20Z", Some(1_700_000_000_000_000_000)),
            ("2023-11-14 22:13:20.5", Some(1_700_000_000_500_000_000)),
            ("2023-11-14t22:13:20z", Some(1_700_000_000_000_000_000)),
            ("2023-11-14_22:13:20Z", None),
            ("2023-11-14T23:13:20.1234567891+01:00", Some(1_700_000_000_123_456_789)),
            ("2023-11-14T12:43:20-09:30", Some(1_700_000_000_000_000_000)),
            ("1969-12-31T23:59:59.999999999Z", Some(-1)),
            ("2000-02-29T00:00:00Z", Some(951_782_400_000_000_000)),
            ("1900-01-01T00:00:00Z", Some(NANOS_MIN)),
            ("1899-12-31T23:59:59Z", None),
            ("2262-04-11T23:47:17Z", None),
            ("2023-02-29T00:00:00Z", None),
            ("2023-13-01T00:00:00Z", None),
            ("2023-11-14T24:00:00Z", None),
            ("2023-11-14T22:13:20X", None),
            ("2023-11-14T22:13:20.Z", None),
            ("2023-11-14T22:13:20+1:00", None),
            ("2023-11-14", None),
            ("+023-11-14T22:13:20Z", None),
            ("", None),
        ] {
            assert_eq!(unix_nanos(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(unix_nanos("2023-11-1é22:13:20Z".as_bytes()), None);
    }
}
