//! The server says which rules of a TTL act on new rows at once, in any spelling.

use crate::server::Database;
use sluice_gateway::table::sink::Sink;
use sluice_gateway_config::{Duration, Layout, Schema, SchemaManagement};

/// A rule, and what is said of its type; `None` if it keeps new rows.
const RULES: [(&str, Option<&str>); 12] = [
    ("toDateTime(Timestamp) + toIntervalDay(3)", None),
    ("toDateTime(Timestamp) + toIntervalDay(29000)", Some("DateTime, which has 32 bits")),
    (
        "toDateTime(Timestamp, 'UTC') + toIntervalSecond(2505600000)",
        Some("DateTime('UTC'), which has 32 bits"),
    ),
    ("toDateTime(Timestamp) + toIntervalYear(80)", Some("32 bits")),
    ("toDateTime(Timestamp) + 2505600000", Some("32 bits")),
    ("CAST(Timestamp, 'DateTime') + toIntervalDay(29000)", Some("32 bits")),
    ("addDays(toDateTime(Timestamp), 29000)", Some("32 bits")),
    ("toStartOfDay(Timestamp) + toIntervalDay(29000)", Some("32 bits")),
    ("toDate(Timestamp) + toIntervalDay(50000)", Some("Date, which has 16 bits")),
    ("Timestamp + toIntervalDay(100000)", Some("DateTime64(9)")),
    ("toDate(Timestamp) + toIntervalDay(30)", None),
    // It reads another column: nothing is known.
    ("toDateTime(Timestamp) + toIntervalDay(Duration)", None),
];

async fn table(test: &str) -> (Database, Sink) {
    let database = Database::new(test).await;
    let schema =
        Schema { layout: Some(Layout::Map), ttl: Some(Duration::secs(30 * 86_400)), ..Schema::default() };
    let sink = Sink::new(&database.config(schema)).unwrap();
    sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    (database, sink)
}

async fn modify(database: &Database, ttl: &str) {
    database.execute(&format!("ALTER TABLE {}.otel_traces MODIFY TTL {ttl}", database.name)).await;
}

#[tokio::test]
async fn a_ttl_that_deletes_new_rows_at_once_is_told_in_any_spelling() {
    let (database, sink) = table("ttl_at_once").await;
    assert_eq!(sink.acting_at_once().await, Some(Vec::new()));
    for (rule, told) in RULES {
        modify(&database, rule).await;
        let rules = sink.acting_at_once().await.unwrap();
        assert_eq!(rules.len(), usize::from(told.is_some()), "{rule}: {rules:?}");
        let report = sink.differences(&mut |_| ()).await.unwrap();
        let [differs] = report.messages()[..] else { panic!("{rule}: {report}") };
        if let (Some(told), Some(found)) = (told, rules.first()) {
            let text = found.to_string();
            assert!(text.contains("deletes every new row at once: ") && text.contains(told), "{text}");
            assert!(differs.contains("deletes every new row at once"), "{differs}");
        }
    }
    database.drop().await;
}

#[tokio::test]
async fn every_rule_of_a_ttl_is_read_in_any_order() {
    let (database, sink) = table("ttl_rules").await;
    let (wanted, old, wraps) = (
        "toDateTime64(Timestamp, 0) + toIntervalDay(30)",
        "Timestamp + toIntervalDay(1) DELETE WHERE SpanName = 'a, (b'",
        "toDateTime(Timestamp) + toIntervalDay(29000) DELETE WHERE SpanName = 'x'",
    );
    modify(&database, &format!("{wanted}, Timestamp + toIntervalDay(1) RECOMPRESS CODEC(ZSTD(17))")).await;
    assert_eq!(sink.differences(&mut |_| ()).await.unwrap().messages(), Vec::<&str>::new());
    for ttl in [format!("{wanted}, {old}, {wraps}"), format!("{wraps}, {old}, {wanted}")] {
        modify(&database, &ttl).await;
        let ttl = sink.engine().await.unwrap().ttl;
        assert_eq!(ttl.age(), Some(std::time::Duration::from_hours(720)), "{ttl:?}");
        assert_eq!(ttl.others().len(), 2, "{ttl:?}");
        let report = sink.differences(&mut |_| ()).await.unwrap();
        let [differs] = report.messages()[..] else { panic!("{report}") };
        assert!(
            differs.contains("WHERE SpanName = 'x' deletes new rows at once that fulfil its condition"),
            "{differs}"
        );
        assert!(differs.contains("also deletes rows by Timestamp + toIntervalDay(1) WHERE"), "{differs}");
    }
    database.drop().await;
}
