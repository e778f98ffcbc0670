//! `sluice-gateway audit`: compares a range of Kafka with the table, span by span. Changes nothing, and joins no group.
//!
//! ```text
//!  Kafka (range) -> encode, walk -> chunk of 250,000 spans -> their keys to ClickHouse -> rows of each key -> verdict
//!        `------ again, only if keys are in question: how often are they in the whole range? -----------^
//! ```
//!
//! A span's key is its trace id, its span id and its row's timestamp. A key that is in Kafka k times must have k rows. Messages that the
//! group has not committed yet may have rows or not.
//!
//! A record batch that cannot be read ends the reading of its partition: the audit compares the offsets before it, reports the rest as
//! unread, and goes on with the other partitions.
//!
//! Offsets that the request names by number may be [`gone`] from Kafka. The report names them, because nothing is known of their spans.
//!
//! A span without a row is not missing if the table's TTL has deleted the row, or if the audit cannot tell: [`absence`].
//!
//! Limitations: rows that a person deleted look missing. Spans that a producer sent once inside and once outside the audited range look
//! doubled.
//!
//! Owner: one thread, which reads, asks and judges in turn. Memory: 64 MiB for the [`filter`], 24 MiB for a block, about 60 MB for a
//! chunk and its question, librdkafka's fetch, and the keys in question: 250 MB in all, for any range. That is more than a gateway's pod
//! has to spare, so it runs in its own pod.
//!
//! Cost of a million spans of the load generator, measured on 21 November 2026 on two shared EPYC cores, ClickHouse 26.7, with a table of
//! those 1 million rows: 2.1 CPU-seconds of ClickHouse in four questions (`system.query_log`) of 90 to 115 MB each; 177 MB resident and
//! 7.5 CPU-seconds here, in a build without optimisation.

mod absence;
mod chunk;
mod comparison;
mod filter;
mod gone;
mod letters;
mod moment;
mod progress;
mod report;
mod spans;

pub use moment::{Moment, NotAMoment};
pub use progress::Progress;
pub use report::{Finding, Findings, Gone, PartitionReport, RangeReport, Report, Totals, Unread};

use crate::{reading::reject::BadBatch, table::sink};
use absence::{Absence, RowsElsewhere};
use chunk::Chunk;
use comparison::{Comparison, QUESTIONED_MAX};
use filter::FILTER_BYTES;
use letters::Letters;
use progress::Bell;
use sluice_clickhouse::lookup::{Lookup, LookupError, SpanKeys};
use sluice_gateway_config::{CheckedConfig, Sizing};
use sluice_kafka::{Message, Patience, ReadError, TopicReader, dead_letter::default_topic};
use sluice_ranges::OffsetRange;
use spans::SpanReader;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How long to wait for brokers; for a message, longer than the election of a partition's leader.
const PATIENCE: Patience = Patience { answer: Duration::from_secs(10), message: Duration::from_mins(1) };
use tokio::runtime::Runtime;

/// The range to audit.
#[derive(Debug, Clone)]
pub struct Request {
    /// One of the config's topics; `None` for all of them.
    pub topic: Option<String>,
    /// Partitions; all of them if empty.
    pub partitions: Vec<i32>,
    /// The first message; `None` for the oldest in Kafka.
    pub since: Option<Moment>,
    /// The first message that is not audited; `None` for the current end.
    pub until: Option<Moment>,
    /// Maximum number of spans to list, of each kind.
    pub limit: usize,
}

/// Why an audit has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Without Kafka there is nothing to read.
    #[error("source.otlp has no Kafka that this command could compare with the table")]
    NoKafka,
    /// The topic is not in the config.
    #[error("--topic: {topic} is not in source.kafka.topics")]
    ForeignTopic { topic: String },
    /// The topic has no such partition.
    #[error("--partition: {topic} has no partition {partition}; it has {count}, from 0")]
    UnknownPartition { topic: String, partition: i32, count: usize },
    /// There are too many letters to remember.
    #[error("the dead-letter topic {topic} holds more than {} letters", letters::LETTERS_MAX)]
    Letters { topic: String },
    /// The runtime cannot be started.
    #[error("cannot start the I/O runtime: {0}")]
    Runtime(std::io::Error),
    /// Kafka cannot be read.
    #[error(transparent)]
    Kafka(#[from] ReadError),
    /// The table cannot be read.
    #[error(transparent)]
    Sink(sink::Error),
    /// Counting rows.
    #[error(transparent)]
    Lookup(LookupError),
}

