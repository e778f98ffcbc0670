//! Texts of one form: columns, types, keys and names.

use super::values::Case;

/// Values are JSON.
pub const TEXTS: &[Case] = &[
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[r#"{"orderBy": ["ServiceName", "toStartOfHour(Timestamp)", "_a1"]}"#],
        refused: &[
            r#"{"orderBy": ["ServiceName, Timestamp"]}"#,
            r#"{"orderBy": ["ServiceName", "f(a, b)"]}"#,
            r#"{"orderBy": ["1a"]}"#,
            r#"{"orderBy": ["f(a"]}"#,
        ],
        message: "each of orderBy is a column, or a function of one",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[
            r#"{"typedPaths": {"resource": {"a": "Int64", "b.c": "Nullable(String)"}}}"#,
            r#"{"typedPaths": {}}"#,
        ],
        refused: &[
            r#"{"typedPaths": {"resource": {"a": "Int64", "b": "string"}}}"#,
            r#"{"typedPaths": {"resource": {"a": "Nullable(String"}}}"#,
        ],
        message: "each type of typedPaths.resource is",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[r#"{"typedPaths": {"span": {"a": "Float32", "b": "Nullable(UInt8)", "c": "Bool"}}}"#],
        refused: &[
            r#"{"typedPaths": {"span": {"a": "Int128"}}}"#,
            r#"{"typedPaths": {"span": {"a": "Nullable(Nullable(String))"}}}"#,
        ],
        message: "each type of typedPaths.span is",
    },
    Case {
        pointer: "/spec/attributes",
        taken: &[r#"{"rules": [{"action": "Keep", "keys": ["http.route", "http.*", "*"]}]}"#],
        refused: &[
            r#"{"rules": [{"action": "Keep", "keys": ["http.route", "*.route"]}]}"#,
            r#"{"rules": [{"action": "Drop", "keys": ["http**"]}]}"#,
        ],
        message: "each of keys has no * but one at its end",
    },
    Case {
        pointer: "/spec/sink/clickhouse",
        taken: &[
            r#"{"shards": [{"name": "eu-1", "endpoints": ["http://a:8123"]}, {"name": "2", "endpoints": ["http://b:8123"]}]}"#,
        ],
        refused: &[
            r#"{"shards": [{"name": "EU", "endpoints": ["http://a:8123"]}]}"#,
            r#"{"shards": [{"name": "eu-", "endpoints": ["http://a:8123"]}]}"#,
            r#"{"shards": [{"name": "eu.1", "endpoints": ["http://a:8123"]}]}"#,
        ],
        message: "the name of a shard has only a-z, 0-9 and -",
    },
];
