//! How long until Kafka's retention overtakes what is not settled yet.
//!
//! Pure but for [`read_limits`], which asks the brokers. Place in the flow: the poll thread calls [`Retention::look`] after
//! librdkafka's statistics; the answer is a metric that warns hours before messages are gone. Owner: the poll thread.
//!
//! Kafka drops whole segments from the start of a log, by age and by size, so nobody can say when exactly. Three estimates, of
//! which the smallest counts:
//!
//! | estimate | from | errs |
//! | --- | --- | --- |
//! | age | `retention.ms` − age of the message at the position | early: a segment goes with its youngest message |
//! | size | where `retention.bytes` is set: messages in front of the position ÷ messages produced per second | early: the log may have room yet |
//! | pace | messages in front of the position ÷ pace of the log's start over [`WINDOW`] | either way: it moves in steps |
//!
//! Limits: [`SAMPLES_MAX`] samples per partition, and [`OLDER_MAX`] of before while it is not settled so far; topics' limits are read by whoever calls [`read_limits`], and need not be.

use crate::{partition::PartitionId, settings::probe_settings};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier},
    client::DefaultClientContext,
    error::KafkaError,
};
use sluice_gateway_config::{Kafka, SecretFileError};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

/// Over how long the pace of a log is measured. Chosen: Kafka looks for old segments every five minutes
/// (`log.retention.check.interval.ms`), so that an hour has twelve steps.
pub const WINDOW: Duration = Duration::from_hours(1);

/// Samples of a partition. One a minute.
pub const SAMPLES_MAX: usize = 61;

/// Samples of a partition from before [`WINDOW`], one an hour at first: every other one is dropped when there are too many. Chosen: a day by
/// the hour, a week by eight; messages of between count as older than they are, and 32 bytes a sample are no matter.
pub const OLDER_MAX: usize = 24;

/// Between two samples, at the least.
const SAMPLE_INTERVAL: Duration = Duration::from_mins(1);

/// What a topic's config says of retention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicLimits {
    /// `retention.ms`: messages go once they are older. `None` keeps them for ever.
    pub age: Option<Duration>,
    /// `retention.bytes`: the oldest go once a partition is larger. `None` for any size.
    pub bytes: Option<u64>,
    /// `cleanup.policy` names `compact`: messages go from the middle of ranges that are in flight.
    pub is_compacted: bool,
    /// `max.message.bytes`: the largest record batch that the topic takes, as it is sent. `None` where that is not known.
    pub batch_bytes_max: Option<u64>,
}

/// What is seen of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The offset of the oldest message that Kafka has.
    pub log_start: i64,
    /// The offset behind the newest.
    pub end: i64,
    /// The first offset that is not settled: what would be lost.
    pub position: i64,
    /// How old the message at the position is, where that is known.
    pub age: Option<Duration>,
}

/// What a look at a partition gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Left {
    /// Seconds until retention overtakes the position. `None` when there is nothing to overtake, or nothing to tell it from.
    pub seconds: Option<f64>,
    /// Messages, or rather offsets, that it has overtaken: they are lost in Kafka.
    pub overtaken: u64,
}

/// A partition's log at a moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    log_start: i64,
    end: i64,
}

/// The logs of all owned partitions.
#[derive(Debug, Default)]
pub struct Retention {
    limits: BTreeMap<Arc<str>, TopicLimits>,
    samples: BTreeMap<PartitionId, Samples>,
}

/// A partition's log over time.
#[derive(Debug, Default)]
struct Samples {
    /// The last [`WINDOW`].
    recent: VecDeque<Sample>,
    /// Of before: the last one that ends at or in front of the position, and those that the position has still to pass.
    older: Vec<Sample>,
}

impl Retention {
    /// Takes down what the topics' configs say. Topics that are not named keep what was known of them.
    pub fn learn(&mut self, limits: impl IntoIterator<Item = (Arc<str>, TopicLimits)>) {
        self.limits.extend(limits);
    }

    /// Whether a topic is known to be compacted.
    pub fn is_any_compacted(&self) -> bool {
        self.limits.values().any(|limits| limits.is_compacted)
    }

    /// Looks at every owned partition. One that is not among them is forgotten.
    pub fn look(&mut self, now: Instant, seen: &BTreeMap<PartitionId, Look>) -> BTreeMap<PartitionId, Left> {
        self.samples.retain(|id, _| seen.contains_key(id));
        let left = |(id, look): (&PartitionId, &Look)| {
            let samples = self.samples.entry(id.clone()).or_default();
            let sample = Sample { at: now, log_start: look.log_start, end: look.end };
            samples.add(sample, look.position);
            let limits = self.limits.get(&id.topic).copied().unwrap_or_default();
            (id.clone(), left(look, limits, samples, sample))
        };
        seen.iter().map(left).collect()
    }
}

