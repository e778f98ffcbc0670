//! Values that the rules about the edge take and refuse.

use super::values::Case;

const POINTER: &str = "/spec/edge";

/// Values of `spec.edge`, and what stands beside it.
pub const EDGE: &[Case] = &[
    Case {
        pointer: POINTER,
        taken: &["{}", r#"{"grpc": {"enabled": false}}"#, r#"{"http": {"enabled": false}}"#],
        refused: &[r#"{"grpc": {"enabled": false}, "http": {"enabled": false}}"#],
        message: "edge needs grpc.enabled or http.enabled",
    },
    Case {
        pointer: POINTER,
        taken: &["{}", r#"{"grpc": {"port": 4318}, "http": {"port": 4317}}"#],
        refused: &[r#"{"grpc": {"port": 4318}}"#],
        message: "edge.grpc.port and edge.http.port must differ",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"replicas": 3}"#, r#"{"autoscaling": {"maxReplicas": 3}}"#],
        refused: &[r#"{"replicas": 3, "autoscaling": {"maxReplicas": 3}}"#],
        message: "edge.replicas must not be set beside edge.autoscaling",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"autoscaling": {"minReplicas": 3, "maxReplicas": 3}}"#],
        refused: &[
            r#"{"autoscaling": {"minReplicas": 4, "maxReplicas": 3}}"#,
            r#"{"autoscaling": {"maxReplicas": 1}}"#,
        ],
        message: "minReplicas of edge.autoscaling must not be more",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"requestBytesMax": "32Mi", "decompressedBytesMax": "32768Ki"}"#,
            r#"{"decompressedBytesMax": "16Mi"}"#,
        ],
        refused: &[r#"{"requestBytesMax": "33Mi"}"#, r#"{"decompressedBytesMax": "15Mi"}"#],
        message: "edge.decompressedBytesMax must not be less than edge.requestBytesMax",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"requestBytesMax": "64Ki"}"#,
            r#"{"requestBytesMax": "64Mi", "decompressedBytesMax": "64Mi"}"#,
        ],
        refused: &[
            r#"{"requestBytesMax": "63Ki"}"#,
            r#"{"requestBytesMax": "65Mi"}"#,
            r#"{"requestBytesMax": "1.5Mi"}"#,
            r#"{"requestBytesMax": "1M"}"#,
        ],
        message: "requestBytesMax is a whole number",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"decompressedBytesMax": "64Mi"}"#],
        refused: &[r#"{"decompressedBytesMax": "65Mi"}"#, r#"{"decompressedBytesMax": "1Gi"}"#],
        message: "decompressedBytesMax is a whole number",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"messageBytesTarget": "4Ki"}"#, r#"{"messageBytesTarget": "16Mi"}"#],
        refused: &[r#"{"messageBytesTarget": "3Ki"}"#, r#"{"messageBytesTarget": "17Mi"}"#],
        message: "messageBytesTarget is a whole number",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"connectionAgeMax": "10s"}"#, r#"{"connectionAgeMax": "24h"}"#],
        refused: &[
            r#"{"connectionAgeMax": "9s"}"#,
            r#"{"connectionAgeMax": "25h"}"#,
            r#"{"connectionAgeMax": ""}"#,
        ],
        message: "connectionAgeMax is a duration",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"authentication": {"bearerTokensSecretRef": {"name": "a"}}}"#,
            r#"{"authentication": {"basicUsersSecretRef": {"name": "a", "key": "b"}}}"#,
        ],
        refused: &[r#"{"authentication": {}}"#],
        message: "authentication has bearerTokensSecretRef",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"tenants": {"header": "x-scope-orgid", "spansPerSecond": 1}}"#,
            r#"{"tenants": {"header": "tenant_id", "bytesPerSecond": "10Mi"}}"#,
        ],
        refused: &[r#"{"tenants": {"header": "x-scope-orgid"}}"#],
        message: "tenants has spansPerSecond",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"tenants": {"header": "a", "spansPerSecond": 1}}"#],
        refused: &[
            r#"{"tenants": {"header": "X-Tenant", "spansPerSecond": 1}}"#,
            r#"{"tenants": {"header": "authorization", "spansPerSecond": 1}}"#,
            r#"{"tenants": {"header": "grpc-timeout", "spansPerSecond": 1}}"#,
            r#"{"tenants": {"header": "tenant-bin", "spansPerSecond": 1}}"#,
        ],
        message: "header of tenants is the name of a header",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"tenants": {"header": "a", "bytesPerSecond": "1Ki"}}"#],
        refused: &[
            r#"{"tenants": {"header": "a", "bytesPerSecond": "1000"}}"#,
            r#"{"tenants": {"header": "a", "bytesPerSecond": "0Mi"}}"#,
        ],
        message: "bytesPerSecond is a whole number",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "1024Mi"}}}"#,
            r#"{"resources": {"limits": {"cpu": "2", "memory": "256Mi"}}}"#,
        ],
        refused: &[
            r#"{"resources": {"requests": {"memory": "256Mi"}}}"#,
            r#"{"resources": {"requests": {"memory": "256Mi"}, "limits": {"memory": "512Mi"}}}"#,
        ],
        message: "requests.memory of the edge must equal its limits.memory",
    },
    Case {
        pointer: POINTER,
        taken: &[
            r#"{"service": {"type": "LoadBalancer", "loadBalancerClass": "service.k8s.aws/nlb"}}"#,
            r#"{"service": {"type": "NodePort"}}"#,
        ],
        refused: &[r#"{"service": {"loadBalancerClass": "service.k8s.aws/nlb"}}"#],
        message: "service.loadBalancerClass needs type LoadBalancer",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"service": {"type": "LoadBalancer", "loadBalancerClass": "internal"}}"#],
        refused: &[r#"{"service": {"type": "LoadBalancer", "loadBalancerClass": "a/b/c"}}"#],
        message: "loadBalancerClass is the name of a class",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"service": {"annotations": {"example.com/a": "b"}}}"#],
        refused: &[r#"{"service": {"annotations": {"sluice.dev/a": "b"}}}"#],
        message: "annotations of service cannot begin",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"service": {"labels": {"example.com/a": "b"}}}"#],
        refused: &[r#"{"service": {"labels": {"app.kubernetes.io/name": "b"}}}"#],
        message: "labels of service cannot begin",
    },
    Case {
        pointer: POINTER,
        taken: &[r#"{"podTemplate": {"labels": {"example.com/a": "b"}}}"#],
        refused: &[r#"{"podTemplate": {"labels": {"sluice.dev/a": "b"}}}"#],
        message: "labels of podTemplate cannot begin",
    },
    Case {
        pointer: "/spec",
        taken: &[
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "edge": {}}"#,
        ],
        refused: &[
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"], "format": "OtlpJson"}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "edge": {}}"#,
        ],
        message: "edge needs source.kafka.format OtlpProto",
    },
    Case {
        pointer: "/spec",
        taken: &[
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a", "b"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "edge": {"topic": "b"}}"#,
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a", "b"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}}"#,
        ],
        refused: &[
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a", "b"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "edge": {}}"#,
            r#"{"source": {"kafka": {"bootstrapServers": ["a:1"], "topics": ["a"]}}, "sink": {"clickhouse": {"endpoints": ["http://a:1"]}}, "edge": {"topic": "b"}}"#,
        ],
        message: "edge.topic is one of source.kafka.topics",
    },
    Case {
        pointer: "/spec/networkPolicy",
        taken: &[
            r#"{"otlpFrom": [{"namespaceSelector": {}}]}"#,
            r#"{"otlpFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}"#,
        ],
        refused: &[
            r#"{"otlpFrom": [{}]}"#,
            r#"{"otlpFrom": [{"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]}"#,
        ],
        message: "each of otlpFrom has ipBlock",
    },
];
