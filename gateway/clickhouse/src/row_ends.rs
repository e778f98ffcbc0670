//! Where a row of `RowBinary` ends.
//!
//! Job: `RowBinary` has no marks between rows. To read some rows of a block, all values before them must be skipped. Place in the flow:
//! [`crate::block_rows`] uses this for a block that the server refuses; never for rows that it accepts. Pure, and total on any bytes:
//! they are a row, the beginning of one, or neither.
//!
//! The bytes per type are those of [`crate::rowbinary`], [`crate::json`], [`crate::json_array`] and [`crate::groups`]. Values that carry
//! their type may have any type that the row encoder writes.
//!
//! Limits: types and values nest [`DEPTH_MAX`] deep. Time is linear in the bytes.

use crate::column::{AttributeColumns, AttributeSet, Column, ColumnType, Group, TableColumns};
use crate::json_type::{JsonType, PathRule};
use crate::rowbinary::tag;

/// How deep types and values may nest. Chosen: attributes nest at most 48 deep, each level being an array and a value with its type.
const DEPTH_MAX: u8 = 200;

/// The encoding of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// This many bytes, whatever the value.
    Fixed(usize),
    /// A length and bytes.
    Text,
    /// A flag, and the value unless the flag says that there is none.
    Nullable(Box<Kind>),
    /// Two values.
    Pair(Box<(Kind, Kind)>),
    /// A length and values.
    Array(Box<Kind>),
    /// The encoding of a type, and a value of it.
    Dynamic,
    /// A length, and as many paths with a value each; declared paths have one of their type, others a [`Kind::Dynamic`] one.
    Json(JsonType),
}

/// The values of a row, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowShape(Vec<Kind>);

/// Why bytes do not begin with a complete row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRow {
    /// They end inside it.
    Short,
    /// No further bytes could make it a row.
    Not(NotARow),
}

/// The error in bytes that are not a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("byte {position} of the row: {what}")]
pub struct NotARow {
    /// Bytes from the row's start.
    pub position: usize,
    /// The error at that position.
    pub what: &'static str,
}

impl RowShape {
    /// The shape of rows of these columns.
    pub fn of(columns: &TableColumns) -> Self {
        Self(columns.columns().iter().map(|column| Kind::of_column(column, columns)).collect())
    }

    /// The length of the row that `bytes` begins with.
    ///
    /// # Errors
    /// [`NoRow`] if there is none, or only a part of it.
    pub fn row_bytes(&self, bytes: &[u8]) -> Result<usize, NoRow> {
        let mut cursor = Cursor { bytes, at: 0 };
        for kind in &self.0 {
            cursor.pass(kind, 0)?;
        }
        Ok(cursor.at)
    }
}

/// The length of the header of `RowBinaryWithNamesAndTypes`: a count, as many names, as many types.
///
/// # Errors
/// [`NoRow`] if `bytes` does not begin with one.
pub fn names_and_types_bytes(bytes: &[u8]) -> Result<usize, NoRow> {
    let mut cursor = Cursor { bytes, at: 0 };
    let columns = cursor.length()?;
    // Each text takes at least one byte, so a count that is too large ends with the bytes.
    for _ in 0..columns {
        cursor.pass(&Kind::Text, 0)?;
    }
    for _ in 0..columns {
        cursor.pass(&Kind::Text, 0)?;
    }
    Ok(cursor.at)
}

impl Kind {
    fn of_column(column: &Column, columns: &TableColumns) -> Self {
        let json = || match AttributeSet::of_column(&column.name).map(|set| columns.of(set)) {
            Some(AttributeColumns::Json(json_type)) => Self::Json(json_type.clone()),
            _ => Self::Json(JsonType::default()),
        };
        match column.column_type {
            ColumnType::DateTime64Nanos
            | ColumnType::DateTime64Millis
            | ColumnType::UInt64
            | ColumnType::Int64 => Self::Fixed(8),
            ColumnType::UInt32 | ColumnType::Int32 => Self::Fixed(4),
            ColumnType::String | ColumnType::LowCardinalityString => Self::Text,
            ColumnType::Json => json(),
            ColumnType::Map => Self::map(),
            ColumnType::ArrayDateTime64Nanos => Self::array(Self::Fixed(8)),
            ColumnType::ArrayString | ColumnType::ArrayLowCardinalityString => Self::array(Self::Text),
            ColumnType::ArrayJson => Self::array(json()),
            ColumnType::ArrayMap => Self::array(Self::map()),
            ColumnType::ArrayOf(group) => Self::array(Self::of_group(group)),
            ColumnType::ArrayOfPairs(group) => {
                Self::array(Self::array(Self::Pair(Box::new((Self::Text, Self::of_group(group))))))
            }
        }
    }

    fn of_group(group: Group) -> Self {
        match group {
            Group::Bool => Self::Fixed(1),
            Group::Double | Group::Int => Self::Fixed(8),
            Group::String | Group::Complex => Self::Text,
        }
    }

