//! The remedy for a table that lacks columns of the gateway: one statement that adds all of them, to be copied whole.
//!
//! Place in the flow: an error about the table's columns carries it. Pure. Limit: [`STATEMENT_BYTES_MAX`].

use crate::column::TableColumns;
use crate::ddl::difference::{BEHIND, DISTRIBUTED, missing_columns};
use crate::ddl::{TableSpec, column_line};
use crate::sql::identifier;
use crate::table::DescribedColumn;

/// The longest statement. Chosen: a message of 500 characters has room for it, the names of its columns and the table.
const STATEMENT_BYTES_MAX: usize = 350;

/// What adds the columns that every row needs and that a table of this engine lacks. `None` if it lacks none.
pub fn remedy(spec: &TableSpec, described: &[DescribedColumn], engine: &str) -> Option<String> {
    let missing = missing_columns(spec, described);
    let lines: Vec<_> = missing.iter().map(|column| column_line(column, spec)).collect();
    of_lines(spec, &lines, engine)
}

/// The same for rows that were encoded for other columns, with the types that these had.
pub fn remedy_for_encoded(
    spec: &TableSpec,
    encoded: &TableColumns,
    described: &[DescribedColumn],
    engine: &str,
) -> Option<String> {
    let wanted = encoded.names_and_types();
    let missing = wanted.iter().filter(|(name, _)| described.iter().all(|found| found.name != *name));
    let lines: Vec<_> =
        missing.map(|(name, type_name)| format!("{} {type_name}", identifier(name))).collect();
    of_lines(spec, &lines, engine)
}

fn of_lines(spec: &TableSpec, lines: &[String], engine: &str) -> Option<String> {
    if lines.is_empty() {
        return None;
    }
    let added: Vec<_> = lines.iter().map(|line| format!("ADD COLUMN IF NOT EXISTS {line}")).collect();
    let statement = format!("{} {}", spec.alter(), added.join(", "));
    if statement.len() > STATEMENT_BYTES_MAX {
        return Some("`sluice-gateway ddl diff` prints the statements that add them".to_owned());
    }
    if engine == DISTRIBUTED {
        return Some(format!("add them in {BEHIND}, and then {statement}"));
    }
    Some(statement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{column::Layout, table::DefaultKind};

    fn without(names: &[&str]) -> Vec<DescribedColumn> {
        let columns = TableColumns::of_layout(Layout::Map).columns().into_iter();
        let left = columns.filter(|column| !names.contains(&&*column.name));
        let described = left.map(|column| DescribedColumn {
            type_name: column.column_type.to_string(),
            name: column.name,
            default_kind: DefaultKind::Plain,
        });
        described.collect()
    }

    fn spec() -> TableSpec {
        TableSpec { cluster: Some("main".into()), ..TableSpec::new("otel", "my`spans") }
    }

    const ALTER: &str = "ALTER TABLE `otel`.`my\\`spans` ON CLUSTER `main` ADD COLUMN IF NOT EXISTS";

    #[test]
    fn one_statement_adds_all_that_is_missing() {
        let of = |names: &[&str]| remedy(&spec(), &without(names), "MergeTree");
        let expected =
            format!("{ALTER} `TraceState` String CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS `SpanKind` ");
        let both = of(&["SpanKind", "TraceState"]).unwrap();
        assert!(both.starts_with(&expected) && !both.contains('…'), "{both}");
        assert_eq!(of(&[]), None);
        assert!(remedy(&spec(), &[], "MergeTree").unwrap().starts_with("`sluice-gateway ddl diff` "));
    }

    #[test]
    fn tables_behind_a_distributed_one_come_first() {
        let text = remedy(&spec(), &without(&["TraceState"]), "Distributed").unwrap();
        let expected = format!("add them in {BEHIND}, and then {ALTER} `TraceState` String CODEC(ZSTD(1))");
        assert_eq!(text, expected);
    }

    #[test]
    fn rows_that_were_encoded_need_the_types_that_they_had() {
        let mut encoded = TableColumns::of_layout(Layout::Map);
        encoded.described = vec![("TraceState".into(), "LowCardinality(String)".into())];
        let text = remedy_for_encoded(&spec(), &encoded, &without(&["TraceState"]), "MergeTree");
        assert_eq!(text, Some(format!("{ALTER} `TraceState` LowCardinality(String)")));
    }
}
