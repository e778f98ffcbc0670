//! A table is created, compared, extended and left unchanged, as the config says.

use crate::{
    messages::{message, span},
    server::{Database, frames, send},
};
use sluice_gateway::{
    commands::ddl,
    table::{schema::Report, sink::Sink},
};
use sluice_gateway_config::{
    Duration, Engine, ExtraColumn, Insert, Layout, Schema, SchemaManagement, TypedPaths, Views,
};

const LAYOUTS: [Layout; 3] = [Layout::Json, Layout::Map, Layout::Nested];

/// What a config may ask for, all of it, in a layout.
fn asked(layout: Layout) -> Schema {
    let typed = [("http.response.status_code".to_owned(), "Nullable(Int64)".to_owned())].into();
    Schema {
        management: SchemaManagement::Evolve,
        layout: Some(layout),
        engine: Some(Engine::MergeTree),
        ttl: Some(Duration::secs(720 * 3_600)),
        order_by: ["ServiceName", "toStartOfHour(Timestamp)", "SpanName"].map(str::to_owned).into(),
        max_dynamic_paths: (layout == Layout::Json).then_some(16),
        typed_paths: if layout == Layout::Json {
            TypedPaths { span: typed, ..TypedPaths::default() }
        } else {
            TypedPaths::default()
        },
        columns: vec![column("Host", "LowCardinality(String)", "concat(ServiceName, '@')")],
        views: Views { operations: true, trace_times: true },
        deduplication_window: Some(12_345),
        ..Schema::default()
    }
}

