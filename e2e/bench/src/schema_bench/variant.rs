//! The compared variants: layout, sorting key, and other properties of a table.

use serde_json::{Value, json};

/// How attributes lie in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Json,
    Map,
    Nested,
}

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    pub name: &'static str,
    pub layout: Layout,
    pub order_by: &'static [&'static str],
    /// Whether paths that most spans of a kind have are declared with their types.
    pub typed: bool,
    /// Whether the views are there, and asked.
    pub views: bool,
    /// Whether the server syncs every part before it acknowledges an INSERT.
    pub synced: bool,
}

/// The default: low cardinality first, the time last.
pub const SERVICE_FIRST: &[&str] = &["ServiceName", "SpanName", "toDateTime(Timestamp)", "Timestamp"];

/// Time in coarse steps first: what is asked of the last minutes reads the end of the table.
pub const TIME_FIRST: &[&str] = &["toStartOfFiveMinutes(Timestamp)", "ServiceName", "SpanName", "Timestamp"];

/// Traces together.
pub const TRACE_FIRST: &[&str] = &["TraceId", "Timestamp"];

/// In the order in which they are measured.
pub const VARIANTS: &[Variant] = &[
    plain("json-service", Layout::Json, SERVICE_FIRST),
    plain("json-time", Layout::Json, TIME_FIRST),
    plain("json-trace", Layout::Json, TRACE_FIRST),
    plain("map-service", Layout::Map, SERVICE_FIRST),
    plain("map-time", Layout::Map, TIME_FIRST),
    plain("map-trace", Layout::Map, TRACE_FIRST),
    plain("nested-service", Layout::Nested, SERVICE_FIRST),
    plain("nested-time", Layout::Nested, TIME_FIRST),
    plain("nested-trace", Layout::Nested, TRACE_FIRST),
    Variant { typed: true, ..plain("json-service-typed", Layout::Json, SERVICE_FIRST) },
    Variant { views: true, ..plain("json-service-views", Layout::Json, SERVICE_FIRST) },
    Variant { synced: true, ..plain("json-service-fsync", Layout::Json, SERVICE_FIRST) },
    Variant { views: true, synced: true, ..plain("json-service-views-fsync", Layout::Json, SERVICE_FIRST) },
];

const fn plain(name: &'static str, layout: Layout, order_by: &'static [&'static str]) -> Variant {
    Variant { name, layout, order_by, typed: false, views: false, synced: false }
}

impl Layout {
    /// As the config names it.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Json => "Json",
            Layout::Map => "Map",
            Layout::Nested => "Nested",
        }
    }
}

impl Variant {
    /// The section `schema` of the gateway's config.
    pub fn schema(&self) -> Value {
        let mut schema = json!({
            "management": "CreateIfMissing", "layout": self.layout.name(), "orderBy": self.order_by,
        });
        if self.typed {
            schema["typedPaths"] = json!({"span": {
                "http.request.method": "Nullable(String)", "http.route": "Nullable(String)",
                "http.response.status_code": "Nullable(Int64)", "db.system.name": "Nullable(String)",
                "rpc.system": "Nullable(String)", "rpc.method": "Nullable(String)",
            }});
        }
        if self.views {
            schema["views"] = json!({"operations": true, "traceTimes": true});
        }
        if self.synced {
            schema["durability"] = json!("Fsync");
        }
        schema
    }

    /// The value of a span attribute of type text.
    pub fn text(&self, key: &str) -> String {
        match self.layout {
            Layout::Json if self.typed => format!("SpanAttributes.{key}"),
            Layout::Json => format!("SpanAttributes.{key}.:String"),
            Layout::Map => format!("SpanAttributes['{key}']"),
            Layout::Nested => {
                format!("`SpanAttributesString.Value`[indexOf(`SpanAttributesString.Key`, '{key}')]")
            }
        }
    }

    /// What lets the server leave out granules in a question about a span attribute's value: the conditions that its indexes know.
    pub fn granules_with(&self, key: &str, value: &str) -> String {
        match self.layout {
            Layout::Json => String::new(),
            Layout::Map => format!(
                " AND has(mapKeys(SpanAttributes), '{key}') AND has(mapValues(SpanAttributes), '{value}')"
            ),
            Layout::Nested => format!(
                " AND has(`SpanAttributesString.Key`, '{key}') AND has(`SpanAttributesString.Value`, '{value}')"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn variants_differ_by_name_and_are_configs_that_the_gateway_takes() {
        let names: BTreeSet<_> = VARIANTS.iter().map(|variant| variant.name).collect();
        assert_eq!(names.len(), VARIANTS.len());
        for variant in VARIANTS {
            let schema: sluice_gateway_config::Schema = serde_json::from_value(variant.schema()).unwrap();
            assert_eq!(schema.order_by, variant.order_by, "{}", variant.name);
        }
    }
}
