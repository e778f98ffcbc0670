//! Rules about idle topics.

use super::values::Case;

/// Rules about a value by itself. Values are JSON.
pub const IDLE: &[Case] = &[
    Case {
        pointer: "/spec/scaling",
        taken: &[
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "30m"}}"#,
            r#"{"mode": "Recommend"}"#,
        ],
        refused: &[
            r#"{"mode": "Fixed", "minReplicas": 0, "idle": {"after": "30m"}}"#,
            r#"{"mode": "Recommend", "minReplicas": 0, "idle": {"after": "30m"}}"#,
            r#"{"mode": "External", "minReplicas": 0, "idle": {"after": "30m"}}"#,
        ],
        message: "idle needs scaling.mode Auto",
    },
    Case {
        pointer: "/spec/scaling",
        taken: &[r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "30m"}}"#, r#"{"mode": "Auto"}"#],
        refused: &[
            r#"{"mode": "Auto", "minReplicas": 0}"#,
            r#"{"mode": "Auto", "idle": {"after": "30m"}}"#,
            r#"{"mode": "Auto", "minReplicas": 2, "idle": {"after": "30m"}}"#,
            r#"{"minReplicas": 0}"#,
        ],
        message: "minReplicas 0 and idle are set together",
    },
    Case {
        pointer: "/spec/scaling",
        taken: &[
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "1m"}}"#,
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "24h"}}"#,
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "1h30m"}}"#,
        ],
        refused: &[
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "59s"}}"#,
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "25h"}}"#,
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "soon"}}"#,
        ],
        message: "after of idle is a duration",
    },
    Case {
        pointer: "/spec/scaling",
        taken: &[
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "1h", "refreshEvery": "1h"}}"#,
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "1h", "refreshEvery": "144h"}}"#,
        ],
        refused: &[
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "1h", "refreshEvery": "59m"}}"#,
            r#"{"mode": "Auto", "minReplicas": 0, "idle": {"after": "1h", "refreshEvery": "7d"}}"#,
        ],
        message: "refreshEvery of idle is a duration",
    },
    Case {
        pointer: "/spec",
        taken: &[
            r#"{"source": {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["a"]}},
                "sink": {"clickhouse": {"endpoints": ["http://a:8123"]}},
                "scaling": {"mode": "Auto", "minReplicas": 0, "idle": {"after": "30m"}}}"#,
            r#"{"source": {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["a"], "groupProtocol": "Consumer"}},
                "sink": {"clickhouse": {"endpoints": ["http://a:8123"]}}}"#,
        ],
        refused: &[
            r#"{"source": {"kafka": {"bootstrapServers": ["kafka:9092"], "topics": ["a"], "groupProtocol": "Consumer"}},
                "sink": {"clickhouse": {"endpoints": ["http://a:8123"]}},
                "scaling": {"mode": "Auto", "minReplicas": 0, "idle": {"after": "30m"}}}"#,
        ],
        message: "scaling.idle needs source.kafka.groupProtocol Classic",
    },
];
