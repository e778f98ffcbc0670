//! The errors for a user with few rights.
//!
//! The stack's user `writer` may insert into tables of these tests, and may read a table whose row policy hides all rows from it. Its
//! profile allows queries of ten seconds, and its password ends with a space. The profile of `odd` changes what a server answers. Those of
//! `reader` and `observer` only read. The quota of `counted` is used up by one row, and `narrow` has a megabyte for a query.

use crate::server::Database;
use sluice_clickhouse::{durability::Durability, probe_error::ProbeError};
use sluice_gateway::{
    guarantee::{BUSY_BLOCKS_PER_SECOND, Load, Reason, Verdict},
    table::sink::{Error, Sink},
};
use sluice_gateway_config::{ClickHouse, Credentials, Duration, Layout, Schema, SchemaManagement};
use std::path::Path;

const WRITER: (&str, &str) = ("writer", "sluice-local-only ");
const ODD: (&str, &str) = ("odd", "sluice-local-only");
const READER: (&str, &str) = ("reader", "sluice-local-only");
const COUNTED: (&str, &str) = ("counted", "sluice-local-only");
const NARROW: (&str, &str) = ("narrow", "sluice-local-only");
const OBSERVER: (&str, &str) = ("observer", "sluice-local-only");

/// A sink for the writer, with this timeout of inserts.
fn sink(database: &Database, timeout: Duration) -> Sink {
    sink_of(WRITER, database, timeout)
}

