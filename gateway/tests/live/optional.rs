//! Columns that a table need not have: read back from the server, in every layout, in both formats, with all of them, some and none.

use crate::{
    messages::{attribute, string},
    native::columns_of,
    server::{Database, frames, frames_of, next_number, send_body},
};
use opentelemetry_proto::tonic::{
    common::v1::{InstrumentationScope, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span, TracesData},
};
use prost::Message as _;
use sluice_clickhouse::{
    body::InsertBody,
    column::TableColumns,
    optional::{OptionalColumns as Optional, OptionalGroup},
};
use sluice_gateway::{
    rows::origin::{MessageHeaders, Origin, TakeHeader},
    table::sink::{Sink, check_shards},
};
use sluice_gateway_config::{ClickHouse, Layout, OptionalColumns, Schema, SchemaManagement};

const LAYOUTS: [Layout; 3] = [Layout::Json, Layout::Map, Layout::Nested];

/// A message with everything that has a column: two spans of one resource and one scope, and one of others.
fn whole() -> Vec<u8> {
    let span = |id: u8, attributes| Span {
        trace_id: vec![id; 16],
        span_id: vec![id; 8],
        name: format!("span {id}"),
        start_time_unix_nano: 1_700_000_000_000_000_000,
        end_time_unix_nano: 1_700_000_000_000_000_005,
        attributes,
        flags: 0x101,
        dropped_attributes_count: 1,
        dropped_events_count: 2,
        dropped_links_count: u32::MAX,
        ..Span::default()
    };
    let scope = InstrumentationScope {
        name: "scope".into(),
        attributes: vec![attribute("short", string("v")), attribute("number", Value::IntValue(7))],
        dropped_attributes_count: 4,
        ..InstrumentationScope::default()
    };
    let resource = Resource {
        attributes: vec![attribute("service.name", string("shop")), attribute("a", string("x"))],
        dropped_attributes_count: 5,
        ..Resource::default()
    };
    let attributes = vec![attribute("b", string("1")), attribute("a", Value::BoolValue(true))];
    let scope_spans = vec![ScopeSpans {
        scope: Some(scope),
        spans: vec![span(1, attributes), span(2, vec![])],
        schema_url: "https://scope".into(),
    }];
    let first =
        ResourceSpans { resource: Some(resource), scope_spans, schema_url: "https://resource".into() };
    let bare = ScopeSpans { spans: vec![Span { flags: 0, ..span(3, vec![]) }], ..ScopeSpans::default() };
    let second = ResourceSpans { scope_spans: vec![bare], ..ResourceSpans::default() };
    TracesData { resource_spans: vec![first, second] }.encode_to_vec()
}

/// Headers of every kind: a usual one, one that is no text, one of a megabyte, one without a value.
struct Headers(Vec<u8>);

impl MessageHeaders for Headers {
    fn each(&self, take: &mut TakeHeader<'_>) {
        let headers = [
            ("tenant", Some(&b"blue"[..])),
            ("bytes", Some(b"a\xff")),
            ("large", Some(&self.0)),
            ("none", None),
            ("tenant", Some(b"red")),
        ];
        for (name, value) in headers {
            if take(name, value).is_break() {
                return;
            }
        }
    }
}

fn origin(headers: &Headers) -> Origin<'_> {
    Origin {
        topic: "spans",
        partition: 3,
        offset: 1 << 40,
        timestamp_millis: Some(1_600_000_000_123),
        headers: Some(headers),
    }
}

fn config(database: &Database, layout: Layout, optional: Option<&[OptionalColumns]>) -> ClickHouse {
    let optional_columns = optional.map(<[_]>::to_vec);
    database.config(Schema { layout: Some(layout), optional_columns, ..Schema::default() })
}

/// A database with the table that Sluice makes.
async fn made(
    test: &str,
    layout: Layout,
    optional: Option<&[OptionalColumns]>,
) -> (Database, Sink, TableColumns) {
    let database = Database::new(&format!("optional_{test}_{}", format!("{layout:?}").to_lowercase())).await;
    let sink = Sink::new(&config(&database, layout, optional)).unwrap();
    let report = sink.apply(SchemaManagement::CreateIfMissing).await.unwrap();
    assert!(report.differences.is_empty(), "{report}");
    let again = sink.apply(SchemaManagement::Evolve).await.unwrap();
    assert!(again.statements.is_empty() && again.differences.is_empty(), "{again}");
    let columns = sink.check_table().await.unwrap().columns;
    (database, sink, columns)
}

