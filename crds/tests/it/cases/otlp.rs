//! Values that the rules about OTLP without Kafka take and refuse.

use super::values::Case;

const SOURCE: &str = "/spec/source";
const SPEC: &str = "/spec";

/// Values of `spec.source.otlp`, and what stands beside it.
pub const OTLP: &[Case] = &[
    Case {
        pointer: SOURCE,
        taken: &[
            r#"{"otlp": {}}"#,
            r#"{"otlp": {}, "kafka": null}"#,
            r#"{"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}"#,
            r#"{"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}, "otlp": null}"#,
        ],
        refused: &[
            r#"{"otlp": {}, "kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}"#,
            "{}",
            r#"{"otlp": null}"#,
            r#"{"kafka": null}"#,
            r#"{"kafka": null, "otlp": null}"#,
        ],
        message: "exactly one of kafka and otlp is set in source",
    },
    // A null within the value stays one in each test, as with(value) takes away only those at its top.
    Case {
        pointer: SPEC,
        taken: &[r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}}"#],
        refused: &[
            r#"{"source": {"otlp": null}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}}"#,
            r#"{"source": {"kafka": null}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}}"#,
        ],
        message: "exactly one of kafka and otlp is set in source",
    },
    Case {
        pointer: SOURCE,
        taken: &[
            r#"{"otlp": {}}"#,
            r#"{"otlp": {"grpc": {"enabled": false}}}"#,
            r#"{"otlp": {"http": {"enabled": false}}}"#,
        ],
        refused: &[r#"{"otlp": {"grpc": {"enabled": false}, "http": {"enabled": false}}}"#],
        message: "source.otlp needs grpc.enabled or http.enabled",
    },
    Case {
        pointer: SOURCE,
        taken: &[r#"{"otlp": {"grpc": {"port": 4318}, "http": {"port": 4317}}}"#],
        refused: &[r#"{"otlp": {"grpc": {"port": 4318}}}"#],
        message: "source.otlp.grpc.port and source.otlp.http.port must differ",
    },
    Case {
        pointer: SOURCE,
        taken: &[
            r#"{"otlp": {"requestBytesMax": "8Mi"}}"#,
            r#"{"otlp": {"decompressedBytesMax": "4096Ki"}}"#,
        ],
        refused: &[r#"{"otlp": {"requestBytesMax": "9Mi"}}"#, r#"{"otlp": {"decompressedBytesMax": "3Mi"}}"#],
        message: "source.otlp.decompressedBytesMax must not be less",
    },
    Case {
        pointer: SOURCE,
        taken: &[
            r#"{"otlp": {"requestBytesMax": "64Ki"}}"#,
            r#"{"otlp": {"requestBytesMax": "64Mi", "decompressedBytesMax": "64Mi"}}"#,
        ],
        refused: &[
            r#"{"otlp": {"requestBytesMax": "63Ki"}}"#,
            r#"{"otlp": {"requestBytesMax": "65Mi"}}"#,
            r#"{"otlp": {"requestBytesMax": "1M"}}"#,
        ],
        message: "requestBytesMax is a whole number of Ki or Mi from 64Ki to 64Mi, such as 4Mi",
    },
    Case {
        pointer: SOURCE,
        taken: &[r#"{"otlp": {"decompressedBytesMax": "64Mi"}}"#],
        refused: &[
            r#"{"otlp": {"decompressedBytesMax": "65Mi"}}"#,
            r#"{"otlp": {"decompressedBytesMax": "1Gi"}}"#,
        ],
        message: "decompressedBytesMax is a whole number of Ki or Mi from 64Ki to 64Mi, such as 8Mi",
    },
    Case {
        pointer: SOURCE,
        taken: &[r#"{"otlp": {"connectionAgeMax": "10s"}}"#, r#"{"otlp": {"connectionAgeMax": "24h"}}"#],
        refused: &[r#"{"otlp": {"connectionAgeMax": "9s"}}"#, r#"{"otlp": {"connectionAgeMax": "25h"}}"#],
        message: "connectionAgeMax is a duration",
    },
    Case {
        pointer: SOURCE,
        taken: &[r#"{"otlp": {"deadLetterBytesMax": "2Mi"}}"#, r#"{"otlp": {"deadLetterBytesMax": "64Gi"}}"#],
        refused: &[
            r#"{"otlp": {"deadLetterBytesMax": "1Mi"}}"#,
            r#"{"otlp": {"deadLetterBytesMax": "65Gi"}}"#,
            r#"{"otlp": {"deadLetterBytesMax": "64"}}"#,
        ],
        message: "deadLetterBytesMax is a whole number",
    },
    Case {
        pointer: SOURCE,
        taken: &[r#"{"otlp": {"authentication": {"bearerTokensSecretRef": {"name": "a"}}}}"#],
        refused: &[r#"{"otlp": {"authentication": {}}}"#],
        message: "authentication has bearerTokensSecretRef",
    },
    Case {
        pointer: SOURCE,
        taken: &[r#"{"otlp": {"tenants": {"header": "x-scope-orgid", "spansPerSecond": 1}}}"#],
        refused: &[r#"{"otlp": {"tenants": {"header": "x-scope-orgid"}}}"#],
        message: "tenants has spansPerSecond",
    },
    Case {
        pointer: SOURCE,
        taken: &[r#"{"otlp": {"tenants": {"header": "a", "bytesPerSecond": "1Ki"}}}"#],
        refused: &[r#"{"otlp": {"tenants": {"header": "X-Tenant", "bytesPerSecond": "1Ki"}}}"#],
        message: "header of tenants is the name of a header",
    },
    Case {
        pointer: SOURCE,
        taken: &[r#"{"otlp": {"service": {"type": "LoadBalancer", "loadBalancerClass": "internal"}}}"#],
        refused: &[r#"{"otlp": {"service": {"loadBalancerClass": "internal"}}}"#],
        message: "service.loadBalancerClass needs type LoadBalancer",
    },
    Case {
        pointer: SPEC,
        taken: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}}"#,
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "edge": {}}"#,
        ],
        refused: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "edge": {}}"#,
        ],
        message: "edge cannot be used with source.otlp",
    },
    Case {
        pointer: SPEC,
        taken: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}}"#,
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "queue": {"mode": "Disabled"}}"#,
        ],
        refused: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "queue": {"mode": "Disabled"}}"#,
        ],
        message: "source.otlp needs queue.mode Spill",
    },
    Case {
        pointer: SPEC,
        taken: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}}"#,
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "delivery": {"commit": "AfterEnqueue"}}"#,
        ],
        refused: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "delivery": {"commit": "AfterEnqueue"}}"#,
        ],
        message: "delivery.commit AfterEnqueue cannot be used with source.otlp",
    },
    Case {
        pointer: SPEC,
        taken: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}}"#,
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "delivery": {"deadLetter": {"topic": "b"}}}"#,
        ],
        refused: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "delivery": {"deadLetter": {"topic": "b"}}}"#,
        ],
        message: "delivery.deadLetter.topic cannot be used with source.otlp",
    },
    Case {
        pointer: SPEC,
        taken: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}}"#,
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "scaling": {"mode": "Auto", "maxReplicas": 4, "minReplicas": 0, "idle": {"after": "30m"}}}"#,
        ],
        refused: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "scaling": {"mode": "Auto", "maxReplicas": 4, "minReplicas": 0, "idle": {"after": "30m"}}}"#,
        ],
        message: "scaling.idle cannot be used with source.otlp",
    },
    Case {
        pointer: SPEC,
        taken: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "scaling": {"drain": {"onTimeout": "Abort"}}}"#,
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "scaling": {"drain": {"onTimeout": "Job"}}}"#,
        ],
        refused: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "scaling": {"drain": {"onTimeout": "Job"}}}"#,
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "scaling": {"drain": {"onTimeout": "Force"}}}"#,
        ],
        message: "source.otlp needs scaling.drain.onTimeout Abort",
    },
    Case {
        pointer: SPEC,
        taken: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "scaling": {"mode": "Auto", "maxReplicas": 4}}"#,
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "scaling": {"mode": "Auto"}}"#,
        ],
        refused: &[
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "scaling": {"mode": "Auto"}}"#,
            r#"{"source": {"otlp": {}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "scaling": {"mode": "Recommend"}}"#,
        ],
        message: "source.otlp with scaling.mode Auto or Recommend needs scaling.maxReplicas",
    },
];
