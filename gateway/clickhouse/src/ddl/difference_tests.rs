//! What is compared, and the change for each difference.

use super::*;
use crate::ddl::TypedPath;
use crate::ddl::preset::Preset;

fn usual() -> TableSpec {
    TableSpec { create_database: false, ..TableSpec::new("otel", "otel_traces") }
}

/// The table of a spec without wishes, as a server shows it.
fn made(layout: Layout) -> FoundTable {
    let columns = TableColumns::of_layout(layout).columns().into_iter();
    let columns = columns.map(|column| described(&column.name, &column.column_type.to_string()));
    FoundTable {
        engine: "MergeTree".into(),
        engine_full: "MergeTree PARTITION BY toDate(Timestamp) ORDER BY (ServiceName) SETTINGS index_granularity = 8192".into(),
        sorting_key: "ServiceName, SpanName, toDateTime(Timestamp), Timestamp".into(),
        columns: columns.collect(),
        acting_at_once: Vec::new(),
    }
}

fn described(name: &str, type_name: &str) -> DescribedColumn {
    DescribedColumn { name: name.into(), type_name: type_name.into(), default_kind: DefaultKind::Plain }
}

fn found(spec: &TableSpec, table: FoundTable) -> Vec<String> {
    let differences = differences(spec, &Found { table: Some(table), ..Found::default() });
    differences.iter().map(ToString::to_string).collect()
}

#[test]
fn a_table_is_as_it_is_where_nobody_asked() {
    for layout in [Layout::Json, Layout::Map, Layout::Nested] {
        assert_eq!(found(&usual(), made(layout)), Vec::<String>::new(), "{layout}");
        let spec = TableSpec { layout: Some(layout), ..usual() };
        assert_eq!(found(&spec, made(layout)), Vec::<String>::new(), "{layout}");
    }
    let mut owned = made(Layout::Map);
    owned.columns.push(described("Tenant", "String"));
    owned.engine_full = "MergeTree ORDER BY TraceId TTL Timestamp + toIntervalDay(3)".into();
    owned.sorting_key = "TraceId".into();
    assert_eq!(found(&usual(), owned), Vec::<String>::new());
}

/// Tables that Sluice made before declare 14 paths, later ones none. Neither is a difference, for rows that go to either.
#[test]
fn paths_that_the_table_declares_and_nobody_asked_for_are_no_difference() {
    let mut declared = made(Layout::Json);
    let column = declared.columns.iter_mut().find(|column| column.name == "ResourceAttributes").unwrap();
    column.type_name =
        "JSON(max_dynamic_paths=64, `host.name` Nullable(String), `service.version` Nullable(String))".into();
    for spec in [usual(), TableSpec { layout: Some(Layout::Json), ..usual() }] {
        assert_eq!(found(&spec, declared.clone()), Vec::<String>::new());
        assert_eq!(found(&spec, made(Layout::Json)), Vec::<String>::new());
    }
    // One that is asked for is compared in either.
    let path = |path: &str| TypedPath {
        set: AttributeSet::Resource,
        path: path.into(),
        type_name: "Nullable(String)".into(),
    };
    let asked = |name| TableSpec { typed_paths: vec![path(name)], ..usual() };
    assert_eq!(found(&asked("host.name"), declared.clone()), Vec::<String>::new());
    assert_eq!(found(&asked("host.name"), made(Layout::Json)).len(), 1);
    assert!(found(&asked("zone"), declared)[0].contains("`host.name` Nullable(String)"), "others stay");
}

/// The table of a preset, as a server shows it.
fn made_by(preset: Preset) -> FoundTable {
    let mut table = made(preset.layout());
    let computed = preset.columns().iter();
    table.columns.extend(computed.map(|column| DescribedColumn {
        default_kind: column.kind,
        ..described(column.name, column.type_name)
    }));
    table
}

