//! All rules about fields, in one place. A [`CheckedConfig`] needs no further checks.

mod clickhouse;
mod host;
mod kafka;

pub use clickhouse::{SharedServer, each_once, in_two_shards, is_same_address, left_out};

use crate::{
    ByteSize, CONTRACT_VERSION, Duration, GatewayConfig,
    budget::{Budget, RequestSizing, Shortfall, Sizing},
    gateway_config::{Commit, QUEUE_BYTES_MIN, QueueMode, Source},
    log_filter,
    otlp_source::OtlpAddresses,
    violation::Violations,
};
use std::net::SocketAddr;

/// Suffix of a dead-letter topic's name after its source topic's.
pub const DEAD_LETTER_SUFFIX: &str = ".dead-letter";

/// A config that satisfies every rule, with its memory budget. Only [`GatewayConfig::check`] creates one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedConfig {
    config: GatewayConfig,
    budget: Budget,
    listen: SocketAddr,
    otlp: Option<OtlpAddresses>,
}

impl CheckedConfig {
    pub fn config(&self) -> &GatewayConfig {
        &self.config
    }

    /// The division of its memory limit.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The config with a lower memory limit, rounded down to whole MiB.
    ///
    /// # Errors
    /// [`Shortfall`] if its buffers do not fit.
    pub fn within(&self, limit: ByteSize) -> Result<Self, Shortfall> {
        let mut config = self.config.clone();
        config.memory.limit = config.memory.limit.min(ByteSize::mib(limit.get() >> 20));
        let budget = Budget::divide(&config.sizing())?;
        Ok(Self { config, budget, listen: self.listen, otlp: self.otlp })
    }

    /// The addresses of the OTLP server; `None` with `source.kafka`.
    pub fn otlp(&self) -> Option<OtlpAddresses> {
        self.otlp
    }

    /// The address of the admin server.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// The address for commands from other machines and pods: one port above the admin server's, so that a network policy can restrict
    /// commands separately from metrics. `None` if the admin server listens on loopback only, or there is no such port.
    pub fn control(&self) -> Option<SocketAddr> {
        let port = self.listen.port().checked_add(1).filter(|port| *port > 1)?;
        (!self.listen.ip().is_loopback()).then(|| SocketAddr::new(self.listen.ip(), port))
    }
}

impl GatewayConfig {
    /// Checks every rule and divides the memory, or returns all violations.
    pub fn check(self) -> Result<CheckedConfig, Violations> {
        let mut found = Violations::default();
        found.add_if(self.contract_version != CONTRACT_VERSION, "contractVersion", || {
            format!(
                "this gateway reads version {CONTRACT_VERSION}, the config has version {}",
                self.contract_version
            )
        });
        let otlp = self.check_source(&mut found);
        clickhouse::check(&self.sink.clickhouse, &mut found);
        self.attributes.check("attributes", &mut found);
        self.check_dead_letter(&mut found);
        self.check_process(&mut found);
        let listen = self.check_listen(&mut found);
        let budget = self.check_budget(&mut found);
        match (listen, budget) {
            (Some(listen), Some(budget)) => found.or(CheckedConfig { config: self, budget, listen, otlp }),
            _ => Err(found),
        }
    }

    /// Checks the source. Returns the addresses of `source.otlp`.
    fn check_source(&self, found: &mut Violations) -> Option<OtlpAddresses> {
        let Source { kafka, otlp } = &self.source;
        found.add_if(kafka.is_some() == otlp.is_some(), "source", || {
            let has = if otlp.is_some() { "has kafka and otlp" } else { "has neither kafka nor otlp" };
            format!("{has}: a gateway reads one of both; use a pipeline for each")
        });
        if let Some(kafka) = kafka {
            kafka::check(kafka, found);
        }
        otlp.as_ref().map(|otlp| self.check_otlp(otlp, found))
    }

