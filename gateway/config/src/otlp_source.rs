//! `source.otlp`: the gateway accepts OTLP itself, and keeps each request in a log on its queue volume before it answers.
//!
//! It takes the place of `source.kafka`. `queue.path` and `queue.maxBytes` say where the logs are, and how large they may become.

use crate::{
    ByteSize, Commit, Format, GatewayConfig, QueueMode,
    checked::in_range,
    client_limits::OtlpLimits,
    edge::{EdgeListen, Tenants, address, check_ports},
    gateway_config::QUEUE_BYTES_MIN,
    violation::Violations,
};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Maximum number of logs of a volume. Chosen: as many workers as read OTLP in a pod of 32 cores; the open segment of each log has 96 KiB of
/// index.
pub const LOGS_MAX: u32 = 32;

/// The smallest `deadLetterBytesMax`. Chosen: one letter of the largest size, and the file that it is in.
pub const DEAD_LETTER_BYTES_MIN: ByteSize = ByteSize::mib(2);

/// OTLP requests, kept in logs on the queue volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OtlpSource {
    /// Where OTLP is accepted, and how its clients prove who they are.
    pub listen: EdgeListen,
    /// What a request and a connection may have.
    #[serde(default)]
    pub limits: OtlpLimits,
    /// What each tenant may send; absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Tenants>,
    /// Number of logs on the volume, 1 to [`LOGS_MAX`], and at least one for each shard: a worker reads a log, and a log goes to one shard. Absent
    /// means one for each worker, rounded up so that each shard has as many. Logs that the volume has beyond this number are read until they are
    /// empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<u32>,
    /// Maximum bytes of dead letters on the volume, out of `queue.maxBytes`: at least [`DEAD_LETTER_BYTES_MIN`].
    #[serde(default = "dead_letter_bytes_max")]
    pub dead_letter_bytes_max: ByteSize,
}

// Chosen: tens of thousands of refused spans.
fn dead_letter_bytes_max() -> ByteSize {
    ByteSize::mib(64)
}

/// The addresses of the OTLP server; `None` is off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OtlpAddresses {
    pub grpc: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
}

/// How messages are read, whatever the source is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The consumer group; with `source.otlp` the pipeline. It distinguishes pipelines that write to one server.
    pub group: String,
    pub format: Format,
    /// Maximum bytes of a message.
    pub message_bytes_max: ByteSize,
    /// Partitions, or logs, that are read at the same time.
    pub partitions_active_max: u32,
}

impl GatewayConfig {
    /// How messages are read.
    pub fn reading(&self) -> Reading {
        match (&self.source.kafka, &self.source.otlp) {
            (Some(kafka), _) => Reading {
                group: kafka.consumer_group.clone(),
                format: kafka.format,
                message_bytes_max: kafka.record_batch_bytes_max,
                partitions_active_max: kafka.partitions_active_max,
            },
            (None, otlp) => Reading {
                group: format!("{}.{}", self.pipeline.namespace, self.pipeline.name),
                format: Format::OtlpProto,
                message_bytes_max: otlp
                    .as_ref()
                    .map_or(ByteSize::mib(1), |otlp| otlp.limits.decompressed_bytes_max),
                partitions_active_max: self.logs(),
            },
        }
    }

    /// The number of logs of `source.otlp`.
    pub fn logs(&self) -> u32 {
        let given = self.source.otlp.as_ref().and_then(|otlp| otlp.logs);
        given.unwrap_or_else(|| {
            let shards = u32::try_from(self.sink.clickhouse.shards().len()).unwrap_or(u32::MAX);
            self.workers.max(1).div_ceil(shards).saturating_mul(shards).min(LOGS_MAX)
        })
    }