#[test]
fn the_columns_of_a_preset_are_added_to_a_table_of_its_layout() {
    let spec = TableSpec { preset: Some(Preset::ClickStack), ..usual() };
    assert_eq!(found(&spec, made_by(Preset::ClickStack)), Vec::<String>::new());
    let mut without = made_by(Preset::ClickStack);
    without.columns.retain(|column| column.name != "SampleRate");
    let missing = differences(&spec, &Found { table: Some(without), ..Found::default() });
    assert_eq!(
        missing[0].change,
        Change::AddColumn(
            "ALTER TABLE `otel`.`otel_traces` ADD COLUMN IF NOT EXISTS `SampleRate` UInt64 MATERIALIZED \
             greatest(toUInt64OrZero(SpanAttributes['SampleRate']), 1) CODEC(T64, ZSTD(1))"
                .into()
        )
    );
    assert_eq!(missing.len(), 1);
    let mut other = made_by(Preset::ClickStack);
    other.columns.iter_mut().find(|column| column.name == "SampleRate").unwrap().type_name = "UInt8".into();
    let other = found(&spec, other);
    assert_eq!(other.len(), 1);
    assert!(
        other[0].starts_with("column SampleRate is UInt8, wanted: UInt64; this would take: ALTER TABLE"),
        "{other:?}"
    );
}

#[test]
fn a_preset_asks_for_its_layout_before_its_columns() {
    let spec = TableSpec { preset: Some(Preset::ClickStack), ..usual() };
    assert_eq!(
        found(&spec, made(Layout::Json)),
        [
            "layout of ResourceAttributes is Json, wanted: Map; this would take: a new table, into which the rows are copied"
        ]
    );
}

#[test]
fn what_is_missing_is_made_in_the_order_of_its_needs() {
    let spec = TableSpec { views: View::ALL.into(), ..usual() };
    let all = differences(&spec, &Found::default());
    let statements: Vec<_> =
        all.iter().flat_map(|difference| difference.change.statements()).cloned().collect();
    assert_eq!(statements, crate::ddl::create_all(&spec));
    let texts: Vec<_> = all.iter().map(ToString::to_string).collect();
    let taken = |what: &str, statements: &[String]| {
        format!("{what} is missing; this would take: {}", statements.join(";\n"))
    };
    assert_eq!(
        texts,
        [
            taken("table otel.otel_traces", &create_table(&spec)),
            taken("view otel_traces_operations_mv", &View::Operations.create(&spec)),
            taken("view otel_traces_trace_id_ts_mv", &View::TraceTimes.create(&spec)),
        ]
    );
    // A view or table that is missing after a failure is created.
    let others = vec![
        "otel_traces_operations".into(),
        "otel_traces_trace_id_ts".into(),
        "otel_traces_trace_id_ts_mv".into(),
    ];
    let rest = differences(&spec, &Found { table: Some(made(Layout::Json)), others, ..Found::default() });
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].to_string(), texts[1]);
}

#[test]
fn columns_that_are_missing_are_added_in_the_layout_of_the_table() {
    let mut table = made(Layout::Nested);
    table.columns.retain(|column| column.name != "ScopeVersion" && column.name != "SpanAttributesInt.Value");
    let spec = TableSpec { cluster: Some("main".into()), ..usual() };
    let differences = differences(&spec, &Found { table: Some(table), ..Found::default() });
    let statements: Vec<_> =
        differences.iter().flat_map(|difference| difference.change.statements()).collect();
    assert_eq!(
        statements,
        [
            "ALTER TABLE `otel`.`otel_traces` ON CLUSTER `main` ADD COLUMN IF NOT EXISTS `ScopeVersion` String CODEC(ZSTD(1))",
            "ALTER TABLE `otel`.`otel_traces` ON CLUSTER `main` ADD COLUMN IF NOT EXISTS `SpanAttributesInt.Value` Array(Int64) CODEC(ZSTD(1))",
        ]
    );
}

