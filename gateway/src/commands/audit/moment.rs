//! The start or end of an audit, as people write it. Pure.

use jiff::Timestamp;
use sluice_gateway_config::Duration;
use std::str::FromStr;

/// An end of the audited range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// An offset, the same in every partition.
    Offset(i64),
    /// The first message that is not older, ms since 1970.
    At(i64),
    /// Like `At`, this many ms before the start of the audit.
    Ago(i64),
}

/// A text that is none of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an offset (such as 1200), a duration before now (such as 90m), or a time (such as 2026-11-21T18:00:00Z)"
)]
pub struct NotAMoment(String);

impl FromStr for Moment {
    type Err = NotAMoment;

    fn from_str(text: &str) -> Result<Self, NotAMoment> {
        let refused = || NotAMoment(text.to_owned());
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().map(Self::Offset).map_err(|_| refused());
        }
        if let Ok(duration) = text.parse::<Duration>() {
            return i64::try_from(duration.as_millis()).map(Self::Ago).map_err(|_| refused());
        }
        text.parse::<Timestamp>().map(|time| Self::At(time.as_millisecond())).map_err(|_| refused())
    }
}

impl Moment {
    /// The moment without reference to the present, given in ms since 1970.
    #[must_use]
    pub fn fixed(self, now_millis: i64) -> Self {
        match self {
            Self::Ago(millis) => Self::At(now_millis.saturating_sub(millis)),
            fixed => fixed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_offset_a_duration_or_a_time() {
        let table = [
            ("0", Moment::Offset(0)),
            ("1200", Moment::Offset(1_200)),
            ("90m", Moment::Ago(5_400_000)),
            ("1d", Moment::Ago(86_400_000)),
            ("0s", Moment::Ago(0)),
            ("1970-01-01T00:00:01.5Z", Moment::At(1_500)),
            ("1970-01-01T01:00:00+01:00", Moment::At(0)),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "-1", "1w", "yesterday", "2026-11-21", "99999999999999999999", "1.5h"] {
            let error = text.parse::<Moment>().unwrap_err().to_string();
            assert!(error.contains("90m"), "{error}");
        }
    }

    #[test]
    fn a_duration_counts_from_now() {
        assert_eq!(Moment::Ago(1_500).fixed(10_000), Moment::At(8_500));
        assert_eq!(Moment::Offset(3).fixed(10_000), Moment::Offset(3));
    }
}
