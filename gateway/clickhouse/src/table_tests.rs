//! Tests of [`super`].

use super::*;
use crate::json_limits::JsonLimits;

fn described(name: &str, type_name: &str, default_type: &str) -> DescribedColumn {
    DescribedColumn {
        name: name.into(),
        type_name: type_name.into(),
        default_kind: DefaultKind::from_described(default_type),
    }
}

fn fitting() -> Vec<DescribedColumn> {
    of_layout(Layout::Json)
}

fn of_layout(layout: Layout) -> Vec<DescribedColumn> {
    let columns = TableColumns::of_layout(layout).columns();
    columns.iter().map(|column| described(&column.name, &column.column_type.to_string(), "")).collect()
}

/// The result for a layout: with the described types, in the order of a row.
fn found(layout: Layout) -> TableColumns {
    let described = of_layout(layout).into_iter().map(|column| (column.name, column.type_name));
    TableColumns { described: described.collect(), ..TableColumns::of_layout(layout) }
}

fn fits(columns: &[DescribedColumn]) -> TableColumns {
    check(columns).unwrap().columns
}

/// The message for a table in which one column has another type.
fn message(column: &str, type_name: &str, default_type: &str) -> Option<String> {
    let mut columns = fitting();
    let changed = columns.iter_mut().find(|described| described.name == column).unwrap();
    *changed = described(column, type_name, default_type);
    match check(&columns) {
        Ok(_) => None,
        Err(mismatches) => {
            assert_eq!(mismatches.len(), 1);
            Some(mismatches[0].to_string())
        }
    }
}

#[test]
fn our_own_layouts_fit_in_any_order() {
    for layout in [Layout::Json, Layout::Map, Layout::Nested] {
        let mut columns = of_layout(layout);
        assert_eq!(fits(&columns), found(layout));
        columns.reverse();
        assert_eq!(fits(&columns), found(layout));
    }
}

#[test]
fn each_set_of_attributes_may_have_its_own_layout() {
    let mut columns = of_layout(Layout::Map);
    columns.retain(|column| column.name != "SpanAttributes" && column.name != "Events.Attributes");
    columns.push(described("SpanAttributes", "JSON(max_dynamic_paths=8, `a.b` Int64, SKIP `c`)", ""));
    columns.extend(
        of_layout(Layout::Nested).into_iter().filter(|column| column.name.starts_with("Events.Attributes")),
    );
    let found = fits(&columns);
    assert_eq!(
        found.to_string(),
        "ResourceAttributes Map, SpanAttributes Json, Events.Attributes Nested, Links.Attributes Map"
    );
    let AttributeColumns::Json(json) = found.span else { panic!("span attributes are JSON") };
    assert_eq!(json.limits(), JsonLimits { paths: 8, ..JsonLimits::default() });
    assert!(json.has_rules());
}

#[test]
fn a_map_that_is_computed_from_the_groups_is_not_where_rows_go() {
    let mut columns = of_layout(Layout::Nested);
    columns.push(described("SpanAttributes", "Map(String, String)", "ALIAS"));
    assert_eq!(fits(&columns), found(Layout::Nested));
}

#[test]
fn types_that_read_the_same_bytes_fit() {
    let table = [
        ("Timestamp", "DateTime64(9, 'UTC')"),
        ("SpanName", "String"),
        ("Duration", "Int64"),
        ("TraceId", "LowCardinality(String)"),
        ("SpanAttributes", "JSON(max_dynamic_paths=64)"),
        ("SpanAttributes", "JSON(max_dynamic_types=16, max_dynamic_paths=0)"),
        ("Events.Attributes", "Array(JSON(max_dynamic_paths=16))"),
        ("Events.Timestamp", "Array(DateTime64(9, 'Europe/Berlin'))"),
        ("Events.Name", "Array(String)"),
        ("Links.TraceId", "Array(LowCardinality(String))"),
        ("SpanAttributes", "Map(String, LowCardinality(String))"),
        ("Events.Attributes", "Array(Map(String, String))"),
        ("SpanAttributes", "JSON(`http.route` LowCardinality(String), SKIP `q`, SKIP REGEXP '^p')"),
    ];
    for (column, type_name) in table {
        assert_eq!(message(column, type_name, ""), None, "{column} {type_name}");
    }
    assert_eq!(message("Duration", "UInt64", "DEFAULT"), None);
    let mut columns = fitting();
    columns[1] = described("TraceId", "LowCardinality(String)", "");
    assert_ne!(
        fits(&columns),
        fits(&fitting()),
        "the bytes are the same, and the types before the rows are not"
    );
    assert_eq!(message("SpanAttributes", "JSON", "EPHEMERAL"), None);
}

