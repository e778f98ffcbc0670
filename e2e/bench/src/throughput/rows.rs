//! The rows of an INSERT in `RowBinary`, with or without names and types before them, walked from end to end.
//!
//! Job: find every row and the number of its span. If names and types come first, compare them with the table's, as the server does. Place
//! in the flow: after the run, over the bodies that the null sink kept. Limits: the columns must have types that [`Kind`] knows.

use anyhow::{Context as _, Result, bail, ensure};

use super::kind::{Bytes, Kind};
use e2e_fixtures::spans::{NUMBER_KEY, Run};

const TAG_INT64: u8 = 0x0a;

/// A table's columns: names and types as the server prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns(pub Vec<(String, String)>);

impl Columns {
    /// The columns in a `CREATE TABLE` statement that has one column a line: ``    `Name` Type CODEC(...),``.
    pub fn of_statement(statement: &str) -> Columns {
        let column = |line: &str| {
            let (name, rest) = line.trim().strip_prefix('`')?.split_once("` ")?;
            let end = rest.find(" CODEC(").unwrap_or_else(|| rest.trim_end_matches(',').len());
            Some((name.to_owned(), rest[..end].to_owned()))
        };
        Columns(statement.lines().filter_map(column).collect())
    }

    /// The columns of the table that the last of these statements makes.
    pub fn of_table(statements: &[String]) -> Result<Columns> {
        statements.last().map(|text| Columns::of_statement(text)).context("the gateway printed no statement")
    }

    fn find(&self, name: &str) -> Result<&(String, String)> {
        let found = self.0.iter().find(|(column, _)| column == name);
        found.with_context(|| format!("the table has no column {name}"))
    }
}

/// The role of a column in the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    TraceId,
    /// Holds the number, in a column of JSON or a map.
    SpanAttributes(Kind),
    /// Holds its key, among the keys of integers; the column of their values follows.
    IntKeys,
    /// Holds the number then.
    IntValues,
    Other(Kind),
}

/// The columns of an INSERT in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    columns: Vec<Column>,
    /// Names and types, in the order in which they stand before the rows; none in a format without them.
    header: Option<Columns>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number of the span; none in a row of another run, or without a number.
    pub number: Option<u64>,
}

impl Layout {
    /// The layout that an INSERT names: ``INSERT INTO t (`Timestamp`, …) FORMAT RowBinary``, or `RowBinaryWithNamesAndTypes`.
    pub fn of_insert(statement: &str, columns: &Columns) -> Result<Layout> {
        let has_header = match statement.trim_end().rsplit_once(" FORMAT ") {
            Some((_, "RowBinary")) => false,
            Some((_, "RowBinaryWithNamesAndTypes")) => true,
            _ => bail!("rows can only be walked in the formats RowBinary and RowBinaryWithNamesAndTypes"),
        };
        let (_, list) = statement.split_once(" (").context("the INSERT does not name its columns")?;
        let (list, _) = list.split_once(')').context("the INSERT does not name its columns")?;
        let named = list.split(',').map(|name| columns.find(name.trim().trim_matches('`')).cloned());
        let named: Vec<(String, String)> = named.collect::<Result<_>>()?;
        let column = |(name, type_name): &(String, String)| {
            Ok(match (name.as_str(), Kind::of_type(type_name)?) {
                ("TraceId", Kind::Text) => Column::TraceId,
                ("SpanAttributes", kind) => Column::SpanAttributes(kind),
                ("SpanAttributesInt.Key", _) => Column::IntKeys,
                ("SpanAttributesInt.Value", _) => Column::IntValues,
                (_, kind) => Column::Other(kind),
            })
        };
        let columns = named.iter().map(column).collect::<Result<_>>()?;
        Ok(Layout { columns, header: has_header.then_some(Columns(named)) })
    }

    /// Walks every row of `raw`, which must end with a row.
    pub fn walk(&self, raw: &[u8], run: Run, mut each: impl FnMut(Found)) -> Result<()> {
        let prefix = run.trace_id_prefix();
        let mut bytes = Bytes(raw);
        if let Some(columns) = &self.header {
            skip_header(&mut bytes, columns)?;
        }
        while !bytes.0.is_empty() {
            each(self.row(&mut bytes, prefix.as_bytes())?);
        }
        Ok(())
    }

