//! The smallest configs that pass, and what is wrong with a changed one. For tests.

use crate::parse::from_yaml;

/// With `source.kafka`.
pub(crate) const SMALLEST: &str = "\
contractVersion: 1
pipeline: {namespace: tracing, name: prod}
source:
  kafka:
    bootstrapServers: [kafka:9092]
    topics: [otlp_spans]
    consumerGroup: tracing.prod
sink:
  clickhouse:
    endpoints: [http://clickhouse:8123]
    database: otel
    table: otel_traces
workers: 2
memory: {limit: 192MiB}
";

/// With `source.otlp`.
pub(crate) const SMALLEST_OTLP: &str = "\
contractVersion: 1
pipeline: {namespace: tracing, name: prod}
source:
  otlp:
    listen: {grpc: '0.0.0.0:4317', http: '0.0.0.0:4318'}
sink:
  clickhouse:
    endpoints: [http://clickhouse:8123]
    database: otel
    table: otel_traces
workers: 2
memory: {limit: 256MiB}
";

/// The violations of a config in which `from` is replaced by `to`.
pub(crate) fn violations(config: &str, from: &str, to: &str) -> Vec<String> {
    assert!(config.contains(from), "{from}");
    let changed = from_yaml(&config.replace(from, to)).unwrap();
    changed.check().unwrap_err().iter().map(ToString::to_string).collect()
}