impl Error {
    /// Whether the command line is wrong, as opposed to a server that is away.
    pub fn is_of_usage(&self) -> bool {
        match self {
            Self::NoKafka | Self::ForeignTopic { .. } | Self::UnknownPartition { .. } => true,
            Self::Letters { .. } | Self::Runtime(_) | Self::Kafka(_) | Self::Sink(_) | Self::Lookup(_) => {
                false
            }
        }
    }
}

/// Runs an audit. Calls `tell` with the progress periodically.
pub fn audit(
    checked: &CheckedConfig,
    request: &Request,
    tell: impl FnMut(&Progress),
) -> Result<Report, Error> {
    let config = checked.config();
    let kafka = config.source.kafka.as_ref().ok_or(Error::NoKafka)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Runtime)?;
    let shards = sink::shards(&config.sink.clickhouse).map_err(Error::Sink)?;
    let sink = shards.first().expect("the config names at least one shard");
    let columns = runtime.block_on(sink.check_table()).map_err(Error::Sink)?.columns;
    let lookups = runtime.block_on(lookups_in(&shards))?;
    let absence = runtime.block_on(absence_in(&shards)).map_err(Error::Sink)?;
    let reader = TopicReader::new(kafka, "audit", PATIENCE)?;
    let mut parts = Vec::new();
    let dead_letters = &config.delivery.dead_letter.topic;
    for topic in letters::topics(kafka, request.topic.as_deref())? {
        let from = dead_letters.clone().unwrap_or_else(|| default_topic(&topic));
        parts.extend(parts_of(&reader, &topic, &from, request)?);
    }
    let offsets = parts.iter().map(Part::offsets).sum();
    let mut auditor = Auditor {
        runtime,
        lookups,
        spans: SpanReader::new(config, columns),
        comparison: Comparison::new(FILTER_BYTES, QUESTIONED_MAX, absence.at(now_nanos())),
        absence,
        findings: Findings::new(request.limit),
        reports: parts.iter().map(Part::report).collect(),
        sizing: config.sizing(),
        unread: BTreeMap::new(),
        gone: parts.iter().filter_map(Part::gone).collect(),
        bell: Bell::new(offsets, tell),
    };
    auditor.compare(&reader, &parts)?;
    if auditor.comparison.has_questions() {
        auditor.recount(&reader, &parts)?;
    }
    Ok(auditor.finish(kafka.consumer_group.clone(), sink.table_name()))
}

/// For each shard, one lookup for each of its endpoints.
async fn lookups_in(shards: &[sink::Sink]) -> Result<Vec<Vec<Lookup>>, Error> {
    let mut lookups = Vec::with_capacity(shards.len());
    for shard in shards {
        let nests_seconds = shard.nests_seconds().await.map_err(Error::Sink)?;
        lookups.push(shard.lookups(nests_seconds).map_err(Error::Lookup)?);
    }
    Ok(lookups)
}

/// Why the audit may not see rows of the table, from all shards.
async fn absence_in(shards: &[sink::Sink]) -> Result<Absence, sink::Error> {
    let (mut ttls, mut acting_at_once, mut hides_rows) = (Vec::new(), Vec::new(), false);
    let mut elsewhere = BTreeSet::new();
    for shard in shards {
        let engine = shard.engine().await?;
        elsewhere.extend(RowsElsewhere::of(&engine.name));
        ttls.push(engine.ttl);
        acting_at_once.extend(shard.acting_at_once().await.unwrap_or_default());
        hides_rows |= shard.hides_rows().await?;
    }
    let absence = Absence::new(&ttls, &acting_at_once, hides_rows);
    Ok(elsewhere.into_iter().fold(absence, Absence::with_rows_elsewhere))
}

/// A partition that is audited.
struct Part {
    topic: String,
    partition: i32,
    range: OffsetRange,
    /// The first offset that Kafka has.
    oldest: i64,
    /// Offsets before it that were asked for.
    gone: Option<OffsetRange>,
    committed: Option<i64>,
    letters: Rc<Letters>,
}