    fn map() -> Self {
        Self::array(Self::Pair(Box::new((Self::Text, Self::Text))))
    }

    fn array(of: Self) -> Self {
        Self::Array(Box::new(of))
    }
}

/// Bytes that are read from the front.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn not<T>(&self, what: &'static str) -> Result<T, NoRow> {
        Err(NoRow::Not(NotARow { position: self.at, what }))
    }

    fn skip(&mut self, count: usize) -> Result<(), NoRow> {
        let Some(at) = self.at.checked_add(count) else {
            return self.not("a length that no row can have");
        };
        if at > self.bytes.len() {
            return Err(NoRow::Short);
        }
        self.at = at;
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, NoRow> {
        let byte = *self.bytes.get(self.at).ok_or(NoRow::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn length(&mut self) -> Result<usize, NoRow> {
        let mut length = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return self.not("a length of more than 64 bits");
            }
            length |= bits << shift;
            if byte < 0x80 {
                return usize::try_from(length).or_else(|_| self.not("a length that no row can have"));
            }
        }
        self.not("a length of more than 64 bits")
    }

    fn text(&mut self) -> Result<&[u8], NoRow> {
        let length = self.length()?;
        let start = self.at;
        self.skip(length)?;
        Ok(&self.bytes[start..self.at])
    }

    /// Skips a value.
    fn pass(&mut self, kind: &Kind, depth: u8) -> Result<(), NoRow> {
        if depth > DEPTH_MAX {
            return self.not("a value that is nested too deep");
        }
        match kind {
            Kind::Fixed(bytes) => self.skip(*bytes),
            Kind::Text => self.text().map(drop),
            Kind::Nullable(value) => match self.byte()? {
                0 => self.pass(value, depth + 1),
                1 => Ok(()),
                _ => self.not("a flag that is neither 0 nor 1"),
            },
            Kind::Pair(pair) => {
                self.pass(&pair.0, depth + 1)?;
                self.pass(&pair.1, depth + 1)
            }
            Kind::Array(element) => self.array(element, depth),
            Kind::Dynamic => {
                let kind = self.kind(depth + 1)?;
                self.pass(&kind, depth + 1)
            }
            Kind::Json(json_type) => self.object(json_type, depth),
        }
    }

    fn array(&mut self, element: &Kind, depth: u8) -> Result<(), NoRow> {
        let length = self.length()?;
        if let Kind::Fixed(bytes) = element {
            // At once: skipping elements without bytes one by one could take forever.
            return match length.checked_mul(*bytes) {
                Some(bytes) => self.skip(bytes),
                None => self.not("a length that no row can have"),
            };
        }
        for _ in 0..length {
            self.pass(element, depth + 1)?;
        }
        Ok(())
    }

    fn object(&mut self, json_type: &JsonType, depth: u8) -> Result<(), NoRow> {
        for _ in 0..self.length()? {
            let rule = json_type.rule(self.text()?);
            match rule {
                PathRule::Typed(typed) => {
                    let (nullable, bytes) = typed.shape();
                    let value = bytes.map_or(Kind::Text, Kind::Fixed);
                    let kind = if nullable { Kind::Nullable(Box::new(value)) } else { value };
                    self.pass(&kind, depth + 1)?;
                }
                PathRule::Dynamic | PathRule::Skipped => self.pass(&Kind::Dynamic, depth + 1)?,
            }
        }
        Ok(())
    }

    /// Reads the encoding of a type.
    fn kind(&mut self, depth: u8) -> Result<Kind, NoRow> {
        if depth > DEPTH_MAX {
            return self.not("a type that is nested too deep");
        }
        Ok(match self.byte()? {
            tag::NOTHING => Kind::Fixed(0),
            tag::BOOL => Kind::Fixed(1),
            tag::UINT64 | tag::INT64 | tag::FLOAT64 => Kind::Fixed(8),
            tag::STRING => Kind::Text,
            tag::ARRAY => Kind::array(self.kind(depth + 1)?),
            tag::NULLABLE => Kind::Nullable(Box::new(self.kind(depth + 1)?)),
            tag::DYNAMIC => {
                self.byte()?;
                Kind::Dynamic
            }
            tag::JSON => self.json_kind()?,
            _ => return self.not("a type that the gateway does not write"),
        })
    }

    /// Reads the rest of a `JSON` type: version, limits, and nothing declared or skipped.
    fn json_kind(&mut self) -> Result<Kind, NoRow> {
        if self.byte()? != 0 {
            return self.not("a JSON type of an unknown version");
        }
        self.length()?;
        self.byte()?;
        for _ in 0..3 {
            if self.byte()? != 0 {
                return self.not("a JSON type with paths, which the gateway does not write");
            }
        }
        Ok(Kind::Json(JsonType::default()))
    }
}

#[cfg(test)]
#[path = "row_ends_tests.rs"]
mod tests;