/// The table of the Collector's exporter until 2024, as `DESCRIBE` prints it, with the alias that some guides add.
#[test]
fn an_older_table_of_the_collector_fits_as_it_is() {
    let map = "Map(LowCardinality(String), String)";
    let maps = format!("Array({map})");
    let columns = [
        ("Timestamp", "DateTime64(9)"),
        ("TraceId", "String"),
        ("SpanId", "String"),
        ("ParentSpanId", "String"),
        ("TraceState", "String"),
        ("SpanName", "LowCardinality(String)"),
        ("SpanKind", "LowCardinality(String)"),
        ("ServiceName", "LowCardinality(String)"),
        ("ResourceAttributes", map),
        ("ScopeName", "String"),
        ("ScopeVersion", "String"),
        ("SpanAttributes", map),
        ("Duration", "Int64"),
        ("StatusCode", "LowCardinality(String)"),
        ("StatusMessage", "String"),
        ("Events.Timestamp", "Array(DateTime64(9))"),
        ("Events.Name", "Array(LowCardinality(String))"),
        ("Events.Attributes", &maps),
        ("Links.TraceId", "Array(String)"),
        ("Links.SpanId", "Array(String)"),
        ("Links.TraceState", "Array(String)"),
        ("Links.Attributes", &maps),
    ];
    let columns = columns.map(|(name, type_name)| described(name, type_name, ""));
    let found = fits(&columns);
    assert_eq!(TableColumns { described: Vec::new(), ..found.clone() }, TableColumns::of_layout(Layout::Map));
    let duration = found.described.iter().find(|(name, _)| name == "Duration");
    assert_eq!(duration.map(|(_, type_name)| &**type_name), Some("Int64"), "what goes before the rows");
}

#[test]
fn other_types_are_named_with_what_was_expected() {
    let table = [
        ("Timestamp", "DateTime64(3)", "column Timestamp has type DateTime64(3); expected DateTime64(9): "),
        ("Timestamp", "DateTime", "column Timestamp has type DateTime; expected DateTime64(9): "),
        ("Duration", "UInt32", "column Duration has type UInt32; expected UInt64: "),
        ("Duration", "Nullable(Int64)", "column Duration has type Nullable(Int64); expected UInt64: "),
        ("TraceId", "FixedString(32)", "column TraceId has type FixedString(32); expected String: "),
        ("TraceId", "Nullable(String)", "column TraceId has type Nullable(String); expected String: "),
        (
            "SpanName",
            "LowCardinality(Nullable(String))",
            "column SpanName has type LowCardinality(Nullable(String)); expected LowCardinality(String): ",
        ),
        (
            "SpanAttributes",
            "Map(String, Int64)",
            "column SpanAttributes has type Map(String, Int64); expected Map(LowCardinality(String), String): ",
        ),
        (
            "SpanAttributes",
            "Nullable(JSON)",
            "column SpanAttributes has type Nullable(JSON); expected JSON, Map(LowCardinality(String), String), or typed",
        ),
        (
            "Events.Attributes",
            "JSON",
            "column Events.Attributes has type JSON; expected Array(JSON), Array(Map(",
        ),
        (
            "Events.Timestamp",
            "Array(DateTime64(6))",
            "column Events.Timestamp has type Array(DateTime64(6)); expected Array(DateTime64(9)): ",
        ),
    ];
    for (column, type_name, expected) in table {
        let message = message(column, type_name, "").unwrap();
        assert!(message.starts_with(expected), "{message}");
        assert!(message.contains("MODIFY COLUMN"), "{message}");
    }
}

