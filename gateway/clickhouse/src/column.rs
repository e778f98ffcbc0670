//! Columns that the gateway fills: their names, types, and order.
//!
//! Job: defines the columns of `otel_traces` once, for the row encoder, the INSERT, the DDL and the check. Place in the flow:
//! [`crate::table::check`] determines the layout of each set of attributes; the encoder writes the columns of [`TableColumns::columns`]
//! in that order. Pure.
//!
//! Names and order are those of the OpenTelemetry exporters' table, so that existing queries and dashboards work. `Events`
//! and `Links` are one array per field, all of the same length within a row.
//!
//! | layout | columns of `SpanAttributes` (`ResourceAttributes` alike) | of `Events.Attributes` (`Links.Attributes` alike) |
//! |---|---|---|
//! | JSON | `SpanAttributes JSON` | `Events.Attributes Array(JSON)` |
//! | Map | `SpanAttributes Map(LowCardinality(String), String)` | `Events.Attributes Array(Map(…))` |
//! | Nested | `SpanAttributesBool.Key Array(LowCardinality(String))`, `SpanAttributesBool.Value Array(Bool)`, and so on for `Double`, `Int`, `String`, `Complex` | `Events.AttributesBool Array(Nested(Key LowCardinality(String), Value Bool))`, and so on |
//!
//! Each set of attributes has its own layout: a table may have a map of resource attributes and JSON span attributes.
//!
//! [`crate::optional`] has the columns that a table may have besides. Those of a message, a resource and a scope stand where their bytes are
//! equal for many rows: next to the resource and the scope, and at the end.

use std::fmt;

use crate::json_type::JsonType;
use crate::optional::{OptionalColumn, OptionalColumns};

/// How a set of attributes is stored in a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// One `JSON` column.
    #[default]
    Json,
    /// One `Map` of text.
    Map,
    /// A group of keys and values per type.
    Nested,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeSet {
    Resource,
    Span,
    /// Of each event.
    Event,
    /// Of each link.
    Link,
    /// Of the instrumentation scope; only if the table has a column for them.
    Scope,
}

/// The types that have a group of their own in [`Layout::Nested`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Booleans.
    Bool,
    Double,
    /// Integers.
    Int,
    /// Text.
    String,
    /// Bytes, arrays and lists, as text; a prefix of the key says which: [`Group::BYTES_PREFIX`] and so on.
    Complex,
}

/// What a column holds, and so the bytes that are written for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// `DateTime64(9)`
    DateTime64Nanos,
    /// `String`
    String,
    /// `LowCardinality(String)`
    LowCardinalityString,
    /// `UInt64`
    UInt64,
    /// `UInt32`
    UInt32,
    /// `Int32`
    Int32,
    /// `Int64`
    Int64,
    /// `DateTime64(3)`
    DateTime64Millis,
    /// `JSON`
    Json,
    /// `Map(LowCardinality(String), String)`
    Map,
    /// `Array(DateTime64(9))`
    ArrayDateTime64Nanos,
    /// `Array(String)`
    ArrayString,
    /// `Array(LowCardinality(String))`
    ArrayLowCardinalityString,
    /// `Array(JSON)`
    ArrayJson,
    /// `Array(Map(LowCardinality(String), String))`
    ArrayMap,
    /// The values of a group: `Array(Bool)` and its like.
    ArrayOf(Group),
    /// Keys and values of a group, per event or link: `Array(Nested(Key LowCardinality(String), Value Bool))` and its like.
    ArrayOfPairs(Group),
}

/// A column that the gateway fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name in the table.
    pub name: String,
    /// What it holds.
    pub column_type: ColumnType,
}

/// How a set of attributes is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeColumns {
    /// Into a column of this `JSON` type.
    Json(JsonType),
    /// Into a `Map` of text.
    Map,
    /// Into groups.
    Nested,
}

/// How every set of attributes is written, and so all columns of a row, with the server's names of their types.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableColumns {
    /// `ResourceAttributes`
    pub resource: AttributeColumns,
    /// `SpanAttributes`
    pub span: AttributeColumns,
    /// `Events.Attributes`
    pub event: AttributeColumns,
    /// `Links.Attributes`
    pub link: AttributeColumns,
    /// `ScopeAttributes`; the default unless [`Self::optional`] has them.
    pub scope: AttributeColumns,
    /// Which columns the rows have besides.
    pub optional: OptionalColumns,
    /// Name and type of each column as the server prints them, for the header of rows ([`crate::header`]). Empty for columns that no
    /// server has described: their types are those of [`ColumnType`].
    pub described: Vec<(String, String)>,
}