impl Part {
    fn offsets(&self) -> u64 {
        self.range.next.saturating_sub(self.range.first).try_into().unwrap_or(0)
    }

    fn gone(&self) -> Option<Gone> {
        let OffsetRange { first, next } = self.gone?;
        Some(Gone { topic: self.topic.clone(), partition: self.partition, first, next, oldest: self.oldest })
    }

    fn report(&self) -> PartitionReport {
        let Self { topic, partition, committed, .. } = self;
        PartitionReport {
            topic: topic.clone(),
            partition: *partition,
            committed: *committed,
            ranges: Vec::new(),
        }
    }
}

fn parts_of(
    reader: &TopicReader,
    topic: &str,
    dead_letters: &str,
    request: &Request,
) -> Result<Vec<Part>, Error> {
    let all = reader.partitions(topic)?;
    for partition in &request.partitions {
        if !all.contains(partition) {
            let (topic, count) = (topic.to_owned(), all.len());
            return Err(Error::UnknownPartition { topic, partition: *partition, count });
        }
    }
    let is_wanted = |partition: &i32| request.partitions.is_empty() || request.partitions.contains(partition);
    let wanted: Vec<i32> = all.into_iter().filter(is_wanted).collect();
    // Before anything is read: everything that is committed now is already in the table.
    let committed = reader.committed(topic, &wanted)?;
    let letters = Rc::new(Letters::read(reader, topic, dead_letters)?);
    let now = now_millis();
    let part = |partition: i32| {
        let bounds = reader.bounds(topic, partition)?;
        let offset = |moment: Option<Moment>, otherwise: i64| match moment.map(|moment| moment.fixed(now)) {
            None => Ok(otherwise),
            Some(Moment::Offset(offset)) => Ok(offset.clamp(bounds.first, bounds.next)),
            Some(Moment::At(millis) | Moment::Ago(millis)) => {
                Ok::<_, Error>(reader.offset_at(topic, partition, millis)?.unwrap_or(bounds.next))
            }
        };
        let first = offset(request.since, bounds.first)?;
        let range = OffsetRange { first, next: offset(request.until, bounds.next)?.max(first) };
        let committed = committed.get(&partition).copied();
        let (oldest, gone) = (bounds.first, gone::of(request.since, request.until, bounds.first));
        Ok(Part {
            topic: topic.to_owned(),
            partition,
            range,
            oldest,
            gone,
            committed,
            letters: letters.clone(),
        })
    };
    wanted.into_iter().map(part).collect()
}

fn now_millis() -> i64 {
    i64::try_from(since_1970().as_millis()).unwrap_or(i64::MAX)
}

