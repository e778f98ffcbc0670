//! The failures that rows survive which a real server has acknowledged: as configured, as applied, and as reported.

use crate::server::Database;
use sluice_clickhouse::durability::Durability as Found;
use sluice_gateway::table::{schema::Report, sink::Sink};
use sluice_gateway_config::{Durability, Engine, Schema, SchemaManagement, Views};

const SYNC: &str = "fsync_after_insert = 1, fsync_part_directory = 1";
const TABLES: [&str; 3] = ["otel_traces", "otel_traces_operations", "otel_traces_trace_id_ts"];

/// A table with views and this durability.
fn asked(durability: Durability) -> Schema {
    Schema {
        management: SchemaManagement::Evolve,
        views: Views { operations: true, trace_times: true },
        durability,
        ..Schema::default()
    }
}

async fn apply(database: &Database, schema: &Schema) -> (Sink, Report) {
    let sink = Sink::new(&database.config(schema.clone())).unwrap();
    let report = sink.apply(schema.management).await.unwrap();
    (sink, report)
}

/// Those of the tables that have both settings.
async fn synced(database: &Database) -> Vec<&'static str> {
    let mut synced = Vec::new();
    for table in TABLES {
        let question = format!(
            "SELECT engine_full FROM system.tables WHERE database = '{}' AND name = '{table}'",
            database.name
        );
        if database.answer(&question).await.contains(SYNC) {
            synced.push(table);
        }
    }
    synced
}

#[tokio::test]
async fn a_table_that_is_made_with_fsync_has_its_settings_and_one_without_has_not() {
    for (durability, found, tables) in
        [(Durability::Process, Found::Process, &[][..]), (Durability::Fsync, Found::Fsync, &TABLES)]
    {
        let database = Database::new(&format!("durable_{durability:?}").to_lowercase()).await;
        let (sink, made) = apply(&database, &asked(durability)).await;
        assert!(made.created && made.differences.is_empty(), "{made}");
        assert_eq!(synced(&database).await, tables);
        assert_eq!(sink.durability().await.unwrap(), Some(found));
        database.drop().await;
    }
}

#[tokio::test]
async fn tables_that_are_there_are_named_and_evolve_gives_them_the_settings() {
    let database = Database::new("durable_later").await;
    apply(&database, &asked(Durability::Process)).await;
    let named = Schema { management: SchemaManagement::CreateIfMissing, ..asked(Durability::Fsync) };
    let (_, report) = apply(&database, &named).await;
    assert_eq!(report.statements, [""; 0]);
    let expected = TABLES.map(|table| {
        format!(
            "durability of {table} is Process, wanted: Fsync; this would take: ALTER TABLE `{}`.`{table}` MODIFY SETTING {SYNC}",
            database.name
        )
    });
    assert_eq!(report.messages(), expected);
    assert!(report.differences.iter().all(|differs| differs.change == "ModifySetting"));
    let (sink, report) = apply(&database, &asked(Durability::Fsync)).await;
    assert_eq!((report.statements.len(), report.differences.len()), (3, 0), "{report}");
    assert_eq!(synced(&database).await, TABLES);
    assert_eq!(sink.durability().await.unwrap(), Some(Found::Fsync));
    // Who asks for less has more than that.
    let (_, report) = apply(&database, &asked(Durability::Process)).await;
    assert_eq!((report.statements.len(), report.differences.len()), (0, 0), "{report}");
    database.drop().await;
}

#[tokio::test]
async fn what_others_have_made_is_read_from_their_table() {
    let database = Database::new("durable_foreign").await;
    let (sink, _) = apply(&database, &asked(Durability::Process)).await;
    let name = &database.name;
    database.execute(&format!("RENAME TABLE {name}.otel_traces TO {name}.kept")).await;
    for (engine, expected) in [
        ("MergeTree ORDER BY x", Some(Found::Process)),
        ("MergeTree ORDER BY x SETTINGS fsync_after_insert = true", Some(Found::Process)),
        ("MergeTree ORDER BY x SETTINGS fsync_part_directory = true", Some(Found::Process)),
        (
            "MergeTree ORDER BY x SETTINGS fsync_part_directory = true, fsync_after_insert = true",
            Some(Found::Fsync),
        ),
        (&format!("ReplacingMergeTree ORDER BY x SETTINGS {SYNC}"), Some(Found::Fsync)),
        ("Memory", None),
        ("Null", None),
    ] {
        database.execute(&format!("CREATE TABLE {name}.otel_traces (x Int32) ENGINE = {engine}")).await;
        assert_eq!(sink.durability().await.unwrap(), expected, "{engine}");
        database.execute(&format!("DROP TABLE {name}.otel_traces SYNC")).await;
    }
    assert!(sink.durability().await.is_err(), "there is no table");
    database.drop().await;
}

#[tokio::test]
async fn a_quorum_of_a_table_without_replicas_is_named() {
    let database = Database::new("durable_quorum").await;
    let plain = Schema { engine: Some(Engine::MergeTree), ..asked(Durability::Process) };
    apply(&database, &plain).await;
    let (sink, report) = apply(&database, &asked(Durability::Quorum)).await;
    let [only] = &report.messages()[..] else { panic!("{report}") };
    assert!(only.starts_with("durability of otel_traces is Process, wanted: Quorum;"), "{only}");
    // The server takes the settings of such an INSERT, and does not wait.
    let columns = sink.check_table().await.unwrap().columns;
    assert!(sink.obstacles(&columns).await.is_empty());
    assert_eq!(sink.durability().await.unwrap(), Some(Found::Process));
    database.drop().await;
}
