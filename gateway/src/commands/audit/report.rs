//! The result of an audit, as text and as JSON.

use serde::Serialize;
use std::{fmt, ops::AddAssign};

/// Numbers of a range, a partition, or all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Messages read.
    pub messages: u64,
    /// Spans in them that must have a row now or later.
    pub spans: u64,
    /// Rows of these spans. A span whose key occurs in several ranges is counted in each.
    pub rows: u64,
    /// Spans before the committed offset without a row: lost.
    pub missing: u64,
    /// Spans without a row that the table's TTL has deleted: not lost.
    pub expired: u64,
    /// Those of them that the TTL has deleted at once although they are not old: its 32 bits wrap.
    pub expired_at_once: u64,
    /// Spans without a row. The audit cannot tell whether they are lost.
    pub unseen: u64,
    /// Rows beyond the first of each span.
    pub doubled: u64,
    /// Spans beyond the committed offset without a row: not inserted yet.
    pub waiting: u64,
    /// Messages that the gateway rejects.
    pub rejected_messages: u64,
    /// Messages in the dead-letter topic.
    pub dead_lettered_messages: u64,
    /// Single spans in the dead-letter topic.
    pub dead_lettered_spans: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.spans += other.spans;
        self.rows += other.rows;
        self.missing += other.missing;
        self.expired += other.expired;
        self.expired_at_once += other.expired_at_once;
        self.unseen += other.unseen;
        self.doubled += other.doubled;
        self.waiting += other.waiting;
        self.rejected_messages += other.rejected_messages;
        self.dead_lettered_messages += other.dead_lettered_messages;
        self.dead_lettered_spans += other.dead_lettered_spans;
    }
}

/// Offsets that were compared together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RangeReport {
    /// The first offset.
    pub first: i64,
    /// One past the last.
    pub next: i64,
    /// Their numbers.
    #[serde(flatten)]
    pub totals: Totals,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionReport {
    pub topic: String,
    pub partition: i32,
    /// The group's committed offset at the start of the audit.
    pub committed: Option<i64>,
    /// Its ranges, in order.
    pub ranges: Vec<RangeReport>,
}

impl PartitionReport {
    /// All ranges together.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.ranges.iter().for_each(|range| totals += range.totals);
        totals
    }
}

/// A span that is missing or doubled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub topic: String,
    pub partition: i32,
    /// The message's offset; the last one if the span is in several messages.
    pub offset: i64,
    /// The span's number in the message, from 0 in the order of the walk.
    pub span: u32,
    /// Its trace id, in hex as in the table.
    pub trace_id: String,
    pub span_id: String,
    /// How often it is in Kafka.
    pub in_kafka: u64,
    /// How many rows it has.
    pub rows: u64,
}

/// The first missing spans and the first doubled spans.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    #[serde(skip)]
    limit: usize,
    missing: Vec<Finding>,
    doubled: Vec<Finding>,
}

impl Findings {
    /// Keeps at most `limit` of each.
    pub fn new(limit: usize) -> Self {
        Self { limit, missing: Vec::new(), doubled: Vec::new() }
    }

    /// Adds a missing span if there is room.
    pub fn missing(&mut self, finding: impl FnOnce() -> Finding) {
        if self.missing.len() < self.limit {
            self.missing.push(finding());
        }
    }

    /// Adds a doubled span if there is room.
    pub fn doubled(&mut self, finding: impl FnOnce() -> Finding) {
        if self.doubled.len() < self.limit {
            self.doubled.push(finding());
        }
    }
}

/// The end of a partition's range that was not compared, because a record batch cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unread {
    pub topic: String,
    pub partition: i32,
    /// The first offset that was not read.
    pub first: i64,
    /// One past the last.
    pub next: i64,
    /// Why, and what helps.
    pub reason: String,
}

/// Offsets of a partition that were asked for, and that Kafka no longer has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gone {
    pub topic: String,
    pub partition: i32,
    /// The first one.
    pub first: i64,
    /// One past the last.
    pub next: i64,
    /// The first offset that Kafka has.
    pub oldest: i64,
}

/// The result of an audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The group whose committed offsets count.
    pub group: String,
    pub table: String,
    /// Every partition.
    pub partitions: Vec<PartitionReport>,
    /// The sums of all partitions.
    pub totals: Totals,
    /// The first spans that are missing or doubled.
    #[serde(flatten)]
    pub findings: Findings,
    /// Keys that were compared only within one range because of limited memory: 0 in an exact audit.
    pub inexact_keys: u64,
    /// Why spans without a row are unseen, not missing.
    pub unseen_reasons: Vec<String>,
    /// Which rows the table's TTL deletes although they are not old, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expired_reason: Option<&'static str>,
    /// What could not be read.
    pub unread: Vec<Unread>,
    /// What was asked for and is no longer in Kafka.
    pub gone: Vec<Gone>,
}

impl Report {
    /// Whether no span before the committed offsets is known to be lost, and none is doubled.
    pub fn is_clean(&self) -> bool {
        self.totals.missing == 0 && self.totals.doubled == 0
    }

    /// Whether the audit sees a row of every span before the committed offsets.
    pub fn is_complete(&self) -> bool {
        self.totals.missing == 0 && self.totals.expired == 0 && self.totals.unseen == 0
    }
}

/// Widths of the columns of numbers.
const WIDTHS: [usize; 8] = [11, 12, 12, 10, 10, 10, 9, 9];

/// Their headings, in the same order.
const HEADS: [&str; 8] =
    ["messages", "spans", "rows", "missing", "doubled", "waiting", "rejected", "letters"];

