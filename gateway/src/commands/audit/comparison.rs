//! Compares Kafka's spans with the table's rows: which are missing, which are doubled. Pure.
//!
//! A key that occurs k times in Kafka must have k rows. Keys are judged chunk by chunk, as soon as their rows are counted:
//!
//! | rows of a key | seen in an earlier chunk | verdict |
//! | --- | --- | --- |
//! | as many as it has spans in the chunk | no | fine |
//! | none | either | each of its spans is missing (or as [`Absence`](super::absence) decides), or waiting beyond the committed offset |
//! | any other number | | in question |
//!
//! The verdict on a key in question depends on how often the key occurs in the whole audited range. Kafka is read again, and only keys in
//! question are counted: [`Comparison::recount`], then [`Comparison::decide`].
//!
//! A span beyond the committed offset may have a row or not; only spans before it can be missing.
//!
//! Limits: the [`Filter`], and [`QUESTIONED_MAX`] keys in question; further keys are judged only by their chunk, and the audit reports
//! their number.

use super::{
    absence::{AbsenceRule, Absent},
    chunk::{Chunk, KeyHash, Occurrence},
    filter::Filter,
    report::{Finding, Findings, PartitionReport, Totals},
};
use std::collections::HashMap;

/// Maximum number of keys in question. Chosen: about 120 bytes each; there are few unless whole blocks are doubled, and then the keys of
/// the ten largest blocks fit.
pub const QUESTIONED_MAX: usize = 1_000_000;

/// A key whose number of rows differs from its number of spans in one chunk.
#[derive(Debug)]
struct Questioned {
    rows: u64,
    /// Spans before the committed offset, and beyond it.
    behind: u64,
    beyond: u64,
    /// The position of the last of them: index of the partition, and place in it.
    last: (usize, Occurrence),
    timestamp_nanos: i64,
    trace_id: Box<[u8]>,
    span_id: Box<[u8]>,
}

/// The verdict on a key of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Fine,
    Absent,
    InQuestion,
    /// In question, but there is no room for it.
    ByChunk,
}

/// How often a key occurs in a chunk.
#[derive(Debug, Clone, Copy)]
struct Times {
    behind: u64,
    beyond: u64,
    last: Occurrence,
}

/// The knowledge about all keys so far.
pub struct Comparison {
    filter: Filter,
    questioned: HashMap<KeyHash, Questioned>,
    questioned_max: usize,
    /// How spans without a row are judged.
    absence: AbsenceRule,
    /// Number of keys that were judged only by their chunk.
    by_chunk: u64,
}

impl Comparison {
    /// An empty comparison.
    pub fn new(filter_bytes: usize, questioned_max: usize, absence: AbsenceRule) -> Self {
        let (filter, questioned) = (Filter::new(filter_bytes), HashMap::new());
        Self { filter, questioned, questioned_max, absence, by_chunk: 0 }
    }

    /// From now on, judges spans without a row by this rule, because rows expire while an audit runs.
    pub fn judge_by(&mut self, absence: AbsenceRule) {
        self.absence = absence;
    }

    /// Judges a chunk of the partition with this index. `rows` has the number of rows of each key. The chunk's range is the last one of the
    /// partition.
    pub fn judge(
        &mut self,
        chunk: &Chunk,
        rows: &[u64],
        at: usize,
        report: (&mut PartitionReport, &mut Findings),
    ) {
        let (partition, findings) = report;
        let committed = partition.committed;
        let times = times(chunk, committed);
        let verdicts: Vec<Verdict> =
            (0..times.len()).map(|key| self.verdict(chunk, key, rows[key], (times[key], at))).collect();
        let totals = &mut partition.ranges.last_mut().expect("a chunk has a range").totals;
        totals.rows += rows.iter().sum::<u64>();
        for occurrence in &chunk.occurrences {
            if verdicts[occurrence.key as usize] != Verdict::Absent {
                continue;
            }
            if !is_behind(occurrence, committed) {
                totals.waiting += 1;
                continue;
            }
            let key = occurrence.key as usize;
            if count_absent(totals, self.absence.of(chunk.timestamps[key]), 1) == Absent::Missing {
                let ids = chunk.keys.ids(key);
                findings.missing(|| finding(&partition.topic, partition.partition, occurrence, ids, (1, 0)));
            }
        }
        for (key, verdict) in verdicts.iter().enumerate() {
            if *verdict == Verdict::ByChunk {
                self.by_chunk += 1;
                let Times { behind, beyond, last } = times[key];
                let absent = self.absence.of(chunk.timestamps[key]);
                let counted = Counted { behind, beyond, rows: rows[key], absent };
                settle(partition, findings, &last, chunk.keys.ids(key), counted);
            }
        }
    }

