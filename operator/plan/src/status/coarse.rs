//! Numbers that move all the time, in steps: what stands in the status stays until the number is clearly another one.
//!
//! A pipeline at work has another lag and another rate at each look. If the status had them as they are, it would be written each time, and
//! each write goes to everything that watches the pipeline. So a number that is written stays:
//!
//! | number | until |
//! | --- | --- |
//! | messages and blocks that wait, and seconds of them | it is half or twice what is written |
//! | messages a second: arrivals, capacity; parts of a table | it differs by a fifth |
//! | nothing that waits | there is something: 0 is exact |
//!
//! A number that is written anew is rounded to two significant digits. Decisions have the exact numbers; what an operator continues from after
//! a restart has steps of a twentieth (`scale/remembered.rs`). Metrics and `kubectl sluice lag` have the numbers as they are.

/// A rate that differs by less than this share is the same one.
const RATE_SHARE: f64 = 0.2;

/// Below four messages a second, rounding alone makes a larger share.
const RATE_LEAST: f64 = 0.75;

/// Whether a number as written and the number now are close enough to keep the written one.
type IsSame = fn(f64, f64) -> bool;

/// What is said behind a measured number in a reason, and how far the number may move.
const MEASURED: [(&str, IsSame); 8] = [
    (" messages/s", is_same_rate),
    (" per gateway", is_same_rate),
    (" % of the workers' time", is_same_rate),
    (" % of the gateways", is_same_rate),
    (" rows are in flight", is_same_backlog),
    (" parts,", is_same_rate),
    (" s)", is_same_backlog),
    (" (", is_same_backlog),
];

/// How a reason tells of a lag, which it does from one second on.
const LAG_BEGINS: &str = " and a lag of ";
const LAG_ENDS: &str = " s)";

/// Messages or blocks that wait, for the status that has `written` now.
pub(super) fn backlog(written: Option<i64>, now: i64) -> i64 {
    let is_same = |written: i64| written == now || now > written / 2 && now < written.saturating_mul(2);
    written.filter(|written| is_same(*written)).unwrap_or_else(|| rounded(now))
}

/// Seconds of a backlog.
pub(super) fn seconds(written: Option<i64>, now: f64) -> i64 {
    stays(written, now, is_same_backlog)
}

/// Messages a second.
pub(super) fn rate(written: Option<i64>, now: f64) -> i64 {
    stays(written, now, is_same_rate)
}

/// A reason. The written one stays while only its measured numbers have moved, each by little.
pub(super) fn reason(written: &str, now: String) -> String {
    let is_same = is_same_reason(written, &now)
        || without_short_lag(written).is_some_and(|written| is_same_reason(&written, &now))
        || without_short_lag(&now).is_some_and(|now| is_same_reason(written, &now));
    if is_same { written.to_owned() } else { now }
}

/// Two significant digits of a number that is not negative: 1,234 is 1,200.
pub(super) fn rounded(number: i64) -> i64 {
    let mut unit = 1;
    while number / unit >= 100 {
        unit *= 10;
    }
    number / unit * unit
}

/// The nearest whole number, in two significant digits.
#[expect(clippy::cast_possible_truncation, reason = "a float is cut off at the bounds of the integer")]
pub(super) fn whole(number: f64) -> i64 {
    rounded(number.round() as i64)
}

#[expect(clippy::cast_precision_loss, reason = "what is written has two significant digits")]
fn stays(written: Option<i64>, now: f64, is_same: IsSame) -> i64 {
    written.filter(|written| is_same(*written as f64, now)).unwrap_or_else(|| whole(now))
}

fn is_same_rate(written: f64, now: f64) -> bool {
    (now - written).abs() <= (RATE_SHARE * written).max(RATE_LEAST)
}

/// The quarter is what rounding to whole numbers may have added to the least of them.
fn is_same_backlog(written: f64, now: f64) -> bool {
    if written <= 0.0 { now < 1.0 } else { now > written / 2.0 - 0.25 && now < written * 2.0 }
}

/// Whether two reasons differ only in measured numbers, and those not far.
fn is_same_reason(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one, other);
    loop {
        match (measured(one), measured(other)) {
            (None, None) => return one == other,
            (Some(a), Some(b)) => {
                let is_same = a.before == b.before && a.unit == b.unit && (a.is_same)(a.number, b.number);
                if !is_same {
                    return false;
                }
                (one, other) = (a.behind, b.behind);
            }
            _ => return false,
        }
    }
}

/// The first measured number of a text.
struct Measured<'a> {
    before: &'a str,
    number: f64,
    unit: &'static str,
    is_same: IsSame,
    behind: &'a str,
}

fn measured(text: &str) -> Option<Measured<'_>> {
    let mut from = 0;
    while let Some(begin) = text[from..].find(|c: char| c.is_ascii_digit()).map(|at| from + at) {
        let digits = text[begin..].find(|c: char| !c.is_ascii_digit() && c != '.');
        let end = digits.map_or(text.len(), |length| begin + length);
        let (factor, unit_at) = match text.get(end..end + 2) {
            Some(" k") => (1e3, end + 2),
            Some(" M") => (1e6, end + 2),
            _ => (1.0, end),
        };
        let behind = &text[unit_at..];
        let unit = MEASURED.iter().find(|(unit, _)| behind.starts_with(unit));
        if let (Some((unit, is_same)), Ok(number)) = (unit, text[begin..end].parse::<f64>()) {
            let before = &text[..begin];
            return Some(Measured { before, number: number * factor, unit, is_same: *is_same, behind });
        }
        from = end;
    }
    None
}