#[test]
fn attributes_of_which_nothing_is_there_are_added_as_they_are_wanted() {
    let mut table = made(Layout::Map);
    table.columns.retain(|column| column.name != "SpanAttributes");
    let spec = TableSpec { layout: Some(Layout::Map), ..usual() };
    assert_eq!(
        found(&spec, table.clone()),
        [
            "column SpanAttributes is missing; this would take: ALTER TABLE `otel`.`otel_traces` ADD COLUMN IF NOT EXISTS \
             `SpanAttributes` Map(LowCardinality(String), String) CODEC(ZSTD(1))"
        ]
    );
    assert!(found(&usual(), table)[0].contains("`SpanAttributes` JSON(max_dynamic_paths=64) CODEC"));
}

#[test]
fn optional_columns_are_compared_where_they_are_asked_for() {
    use crate::optional::{OptionalColumns, OptionalGroup};
    let asked = |groups: &[OptionalGroup]| TableSpec {
        optional: Some(groups.iter().copied().collect::<OptionalColumns>()),
        ..usual()
    };
    let spec = asked(&[OptionalGroup::AttributeKeys, OptionalGroup::TraceFlags]);
    let differences = differences(&spec, &Found { table: Some(made(Layout::Map)), ..Found::default() });
    let statements: Vec<_> =
        differences.iter().flat_map(|difference| difference.change.statements()).collect();
    let alter = "ALTER TABLE `otel`.`otel_traces` ADD COLUMN IF NOT EXISTS";
    assert_eq!(
        statements,
        [
            &format!(
                "{alter} `ResourceAttributesKeys` Array(LowCardinality(String)) CODEC(ZSTD(1)), ADD INDEX IF NOT EXISTS \
                 idx_res_attr_keys ResourceAttributesKeys TYPE bloom_filter(0.01) GRANULARITY 1"
            ),
            &format!(
                "{alter} `SpanAttributesKeys` Array(LowCardinality(String)) CODEC(ZSTD(1)), ADD INDEX IF NOT EXISTS \
                 idx_span_attr_keys SpanAttributesKeys TYPE bloom_filter(0.01) GRANULARITY 1"
            ),
            &format!("{alter} `TraceFlags` UInt32 CODEC(ZSTD(1))"),
        ]
    );
    // A person reads the same statement, with the index.
    assert_eq!(
        found(&spec, made(Layout::Map))[0],
        format!("column ResourceAttributesKeys is missing; this would take: {}", statements[0])
    );
    // The scope's attributes are added like those of the resource.
    let spec = asked(&[OptionalGroup::ScopeAttributes]);
    assert_eq!(
        found(&spec, made(Layout::Map))[0],
        format!(
            "column ScopeAttributes is missing; this would take: {alter} `ScopeAttributes` Map(LowCardinality(String), String) \
             CODEC(ZSTD(1))"
        )
    );
    assert_eq!(found(&spec, made(Layout::Nested)).len(), 11);
    // What is there and filled is no difference, nor is what the spec does not ask for.
    let mut table = made(Layout::Json);
    table.columns.extend([
        described("ScopeAttributes", "Map(String, String)"),
        described("ScopeAttributesKeys", "Array(String)"),
        described("TraceFlags", "UInt8"),
    ]);
    assert_eq!(found(&spec, table), Vec::<String>::new());
}

#[test]
fn an_optional_column_that_cannot_be_filled_is_a_persons_business() {
    use crate::optional::OptionalGroup;
    let optional = Some(OptionalGroup::KafkaCoordinates.columns());
    let spec = TableSpec { optional, ..usual() };
    let mut table = made(Layout::Json);
    let computed =
        DescribedColumn { default_kind: DefaultKind::Default, ..described("KafkaOffset", "Int64") };
    table.columns.extend([
        described("KafkaTopic", "FixedString(8)"),
        described("KafkaPartition", "UInt32"),
        computed,
        described("KafkaTimestamp", "DateTime64(3, 'UTC')"),
    ]);
    assert_eq!(
        found(&spec, table),
        [
            "column KafkaTopic is FixedString(8), wanted: LowCardinality(String); this would take: \
             ALTER TABLE `otel`.`otel_traces` MODIFY COLUMN `KafkaTopic` LowCardinality(String)",
            "column KafkaOffset is DEFAULT, wanted: filled by gateways; this would take: \
             ALTER TABLE `otel`.`otel_traces` MODIFY COLUMN `KafkaOffset` REMOVE DEFAULT",
        ]
    );
}

