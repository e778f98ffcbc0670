use super::super::absence::Absence;
use super::super::report::{Gone, RangeReport, Report, Totals, Unread};
use super::*;
use proptest::prelude::*;
use sluice_clickhouse::ttl::RowTtl;
use std::{collections::BTreeMap, time::Duration};

/// A span of a small world: its key. The table is given separately.
type Key = u8;

/// Messages of a partition, one list of keys each; and up to where they are committed.
#[derive(Debug, Clone)]
struct Log {
    messages: Vec<Vec<Key>>,
    committed: Option<i64>,
}

fn ids(key: Key) -> [u8; 8] {
    u64::from(key).to_be_bytes()
}

/// Chunks of this many messages.
fn chunks(log: &Log, messages: usize) -> Vec<(RangeReport, Chunk)> {
    let mut chunks = Vec::new();
    for (number, part) in log.messages.chunks(messages).enumerate() {
        let (mut chunk, first) = (Chunk::default(), number * messages);
        for (step, keys) in part.iter().enumerate() {
            for (row, key) in keys.iter().enumerate() {
                let place = (i64::try_from(first + step).unwrap(), u32::try_from(row).unwrap());
                chunk.add(place, (&ids(*key), &[1]), 7);
            }
        }
        let next = i64::try_from(first + part.len()).unwrap();
        let first = i64::try_from(first).unwrap();
        chunks.push((RangeReport { first, next, totals: Totals::default() }, chunk));
    }
    chunks
}

struct Outcome {
    totals: Totals,
    partitions: Vec<PartitionReport>,
    findings: Findings,
    inexact: u64,
}

/// Audits logs against a table, as the auditor does.
fn audit(
    logs: &[Log],
    table: &BTreeMap<Key, u64>,
    chunk_messages: usize,
    mut comparison: Comparison,
) -> Outcome {
    let mut findings = Findings::new(1_000);
    let mut partitions: Vec<PartitionReport> = (0..)
        .zip(logs)
        .map(|(partition, log)| PartitionReport {
            topic: "spans".into(),
            partition,
            committed: log.committed,
            ranges: Vec::new(),
        })
        .collect();
    for (at, log) in logs.iter().enumerate() {
        for (range, chunk) in chunks(log, chunk_messages) {
            let rows: Vec<u64> = (0..chunk.keys.len())
                .map(|key| table.get(&chunk.keys.ids(key).0[7]).copied().unwrap_or(0))
                .collect();
            partitions[at].ranges.push(range);
            comparison.judge(&chunk, &rows, at, (&mut partitions[at], &mut findings));
        }
    }
    if comparison.has_questions() {
        for (at, log) in logs.iter().enumerate() {
            for (_, chunk) in chunks(log, chunk_messages) {
                comparison.recount(&chunk, at, log.committed);
            }
        }
    }
    let inexact = comparison.decide(&mut partitions, &mut findings);
    let mut totals = Totals::default();
    for partition in &partitions {
        totals += partition.totals();
    }
    Outcome { totals, partitions, findings, inexact }
}

fn one(messages: &[&[Key]], committed: i64) -> [Log; 1] {
    [Log { messages: messages.iter().map(|keys| keys.to_vec()).collect(), committed: Some(committed) }]
}

fn comparison() -> Comparison {
    Comparison::new(1 << 10, 1_000, Absence::default().at(0))
}

#[test]
fn a_span_that_is_lost_and_one_that_is_doubled_are_named() {
    let logs = one(&[&[1, 2], &[3, 4], &[5]], 3);
    let table = BTreeMap::from([(1, 1), (2, 1), (3, 2), (5, 1)]);
    let Outcome { totals, partitions, findings, .. } = audit(&logs, &table, 1, comparison());
    assert_eq!((totals.missing, totals.doubled, totals.waiting, totals.rows), (1, 1, 0, 5));
    assert_eq!((partitions[0].ranges[1].totals.missing, partitions[0].ranges[1].totals.doubled), (1, 1));
    let found = |key, row, rows| Finding {
        topic: "spans".into(),
        partition: 0,
        offset: 1,
        span: row,
        trace_id: format!("{key:016x}"),
        span_id: "01".into(),
        in_kafka: 1,
        rows,
    };
    let mut expected = Findings::new(1_000);
    expected.missing(|| found(4, 1, 0));
    expected.doubled(|| found(3, 0, 2));
    assert_eq!(findings, expected);
}

#[test]
fn what_its_producer_sent_twice_must_be_there_twice() {
    let logs = one(&[&[1], &[2], &[1]], 3);
    for (rows, missing, doubled) in [(0, 2, 0), (1, 1, 0), (2, 0, 0), (3, 0, 1)] {
        for chunk_messages in [1, 2, 3] {
            let table = BTreeMap::from([(1, rows), (2, 1)]);
            let Outcome { totals, .. } = audit(&logs, &table, chunk_messages, comparison());
            assert_eq!((totals.missing, totals.doubled), (missing, doubled), "{rows} rows");
        }
    }
}

