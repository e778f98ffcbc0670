//! Texts of one form: topics, tables, columns, types, keys and names.

use super::values::Case;

/// Values are JSON.
pub const TEXTS: &[Case] = &[
    Case {
        pointer: "/spec/source/kafka/topics",
        taken: &[r#"["otlp_spans"]"#, r#"["a.b-C_1", "2"]"#],
        refused: &[r#"["a b"]"#, r#"["otlp_spans", "a/b"]"#, r#"["é"]"#],
        message: "each of topics is the name of a topic",
    },
    Case {
        pointer: "/spec/source/kafka",
        taken: &[
            r#"{"topics": ["a"], "connectionRef": {"name": "main"}}"#,
            r#"{"topics": ["a"], "connectionRef": {"name": "a-1.b"}}"#,
        ],
        refused: &[
            r#"{"topics": ["a"], "connectionRef": {"name": "Main"}}"#,
            r#"{"topics": ["a"], "connectionRef": {"name": "main-"}}"#,
            r#"{"topics": ["a"], "connectionRef": {"name": "a..b"}}"#,
        ],
        message: "name of connectionRef is the name of a TraceConnection",
    },
    Case {
        pointer: "/spec/sink/clickhouse/credentials",
        taken: &[r#"{"secretRef": {"name": "writer-1.a"}}"#, r#"{"tokenSecretRef": {"name": "0"}}"#],
        refused: &[
            r#"{"secretRef": {"name": "My_Secret"}}"#,
            r#"{"secretRef": {"name": "writer-"}}"#,
            r#"{"tokenSecretRef": {"name": "a..b"}}"#,
        ],
        message: "name is the name of a Secret",
    },
    Case {
        pointer: "/spec/source/kafka/sasl",
        taken: &[r#"{"mechanism": "Plain", "secretRef": {"name": "kafka-user"}}"#],
        refused: &[r#"{"mechanism": "Plain", "secretRef": {"name": "Kafka"}}"#],
        message: "name is the name of a Secret",
    },
    Case {
        pointer: "/spec/source/kafka/tls",
        taken: &[r#"{"caSecretRef": {"name": "ca"}, "clientCertificateSecretRef": {"name": "own"}}"#],
        refused: &[
            r#"{"caSecretRef": {"name": "CA"}}"#,
            r#"{"clientCertificateSecretRef": {"name": "own key"}}"#,
        ],
        message: "name is the name of a Secret",
    },
    Case {
        pointer: "/spec/gateway/imagePullSecrets",
        taken: &[r#"[{"name": "registry"}]"#],
        refused: &[r#"[{"name": "registry"}, {"name": "my_registry"}]"#],
        message: "name is the name of a Secret",
    },
    Case {
        pointer: "/spec/sink/clickhouse/database",
        taken: &[r#""otel""#, r#""a.b-C_1""#],
        refused: &[r#""a b""#, r#""a`b""#],
        message: "database is a-z",
    },
    Case {
        pointer: "/spec/sink/clickhouse/table",
        taken: &[r#""otel_traces""#, r#""a.b-C_1""#],
        refused: &[r#""a b""#, r#""a/b""#],
        message: "table is a-z",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[r#"{"cluster": "prod_eu"}"#, r#"{"cluster": "_1"}"#],
        refused: &[r#"{"cluster": "prod-eu"}"#, r#"{"cluster": "1a"}"#],
        message: "cluster is a-z",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[r#"{"columns": [{"name": "HttpRoute", "type": "String"}]}"#],
        refused: &[
            r#"{"columns": [{"name": "http.route", "type": "String"}]}"#,
            r#"{"columns": [{"name": "a", "type": "String"}, {"name": "1a", "type": "String"}]}"#,
        ],
        message: "the name of a column is a-z",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"labels": {"team": "a_B.c-1", "example.com/a": ""}}"#,
            r#"{"nodeSelector": {"disk": "ssd"}}"#,
        ],
        refused: &[
            r#"{"labels": {"team": "a b"}}"#,
            r#"{"labels": {"team": "a", "owner": "b."}}"#,
            r#"{"nodeSelector": {"disk": "-ssd"}}"#,
        ],
        message: "the value of a label is",
    },
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
        message: "the type of a path is",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[r#"{"typedPaths": {"span": {"a": "Float32", "b": "Nullable(UInt8)", "c": "Bool"}}}"#],
        refused: &[
            r#"{"typedPaths": {"span": {"a": "Int128"}}}"#,
            r#"{"typedPaths": {"span": {"a": "Nullable(Nullable(String))"}}}"#,
        ],
        message: "the type of a path is",
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
