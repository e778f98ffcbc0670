//! Rules about a value by itself.

/// One rule: where the value stands, what is taken, what is refused, and a part of the message.
pub struct Case {
    pub pointer: &'static str,
    pub taken: &'static [&'static str],
    pub refused: &'static [&'static str],
    pub message: &'static str,
}

/// Rules about a value by itself. Values are JSON.
pub const VALUES: &[Case] = &[
    Case {
        pointer: "/metadata/name",
        taken: &[r#""a""#, r#""prod-traces""#, r#""a2345678901234567890123456789012345678901234""#],
        refused: &[r#""a23456789012345678901234567890123456789012345""#, r#""a.b""#, r#""1a""#, r#""a-""#],
        message: "the name of a TracePipeline",
    },
    Case {
        pointer: "/spec/source/kafka/bootstrapServers",
        taken: &[r#"["kafka:9092"]"#, r#"["kafka-0.kafka.svc:9092", "[::1]:9093"]"#],
        refused: &[
            r#"["kafka"]"#,
            r#"["kafka:9092", "kafka:0"]"#,
            r#"["PLAINTEXT://kafka:9092"]"#,
            r#"["a:1,b:2"]"#,
        ],
        message: "each of bootstrapServers is host:port",
    },
    Case {
        pointer: "/spec/attributes",
        taken: &["{}", r#"{"valueBytesMax": "1Ki"}"#, r#"{"valueBytesMax": "1Mi"}"#],
        refused: &[r#"{"valueBytesMax": "1023"}"#, r#"{"valueBytesMax": "1025Ki"}"#],
        message: "valueBytesMax is a whole number",
    },
    Case {
        pointer: "/spec/source/kafka/recordBatchBytesMax",
        taken: &[r#""64Ki""#, r#""1Mi""#, r#""256Mi""#],
        refused: &[r#""63Ki""#, r#""257Mi""#, r#""1M""#, r#""0Mi""#, r#""1.5Mi""#, r#""""#],
        message: "recordBatchBytesMax is a whole number",
    },
    Case {
        pointer: "/spec/source/kafka/properties",
        taken: &[
            "{}",
            r#"{"socket.receive.buffer.bytes": "65536", "broker.address.family": "v4", "debug": "cgrp"}"#,
            r#"{"retries.x": "c", "fetch.min.bytes": "1"}"#,
        ],
        refused: &[
            r#"{"bootstrap.servers": "kafka:9092"}"#,
            r#"{"auto.offset.reset": "latest"}"#,
            r#"{"isolation.level": "read_uncommitted"}"#,
            r#"{"socket.receive.buffer.bytes": "65536", "acks": "0"}"#,
            r#"{"fetch.wait.max.ms": "1"}"#,
            r#"{"group.instance.id": "a"}"#,
            r#"{"client.rack": "a"}"#,
            r#"{"ssl.ca.location": "/a"}"#,
            r#"{"debug": "cgrp", "sasl.password": "p"}"#,
        ],
        message: "properties has a name that another field or the gateway decides",
    },
    Case {
        pointer: "/spec/source/kafka/properties",
        taken: &["{}", r#"{"socket.timeout.ms": "10000", "client": "a", "sslx": "b", "batch": "c"}"#],
        refused: &[
            r#"{"enable.auto.commit": "true"}"#,
            r#"{"plugin.library.paths": "/a"}"#,
            r#"{"batch.size": "1"}"#,
        ],
        message: "properties has a name with a beginning",
    },
    Case {
        pointer: "/spec/sink/clickhouse/endpoints",
        taken: &[
            r#"["http://clickhouse:8123"]"#,
            r#"["http://10.0.0.1:8123/", "http://b:80"]"#,
            r#"["https://clickhouse:8443"]"#,
        ],
        refused: &[
            r#"["clickhouse:8123"]"#,
            r#"["https://clickhouse"]"#,
            r#"["tcp://clickhouse:9440"]"#,
            r#"["http://clickhouse"]"#,
            r#"["http://user:password@clickhouse:8123"]"#,
            r#"["http://clickhouse:8123/path"]"#,
        ],
        message: "each of endpoints is http://host:port",
    },
    Case {
        pointer: "/spec/sink/clickhouse/endpoints",
        taken: &[r#"["https://a:8443", "https://b:8443"]"#],
        refused: &[r#"["https://a:8443", "http://b:8123"]"#],
        message: "endpoints are all http or all https",
    },
    Case {
        pointer: "/spec/sink/clickhouse/endpoints",
        taken: &[r#"["http://a:8123", "http://b:8123", "http://a:8124"]"#],
        refused: &[r#"["http://a:8123", "http://b:8123", "http://a:8123"]"#],
        message: "endpoints has an address twice",
    },
    Case {
        pointer: "/spec/sink/clickhouse",
        taken: &[
            r#"{"endpoints": ["https://a:8443"], "tls": {}}"#,
            r#"{"endpoints": ["https://a:8443"], "tls": {"caSecretRef": {"name": "ca"}}}"#,
            r#"{"endpoints": ["https://a:8443"]}"#,
            r#"{"endpoints": ["http://a:8123"]}"#,
        ],
        refused: &[r#"{"endpoints": ["http://a:8123"], "tls": {}}"#],
        message: "tls is set, but endpoints are http",
    },
    Case {
        pointer: "/spec/sink/clickhouse",
        taken: &[r#"{"shards": [{"endpoints": ["https://a:8443"]}], "tls": {}}"#],
        refused: &[r#"{"shards": [{"endpoints": ["http://a:8123"]}], "tls": {}}"#],
        message: "tls is set, but endpoints are http",
    },
    Case {
        pointer: "/spec/sink/clickhouse",
        taken: &[
            r#"{"endpoints": ["http://a:8123"]}"#,
            r#"{"shards": [{"endpoints": ["http://a:8123"]}]}"#,
            r#"{"shards": [{"endpoints": ["http://a:8123", "http://b:8123"]}, {"endpoints": ["http://c:8123"]}]}"#,
        ],
        refused: &["{}", r#"{"endpoints": ["http://a:8123"], "shards": [{"endpoints": ["http://b:8123"]}]}"#],
        message: "exactly one of endpoints, shards and connectionRef is set",
    },
    Case {
        pointer: "/spec/sink/clickhouse",
        taken: &[r#"{"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["http://10.0.0.1:80/"]}]}"#],
        refused: &[
            r#"{"shards": [{"endpoints": ["http://a:8123"]}, {"endpoints": ["clickhouse:8123"]}]}"#,
            r#"{"shards": [{"endpoints": ["http://a:8123", "http://clickhouse"]}]}"#,
        ],
        message: "each of the endpoints of a shard is http://host:port",
    },
    Case {
        pointer: "/spec/sink/clickhouse",
        taken: &[r#"{"shards": [{"endpoints": ["https://a:8443"]}, {"endpoints": ["https://b:8443"]}]}"#],
        refused: &[r#"{"shards": [{"endpoints": ["https://a:8443"]}, {"endpoints": ["http://b:8123"]}]}"#],
        message: "the endpoints of shards are all http or all https",
    },
    Case {
        pointer: "/spec/sink/clickhouse",
        taken: &[
            r#"{"shards": [{"name": "one", "endpoints": ["http://a:8123"]}, {"name": "two", "endpoints": ["http://b:8123"]}]}"#,
        ],
        refused: &[
            r#"{"shards": [{"name": "one", "endpoints": ["http://a:8123"]}, {"name": "one", "endpoints": ["http://b:8123"]}]}"#,
            r#"{"shards": [{"name": "one", "endpoints": ["http://a:8123"]}, {"endpoints": ["http://b:8123"]}]}"#,
        ],
        message: "every shard has a name of its own",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[
            r#"{"maxDynamicPaths": 0}"#,
            r#"{"layout": "Json", "maxDynamicPaths": 8, "typedPaths": {"span": {"a": "Int64"}}}"#,
            r#"{"layout": "Map"}"#,
        ],
        refused: &[
            r#"{"layout": "Map", "maxDynamicPaths": 8}"#,
            r#"{"layout": "Nested", "typedPaths": {"span": {"a": "Int64"}}}"#,
            r#"{"layout": "Nested", "typedPaths": {"resource": {"a": "Int64"}}}"#,
        ],
        message: "layout must be Json",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[
            r#"{"engine": "Null", "views": ["Operations"]}"#,
            r#"{"engine": "ReplicatedMergeTree", "ttl": "30d", "orderBy": ["toStartOfHour(Timestamp)"]}"#,
        ],
        refused: &[r#"{"engine": "Null", "ttl": "30d"}"#, r#"{"engine": "Null", "orderBy": ["TraceId"]}"#],
        message: "engine Null stores nothing",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema",
        taken: &[
            r#"{"durability": "Quorum"}"#,
            r#"{"durability": "Quorum", "engine": "ReplicatedMergeTree"}"#,
            r#"{"durability": "Fsync", "engine": "Null"}"#,
        ],
        refused: &[
            r#"{"durability": "Quorum", "engine": "MergeTree"}"#,
            r#"{"durability": "Quorum", "engine": "Null"}"#,
        ],
        message: "durability Quorum needs replicas",
    },
    Case {
        pointer: "/spec/sink/clickhouse/schema/ttl",
        taken: &[r#""1h""#, r#""720h""#, r#""30d""#, r#""36500d""#, r#""1d12h""#],
        refused: &[r#""0d""#, r#""30""#, r#""12h1d""#, r#""90m""#, r#""100000d""#, r#""""#],
        message: "ttl is a duration from",
    },
    Case {
        pointer: "/spec/sink/clickhouse/insert/settings",
        taken: &["{}", r#"{"insert_quorum": "2", "max_partitions_per_insert_block": "10"}"#],
        refused: &[
            r#"{"async_insert": "1"}"#,
            r#"{"insert_quorum": "2", "max_insert_block_size_rows": "10"}"#,
            r#"{"insert_deduplication_token": "a"}"#,
            r#"{"deduplicate_insert": "disable"}"#,
            r#"{"input_format_allow_errors_num": "1"}"#,
            r#"{"wait_end_of_query": "0"}"#,
            r#"{"query": "DROP TABLE a"}"#,
        ],
        message: "settings has a name that the gateway decides",
    },
    Case {
        pointer: "/spec/sink/clickhouse/insert/settings",
        taken: &[r#"{"insert_quorum_parallel": "1"}"#],
        refused: &[r#"{"session_timeout": "1"}"#, r#"{"param_a": "1"}"#],
        message: "settings has a name that the gateway decides: one of a session",
    },
    Case {
        pointer: "/spec/gateway/image",
        taken: &[r#""""#, r#""sluice-gateway:0.1.0""#, r#""r.example.com:5000/a/b@sha256:00ff""#],
        refused: &[r#"" a:1""#, r#""a:1\n""#, r#""é:1""#, r#""a b""#],
        message: "image is a reference",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            "{}",
            r#"{"labels": {"team": "a", "example.com/app.kubernetes.io": "", "x.sluice.dev/a": "b"}}"#,
        ],
        refused: &[
            r#"{"labels": {"app.kubernetes.io/name": "mine"}}"#,
            r#"{"labels": {"team": "a", "sluice.dev/drained": "true"}}"#,
        ],
        message: "labels of podTemplate cannot begin with",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"annotations": {"sidecar.istio.io/inject": "false", "kubectl.kubernetes.io/restartedAt": "now"}}"#,
        ],
        refused: &[
            r#"{"annotations": {"sluice.dev/config-hash": "0"}}"#,
            r#"{"annotations": {"a": "b", "app.kubernetes.io/name": "mine"}}"#,
        ],
        message: "annotations of podTemplate cannot begin with",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/traces"}}"#,
        ],
        refused: &[r#"{"serviceAccountAnnotations": {"sluice.dev/service-account-version": "0"}}"#],
        message: "serviceAccountAnnotations of podTemplate cannot begin with",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]}"#,
            r#"{"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}]}"#,
        ],
        refused: &[
            r#"{"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 60}]}"#,
            r#"{"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "value": "c", "tolerationSeconds": 60}]}"#,
        ],
        message: "tolerationSeconds of a toleration needs effect NoExecute",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"tolerations": [{"operator": "Exists"}, {"key": "a", "operator": "Exists"}]}"#,
            r#"{"tolerations": [{"key": "a", "value": "b"}, {"key": "a", "operator": "Equal", "value": "b"}]}"#,
        ],
        refused: &[
            r#"{"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}"#,
            r#"{"tolerations": [{"effect": "NoSchedule"}]}"#,
            r#"{"tolerations": [{"operator": "Exists"}, {"operator": "Equal", "value": "b"}]}"#,
        ],
        message: "a toleration with operator Exists has no value",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[
            r#"{"topologySpreadConstraints": [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3}]}"#,
            r#"{"topologySpreadConstraints": [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]}"#,
        ],
        refused: &[
            r#"{"topologySpreadConstraints": [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 3}]}"#,
        ],
        message: "minDomains of a topologySpreadConstraint needs",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[r#"{"priorityClassName": "system-cluster-critical"}"#],
        refused: &[r#"{"priorityClassName": "Urgent"}"#, r#"{"priorityClassName": "a b"}"#],
        message: "priorityClassName is the name of a PriorityClass",
    },
    Case {
        pointer: "/spec/gateway/podTemplate",
        taken: &[r#"{"runtimeClassName": "gvisor"}"#],
        refused: &[r#"{"runtimeClassName": "gVisor"}"#, r#"{"runtimeClassName": "-a"}"#],
        message: "runtimeClassName is the name of a RuntimeClass",
    },
    Case {
        pointer: "/spec/queue/storageClassName",
        taken: &[r#""fast""#, r#""csi.example.com""#, r#""0""#],
        refused: &[r#""Fast""#, r#""éast""#, r#""-fast""#, r#""fast\n""#, r#""a/b""#],
        message: "storageClassName is the name of a StorageClass",
    },
    Case {
        pointer: "/spec/gateway/terminationGracePeriod",
        taken: &[r#""15s""#, r#""2m""#, r#""1h""#, r#""1m30s""#, r#""0h1m0s""#],
        refused: &[
            r#""14s""#,
            r#""2h""#,
            r#""60""#,
            r#""59m61s""#,
            r#""30s1m""#,
            r#""1m1m""#,
            r#""1500ms""#,
            r#""15000ms""#,
        ],
        message: "terminationGracePeriod is a duration from",
    },
    Case {
        pointer: "/spec/queue/size",
        taken: &[r#""64Mi""#, r#""10Gi""#, r#""1Ti""#, r#""64Ti""#],
        refused: &[
            r#""63Mi""#,
            r#""10G""#,
            r#""1.5Gi""#,
            r#""10""#,
            r#""0Gi""#,
            r#""""#,
            r#""65Ti""#,
            r#""65537Gi""#,
            r#""99999999999999Ti""#,
        ],
        message: "size is a whole number of Mi, Gi or Ti",
    },
    Case {
        pointer: "/spec/queue/maxBytes",
        taken: &[r#""32Mi""#, r#""972Mi""#],
        refused: &[r#""31Mi""#, r#""1G""#, r#""0Gi""#, r#""80%""#, r#""1.5Gi""#, r#""9999999999Mi""#],
        message: "maxBytes is a whole number of Mi, Gi or Ti",
    },
    Case {
        pointer: "/spec/queue",
        taken: &[
            "{}",
            r#"{"maxBytes": "9728Mi"}"#,
            r#"{"size": "20Gi", "maxBytes": "19Gi"}"#,
            r#"{"size": "64Mi", "maxBytes": "32Mi"}"#,
        ],
        refused: &[
            r#"{"maxBytes": "9729Mi"}"#,
            r#"{"size": "20Gi", "maxBytes": "20Gi"}"#,
            r#"{"size": "1Gi", "maxBytes": "1Ti"}"#,
        ],
        message: "maxBytes must be at most 95 % of size",
    },
    Case {
        pointer: "/spec/delivery/deadLetter/topic",
        taken: &[r#""unread""#, r#""otlp_spans.dead-letter""#],
        refused: &[r#""a b""#, r#""..""#, r#""a/b""#],
        message: "topic of deadLetter is the name of a topic",
    },
    Case {
        pointer: "/spec/delivery/deadLetter/topic",
        taken: &[r#""otlp_spans2""#],
        refused: &[r#""otlp_spans""#],
        message: "delivery.deadLetter.topic is a topic of the source",
    },
    Case {
        pointer: "/spec/scaling",
        taken: &["{}", r#"{"maxReplicas": 1}"#, r#"{"minReplicas": 3, "maxReplicas": 3, "mode": "Auto"}"#],
        refused: &[
            r#"{"minReplicas": 2, "maxReplicas": 1}"#,
            r#"{"minReplicas": 4, "maxReplicas": 3, "mode": "Auto"}"#,
        ],
        message: "minReplicas must not be more than maxReplicas",
    },
    Case {
        pointer: "/spec/scaling",
        taken: &[r#"{"fallbackReplicas": 9}"#, r#"{"maxReplicas": 6, "fallbackReplicas": 6}"#],
        refused: &[r#"{"maxReplicas": 6, "fallbackReplicas": 7}"#],
        message: "fallbackReplicas must not be more than maxReplicas",
    },
    Case {
        pointer: "/spec/scaling",
        taken: &[
            r#"{"schedules": [{"name": "a", "from": "08:00", "to": "18:00", "minReplicas": 9}]}"#,
            r#"{"maxReplicas": 6, "schedules": [{"name": "a", "from": "08:00", "to": "18:00", "maxReplicas": 9}]}"#,
        ],
        refused: &[
            r#"{"maxReplicas": 6, "schedules": [{"name": "a", "from": "08:00", "to": "18:00", "minReplicas": 9}]}"#,
        ],
        message: "minReplicas of a schedule must not be more than maxReplicas, unless",
    },
    Case {
        pointer: "/spec/scaling/targetLag",
        taken: &[r#""30s""#, r#""10m""#, r#""24h""#, r#""1h30m""#, r#""1h0m0s""#, r#""23h59m60s""#],
        refused: &[
            r#""29s""#,
            r#""25h""#,
            r#""600""#,
            r#""24h0m1s""#,
            r#""1.5h""#,
            r#""-1m""#,
            r#""""#,
            r#""1h 30m""#,
        ],
        message: "targetLag is a duration from",
    },
    Case {
        pointer: "/spec/scaling/scaleDownAfter",
        taken: &[r#""60s""#, r#""1h""#, r#""5m30s""#],
        refused: &[r#""59s""#, r#""61m""#, r#""0m""#, r#""1h1s""#],
        message: "scaleDownAfter is a duration from",
    },
    Case {
        pointer: "/spec/scaling/drain/timeout",
        taken: &[r#""10s""#, r#""6h""#, r#""1h30m""#],
        refused: &[r#""9s""#, r#""7h""#, r#""long""#],
        message: "timeout is a duration from",
    },
    Case {
        pointer: "/spec/rollout/progressDeadline",
        taken: &[r#""20s""#, r#""10m""#, r#""24h""#, r#""1m30s""#],
        refused: &[r#""19s""#, r#""25h""#, r#""10""#, r#""m""#],
        message: "progressDeadline is a duration from",
    },
    Case {
        pointer: "/spec/observability",
        taken: &[
            "{}",
            r#"{"podMonitor": {"interval": "1s"}}"#,
            r#"{"podMonitor": {"enabled": true, "interval": "10m"}}"#,
            r#"{"podMonitor": {"interval": "1m30s"}}"#,
        ],
        refused: &[
            r#"{"podMonitor": {"interval": "0s"}}"#,
            r#"{"podMonitor": {"interval": "11m"}}"#,
            r#"{"podMonitor": {"interval": "1h"}}"#,
            r#"{"podMonitor": {"interval": "500ms"}}"#,
            r#"{"podMonitor": {"interval": ""}}"#,
        ],
        message: "interval is a duration from",
    },
    Case {
        pointer: "/spec/observability",
        taken: &[r#"{"podMonitor": {"labels": {"release": "kube-prometheus-stack", "team.example/a": ""}}}"#],
        refused: &[
            r#"{"podMonitor": {"labels": {"app.kubernetes.io/name": "a"}}}"#,
            r#"{"podMonitor": {"labels": {"release": "a", "sluice.dev/x": "a"}}}"#,
        ],
        message: "labels of podMonitor cannot begin with",
    },
    Case {
        pointer: "/spec/rollout/canary/duration",
        taken: &[r#""1s""#, r#""1m""#, r#""24h""#, r#""2m30s""#],
        refused: &[r#""0s""#, r#""25h""#, r#""60""#, r#""soon""#],
        message: "canary.duration is a duration from",
    },
];
