//! Keys, times, the query and its answer.

use super::*;

#[test]
fn keys_are_these_bytes() {
    let mut keys = SpanKeys::default();
    keys.push(&[0xaa, 0xbb], &[], -1);
    keys.push(&[], &[0xcc], 258);
    let expected = [
        &[0, 0, 0, 0, 2, 0xaa, 0xbb, 0][..],
        &[0xff; 8],
        &[1, 0, 0, 0, 0, 1, 0xcc],
        &[2, 1, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(keys.body, expected.concat());
    assert_eq!(keys.time_spans(), [TimeSpan { first: -1, last: 258 }]);
    assert_eq!((keys.ids(0), keys.ids(1)), ((&[0xaa, 0xbb][..], &[][..]), (&[][..], &[0xcc][..])));
    keys.push(&[7; 300], &[8; 16_384], 0);
    assert_eq!(keys.ids(2), (&[7; 300][..], &[8; 16_384][..]));
    assert_eq!(SpanKeys::default().time_spans(), []);
}

#[test]
fn times_are_cut_at_the_largest_gaps() {
    let minute = GAP_NANOS;
    let times = [i64::MIN, 0, 5, minute + 5, 3 * minute, 4 * minute + 1];
    let span = |first, last| TimeSpan { first, last };
    let expected = [
        span(i64::MIN, i64::MIN),
        span(0, minute + 5),
        span(3 * minute, 3 * minute),
        span(times[5], times[5]),
    ];
    assert_eq!(time_spans(&times), expected);
    // 40 times, each further from the previous one: the closest are merged.
    let times: Vec<i64> = (1..=40).map(|n| n * n * minute).collect();
    let pieces = time_spans(&times);
    assert_eq!(pieces.len(), TIME_SPANS_MAX);
    assert_eq!(pieces[0], span(minute, times[40 - TIME_SPANS_MAX]));
    assert!(pieces[1..].iter().all(|piece| piece.first == piece.last));
}

/// A span at 23:00 UTC is in another day's partition after the server has moved to Tokyo; the row is still in the former.
#[test]
fn a_row_is_looked_for_in_the_partitions_of_every_time_zone() {
    let day = 86_400 * SECOND_NANOS;
    let local_day = |nanos: i64, hours: i64| (nanos + hours * 3_600 * SECOND_NANOS).div_euclid(day);
    for hour in 0..48 {
        let at = 20_000 * day + hour * 3_600 * SECOND_NANOS;
        let TimeSpan { first, last } = widened(TimeSpan { first: at, last: at });
        for written in -12..=14 {
            for asked in -12..=14 {
                let days = local_day(first, asked)..=local_day(last, asked);
                assert!(days.contains(&local_day(at, written)), "hour {hour}: {written} and {asked}");
            }
        }
    }
}

#[test]
fn no_range_is_widened_across_a_wrap_of_a_key() {
    let span = |first, last| TimeSpan { first, last };
    let [begin, seconds_end, days_end] = WRAPS;
    assert_eq!(widened(span(begin, 5)), span(begin, 5 + WIDER_NANOS));
    assert_eq!(widened(span(seconds_end - 9, seconds_end - 1)).last, seconds_end - 1);
    assert_eq!(widened(span(seconds_end, seconds_end)).first, seconds_end);
    assert_eq!(widened(span(days_end, days_end)).first, days_end);
    assert_eq!(widened(span(i64::MIN, i64::MAX)), span(i64::MIN, i64::MAX));
    assert_eq!(whole_seconds(span(0, seconds_end - 1)), Some((0, u32::MAX)));
    assert_eq!(whole_seconds(span(-1, 0)), None);
    assert_eq!(whole_seconds(span(0, seconds_end)), None);
}

#[test]
fn a_key_over_the_seconds_is_seen() {
    for nested in [
        "MergeTree PARTITION BY toDate(toDateTime(Timestamp)) ORDER BY TraceId",
        "MergeTree ORDER BY (ServiceName, toStartOfHour(toDateTime(Timestamp)))",
    ] {
        assert!(nests_seconds(nested), "{nested}");
    }
    for plain in [
        "MergeTree PARTITION BY toDate(Timestamp) ORDER BY (toDateTime(Timestamp), TraceId)",
        "MergeTree ORDER BY (ServiceName, SpanName, toDateTime(Timestamp)) SETTINGS index_granularity = 8192",
        "Distributed('all', 'otel', 'local')",
    ] {
        assert!(!nests_seconds(plain), "{plain}");
    }
}

#[test]
fn an_answer_is_a_count_for_some_keys() {
    let row = |number: u32, count: u64| [&number.to_le_bytes()[..], &count.to_le_bytes()].concat();
    assert_eq!(counts(&[row(2, 7), row(0, 1)].concat(), 3), Ok(vec![1, 0, 7]));
    assert_eq!(counts(&[], 2), Ok(vec![0, 0]));
    assert!(counts(&row(3, 1), 3).is_err());
    assert!(counts(&row(0, 1)[..11], 3).is_err());
}

#[test]
fn a_table_with_any_name_is_asked_for_between_the_times() {
    let endpoint = Endpoint::parse("http://c:8123").unwrap();
    let credentials = Credentials { user: "u".into(), password: "p".into(), token: None };
    let lookup = Lookup::new(&endpoint, &credentials, "o`t", "t", &Tls::unused()).unwrap();
    let query = lookup.query(&[TimeSpan { first: -1, last: 2 }, TimeSpan { first: 5, last: 6 }]);
    assert!(query.contains(r"FROM `o\`t`.`t` WHERE (Timestamp BETWEEN"), "{query}");
    assert_eq!(query.matches(") OR (Timestamp BETWEEN").count(), 1, "{query}");
    let uri = lookup.request(&SpanKeys::default()).uri().to_string();
    for (name, value) in [("final", "0"), ("limit", "0"), ("timeout_overflow_mode", "throw")] {
        assert!(uri.contains(&format!("&{name}={value}")), "{uri}");
    }
    let day = TimeSpan { first: 86_400 * SECOND_NANOS, last: 86_401 * SECOND_NANOS + 7 };
    let seconds = "toDateTime(Timestamp) BETWEEN toDateTime(toUInt32(86400)) AND toDateTime(toUInt32(86401))";
    assert!(lookup.query(&[day]).contains(seconds), "{}", lookup.query(&[day]));
    let nesting = lookup.clone().nesting_seconds(true);
    assert!(!nesting.query(&[day]).contains("toDateTime("), "{}", nesting.query(&[day]));
    let refused = Credentials { user: "a:b".into(), ..credentials };
    assert!(Lookup::new(&endpoint, &refused, "d", "t", &Tls::unused()).is_err());
}