/// A place in the order of a row.
enum Slot {
    Plain(&'static str, ColumnType),
    Attributes(AttributeSet),
    /// Filled only if the table has the column.
    Optional(OptionalColumn),
}

/// The order of a row.
const SLOTS: [Slot; 39] = [
    Slot::Plain("Timestamp", ColumnType::DateTime64Nanos),
    Slot::Plain("TraceId", ColumnType::String),
    Slot::Plain("SpanId", ColumnType::String),
    Slot::Plain("ParentSpanId", ColumnType::String),
    Slot::Plain("TraceState", ColumnType::String),
    Slot::Plain("SpanName", ColumnType::LowCardinalityString),
    Slot::Plain("SpanKind", ColumnType::LowCardinalityString),
    Slot::Plain("ServiceName", ColumnType::LowCardinalityString),
    Slot::Attributes(AttributeSet::Resource),
    Slot::Optional(OptionalColumn::ResourceAttributesKeys),
    Slot::Optional(OptionalColumn::ResourceDroppedAttributesCount),
    Slot::Optional(OptionalColumn::ResourceSchemaUrl),
    Slot::Plain("ScopeName", ColumnType::String),
    Slot::Plain("ScopeVersion", ColumnType::String),
    Slot::Optional(OptionalColumn::ScopeAttributes),
    Slot::Optional(OptionalColumn::ScopeAttributesKeys),
    Slot::Optional(OptionalColumn::ScopeDroppedAttributesCount),
    Slot::Optional(OptionalColumn::ScopeSchemaUrl),
    Slot::Attributes(AttributeSet::Span),
    Slot::Optional(OptionalColumn::SpanAttributesKeys),
    Slot::Plain("Duration", ColumnType::UInt64),
    Slot::Plain("StatusCode", ColumnType::LowCardinalityString),
    Slot::Plain("StatusMessage", ColumnType::String),
    Slot::Plain("Events.Timestamp", ColumnType::ArrayDateTime64Nanos),
    Slot::Plain("Events.Name", ColumnType::ArrayLowCardinalityString),
    Slot::Attributes(AttributeSet::Event),
    Slot::Plain("Links.TraceId", ColumnType::ArrayString),
    Slot::Plain("Links.SpanId", ColumnType::ArrayString),
    Slot::Plain("Links.TraceState", ColumnType::ArrayString),
    Slot::Attributes(AttributeSet::Link),
    Slot::Optional(OptionalColumn::TraceFlags),
    Slot::Optional(OptionalColumn::DroppedAttributesCount),
    Slot::Optional(OptionalColumn::DroppedEventsCount),
    Slot::Optional(OptionalColumn::DroppedLinksCount),
    Slot::Optional(OptionalColumn::KafkaTopic),
    Slot::Optional(OptionalColumn::KafkaPartition),
    Slot::Optional(OptionalColumn::KafkaOffset),
    Slot::Optional(OptionalColumn::KafkaTimestamp),
    Slot::Optional(OptionalColumn::KafkaHeaders),
];

impl Group {
    /// All groups, in the order of a row.
    pub const ALL: [Self; 5] = [Self::Bool, Self::Double, Self::Int, Self::String, Self::Complex];
    /// The key prefix of bytes in [`Group::Complex`], as in Jaeger's tables; the value is base64.
    pub const BYTES_PREFIX: &[u8] = b"@bytes@";
    /// The key prefix of an array; the value is JSON text.
    pub const SLICE_PREFIX: &[u8] = b"@slice@";
    /// The key prefix of a list of attributes; the value is JSON text.
    pub const MAP_PREFIX: &[u8] = b"@map@";

    /// The group's part of a column name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "Bool",
            Self::Double => "Double",
            Self::Int => "Int",
            Self::String => "String",
            Self::Complex => "Complex",
        }
    }

    pub fn value_type(self) -> &'static str {
        match self {
            Self::Bool => "Bool",
            Self::Double => "Float64",
            Self::Int => "Int64",
            Self::String | Self::Complex => "String",
        }
    }
}

impl AttributeSet {
    /// The sets that every table has, in the order of a row.
    pub const ALL: [Self; 4] = [Self::Resource, Self::Span, Self::Event, Self::Link];