    /// Checks `source.otlp`, and what it excludes elsewhere. Returns the addresses of its server.
    pub(crate) fn check_otlp(&self, otlp: &OtlpSource, found: &mut Violations) -> OtlpAddresses {
        let at = |field: &str| format!("source.otlp.{field}");
        otlp.listen.check("source.otlp.", found);
        otlp.limits.check("source.otlp.", found);
        otlp.tenants.iter().for_each(|tenants| tenants.check("source.otlp.", found));
        if let Some(logs) = otlp.logs {
            in_range(found, &at("logs"), logs, 1, LOGS_MAX);
        }
        let shards = self.sink.clickhouse.shards().len();
        found.add_if((self.logs() as usize) < shards, &at("logs"), || {
            format!("a log goes to one shard, and there are {shards} shards: at least as many logs, up to {LOGS_MAX}")
        });
        let letters = otlp.dead_letter_bytes_max;
        found.add_if(letters < DEAD_LETTER_BYTES_MIN, &at("deadLetterBytesMax"), || {
            format!("must be at least {DEAD_LETTER_BYTES_MIN}")
        });
        let room = self.queue.max_bytes.map_or(u64::MAX, ByteSize::get);
        let least = letters.get().saturating_add(QUEUE_BYTES_MIN.get());
        found.add_if(room < least, &at("deadLetterBytesMax"), || {
            format!("{letters} leaves less than {QUEUE_BYTES_MIN} of queue.maxBytes for requests")
        });
        self.check_queue_of_otlp(found);
        let addresses = [("grpc", &otlp.listen.grpc), ("http", &otlp.listen.http)]
            .map(|(field, text)| address(&at(&format!("listen.{field}")), text.as_deref(), found));
        let admin: Option<SocketAddr> = self.admin.listen.parse().ok();
        // Commands are taken one port above the admin server's.
        let control = admin.and_then(|admin| Some(SocketAddr::new(admin.ip(), admin.port().checked_add(1)?)));
        let control = control.filter(|control| control.port() > 1);
        let (grpc, http) = (addresses[0], addresses[1]);
        let (at_grpc, at_http) = (at("listen.grpc"), at("listen.http"));
        check_ports(
            &[("admin.listen", admin), ("admin.listen", control), (&at_grpc, grpc), (&at_http, http)],
            found,
        );
        OtlpAddresses { grpc, http }
    }

