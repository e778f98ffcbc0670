//! Columns that the gateway fills if the table has them, and never demands.
//!
//! Job: names and types of these columns, and the groups in which a spec asks for them. Place in the flow: [`crate::table::check`] finds
//! those that a table has; the row encoder writes them; the DDL creates them if the spec asks. Pure.
//!
//! A table of another writer may have a column of one of these names that holds something else. So only a column without an expression
//! (`DEFAULT`, `MATERIALIZED`, `ALIAS`), and of a type that reads the same bytes, is filled. Any other is left to the server, as before.
//! `ScopeAttributesKeys` is filled only beside `ScopeAttributes`.
//!
//! | group | columns | source of the names |
//! |---|---|---|
//! | [`OptionalGroup::AttributeKeys`] | `ResourceAttributesKeys`, `SpanAttributesKeys` | the exporter's table of traces in JSON |
//! | [`OptionalGroup::ScopeAttributes`] | `ScopeAttributes`, `ScopeAttributesKeys` | the exporter's table of logs |
//! | [`OptionalGroup::SchemaUrls`] | `ResourceSchemaUrl`, `ScopeSchemaUrl` | the exporter's table of logs |
//! | [`OptionalGroup::DroppedCounts`] | `ResourceDroppedAttributesCount`, `ScopeDroppedAttributesCount`, `DroppedAttributesCount`, `DroppedEventsCount`, `DroppedLinksCount` | OTLP's fields |
//! | [`OptionalGroup::TraceFlags`] | `TraceFlags` | the exporter's table of logs |
//! | [`OptionalGroup::KafkaCoordinates`] | `KafkaTopic`, `KafkaPartition`, `KafkaOffset`, `KafkaTimestamp` | Kafka |
//! | [`OptionalGroup::KafkaHeaders`] | `KafkaHeaders` | Kafka |

use crate::column::{AttributeSet, Column, ColumnType, Layout};

/// A column that the gateway fills only in tables with this column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionalColumn {
    /// The keys of `ResourceAttributes`, sorted.
    ResourceAttributesKeys,
    /// The resource's `dropped_attributes_count`.
    ResourceDroppedAttributesCount,
    /// The `schema_url` of the `ResourceSpans`.
    ResourceSchemaUrl,
    /// The scope's attributes, in any layout: one column or several.
    ScopeAttributes,
    /// The keys of the scope's attributes, sorted.
    ScopeAttributesKeys,
    /// The scope's `dropped_attributes_count`.
    ScopeDroppedAttributesCount,
    /// The `schema_url` of the `ScopeSpans`.
    ScopeSchemaUrl,
    /// The keys of `SpanAttributes`, sorted.
    SpanAttributesKeys,
    /// The span's `flags`.
    TraceFlags,
    /// The span's own count.
    DroppedAttributesCount,
    /// The span's own count.
    DroppedEventsCount,
    /// The span's own count.
    DroppedLinksCount,
    /// The topic that the message was read from.
    KafkaTopic,
    /// Its partition.
    KafkaPartition,
    /// Its offset.
    KafkaOffset,
    /// Its timestamp.
    KafkaTimestamp,
    /// Its headers, as text.
    KafkaHeaders,
}

/// Columns that a spec asks for together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionalGroup {
    AttributeKeys,
    ScopeAttributes,
    SchemaUrls,
    DroppedCounts,
    TraceFlags,
    KafkaCoordinates,
    KafkaHeaders,
}

/// A set of optional columns: a bit for each, by its place in [`OptionalColumn::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OptionalColumns(u32);

impl OptionalColumn {
    /// All of them, in the order of a row.
    pub const ALL: [Self; 17] = [
        Self::ResourceAttributesKeys,
        Self::ResourceDroppedAttributesCount,
        Self::ResourceSchemaUrl,
        Self::ScopeAttributes,
        Self::ScopeAttributesKeys,
        Self::ScopeDroppedAttributesCount,
        Self::ScopeSchemaUrl,
        Self::SpanAttributesKeys,
        Self::TraceFlags,
        Self::DroppedAttributesCount,
        Self::DroppedEventsCount,
        Self::DroppedLinksCount,
        Self::KafkaTopic,
        Self::KafkaPartition,
        Self::KafkaOffset,
        Self::KafkaTimestamp,
        Self::KafkaHeaders,
    ];