    /// The set whose single column has this name.
    pub fn of_column(name: &str) -> Option<Self> {
        [Self::Scope].into_iter().chain(Self::ALL).find(|set| set.name() == name)
    }

    /// The name of its column, and the beginning of the names of its groups.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resource => "ResourceAttributes",
            Self::Span => "SpanAttributes",
            Self::Event => "Events.Attributes",
            Self::Link => "Links.Attributes",
            Self::Scope => "ScopeAttributes",
        }
    }

    /// Whether a row has many of them, in parallel arrays.
    pub fn is_repeated(self) -> bool {
        matches!(self, Self::Event | Self::Link)
    }

    /// Its columns in a layout, in the order of a row.
    pub fn columns(self, layout: Layout) -> Vec<Column> {
        let named = |column_type| vec![Column { name: self.name().to_owned(), column_type }];
        match (layout, self.is_repeated()) {
            (Layout::Json, false) => named(ColumnType::Json),
            (Layout::Json, true) => named(ColumnType::ArrayJson),
            (Layout::Map, false) => named(ColumnType::Map),
            (Layout::Map, true) => named(ColumnType::ArrayMap),
            (Layout::Nested, false) => {
                Group::ALL.into_iter().flat_map(|group| self.key_and_value(group)).collect()
            }
            (Layout::Nested, true) => Group::ALL.into_iter().map(|group| self.pairs(group)).collect(),
        }
    }

    fn key_and_value(self, group: Group) -> [Column; 2] {
        let name = |field: &str| format!("{}{}.{field}", self.name(), group.name());
        [
            Column { name: name("Key"), column_type: ColumnType::ArrayLowCardinalityString },
            Column { name: name("Value"), column_type: ColumnType::ArrayOf(group) },
        ]
    }

    fn pairs(self, group: Group) -> Column {
        let name = format!("{}{}", self.name(), group.name());
        Column { name, column_type: ColumnType::ArrayOfPairs(group) }
    }
}

impl Default for AttributeColumns {
    fn default() -> Self {
        Self::Json(JsonType::default())
    }
}

impl AttributeColumns {
    /// A set in this layout, without declared paths.
    pub fn of_layout(layout: Layout) -> Self {
        match layout {
            Layout::Json => Self::default(),
            Layout::Map => Self::Map,
            Layout::Nested => Self::Nested,
        }
    }

    /// Its layout in the table.
    pub fn layout(&self) -> Layout {
        match self {
            Self::Json(_) => Layout::Json,
            Self::Map => Layout::Map,
            Self::Nested => Layout::Nested,
        }
    }
}

impl TableColumns {
    /// The columns of a table that has every set of attributes in this layout, without declared paths.
    pub fn of_layout(layout: Layout) -> Self {
        let set = || AttributeColumns::of_layout(layout);
        Self { resource: set(), span: set(), event: set(), link: set(), ..Self::default() }
    }

    /// Whether a set of attributes is in a `JSON` column.
    pub fn has_json(&self) -> bool {
        [&self.resource, &self.span, &self.event, &self.link].iter().any(|set| set.layout() == Layout::Json)
    }

    /// With these optional columns, the scope's attributes in the layout of the resource's.
    #[must_use]
    pub fn with_optional(self, optional: OptionalColumns) -> Self {
        let optional = optional.complete();
        let scope = if optional.has(OptionalColumn::ScopeAttributes) {
            AttributeColumns::of_layout(self.resource.layout())
        } else {
            AttributeColumns::default()
        };
        Self { scope, optional, ..self }
    }

    /// Without the optional columns that are not among these.
    #[must_use]
    pub fn limited_to(&self, optional: OptionalColumns) -> Self {
        let optional = self.optional.common(optional).complete();
        if optional == self.optional {
            return self.clone();
        }
        let mut limited = Self { optional, ..self.clone() };
        if !optional.has(OptionalColumn::ScopeAttributes) {
            limited.scope = AttributeColumns::default();
        }
        let columns = limited.columns();
        limited.described.retain(|(name, _)| columns.iter().any(|column| column.name == *name));
        limited
    }

