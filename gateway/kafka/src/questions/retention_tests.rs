use super::*;
use proptest::prelude::*;

fn id() -> PartitionId {
    PartitionId { topic: "spans".into(), partition: 0 }
}

/// Plays looks, each with its minute, and returns the last result.
fn play(limits: TopicLimits, looks: &[(u64, Look)]) -> TimeLeft {
    let start = Instant::now();
    let mut retention = Retention::default();
    retention.learn([("spans".into(), limits)]);
    let mut last = None;
    for (minute, look) in looks {
        let now = start + Duration::from_mins(*minute);
        last = retention.look(now, &BTreeMap::from([(id(), *look)]), |_| true).remove(&id());
    }
    last.unwrap()
}

fn look(log_start: i64, position: i64, end: i64) -> Look {
    Look { log_start, end, position, age: None }
}

fn seconds_of(left: TimeLeft) -> f64 {
    assert_eq!(left.overtaken, 0);
    left.seconds.unwrap()
}

#[test]
fn the_age_of_the_message_counts_against_the_limit() {
    let limits = TopicLimits { age: Some(Duration::from_hours(24)), ..TopicLimits::default() };
    let old = Look { age: Some(Duration::from_hours(20)), ..look(0, 5, 9) };
    assert!((seconds_of(play(limits, &[(0, old)])) - 4.0 * 3_600.0).abs() < 1e-6);
    let older = Look { age: Some(Duration::from_hours(30)), ..old };
    assert!(seconds_of(play(limits, &[(0, older)])).abs() < 1e-6);
    assert_eq!(play(TopicLimits::default(), &[(0, old)]).seconds, None, "nothing to tell it from");
}

#[test]
fn the_age_is_told_from_where_the_log_ended_before() {
    let limits = TopicLimits { age: Some(Duration::from_hours(1)), ..TopicLimits::default() };
    // The message at 100 came after minute 10, when the log ended there: by minute 40 it is at most 30 minutes old.
    let left = play(limits, &[(0, look(0, 50, 90)), (10, look(0, 100, 100)), (40, look(0, 100, 400))]);
    assert!((seconds_of(left) - 1_800.0).abs() < 1e-6, "{left:?}");
}

#[test]
fn a_sink_that_is_away_for_hours_leaves_the_age_known() {
    let limits = TopicLimits { age: Some(Duration::from_hours(72)), ..TopicLimits::default() };
    // Everything was read at minute 10; then nothing is settled while a message a minute arrives.
    let position = |minute: i64| minute.min(10);
    let minutes = |last: i64| (0..=last).map(|minute| (u64::try_from(minute).unwrap(), minute));
    let stands = |last| -> Vec<_> {
        minutes(last).map(|(at, minute)| (at, look(0, position(minute), minute))).collect()
    };
    for hours in [2, 12, 48] {
        let left = seconds_of(play(limits, &stands(60 * hours)));
        let exact = f64::from(i32::try_from(72 * 60 - (60 * hours - 10)).unwrap()) * 60.0;
        assert!((left - exact).abs() < 1e-6, "{hours} h: {left} s, not {exact}");
    }
    // ClickHouse is back: messages that the position has passed are not as old as where it stood.
    let mut looks = stands(60 * 48);
    let caught_up = 60 * 24;
    looks.push((60 * 48 + 1, look(0, caught_up, 60 * 48 + 1)));
    let left = seconds_of(play(limits, &looks)) / 3_600.0;
    assert!((44.0..=48.0).contains(&left), "{left} h of 48");
}

#[test]
fn a_backlog_from_before_the_start_is_as_old_as_the_brokers_say() {
    let (mut retention, start) = (Retention::default(), Instant::now());
    let hours = |hours| Some(Duration::from_hours(hours));
    retention.learn([("spans".into(), TopicLimits { age: hours(24), ..TopicLimits::default() })]);
    let mut look_at = |minute: u64, position| {
        let seen = BTreeMap::from([(id(), look(0, position, 900))]);
        let now = start + Duration::from_mins(minute);
        let left = retention.look(now, &seen, |_| true)[&id()].seconds;
        let wanted = retention.wants_past(now, &seen);
        if let [wanted] = &wanted[..] {
            let (asked, limit) = (now, wanted.limit);
            let from = vec![(Duration::from_hours(12), 400), (Duration::from_hours(18), 100)];
            retention.learn_past(vec![(wanted.id.clone(), Past { asked, limit, from })]);
        }
        (left.map(|seconds| seconds / 3_600.0), wanted.len())
    };
    assert_eq!(look_at(0, 100), (None, 1), "nobody knows");
    assert_eq!(look_at(0, 100), (Some(6.0), 0), "it was asked");
    assert_eq!(look_at(60, 100), (Some(5.0), 0));
    assert_eq!(look_at(60, 400), (Some(11.0), 0));
    assert_eq!(look_at(60 * 6, 400), (Some(6.0), 1), "half of what was said is over");
    assert_eq!(look_at(60 * 6, 400), (Some(12.0), 0), "the brokers know better");
    // All earlier messages are inserted.
    assert_eq!(look_at(60 * 6, 900), (None, 0));
}