    fn check_queue_of_otlp(&self, found: &mut Violations) {
        found.add_if(self.queue.mode == QueueMode::Disabled, "queue.mode", || {
            "source.otlp keeps requests on the queue volume, and Disabled has none; use Spill".into()
        });
        found.add_if(self.delivery.commit == Commit::AfterEnqueue, "delivery.commit", || {
            "AfterEnqueue is for source.kafka: with source.otlp the queue volume has the only copy in any case; leave commit out".into()
        });
        found.add_if(self.delivery.dead_letter.topic.is_some(), "delivery.deadLetter.topic", || {
            "source.otlp has no Kafka: dead letters are on the queue volume, up to source.otlp.deadLetterBytesMax; leave topic out".into()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{self, SMALLEST_OTLP},
        parse::{from_yaml, to_yaml},
    };

    fn violations(from: &str, to: &str) -> Vec<String> {
        fixtures::violations(SMALLEST_OTLP, from, to)
    }

    #[test]
    fn the_smallest_config_of_a_gateway_without_kafka_passes_and_round_trips() {
        let config = from_yaml(SMALLEST_OTLP).unwrap();
        assert_eq!(from_yaml(&to_yaml(&config)).unwrap(), config);
        let checked = config.check().unwrap();
        let otlp = checked.otlp().unwrap();
        assert_eq!(otlp.grpc.unwrap().port(), 4_317);
        assert_eq!(otlp.http.unwrap().port(), 4_318);
        assert_eq!(checked.config().logs(), 2, "one for each worker");
        let reading = checked.config().reading();
        assert_eq!((reading.group.as_str(), reading.partitions_active_max), ("tracing.prod", 2));
        assert_eq!(reading.message_bytes_max, ByteSize::mib(8));
        let budget = checked.budget();
        assert!(budget.requests >= ByteSize::mib(12), "{budget:?}");
        let parts = budget.parts();
        assert!(parts.iter().any(|(part, _)| *part == "requests"), "{parts:?}");
    }

    #[test]
    fn each_shard_has_as_many_logs() {
        let shards = "shards: [['http://a:8123'], ['http://b:8123'], ['http://c:8123']]";
        let text = SMALLEST_OTLP.replace("endpoints: [http://clickhouse:8123]", shards);
        let logs = |text: &str| from_yaml(text).unwrap().logs();
        assert_eq!((logs(&text), logs(SMALLEST_OTLP)), (3, 2));
        assert_eq!(logs(&text.replace("workers: 2", "workers: 4")), 6);
    }

    #[test]
    fn there_is_exactly_one_source() {
        let both =
            "source:\n  kafka: {bootstrapServers: ['k:9092'], topics: [t], consumerGroup: g}\n  otlp:\n";
        for (from, to) in [
            ("source:\n  otlp:\n", both),
            ("source:\n  otlp:\n    listen: {grpc: '0.0.0.0:4317', http: '0.0.0.0:4318'}\n", "source: {}\n"),
        ] {
            let found = violations(from, to);
            assert!(found.iter().any(|v| v.starts_with("source: ")), "{found:?}");
        }
    }

    #[test]
    fn each_rule_names_its_field() {
        let listen = "listen: {grpc: '0.0.0.0:4317', http: '0.0.0.0:4318'}";
        let with = |field: &str| format!("{listen}\n    {field}");
        for (from, to, path) in [
            (listen, "listen: {}".to_owned(), "source.otlp.listen"),
            (listen, "listen: {grpc: here}".to_owned(), "source.otlp.listen.grpc"),
            (listen, "listen: {grpc: '0.0.0.0:1', http: '0.0.0.0:1'}".to_owned(), "source.otlp.listen.http"),
            (listen, "listen: {grpc: '0.0.0.0:9091'}".to_owned(), "source.otlp.listen.grpc"),
            (
                listen,
                "listen: {grpc: '0.0.0.0:1', tls: {certificateFile: '', keyFile: k}}".to_owned(),
                "source.otlp.listen.tls.certificateFile",
            ),
            (listen, with("logs: 33"), "source.otlp.logs"),
            (listen, with("logs: 0"), "source.otlp.logs"),
            (
                "endpoints: [http://clickhouse:8123]",
                format!(
                    "shards: [{}]",
                    (0..33).map(|n| format!("['http://c{n}:8123']")).collect::<Vec<_>>().join(",")
                ),
                "source.otlp.logs",
            ),
            (listen, with("deadLetterBytesMax: 1MiB"), "source.otlp.deadLetterBytesMax"),
            (listen, with("tenants: {header: x-tenant}"), "source.otlp.tenants"),
            (listen, with("tenants: {header: A, spansPerSecond: 1}"), "source.otlp.tenants.header"),
            (listen, with("limits: {requestBytesMax: 1KiB}"), "source.otlp.limits.requestBytesMax"),
            (listen, with("limits: {decompressedBytesMax: 1MiB}"), "source.otlp.limits.decompressedBytesMax"),
            (listen, with("limits: {connectionAgeMax: 1s}"), "source.otlp.limits.connectionAgeMax"),
            ("workers: 2", "workers: 2\nqueue: {mode: Disabled}".to_owned(), "queue.mode"),
            (
                "workers: 2",
                "workers: 2\nqueue: {maxBytes: 64MiB}".to_owned(),
                "source.otlp.deadLetterBytesMax",
            ),
            ("workers: 2", "workers: 2\ndelivery: {commit: AfterEnqueue}".to_owned(), "delivery.commit"),
            (
                "workers: 2",
                "workers: 2\ndelivery: {deadLetter: {topic: t}}".to_owned(),
                "delivery.deadLetter.topic",
            ),
            ("256MiB", "200MiB".to_owned(), "memory.limit"),
        ] {
            let found = violations(from, &to);
            assert!(found.iter().any(|v| v.starts_with(path)), "{to}: {found:?}");
        }
    }
}