#[test]
fn what_is_not_committed_may_be_there_and_may_not() {
    let logs = one(&[&[1], &[2], &[3, 4]], 1);
    let Outcome { totals, .. } = audit(&logs, &BTreeMap::from([(1, 1), (3, 1)]), 2, comparison());
    assert_eq!((totals.missing, totals.doubled, totals.waiting), (0, 0, 2));
    let doubled = BTreeMap::from([(1, 1), (3, 2)]);
    assert_eq!(audit(&logs, &doubled, 2, comparison()).totals.doubled, 1);
    let nobody_committed = [Log { committed: None, ..logs[0].clone() }];
    let Outcome { totals, .. } = audit(&nobody_committed, &BTreeMap::new(), 2, comparison());
    assert_eq!((totals.missing, totals.waiting), (0, 4));
}

#[test]
fn more_findings_than_are_listed_are_counted() {
    let logs = one(&[&[1, 2, 3, 4, 5]], 1);
    let mut findings = Findings::new(2);
    let (range, chunk) = chunks(&logs[0], 1).remove(0);
    let mut partition =
        PartitionReport { topic: "spans".into(), partition: 0, committed: Some(1), ranges: vec![range] };
    comparison().judge(&chunk, &[0; 5], 0, (&mut partition, &mut findings));
    assert_eq!(partition.totals().missing, 5);
    let report = Report {
        group: "g".into(),
        table: "otel.otel_traces".into(),
        totals: partition.totals(),
        partitions: vec![partition],
        findings,
        inexact_keys: 0,
        unseen_reasons: Vec::new(),
        expired_reason: None,
        unread: Vec::new(),
        gone: Vec::new(),
    };
    let text = report.to_string();
    assert_eq!(text.matches("missing  spans/0").count(), 2, "{text}");
    assert!(text.contains("and 3 more are missing"), "{text}");
    assert!(text.ends_with("5 missing and 0 doubled of 0 spans, 0 of them not inserted yet\n"), "{text}");
}

#[test]
fn the_last_line_of_a_report_contradicts_no_other() {
    let report = |totals: Totals, unread: Vec<Unread>| Report {
        group: "g".into(),
        table: "otel.otel_traces".into(),
        partitions: Vec::new(),
        totals,
        findings: Findings::new(0),
        inexact_keys: 0,
        unseen_reasons: vec!["a row policy hides rows".into()],
        expired_reason: None,
        unread,
        gone: Vec::new(),
    };
    let text = report(Totals { spans: 5, ..Totals::default() }, Vec::new()).to_string();
    assert!(
        text.ends_with("\nnothing is missing or doubled: 5 spans, 0 of them not inserted yet\n"),
        "{text}"
    );
    let text = report(Totals { spans: 5, unseen: 2, ..Totals::default() }, Vec::new()).to_string();
    assert!(text.contains("no row of 2 spans and cannot tell whether they are lost: a row policy"), "{text}");
    assert!(!text.contains("nothing is missing"), "{text}");
    assert!(
        text.ends_with(
            "\nnothing is doubled, and 2 of 5 spans may be missing; 0 of them are not inserted yet\n"
        ),
        "{text}"
    );
    let text =
        report(Totals { spans: 1, unseen: 1, expired: 1, ..Totals::default() }, Vec::new()).to_string();
    assert!(text.contains("no row of 1 span and cannot tell whether it is lost"), "{text}");
    assert!(text.contains("expired: 1 span has no row") && !text.contains("1 spans"), "{text}");
    let unread =
        Unread { topic: "spans".into(), partition: 0, first: 3, next: 9, reason: "too large".into() };
    let text = report(Totals { spans: 5, ..Totals::default() }, vec![unread]).to_string();
    assert!(text.contains("not read: spans/0 offsets 3..9: too large; to audit the partition"), "{text}");
    assert!(text.contains("--topic spans --partition 0 --until 3\n"), "{text}");
    assert!(text.contains("nothing is missing or doubled in the part that was read: 5 spans"), "{text}");
}

#[test]
fn offsets_that_kafka_no_longer_has_are_named_in_text_and_json() {
    let gone = Gone { topic: "spans".into(), partition: 3, first: 0, next: 10, oldest: 1_400 };
    let report = Report {
        group: "g".into(),
        table: "otel.otel_traces".into(),
        partitions: Vec::new(),
        totals: Totals::default(),
        findings: Findings::new(0),
        inexact_keys: 0,
        unseen_reasons: Vec::new(),
        expired_reason: None,
        unread: Vec::new(),
        gone: vec![gone],
    };
    let text = report.to_string();
    assert!(text.contains("gone: spans/3 offsets 0..10: Kafka no longer has them (retention or "), "{text}");
    assert!(
        text.contains("; the oldest offset in Kafka is 1400\nnothing is missing or doubled in the part ")
    );
    let json = serde_json::to_value(&report).unwrap();
    let expected =
        serde_json::json!([{"topic": "spans", "partition": 3, "first": 0, "next": 10, "oldest": 1400}]);
    assert_eq!(json["gone"], expected);
}