/// The reason without its lag, if that is of a second: a little less, and it would not be told.
fn without_short_lag(text: &str) -> Option<String> {
    let begin = text.find(LAG_BEGINS)?;
    let end = begin + text[begin..].find(LAG_ENDS)? + LAG_ENDS.len();
    text[begin..end].ends_with("(1 s)").then(|| format!("{}{}", &text[..begin], &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_rounded_to_two_significant_digits() {
        for (number, expected) in [
            (0, 0),
            (7, 7),
            (99, 99),
            (100, 100),
            (123, 120),
            (98_765, 98_000),
            (i64::MAX, 9_200_000_000_000_000_000),
        ] {
            assert_eq!(rounded(number), expected);
        }
    }

    #[test]
    fn a_backlog_is_written_anew_when_it_is_half_or_twice_and_when_it_begins_or_ends() {
        for (written, now, expected) in [
            (None, 1_234, 1_200),
            (Some(1_200), 2_399, 1_200),
            (Some(1_200), 2_400, 2_400),
            (Some(1_200), 601, 1_200),
            (Some(1_200), 600, 600),
            (Some(0), 0, 0),
            (Some(0), 1, 1),
            (Some(1), 1, 1),
            (Some(1), 0, 0),
            (Some(1), 2, 2),
            (Some(i64::MAX), i64::MAX - 1, i64::MAX),
        ] {
            assert_eq!(backlog(written, now), expected, "{written:?} {now}");
        }
        assert_eq!(
            [(None, 0.0), (Some(60), 119.0), (Some(60), 120.0)].map(|(w, n)| seconds(w, n)),
            [0, 60, 120]
        );
        assert_eq!(
            [(Some(10_000), 12_000.0), (Some(10_000), 12_001.0)].map(|(w, n)| rate(w, n)),
            [10_000, 12_000]
        );
        assert_eq!((rate(Some(1), 0.0), rate(Some(10_000), 0.0)), (0, 0), "nothing arrives any more");
    }

    #[test]
    fn a_reason_stays_while_only_what_was_measured_moves() {
        let written =
            "12.3 k messages/s at 76 % of 5.0 k per gateway and a lag of 41.0 k (30 s) need 4; stays at 4";
        for (now, is_same) in [
            (written, true),
            (
                "13.1 k messages/s at 76 % of 5.4 k per gateway and a lag of 60.2 k (45 s) need 4; stays at 4",
                true,
            ),
            (
                "15.0 k messages/s at 76 % of 5.0 k per gateway and a lag of 41.0 k (30 s) need 4; stays at 4",
                false,
            ),
            (
                "12.3 k messages/s at 76 % of 5.0 k per gateway and a lag of 99.0 k (80 s) need 4; stays at 4",
                false,
            ),
            (
                "12.3 k messages/s at 76 % of 5.0 k per gateway and a lag of 41.0 k (30 s) need 5; stays at 4",
                false,
            ),
            (
                "12.3 k messages/s at 76 % of 5.0 k per gateway and a lag of 41.0 k (30 s) need 4; from 4 to 5",
                false,
            ),
            (
                "12.3 k messages/s at 70 % of 5.0 k per gateway and a lag of 41.0 k (30 s) need 4; stays at 4",
                false,
            ),
            ("12.3 k messages/s at 76 % of 5.0 k per gateway need 4; stays at 4", false),
        ] {
            assert_eq!(reason(written, now.to_owned()) == written, is_same || now == written, "{now}");
        }
        let merges = |parts| {
            format!("a partition of the table has {parts} parts, and INSERTs are delayed from 1000 on")
        };
        assert_eq!(reason(&merges(600), merges(700)), merges(600));
        assert_eq!(reason(&merges(600), merges(740)), merges(740));
        let (calm, short) = ("90 messages/s need 1", "90 messages/s and a lag of 91 (1 s) need 1");
        assert_eq!((reason(calm, short.into()).as_str(), reason(short, calm.into()).as_str()), (calm, short));
        for exact in
            ["stays at 2: the consumer group is rebalancing", "; PartitionStuck: a/7 at 5", "é 7", "7", ""]
        {
            assert_eq!(reason(exact, exact.replace('7', "8")), exact.replace('7', "8"));
        }
    }

    proptest! {
        #[test]
        fn a_small_change_of_what_is_written_is_not_written(number in 0u32..u32::MAX, share in -0.05f64..0.05) {
            let exact = i64::from(number);
            let moved = f64::from(number) * (1.0 + share);
            #[expect(clippy::cast_possible_truncation, reason = "far below the bounds")]
            let moved_count = moved.trunc() as i64;
            prop_assert_eq!(backlog(Some(backlog(None, exact)), moved_count.max(exact.min(1))), backlog(None, exact));
        }

        #[test]
        fn nor_of_rates_and_seconds(number in 0.0f64..1e9, share in -0.05f64..0.05) {
            let moved = number * (1.0 + share);
            prop_assert_eq!(rate(Some(rate(None, number)), moved), rate(None, number));
            prop_assert_eq!(seconds(Some(seconds(None, number)), moved), seconds(None, number));
        }

        /// However a number wanders, each time that it is written it has moved by 8 % at least: a fifth, but for the rounding of what is
        /// written.
        #[test]
        fn what_wanders_is_written_seldom(steps in proptest::collection::vec(-0.05f64..0.05, 1..200)) {
            let (mut number, mut written, mut writes) = (1e6, rate(None, 1e6), 0_u32);
            for step in &steps {
                number *= 1.0 + step;
                let next = rate(Some(written), number);
                writes += u32::from(next != written);
                written = next;
            }
            let all: f64 = steps.iter().map(|step| (1.0 + step).ln().abs()).sum();
            prop_assert!(f64::from(writes) <= all / 1.08f64.ln() + 1.0, "{} writes for {}", writes, all);
        }

        #[test]
        fn no_text_panics(one: String, other: String) {
            let _ = reason(&one, other);
        }
    }
}
