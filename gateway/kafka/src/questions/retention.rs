//! The time until Kafka's retention deletes messages that are not settled yet.
//!
//! Pure, except for [`read_limits`], which asks the brokers. Place in the flow: the poll thread calls [`Retention::look`] after
//! librdkafka's statistics; the result is a metric that warns hours before messages are deleted. Owner: the poll thread.
//!
//! Kafka deletes whole segments from the start of a log, by age and by size, so the exact time is unknown. There are three estimates, of
//! which the smallest counts:
//!
//! | estimate | from | errs |
//! | --- | --- | --- |
//! | age | `retention.ms` − age of the message at the position, as seen, or as asked ([`crate::questions::past`]) | early: Kafka deletes a segment only when its youngest message is too old |
//! | size | where `retention.bytes` is set: messages in front of the position ÷ messages produced per second | early: the log may have room yet |
//! | pace | messages in front of the position ÷ pace of the log's start over [`WINDOW`] | either way: it moves in steps |
//!
//! Limits: [`SAMPLES_MAX`] samples per partition, and [`OLDER_MAX`] older ones while the position has not passed them. The caller of
//! [`read_limits`] reads the topics' limits; without them, their estimates are missing.

use crate::{
    ground::{
        login::renewal,
        settings::{probe_settings, refused},
    },
    questions::past::{Past, Wanted},
};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier},
    client::DefaultClientContext,
    error::KafkaError,
};
use sluice_gateway_config::{Kafka, SecretFileError};
use sluice_ranges::PartitionId;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

/// The time over which a log's pace is measured. Chosen: Kafka looks for old segments every five minutes
/// (`log.retention.check.interval.ms`), so that an hour has twelve steps.
pub const WINDOW: Duration = Duration::from_hours(1);

/// Samples per partition. One a minute.
pub const SAMPLES_MAX: usize = 61;

/// Samples of a partition from before [`WINDOW`], at first one an hour; every other one is dropped if there are too many. Chosen: hourly
/// for a day, every eight hours for a week. Messages between two samples count as older than they are. A sample takes 32 bytes.
pub const OLDER_MAX: usize = 24;

/// The least time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_mins(1);

/// The retention limits of a topic's config.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicLimits {
    /// `retention.ms`: older messages are deleted. `None`: no limit.
    pub age: Option<Duration>,
    /// `retention.bytes`: the oldest messages are deleted when a partition is larger. `None`: no limit.
    pub bytes: Option<u64>,
    /// `cleanup.policy` contains `compact`: Kafka may delete messages in the middle of ranges in flight.
    pub is_compacted: bool,
    /// `max.message.bytes`: the largest record batch that the topic accepts, as sent. `None` if it is unknown.
    pub batch_bytes_max: Option<u64>,
}

/// The observed state of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The offset of the oldest message that Kafka has.
    pub log_start: i64,
    /// The offset behind the newest message, including open transactions.
    pub end: i64,
    /// The first offset that is not settled: the next that could be lost.
    pub position: i64,
    /// The age of the message at the position, if known.
    pub age: Option<Duration>,
}

/// The result of a look at a partition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeLeft {
    /// Seconds until retention reaches the position. `None` if there is nothing to delete, or no estimate.
    pub seconds: Option<f64>,
    /// Offsets that retention has deleted before they were settled: they are lost in Kafka.
    pub overtaken: u64,
}

/// A partition's log at one moment.
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
    /// The samples of the last [`WINDOW`].
    recent: VecDeque<Sample>,
    /// Earlier samples: the last one that ends at or before the position, and those that the position has still to pass.
    older: Vec<Sample>,
    /// The age of messages from before this process started, if the brokers were asked.
    past: Option<Past>,
}

impl Retention {
    /// Records the limits of topics. Topics that are not named keep their limits.
    pub fn learn(&mut self, limits: impl IntoIterator<Item = (Arc<str>, TopicLimits)>) {
        self.limits.extend(limits);
    }

    /// Whether a topic is known to be compacted.
    pub fn is_any_compacted(&self) -> bool {
        self.limits.values().any(|limits| limits.is_compacted)
    }

    /// Records the age of messages from before this process started.
    pub fn learn_past(&mut self, past: Vec<(PartitionId, Past)>) {
        for (id, past) in past {
            if let Some(samples) = self.samples.get_mut(&id) {
                samples.past = Some(past);
            }
        }
    }

    /// The partitions among `seen` for which the age of the message at the position is unknown.
    pub fn wants_past(&self, now: Instant, seen: &BTreeMap<PartitionId, Look>) -> Vec<Wanted> {
        let wanted = |(id, look): (&PartitionId, &Look)| {
            let limit = self.limits.get(&id.topic)?.age?;
            let samples = self.samples.get(id)?;
            let is_known = look.age.is_some() || samples.age_seen(look.position, now).is_some();
            let is_asked = samples
                .past
                .as_ref()
                .is_some_and(|past| past.limit == limit && !past.is_out_of_date(look.position, now));
            let wants = look.position < look.end && !is_known && !is_asked;
            wants.then(|| Wanted { id: id.clone(), limit, position: look.position })
        };
        seen.iter().filter_map(wanted).collect()
    }