#[test]
fn what_a_ttl_deleted_or_a_policy_hides_is_not_missing() {
    // Every row has the timestamp 7; the key 1 is in Kafka twice and has one row.
    let logs = one(&[&[1, 2], &[1, 3], &[4]], 2);
    let table = BTreeMap::from([(1, 1)]);
    let counted = |absence: AbsenceRule| {
        let Outcome { totals, findings, .. } =
            audit(&logs, &table, 1, Comparison::new(1 << 10, 1_000, absence));
        assert_eq!(totals.waiting, 1, "the span of key 4 is not committed");
        let has_findings = findings != Findings::new(1_000);
        ([totals.missing, totals.expired, totals.unseen], has_findings)
    };
    assert_eq!(counted(Absence::default().at(0)), ([3, 0, 0], true));
    let second = Absence::new(&[RowTtl::of_age(Duration::from_nanos(1))], &[], true);
    assert_eq!(counted(second.at(9)), ([0, 3, 0], false));
    assert_eq!(counted(second.at(8)), ([0, 0, 3], false));
    // A rule with a condition may have deleted what another rule keeps.
    let ttl = "MergeTree ORDER BY a TTL Timestamp + toIntervalDay(30), Timestamp + toIntervalDay(1) WHERE a = 1 SETTINGS b = 1";
    let several = Absence::new(&[RowTtl::in_engine(ttl)], &[], false);
    let days = |days: u64| days * 86_400_000_000_000 + 8;
    assert_eq!(counted(several.at(days(29))), ([0, 0, 3], false));
    assert_eq!(counted(several.at(days(30))), ([0, 3, 0], false));
}

#[test]
fn only_spans_that_a_ttl_of_32_bits_deleted_at_once_have_the_reason() {
    let text = |expired: u64, expired_at_once: u64| {
        let report = Report {
            group: "g".into(),
            table: "otel.otel_traces".into(),
            partitions: Vec::new(),
            totals: Totals { spans: 9, expired, expired_at_once, ..Totals::default() },
            findings: Findings::new(0),
            inexact_keys: 0,
            unseen_reasons: Vec::new(),
            expired_reason: Some("the present TTL has 32 bits"),
            unread: Vec::new(),
            gone: Vec::new(),
        };
        report.to_string()
    };
    let rows = "no row: the table's TTL deletes such rows";
    assert!(text(3, 0).contains(&format!("expired: 3 spans have {rows}\n")));
    assert!(text(3, 2).contains(&format!(
        "expired: 3 spans have {rows}; 2 of them at once: the present TTL has 32 bits\n"
    )));
    assert!(
        text(3, 3).contains(&format!("expired: 3 spans have {rows}; all of them at once: the present TTL"))
    );
}

fn logs() -> impl Strategy<Value = Vec<Log>> {
    let message = prop::collection::vec(0u8..12, 0..4);
    let log = (prop::collection::vec(message, 0..8), prop::option::of(0i64..9))
        .prop_map(|(messages, committed)| Log { messages, committed });
    prop::collection::vec(log, 1..4)
}

proptest! {
    /// Compares with a naive count of everything at once. For any partitions, chunks, filter errors and order, every span that is missing,
    /// doubled or waiting is counted, and nothing else is.
    #[test]
    fn exactly_what_is_missing_or_doubled_is_found(
        logs in logs(), rows in prop::collection::btree_map(0u8..12, 0u64..5, 0..12),
        chunk_messages in 1usize..5, filter_bytes in prop_oneof![Just(1usize), Just(1_024)],
    ) {
        let mut spans: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
        for log in &logs {
            for (offset, keys) in (0..).zip(&log.messages) {
                for key in keys {
                    let (behind, beyond) = spans.entry(*key).or_default();
                    *(if log.committed.is_some_and(|committed| offset < committed) { behind } else { beyond }) += 1;
                }
            }
        }
        let mut expected = (0, 0, 0);
        for (key, (behind, beyond)) in spans {
            let rows = rows.get(&key).copied().unwrap_or(0);
            expected.0 += behind.saturating_sub(rows);
            expected.1 += rows.saturating_sub(behind + beyond);
            expected.2 += (behind + beyond).saturating_sub(rows).min(beyond);
        }
        let outcome = audit(&logs, &rows, chunk_messages, Comparison::new(filter_bytes, 1_000, Absence::default().at(0)));
        let Totals { missing, doubled, waiting, .. } = outcome.totals;
        prop_assert_eq!((missing, doubled, waiting), expected);
        prop_assert_eq!(outcome.inexact, 0);
    }

    /// Without room for keys in question, the keys that were not compared exactly are counted.
    #[test]
    fn an_audit_that_is_not_exact_says_so(logs in logs(), rows in prop::collection::btree_map(0u8..12, 1u64..5, 0..12)) {
        let exact = audit(&logs, &rows, 2, Comparison::new(1_024, 1_000, Absence::default().at(0)));
        let rough = audit(&logs, &rows, 2, Comparison::new(1_024, 0, Absence::default().at(0)));
        let numbers = |outcome: &Outcome| (outcome.totals.missing, outcome.totals.doubled, outcome.totals.waiting);
        prop_assert!(rough.inexact > 0 || numbers(&exact) == numbers(&rough));
    }
}