#[test]
fn a_declared_path_of_another_type_is_named() {
    for (column, type_name) in [
        ("SpanAttributes", "JSON(`a.b` Array(String))"),
        ("Links.Attributes", "Array(JSON(`a.b` Array(String)))"),
    ] {
        let message = message(column, type_name, "").unwrap();
        assert!(
            message.starts_with(&format!(
                "column {column} declares path a.b as Array(String); expected one of Bool, "
            )),
            "{message}"
        );
    }
}

#[test]
fn types_of_groups_are_compared_field_by_field() {
    let fit = |group, found| ColumnType::ArrayOfPairs(group).fit(found) == TypeFit::Same;
    assert!(fit(Group::Int, "Array(Nested(Key String, Value Int64))"));
    assert!(fit(
        Group::String,
        "Array(Array(Tuple(Key LowCardinality(String), Value LowCardinality(String))))"
    ));
    assert!(!fit(Group::Int, "Array(Nested(Key String, Value UInt64))"));
    assert!(!fit(Group::Int, "Array(Nested(Value Int64, Key String))"));
    assert!(!fit(Group::Int, "Array(Tuple(Key String, Value Int64))"));
    let mut columns = of_layout(Layout::Nested);
    columns.retain(|column| column.name != "SpanAttributesInt.Value");
    columns.iter_mut().find(|column| column.name == "Events.AttributesBool").unwrap().type_name =
        "Array(String)".into();
    let messages: Vec<_> = check(&columns).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 2);
    assert!(messages[0].starts_with(
        "column SpanAttributesInt.Value is missing; expected SpanAttributesInt.Value Array(Int64)"
    ));
    assert!(messages[1].contains("expected Array(Nested(Key LowCardinality(String), Value Bool))"));
}

#[test]
fn patterns_that_the_server_does_not_apply_are_noted() {
    let mut columns = fitting();
    columns.iter_mut().find(|column| column.name == "SpanAttributes").unwrap().type_name =
        "JSON(SKIP REGEXP '^p')".into();
    let notes = check(&columns).unwrap().notes;
    assert_eq!(notes.len(), 1);
    assert!(notes[0].starts_with("column SpanAttributes has SKIP REGEXP '^p', which "), "{}", notes[0]);
    assert!(check(&fitting()).unwrap().notes.is_empty());
}

#[test]
fn missing_and_computed_columns_are_named() {
    let mut columns = fitting();
    columns.retain(|column| column.name != "TraceState" && column.name != "Links.Attributes");
    let messages: Vec<_> = check(&columns).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(messages[0], "column TraceState is missing; expected TraceState String");
    assert!(messages[1].starts_with(
        "column Links.Attributes is missing; expected Links.Attributes Array(JSON), Array(Map("
    ));
    assert_eq!(messages.len(), 2);
    assert_eq!(
        message("Duration", "UInt64", "MATERIALIZED").as_deref(),
        Some(
            "column Duration is MATERIALIZED, which cannot be inserted; expected a column that stores UInt64"
        )
    );
    assert!(message("Duration", "UInt64", "ALIAS").is_some());
    assert_eq!(check(&[]).unwrap_err().len(), fitting().len());
}

#[test]
fn additional_columns_are_left_to_the_server() {
    let mut columns = fitting();
    columns.insert(3, described("Day", "Date", "MATERIALIZED"));
    columns.push(described("Tenant", "String", "DEFAULT"));
    columns.push(described("Note", "Nullable(String)", ""));
    let additional = vec!["Day".to_owned(), "Tenant".to_owned(), "Note".to_owned()];
    assert_eq!(check(&columns).unwrap().additional, additional);
}