#[test]
fn a_partition_that_begins_anew_is_not_forgotten() {
    let limits = TopicLimits { age: Some(Duration::from_hours(1)), ..TopicLimits::default() };
    let (mut retention, start) = (Retention::default(), Instant::now());
    retention.learn([("spans".into(), limits)]);
    let mut look_at = |minute: u64, seen: &[Look], is_given: bool| {
        let seen = seen.iter().map(|look| (id(), *look)).collect();
        let left = retention.look(start + Duration::from_mins(minute), &seen, |_| is_given);
        left.get(&id()).and_then(|left| left.seconds)
    };
    for (is_given, left) in [(true, Some(1_800.0)), (false, None)] {
        look_at(0, &[look(0, 100, 100)], true);
        look_at(10, &[], is_given);
        assert_eq!(look_at(30, &[look(0, 100, 400)], true), left);
        look_at(40, &[], false);
    }
}

#[test]
fn the_pace_of_the_start_and_of_the_end_are_estimates() {
    let looks = [(0, look(0, 600, 10_000)), (10, look(100, 600, 20_000))];
    // 500 messages in front, 100 in ten minutes.
    assert!((seconds_of(play(TopicLimits::default(), &looks)) - 3_000.0).abs() < 1e-6);
    // 10,000 produced in ten minutes: a log of limited size drops as many.
    let sized = TopicLimits { bytes: Some(1 << 30), ..TopicLimits::default() };
    assert!((seconds_of(play(sized, &looks)) - 30.0).abs() < 1e-6);
}

#[test]
fn what_is_overtaken_is_counted_and_what_is_read_is_in_no_danger() {
    let left = play(TopicLimits::default(), &[(0, look(70, 50, 100))]);
    assert_eq!(left, TimeLeft { seconds: Some(0.0), overtaken: 20 });
    let limits = TopicLimits { age: Some(Duration::from_secs(1)), bytes: Some(1), ..TopicLimits::default() };
    assert_eq!(play(limits, &[(0, look(70, 100, 100))]), TimeLeft { seconds: None, overtaken: 0 });
    // All messages were deleted, and none has arrived since.
    assert_eq!(play(limits, &[(0, look(100, 60, 100))]), TimeLeft { seconds: Some(0.0), overtaken: 40 });
}

#[test]
fn a_topic_that_was_made_anew_is_measured_anew() {
    let looks = [(0, look(0, 600, 1_000)), (10, look(500, 600, 2_000)), (20, look(0, 5, 10))];
    assert_eq!(play(TopicLimits::default(), &looks).seconds, None);
}

#[test]
fn limits_are_read_as_kafka_means_them() {
    let hour = Some(Duration::from_hours(1));
    let table = [
        ((Some("delete"), Some("3600000"), Some("-1")), TopicLimits { age: hour, ..TopicLimits::default() }),
        (
            (Some("compact,delete"), Some("-1"), Some("10")),
            TopicLimits { bytes: Some(10), is_compacted: true, ..TopicLimits::default() },
        ),
        (
            (Some("compact"), Some("3600000"), Some("10")),
            TopicLimits { is_compacted: true, ..TopicLimits::default() },
        ),
        ((None, Some("3600000"), None), TopicLimits { age: hour, ..TopicLimits::default() }),
        ((None, None, Some("many")), TopicLimits::default()),
    ];
    for ((policy, millis, bytes), expected) in table {
        assert_eq!(limits(policy, millis, bytes), expected);
    }
}

proptest! {
    /// Whatever is observed, the result is a non-negative number, memory is bounded, and zero means deleted or old.
    #[test]
    fn an_estimate_is_never_negative_and_samples_are_bounded(
        looks in prop::collection::vec((0u64..200, any::<i64>(), any::<i64>(), any::<i64>()), 1..200),
        age in prop::option::of(0u64..100_000), bytes in prop::option::of(any::<u64>()),
    ) {
        let start = Instant::now();
        let (mut retention, mut at) = (Retention::default(), 0);
        retention.learn([("spans".into(), TopicLimits { age: age.map(Duration::from_secs), bytes, ..TopicLimits::default() })]);
        for (seconds, log_start, position, end) in looks {
            at += seconds;
            let now = start + Duration::from_secs(at);
            let seen = BTreeMap::from([(id(), look(log_start, position, end))]);
            let left = retention.look(now, &seen, |_| true)[&id()];
            prop_assert!(left.seconds.is_none_or(|seconds| seconds >= 0.0), "{left:?}");
            prop_assert!(left.overtaken == 0 || position < log_start);
            let samples = &retention.samples[&id()];
            prop_assert!(samples.recent.len() <= SAMPLES_MAX && samples.older.len() <= OLDER_MAX);
        }
    }
}
