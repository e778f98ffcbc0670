//! Columns of the table that the gateway fills if they are there, and never demands.
//!
//! Job: the names of their groups in `schema.optionalColumns`, and which columns these are. `sluice_clickhouse::optional` has their types;
//! a test of the gateway compares the two.

use serde::{Deserialize, Serialize};

/// Columns that the gateway fills if the table has them, in groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OptionalColumns {
    /// The keys of resource and span attributes, with an index each, as in the OpenTelemetry exporter's JSON table.
    AttributeKeys,
    /// The attributes of the instrumentation scope in the layout of the table, and their keys.
    ScopeAttributes,
    /// The schema URLs of resource and scope.
    SchemaUrls,
    /// How many attributes, events and links the SDK dropped.
    DroppedCounts,
    /// The flags of the span.
    TraceFlags,
    /// Topic, partition, offset and timestamp of the message.
    KafkaCoordinates,
    /// The headers of the message.
    KafkaHeaders,
}

impl OptionalColumns {
    /// All groups.
    pub const ALL: [Self; 7] = [
        Self::AttributeKeys,
        Self::ScopeAttributes,
        Self::SchemaUrls,
        Self::DroppedCounts,
        Self::TraceFlags,
        Self::KafkaCoordinates,
        Self::KafkaHeaders,
    ];

    /// The names of its columns.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::AttributeKeys => &["ResourceAttributesKeys", "SpanAttributesKeys"],
            Self::ScopeAttributes => &["ScopeAttributes", "ScopeAttributesKeys"],
            Self::SchemaUrls => &["ResourceSchemaUrl", "ScopeSchemaUrl"],
            Self::DroppedCounts => &[
                "ResourceDroppedAttributesCount",
                "ScopeDroppedAttributesCount",
                "DroppedAttributesCount",
                "DroppedEventsCount",
                "DroppedLinksCount",
            ],
            Self::TraceFlags => &["TraceFlags"],
            Self::KafkaCoordinates => &["KafkaTopic", "KafkaPartition", "KafkaOffset", "KafkaTimestamp"],
            Self::KafkaHeaders => &["KafkaHeaders"],
        }
    }
}