#[test]
fn optional_columns_are_filled_where_they_are() {
    use crate::optional::OptionalGroup;
    for layout in [Layout::Json, Layout::Map, Layout::Nested] {
        let all = TableColumns::of_layout(layout).with_optional(OptionalColumns::all());
        let mut columns: Vec<_> =
            all.names_and_types().iter().map(|(name, of)| described(name, of, "")).collect();
        columns.reverse();
        let fit = check(&columns).unwrap();
        let expected = TableColumns { described: all.names_and_types(), ..all };
        assert_eq!((&fit.columns, fit.notes.len(), fit.additional.len()), (&expected, 0, 0));
        assert_eq!(columns_of(&expected.names_and_types()).unwrap(), expected);
    }
    let mut columns = fitting();
    columns.extend([
        described("TraceFlags", "UInt32", ""),
        described("KafkaTopic", "String", ""),
        described("KafkaPartition", "UInt32", ""),
        described("KafkaTimestamp", "DateTime64(3, 'UTC')", ""),
        described("ScopeAttributes", "Map(String, String)", ""),
        described("SpanAttributesKeys", "Array(String)", ""),
    ]);
    let found = fits(&columns);
    assert_eq!(
        found.optional.names(),
        [
            "ScopeAttributes",
            "SpanAttributesKeys",
            "TraceFlags",
            "KafkaTopic",
            "KafkaPartition",
            "KafkaTimestamp"
        ]
    );
    assert_eq!((found.scope, fits(&fitting()).scope), (AttributeColumns::Map, AttributeColumns::default()));
    assert!(!found.optional.has_any_of(OptionalGroup::DroppedCounts.columns()));
}

/// No table is refused for a column that it need not have.
#[test]
fn an_optional_column_of_another_kind_is_left_to_the_server_and_noted() {
    for (name, type_name, default_type, note) in [
        (
            "TraceFlags",
            "UInt8",
            "",
            "column TraceFlags has type UInt8 and is not filled; the gateway fills a column",
        ),
        ("KafkaOffset", "String", "", "column KafkaOffset has type String and is not filled; "),
        (
            "KafkaTimestamp",
            "DateTime64(9)",
            "",
            "column KafkaTimestamp has type DateTime64(9) and is not filled; ",
        ),
        (
            "KafkaTopic",
            "LowCardinality(Nullable(String))",
            "",
            "column KafkaTopic has type LowCardinality(Nullable(",
        ),
        (
            "ScopeAttributes",
            "JSON(a Array(String))",
            "",
            "column ScopeAttributes has type JSON(a Array(String)) and ",
        ),
        ("KafkaHeaders", "JSON", "", "column KafkaHeaders has type JSON and is not filled; "),
        (
            "KafkaTopic",
            "String",
            "DEFAULT",
            "column KafkaTopic is DEFAULT, so the server fills it; for the gateway ",
        ),
        (
            "SpanAttributesKeys",
            "Array(String)",
            "MATERIALIZED",
            "column SpanAttributesKeys is MATERIALIZED, so ",
        ),
        ("ScopeAttributesBool.Key", "Array(String)", "ALIAS", "column ScopeAttributesBool.Key is ALIAS, so "),
    ] {
        let mut columns = fitting();
        columns.push(described(name, type_name, default_type));
        let fit = check(&columns).unwrap();
        assert!(fit.columns.optional.is_empty(), "{name} {type_name} {default_type}");
        assert_eq!(fit.columns, fits(&fitting()), "rows are as without it");
        assert_eq!(fit.additional, [name]);
        assert!(fit.notes.len() == 1 && fit.notes[0].starts_with(note), "{:?}", fit.notes);
    }
    // If one group is missing, the others are not filled.
    let mut columns = fitting();
    let groups = AttributeSet::Scope.columns(Layout::Nested);
    columns.extend(
        groups[1..].iter().map(|column| described(&column.name, &column.column_type.to_string(), "")),
    );
    assert!(fits(&columns).optional.is_empty());
}