fn column(name: &str, type_name: &str, default: &str) -> ExtraColumn {
    ExtraColumn { name: name.into(), r#type: type_name.into(), default: Some(default.into()) }
}

fn sink(database: &Database, schema: Schema) -> Sink {
    Sink::new(&database.config(schema)).unwrap()
}

/// What differs.
async fn differences(database: &Database, schema: &Schema) -> Report {
    sink(database, schema.clone()).differences(&mut |_| ()).await.unwrap()
}

async fn apply(database: &Database, schema: &Schema) -> Report {
    let management = schema.management;
    sink(database, schema.clone()).apply(management).await.unwrap()
}

#[tokio::test]
async fn every_layout_is_made_as_asked_and_then_nothing_differs() {
    for layout in LAYOUTS {
        let database = Database::new(&format!("schema_{layout:?}").to_lowercase()).await;
        let schema = asked(layout);
        assert_eq!(
            differences(&database, &schema).await.messages().len(),
            3,
            "a table and two views are missing"
        );
        let made = apply(&database, &schema).await;
        assert!(made.created && made.differences.is_empty(), "{made}");
        assert_eq!(made.statements.len(), 6, "{made}");
        assert_eq!(differences(&database, &schema).await.differences, [], "{layout:?}");
        let again = apply(&database, &schema).await;
        assert!(!again.created && again.statements.is_empty() && again.differences.is_empty(), "{again}");
        database.drop().await;
    }
}

/// Times of spans, as text.
const TIMES: [&str; 4] =
    ["2026-06-01 00:00:00", "2106-03-01 00:00:00", "2200-06-01 12:00:00", "2262-01-01 00:00:00"];

/// What a table and its views have kept of rows of these times, by a table that drops them after this many days.
async fn kept(days: u64, name: &str) -> Vec<String> {
    let database = Database::new(name).await;
    let schema = Schema { ttl: Some(Duration::secs(days * 86_400)), ..asked(Layout::Json) };
    apply(&database, &schema).await;
    for time in TIMES {
        let row = format!(
            "SELECT toDateTime64('{time}', 9, 'UTC') AS Timestamp, 't' AS TraceId, '{time}' AS ServiceName"
        );
        database
            .execute(&format!(
                "INSERT INTO {name}.otel_traces (Timestamp, TraceId, ServiceName) {row}",
                name = database.name
            ))
            .await;
    }
    for table in ["otel_traces", "otel_traces_operations", "otel_traces_trace_id_ts"] {
        database.execute(&format!("OPTIMIZE TABLE {}.{table} FINAL", database.name)).await;
    }
    let mut found = Vec::new();
    for time in TIMES {
        // By the time, so that the partition is chosen by it.
        let is_there = format!(
            "Timestamp >= toDateTime64('{time}', 9, 'UTC') AND Timestamp <= toDateTime64('{time}', 9, 'UTC')"
        );
        let rows = database.ask(&format!("toString(countIf({is_there}))")).await;
        let only = format!("SELECT toString(count()) FROM {}.otel_traces WHERE {is_there}", database.name);
        assert_eq!(database.answer(&only).await, rows, "{time}");
        let operations = format!(
            "SELECT toString(count()) FROM {}.otel_traces_operations WHERE ServiceName = '{time}'",
            database.name
        );
        found.push(format!("{rows}{}", database.answer(&operations).await));
    }
    database.drop().await;
    found
}

#[tokio::test]
async fn a_table_keeps_rows_of_every_time_for_as_long_as_it_is_asked_to() {
    assert_eq!(kept(36_500, "schema_century").await, ["11", "11", "11", "11"]);
    assert_eq!(kept(30, "schema_month").await, ["00", "11", "11", "11"], "the first is older than a month");
}

#[tokio::test]
async fn columns_added_by_hand_are_tolerated_and_evolve_adds_what_is_asked_for() {
    for layout in LAYOUTS {
        let database = Database::new(&format!("evolve_{layout:?}").to_lowercase()).await;
        let mut schema = Schema { layout: Some(layout), ..Schema::default() };
        apply(&database, &schema).await;
        database.insert(&message(vec![span(vec![])])).await;
        let table = format!("ALTER TABLE {}.otel_traces", database.name);
        database.execute(&format!("{table} ADD COLUMN Tenant String DEFAULT 'none'")).await;
        assert_eq!(differences(&database, &schema).await.differences, [], "{layout:?}");
        // Asked for, it is named; only Evolve adds it.
        schema.columns = vec![column("Host", "LowCardinality(String)", "concat(ServiceName, '@')")];
        let named = apply(&database, &schema).await;
        assert_eq!(named.statements, [""; 0]);
        assert_eq!(
            named.messages(),
            [format!(
                "column Host is missing; this would take: ALTER TABLE `{}`.`otel_traces` ADD COLUMN IF NOT EXISTS \
                 `Host` LowCardinality(String) DEFAULT (concat(ServiceName, '@'))",
                database.name
            )]
        );
        schema.management = SchemaManagement::Evolve;
        let grown = apply(&database, &schema).await;
        assert_eq!((grown.statements.len(), grown.messages().len()), (1, 0), "{grown}");
        // Rows of before and behind have it, and the other column is as it was.
        database.insert(&message(vec![span(vec![])])).await;
        assert_eq!(
            database.ask("toString((count(), countIf(endsWith(Host, '@')), countIf(Tenant = 'none')))").await,
            "(4,4,4)"
        );
        database.drop().await;
    }
}

#[tokio::test]
async fn a_column_of_ours_that_is_missing_is_added_by_evolve_alone() {
    let database = Database::new("grown").await;
    let schema = Schema { layout: Some(Layout::Nested), ..Schema::default() };
    apply(&database, &schema).await;
    database.insert(&message(vec![span(vec![])])).await;
    let table = format!("ALTER TABLE {}.otel_traces", database.name);
    for column in ["ScopeVersion", "Events.Name", "Events.AttributesInt", "SpanAttributesBool.Value"] {
        database.execute(&format!("{table} DROP COLUMN `{column}`")).await;
    }
    let refused = sink(&database, schema.clone()).apply(SchemaManagement::CreateIfMissing).await.unwrap_err();
    assert_eq!(refused.reason(), Some("ColumnMismatch"));
    let schema = Schema { management: SchemaManagement::Evolve, ..schema };
    let grown = apply(&database, &schema).await;
    assert_eq!((grown.statements.len(), grown.messages().len()), (4, 0), "{grown}");
    database.insert(&message(vec![span(vec![])])).await;
    assert_eq!(database.ask("toString(sum(length(Events.Name)))").await, "4");
    database.drop().await;
}

#[tokio::test]
async fn what_would_drop_rewrite_or_copy_rows_is_refused_and_named() {
    let database = Database::new("destructive").await;
    apply(&database, &Schema::default()).await;
    database.insert(&message(vec![span(vec![])])).await;
    let before = definition(&database).await;
    let schema = Schema {
        engine: Some(Engine::ReplicatedMergeTree),
        columns: vec![column("Duration", "String", "''")],
        views: Views::default(),
        ..asked(Layout::Json)
    };
    let refused = apply(&database, &schema).await;
    assert_eq!(refused.statements, [""; 0]);
    let whats: Vec<_> = refused.differences.iter().map(|differs| differs.what.as_str()).collect();
    assert_eq!(
        whats,
        [
            "column Duration",
            "max_dynamic_paths of ResourceAttributes",
            "path http.response.status_code of SpanAttributes",
            "max_dynamic_paths of SpanAttributes",
            "engine",
            "sorting key",
            "TTL"
        ]
    );
    let schema = Schema {
        layout: Some(Layout::Map),
        max_dynamic_paths: None,
        typed_paths: TypedPaths::default(),
        ..schema
    };
    let refused = apply(&database, &schema).await;
    assert!(
        refused.messages().iter().any(|m| m.starts_with("layout of ResourceAttributes is Json, wanted: Map"))
    );
    assert_eq!(definition(&database).await, before, "nothing was changed");
    assert_eq!(database.count().await, 2);
    database.drop().await;
}

async fn definition(database: &Database) -> String {
    let question = "SELECT create_table_query FROM system.tables WHERE name = 'otel_traces' AND database =";
    database.answer(&format!("{question} '{}'", database.name)).await
}

/// What the views answer: operations with their times, and the times of traces.
async fn answers(database: &Database) -> [String; 2] {
    let name = &database.name;
    let operations = format!(
        "SELECT toString(arraySort(groupArray((ServiceName, SpanName, SpanKind, First, Last)))) FROM (SELECT ServiceName, SpanName, \
         SpanKind, min(First) AS First, max(Last) AS Last FROM {name}.otel_traces_operations GROUP BY ServiceName, SpanName, SpanKind)"
    );
    let traces = format!(
        "SELECT toString(arraySort(groupArray((TraceId, Start, End)))) FROM (SELECT TraceId, min(Start) AS Start, max(End) AS End \
         FROM {name}.otel_traces_trace_id_ts GROUP BY TraceId)"
    );
    [database.answer(&operations).await, database.answer(&traces).await]
}

#[tokio::test]
async fn a_block_that_comes_twice_changes_no_answer_of_a_view() {
    let database = Database::new("views_twice").await;
    let schema = Schema { views: Views { operations: true, trace_times: true }, ..Schema::default() };
    let sink = sink(&database, schema);
    sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let columns = sink.check_table().await.unwrap().columns;
    let table = (sink, columns);
    let frames = frames(&table.1, &message(vec![span(vec![])]));
    send(&table, &frames, "a", &format!("{}-0", database.name)).await.unwrap();
    let once = answers(&database).await;
    assert!(once.iter().all(|answer| answer.starts_with("[(")), "{once:?}");
    // As a retry, which the tables drop; as another block, which they don't.
    send(&table, &frames, "a", &format!("{}-1", database.name)).await.unwrap();
    assert_eq!(database.count().await, 2);
    assert_eq!(
        database.count_of("otel_traces_operations").await,
        2,
        "a retry is dropped by the view's table too"
    );
    send(&table, &frames, "b", &format!("{}-2", database.name)).await.unwrap();
    assert_eq!(database.count().await, 4);
    assert_eq!(answers(&database).await, once);
    for view in ["operations", "trace_id_ts"] {
        database.execute(&format!("OPTIMIZE TABLE {}.otel_traces_{view} FINAL", database.name)).await;
    }
    assert_eq!(answers(&database).await, once, "merged, they say the same");
    database.drop().await;
}

#[tokio::test]
async fn views_are_made_beside_a_table_that_is_there_and_again_when_one_is_lost() {
    let database = Database::new("views_later").await;
    apply(&database, &Schema::default()).await;
    let schema = Schema { views: Views { operations: true, trace_times: true }, ..Schema::default() };
    assert_eq!(apply(&database, &schema).await.statements.len(), 4);
    database.execute(&format!("DROP TABLE {}.otel_traces_trace_id_ts_mv", database.name)).await;
    let missing = differences(&database, &schema).await;
    let [missing] = missing.messages()[..] else { panic!("{missing}") };
    assert!(
        missing.starts_with("view otel_traces_trace_id_ts_mv is missing; this would take: "),
        "{missing}"
    );
    assert!(missing.contains("CREATE MATERIALIZED VIEW IF NOT EXISTS"), "{missing}");
    let validated = sink(&database, schema.clone()).apply(SchemaManagement::Validate).await.unwrap();
    assert_eq!((validated.statements.len(), validated.messages().len()), (0, 1));
    assert_eq!(apply(&database, &schema).await.differences, []);
    database.drop().await;
}

#[tokio::test]
async fn a_table_that_stores_nothing_fills_its_views() {
    let database = Database::new("null_engine").await;
    let schema = Schema {
        engine: Some(Engine::Null),
        views: Views { operations: true, trace_times: false },
        ..Schema::default()
    };
    assert_eq!(apply(&database, &schema).await.differences, []);
    assert_eq!(differences(&database, &schema).await.differences, []);
    database.insert(&message(vec![span(vec![])])).await;
    assert_eq!((database.count().await, database.count_of("otel_traces_operations").await), (0, 2));
    database.drop().await;
}

#[tokio::test]
async fn settings_of_the_config_reach_the_server_with_every_insert() {
    let database = Database::new("settings").await;
    apply(&database, &Schema::default()).await;
    let settings = [("max_partitions_per_insert_block", "7"), ("priority", "3")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let config = database.config(Schema::default());
    let config =
        sluice_gateway_config::ClickHouse { insert: Insert { settings, ..Insert::default() }, ..config };
    let sink = Sink::new(&config).unwrap();
    let columns = sink.check_table().await.unwrap().columns;
    let frames = frames(&columns, &message(vec![span(vec![])]));
    let query_id = format!("{}-settings", database.name);
    send(&(sink, columns), &frames, "a", &query_id).await.unwrap();
    let seen = database
        .logged(&format!(
            "SELECT toString((Settings['max_partitions_per_insert_block'], Settings['priority'])) FROM system.query_log \
             WHERE query_id = '{query_id}' AND type = 'QueryFinish'"
        ))
        .await;
    assert_eq!(seen, "('7','3')");
    database.drop().await;
}

#[tokio::test]
async fn the_command_says_by_its_exit_code_what_it_found() {
    let database = Database::new("ddl_command").await;
    let mut config = database.config(Schema::default());
    let mut progress = Vec::new();
    let missing = ddl::diff(&config, false, |line: &str| progress.push(line.to_owned())).await.unwrap();
    assert_eq!((missing.code, missing.last_line), (1, None));
    let begin = format!(
        "table {0}.otel_traces is missing\ndiffers: table {0}.otel_traces is missing; this would take: CREATE ",
        database.name
    );
    assert!(missing.text.starts_with(&begin), "{}", missing.text);
    assert_eq!(progress.len(), 1, "{progress:?}");
    let made = ddl::apply(&config, false, |line: &str| progress.push(line.to_owned())).await.unwrap();
    assert_eq!(made.code, 0);
    assert!(progress.last().unwrap().contains(": CREATE TABLE IF NOT EXISTS"), "{progress:?}");
    assert_eq!(ddl::diff(&config, true, |_| ()).await.unwrap().code, 0);
    config.schema.ttl = Some(Duration::secs(86_400));
    let differs = ddl::apply(&config, true, |_| ()).await.unwrap();
    assert_eq!(differs.code, 65);
    let line: serde_json::Value = serde_json::from_str(&differs.last_line.unwrap()).unwrap();
    assert_eq!(line["reason"], "SchemaDiffers");
    assert!(
        line["message"].as_str().unwrap().starts_with("TTL is none, wanted: toDateTime64(Timestamp, 0) + "),
        "{line}"
    );
    let report: serde_json::Value = serde_json::from_str(&differs.text).unwrap();
    assert_eq!((&report["differences"][0]["change"], &report["created"]), (&"ByHand".into(), &false.into()));
    database.drop().await;
}

/// A column that only the Distributed table has is in rows that the table behind it does not take.
#[tokio::test]
async fn a_distributed_table_gets_no_column_before_the_table_behind_it() {
    let database = Database::new("distributed").await;
    let name = database.name.clone();
    let schema = Schema { management: SchemaManagement::Evolve, ..Schema::default() };
    apply(&database, &schema).await;
    database.execute(&format!("RENAME TABLE {name}.otel_traces TO {name}.behind")).await;
    let engine = format!("Distributed(itself, {name}, behind)");
    database.execute(&format!("CREATE TABLE {name}.otel_traces AS {name}.behind ENGINE = {engine}")).await;
    let schema = Schema { columns: vec![column("Host", "String", "'h'")], ..schema };
    let report = apply(&database, &schema).await;
    assert_eq!((&*report.statements, report.messages().len()), (&[][..], 1), "{report}");
    assert!(
        report.messages()[0].contains("the column in the tables behind this Distributed table"),
        "{report}"
    );
    let told = ddl::diff(&database.config(schema.clone()), true, |_| ()).await.unwrap();
    assert_ne!(told.code, 0, "{}", told.text);
    for table in ["behind", "otel_traces"] {
        database.execute(&format!("ALTER TABLE {name}.{table} ADD COLUMN Host String DEFAULT 'h'")).await;
    }
    assert_eq!(apply(&database, &schema).await.differences, []);
    database.execute(&format!("INSERT INTO {name}.otel_traces (ServiceName) VALUES ('shop')")).await;
    database.execute(&format!("SYSTEM FLUSH DISTRIBUTED {name}.otel_traces")).await;
    assert_eq!(database.count_of("behind").await, 1);
    database.drop().await;
}

#[tokio::test]
async fn tables_that_accept_no_rows_are_refused_by_name() {
    let database = Database::new("refused_engines").await;
    let name = database.name.clone();
    let schema = Schema { management: SchemaManagement::Evolve, ..Schema::default() };
    apply(&database, &schema).await;
    database.execute(&format!("RENAME TABLE {name}.otel_traces TO {name}.kept")).await;
    for statement in [
        format!("CREATE VIEW {name}.otel_traces AS SELECT * FROM {name}.kept"),
        format!(
            "CREATE TABLE {name}.otel_traces AS {name}.kept ENGINE = Buffer({name}, kept, 1, 1, 1, 1, 1, 1, 1)"
        ),
        format!("CREATE TABLE {name}.otel_traces AS {name}.kept ENGINE = Merge({name}, '^kept$')"),
    ] {
        database.execute(&statement).await;
        let of_kind = sink(&database, schema.clone());
        for refused in [
            of_kind.differences(&mut |_| ()).await.unwrap_err(),
            of_kind.apply(SchemaManagement::Evolve).await.unwrap_err(),
        ] {
            let words = refused.to_string();
            assert!(words.contains("; name ") && refused.is_about_the_table(), "{statement}: {words}");
        }
        database.execute(&format!("DROP TABLE {name}.otel_traces SYNC")).await;
    }
    database.drop().await;
}
