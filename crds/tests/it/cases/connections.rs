//! Rules about references to a connection, and those of the `TraceConnection` itself.

use super::{NAMED, NAMED_ELSEWHERE, NAMED_OTHERWISE, ONE_SHARD, SWAPPED, TWO_SHARDS, values::Case};

/// Of a pipeline. Values are JSON.
pub const REFERENCES: &[Case] = &[
    Case {
        pointer: "/spec/source/kafka",
        taken: &[
            r#"{"topics": ["a"], "bootstrapServers": ["kafka:9092"]}"#,
            r#"{"topics": ["a"], "connectionRef": {"name": "main"}}"#,
        ],
        refused: &[
            r#"{"topics": ["a"]}"#,
            r#"{"topics": ["a"], "bootstrapServers": ["kafka:9092"], "connectionRef": {"name": "main"}}"#,
        ],
        message: "exactly one of bootstrapServers and connectionRef is set in source.kafka",
    },
    Case {
        pointer: "/spec/source/kafka",
        taken: &[
            r#"{"topics": ["a"], "bootstrapServers": ["kafka:9092"], "tls": {}}"#,
            r#"{"topics": ["a"], "connectionRef": {"name": "main"}, "properties": {"client": "a"}}"#,
        ],
        refused: &[
            r#"{"topics": ["a"], "connectionRef": {"name": "main"}, "tls": {}}"#,
            r#"{"topics": ["a"], "connectionRef": {"name": "main"},
                "sasl": {"mechanism": "Plain", "secretRef": {"name": "u"}}}"#,
        ],
        message: "with source.kafka.connectionRef, tls and sasl stand in the TraceConnection",
    },
    Case {
        pointer: "/spec/sink/clickhouse",
        taken: &[r#"{"connectionRef": {"name": "main"}}"#, r#"{"endpoints": ["http://a:8123"]}"#],
        refused: &[
            r#"{"connectionRef": {"name": "main"}, "endpoints": ["http://a:8123"]}"#,
            r#"{"connectionRef": {"name": "main"}, "shards": [{"endpoints": ["http://a:8123"]}]}"#,
        ],
        message: "exactly one of endpoints, shards and connectionRef is set",
    },
    Case {
        pointer: "/spec/sink/clickhouse",
        taken: &[
            r#"{"connectionRef": {"name": "main"}, "database": "a", "table": "b"}"#,
            r#"{"endpoints": ["http://a:8123"], "credentials": {"secretRef": {"name": "u"}}}"#,
        ],
        refused: &[
            r#"{"connectionRef": {"name": "main"}, "credentials": {"secretRef": {"name": "u"}}}"#,
            r#"{"connectionRef": {"name": "main"}, "tls": {}}"#,
        ],
        message: "with sink.clickhouse.connectionRef, tls and credentials stand in the TraceConnection",
    },
];

/// Of a connection, which has both parts.
pub const CONNECTIONS: &[Case] = &[
    Case {
        pointer: "/spec",
        taken: &[
            r#"{"kafka": {"bootstrapServers": ["kafka:9092"]}}"#,
            r#"{"clickhouse": {"endpoints": ["http://a:8123"]}}"#,
        ],
        refused: &["{}"],
        message: "a TraceConnection has kafka, clickhouse or both",
    },
    Case {
        pointer: "/spec/kafka/bootstrapServers",
        taken: &[r#"["kafka:9092"]"#, r#"["a:1", "[::1]:9093"]"#],
        refused: &[r#"["kafka"]"#, r#"["PLAINTEXT://kafka:9092"]"#],
        message: "each of bootstrapServers is host:port",
    },
    Case {
        pointer: "/spec/clickhouse",
        taken: &[r#"{"endpoints": ["http://a:8123"]}"#, ONE_SHARD],
        refused: &["{}", r#"{"endpoints": ["http://a:8123"], "shards": [{"endpoints": ["http://b:8123"]}]}"#],
        message: "one of endpoints and shards is set, and not both",
    },
    Case {
        pointer: "/spec/clickhouse",
        taken: &[r#"{"endpoints": ["https://a:8443"], "tls": {}}"#],
        refused: &[r#"{"endpoints": ["http://a:8123"], "tls": {}}"#],
        message: "tls is set, but endpoints are http",
    },
    Case {
        pointer: "/spec/clickhouse/endpoints",
        taken: &[r#"["http://a:8123", "http://b:80/"]"#],
        refused: &[r#"["clickhouse:8123"]"#, r#"["http://a"]"#],
        message: "each of endpoints is http://host:port",
    },
    Case {
        pointer: "/spec/clickhouse/endpoints",
        taken: &[r#"["https://a:8443", "https://b:8443"]"#],
        refused: &[r#"["https://a:8443", "http://b:8123"]"#],
        message: "endpoints are all http or all https",
    },
    Case {
        pointer: "/spec/clickhouse",
        taken: &[r#"{"shards": [{"endpoints": ["https://a:8443"]}, {"endpoints": ["https://b:8443"]}]}"#],
        refused: &[r#"{"shards": [{"endpoints": ["https://a:8443"]}, {"endpoints": ["http://b:8123"]}]}"#],
        message: "the endpoints of shards are all http or all https",
    },
    Case {
        pointer: "/spec/clickhouse/endpoints",
        taken: &[r#"["http://a:8123", "http://b:8123"]"#],
        refused: &[r#"["http://a:8123", "http://a:8123"]"#],
        message: "endpoints has an address twice",
    },
    Case {
        pointer: "/spec/clickhouse",
        taken: &[NAMED, TWO_SHARDS],
        refused: &[
            r#"{"shards": [{"name": "one", "endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123"]}]}"#,
        ],
        message: "every shard has a name of its own",
    },
];

/// Rules about a change of a connection's `spec.clickhouse`: from, to, whether it is taken, and a part of the message.
pub const CONNECTION_CHANGES: &[(&str, &str, bool, &str)] = &[
    (ONE_SHARD, TWO_SHARDS, true, ""),
    (TWO_SHARDS, ONE_SHARD, false, "shards can only be added"),
    (TWO_SHARDS, SWAPPED, false, super::KEEPS_PLACE),
    (TWO_SHARDS, NAMED, true, ""),
    (NAMED, NAMED_OTHERWISE, false, super::KEEPS_PLACE),
    (NAMED, NAMED_ELSEWHERE, true, ""),
    (NAMED, super::NAMED_ENDPOINTS_SWAPPED, false, super::MOVES),
    (super::OF_SHARD_A, super::TO_SHARDS_A_B, true, ""),
    (super::OF_SHARD_A, super::TO_SHARDS_B_A, false, super::FIRST_OF_SHARDS),
];