impl Samples {
    /// Keeps one sample a minute of the last hour, and of before what tells the age of a message at the position or behind it.
    fn add(&mut self, sample: Sample, position: i64) {
        let Self { recent, older } = self;
        // A topic that was made anew begins at 0 again; what was measured of the other says nothing.
        if recent.back().is_some_and(|last| sample.end < last.end || sample.log_start < last.log_start) {
            recent.clear();
            older.clear();
        }
        let is_due = |last: &Sample| sample.at.saturating_duration_since(last.at) >= SAMPLE_INTERVAL;
        if recent.back().is_none_or(is_due) {
            recent.push_back(sample);
        }
        let is_old = |first: &Sample| sample.at.saturating_duration_since(first.at) > WINDOW;
        while recent.len() > SAMPLES_MAX || recent.front().is_some_and(is_old) {
            older.extend(recent.pop_front());
        }
        self.thin_out(position);
    }

    /// Of those from before the window, keeps what is wanted and no more than [`OLDER_MAX`].
    fn thin_out(&mut self, position: i64) {
        let older = &mut self.older;
        let passed = older.partition_point(|sample| sample.end <= position);
        older.drain(..passed.saturating_sub(1));
        let mut last: Option<Sample> = None;
        older.retain(|sample| {
            // The first that the position has still to pass stays beside the last that it has passed.
            let is_apart =
                |last: Sample| last.end <= position || sample.at.saturating_duration_since(last.at) >= WINDOW;
            let stays = last.is_none_or(is_apart);
            last = if stays { Some(*sample) } else { last };
            stays
        });
        if older.len() > OLDER_MAX {
            let mut number = 0;
            older.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    /// From the last to the first.
    fn backward(&self) -> impl Iterator<Item = &Sample> {
        self.recent.iter().rev().chain(self.older.iter().rev())
    }
}

fn left(look: &Look, limits: TopicLimits, samples: &Samples, now: Sample) -> Left {
    let in_front = look.position.saturating_sub(look.log_start);
    let overtaken = in_front.saturating_neg().try_into().unwrap_or(0);
    if overtaken > 0 {
        return Left { seconds: Some(0.0), overtaken };
    }
    if look.position >= look.end {
        return Left { seconds: None, overtaken };
    }
    let age = look.age.or_else(|| age_at_most(look.position, samples, now.at));
    let by_age = limits.age.zip(age).map(|(limit, age)| limit.saturating_sub(age).as_secs_f64());
    let by_size = limits.bytes.and_then(|_| seconds(in_front, &samples.recent, now, |sample| sample.end));
    let by_pace = seconds(in_front, &samples.recent, now, |sample| sample.log_start);
    Left { seconds: [by_age, by_size, by_pace].into_iter().flatten().reduce(f64::min), overtaken }
}

/// How old the message at a position is at the most: it was not there yet when the log ended at or before it.
fn age_at_most(position: i64, samples: &Samples, now: Instant) -> Option<Duration> {
    let before = samples.backward().find(|sample| sample.end <= position)?;
    Some(now.saturating_duration_since(before.at))
}

/// Seconds until `offset` of the log has moved over `distance` messages at the pace of the samples. `None` while it does not
/// move.
fn seconds(
    distance: i64,
    samples: &VecDeque<Sample>,
    now: Sample,
    offset: impl Fn(&Sample) -> i64,
) -> Option<f64> {
    let first = samples.front()?;
    let moved = offset(&now).checked_sub(offset(first)).filter(|moved| *moved > 0)?;
    let took = now.at.saturating_duration_since(first.at).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "an estimate: 52 bits of an offset are enough")]
    let rounds = distance as f64 / moved as f64;
    Some(rounds * took)
}

/// Why the limits of topics could not be read. The metric does without them then.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// User, password or certificates cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings.
    #[error("cannot make a Kafka client to read the configs of topics: {source}")]
    Settings {
        /// What librdkafka said.
        source: KafkaError,
    },
    /// The brokers do not tell: they are away, or the user has no right to describe configs.
    #[error("cannot read the configs of {topics}: {source}")]
    Describe {
        /// The topics.
        topics: String,
        /// What the brokers said.
        source: KafkaError,
    },
}

/// Asks the brokers for the configs of the topics, through a client of its own that is gone afterwards. A topic that they do not
/// tell of is left out. Dropping the client blocks the thread for up to 100 ms.
pub async fn read_limits(
    kafka: &Kafka,
    timeout: Duration,
) -> Result<Vec<(Arc<str>, TopicLimits)>, LimitsError> {
    let mut config = ClientConfig::new();
    for (name, value) in probe_settings(kafka).map_err(LimitsError::Secret)? {
        config.set(name, value);
    }
    let admin: AdminClient<DefaultClientContext> =
        config.create().map_err(|source| LimitsError::Settings { source })?;
    let topics: Vec<_> = kafka.topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let options = AdminOptions::new().request_timeout(Some(timeout));
    let described = admin.describe_configs(&topics, &options).await;
    let described =
        described.map_err(|source| LimitsError::Describe { topics: kafka.topics.join(", "), source })?;
    // In the order in which they were asked for.
    let of_topic = |(topic, described): (&String, Result<ConfigResource, _>)| {
        Some((Arc::from(topic.as_str()), limits_of(&described.ok()?)))
    };
    Ok(kafka.topics.iter().zip(described).filter_map(of_topic).collect())
}