    fn row(&self, bytes: &mut Bytes<'_>, prefix: &[u8]) -> Result<Found> {
        let (mut ours, mut number, mut place) = (false, None, None);
        for column in &self.columns {
            match column {
                Column::TraceId => ours = bytes.text()?.starts_with(prefix),
                Column::SpanAttributes(Kind::Json(_)) => number = number_in_json(bytes)?,
                Column::SpanAttributes(Kind::Map(_, value)) => number = number_in_map(bytes, value)?,
                Column::IntKeys => place = place_of_number(bytes)?,
                Column::IntValues => number = number_at(bytes, place)?,
                Column::SpanAttributes(kind) | Column::Other(kind) => bytes.skip(kind)?,
            }
        }
        Ok(Found { number: number.filter(|_| ours) })
    }
}

/// Skips the names and types before the rows; they must be those of the table.
fn skip_header(bytes: &mut Bytes<'_>, columns: &Columns) -> Result<()> {
    let count = bytes.length()?;
    ensure!(count == columns.0.len(), "the rows have {count} columns, the INSERT {}", columns.0.len());
    for (name, _) in &columns.0 {
        let found = bytes.text()?;
        ensure!(found == name.as_bytes(), "not {name} but {} is next", String::from_utf8_lossy(found));
    }
    for (name, type_name) in &columns.0 {
        let found = bytes.text()?;
        ensure!(
            found == type_name.as_bytes(),
            "type of {name} must be {type_name}, not {}",
            String::from_utf8_lossy(found)
        );
    }
    Ok(())
}

fn number_in_json(bytes: &mut Bytes<'_>) -> Result<Option<u64>> {
    let mut number = None;
    for _ in 0..bytes.length()? {
        let path = bytes.text()?;
        if path == NUMBER_KEY.as_bytes() && bytes.0.first() == Some(&TAG_INT64) {
            bytes.byte()?;
            number = Some(int(bytes)?);
        } else {
            bytes.skip_tagged()?;
        }
    }
    Ok(number)
}

/// The index of the number's key in an array of keys.
fn place_of_number(bytes: &mut Bytes<'_>) -> Result<Option<usize>> {
    let mut found = None;
    for place in 0..bytes.length()? {
        if bytes.text()? == NUMBER_KEY.as_bytes() {
            found = Some(place);
        }
    }
    Ok(found)
}

/// The number at this index in an array of values.
fn number_at(bytes: &mut Bytes<'_>, wanted: Option<usize>) -> Result<Option<u64>> {
    let mut number = None;
    for place in 0..bytes.length()? {
        let value = int(bytes)?;
        if wanted == Some(place) {
            number = Some(value);
        }
    }
    Ok(number)
}

