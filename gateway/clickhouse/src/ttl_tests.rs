//! Rules as ClickHouse 26.7 prints them.

use super::*;

fn ttl(expression: &str) -> RowTtl {
    RowTtl::in_engine(&format!("MergeTree ORDER BY a TTL {expression} SETTINGS x = 1"))
}

fn days(days: u64) -> Duration {
    Duration::from_hours(24 * days)
}

#[test]
fn an_age_from_the_timestamp_is_read() {
    let of = |number| RowTtl::of_age(days(number));
    assert_eq!(ttl("toDateTime64(Timestamp, 0) + toIntervalSecond(259200)"), of(3));
    assert_eq!(ttl("toDateTime64(Timestamp, 0) + toIntervalDay(3)"), of(3));
    assert_eq!(ttl("toDateTime64(Timestamp, 0) + toIntervalDay(36500)"), of(36_500));
    assert_eq!(RowTtl::in_engine("MergeTree ORDER BY a TTL Timestamp + toIntervalWeek(1)"), of(7));
    assert_eq!(RowTtl::in_engine("MergeTree ORDER BY a SETTINGS x = 1"), RowTtl::default());
    assert!(of(3).is_only(days(3)) && !of(3).is_only(days(4)) && !RowTtl::default().is_only(days(3)));
}

#[test]
fn an_age_of_32_bits_is_told_apart() {
    let short = ttl("toDateTime(Timestamp) + toIntervalHour(72)");
    assert_eq!(short, RowTtl::of_age_in_32_bits(days(3)));
    assert_eq!((short.age(), short.age_in_32_bits()), (None, Some(Duration::from_hours(72))));
    assert!(short.wrapped().unwrap().contains("after 2106-02-07"), "{short:?}");
    assert!(!short.is_only(days(3)));
    // With 28,900 days, rows of today are kept until 2105; 29,000 days are too many.
    for (age, deletes_all) in [(28_900, false), (29_000, true), (36_500, true)] {
        let long = ttl(&format!("toDateTime(Timestamp) + toIntervalDay({age})"));
        assert_eq!(long, RowTtl::of_age_in_32_bits(days(age)));
        assert_eq!(long.wrapped().unwrap().contains("every new row"), deletes_all, "{long:?}");
    }
    assert_eq!(ttl("Timestamp + toIntervalDay(36500)").wrapped(), None);
    assert_eq!(RowTtl::default().wrapped(), None);
}

#[test]
fn other_rules_are_kept_as_they_are() {
    for other in [
        // Rows of the afternoon expire on arrival.
        "toDate(Timestamp) + toIntervalHour(12)",
        // More than 32 bits of seconds.
        "toDateTime(Timestamp) + toIntervalDay(50000)",
        // Beyond 2262, where DateTime64(9) ends.
        "Timestamp + toIntervalDay(100000)",
        "toDateTime(Timestamp, 'UTC') + toIntervalSecond(2505600000)",
        "Timestamp + toIntervalDay(3) WHERE a = 1",
        "Timestamp + toIntervalDay(3) GROUP BY a, toDate(Timestamp) SET x = max(x), `y, z` = any(y)",
        "Other + toIntervalDay(3)",
        "if(a, b, c)",
    ] {
        assert_eq!(ttl(other), RowTtl::of_other(other), "{other}");
    }
}

#[test]
fn every_rule_that_deletes_rows_counts_in_any_order() {
    let (moves, deletes) = ("Timestamp + toIntervalDay(1) TO VOLUME 'cold'", "Timestamp + toIntervalDay(2)");
    assert_eq!(ttl(moves), RowTtl::default());
    assert_eq!(ttl(&format!("{moves}, {deletes}")), RowTtl::of_age(days(2)));
    assert_eq!(ttl(&format!("{deletes}, Timestamp + toIntervalDay(9)")), RowTtl::of_age(days(2)));
    let (first, second) = (
        "Timestamp + toIntervalDay(1) WHERE SpanName = 'old2'",
        "toDateTime(Timestamp) + toIntervalDay(29000) WHERE a",
    );
    let both = RowTtl { others: vec![first.into(), second.into()], ..RowTtl::of_age(days(2)) };
    let compresses = "Timestamp + toIntervalDay(1) RECOMPRESS CODEC(ZSTD(17))";
    for text in [
        format!("{deletes}, {first}, {second}"),
        format!("{first}, {compresses}, {deletes}, {second}"),
        format!("{first}, {second}, {moves}, {deletes}"),
    ] {
        assert_eq!(ttl(&text), both, "{text}");
        assert!(!ttl(&text).is_only(days(2)));
    }
    let plain_and_wrapping = ttl(&format!("{deletes}, toDateTime(Timestamp) + toIntervalDay(1)"));
    assert_eq!(
        (plain_and_wrapping.age(), plain_and_wrapping.age_in_32_bits()),
        (Some(days(2)), Some(days(1)))
    );
}

#[test]
fn texts_in_quotes_end_no_rule() {
    let (named, quoted) = (
        r"Timestamp + toIntervalDay(3) WHERE SpanName = 'it\'s, (2 TO DISK x'",
        "`ä, b SETTINGS ` + toIntervalDay(3) WHERE x = ' TTL '",
    );
    let both = ttl(&format!("{named}, {quoted}, Timestamp + toIntervalDay(2)"));
    assert_eq!(both, RowTtl { others: vec![named.into(), quoted.into()], ..RowTtl::of_age(days(2)) });
    let grouped = "Timestamp + toIntervalDay(3) GROUP BY a SET x = max(x)";
    let behind = ttl(&format!("{grouped}, Timestamp + toIntervalDay(2) WHERE a = 1"));
    assert_eq!(behind.others(), [grouped, "Timestamp + toIntervalDay(2) WHERE a = 1"]);
    // No text of a server makes it panic.
    for odd in ["", ",", ")", "'", "\\", " GROUP BY ", ",,", "é,", "a GROUP BY b,", "x TO DISK"] {
        let _ = ttl(odd);
    }
}

#[test]
fn what_acts_at_once_is_said_with_the_rule() {
    let said = |rule: &str| AtOnce { rule: rule.into(), reason: "why".into() }.to_string();
    assert_eq!(
        said("toDate(Timestamp)"),
        "the table's TTL toDate(Timestamp) deletes every new row at once: why"
    );
    assert!(said("a WHERE b").contains("a WHERE b deletes new rows at once that fulfil its condition: why"));
    assert!(said("a GROUP BY b WHERE c").contains(" replaces new rows at once by aggregates"));
}
