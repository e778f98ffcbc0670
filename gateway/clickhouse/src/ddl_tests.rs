//! The text of every statement.

use super::*;
use crate::optional::OptionalGroup;

#[test]
fn the_usual_table_is_this_text() {
    let statements = create_table(&TableSpec::new("otel", "otel_traces"));
    assert_eq!(statements[0], "CREATE DATABASE IF NOT EXISTS `otel`");
    assert_eq!(
            statements[1],
            "\
CREATE TABLE IF NOT EXISTS `otel`.`otel_traces`
(
    `Timestamp` DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    `TraceId` String CODEC(ZSTD(1)),
    `SpanId` String CODEC(ZSTD(1)),
    `ParentSpanId` String CODEC(ZSTD(1)),
    `TraceState` String CODEC(ZSTD(1)),
    `SpanName` LowCardinality(String) CODEC(ZSTD(1)),
    `SpanKind` LowCardinality(String) CODEC(ZSTD(1)),
    `ServiceName` LowCardinality(String) CODEC(ZSTD(1)),
    `ResourceAttributes` JSON(max_dynamic_paths=64) CODEC(ZSTD(1)),
    `ScopeName` String CODEC(ZSTD(1)),
    `ScopeVersion` String CODEC(ZSTD(1)),
    `SpanAttributes` JSON(max_dynamic_paths=64) CODEC(ZSTD(1)),
    `Duration` UInt64 CODEC(T64, ZSTD(1)),
    `StatusCode` LowCardinality(String) CODEC(ZSTD(1)),
    `StatusMessage` String CODEC(ZSTD(1)),
    `Events.Timestamp` Array(DateTime64(9)) CODEC(ZSTD(1)),
    `Events.Name` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `Events.Attributes` Array(JSON(max_dynamic_paths=16)) CODEC(ZSTD(1)),
    `Links.TraceId` Array(String) CODEC(ZSTD(1)),
    `Links.SpanId` Array(String) CODEC(ZSTD(1)),
    `Links.TraceState` Array(String) CODEC(ZSTD(1)),
    `Links.Attributes` Array(JSON(max_dynamic_paths=16)) CODEC(ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate32(Timestamp, 'UTC')
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, min_bytes_for_wide_part = 134217728, non_replicated_deduplication_window = 10000"
        );
    assert_eq!(statements.len(), 2);
}

/// The lines in which the table of a layout differs from the usual one.
fn difference(layout: Layout) -> String {
    let text = |layout| {
        create_table(&TableSpec { layout: Some(layout), ..TableSpec::new("otel", "otel_traces") }).remove(1)
    };
    let usual = text(Layout::Json);
    let lines: Vec<_> = text(layout).lines().map(str::to_owned).collect();
    lines.into_iter().filter(|line| !usual.lines().any(|known| known == line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_table_of_maps_differs_in_these_lines() {
    assert_eq!(
        difference(Layout::Map),
        "    `ResourceAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    `SpanAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    `Events.Attributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    `Links.Attributes` Array(Map(LowCardinality(String), String)) CODEC(ZSTD(1)),
    `ResourceAttributeItems` Array(String) ALIAS arrayMap((key, value) -> concat(key, '=', value), mapKeys(ResourceAttributes), mapValues(ResourceAttributes)),
    `SpanAttributeItems` Array(String) ALIAS arrayMap((key, value) -> concat(key, '=', value), mapKeys(SpanAttributes), mapValues(SpanAttributes)),
    INDEX idx_res_attr_key mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_key mapKeys(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_value mapValues(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_duration Duration TYPE minmax GRANULARITY 1,
    INDEX idx_lower_span_name lower(SpanName) TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8
PRIMARY KEY (ServiceName, SpanName, toDateTime(Timestamp))"
    );
}

#[test]
fn a_table_of_groups_differs_in_these_lines() {
    assert_eq!(
        difference(Layout::Nested),
        "    `ResourceAttributesBool.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `ResourceAttributesBool.Value` Array(Bool) CODEC(ZSTD(1)),
    `ResourceAttributesDouble.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `ResourceAttributesDouble.Value` Array(Float64) CODEC(ZSTD(1)),
    `ResourceAttributesInt.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `ResourceAttributesInt.Value` Array(Int64) CODEC(ZSTD(1)),
    `ResourceAttributesString.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `ResourceAttributesString.Value` Array(String) CODEC(ZSTD(1)),
    `ResourceAttributesComplex.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `ResourceAttributesComplex.Value` Array(String) CODEC(ZSTD(1)),
    `SpanAttributesBool.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `SpanAttributesBool.Value` Array(Bool) CODEC(ZSTD(1)),
    `SpanAttributesDouble.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `SpanAttributesDouble.Value` Array(Float64) CODEC(ZSTD(1)),
    `SpanAttributesInt.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `SpanAttributesInt.Value` Array(Int64) CODEC(ZSTD(1)),
    `SpanAttributesString.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `SpanAttributesString.Value` Array(String) CODEC(ZSTD(1)),
    `SpanAttributesComplex.Key` Array(LowCardinality(String)) CODEC(ZSTD(1)),
    `SpanAttributesComplex.Value` Array(String) CODEC(ZSTD(1)),
    `Events.AttributesBool` Array(Nested(Key LowCardinality(String), Value Bool)) CODEC(ZSTD(1)),
    `Events.AttributesDouble` Array(Nested(Key LowCardinality(String), Value Float64)) CODEC(ZSTD(1)),
    `Events.AttributesInt` Array(Nested(Key LowCardinality(String), Value Int64)) CODEC(ZSTD(1)),
    `Events.AttributesString` Array(Nested(Key LowCardinality(String), Value String)) CODEC(ZSTD(1)),
    `Events.AttributesComplex` Array(Nested(Key LowCardinality(String), Value String)) CODEC(ZSTD(1)),
    `Links.AttributesBool` Array(Nested(Key LowCardinality(String), Value Bool)) CODEC(ZSTD(1)),
    `Links.AttributesDouble` Array(Nested(Key LowCardinality(String), Value Float64)) CODEC(ZSTD(1)),
    `Links.AttributesInt` Array(Nested(Key LowCardinality(String), Value Int64)) CODEC(ZSTD(1)),
    `Links.AttributesString` Array(Nested(Key LowCardinality(String), Value String)) CODEC(ZSTD(1)),
    `Links.AttributesComplex` Array(Nested(Key LowCardinality(String), Value String)) CODEC(ZSTD(1)),
    INDEX idx_res_attr_key `ResourceAttributesString.Key` TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_res_attr_value `ResourceAttributesString.Value` TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_key `SpanAttributesString.Key` TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_span_attr_value `SpanAttributesString.Value` TYPE bloom_filter(0.01) GRANULARITY 1,"
    );
}

/// As `ClickStack` 2.36.0 makes it, but for partition, settings and the codec of durations.
#[test]
fn the_table_of_clickstack_differs_from_one_of_maps_in_these_lines() {
    let text = |spec| create_table(&spec).remove(1);
    let maps = text(TableSpec { layout: Some(Layout::Map), ..TableSpec::new("otel", "otel_traces") });
    let preset =
        text(TableSpec { preset: Some(Preset::ClickStack), ..TableSpec::new("otel", "otel_traces") });
    let lines: Vec<_> = preset.lines().filter(|line| !maps.lines().any(|known| known == *line)).collect();
    assert_eq!(
        lines.join("\n"),
        "    `__hdx_materialized_rum.sessionId` String MATERIALIZED ResourceAttributes['rum.sessionId'] CODEC(ZSTD(1)),
    `SampleRate` UInt64 MATERIALIZED greatest(toUInt64OrZero(SpanAttributes['SampleRate']), 1) CODEC(T64, ZSTD(1)),
    `ResourceAttributeItems` Array(String) ALIAS arrayMap((arr) -> concat(arr.1, '=', arr.2), ResourceAttributes::Array(Tuple(String, String))),
    `SpanAttributeItems` Array(String) ALIAS arrayMap((arr) -> concat(arr.1, '=', arr.2), SpanAttributes::Array(Tuple(String, String))),
    INDEX idx_rum_session_id `__hdx_materialized_rum.sessionId` TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_res_attr_items ResourceAttributeItems TYPE text(tokenizer = 'array'),
    INDEX idx_span_attr_items SpanAttributeItems TYPE text(tokenizer = 'array'),
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))"
    );
    let gone: Vec<_> = maps.lines().filter(|line| !preset.lines().any(|kept| kept == *line)).collect();
    assert_eq!(
        gone,
        [
            "    `ResourceAttributeItems` Array(String) ALIAS arrayMap((key, value) -> concat(key, '=', value), mapKeys(ResourceAttributes), mapValues(ResourceAttributes)),",
            "    `SpanAttributeItems` Array(String) ALIAS arrayMap((key, value) -> concat(key, '=', value), mapKeys(SpanAttributes), mapValues(SpanAttributes)),",
            "    INDEX idx_res_attr_value mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,",
            "    INDEX idx_span_attr_value mapValues(SpanAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,",
            "PRIMARY KEY (ServiceName, SpanName, toDateTime(Timestamp))",
            "ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)",
        ]
    );
}

#[test]
fn a_preset_leaves_its_order_to_the_spec_and_its_indexes_to_a_table_that_stores_rows() {
    let text = |spec| create_table(&spec).remove(0);
    let preset = TableSpec { preset: Some(Preset::ClickStack), ..usual() };
    let ordered = text(TableSpec { order_by: vec!["TraceId".into()], ..preset.clone() });
    assert!(ordered.contains("\nORDER BY (TraceId)\n"), "{ordered}");
    let null = text(TableSpec { engine: Some(Engine::Null), ..preset });
    assert!(null.contains("`SampleRate` UInt64 MATERIALIZED") && !null.contains("INDEX"), "{null}");
}

/// The lines of a new table that are about these columns.
fn lines_of(spec: &TableSpec, names: &[&str]) -> Vec<String> {
    let statement = create_table_statement(spec);
    let lines = statement.lines().map(|line| line.trim().trim_end_matches(',').to_owned());
    lines.filter(|line| names.iter().any(|name| line.contains(name))).collect()
}

#[test]
fn optional_columns_are_made_in_the_layout_of_the_table_and_with_their_indexes() {
    let all = Some(OptionalColumns::all());
    let names = ["Keys", "Scope", "SchemaUrl", "Dropped", "TraceFlags", "Kafka"];
    assert_eq!(
        lines_of(&TableSpec { optional: all, ..usual() }, &names),
        [
            "`ResourceAttributesKeys` Array(LowCardinality(String)) CODEC(ZSTD(1))",
            "`ResourceDroppedAttributesCount` UInt32 CODEC(ZSTD(1))",
            "`ResourceSchemaUrl` LowCardinality(String) CODEC(ZSTD(1))",
            "`ScopeName` String CODEC(ZSTD(1))",
            "`ScopeVersion` String CODEC(ZSTD(1))",
            "`ScopeAttributes` JSON(max_dynamic_paths=16) CODEC(ZSTD(1))",
            "`ScopeAttributesKeys` Array(LowCardinality(String)) CODEC(ZSTD(1))",
            "`ScopeDroppedAttributesCount` UInt32 CODEC(ZSTD(1))",
            "`ScopeSchemaUrl` LowCardinality(String) CODEC(ZSTD(1))",
            "`SpanAttributesKeys` Array(LowCardinality(String)) CODEC(ZSTD(1))",
            "`TraceFlags` UInt32 CODEC(ZSTD(1))",
            "`DroppedAttributesCount` UInt32 CODEC(ZSTD(1))",
            "`DroppedEventsCount` UInt32 CODEC(ZSTD(1))",
            "`DroppedLinksCount` UInt32 CODEC(ZSTD(1))",
            "`KafkaTopic` LowCardinality(String) CODEC(ZSTD(1))",
            "`KafkaPartition` Int32 CODEC(ZSTD(1))",
            "`KafkaOffset` Int64 CODEC(Delta(8), ZSTD(1))",
            "`KafkaTimestamp` DateTime64(3) CODEC(Delta(8), ZSTD(1))",
            "`KafkaHeaders` Map(LowCardinality(String), String) CODEC(ZSTD(1))",
            "INDEX idx_res_attr_keys ResourceAttributesKeys TYPE bloom_filter(0.01) GRANULARITY 1",
            "INDEX idx_scope_attr_keys ScopeAttributesKeys TYPE bloom_filter(0.01) GRANULARITY 1",
            "INDEX idx_span_attr_keys SpanAttributesKeys TYPE bloom_filter(0.01) GRANULARITY 1",
        ]
    );
    let scope = Some(OptionalGroup::ScopeAttributes.columns());
    for (layout, column) in [
        (Layout::Map, "`ScopeAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1))"),
        (Layout::Nested, "`ScopeAttributesBool.Key` Array(LowCardinality(String)) CODEC(ZSTD(1))"),
    ] {
        let spec = TableSpec { layout: Some(layout), optional: scope, ..usual() };
        assert_eq!(lines_of(&spec, &["ScopeAttributes"])[0], column);
    }
}

#[test]
fn no_optional_column_is_made_where_none_is_asked_for_and_one_of_the_specs_own_goes_first() {
    let none = TableSpec { optional: Some(OptionalColumns::default()), ..usual() };
    assert_eq!(lines_of(&none, &["Keys"]), [""; 0]);
    let own = |name: &str, default: &str| ExtraColumn {
        name: name.into(),
        type_name: "Array(String)".into(),
        default: Some(default.into()),
    };
    let spec = TableSpec {
        columns: vec![own("SpanAttributesKeys", "JSONAllPaths(SpanAttributes)")],
        optional: Some(OptionalGroup::AttributeKeys.columns()),
        ..usual()
    };
    assert_eq!(
        lines_of(&spec, &["Keys"]),
        [
            "`ResourceAttributesKeys` Array(LowCardinality(String)) CODEC(ZSTD(1))",
            "`SpanAttributesKeys` Array(String) DEFAULT (JSONAllPaths(SpanAttributes))",
            "INDEX idx_res_attr_keys ResourceAttributesKeys TYPE bloom_filter(0.01) GRANULARITY 1",
        ]
    );
    let columns = vec![own("SpanAttributeItems", "[]")];
    let spec = TableSpec { layout: Some(Layout::Map), columns, ..usual() };
    assert_eq!(lines_of(&spec, &["SpanAttributeItems"]), ["`SpanAttributeItems` Array(String) DEFAULT ([])"]);
}

#[test]
fn a_sorting_key_of_ones_own_is_the_primary_key_too() {
    let spec = TableSpec {
        layout: Some(Layout::Map),
        order_by: vec!["TraceId".into(), "Timestamp".into()],
        ..usual()
    };
    assert!(!create_table_statement(&spec).contains("PRIMARY KEY"));
    let spec = TableSpec { layout: Some(Layout::Map), engine: Some(Engine::Null), ..usual() };
    let statement = create_table_statement(&spec);
    assert!(
        !statement.contains("PRIMARY KEY") && !statement.contains("ALIAS") && !statement.contains("INDEX")
    );
}

#[test]
fn options_change_their_part_of_the_text() {
    let spec = TableSpec {
        create_database: false,
        ttl: Some(Duration::from_hours(72)),
        dynamic_paths_max: Some(8),
        deduplication_window_blocks: 100,
        ..TableSpec::new("otel", "otel_traces")
    };
    let statements = create_table(&spec);
    assert_eq!(statements.len(), 1);
    for part in [
        "`SpanAttributes` JSON(max_dynamic_paths=8) CODEC",
        "`Events.Attributes` Array(JSON(max_dynamic_paths=8)) CODEC",
        "\nTTL toDateTime64(Timestamp, 0) + toIntervalSecond(259200)\nSETTINGS ",
        "non_replicated_deduplication_window = 100",
    ] {
        assert!(statements[0].contains(part), "{part} in {}", statements[0]);
    }
}

#[test]
fn names_are_quoted() {
    let statements = create_table(&TableSpec::new("o`t", "x` (a Int8); --"));
    assert_eq!(statements[0], r"CREATE DATABASE IF NOT EXISTS `o\`t`");
    assert!(statements[1].starts_with(r"CREATE TABLE IF NOT EXISTS `o\`t`.`x\` (a Int8); --`"));
}

fn usual() -> TableSpec {
    TableSpec { create_database: false, ..TableSpec::new("otel", "otel_traces") }
}

/// The end of a statement, from its engine on.
fn engine_of(statement: &str) -> &str {
    &statement[statement.find("ENGINE = ").unwrap()..]
}

#[test]
fn a_replicated_table_is_made_on_every_server_of_its_cluster() {
    let spec = TableSpec {
        create_database: true,
        engine: Some(Engine::ReplicatedMergeTree),
        cluster: Some("main".into()),
        views: vec![View::TraceTimes],
        ..usual()
    };
    let statements = create_all(&spec);
    assert_eq!(statements[0], "CREATE DATABASE IF NOT EXISTS `otel` ON CLUSTER `main`");
    assert!(
        statements[1].starts_with("CREATE TABLE IF NOT EXISTS `otel`.`otel_traces` ON CLUSTER `main`\n(\n")
    );
    assert_eq!(
        engine_of(&statements[1]),
        "\
ENGINE = ReplicatedMergeTree
PARTITION BY toDate32(Timestamp, 'UTC')
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, min_bytes_for_wide_part = 134217728, replicated_deduplication_window = 10000"
    );
    assert!(
        statements[2].starts_with(
            "CREATE TABLE IF NOT EXISTS `otel`.`otel_traces_trace_id_ts` ON CLUSTER `main`\n(\n"
        )
    );
    assert_eq!(
        engine_of(&statements[2]),
        "\
ENGINE = ReplicatedAggregatingMergeTree
ORDER BY TraceId
SETTINGS replicated_deduplication_window = 10000"
    );
    assert!(statements[3].starts_with(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS `otel`.`otel_traces_trace_id_ts_mv` ON CLUSTER `main` TO `otel`.`otel_traces_trace_id_ts`\n"
    ));
}

#[test]
fn a_durability_is_in_the_settings_of_every_table_or_in_the_engine() {
    let ends = |durability, engine| {
        let spec = TableSpec { durability, engine, views: View::ALL.into(), ..usual() };
        let tables = create_all(&spec).into_iter().filter(|statement| statement.starts_with("CREATE TABLE"));
        tables.map(|statement| engine_of(&statement).to_owned()).collect::<Vec<_>>()
    };
    let synced = ", fsync_after_insert = 1, fsync_part_directory = 1";
    for engine in [None, Some(Engine::ReplicatedMergeTree)] {
        let plain = ends(Durability::Process, engine);
        assert!(plain.iter().all(|end| !end.contains("fsync")), "{plain:?}");
        let expected: Vec<_> = plain.iter().map(|end| format!("{end}{synced}")).collect();
        assert_eq!(ends(Durability::Fsync, engine), expected);
    }
    let null = ends(Durability::Fsync, Some(Engine::Null));
    assert_eq!(null[0], "ENGINE = Null");
    assert!(null[1..].iter().all(|end| end.ends_with(synced)), "what views keep is synced: {null:?}");
    // A quorum is the INSERTs' business; it needs replicas.
    assert_eq!(ends(Durability::Quorum, None), ends(Durability::Process, Some(Engine::ReplicatedMergeTree)));
}

#[test]
fn a_table_that_stores_nothing_has_columns_and_views_alone() {
    let spec = TableSpec { engine: Some(Engine::Null), views: vec![View::Operations], ..usual() };
    let statements = create_all(&spec);
    assert!(
        statements[0].ends_with(
            "`Links.Attributes` Array(JSON(max_dynamic_paths=16)) CODEC(ZSTD(1))\n)\nENGINE = Null"
        )
    );
    assert!(
        statements[1].contains("ENGINE = AggregatingMergeTree\n"),
        "what views keep is stored: {}",
        statements[1]
    );
}

#[test]
fn views_are_this_text() {
    let spec = TableSpec { ttl: Some(Duration::from_hours(24)), views: View::ALL.into(), ..usual() };
    assert_eq!(
        create_all(&spec)[1..],
        [
            "\
CREATE TABLE IF NOT EXISTS `otel`.`otel_traces_operations`
(
    `ServiceName` LowCardinality(String) CODEC(ZSTD(1)),
    `SpanName` LowCardinality(String) CODEC(ZSTD(1)),
    `SpanKind` LowCardinality(String) CODEC(ZSTD(1)),
    `First` SimpleAggregateFunction(min, DateTime64(9)) CODEC(ZSTD(1)),
    `Last` SimpleAggregateFunction(max, DateTime64(9)) CODEC(ZSTD(1))
)
ENGINE = AggregatingMergeTree
ORDER BY (ServiceName, SpanName, SpanKind)
TTL toDateTime64(Last, 0) + toIntervalSecond(86400)
SETTINGS non_replicated_deduplication_window = 10000",
            "\
CREATE MATERIALIZED VIEW IF NOT EXISTS `otel`.`otel_traces_operations_mv` TO `otel`.`otel_traces_operations`
AS SELECT ServiceName, SpanName, SpanKind, min(Timestamp) AS First, max(Timestamp) AS Last
FROM `otel`.`otel_traces`
GROUP BY ServiceName, SpanName, SpanKind",
            "\
CREATE TABLE IF NOT EXISTS `otel`.`otel_traces_trace_id_ts`
(
    `TraceId` String CODEC(ZSTD(1)),
    `Start` SimpleAggregateFunction(min, DateTime64(9)) CODEC(Delta(8), ZSTD(1)),
    `End` SimpleAggregateFunction(max, DateTime64(9)) CODEC(Delta(8), ZSTD(1))
)
ENGINE = AggregatingMergeTree
ORDER BY TraceId
TTL toDateTime64(End, 0) + toIntervalSecond(86400)
SETTINGS non_replicated_deduplication_window = 10000",
            "\
CREATE MATERIALIZED VIEW IF NOT EXISTS `otel`.`otel_traces_trace_id_ts_mv` TO `otel`.`otel_traces_trace_id_ts`
AS SELECT TraceId, min(Timestamp) AS Start, max(Timestamp) AS End
FROM `otel`.`otel_traces`
WHERE TraceId != '' GROUP BY TraceId",
        ]
    );
}

#[test]
fn order_paths_and_columns_are_what_was_asked_for() {
    let typed =
        |set, path: &str, type_name: &str| TypedPath { set, path: path.into(), type_name: type_name.into() };
    let spec = TableSpec {
        order_by: vec!["ServiceName".into(), "toStartOfHour(Timestamp)".into()],
        dynamic_paths_max: Some(0),
        typed_paths: vec![
            typed(AttributeSet::Span, "http.route", "Nullable(String)"),
            typed(AttributeSet::Resource, "k8s.pod.name", "String"),
            typed(AttributeSet::Resource, "zone", "LowCardinality(String)"),
        ],
        columns: vec![
            ExtraColumn {
                name: "Route".into(),
                type_name: "String".into(),
                default: Some("SpanName".into()),
            },
            ExtraColumn { name: "Note".into(), type_name: "Nullable(String)".into(), default: None },
        ],
        ..usual()
    };
    let statement = create_all(&spec).remove(0);
    for part in [
        "\nORDER BY (ServiceName, toStartOfHour(Timestamp))\n",
        "`SpanAttributes` JSON(max_dynamic_paths=0, `http.route` Nullable(String)) CODEC",
        "`ResourceAttributes` JSON(max_dynamic_paths=0, `k8s.pod.name` String, `zone` LowCardinality(String)) CODEC",
        "`Events.Attributes` Array(JSON(max_dynamic_paths=0)) CODEC",
        "CODEC(ZSTD(1)),\n    `Route` String DEFAULT (SpanName),\n    `Note` Nullable(String),\n    INDEX idx_trace_id",
    ] {
        assert!(statement.contains(part), "{part} in {statement}");
    }
}
