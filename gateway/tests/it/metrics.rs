//! What the operator reads of `/metrics`. It does not link the gateway: a name that changed would be noticed only by pipelines
//! whose number of gateways is decided no more.

use sluice_gateway::{admin::Health, buffers::Pool, health::Status, metrics::Metrics};
use sluice_gateway_config::parse;
use std::{collections::BTreeSet, sync::Arc};

const READ_BY_THE_OPERATOR: &str = include_str!("../../../operator/tests/gateway-metrics.txt");

const CONFIG: &str = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 1, memory: {limit: 256MiB}, \
                      source: {kafka: {bootstrapServers: ['k:9092'], topics: [t], consumerGroup: g}}, \
                      sink: {clickhouse: {endpoints: ['http://h:8123'], database: d, table: t}}}";

/// Names and labels without values.
fn series(text: &str) -> BTreeSet<&str> {
    let samples = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    samples.map(|line| line.rsplit_once(' ').unwrap().0).collect()
}

#[test]
fn the_operator_reads_what_is_exported() {
    let checked = parse::from_yaml(CONFIG).unwrap().check().unwrap();
    let metrics = Arc::new(Metrics::new(checked.budget()));
    metrics.worker(0);
    metrics.worker(1);
    Status::new(metrics.clone(), Arc::new(Pool::new(64 << 20, 2, 2)), None).refresh();
    // What the consumer says of its partitions.
    metrics.committed_offset.with_label_values(&["spans", "5"]);
    metrics.lag_messages.with_label_values(&["spans", "0"]);
    metrics.lag_messages.with_label_values(&["spans", "5"]);
    let text = metrics.text().unwrap();
    let exported = series(&text);
    for wanted in series(READ_BY_THE_OPERATOR) {
        assert!(exported.contains(wanted), "{wanted} is not exported; the operator reads it");
    }
}