#[test]
fn rows_with_an_optional_column_fit_while_it_is_there() {
    let mut with = fitting();
    with.push(described("TraceFlags", "UInt32", ""));
    assert_eq!(check_encoded(&fits(&with), &with).unwrap(), fits(&with));
    assert_eq!(check_encoded(&fits(&fitting()), &with).unwrap(), fits(&fitting()), "it need not be filled");
    let said = mismatches(&with, &fitting());
    assert!(said.len() == 1 && said[0].starts_with("column TraceFlags is missing; expected "), "{said:?}");
}

/// The messages for rows that were encoded for a table of these columns, once it has those.
fn mismatches(before: &[DescribedColumn], now: &[DescribedColumn]) -> Vec<String> {
    let mismatches = check_encoded(&fits(before), now).err().unwrap_or_default();
    mismatches.iter().map(ToString::to_string).collect()
}

#[test]
fn what_rows_were_encoded_for_is_made_of_its_names_and_types_again() {
    for layout in [Layout::Json, Layout::Map, Layout::Nested] {
        let columns = found(layout);
        assert_eq!(columns_of(&columns.names_and_types()).unwrap(), columns);
        let undescribed = TableColumns::of_layout(layout);
        assert_eq!(columns_of(&undescribed.names_and_types()).unwrap(), columns);
    }
    assert!(columns_of(&[]).is_err());
}

#[test]
fn rows_of_other_columns_fit_while_theirs_are_there() {
    // Their own columns, although new rows now go to others.
    let groups = of_layout(Layout::Nested);
    let mut now = groups.clone();
    now.extend(["ResourceAttributes", "SpanAttributes"].map(|name| described(name, "JSON", "")));
    assert_ne!(fits(&now), fits(&groups));
    assert_eq!(check_encoded(&fits(&groups), &now).unwrap(), found(Layout::Nested));
    // Types with the same encoding, under their current names.
    let mut now = fitting();
    now[1] = described("TraceId", "LowCardinality(String)", "");
    now.iter_mut().find(|column| column.name == "Duration").unwrap().type_name = "Int64".into();
    now.push(described("Tenant", "String", "DEFAULT"));
    let columns = check_encoded(&fits(&fitting()), &now).unwrap();
    assert_eq!(columns, fits(&now));
    assert_ne!(columns, fits(&fitting()));
}

#[test]
fn rows_of_other_columns_do_not_fit_types_that_read_other_bytes() {
    let with = |column: &str, type_name: &str, default_type: &str| {
        let mut columns = fitting();
        let changed = columns.iter_mut().find(|described| described.name == column).unwrap();
        *changed = described(column, type_name, default_type);
        columns
    };
    let text = "Map(LowCardinality(String), String)";
    for (column, type_name) in [
        ("SpanAttributes", text),
        ("SpanAttributes", "JSON(`a.b` Int64)"),
        ("SpanAttributes", "JSON(max_dynamic_paths=8)"),
        ("Events.Attributes", "JSON"),
        ("Links.Attributes", "Array(JSON(SKIP `q`))"),
        ("Duration", "Int128"),
    ] {
        let said = mismatches(&fitting(), &with(column, type_name, ""));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with(&format!("column {column} has type {type_name}; expected ")), "{said:?}");
    }
    // The message names the columns of the rows, not those of new rows.
    let said = mismatches(&with("SpanAttributes", "JSON(`a.b` Int64)", ""), &fitting());
    assert!(said[0].contains("has type JSON; expected JSON(`a.b` Int64): "), "{said:?}");
    let said = mismatches(&fitting(), &with("Duration", "UInt64", "ALIAS"));
    assert!(said[0].starts_with("column Duration is ALIAS, "), "{said:?}");
    let said = mismatches(&of_layout(Layout::Map), &of_layout(Layout::Nested));
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[0].ends_with(&format!("expected ResourceAttributes {text}")), "{said:?}");
}
