//! The compared variants: layout, sorting key, and other properties of a table.

use serde_json::{Value, json};
use sluice_gateway_config::Layout;

/// How paths that nearly every resource has are stored in a `JSON` table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourcePaths {
    /// Like others: the server determines the type of each value.
    Dynamic,
    /// [`RESOURCE_PATHS`] are declared.
    Declared,
    /// Like others, and the paths in the queries are also copied to columns ([`RESOURCE_COLUMNS`]).
    Columns,
}

/// Attributes that SDKs and the detectors of Kubernetes and clouds set on nearly every resource.
const RESOURCE_PATHS: [&str; 14] = [
    "cloud.provider",
    "cloud.region",
    "host.name",
    "k8s.deployment.name",
    "k8s.namespace.name",
    "k8s.node.name",
    "k8s.pod.name",
    "service.instance.id",
    "service.name",
    "service.namespace",
    "service.version",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
];

/// Resource paths in the queries, each with its column in [`ResourcePaths::Columns`].
const RESOURCE_COLUMNS: [(&str, &str); 2] =
    [(super::question::POD, "K8sPodName"), (super::question::VERSION, "ServiceVersion")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    pub name: &'static str,
    pub layout: Layout,
    pub order_by: &'static [&'static str],
    /// Whether paths that most spans of a kind have are declared with their types.
    pub typed: bool,
    /// How paths that nearly every resource has are stored.
    pub resource: ResourcePaths,
    /// Whether the views exist, and queries use them.
    pub views: bool,
    /// Whether the server syncs every part before it acknowledges an INSERT.
    pub synced: bool,
}

/// The default: low cardinality first, the time last.
pub const SERVICE_FIRST: &[&str] = &["ServiceName", "SpanName", "toDateTime(Timestamp)", "Timestamp"];

/// Time in coarse steps first: queries of the last minutes read the end of the table.
pub const TIME_FIRST: &[&str] = &["toStartOfFiveMinutes(Timestamp)", "ServiceName", "SpanName", "Timestamp"];

/// Rows of a trace together.
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
    Variant {
        resource: ResourcePaths::Declared,
        ..plain("json-service-declared", Layout::Json, SERVICE_FIRST)
    },
    Variant {
        resource: ResourcePaths::Columns,
        ..plain("json-service-columns", Layout::Json, SERVICE_FIRST)
    },
    Variant { views: true, ..plain("json-service-views", Layout::Json, SERVICE_FIRST) },
    Variant { synced: true, ..plain("json-service-fsync", Layout::Json, SERVICE_FIRST) },
    Variant { views: true, synced: true, ..plain("json-service-views-fsync", Layout::Json, SERVICE_FIRST) },
];

/// A variant whose only properties are layout and sorting key.
pub const fn plain(name: &'static str, layout: Layout, order_by: &'static [&'static str]) -> Variant {
    let resource = ResourcePaths::Dynamic;
    Variant { name, layout, order_by, typed: false, resource, views: false, synced: false }
}

impl Variant {
    /// The section `schema` of the gateway's config.
    pub fn schema(&self) -> Value {
        let mut schema = json!({
            "management": "CreateIfMissing", "layout": self.layout, "orderBy": self.order_by,
        });
        if self.typed {
            schema["typedPaths"] = json!({"span": {
                "http.request.method": "Nullable(String)", "http.route": "Nullable(String)",
                "http.response.status_code": "Nullable(Int64)", "db.system.name": "Nullable(String)",
                "rpc.system": "Nullable(String)", "rpc.method": "Nullable(String)",
            }});
        }
        match self.resource {
            ResourcePaths::Dynamic => {}
            ResourcePaths::Declared => {
                let paths = RESOURCE_PATHS.map(|path| (path.to_owned(), json!("Nullable(String)")));
                schema["typedPaths"] = json!({"resource": serde_json::Map::from_iter(paths)});
            }
            ResourcePaths::Columns => {
                schema["columns"] = RESOURCE_COLUMNS
                    .map(|(path, name)| {
                        let value = format!("toString(ResourceAttributes.{path})");
                        json!({"name": name, "type": "LowCardinality(String)", "default": value})
                    })
                    .into_iter()
                    .collect();
            }
        }
        if self.views {
            schema["views"] = json!({"operations": true, "traceTimes": true});
        }
        if self.synced {
            schema["durability"] = json!("Fsync");
        }
        schema
    }

    /// SQL for the value of a span attribute of type text.
    pub fn text(&self, key: &str) -> String {
        self.text_in("SpanAttributes", key, self.typed)
    }

    /// SQL for the value of a resource attribute of type text; `key` is one of [`RESOURCE_COLUMNS`].
    pub fn resource_text(&self, key: &str) -> String {
        let column = RESOURCE_COLUMNS.iter().find(|(path, _)| *path == key).map(|(_, column)| *column);
        match (self.layout, self.resource, column) {
            (Layout::Json, ResourcePaths::Columns, Some(column)) => column.to_owned(),
            (_, resource, _) => self.text_in("ResourceAttributes", key, resource == ResourcePaths::Declared),
        }
    }

    /// SQL for the value of an attribute of a set; a `JSON` column may have declared its path.
    fn text_in(&self, set: &str, key: &str, is_declared: bool) -> String {
        match self.layout {
            Layout::Json if is_declared => format!("{set}.{key}"),
            Layout::Json => format!("{set}.{key}.:String"),
            Layout::Map => format!("{set}['{key}']"),
            Layout::Nested => format!("`{set}String.Value`[indexOf(`{set}String.Key`, '{key}')]"),
        }
    }

    /// The conditions by which the server can skip granules in a query for an attribute's value: its indexes support them. `set` is
    /// `ResourceAttributes` or `SpanAttributes`.
    pub fn granules_with(&self, set: &str, key: &str, value: &str) -> String {
        match self.layout {
            Layout::Json => String::new(),
            Layout::Map => format!(" AND has(mapKeys({set}), '{key}') AND has(mapValues({set}), '{value}')"),
            Layout::Nested => {
                format!(" AND has(`{set}String.Key`, '{key}') AND has(`{set}String.Value`, '{value}')")
            }
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

    #[test]
    fn paths_of_the_resource_are_asked_for_as_they_are_stored() {
        let asked = |name: &str| {
            let variant = VARIANTS.iter().find(|variant| variant.name == name).unwrap();
            let schema: sluice_gateway_config::Schema = serde_json::from_value(variant.schema()).unwrap();
            let stored = (schema.typed_paths.resource.len(), schema.columns.len());
            (stored, variant.resource_text(super::super::question::POD))
        };
        assert_eq!(asked("json-service"), ((0, 0), "ResourceAttributes.k8s.pod.name.:String".into()));
        assert_eq!(asked("json-service-declared"), ((14, 0), "ResourceAttributes.k8s.pod.name".into()));
        assert_eq!(asked("json-service-columns"), ((0, 2), "K8sPodName".into()));
        assert_eq!(asked("map-service"), ((0, 0), "ResourceAttributes['k8s.pod.name']".into()));
    }
}