/// Inserts a block as rows and again as columns under the same token, then the other way around under another one. The table then has the
/// rows of each order once.
async fn inserted(database: &Database, sink: &Sink, columns: &TableColumns) {
    let headers = Headers(vec![b'x'; 1 << 20]);
    let frames = frames_of(columns, &whole(), origin(&headers));
    assert_eq!(frames, frames_of(columns, &whole(), origin(&headers)), "read again, it gives the same bytes");
    let bodies = [InsertBody::new(frames.clone()), columns_of(columns, &frames)];
    for (round, order) in [[0, 1], [1, 0]].into_iter().enumerate() {
        let token = format!("{}-{}", database.name, next_number());
        for body in order {
            let query_id = format!("{}-{}", database.name, next_number());
            send_body((sink, columns), &bodies[body], &token, &query_id).await.unwrap();
            let rows = 3 * (u64::try_from(round).unwrap() + 1);
            assert_eq!(database.count().await, rows, "the second INSERT under the token is dropped");
        }
    }
}

/// What is in the first and in the last row of the message, in every copy of it.
async fn asked(database: &Database, expressions: &[(&str, &str, &str)]) {
    for (expression, first, last) in expressions {
        for (name, expected) in [("span 1", first), ("span 3", last)] {
            let what = format!(
                "arrayStringConcat(arraySort(groupUniqArrayIf(CAST(toString({expression}) AS String), SpanName = '{name}')), ' | ')"
            );
            assert_eq!(database.ask(&what).await, *expected, "{expression} of {name}");
        }
    }
}

const PLAIN: [(&str, &str, &str); 12] = [
    ("(ResourceSchemaUrl, ScopeSchemaUrl)", "('https://resource','https://scope')", "('','')"),
    ("(ResourceDroppedAttributesCount, ScopeDroppedAttributesCount)", "(5,4)", "(0,0)"),
    (
        "(DroppedAttributesCount, DroppedEventsCount, DroppedLinksCount)",
        "(1,2,4294967295)",
        "(1,2,4294967295)",
    ),
    ("TraceFlags", "257", "0"),
    ("ResourceAttributesKeys", "['a','service.name']", "[]"),
    ("SpanAttributesKeys", "['a','b']", "[]"),
    ("ScopeAttributesKeys", "['number','short']", "[]"),
    ("(KafkaTopic, KafkaPartition, KafkaOffset)", "('spans',3,1099511627776)", "('spans',3,1099511627776)"),
    ("toTimeZone(KafkaTimestamp, 'UTC')", "2020-09-13 12:26:40.123", "2020-09-13 12:26:40.123"),
    (
        "KafkaHeaders",
        "{'tenant':'blue','bytes':'a\u{fffd}','none':''}",
        "{'tenant':'blue','bytes':'a\u{fffd}','none':''}",
    ),
    ("(Duration, StatusCode, SpanName)", "(5,'Unset','span 1')", "(5,'Unset','span 3')"),
    ("ServiceName", "shop", ""),
];

#[tokio::test]
async fn all_columns_are_filled_in_every_layout_and_either_format() {
    for layout in LAYOUTS {
        let (database, sink, columns) = made("all", layout, Some(&OptionalColumns::ALL)).await;
        assert_eq!(columns.optional, Optional::all());
        inserted(&database, &sink, &columns).await;
        asked(&database, &PLAIN).await;
        let scope = match layout {
            Layout::Json => ("(ScopeAttributes.short, ScopeAttributes.number)", "('v',7)", "(NULL,NULL)"),
            Layout::Map => ("ScopeAttributes", "{'short':'v','number':'7'}", "{}"),
            Layout::Nested => (
                "(ScopeAttributesString.Key, ScopeAttributesString.Value, ScopeAttributesInt.Value)",
                "(['short'],['v'],[7])",
                "([],[],[])",
            ),
        };
        asked(&database, &[scope]).await;
        database.drop().await;
    }
}