    /// Its name in the table; of [`Self::ScopeAttributes`], the beginning of the names of its groups.
    pub fn name(self) -> &'static str {
        match self {
            Self::ResourceAttributesKeys => "ResourceAttributesKeys",
            Self::ResourceDroppedAttributesCount => "ResourceDroppedAttributesCount",
            Self::ResourceSchemaUrl => "ResourceSchemaUrl",
            Self::ScopeAttributes => AttributeSet::Scope.name(),
            Self::ScopeAttributesKeys => "ScopeAttributesKeys",
            Self::ScopeDroppedAttributesCount => "ScopeDroppedAttributesCount",
            Self::ScopeSchemaUrl => "ScopeSchemaUrl",
            Self::SpanAttributesKeys => "SpanAttributesKeys",
            Self::TraceFlags => "TraceFlags",
            Self::DroppedAttributesCount => "DroppedAttributesCount",
            Self::DroppedEventsCount => "DroppedEventsCount",
            Self::DroppedLinksCount => "DroppedLinksCount",
            Self::KafkaTopic => "KafkaTopic",
            Self::KafkaPartition => "KafkaPartition",
            Self::KafkaOffset => "KafkaOffset",
            Self::KafkaTimestamp => "KafkaTimestamp",
            Self::KafkaHeaders => "KafkaHeaders",
        }
    }

    /// Its columns in the table, in the order of a row: one, or those of the scope's attributes in this layout.
    pub fn columns(self, scope: Layout) -> Vec<Column> {
        let column_type = match self {
            Self::ScopeAttributes => return AttributeSet::Scope.columns(scope),
            Self::ResourceAttributesKeys | Self::ScopeAttributesKeys | Self::SpanAttributesKeys => {
                ColumnType::ArrayLowCardinalityString
            }
            Self::ResourceSchemaUrl | Self::ScopeSchemaUrl | Self::KafkaTopic => {
                ColumnType::LowCardinalityString
            }
            Self::ResourceDroppedAttributesCount
            | Self::ScopeDroppedAttributesCount
            | Self::TraceFlags
            | Self::DroppedAttributesCount
            | Self::DroppedEventsCount
            | Self::DroppedLinksCount => ColumnType::UInt32,
            Self::KafkaPartition => ColumnType::Int32,
            Self::KafkaOffset => ColumnType::Int64,
            Self::KafkaTimestamp => ColumnType::DateTime64Millis,
            Self::KafkaHeaders => ColumnType::Map,
        };
        vec![Column { name: self.name().to_owned(), column_type }]
    }

    const fn bit(self) -> u32 {
        1 << (self as u32)
    }
}

impl OptionalGroup {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::AttributeKeys,
        Self::ScopeAttributes,
        Self::SchemaUrls,
        Self::DroppedCounts,
        Self::TraceFlags,
        Self::KafkaCoordinates,
        Self::KafkaHeaders,
    ];

    /// Its columns.
    pub fn columns(self) -> OptionalColumns {
        use OptionalColumn as C;
        let columns: &[C] = match self {
            Self::AttributeKeys => &[C::ResourceAttributesKeys, C::SpanAttributesKeys],
            Self::ScopeAttributes => &[C::ScopeAttributes, C::ScopeAttributesKeys],
            Self::SchemaUrls => &[C::ResourceSchemaUrl, C::ScopeSchemaUrl],
            Self::DroppedCounts => &[
                C::ResourceDroppedAttributesCount,
                C::ScopeDroppedAttributesCount,
                C::DroppedAttributesCount,
                C::DroppedEventsCount,
                C::DroppedLinksCount,
            ],
            Self::TraceFlags => &[C::TraceFlags],
            Self::KafkaCoordinates => &[C::KafkaTopic, C::KafkaPartition, C::KafkaOffset, C::KafkaTimestamp],
            Self::KafkaHeaders => &[C::KafkaHeaders],
        };
        OptionalColumns::of(columns)
    }
}