    /// Looks at partitions. Forgets partitions that are no longer assigned; a partition that restarts is missing meanwhile.
    pub fn look(
        &mut self,
        now: Instant,
        seen: &BTreeMap<PartitionId, Look>,
        is_given: impl Fn(&PartitionId) -> bool,
    ) -> BTreeMap<PartitionId, TimeLeft> {
        self.samples.retain(|id, _| is_given(id));
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
    /// Keeps one sample a minute for the last hour, and older ones that tell the age of a message at or behind the position.
    fn add(&mut self, sample: Sample, position: i64) {
        let Self { recent, older, past } = self;
        // A topic that was created again starts at 0; measurements of the old one no longer apply.
        if recent.back().is_some_and(|last| sample.end < last.end || sample.log_start < last.log_start) {
            recent.clear();
            older.clear();
            *past = None;
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

    /// Keeps at most [`OLDER_MAX`] useful samples from before the window.
    fn thin_out(&mut self, position: i64) {
        let older = &mut self.older;
        let passed = older.partition_point(|sample| sample.end <= position);
        older.drain(..passed.saturating_sub(1));
        let mut last: Option<Sample> = None;
        older.retain(|sample| {
            // The first sample that the position has not passed stays, next to the last that it has passed.
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

    /// The maximum age of the message at a position: it was not there yet when the log ended at or before it.
    fn age_seen(&self, position: i64, now: Instant) -> Option<Duration> {
        let before = self.backward().find(|sample| sample.end <= position)?;
        Some(now.saturating_duration_since(before.at))
    }

    /// That age, or the brokers' answer if it is less.
    fn age_at_most(&self, position: i64, now: Instant) -> Option<Duration> {
        let said = self.past.as_ref().map(|past| past.age_at_most(position, now));
        [self.age_seen(position, now), said].into_iter().flatten().min()
    }

    /// From the newest sample to the oldest.
    fn backward(&self) -> impl Iterator<Item = &Sample> {
        self.recent.iter().rev().chain(self.older.iter().rev())
    }
}

fn left(look: &Look, limits: TopicLimits, samples: &Samples, now: Sample) -> TimeLeft {
    let in_front = look.position.saturating_sub(look.log_start);
    let overtaken = in_front.saturating_neg().try_into().unwrap_or(0);
    if overtaken > 0 {
        return TimeLeft { seconds: Some(0.0), overtaken };
    }
    if look.position >= look.end {
        return TimeLeft { seconds: None, overtaken };
    }
    let age = look.age.or_else(|| samples.age_at_most(look.position, now.at));
    let by_age = limits.age.zip(age).map(|(limit, age)| limit.saturating_sub(age).as_secs_f64());
    let by_size = limits.bytes.and_then(|_| seconds(in_front, &samples.recent, now, |sample| sample.end));
    let by_pace = seconds(in_front, &samples.recent, now, |sample| sample.log_start);
    TimeLeft { seconds: [by_age, by_size, by_pace].into_iter().flatten().reduce(f64::min), overtaken }
}

/// Seconds until `offset` of the log has moved over `distance` messages at the pace of the samples. `None` if it does not move.
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

/// Why topic limits could not be read. The metric then does without them.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// The file of the user, password or certificates cannot be read.
    #[error(transparent)]
    Secret(SecretFileError),
    /// librdkafka refused the settings.
    #[error("cannot create a Kafka client to read topic configs: {why}")]
    Settings { why: String },
    /// The brokers are away, or the user has no right to describe configs.
    #[error("cannot read the configs of topics {topics}: {source}")]
    Describe { topics: String, source: KafkaError },
}

/// Asks the brokers for the topics' configs, through a client of its own. A topic without an answer is left out. Dropping the client
/// blocks the thread for up to 100 ms.
pub async fn read_limits(
    kafka: &Kafka,
    timeout: Duration,
) -> Result<Vec<(Arc<str>, TopicLimits)>, LimitsError> {
    let mut config = ClientConfig::new();
    for (name, value) in probe_settings(kafka).map_err(LimitsError::Secret)? {
        config.set(name, value);
    }
    let admin: AdminClient<DefaultClientContext> =
        config.create().map_err(|error| LimitsError::Settings { why: refused(&error) })?;
    let renewal = renewal(kafka);
    renewal.wait(admin.inner());
    let topics: Vec<_> = kafka.topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
    let options = AdminOptions::new().request_timeout(Some(timeout));
    let described = admin.describe_configs(&topics, &options).await;
    let described =
        described.map_err(|source| LimitsError::Describe { topics: kafka.topics.join(", "), source })?;
    // In the order of the request.
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

/// -1 means no limit. A log that is only compacted has none.
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
#[path = "retention_tests.rs"]
mod tests;