    fn check_dead_letter(&self, found: &mut Violations) {
        let (at, none) = ("delivery.deadLetter.topic", Vec::new());
        let topics = self.source.kafka.as_ref().map_or(&none, |kafka| &kafka.topics);
        match &self.delivery.dead_letter.topic {
            Some(topic) => {
                found.add_if(!is_topic(topic), at, || {
                    format!("{topic:?} is not a topic: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..'")
                });
                found.add_if(topics.contains(topic), at, || {
                    format!("{topic:?} is a topic of the source, which would read its dead letters again")
                });
            }
            None => {
                for topic in topics {
                    let letters = format!("{topic}{DEAD_LETTER_SUFFIX}");
                    found.add_if(is_topic(topic) && !is_topic(&letters), at, || {
                        format!("{letters:?} is too long for a topic name; set delivery.deadLetter.topic")
                    });
                    found.add_if(topics.contains(&letters), at, || {
                        format!(
                            "{letters:?} is a topic of the source, which would read its dead letters again"
                        )
                    });
                }
            }
        }
    }

    fn check_process(&self, found: &mut Violations) {
        found.add_if(self.pipeline.namespace.is_empty(), "pipeline.namespace", empty);
        found.add_if(self.pipeline.name.is_empty(), "pipeline.name", empty);
        in_range(found, "workers", self.workers, 1, 64);
        found.add_if(!self.queue.path.starts_with('/'), "queue.path", || "must be an absolute path".into());
        let is_small = self.queue.max_bytes.is_some_and(|bytes| bytes < QUEUE_BYTES_MIN);
        found.add_if(is_small, "queue.maxBytes", || format!("must be at least {QUEUE_BYTES_MIN}"));
        let has_volume = self.queue.mode == QueueMode::Spill;
        found.add_if(self.delivery.commit == Commit::AfterEnqueue && !has_volume, "delivery.commit", || {
            "AfterEnqueue commits what is on the queue volume, and queue.mode Disabled has none; use Spill".into()
        });
        found.add_if(!self.memory.limit.get().is_multiple_of(1 << 20), "memory.limit", || {
            "must be a whole number of MiB".into()
        });
        in_range(
            found,
            "shutdown.deadline",
            self.shutdown.deadline,
            Duration::secs(1),
            Duration::secs(3_600),
        );
        log_filter::check(&self.log.level, "log.level", found);
    }

    fn check_listen(&self, found: &mut Violations) -> Option<SocketAddr> {
        let listen = self.admin.listen.parse().ok();
        found.add_if(listen.is_none(), "admin.listen", || {
            format!("{:?} is not an address and a port, such as 0.0.0.0:9090", self.admin.listen)
        });
        listen
    }

    fn check_budget(&self, found: &mut Violations) -> Option<Budget> {
        match Budget::divide(&self.sizing()) {
            Ok(budget) => Some(budget),
            Err(shortfall) => {
                found.add("memory.limit", shortfall.to_string());
                None
            }
        }
    }

    /// The parameters of the memory budget.
    pub fn sizing(&self) -> Sizing {
        let shards = u32::try_from(self.sink.clickhouse.shards().len()).unwrap_or(u32::MAX);
        let reading = self.reading();
        Sizing {
            limit: self.memory.limit,
            workers: self.workers,
            partitions_active_max: reading.partitions_active_max,
            record_batch_bytes_max: reading.message_bytes_max,
            format: reading.format,
            requests: self.source.otlp.as_ref().map(|otlp| RequestSizing {
                received_bytes_max: otlp.limits.request_bytes_max,
                decompressed_bytes_max: otlp.limits.decompressed_bytes_max,
            }),
            // Each shard has its own inserts.
            insert_concurrency: self.sink.clickhouse.insert.concurrency.saturating_mul(shards),
            insert_format: self.sink.clickhouse.insert.format,
        }
    }
}

fn empty() -> String {
    "must not be empty".to_owned()
}

pub(crate) fn in_range<T: Copy + PartialOrd + std::fmt::Display>(
    found: &mut Violations,
    path: &str,
    value: T,
    least: T,
    most: T,
) {
    found
        .add_if(value < least || value > most, path, || format!("{value} is not between {least} and {most}"));
}