fn line(f: &mut fmt::Formatter<'_>, name: &str, offsets: &str, totals: Totals) -> fmt::Result {
    write!(f, "{name:<28}{offsets:>26}")?;
    let letters = totals.dead_lettered_messages + totals.dead_lettered_spans;
    let numbers = [
        totals.messages,
        totals.spans,
        totals.rows,
        totals.missing,
        totals.doubled,
        totals.waiting,
        totals.rejected_messages,
        letters,
    ];
    for (number, width) in numbers.into_iter().zip(WIDTHS) {
        write!(f, "{number:>width$}")?;
    }
    writeln!(f)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Kafka against {}, group {}", self.table, self.group)?;
        write!(f, "{:<28}{:>26}", "partition", "offsets")?;
        for (head, width) in HEADS.into_iter().zip(WIDTHS) {
            write!(f, "{head:>width$}")?;
        }
        writeln!(f)?;
        for partition in &self.partitions {
            fmt_partition(f, partition)?;
        }
        line(f, "all", "", self.totals)?;
        fmt_findings(f, "missing", &self.findings.missing, self.totals.missing)?;
        fmt_findings(f, "doubled", &self.findings.doubled, self.totals.doubled)?;
        if self.inexact_keys > 0 {
            let keys = self.inexact_keys;
            writeln!(
                f,
                "not exact: {} only compared within their own range; audit a shorter time",
                counted(keys, "span was", "spans were")
            )?;
        }
        fmt_absent(f, self)?;
        self.unread.iter().try_for_each(|unread| fmt_unread(f, unread))?;
        self.gone.iter().try_for_each(|gone| fmt_gone(f, gone))?;
        fmt_verdict(f, self)
    }
}

/// A number with its noun.
fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// The last line. It leaves out spans if the audit does not know whether they are lost.
fn fmt_verdict(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let Totals { missing, doubled, waiting, unseen, .. } = report.totals;
    let spans = counted(report.totals.spans, "span", "spans");
    let is_whole = report.unread.is_empty() && report.gone.is_empty();
    let part = if is_whole { "" } else { " in the part that was read" };
    if !report.is_clean() {
        return writeln!(
            f,
            "{missing} missing and {doubled} doubled of {spans}{part}, {waiting} of them not inserted yet"
        );
    }
    match unseen {
        0 => writeln!(f, "nothing is missing or doubled{part}: {spans}, {waiting} of them not inserted yet"),
        _ => writeln!(
            f,
            "nothing is doubled{part}, and {unseen} of {spans} may be missing; {waiting} of them are not inserted yet"
        ),
    }
}

fn fmt_unread(f: &mut fmt::Formatter<'_>, unread: &Unread) -> fmt::Result {
    let Unread { topic, partition, first, next, reason } = unread;
    write!(f, "not read: {topic}/{partition} offsets {first}..{next}: {reason}")?;
    match first {
        0 => writeln!(f),
        _ => writeln!(
            f,
            "; to audit the partition without them: --topic {topic} --partition {partition} --until {first}"
        ),
    }
}

fn fmt_gone(f: &mut fmt::Formatter<'_>, gone: &Gone) -> fmt::Result {
    let Gone { topic, partition, first, next, oldest } = gone;
    writeln!(
        f,
        "gone: {topic}/{partition} offsets {first}..{next}: Kafka no longer has them (retention or deleted records), so the audit cannot \
         compare them; the oldest offset in Kafka is {oldest}"
    )
}

/// Spans without a row that are not missing.
fn fmt_absent(f: &mut fmt::Formatter<'_>, report: &Report) -> fmt::Result {
    let Totals { expired, expired_at_once, unseen, .. } = report.totals;
    if expired > 0 {
        let spans = counted(expired, "span has", "spans have");
        write!(f, "expired: {spans} no row: the table's TTL deletes such rows")?;
        if let (Some(reason), 1..) = (report.expired_reason, expired_at_once) {
            let part =
                if expired_at_once == expired { "all".to_owned() } else { expired_at_once.to_string() };
            write!(f, "; {part} of them at once: {reason}")?;
        }
        writeln!(f)?;
    }
    if unseen > 0 {
        let reasons = report.unseen_reasons.join("; ");
        let (spans, they) =
            (counted(unseen, "span", "spans"), if unseen == 1 { "it is" } else { "they are" });
        writeln!(
            f,
            "unseen: the audit sees no row of {spans} and cannot tell whether {they} lost: {reasons}"
        )?;
    }
    Ok(())
}

/// The line of a partition, and lines of its ranges with findings.
fn fmt_partition(f: &mut fmt::Formatter<'_>, partition: &PartitionReport) -> fmt::Result {
    let PartitionReport { topic, partition: number, ranges, .. } = partition;
    let first = ranges.first().map_or(0, |range| range.first);
    let next = ranges.last().map_or(0, |range| range.next);
    line(f, &format!("{topic}/{number}"), &format!("{first}..{next}"), partition.totals())?;
    let is_wrong = |range: &&RangeReport| range.totals.missing > 0 || range.totals.doubled > 0;
    if ranges.len() > 1 {
        for range in ranges.iter().filter(is_wrong) {
            line(f, "  of these", &format!("{}..{}", range.first, range.next), range.totals)?;
        }
    }
    Ok(())
}

fn fmt_findings(f: &mut fmt::Formatter<'_>, what: &str, findings: &[Finding], all: u64) -> fmt::Result {
    let mut told = 0;
    for finding in findings {
        let Finding { topic, partition, offset, span, trace_id, span_id, in_kafka, rows } = finding;
        writeln!(
            f,
            "{what}  {topic}/{partition} offset {offset} span {span}  trace {trace_id} span {span_id}  \
             {in_kafka} in Kafka, {rows} in the table"
        )?;
        told += in_kafka.abs_diff(*rows).max(1);
    }
    match all.saturating_sub(told) {
        0 => Ok(()),
        more => writeln!(f, "and {more} more are {what}"),
    }
}
