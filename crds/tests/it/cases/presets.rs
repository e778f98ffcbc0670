//! Rules about tables that a reader defines.

use super::values::Case;

/// Values are JSON.
pub const PRESETS: &[Case] = &[
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[
            r#"{"preset": "ClickStack"}"#,
            r#"{"preset": "ClickStack", "layout": "Map", "ttl": "30d", "views": ["TraceTimes"]}"#,
        ],
        refused: &[
            r#"{"preset": "ClickStack", "layout": "Json"}"#,
            r#"{"preset": "ClickStack", "layout": "Nested"}"#,
            r#"{"preset": "ClickStack", "maxDynamicPaths": 8}"#,
            r#"{"preset": "ClickStack", "typedPaths": {"span": {"a": "Int64"}}}"#,
            r#"{"preset": "ClickStack", "typedPaths": {"resource": {"a": "Int64"}}}"#,
        ],
        message: "preset ClickStack stores attributes as Map",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[r#"{"preset": "ClickStack", "columns": [{"name": "Route", "type": "String"}]}"#],
        refused: &[
            r#"{"preset": "ClickStack", "columns": [{"name": "SampleRate", "type": "UInt64"}]}"#,
            r#"{"preset": "ClickStack", "columns": [{"name": "Route", "type": "String"}, {"name": "SpanAttributeItems", "type": "String"}]}"#,
        ],
        message: "preset ClickStack adds the columns SampleRate",
    },
];