#[tokio::test]
async fn some_columns_are_filled_and_the_others_are_not_there() {
    let groups = [OptionalColumns::TraceFlags, OptionalColumns::KafkaHeaders, OptionalColumns::SchemaUrls];
    for layout in LAYOUTS {
        let (database, sink, columns) = made("some", layout, Some(&groups)).await;
        let expected = ["ResourceSchemaUrl", "ScopeSchemaUrl", "TraceFlags", "KafkaHeaders"];
        assert_eq!(columns.optional.names(), expected);
        inserted(&database, &sink, &columns).await;
        asked(&database, &[PLAIN[0], PLAIN[3], PLAIN[9], PLAIN[10]]).await;
        database.drop().await;
    }
}

#[tokio::test]
async fn a_table_without_them_is_filled_as_before() {
    for layout in LAYOUTS {
        let (database, sink, columns) = made("none", layout, Some(&[])).await;
        assert!(columns.optional.is_empty());
        inserted(&database, &sink, &columns).await;
        asked(&database, &[PLAIN[10], PLAIN[11]]).await;
        database.drop().await;
    }
}

/// Names, types and indexes of a table, as the server has them.
async fn definition(database: &Database) -> String {
    let of = |table: &str, what: &str| {
        format!(
            "(SELECT arrayStringConcat(groupArray({what}), ', ') FROM system.{table} WHERE database = '{0}' AND table = 'otel_traces')",
            database.name
        )
    };
    let (columns, indexes) = (of("columns", "name"), of("data_skipping_indices", "concat(name, ' ', expr)"));
    database.answer(&format!("SELECT assumeNotNull(concat({columns}, '; ', {indexes}))")).await
}

#[tokio::test]
async fn a_new_table_has_the_columns_and_indexes_of_the_exporters() {
    let (database, _, columns) = made("usual", Layout::Json, Some(&[OptionalColumns::AttributeKeys])).await;
    assert_eq!(columns.optional.names(), ["ResourceAttributesKeys", "SpanAttributesKeys"]);
    let found = definition(&database).await;
    for part in [
        "ResourceAttributes, ResourceAttributesKeys, ScopeName, ScopeVersion, SpanAttributes, SpanAttributesKeys, Duration",
        "idx_res_attr_keys ResourceAttributesKeys, idx_span_attr_keys SpanAttributesKeys, idx_duration Duration",
    ] {
        assert!(found.contains(part), "{part} in {found}");
    }
    database.drop().await;
    let (database, sink, columns) = made("usual", Layout::Map, None).await;
    assert!(columns.optional.is_empty());
    inserted(&database, &sink, &columns).await;
    asked(
        &database,
        &[
            ("ResourceAttributeItems", "['service.name=shop','a=x']", "[]"),
            ("SpanAttributeItems", "['b=1','a=true']", "[]"),
        ],
    )
    .await;
    assert!(definition(&database).await.ends_with("idx_lower_span_name lower(SpanName)"));
    let keys = format!(
        "SELECT concat(primary_key, '; ', sorting_key) FROM system.tables WHERE database = '{}' AND name = 'otel_traces'",
        database.name
    );
    assert_eq!(
        database.answer(&keys).await,
        "ServiceName, SpanName, toDateTime(Timestamp); ServiceName, SpanName, toDateTime(Timestamp), Timestamp"
    );
    database.drop().await;
}

#[tokio::test]
async fn evolve_adds_columns_with_their_indexes_and_old_rows_have_none() {
    for layout in LAYOUTS {
        let (database, sink, columns) = made("evolve", layout, Some(&[])).await;
        inserted(&database, &sink, &columns).await;
        let evolved = Sink::new(&config(&database, layout, Some(&OptionalColumns::ALL))).unwrap();
        let told = evolved.apply(SchemaManagement::CreateIfMissing).await.unwrap();
        let names = columns.clone().with_optional(Optional::all()).columns().len() - columns.columns().len();
        assert_eq!(
            (told.statements.len(), told.differences.len()),
            (0, names),
            "it is told, not altered: {told}"
        );
        let report = evolved.apply(SchemaManagement::Evolve).await.unwrap();
        assert_eq!((report.statements.len(), report.differences.len()), (names, 0), "{report}");
        let found = definition(&database).await;
        for index in ["idx_res_attr_keys", "idx_scope_attr_keys", "idx_span_attr_keys"] {
            assert!(found.contains(index), "{index} in {found}");
        }
        let all = evolved.check_table().await.unwrap().columns;
        assert_eq!(all.optional, Optional::all());
        // Rows for the columns of before still fit.
        database.insert_for(&columns, &whole()).await.unwrap();
        assert_eq!(evolved.check_encoded(&columns).await.unwrap(), columns);
        database.execute(&format!("TRUNCATE TABLE {}.otel_traces", database.name)).await;
        inserted(&database, &evolved, &all).await;
        asked(&database, &PLAIN).await;
        database.drop().await;
    }
}