fn sink_of((user, password): (&str, &str), database: &Database, timeout: Duration) -> Sink {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = |what: &str, text: &str| {
        let file = folder.join(format!("{}-{what}", database.name));
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let credentials = Credentials {
        username: None,
        username_file: Some(file("user", user)),
        password_file: Some(file("password", password)),
        token_file: None,
    };
    let mut config = ClickHouse { credentials: Some(credentials), ..database.config(Schema::default()) };
    config.insert.timeout = timeout;
    Sink::new(&config).unwrap()
}

#[tokio::test]
async fn a_view_that_the_user_may_not_see_is_not_vouched_for() {
    let database = Database::new("few_rights_view").await;
    database.with_table().await;
    let name = &database.name;
    let hidden = Database::new("hidden").await;
    hidden
        .execute(&format!("CREATE TABLE {}.seen (n UInt64) ENGINE = MergeTree ORDER BY n", hidden.name))
        .await;
    hidden
        .execute(&format!(
            "CREATE MATERIALIZED VIEW {0}.unseen TO {0}.seen DEFINER = default SQL SECURITY DEFINER \
             AS SELECT 1 AS n FROM {name}.otel_traces",
            hidden.name
        ))
        .await;
    let sink = sink(&database, Duration::secs(5));
    let answer = sink.deduplication().await.remove(0).unwrap();
    let views: Vec<_> = answer.views.iter().map(|view| (&*view.name, view.is_seen())).collect();
    assert_eq!(views, [(&*format!("{}.unseen", hidden.name), false)]);
    let load = Load { blocks_per_second: BUSY_BLOCKS_PER_SECOND, insert_timeout: sink.insert_timeout() };
    assert_eq!(Verdict::of(&[answer], 1, &load).reasons, [Reason::ViewsUnseen].into());
    // It may not read the server's settings of tables; what the table names itself, it may.
    assert_eq!(sink.durability().await.unwrap(), None);
    let parts = sink.parts(0).await;
    assert!(matches!(parts, Err(ProbeError::Refused { .. })), "{parts:?}");
    let sync = "fsync_after_insert = 1, fsync_part_directory = 1";
    database.execute(&format!("ALTER TABLE {name}.otel_traces MODIFY SETTING {sync}")).await;
    assert_eq!(sink.durability().await.unwrap(), Some(Durability::Fsync));
    hidden.drop().await;
    database.drop().await;
}

#[tokio::test]
async fn what_keeps_every_insert_from_succeeding_is_known_beforehand() {
    let database = Database::new("few_rights_insert").await;
    let (all_rights, columns) = database.with_table().await;
    assert!(all_rights.obstacles(&columns).await.is_empty());
    assert!(sink(&database, Duration::secs(5)).obstacles(&columns).await.is_empty());
    let [limit] = &sink(&database, Duration::secs(30)).obstacles(&columns).await[..] else {
        panic!("the profile has a limit of 10 s, and an INSERT asks for more");
    };
    let text = limit.to_string();
    assert!(text.contains("max_execution_time"), "{text}");
    assert!(text.contains("set sink.clickhouse.insert.timeout: 10s"), "{text}");
    // As Sluice creates views: they read inserted rows with the rights of the user that inserts.
    let name = &database.name;
    database
        .execute(&format!("CREATE TABLE {name}.seen (TraceId String) ENGINE = MergeTree ORDER BY TraceId"))
        .await;
    database
        .execute(&format!(
            "CREATE MATERIALIZED VIEW {name}.view TO {name}.seen AS SELECT TraceId FROM {name}.otel_traces"
        ))
        .await;
    let [view] = &sink(&database, Duration::secs(5)).obstacles(&columns).await[..] else {
        panic!("the view reads rows as the writer, which may not");
    };
    let text = view.to_string();
    assert!(text.contains(&format!("{name}.view")) && text.contains("SELECT(TraceId)"), "{text}");
    assert!(all_rights.obstacles(&columns).await.is_empty());
    database.drop().await;
    let others = Database::new("no_rights").await;
    others.with_table().await;
    let refused = sink(&others, Duration::secs(5)).check_table().await.unwrap_err();
    assert!(matches!(refused, Error::Columns { .. }), "{refused}");
    let (text, grant) =
        (refused.to_string(), format!("GRANT INSERT ON {}.otel_traces TO writer", others.name));
    assert!(text.contains(&grant) && text.find("SHOW COLUMNS") < text.find("(INSERT)"), "{text}");
    let obstacles = sink(&others, Duration::secs(5)).obstacles(&columns).await;
    assert!(matches!(&obstacles[..], [Error::Grant { .. }]), "{obstacles:?}");
    let text = obstacles[0].to_string();
    assert!(text.ends_with(&format!("GRANT INSERT ON {}.otel_traces TO writer", others.name)), "{text}");
    others.drop().await;
}

#[tokio::test]
async fn a_profile_that_only_reads_is_named_and_no_grant_is_asked_for() {
    let database = Database::new("only_reads").await;
    let (_, columns) = database.with_table().await;
    let reader = sink_of(READER, &database, Duration::secs(5));
    let obstacles = reader.obstacles(&columns).await;
    assert!(matches!(&obstacles[..], [Error::ReadOnly { .. }]), "{obstacles:?}");
    let text = obstacles[0].to_string();
    assert!(text.contains("sets readonly = 2") && text.contains("set readonly = 0"), "{text}");
    // It may set nothing, so that it cannot even be asked.
    let refused = sink_of(OBSERVER, &database, Duration::secs(5)).check_table().await.unwrap_err();
    assert!(refused.to_string().contains("set readonly = 0 in the profile of its user"), "{refused}");
    database.drop().await;
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_known_beforehand() {
    let database = Database::new("few_rights_quota").await;
    let (_, columns) = database.with_table().await;
    let row = format!("INSERT INTO {}.otel_traces (SpanName) VALUES ('one')", database.name);
    // The server counts the row, and refuses it or the next one.
    drop(database.execute_as(COUNTED, &row).await);
    let obstacles = sink_of(COUNTED, &database, Duration::secs(5)).obstacles(&columns).await;
    assert!(matches!(&obstacles[..], [Error::Quota(_)]), "{obstacles:?}");
    let text = obstacles[0].to_string();
    assert!(text.contains("written_bytes") && text.contains("raise this quota"), "{text}");
    database.drop().await;
}

#[tokio::test]
async fn a_limit_on_memory_that_takes_no_row_or_no_block_is_known_beforehand() {
    let database = Database::new("few_rights_memory").await;
    let (usual, columns) = database.with_table().await;
    assert_eq!(usual.narrow_memory(16 << 20, true).await, []);
    let narrow = sink_of(NARROW, &database, Duration::secs(5));
    let [limit] = &narrow.narrow_memory(16 << 20, true).await[..] else {
        panic!("the profile has a limit of 8 MB")
    };
    assert!(
        limit.refuses_all && limit.text.starts_with("max_memory_usage of the user narrow at "),
        "{limit:?}"
    );
    assert!(limit.text.ends_with("raise it to at least 71554432 bytes"), "{limit:?}");
    assert!(!narrow.narrow_memory(16 << 20, false).await[0].refuses_all, "a table of maps takes less");
    // An INSERT without rows says nothing of it; one of a row does.
    assert!(narrow.obstacles(&columns).await.is_empty());
    // With 8 MB it is refused as a rule: what the server counts differs by 4 MiB.
    let row = format!(
        "INSERT INTO {}.otel_traces (SpanName) SETTINGS max_memory_usage = 1000000 VALUES ('one')",
        database.name
    );
    let refused = database.execute_as(NARROW, &row).await.unwrap_err().to_string();
    assert!(refused.contains("241"), "{refused}");
    let with = async |bytes: u64| {
        let mut config = database.config(Schema::default());
        config.insert.settings.insert("max_memory_usage".to_owned(), bytes.to_string());
        Sink::new(&config).unwrap().narrow_memory(16 << 20, true).await
    };
    // Then the server may refuse the question itself.
    let [limit] = &with(1_000_000).await[..] else { panic!("it is less than a row") };
    assert!(limit.refuses_all && limit.text.ends_with("to at least 71554432 bytes"), "{limit:?}");
    let [limit] = &with(10_000_000).await[..] else { panic!("it is less than a block") };
    assert!(!limit.refuses_all && limit.text.contains("inserts them in parts"), "{limit:?}");
    assert_eq!(with(71_554_432).await, []);
    database.drop().await;
}

#[tokio::test]
async fn a_table_that_the_user_may_not_create_is_known_beforehand() {
    let database = Database::new("few_rights_create").await;
    let narrow = sink_of(NARROW, &database, Duration::secs(5));
    let obstacles = narrow.obstacles_to_create().await;
    assert!(matches!(&obstacles[..], [Error::Create { .. }]), "{obstacles:?}");
    let (text, name) = (obstacles[0].to_string(), &database.name);
    for grant in [
        format!("GRANT CREATE DATABASE ON `{name}`.* TO narrow"),
        format!("GRANT CREATE TABLE, INSERT ON `{name}`.`otel_traces` TO narrow"),
    ] {
        assert!(text.contains(&grant), "{text}");
    }
    assert!(database.sink(Layout::Json).obstacles_to_create().await.is_empty());
    let reader = sink_of(READER, &database, Duration::secs(5)).obstacles_to_create().await;
    assert!(matches!(&reader[..], [Error::ReadOnly { .. }]), "{reader:?}");
    database.drop().await;
}

#[tokio::test]
async fn the_settings_of_a_profile_change_no_answer() {
    let database = Database::new("odd_profile").await;
    let odd = sink_of(ODD, &database, Duration::secs(5));
    odd.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    let usual = database.sink(Layout::Json);
    let columns = usual.check_table().await.unwrap().columns;
    assert_eq!(odd.check_table().await.unwrap().columns, columns);
    let once = usual.deduplication().await.remove(0).unwrap();
    assert_eq!(odd.deduplication().await.remove(0).unwrap(), once);
    assert_eq!(odd.durability().await.unwrap(), usual.durability().await.unwrap());
    assert!(odd.obstacles(&columns).await.is_empty());
    database.drop().await;
}

#[tokio::test]
async fn a_row_policy_is_seen_by_the_user_whom_it_concerns() {
    let database = Database::named("sluice_live_row_policy".to_owned()).await;
    let (all_rights, _) = database.with_table().await;
    let few_rights = sink(&database, Duration::secs(5));
    // The plan of an empty table has no filter; nothing is hidden either.
    assert!(!few_rights.hides_rows().await.unwrap());
    database.execute(&format!("INSERT INTO {}.otel_traces (Timestamp) SELECT now64(9)", database.name)).await;
    assert!(few_rights.hides_rows().await.unwrap());
    assert!(!all_rights.hides_rows().await.unwrap());
    database.drop().await;
}

#[tokio::test]
async fn a_table_that_takes_or_keeps_no_rows_is_refused() {
    let database = Database::new("engines_unfit").await;
    let (sink, _) = database.with_table().await;
    let name = &database.name;
    database.execute(&format!("RENAME TABLE {name}.otel_traces TO {name}.kept")).await;
    for (made, engine) in [
        (
            format!(
                "TABLE {name}.otel_traces AS {name}.kept ENGINE = Buffer({name}, kept, 1, 1, 1, 1, 1, 1, 1)"
            ),
            "Buffer",
        ),
        (format!("VIEW {name}.otel_traces AS SELECT * FROM {name}.kept"), "View"),
        (format!("TABLE {name}.otel_traces AS {name}.kept ENGINE = Merge({name}, '^kept$')"), "Merge"),
    ] {
        database.execute(&format!("CREATE {made}")).await;
        let refused = sink.check_table().await.unwrap_err();
        assert!(refused.to_string().contains(&format!("is a {engine}: ")), "{refused}");
        database.execute(&format!("DROP TABLE {name}.otel_traces SYNC")).await;
    }
    database.drop().await;
}
