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
//! | age | `retention.ms` − age of the message at the position, as seen, or as asked ([`crate::past`]) | early: a segment goes with its youngest message |
//! | size | where `retention.bytes` is set: messages in front of the position ÷ messages produced per second | early: the log may have room yet |
//! | pace | messages in front of the position ÷ pace of the log's start over [`WINDOW`] | either way: it moves in steps |
//!
//! Limits: [`SAMPLES_MAX`] samples per partition, and [`OLDER_MAX`] of before while it is not settled so far; topics' limits are read by whoever calls [`read_limits`], and need not be.

use crate::{
    past::{Past, Wanted},
    settings::probe_settings,
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
    /// The offset behind the newest, those of open transactions included.
    pub end: i64,
    /// The first offset that is not settled: what would be lost.
    pub position: i64,
    /// How old the message at the position is, where that is known.
    pub age: Option<Duration>,
}

/// What a look at a partition gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeLeft {
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
    /// Of before this process was there, where that was asked.
    past: Option<Past>,
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

    /// Takes down how old messages are that were there before.
    pub fn learn_past(&mut self, past: Vec<(PartitionId, Past)>) {
        for (id, past) in past {
            if let Some(samples) = self.samples.get_mut(&id) {
                samples.past = Some(past);
            }
        }
    }

    /// The partitions, among those that were looked at, of which nobody knows how old the message at the position is.
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

    /// Looks at partitions. One that is not given to this process any more is forgotten; one that begins anew is not seen meanwhile.
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
    /// Keeps one sample a minute of the last hour, and of before what tells the age of a message at the position or behind it.
    fn add(&mut self, sample: Sample, position: i64) {
        let Self { recent, older, past } = self;
        // A topic that was made anew begins at 0 again; what was measured of the other says nothing.
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

    /// How old the message at a position is at the most: it was not there yet when the log ended at or before it.
    fn age_seen(&self, position: i64, now: Instant) -> Option<Duration> {
        let before = self.backward().find(|sample| sample.end <= position)?;
        Some(now.saturating_duration_since(before.at))
    }

    /// The same, or what was said of the time before, if that is less.
    fn age_at_most(&self, position: i64, now: Instant) -> Option<Duration> {
        let said = self.past.as_ref().map(|past| past.age_at_most(position, now));
        [self.age_seen(position, now), said].into_iter().flatten().min()
    }

    /// From the last to the first.
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
    #[error("cannot create a Kafka client to read topic configs: {source}")]
    Settings {
        /// What librdkafka said.
        source: KafkaError,
    },
    /// The brokers do not tell: they are away, or the user has no right to describe configs.
    #[error("cannot read the configs of topics {topics}: {source}")]
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
#[path = "retention_tests.rs"]
mod tests;