    fn verdict(&mut self, chunk: &Chunk, key: usize, rows: u64, (times, at): (Times, usize)) -> Verdict {
        let hash = chunk.hashes[key];
        let was_seen = self.filter.add(hash);
        if let Some(questioned) = self.questioned.get_mut(&hash) {
            questioned.rows = rows;
            return Verdict::InQuestion;
        }
        match rows {
            0 => Verdict::Absent,
            _ if !was_seen && rows == times.behind + times.beyond => Verdict::Fine,
            _ if self.questioned.len() >= self.questioned_max => Verdict::ByChunk,
            _ => {
                let (trace_id, span_id) = chunk.keys.ids(key);
                let questioned = Questioned {
                    rows,
                    behind: 0,
                    beyond: 0,
                    last: (at, times.last),
                    timestamp_nanos: chunk.timestamps[key],
                    trace_id: trace_id.into(),
                    span_id: span_id.into(),
                };
                self.questioned.insert(hash, questioned);
                Verdict::InQuestion
            }
        }
    }

    /// Whether Kafka must be read again.
    pub fn has_questions(&self) -> bool {
        !self.questioned.is_empty()
    }

    /// Counts the keys in question in a chunk of the second reading.
    pub fn recount(&mut self, chunk: &Chunk, at: usize, committed: Option<i64>) {
        for occurrence in &chunk.occurrences {
            let Some(questioned) = self.questioned.get_mut(&chunk.hashes[occurrence.key as usize]) else {
                continue;
            };
            if is_behind(occurrence, committed) {
                questioned.behind += 1;
            } else {
                questioned.beyond += 1;
            }
            questioned.last = (at, *occurrence);
        }
    }

    /// Decides the keys in question. Returns how many keys were judged only by their chunk, which may be wrong for keys in several chunks.
    pub fn decide(self, partitions: &mut [PartitionReport], findings: &mut Findings) -> u64 {
        let mut questioned: Vec<Questioned> = self.questioned.into_values().collect();
        questioned.sort_unstable_by_key(|q| (q.last.0, q.last.1.offset, q.last.1.row));
        for key in questioned {
            let Questioned { rows, behind, beyond, last: (at, last), timestamp_nanos, .. } = key;
            let counted = Counted { behind, beyond, rows, absent: self.absence.of(timestamp_nanos) };
            settle(&mut partitions[at], findings, &last, (&key.trace_id, &key.span_id), counted);
        }
        self.by_chunk
    }
}

/// The final numbers of a key.
#[derive(Debug, Clone, Copy)]
struct Counted {
    behind: u64,
    beyond: u64,
    rows: u64,
    /// How its spans without a row are judged.
    absent: Absent,
}

/// Records the result of a key's numbers, in the range of its last span.
fn settle(
    partition: &mut PartitionReport,
    findings: &mut Findings,
    last: &Occurrence,
    ids: (&[u8], &[u8]),
    Counted { behind, beyond, rows, absent }: Counted,
) {
    let found = || finding(&partition.topic, partition.partition, last, ids, (behind + beyond, rows));
    let (missing, doubled) = (behind.saturating_sub(rows), rows.saturating_sub(behind + beyond));
    if missing > 0 && absent == Absent::Missing {
        findings.missing(found);
    }
    if doubled > 0 {
        findings.doubled(found);
    }
    let index = partition.ranges.partition_point(|range| range.next <= last.offset);
    let totals = &mut partition.ranges[index].totals;
    count_absent(totals, absent, missing);
    totals.doubled += doubled;
    totals.waiting += (behind + beyond).saturating_sub(rows).min(beyond);
}

/// Counts spans without a row by their kind, which is returned.
fn count_absent(totals: &mut Totals, absent: Absent, spans: u64) -> Absent {
    match absent {
        Absent::Missing => totals.missing += spans,
        Absent::Expired => totals.expired += spans,
        Absent::ExpiredAtOnce => {
            totals.expired += spans;
            totals.expired_at_once += spans;
        }
        Absent::Unseen => totals.unseen += spans,
    }
    absent
}

fn times(chunk: &Chunk, committed: Option<i64>) -> Vec<Times> {
    let nowhere = Occurrence { key: 0, row: 0, offset: 0 };
    let mut times = vec![Times { behind: 0, beyond: 0, last: nowhere }; chunk.keys.len()];
    for occurrence in &chunk.occurrences {
        let times = &mut times[occurrence.key as usize];
        if is_behind(occurrence, committed) {
            times.behind += 1;
        } else {
            times.beyond += 1;
        }
        times.last = *occurrence;
    }
    times
}

/// Whether the group has committed beyond it. `false` without a commit.
fn is_behind(occurrence: &Occurrence, committed: Option<i64>) -> bool {
    committed.is_some_and(|committed| occurrence.offset < committed)
}

fn finding(
    topic: &str,
    partition: i32,
    occurrence: &Occurrence,
    (trace_id, span_id): (&[u8], &[u8]),
    (in_kafka, rows): (u64, u64),
) -> Finding {
    Finding {
        topic: topic.to_owned(),
        partition,
        offset: occurrence.offset,
        span: occurrence.row,
        trace_id: hex(trace_id),
        span_id: hex(span_id),
        in_kafka,
        rows,
    }
}

fn hex(id: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).expect("four bits are a digit");
    id.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

#[cfg(test)]
mod tests;