    /// What this table and another one have in common: all required columns, with equal types, and the optional columns that are in both,
    /// with equal types. `None` if the required ones differ.
    pub fn common(&self, other: &Self) -> Option<Self> {
        let types = |columns: &Self, column: OptionalColumn| {
            let of_column = column.columns(columns.scope.layout());
            of_column.iter().map(|column| columns.type_name(column)).collect::<Vec<_>>()
        };
        let both = self.optional.common(other.optional).iter();
        let equal = both.filter(|column| types(self, *column) == types(other, *column)).collect();
        let (own, others) = (self.limited_to(equal), other.limited_to(equal));
        (own == others).then_some(own)
    }

    /// How a set of attributes is written.
    pub fn of(&self, set: AttributeSet) -> &AttributeColumns {
        match set {
            AttributeSet::Resource => &self.resource,
            AttributeSet::Span => &self.span,
            AttributeSet::Event => &self.event,
            AttributeSet::Link => &self.link,
            AttributeSet::Scope => &self.scope,
        }
    }

    /// How a set of attributes is written, mutable.
    pub(crate) fn of_mut(&mut self, set: AttributeSet) -> &mut AttributeColumns {
        match set {
            AttributeSet::Resource => &mut self.resource,
            AttributeSet::Span => &mut self.span,
            AttributeSet::Event => &mut self.event,
            AttributeSet::Link => &mut self.link,
            AttributeSet::Scope => &mut self.scope,
        }
    }

    /// The columns of a row, in the order in which their bytes follow one another.
    pub fn columns(&self) -> Vec<Column> {
        let columns = |slot: &Slot| match slot {
            Slot::Plain(name, column_type) => {
                vec![Column { name: (*name).to_owned(), column_type: *column_type }]
            }
            Slot::Attributes(set) => set.columns(self.of(*set).layout()),
            Slot::Optional(column) if self.optional.has(*column) => column.columns(self.scope.layout()),
            Slot::Optional(_) => Vec::new(),
        };
        SLOTS.iter().flat_map(columns).collect()
    }

    /// The type of a column as the server prints it.
    pub fn type_name(&self, column: &Column) -> String {
        let described = self.described.iter().find(|(name, _)| *name == column.name);
        described.map_or_else(|| column.column_type.to_string(), |(_, type_name)| type_name.clone())
    }

    /// The layouts, and the optional columns if there are any, for a person.
    pub fn text(&self) -> String {
        if self.optional.is_empty() {
            return self.to_string();
        }
        format!("{self}, with {}", self.optional.names().join(", "))
    }

    /// Name and type of each column, in the order of a row. [`crate::table::columns_of`] converts them back to these columns.
    pub fn names_and_types(&self) -> Vec<(String, String)> {
        let columns = self.columns();
        columns.iter().map(|column| (column.name.clone(), self.type_name(column))).collect()
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "Json",
            Self::Map => "Map",
            Self::Nested => "Nested",
        })
    }
}

impl fmt::Display for TableColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, set) in AttributeSet::ALL.into_iter().enumerate() {
            let separator = if number > 0 { ", " } else { "" };
            write!(f, "{separator}{} {}", set.name(), self.of(set).layout())?;
        }
        Ok(())
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DateTime64Nanos => f.write_str("DateTime64(9)"),
            Self::String => f.write_str("String"),
            Self::LowCardinalityString => f.write_str("LowCardinality(String)"),
            Self::UInt64 => f.write_str("UInt64"),
            Self::UInt32 => f.write_str("UInt32"),
            Self::Int32 => f.write_str("Int32"),
            Self::Int64 => f.write_str("Int64"),
            Self::DateTime64Millis => f.write_str("DateTime64(3)"),
            Self::Json => f.write_str("JSON"),
            Self::Map => f.write_str("Map(LowCardinality(String), String)"),
            Self::ArrayDateTime64Nanos => f.write_str("Array(DateTime64(9))"),
            Self::ArrayString => f.write_str("Array(String)"),
            Self::ArrayLowCardinalityString => f.write_str("Array(LowCardinality(String))"),
            Self::ArrayJson => f.write_str("Array(JSON)"),
            Self::ArrayMap => f.write_str("Array(Map(LowCardinality(String), String))"),
            Self::ArrayOf(group) => write!(f, "Array({})", group.value_type()),
            Self::ArrayOfPairs(group) => {
                write!(f, "Array(Nested(Key LowCardinality(String), Value {}))", group.value_type())
            }
        }
    }
}

#[cfg(test)]
#[path = "column_tests.rs"]
mod tests;
