//! What the config of an edge may say.

use super::*;
use crate::parse::{Error, edge_from_yaml, edge_to_yaml};

const SMALLEST: &str = "\
contractVersion: 1
pipeline: {namespace: tracing, name: prod}
listen: {grpc: '0.0.0.0:4317', http: '0.0.0.0:4318'}
kafka:
  bootstrapServers: [kafka:9092]
  topic: otlp_spans
workers: 2
memory: {limit: 192MiB}
";

fn violations(from: &str, to: &str) -> Vec<String> {
    assert!(SMALLEST.contains(from), "{from}");
    let config = edge_from_yaml(&SMALLEST.replace(from, to)).unwrap();
    config.check().unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn the_smallest_config_passes_and_round_trips() {
    let config = edge_from_yaml(SMALLEST).unwrap();
    assert_eq!(edge_from_yaml(&edge_to_yaml(&config)).unwrap(), config);
    let checked = config.check().unwrap();
    assert_eq!(checked.grpc().unwrap().port(), 4_317);
    assert_eq!(checked.http().unwrap().port(), 4_318);
    assert_eq!(checked.admin().port(), 9_090);
}

#[test]
fn a_config_with_every_field_passes_and_round_trips() {
    let text = "\
contractVersion: 1
pipeline: {namespace: tracing, name: prod}
listen:
  http: '[::]:4318'
  tls: {certificateFile: c, keyFile: k, clientCaFile: a}
  authentication: {bearerTokensFile: t, basicUsersFile: u}
limits: {requestBytesMax: 4MiB, decompressedBytesMax: 64MiB, connectionAgeMax: 5m}
tenants: {header: x-tenant, spansPerSecond: 1000, bytesPerSecond: 1MiB}
kafka:
  bootstrapServers: [kafka:9092]
  tls: {}
  sasl: {mechanism: Plain, username: u, passwordFile: p}
  topic: otlp_spans
  messageBytesTarget: 512KiB
  recordBatchBytesMax: 1MiB
  properties: {debug: broker}
workers: 1
memory: {limit: 128MiB}
admin: {listen: '[::]:9090'}
shutdown: {deadline: 20s}
log: {level: debug, format: Text}
";
    let config = edge_from_yaml(text).unwrap();
    assert_eq!(edge_from_yaml(&edge_to_yaml(&config)).unwrap(), config);
    let checked = config.check().unwrap();
    assert_eq!(checked.grpc(), None);
    let connection = checked.config().kafka.connection();
    assert_eq!(connection.topics, ["otlp_spans"]);
    assert!(connection.sasl.is_some() && connection.tls.is_some());
}

#[test]
fn each_rule_names_its_field() {
    let listen = "listen: {grpc: '0.0.0.0:4317', http: '0.0.0.0:4318'}";
    for (from, to, expected) in [
        (listen, "listen: {}", "listen: has neither grpc nor http"),
        (listen, "listen: {grpc: nowhere}", "listen.grpc: \"nowhere\" is not an address"),
        (listen, "listen: {grpc: '[::]:9090'}", "listen.grpc: port 9090 is that of another server"),
        (listen, "listen: {grpc: '[::]:1', http: '0.0.0.0:1'}", "listen.http: port 1 is that of another"),
        (
            listen,
            "listen: {grpc: '[::]:1', tls: {certificateFile: c, keyFile: ''}}",
            "listen.tls.keyFile: must not be empty",
        ),
        (
            listen,
            "listen: {grpc: '[::]:1', authentication: {}}",
            "listen.authentication: has neither bearerTokensFile nor basicUsersFile",
        ),
        (
            listen,
            "listen: {grpc: '[::]:1', authentication: {bearerTokensFile: ''}}",
            "listen.authentication.bearerTokensFile: must not be empty",
        ),
        ("workers: 2", "workers: 0", "workers: 0 is not between 1 and 64"),
        (
            "workers: 2",
            "workers: 2\nlimits: {requestBytesMax: 65MiB}",
            "limits.requestBytesMax: 65MiB is not",
        ),
        (
            "workers: 2",
            "workers: 2\nlimits: {requestBytesMax: 33MiB}",
            "limits.decompressedBytesMax: 32MiB is less than requestBytesMax (33MiB)",
        ),
        ("workers: 2", "workers: 2\nlimits: {connectionAgeMax: 1s}", "limits.connectionAgeMax: 1s is not"),
        ("workers: 2", "workers: 2\ntenants: {header: a}", "tenants: has neither spansPerSecond"),
        (
            "workers: 2",
            "workers: 2\ntenants: {header: authorization, spansPerSecond: 1}",
            "tenants.header: \"authorization\" is not the name of a header",
        ),
        ("workers: 2", "workers: 2\ntenants: {header: a, spansPerSecond: 0}", "tenants.spansPerSecond: must"),
        (
            "workers: 2",
            "workers: 2\ntenants: {header: a, bytesPerSecond: 1B}",
            "tenants.bytesPerSecond: must",
        ),
        ("workers: 2", "workers: 2\nshutdown: {deadline: 0s}", "shutdown.deadline: 0ms is not between"),
        ("workers: 2", "workers: 2\nlog: {level: loud}", "log.level: \"loud\" is not a level"),
        ("192MiB", "200000001B", "memory.limit: must be a whole number of MiB"),
        ("[kafka:9092]", "[]", "kafka.bootstrapServers: at least one broker"),
        ("[kafka:9092]", "[kafka]", "kafka.bootstrapServers: \"kafka\" is not host:port"),
        ("otlp_spans", "a b", "kafka.topic: \"a b\" is not a topic"),
        ("otlp_spans", "a\n  messageBytesTarget: 1KiB", "kafka.messageBytesTarget: 1KiB is not between"),
        (
            "otlp_spans",
            "a\n  messageBytesTarget: 2MiB\n  recordBatchBytesMax: 1MiB",
            "kafka.messageBytesTarget: 2MiB is more than recordBatchBytesMax (1MiB)",
        ),
        ("otlp_spans", "a\n  tls: {keyFile: k}", "kafka.tls.certificateFile: must be set"),
        ("otlp_spans", "a\n  sasl: {mechanism: Plain, username: u}", "kafka.sasl.passwordFile: must be set"),
        (
            "otlp_spans",
            "a\n  properties: {acks: '1'}",
            "kafka.properties.acks: cannot be set here: the edge decides",
        ),
    ] {
        let found = violations(from, to);
        assert!(found.iter().any(|v| v.starts_with(expected)), "{to}: {found:?}");
    }
}

#[test]
fn all_violations_are_named_at_once() {
    let found = violations(
        "workers: 2\nmemory: {limit: 192MiB}",
        "workers: 0\nmemory: {limit: 1B}\nadmin: {listen: x}",
    );
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn an_unknown_field_and_another_version_are_refused() {
    let error = edge_from_yaml(&SMALLEST.replace("topic:", "topics:")).unwrap_err().to_string();
    assert!(error.starts_with("kafka.topics") && error.contains("topic"), "{error}");
    let other = SMALLEST.replace("contractVersion: 1", "contractVersion: 2") + "novelty: true\n";
    let error = edge_from_yaml(&other).unwrap_err();
    assert!(matches!(error, Error::ContractVersion { program: "edge", found: 2 }));
    assert!(error.to_string().contains("this edge reads version 1"), "{error}");
}

#[test]
fn a_header_is_also_a_metadata_key() {
    for name in ["x-tenant", "x-scope-orgid", "tenant_id", "a.b", "1"] {
        assert!(is_header(name), "{name}");
    }
    let long = "x".repeat(HEADER_BYTES_MAX + 1);
    for name in ["", "X-Tenant", "a b", "a:b", "grpc-timeout", "tenant-bin", "content-type", "ä", &long] {
        assert!(!is_header(name), "{name}");
    }
}