pub(crate) fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host_is_plain = !host.is_empty() && !host.contains(['/', ' ', '@', ',']);
    host_is_plain && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Kafka's own rule for topic names (org.apache.kafka.common.internals.Topic).
pub(crate) fn is_topic(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=249).contains(&text.len()) && text != "." && text != ".." && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{self, SMALLEST},
        parse::from_yaml,
    };

    fn violations(from: &str, to: &str) -> Vec<String> {
        fixtures::violations(SMALLEST, from, to)
    }

    #[test]
    fn the_smallest_config_passes() {
        from_yaml(SMALLEST).unwrap().check().unwrap();
    }

    #[test]
    fn offsets_may_be_committed_once_rows_are_on_a_queue_volume() {
        let enqueued = SMALLEST.replace("workers: 2", "workers: 2\ndelivery: {commit: AfterEnqueue}");
        let checked = from_yaml(&enqueued).unwrap().check().unwrap();
        assert_eq!(checked.config().delivery.commit, Commit::AfterEnqueue);
        assert_eq!(from_yaml(SMALLEST).unwrap().delivery.commit, Commit::AfterInsert);
    }

    #[test]
    fn secured_connections_pass() {
        let sasl = "sasl: {mechanism: ScramSha512, usernameFile: u, passwordFile: p}";
        let secured =
            SMALLEST.replace("[otlp_spans]", &format!("[otlp_spans]\n    tls: {{}}\n    {sasl}")).replace(
                "http://clickhouse:8123]",
                "https://c:8443]\n    tls: {caFile: a, certificateFile: c, keyFile: k}",
            );
        from_yaml(&secured).unwrap().check().unwrap();
        from_yaml(&secured.replace("usernameFile: u", "username: u")).unwrap().check().unwrap();
        let token = SMALLEST.replace("database: otel", "database: otel\n    credentials: {tokenFile: t}");
        from_yaml(&token).unwrap().check().unwrap();
        from_yaml(&SMALLEST.replace("http://", "https://")).unwrap().check().unwrap();
    }

    #[test]
    fn each_rule_names_its_field() {
        for (from, to, path) in [
            ("[kafka:9092]", "[]", "source.kafka.bootstrapServers"),
            ("[kafka:9092]", "[kafka]", "source.kafka.bootstrapServers"),
            ("[kafka:9092]", "['kafka:0']", "source.kafka.bootstrapServers"),
            ("[otlp_spans]", "[]", "source.kafka.topics"),
            ("[otlp_spans]", "['a b']", "source.kafka.topics"),
            ("tracing.prod", "''", "source.kafka.consumerGroup"),
            ("http://clickhouse:8123", "clickhouse:8123", "sink.clickhouse.endpoints"),
            ("http://clickhouse:8123", "https://clickhouse", "sink.clickhouse.endpoints"),
            ("[http://clickhouse:8123]", "[http://a:8123, https://b:8443]", "sink.clickhouse.endpoints"),
            ("database: otel", "database: otel\n    tls: {}", "sink.clickhouse.tls: is set, but"),
            (
                "http://clickhouse:8123]",
                "https://c:8443]\n    tls: {keyFile: k}",
                "sink.clickhouse.tls.certificateFile",
            ),
            ("[otlp_spans]", "[otlp_spans]\n    tls: {caFile: ''}", "source.kafka.tls.caFile"),
            (
                "[otlp_spans]",
                "[otlp_spans]\n    properties: {group.id: g}",
                "source.kafka.properties.group.id",
            ),
            ("otel_traces", "'a`b'", "sink.clickhouse.table"),
            ("database: otel", "database: ''", "sink.clickhouse.database"),
            ("workers: 2", "workers: 0", "workers"),
            ("192MiB", "64MiB", "memory.limit"),
            ("192MiB", "200000001B", "memory.limit"),
            ("workers: 2", "workers: 2\nadmin: {listen: nowhere}", "admin.listen"),
            ("workers: 2", "workers: 2\nqueue: {path: relative}", "queue.path"),
            ("workers: 2", "workers: 2\nqueue: {maxBytes: 1MiB}", "queue.maxBytes"),
            ("workers: 2", "workers: 2\ndelivery: {deadLetter: {topic: a b}}", "delivery.deadLetter.topic"),
            (
                "workers: 2",
                "workers: 2\ndelivery: {commit: AfterEnqueue}\nqueue: {mode: Disabled}",
                "delivery.commit",
            ),
            (
                "workers: 2",
                "workers: 2\ndelivery: {deadLetter: {topic: otlp_spans}}",
                "delivery.deadLetter.topic",
            ),
            ("[otlp_spans]", "[a, a.dead-letter]", "delivery.deadLetter.topic"),
        ] {
            let found = violations(from, to);
            assert!(found.iter().any(|v| v.starts_with(path)), "{to}: {found:?}");
        }
    }

    #[test]
    fn each_rule_of_a_login_names_its_field() {
        for (from, to, path) in [
            (
                "[otlp_spans]",
                "[otlp_spans]\n    sasl: {mechanism: Plain, usernameFile: u, passwordFile: ''}",
                "source.kafka.sasl.passwordFile",
            ),
            (
                "[otlp_spans]",
                "[otlp_spans]\n    sasl: {mechanism: Plain, username: u, usernameFile: f, passwordFile: p}",
                "source.kafka.sasl.username",
            ),
            (
                "database: otel",
                "database: otel\n    credentials: {passwordFile: p}",
                "sink.clickhouse.credentials.usernameFile",
            ),
            (
                "database: otel",
                "database: otel\n    credentials: {usernameFile: u}",
                "sink.clickhouse.credentials.passwordFile",
            ),
            (
                "database: otel",
                "database: otel\n    credentials: {tokenFile: t, username: u}",
                "sink.clickhouse.credentials.tokenFile",
            ),
        ] {
            let found = violations(from, to);
            assert!(found.iter().any(|v| v.starts_with(path)), "{to}: {found:?}");
        }
    }

    #[test]
    fn a_shard_is_a_list_of_endpoints_and_has_inserts_of_its_own() {
        let one = "endpoints: [http://clickhouse:8123]";
        let sharded = SMALLEST.replace(one, "shards: [[http://a:8123, http://b:8123], [http://c:8123]]");
        let checked = from_yaml(&sharded).unwrap().check().unwrap();
        let clickhouse = &checked.config().sink.clickhouse;
        assert_eq!(clickhouse.shards().iter().map(|shard| shard.len()).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(checked.config().sizing().insert_concurrency, 2 * clickhouse.insert.concurrency);
        for (to, path) in [
            ("endpoints: []", "sink.clickhouse.endpoints"),
            ("shards: [[]]", "sink.clickhouse.shards[0]"),
            ("shards: [[http://a:8123], [http://a:8123]]", "sink.clickhouse.shards"),
            ("shards: [[http://a:8123], [b]]", "sink.clickhouse.shards"),
            ("shards: [[http://a:8123], ['https://b:8443']]", "sink.clickhouse.shards"),
            (&format!("{one}\n    shards: [[http://a:8123]]"), "sink.clickhouse.shards"),
        ] {
            let found = violations(one, to);
            assert!(found.iter().any(|v| v.starts_with(path)), "{to}: {found:?}");
        }
    }

    #[test]
    fn a_server_that_is_listed_twice_is_no_second_replica_however_it_is_spelt() {
        let one = "endpoints: [http://clickhouse:8123]";
        for (to, expected) in [
            ("endpoints: [http://a:1, http://a:1]", "endpoints: \"http://a:1\" is listed twice"),
            ("endpoints: [http://a:1, http://a:1/]", "\"http://a:1\" and \"http://a:1/\" are one address"),
            ("endpoints: [http://A:1, http://a:1]", "\"http://A:1\" and \"http://a:1\" are one address"),
            ("endpoints: [http://a:1, http://a.:1]", "\"http://a:1\" and \"http://a.:1\" are one address"),
            ("endpoints: ['http://[::1]:1', 'http://[0:0:0:0:0:0:0:1]:01']", "are one address"),
            ("endpoints: [http://10.0.0.1:1, http://10.0.0.01:1]", "are one address"),
            (
                "shards: [[http://a:1], [http://b:1, http://a:1]]",
                "is listed twice: list each server in one shard",
            ),
            (
                "shards: [[http://b:1], [http://a:1, http://a:1/]]",
                "are one address: list each server in one shard",
            ),
            ("shards: [[http://a:1, http://a:1], [http://b:1]]", "shards: \"http://a:1\" is listed twice"),
        ] {
            let found = violations(one, to);
            assert!(matches!(&found[..], [only] if only.contains(expected)), "{to}: {found:?}");
        }
        let apart = SMALLEST.replace(
            one,
            "endpoints: [http://a:1, http://a:2, http://b:1, 'http://[::1]:1', 'http://[::2]:1', http://10.0.0.10:1, http://10.0.0.010:1]",
        );
        from_yaml(&apart).unwrap().check().unwrap();
        let listed = ["http://a:1", "http://A:1/", "http://b:1", "http://a:1"].map(str::to_owned);
        assert_eq!(each_once(&listed), ["http://a:1", "http://b:1"]);
        assert_eq!(left_out(&listed), [("http://a:1", "http://A:1/"), ("http://a:1", "http://a:1")]);
    }

    #[test]
    fn a_server_in_two_shards_is_found_in_every_spelling_and_said_once_for_each_shard() {
        for (shards, expected) in [
            ("http://h:8123 | http://H:8123/", &["0 http://h:8123, 1 http://H:8123/"][..]),
            ("http://h:8123 | http://h.:8123", &["0 http://h:8123, 1 http://h.:8123"]),
            ("http://127.1:1 | http://127.0.0.1:1", &["0 http://127.1:1, 1 http://127.0.0.1:1"]),
            (
                "http://a:1 | http://b:1 http://A:1 http://a:1/ | http://a.:1",
                &["0 http://a:1, 1 http://A:1", "0 http://a:1, 2 http://a.:1"],
            ),
            // Other rules refuse these, or leave one of them out.
            ("http://a:1 http://A:1 | http://b:1", &[]),
            ("http://a:1 | http://a:1", &[]),
            ("http://a:1 | http://a:2 | https://a:1", &[]),
        ] {
            let shards: Vec<Vec<String>> = shards
                .split('|')
                .map(|shard| shard.split_whitespace().map(str::to_owned).collect())
                .collect();
            let found: Vec<String> = in_two_shards(shards.iter().map(Vec::as_slice))
                .iter()
                .map(|one| format!("{} {}, {} {}", one.first.0, one.first.1, one.other.0, one.other.1))
                .collect();
            assert_eq!(found, expected, "{shards:?}");
        }
        let kept = SMALLEST
            .replace("endpoints: [http://clickhouse:8123]", "shards: [[http://h:8123], [http://H:8123/]]");
        from_yaml(&kept).unwrap().check().unwrap();
    }

    #[test]
    fn commands_of_others_are_taken_above_the_admin_port_where_others_reach_it() {
        for (listen, expected) in [
            ("0.0.0.0:9090", Some("0.0.0.0:9091")),
            ("'[::]:9090'", Some("[::]:9091")),
            ("10.0.0.7:80", Some("10.0.0.7:81")),
            ("127.0.0.1:9090", None),
            ("'[::1]:9090'", None),
            ("0.0.0.0:65535", None),
            ("0.0.0.0:0", None),
        ] {
            let text = SMALLEST.replace("workers: 2", &format!("workers: 2\nadmin: {{listen: {listen}}}"));
            let control = from_yaml(&text).unwrap().check().unwrap().control();
            assert_eq!(control.map(|address| address.to_string()).as_deref(), expected, "{listen}");
        }
    }

    #[test]
    fn all_violations_are_named_at_once() {
        let found = violations("workers: 2\nmemory: {limit: 192MiB}", "workers: 0\nmemory: {limit: 1MiB}");
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_limit_that_is_too_small_names_the_smallest_that_would_do() {
        let found = violations("192MiB", "64MiB");
        assert!(found[0].contains("smallest limit that would do is"), "{found:?}");
    }
}