fn now_nanos() -> u64 {
    u64::try_from(since_1970().as_nanos()).unwrap_or(u64::MAX)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

struct Auditor<F> {
    runtime: Runtime,
    /// For each shard, one lookup for each of its endpoints.
    lookups: Vec<Vec<Lookup>>,
    spans: SpanReader,
    absence: Absence,
    comparison: Comparison,
    findings: Findings,
    reports: Vec<PartitionReport>,
    /// For the limits that a batch needs.
    sizing: Sizing,
    /// By the index of the partition, what cannot be read of its range.
    unread: BTreeMap<usize, Unread>,
    gone: Vec<Gone>,
    bell: Bell<F>,
}

impl<F: FnMut(&Progress)> Auditor<F> {
    /// The first reading: asks about and judges every chunk.
    fn compare(&mut self, reader: &TopicReader, parts: &[Part]) -> Result<(), Error> {
        self.bell.begin("comparing");
        self.each_chunk(reader, parts, |auditor, chunk, at, range| {
            let rows = auditor.count(&chunk.keys)?;
            auditor.comparison.judge_by(auditor.absence.at(now_nanos()));
            auditor.reports[at].ranges.push(range);
            let report = (&mut auditor.reports[at], &mut auditor.findings);
            auditor.comparison.judge(chunk, &rows, at, report);
            Ok(())
        })
    }

    /// The second reading: counts keys in question.
    fn recount(&mut self, reader: &TopicReader, parts: &[Part]) -> Result<(), Error> {
        self.bell.begin("counting spans that are missing or doubled");
        self.each_chunk(reader, parts, |auditor, chunk, at, _| {
            auditor.comparison.recount(chunk, at, parts[at].committed);
            Ok(())
        })
    }

    /// Reads every partition and passes its chunks, each with its range, to `take`.
    fn each_chunk(
        &mut self,
        reader: &TopicReader,
        parts: &[Part],
        mut take: impl FnMut(&mut Self, &Chunk, usize, RangeReport) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut chunk = Chunk::default();
        for (at, part) in parts.iter().enumerate() {
            let (mut first, mut totals) = (part.range.first, Totals::default());
            let readable = self.readable(at, part);
            let read = reader.read((&part.topic, part.partition), readable, |message| {
                self.spans.read(message, &part.letters, &mut chunk, &mut totals);
                let next = message.offset() + 1;
                self.bell.at(&part.topic, part.partition, part.range.first.abs_diff(next));
                if chunk.is_full() {
                    let range = RangeReport { first, next, totals: std::mem::take(&mut totals) };
                    take(self, &chunk, at, range)?;
                    chunk.clear();
                    first = next;
                }
                Ok::<_, Error>(ControlFlow::Continue(()))
            });
            let end = self.end_of(at, part, read)?;
            take(self, &chunk, at, RangeReport { first, next: end.max(first), totals })?;
            chunk.clear();
            self.bell.done(part.offsets());
        }
        Ok(())
    }

    /// The range of a partition, up to the batch that could not be read before.
    fn readable(&self, at: usize, part: &Part) -> OffsetRange {
        let next = self.unread.get(&at).map_or(part.range.next, |unread| unread.first);
        OffsetRange { next, ..part.range }
    }

    /// Where the reading of a partition ended. A batch that cannot be read ends it, once.
    fn end_of(&mut self, at: usize, part: &Part, read: Result<i64, Error>) -> Result<i64, Error> {
        let Err(Error::Kafka(ReadError::Batch { offset, problem, .. })) = &read else { return read };
        let (first, batch) = (*offset, BadBatch::of(*problem));
        let (Some(batch), false) = (batch, self.unread.contains_key(&at)) else { return read };
        let reason = format!("{batch}{}", batch.advice(&self.sizing));
        let (topic, partition, next) = (part.topic.clone(), part.partition, part.range.next);
        self.unread.insert(at, Unread { topic, partition, first, next, reason });
        Ok(first)
    }

    /// Rows on all shards together: a span with rows on two shards is doubled.
    fn count(&self, keys: &SpanKeys) -> Result<Vec<u64>, Error> {
        let mut sums: Option<Vec<u64>> = None;
        for replicas in &self.lookups {
            let rows = self.count_on(replicas, keys)?;
            sums = Some(match sums {
                None => rows,
                Some(before) => before.into_iter().zip(rows).map(|(before, rows)| before + rows).collect(),
            });
        }
        Ok(sums.expect("the config names at least one shard"))
    }

    /// Asks the servers of a shard, one after another, until one answers.
    fn count_on(&self, replicas: &[Lookup], keys: &SpanKeys) -> Result<Vec<u64>, Error> {
        let mut last = None;
        for lookup in replicas {
            match self.runtime.block_on(lookup.count(keys)) {
                Err(error @ LookupError::Unreachable { .. }) => last = Some(error),
                answer => return answer.map_err(Error::Lookup),
            }
        }
        Err(Error::Lookup(last.expect("the config names at least one endpoint")))
    }

    fn finish(mut self, group: String, table: String) -> Report {
        self.comparison.judge_by(self.absence.at(now_nanos()));
        let inexact_keys = self.comparison.decide(&mut self.reports, &mut self.findings);
        let mut totals = Totals::default();
        self.reports.iter().for_each(|report| totals += report.totals());
        Report {
            group,
            table,
            partitions: self.reports,
            totals,
            findings: self.findings,
            inexact_keys,
            expired_reason: self.absence.wrapped().filter(|_| totals.expired_at_once > 0),
            unseen_reasons: self.absence.reasons(),
            unread: self.unread.into_values().collect(),
            gone: self.gone,
        }
    }
}