fn limits_of(described: &ConfigResource) -> TopicLimits {
    let value = |name| described.get(name).and_then(|entry| entry.value.as_deref());
    let batch_bytes_max = value("max.message.bytes").and_then(|bytes| bytes.parse().ok());
    let limits = limits(value("cleanup.policy"), value("retention.ms"), value("retention.bytes"));
    TopicLimits { batch_bytes_max, ..limits }
}

/// -1 is no limit, and a log that is only compacted has none.
fn limits(policy: Option<&str>, millis: Option<&str>, bytes: Option<&str>) -> TopicLimits {
    let names = |one: &str| policy.is_some_and(|policy| policy.split(',').any(|part| part.trim() == one));
    let is_compacted = names("compact");
    if policy.is_some() && !names("delete") {
        return TopicLimits { is_compacted, ..TopicLimits::default() };
    }
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    let (age, bytes) = (number(millis).map(Duration::from_millis), number(bytes));
    TopicLimits { age, bytes, is_compacted, batch_bytes_max: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id() -> PartitionId {
        PartitionId { topic: "spans".into(), partition: 0 }
    }

    /// Plays looks, each with the minute it is at, and gives the last answer.
    fn play(limits: TopicLimits, looks: &[(u64, Look)]) -> Left {
        let start = Instant::now();
        let mut retention = Retention::default();
        retention.learn([("spans".into(), limits)]);
        let mut last = None;
        for (minute, look) in looks {
            let now = start + Duration::from_mins(*minute);
            last = retention.look(now, &BTreeMap::from([(id(), *look)])).remove(&id());
        }
        last.unwrap()
    }

    fn look(log_start: i64, position: i64, end: i64) -> Look {
        Look { log_start, end, position, age: None }
    }

    fn seconds_of(left: Left) -> f64 {
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
        // All was read at minute 10, then nothing is settled while a message a minute comes.
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
        // The sink comes back: what the position has passed is not as old as where it stood.
        let mut looks = stands(60 * 48);
        let caught_up = 60 * 24;
        looks.push((60 * 48 + 1, look(0, caught_up, 60 * 48 + 1)));
        let left = seconds_of(play(limits, &looks)) / 3_600.0;
        assert!((44.0..=48.0).contains(&left), "{left} h of 48");
    }

    #[test]
    fn the_pace_of_the_start_and_of_the_end_are_estimates() {
        let looks = [(0, look(0, 600, 10_000)), (10, look(100, 600, 20_000))];
        // 500 messages in front, 100 in ten minutes.
        assert!((seconds_of(play(TopicLimits::default(), &looks)) - 3_000.0).abs() < 1e-6);
        // 10,000 produced in ten minutes: what a log of limited size drops at that pace.
        let sized = TopicLimits { bytes: Some(1 << 30), ..TopicLimits::default() };
        assert!((seconds_of(play(sized, &looks)) - 30.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_overtaken_is_counted_and_what_is_read_is_in_no_danger() {
        let left = play(TopicLimits::default(), &[(0, look(70, 50, 100))]);
        assert_eq!(left, Left { seconds: Some(0.0), overtaken: 20 });
        let limits =
            TopicLimits { age: Some(Duration::from_secs(1)), bytes: Some(1), ..TopicLimits::default() };
        assert_eq!(play(limits, &[(0, look(70, 100, 100))]), Left { seconds: None, overtaken: 0 });
        // All of it was dropped, and nothing has come since.
        assert_eq!(play(limits, &[(0, look(100, 60, 100))]), Left { seconds: Some(0.0), overtaken: 40 });
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
            (
                (Some("delete"), Some("3600000"), Some("-1")),
                TopicLimits { age: hour, ..TopicLimits::default() },
            ),
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
        /// Whatever is seen, the answer is a number that is not negative, memory is bounded, and zero means overtaken or old.
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
                let left = retention.look(now, &seen)[&id()];
                prop_assert!(left.seconds.is_none_or(|seconds| seconds >= 0.0), "{left:?}");
                prop_assert!(left.overtaken == 0 || position < log_start);
                let samples = &retention.samples[&id()];
                prop_assert!(samples.recent.len() <= SAMPLES_MAX && samples.older.len() <= OLDER_MAX);
            }
        }
    }
}