/// No table is refused for a column that it need not have.
#[tokio::test]
async fn a_column_of_another_kind_is_left_alone_and_noted() {
    let (database, sink, _) = made("foreign", Layout::Json, Some(&[])).await;
    let alter = |what: &str| format!("ALTER TABLE {}.otel_traces ADD COLUMN {what}", database.name);
    for column in [
        "TraceFlags UInt8",
        "KafkaOffset String",
        "KafkaTopic LowCardinality(String) DEFAULT 'mine'",
        "SpanAttributesKeys Array(String) MATERIALIZED arraySort(JSONAllPaths(SpanAttributes))",
        "KafkaPartition UInt32",
        "KafkaTimestamp DateTime64(3, 'UTC')",
    ] {
        database.execute(&alter(column)).await;
    }
    let fit = sink.check_table().await.unwrap();
    assert_eq!(fit.columns.optional.names(), ["KafkaPartition", "KafkaTimestamp"]);
    assert_eq!(fit.notes.len(), 4, "{:?}", fit.notes);
    inserted(&database, &sink, &fit.columns).await;
    let expressions = [
        ("(TraceFlags, KafkaOffset, KafkaTopic)", "(0,'','mine')", "(0,'','mine')"),
        ("SpanAttributesKeys", "['a','b']", "[]"),
        ("KafkaPartition", "3", "3"),
        PLAIN[8],
    ];
    asked(&database, &expressions).await;
    let groups = [OptionalColumns::KafkaCoordinates, OptionalColumns::TraceFlags];
    let wanted = Sink::new(&config(&database, Layout::Json, Some(&groups))).unwrap();
    let report = wanted.apply(SchemaManagement::Evolve).await.unwrap();
    let told = report.messages().join("\n");
    for part in
        ["column TraceFlags is UInt8, wanted: UInt32", "KafkaOffset is String", "KafkaTopic is DEFAULT"]
    {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert_eq!((report.statements.len(), report.differences.len()), (0, 3), "{report}");
    // The statements that are named do it.
    database
        .execute(&format!(
            "ALTER TABLE {}.otel_traces MODIFY COLUMN KafkaTopic REMOVE DEFAULT",
            database.name
        ))
        .await;
    assert!(
        sink.check_table()
            .await
            .unwrap()
            .columns
            .optional
            .has_any_of([sluice_clickhouse::optional::OptionalColumn::KafkaTopic].into_iter().collect())
    );
    database.drop().await;
}

/// Shards that were made by different versions.
#[tokio::test]
async fn of_several_tables_the_columns_that_all_have_are_filled() {
    let (one, first, _) = made("shard", Layout::Json, Some(&[OptionalColumns::AttributeKeys])).await;
    let (other, second, _) = made("shard_other", Layout::Json, Some(&[OptionalColumns::TraceFlags])).await;
    let fit = check_shards(&[first.clone(), second.clone()]).await.unwrap();
    assert!(fit.columns.optional.is_empty(), "{}", fit.columns.text());
    let all = check_shards(std::slice::from_ref(&first)).await.unwrap();
    assert_eq!(all.columns.optional, OptionalGroup::AttributeKeys.columns());
    for (database, sink) in [(&one, &first), (&other, &second)] {
        let token = format!("{}-{}", database.name, next_number());
        let body = InsertBody::new(frames(&fit.columns, &whole()));
        send_body((sink, &fit.columns), &body, &token, &token).await.unwrap();
        assert_eq!(database.count().await, 3);
    }
    one.drop().await;
    other.drop().await;
}