#[test]
fn a_column_beside_ours_is_added_once_and_its_type_is_a_persons_business() {
    let column = ExtraColumn {
        name: "Route".into(),
        type_name: "LowCardinality(String)".into(),
        default: Some("SpanName".into()),
    };
    let spec = TableSpec { columns: vec![column], ..usual() };
    assert_eq!(
        found(&spec, made(Layout::Json)),
        [
            "column Route is missing; this would take: ALTER TABLE `otel`.`otel_traces` ADD COLUMN IF NOT EXISTS \
             `Route` LowCardinality(String) DEFAULT (SpanName)"
        ]
    );
    let mut route = described("Route", "LowCardinality(String)");
    route.default_kind = DefaultKind::Default;
    let mut table = made(Layout::Json);
    table.columns.push(route);
    assert_eq!(found(&spec, table), Vec::<String>::new());
    let mut table = made(Layout::Json);
    table.columns.push(described("Route", "String"));
    assert_eq!(
        found(&spec, table),
        ["column Route is String, wanted: LowCardinality(String); this would take: \
          ALTER TABLE `otel`.`otel_traces` MODIFY COLUMN `Route` LowCardinality(String) DEFAULT (SpanName)"]
    );
}

#[test]
fn a_default_that_a_column_lacks_is_a_persons_business() {
    let column =
        ExtraColumn { name: "Route".into(), type_name: "String".into(), default: Some("SpanName".into()) };
    let spec = TableSpec { columns: vec![column], ..usual() };
    for (default_kind, is) in [
        (DefaultKind::Default, None),
        (DefaultKind::Plain, Some("none")),
        (DefaultKind::Alias, Some("ALIAS")),
    ] {
        let mut table = made(Layout::Json);
        table.columns.push(DescribedColumn { default_kind, ..described("Route", "String") });
        let expected = is.map(|is| {
            format!(
                "default of column Route is {is}, wanted: DEFAULT SpanName; this would take: \
                 ALTER TABLE `otel`.`otel_traces` MODIFY COLUMN `Route` String DEFAULT (SpanName)"
            )
        });
        assert_eq!(found(&spec, table), expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn what_would_drop_rewrite_or_copy_rows_is_named_and_never_made() {
    let typed = TypedPath { set: AttributeSet::Span, path: "http.route".into(), type_name: "String".into() };
    for (spec, expected) in [
        (
            TableSpec { engine: Some(Engine::ReplicatedMergeTree), ..usual() },
            "engine is MergeTree, wanted: ReplicatedMergeTree; this would take: a new table, into which the rows are copied",
        ),
        (
            TableSpec { order_by: vec!["TraceId".into()], ..usual() },
            "sorting key is ServiceName, SpanName, toDateTime(Timestamp), Timestamp, wanted: TraceId; this would take: a new table, into \
             which the rows are copied",
        ),
        (
            TableSpec { ttl: Some(Duration::from_hours(72)), ..usual() },
            "TTL is none, wanted: toDateTime64(Timestamp, 0) + toIntervalSecond(259200); this would take: ALTER TABLE `otel`.`otel_traces` MODIFY \
             TTL toDateTime64(Timestamp, 0) + toIntervalSecond(259200), which drops what is older",
        ),
        (
            TableSpec { layout: Some(Layout::Map), ..usual() },
            "layout of ResourceAttributes is Json, wanted: Map; this would take: a new table, into which the rows are copied",
        ),
        (
            TableSpec { typed_paths: vec![typed], ..usual() },
            "path http.route of SpanAttributes is not declared, wanted: String; this would take: ALTER TABLE `otel`.`otel_traces` MODIFY \
             COLUMN `SpanAttributes` JSON(`http.route` String), which rewrites every part",
        ),
        (TableSpec { dynamic_paths_max: Some(1_024), ..usual() }, ""),
    ] {
        let found = differences(&spec, &Found { table: Some(made(Layout::Json)), ..Found::default() });
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(texts.first().map_or("", |text| text), expected);
        assert!(found.iter().all(|difference| difference.change.statements().is_empty()), "{found:?}");
    }
    let paths = TableSpec { dynamic_paths_max: Some(8), ..usual() };
    assert!(
        found(&paths, made(Layout::Json))[1]
            .starts_with("max_dynamic_paths of SpanAttributes is 1024, wanted: 8;")
    );
}

#[test]
fn a_ttl_of_32_bits_differs_and_is_told_with_what_it_deletes() {
    let spec = TableSpec { ttl: Some(Duration::from_hours(12)), ..usual() };
    let of = |ttl: &str| {
        let mut table = made(Layout::Json);
        table.engine_full = format!("MergeTree ORDER BY TraceId TTL {ttl} SETTINGS index_granularity = 8192");
        found(&spec, table)
    };
    assert_eq!(of("toDateTime64(Timestamp, 0) + toIntervalHour(12)"), Vec::<String>::new());
    let same_age = of("toDateTime(Timestamp) + toIntervalHour(12)");
    assert_eq!(same_age.len(), 1, "{same_age:?}");
    let text = "which drops what is older; the present TTL has 32 bits (toDateTime) and deletes rows at once whose Timestamp";
    assert!(same_age[0].contains(text), "{same_age:?}");
    let wrapped = of("toDateTime(Timestamp) + toIntervalDay(36500)");
    assert!(wrapped[0].ends_with("(toDateTime) and deletes every new row at once"), "{wrapped:?}");
}

#[test]
fn a_rule_of_the_ttl_that_deletes_other_rows_differs_and_a_rule_that_keeps_them_stays() {
    let spec = TableSpec { ttl: Some(Duration::from_hours(12)), ..usual() };
    let of = |ttl: &str, acting_at_once: &[AtOnce]| {
        let engine_full = format!("MergeTree ORDER BY TraceId TTL {ttl} SETTINGS index_granularity = 8192");
        found(&spec, FoundTable { engine_full, acting_at_once: acting_at_once.into(), ..made(Layout::Json) })
    };
    let (wanted, wraps) = (
        "toDateTime64(Timestamp, 0) + toIntervalHour(12)",
        "toDateTime(Timestamp) + toIntervalDay(29000) WHERE SpanName = 'x'",
    );
    let moves = "Timestamp + toIntervalHour(1) TO VOLUME 'cold'";
    assert_eq!(of(&format!("{moves}, {wanted}"), &[]), Vec::<String>::new());
    let at_once = AtOnce { rule: wraps.into(), reason: "it is past".into() };
    for ttl in [format!("{wanted}, {wraps}, {moves}"), format!("{wraps}, {moves}, {wanted}")] {
        let unknown = of(&ttl, &[]);
        assert_eq!(unknown.len(), 1, "{unknown:?}");
        let text = format!(
            "MODIFY TTL toDateTime64(Timestamp, 0) + toIntervalSecond(43200), {moves}, which drops what is older; the present TTL also \
             deletes rows by {wraps}"
        );
        assert!(unknown[0].ends_with(&text), "{unknown:?}");
        let known = of(&ttl, std::slice::from_ref(&at_once));
        assert!(known[0].ends_with(&format!("drops what is older; {at_once}")), "{known:?}");
    }
    let narrow = "toDate(Timestamp) + toIntervalDay(50000)";
    let at_once = AtOnce { rule: narrow.into(), reason: "its type is Date, which has 16 bits".into() };
    let told = of(narrow, &[at_once]);
    assert!(
        told[0].ends_with("deletes every new row at once: its type is Date, which has 16 bits"),
        "{told:?}"
    );
}

#[test]
fn a_column_that_cannot_be_written_is_named_with_what_would_help() {
    let mut table = made(Layout::Json);
    table.columns.iter_mut().find(|column| column.name == "Duration").unwrap().type_name = "Int32".into();
    let found = found(&usual(), table);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("column Duration is not so, wanted: one that rows can be written to"),
        "{found:?}"
    );
    assert!(found[0].contains("has type Int32; expected UInt64"), "{found:?}");
}

#[test]
fn a_cloud_server_stores_every_table_of_the_family_alike() {
    let mut table = made(Layout::Json);
    table.engine = "SharedMergeTree".into();
    let spec = TableSpec { engine: Some(Engine::ReplicatedMergeTree), ..usual() };
    assert_eq!(found(&spec, table), Vec::<String>::new());
}

#[test]
fn tables_are_synced_by_a_statement_that_may_be_run() {
    let spec = TableSpec {
        durability: Durability::Fsync,
        cluster: Some("main".into()),
        views: vec![View::Operations],
        ..usual()
    };
    let others = vec!["otel_traces_operations".into(), "otel_traces_operations_mv".into()];
    let unsynced = vec!["otel_traces".into(), "otel_traces_operations".into()];
    let all = differences(&spec, &Found { table: Some(made(Layout::Json)), others, unsynced });
    let texts: Vec<_> = all.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["otel_traces", "otel_traces_operations"].map(|table| format!(
            "durability of {table} is Process, wanted: Fsync; this would take: ALTER TABLE `otel`.`{table}` ON CLUSTER `main` MODIFY SETTING \
             fsync_after_insert = 1, fsync_part_directory = 1"
        ))
    );
    let statements = all.iter().flat_map(|difference| difference.change.statements());
    assert_eq!(statements.filter(|statement| statement.starts_with("ALTER TABLE")).count(), 2);
}

#[test]
fn a_table_that_cannot_be_as_durable_as_asked_is_named() {
    use Durability::{Fsync, Process, Quorum};
    for (durability, engine, expected) in [
        (Process, "MergeTree", None),
        (Process, "Memory", None),
        (Fsync, "MergeTree", None),
        (Fsync, "ReplicatedReplacingMergeTree", None),
        (Fsync, "SharedMergeTree", None),
        (Fsync, "Null", None),
        (
            Fsync,
            "Distributed",
            Some(
                "unknown with engine Distributed, wanted: Fsync; this would take: a change of the tables behind",
            ),
        ),
        (Quorum, "MergeTree", Some("Process, wanted: Quorum; this would take: a new table")),
        (Quorum, "Null", Some("unknown with engine Null, wanted: Quorum; this would take: a new table")),
        (Quorum, "ReplicatedReplacingMergeTree", None),
        (Quorum, "SharedMergeTree", None),
    ] {
        let table = FoundTable { engine: engine.into(), ..made(Layout::Json) };
        let found = found(&TableSpec { durability, ..usual() }, table);
        let starts = expected.map(|text| format!("durability of otel_traces is {text}"));
        assert_eq!(found.len(), usize::from(starts.is_some()), "{engine}: {found:?}");
        assert!(found.iter().zip(&starts).all(|(found, starts)| found.starts_with(starts)), "{found:?}");
    }
}

#[test]
fn a_table_that_passes_rows_on_is_changed_by_nobody_alone() {
    let column = ExtraColumn { name: "Route".into(), type_name: "String".into(), default: None };
    let spec = TableSpec { columns: vec![column], ttl: Some(Duration::from_hours(24)), ..usual() };
    let table = FoundTable {
        engine: "Distributed".into(),
        engine_full: "Distributed('all', '', 'otel_traces')".into(),
        ..made(Layout::Json)
    };
    let found = differences(&spec, &Found { table: Some(table), ..Found::default() });
    let changes: Vec<_> = found.iter().map(|difference| (&*difference.what, &difference.change)).collect();
    let by_hand = |words: &str| Change::ByHand(words.to_owned());
    let column = by_hand(
        "the column in the tables behind this Distributed table, on all of their servers, and then ALTER TABLE `otel`.`otel_traces` ADD \
         COLUMN IF NOT EXISTS `Route` String",
    );
    let ttl = by_hand("a change of the tables behind this Distributed table, on all of their servers");
    assert_eq!(changes, [("column Route", &column), ("TTL", &ttl)]);
}