/// A value of `Int64`.
fn int(bytes: &mut Bytes<'_>) -> Result<u64> {
    Ok(bytes.take(8)?.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn number_in_map(bytes: &mut Bytes<'_>, value: &Kind) -> Result<Option<u64>> {
    let mut number = None;
    for _ in 0..bytes.length()? {
        let key = bytes.text()?;
        if key == NUMBER_KEY.as_bytes() && *value == Kind::Text {
            number = std::str::from_utf8(bytes.text()?).ok().and_then(|text| text.parse().ok());
        } else {
            bytes.skip(value)?;
        }
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run { id: 0xabcd, start_ns: 1 };

    const STATEMENT: &str = "CREATE TABLE IF NOT EXISTS `d`.`t`\n(\n    `TraceId` String CODEC(ZSTD(1)),\n    \
        `Time` DateTime64(9) CODEC(Delta(8), ZSTD(1)),\n    `SpanAttributes` JSON(max_dynamic_paths=64) CODEC(ZSTD(1)),\n    \
        INDEX i TraceId TYPE bloom_filter(0.001) GRANULARITY 1\n)\nENGINE = MergeTree";

    fn layout(list: &str) -> Result<Layout> {
        let insert = format!("INSERT INTO `d`.`t` ({list}) FORMAT RowBinary");
        Layout::of_insert(&insert, &Columns::of_statement(STATEMENT))
    }

    /// A row of `Time`, `TraceId`, `SpanAttributes`.
    fn row(trace_id: &str, number: u8) -> Vec<u8> {
        let mut row = vec![0; 8];
        row.push(32);
        row.extend_from_slice(format!("{trace_id:0<32}").as_bytes());
        row.extend_from_slice(&[2, 1, b'a', 0x2d, 1, 10]);
        row.extend_from_slice(b"sluice.seq");
        row.extend_from_slice(&[TAG_INT64, number, 1, 0, 0, 0, 0, 0, 0]);
        row
    }

    #[test]
    fn the_columns_are_read_from_the_statement() {
        let columns = Columns::of_statement(STATEMENT).0;
        let columns: Vec<_> = columns.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect();
        let expected = [
            ("TraceId", "String"),
            ("Time", "DateTime64(9)"),
            ("SpanAttributes", "JSON(max_dynamic_paths=64)"),
        ];
        assert_eq!(columns, expected);
    }

    #[test]
    fn every_row_gives_its_number_and_those_of_others_none() {
        let raw =
            [row("000000000000abcd", 7), row("000000000000abce", 8), row("000000000000abcd", 9)].concat();
        let layout = layout("`Time`, `TraceId`, `SpanAttributes`").unwrap();
        let mut found = Vec::new();
        layout.walk(&raw, RUN, |row| found.push(row.number)).unwrap();
        assert_eq!(found, [Some(263), None, Some(265)]);
        assert!(layout.walk(&raw[..raw.len() - 1], RUN, |_| ()).is_err(), "a row without its end");
    }

    #[test]
    fn in_groups_the_number_is_where_its_key_is() {
        let columns = ["TraceId", "SpanAttributesInt.Key", "SpanAttributesInt.Value"];
        let types = ["String", "Array(LowCardinality(String))", "Array(Int64)"];
        let columns = columns.iter().zip(types).map(|(name, kind)| ((*name).to_owned(), kind.to_owned()));
        let insert =
            "INSERT INTO t (`TraceId`, `SpanAttributesInt.Key`, `SpanAttributesInt.Value`) FORMAT RowBinary";
        let layout = Layout::of_insert(insert, &Columns(columns.collect())).unwrap();
        let id = format!("\x20{:0<32}", "000000000000abcd").into_bytes();
        let (one, seven) = (1_i64.to_le_bytes(), 7_i64.to_le_bytes());
        let with = [&id[..], b"\x02\x01k\x0asluice.seq\x02", &one, &seven].concat();
        let without = [&id[..], b"\x01\x01k\x01", &one].concat();
        let mut found = Vec::new();
        layout.walk(&[with, without].concat(), RUN, |row| found.push(row.number)).unwrap();
        assert_eq!(found, [Some(7), None]);
    }

    #[test]
    fn names_and_types_before_the_rows_are_those_of_the_table() {
        let insert = "INSERT INTO `d`.`t` (`Time`, `TraceId`) FORMAT RowBinaryWithNamesAndTypes";
        let layout = Layout::of_insert(insert, &Columns::of_statement(STATEMENT)).unwrap();
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let texts = |texts: &[&str]| texts.iter().flat_map(|one| text(one)).collect::<Vec<u8>>();
        let body = |kind: &str| {
            let row = [&[0; 8][..], &text("id")].concat();
            [&[2], &texts(&["Time", "TraceId", "DateTime64(9)", kind])[..], &row, &row].concat()
        };
        let mut rows = 0;
        layout.walk(&body("String"), RUN, |_| rows += 1).unwrap();
        assert_eq!(rows, 2);
        let error = layout.walk(&body("UInt64"), RUN, |_| ()).unwrap_err().to_string();
        assert_eq!(error, "type of TraceId must be String, not UInt64");
        assert!(layout.walk(&body("String")[1..], RUN, |_| ()).is_err());
    }

    #[test]
    fn an_insert_that_cannot_be_walked_is_refused() {
        assert!(layout("`Time`, `Other`").is_err());
        assert!(Layout::of_insert("INSERT INTO t FORMAT Native", &Columns::default()).is_err());
    }
}
