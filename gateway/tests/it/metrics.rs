//! The metrics, and those of them that an operator from before `/state` reads: it meets gateways of this version while an upgrade is taken
//! back.

use sluice_gateway::{
    admin::{health::Status, server::Health},
    blocks::buffers::Pool,
    edge::metrics::EdgeMetrics,
    ground::metrics::{Family, Metrics},
};
use sluice_gateway_config::{ByteSize, parse};
use sluice_kafka::OpenTransaction;
use sluice_ranges::PartitionId;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

const READ_BY_THE_OPERATOR: &str = include_str!("../../../operator/tests/gateway-metrics.txt");

const CONFIG: &str = "{contractVersion: 1, pipeline: {namespace: n, name: p}, workers: 1, memory: {limit: 256MiB}, \
                      source: {kafka: {bootstrapServers: ['k:9092'], topics: [t], consumerGroup: g}}, \
                      sink: {clickhouse: {endpoints: ['http://h:8123'], database: d, table: t}}}";

const TABLE: &str = include_str!("../../../config/prometheus/METRICS.md");

/// The rows of the table whose metrics begin so: name, type, unit and labels.
fn rows(prefix: &str) -> BTreeMap<&'static str, [&'static str; 3]> {
    let rows = TABLE.lines().filter_map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, name, kind, unit, labels, meaning, _] = cells[..] else { return None };
        let name = name.trim_matches('`');
        let is_ours = name.starts_with(prefix);
        assert!(!is_ours || meaning.ends_with('.'), "{name} has no meaning: {meaning}");
        is_ours.then_some((name, [kind, unit, labels]))
    });
    rows.collect()
}

#[test]
fn the_table_of_metrics_is_what_is_exported() {
    let checked = parse::from_yaml(CONFIG).unwrap().check().unwrap();
    let metrics = Metrics::new(checked.budget());
    table_is_exported("sluice_gateway_", metrics.families());
    let edge = EdgeMetrics::new(&[("base", ByteSize::mib(1))]);
    table_is_exported("sluice_edge_", edge.families());
}

fn table_is_exported(prefix: &str, families: &[Family]) {
    let mut rows = rows(prefix);
    for Family { name, kind, labels } in families {
        let Some([kind_told, unit, labels_told]) = rows.remove(name.as_str()) else {
            panic!("config/prometheus/METRICS.md has no row for {name}");
        };
        let mut labels_told: Vec<_> = labels_told.split(", ").map(|label| label.trim_matches('`')).collect();
        labels_told.retain(|label| !label.is_empty());
        assert_eq!((kind_told, labels_told), (*kind, labels.iter().map(String::as_str).collect()), "{name}");
        let base = name.trim_end_matches("_total");
        for (ending, expected) in
            [("_seconds", "seconds"), ("_bytes", "bytes"), ("_ratio", "ratio"), ("_rows", "rows")]
        {
            assert!(!base.ends_with(ending) || unit == expected, "{name} is in {unit}");
        }
        assert!(!unit.is_empty(), "{name} has no unit");
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{name} is a {kind}");
    }
    assert!(rows.is_empty(), "config/prometheus/METRICS.md names what nothing exports: {:?}", rows.keys());
}

/// Names and labels without values.
fn series(text: &str) -> BTreeSet<&str> {
    let samples = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    samples.map(|line| line.rsplit_once(' ').unwrap().0).collect()
}

#[test]
fn an_operator_of_the_version_before_reads_what_is_exported() {
    let checked = parse::from_yaml(CONFIG).unwrap().check().unwrap();
    let metrics = Arc::new(Metrics::new(checked.budget()));
    metrics.worker(0);
    metrics.worker(1);
    Status::new(metrics.clone(), Arc::new(Pool::new(64 << 20, 2, 2)), None).refresh();
    // What the consumer says of its partitions.
    metrics.committed_offset.with_label_values(&["spans", "5"]);
    metrics.position.with_label_values(&["spans", "5"]);
    metrics.partition_still.with_label_values(&["spans", "5", "no_fetch"]);
    let open = OpenTransaction { first_offset: 17, messages: 4, age: Duration::from_secs(961) };
    let id = PartitionId { topic: "spans".into(), partition: 5 };
    metrics.open_transactions.show(&[(id, open)].into());
    metrics.lag_messages.with_label_values(&["spans", "0"]);
    metrics.lag_messages.with_label_values(&["spans", "5"]);
    let text = metrics.text().unwrap();
    let exported = series(&text);
    for wanted in series(READ_BY_THE_OPERATOR) {
        assert!(exported.contains(wanted), "{wanted} is not exported; an older operator reads it");
    }
}

#[test]
fn the_budget_that_is_exported_adds_up_to_the_limit() {
    let checked = parse::from_yaml(CONFIG).unwrap().check().unwrap();
    let text = Metrics::new(checked.budget()).text().unwrap();
    let parts = text.lines().filter_map(|line| line.strip_prefix("sluice_gateway_memory_budget_bytes{part="));
    let parts: Vec<u64> = parts.map(|part| part.rsplit_once(' ').unwrap().1.parse().unwrap()).collect();
    assert_eq!(parts.len(), checked.budget().parts().len());
    assert_eq!(parts.iter().sum::<u64>(), 256 << 20, "{parts:?}");
}