impl OptionalColumns {
    /// All of them.
    pub fn all() -> Self {
        OptionalColumn::ALL.into_iter().collect()
    }

    /// These columns.
    #[must_use]
    pub const fn of(columns: &[OptionalColumn]) -> Self {
        let (mut set, mut left) = (0, columns);
        while let [column, rest @ ..] = left {
            set |= column.bit();
            left = rest;
        }
        Self(set)
    }

    /// Without the keys of attributes that the table does not have.
    #[must_use]
    pub const fn complete(self) -> Self {
        if self.has(OptionalColumn::ScopeAttributes) {
            self
        } else {
            Self(self.0 & !OptionalColumn::ScopeAttributesKeys.bit())
        }
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is in the set.
    #[inline]
    pub const fn has(self, column: OptionalColumn) -> bool {
        self.0 & column.bit() != 0
    }

    /// Whether one of these is in the set.
    #[inline]
    pub const fn has_any_of(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Those that are in both sets.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in the set, in the order of a row.
    pub fn iter(self) -> impl Iterator<Item = OptionalColumn> {
        OptionalColumn::ALL.into_iter().filter(move |column| self.has(*column))
    }

    /// Their names, in the order of a row.
    pub fn names(self) -> Vec<&'static str> {
        self.iter().map(OptionalColumn::name).collect()
    }
}

impl FromIterator<OptionalColumn> for OptionalColumns {
    fn from_iter<I: IntoIterator<Item = OptionalColumn>>(columns: I) -> Self {
        columns.into_iter().fold(Self::default(), |set, column| Self(set.0 | column.bit()))
    }
}

impl FromIterator<OptionalGroup> for OptionalColumns {
    fn from_iter<I: IntoIterator<Item = OptionalGroup>>(groups: I) -> Self {
        groups.into_iter().fold(Self::default(), |set, group| set.union(group.columns()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_in_one_group_and_has_a_bit_of_its_own() {
        let groups = OptionalGroup::ALL.map(OptionalGroup::columns);
        for column in OptionalColumn::ALL {
            assert_eq!(groups.iter().filter(|group| group.has(column)).count(), 1, "{}", column.name());
            let alone: OptionalColumns = [column].into_iter().collect();
            assert_eq!(alone.names(), [column.name()]);
        }
        assert_eq!(OptionalGroup::ALL.into_iter().collect::<OptionalColumns>(), OptionalColumns::all());
        assert_eq!(OptionalColumns::all().iter().count(), OptionalColumn::ALL.len());
    }

    #[test]
    fn sets_are_compared_by_their_columns() {
        let of = |groups: &[OptionalGroup]| groups.iter().copied().collect::<OptionalColumns>();
        let flags = of(&[OptionalGroup::TraceFlags]);
        let both = of(&[OptionalGroup::TraceFlags, OptionalGroup::KafkaHeaders]);
        assert_eq!(both.common(flags), flags);
        assert!(both.has_any_of(flags) && !flags.has_any_of(of(&[OptionalGroup::SchemaUrls])));
        assert!(of(&[]).is_empty() && !flags.is_empty());
        let scope = of(&[OptionalGroup::ScopeAttributes]);
        assert_eq!(scope.complete(), scope);
        let keys = OptionalColumns::of(&[OptionalColumn::ScopeAttributesKeys, OptionalColumn::TraceFlags]);
        assert_eq!(keys.complete(), flags);
        assert_eq!(both.names(), ["TraceFlags", "KafkaHeaders"]);
    }

    #[test]
    fn attributes_of_a_scope_have_the_columns_of_their_layout() {
        let names = |layout| -> Vec<String> {
            let columns = OptionalColumn::ScopeAttributes.columns(layout).into_iter();
            columns.map(|column| format!("{} {}", column.name, column.column_type)).collect()
        };
        assert_eq!(names(Layout::Json), ["ScopeAttributes JSON"]);
        assert_eq!(names(Layout::Map), ["ScopeAttributes Map(LowCardinality(String), String)"]);
        assert_eq!(names(Layout::Nested).len(), 10);
        assert_eq!(names(Layout::Nested)[0], "ScopeAttributesBool.Key Array(LowCardinality(String))");
    }
}
