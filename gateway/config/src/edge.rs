//! The config of an edge: a process that accepts OTLP, writes spans to the pipeline's topic, and answers once the brokers have them.
//!
//! The operator writes an [`EdgeConfig`] as YAML into a ConfigMap; `sluice-gateway edge` reads it with [`crate::parse::read_edge`] and does not
//! start unless [`EdgeConfig::check`] accepts it. Every struct refuses unknown fields.

use crate::{
    CONTRACT_VERSION,
    checked::{in_range, is_host_and_port, is_topic},
    client_limits::EdgeLimits,
    gateway_config::{Admin, Format, GroupProtocol, InitialOffset, Kafka, Log, Memory, Pipeline, Shutdown},
    kafka_properties, log_filter,
    security::{Sasl, Tls},
    units::{ByteSize, Duration},
    violation::Violations,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// The smallest and the largest target of a message. Chosen: at less than 4 KiB a message is mostly one span; more than 16 MiB is more than any
/// topic should have.
pub const MESSAGE_TARGET_BYTES: (ByteSize, ByteSize) = (ByteSize::kib(4), ByteSize::mib(16));

/// How long an edge still accepts connections and requests after SIGTERM, while it is not ready. It comes before `shutdown.deadline` begins.
/// Chosen: nodes and load balancers take up to some seconds until they send no new connections to a pod that is terminating.
pub const ENDPOINTS_WAIT: Duration = Duration::secs(5);

/// Maximum bytes of a header's name. Chosen: more than any that is in use.
pub const HEADER_BYTES_MAX: usize = 64;

/// The whole config of one edge process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EdgeConfig {
    /// The contract version of the config ([`crate::CONTRACT_VERSION`]).
    pub contract_version: u32,
    /// The pipeline: shown in logs and client ids.
    pub pipeline: Pipeline,
    /// Where OTLP is accepted, and how its clients prove who they are.
    pub listen: EdgeListen,
    /// What a request and a connection may have.
    #[serde(default)]
    pub limits: EdgeLimits,
    /// What each tenant may send; absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Tenants>,
    /// The topic that spans are written to.
    pub kafka: EdgeKafka,
    /// Worker threads, which split requests into messages; 1 to 64.
    pub workers: u32,
    /// The memory limit.
    pub memory: Memory,
    /// The address of `/metrics`, `/livez` and `/readyz`.
    #[serde(default)]
    pub admin: Admin,
    /// How the edge shuts down.
    #[serde(default)]
    pub shutdown: Shutdown,
    /// What it logs.
    #[serde(default)]
    pub log: Log,
}

/// Where OTLP is accepted; at least one of `grpc` and `http`. Addresses have the form of [`Admin::listen`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EdgeListen {
    /// Address and port of OTLP/gRPC; absent means that it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<String>,
    /// Address and port of OTLP/HTTP; absent means that it is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// TLS on both; absent means plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ServerTls>,
    /// How clients prove who they are; absent means that they need not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<Authentication>,
}

/// The certificate of a server. All files are PEM. They are read again while the edge runs, as the kubelet replaces them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerTls {
    /// File with the certificate and its chain.
    pub certificate_file: String,
    /// File with the key, not encrypted.
    pub key_file: String,
    /// File with certificates of authorities. One of these authorities must have signed the client's certificate. Absent means that clients need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca_file: Option<String>,
}

/// How clients prove who they are: one of the tokens or one of the users, in the header `Authorization`. If both files are set, either passes.
/// Each file is read again while the edge runs. Lines end with LF or CR LF. Empty lines are ignored; a file without any other line lets no
/// client in. A file with a line that is no token or no user is refused: at the start with exit code 64, later the lines before are used on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Authentication {
    /// File with bearer tokens, one a line, of visible ASCII without spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer_tokens_file: Option<String>,
    /// File with users, one a line, each `user:password`; the password ends with the line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_users_file: Option<String>,
}

/// What each tenant may send to one process; at least one of the limits. Requests without the header are those of one tenant more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tenants {
    /// Name of the header (gRPC: the metadata key) that has the tenant's name, in lower case.
    pub header: String,
    /// Spans per second; at least 1. Absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans_per_second: Option<u64>,
    /// Decompressed bytes per second; at least 1 KiB. Absent means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<ByteSize>,
}

/// The topic that spans are written to, as OTLP in protobuf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EdgeKafka {
    /// Bootstrap brokers, `host:port`; at least one.
    pub bootstrap_servers: Vec<String>,
    /// TLS to the brokers; absent means plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// User and password; absent if the brokers require none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<Sasl>,
    /// The topic of spans, which gateways read.
    pub topic: String,
    /// Size up to which spans share a message, before compression: [`MESSAGE_TARGET_BYTES`].
    #[serde(default = "message_bytes_target")]
    pub message_bytes_target: ByteSize,
    /// Maximum size of a record batch, decompressed, that gateways read: as theirs ([`Kafka::record_batch_bytes_max`]).
    #[serde(default = "crate::gateway_config::record_batch_bytes_max")]
    pub record_batch_bytes_max: ByteSize,
    /// More librdkafka settings, checked by [`crate::kafka_properties`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

// A quarter of Kafka's default maximum message.
fn message_bytes_target() -> ByteSize {
    ByteSize::kib(256)
}

impl EdgeKafka {
    /// The connection as a gateway configures it: one topic, no consumer group.
    pub fn connection(&self) -> Kafka {
        Kafka {
            bootstrap_servers: self.bootstrap_servers.clone(),
            tls: self.tls.clone(),
            sasl: self.sasl.clone(),
            topics: vec![self.topic.clone()],
            consumer_group: String::new(),
            group_protocol: GroupProtocol::default(),
            initial_offset: InitialOffset::default(),
            format: Format::OtlpProto,
            partitions_active_max: 1,
            record_batch_bytes_max: self.record_batch_bytes_max,
            properties: self.properties.clone(),
        }
    }
}

/// A config that satisfies every rule. Only [`EdgeConfig::check`] creates one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedEdgeConfig {
    config: EdgeConfig,
    admin: SocketAddr,
    grpc: Option<SocketAddr>,
    http: Option<SocketAddr>,
}

impl CheckedEdgeConfig {
    pub fn config(&self) -> &EdgeConfig {
        &self.config
    }

    /// The address of the admin server.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The address of OTLP/gRPC; `None` if it is off.
    pub fn grpc(&self) -> Option<SocketAddr> {
        self.grpc
    }

    /// The address of OTLP/HTTP; `None` if it is off.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }
}

impl EdgeConfig {
    /// Checks every rule, or returns all violations.
    pub fn check(self) -> Result<CheckedEdgeConfig, Violations> {
        let mut found = Violations::default();
        found.add_if(self.contract_version != CONTRACT_VERSION, "contractVersion", || {
            format!(
                "this edge reads version {CONTRACT_VERSION}, the config has version {}",
                self.contract_version
            )
        });
        let at_admin = ("admin.listen", Some(self.admin.listen.as_str()));
        let at_grpc = ("listen.grpc", self.listen.grpc.as_deref());
        let at_http = ("listen.http", self.listen.http.as_deref());
        let [admin, grpc, http] =
            [at_admin, at_grpc, at_http].map(|(at, text)| address(at, text, &mut found));
        check_ports(&[(at_admin.0, admin), (at_grpc.0, grpc), (at_http.0, http)], &mut found);
        self.listen.check("", &mut found);
        self.limits.check("", &mut found);
        self.tenants.iter().for_each(|tenants| tenants.check("", &mut found));
        self.kafka.check(&mut found);
        self.check_process(&mut found);
        match admin {
            Some(admin) => found.or(CheckedEdgeConfig { config: self, admin, grpc, http }),
            None => Err(found),
        }
    }

    fn check_process(&self, found: &mut Violations) {
        let empty = || "must not be empty".to_owned();
        found.add_if(self.pipeline.namespace.is_empty(), "pipeline.namespace", empty);
        found.add_if(self.pipeline.name.is_empty(), "pipeline.name", empty);
        in_range(found, "workers", self.workers, 1, 64);
        found.add_if(!self.memory.limit.get().is_multiple_of(1 << 20), "memory.limit", || {
            "must be a whole number of MiB".into()
        });
        let deadline = self.shutdown.deadline;
        in_range(found, "shutdown.deadline", deadline, Duration::secs(1), Duration::secs(3_600));
        log_filter::check(&self.log.level, "log.level", found);
    }
}

/// The address in a field; `None` if there is no text, or if it is wrong.
pub(crate) fn address(at: &str, text: Option<&str>, found: &mut Violations) -> Option<SocketAddr> {
    let text = text?;
    let address = text.parse().ok();
    found.add_if(address.is_none(), at, || {
        format!("{text:?} is not an address and a port, such as 0.0.0.0:4317")
    });
    address
}

/// Two servers cannot share a port. Port 0 means any that is free.
pub(crate) fn check_ports(addresses: &[(&str, Option<SocketAddr>)], found: &mut Violations) {
    let mut seen = BTreeSet::new();
    for (at, address) in addresses {
        let port = address.map_or(0, |address| address.port());
        found.add_if(port > 0 && !seen.insert(port), at, || {
            format!("port {port} is that of another server of this process: use another one")
        });
    }
}

impl EdgeListen {
    /// Checks every rule; `prefix` is what comes before `listen` in the path of the field.
    pub(crate) fn check(&self, prefix: &str, found: &mut Violations) {
        let at = |field: &str| format!("{prefix}listen{field}");
        found.add_if(self.grpc.is_none() && self.http.is_none(), &at(""), || {
            "has neither grpc nor http: at least one of them".into()
        });
        let mut files = Vec::new();
        if let Some(tls) = &self.tls {
            files.push((".tls.certificateFile", Some(tls.certificate_file.as_str())));
            files.push((".tls.keyFile", Some(tls.key_file.as_str())));
            files.push((".tls.clientCaFile", tls.client_ca_file.as_deref()));
        }
        if let Some(authentication) = &self.authentication {
            let Authentication { bearer_tokens_file: tokens, basic_users_file: users } = authentication;
            files.push((".authentication.bearerTokensFile", tokens.as_deref()));
            files.push((".authentication.basicUsersFile", users.as_deref()));
            found.add_if(tokens.is_none() && users.is_none(), &at(".authentication"), || {
                "has neither bearerTokensFile nor basicUsersFile: set one of them, or leave authentication out"
                    .into()
            });
        }
        for (field, file) in files {
            found.add_if(file == Some(""), &at(field), || "must not be empty".into());
        }
    }
}

impl Tenants {
    /// Checks every rule; `prefix` is what comes before `tenants` in the path of the field.
    pub(crate) fn check(&self, prefix: &str, found: &mut Violations) {
        let at = |field: &str| format!("{prefix}tenants{field}");
        found.add_if(!is_header(&self.header), &at(".header"), || {
            format!(
                "{:?} is not the name of a header: 1 to {HEADER_BYTES_MAX} of a-z, 0-9, '-', '_' and '.', and not one of {}",
                self.header,
                HEADERS_OWNED.join(", ")
            )
        });
        found.add_if(self.spans_per_second.is_none() && self.bytes_per_second.is_none(), &at(""), || {
            "has neither spansPerSecond nor bytesPerSecond: set one of them, or leave tenants out".into()
        });
        found
            .add_if(self.spans_per_second == Some(0), &at(".spansPerSecond"), || "must be at least 1".into());
        let is_small = self.bytes_per_second.is_some_and(|bytes| bytes < ByteSize::kib(1));
        found.add_if(is_small, &at(".bytesPerSecond"), || "must be at least 1KiB".into());
    }
}

/// Headers that have another meaning: the first is a secret, which no answer may repeat as a tenant's name.
pub const HEADERS_OWNED: [&str; 4] = ["authorization", "content-type", "content-length", "content-encoding"];

/// Whether it is the name of a header in lower case, which is also a metadata key of gRPC with a text as its value.
pub fn is_header(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    let is_name = (1..=HEADER_BYTES_MAX).contains(&name.len()) && name.bytes().all(legal);
    // gRPC keeps these names for itself, and for values that are not text.
    is_name && !name.starts_with("grpc-") && !name.ends_with("-bin") && !HEADERS_OWNED.contains(&name)
}

impl EdgeKafka {
    fn check(&self, found: &mut Violations) {
        let at = |field: &str| format!("kafka.{field}");
        found.add_if(self.bootstrap_servers.is_empty(), &at("bootstrapServers"), || {
            "at least one broker".into()
        });
        for server in &self.bootstrap_servers {
            found.add_if(!is_host_and_port(server), &at("bootstrapServers"), || {
                format!("{server:?} is not host:port with a port of 1 to 65535, such as kafka:9092")
            });
        }
        found.add_if(!is_topic(&self.topic), &at("topic"), || {
            format!(
                "{:?} is not a topic: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..'",
                self.topic
            )
        });
        let (least, most) = (ByteSize::kib(64), crate::budget::RECORD_BATCH_BYTES_MAX);
        in_range(found, &at("recordBatchBytesMax"), self.record_batch_bytes_max, least, most);
        let (least, most) = MESSAGE_TARGET_BYTES;
        in_range(found, &at("messageBytesTarget"), self.message_bytes_target, least, most);
        found.add_if(
            self.message_bytes_target > self.record_batch_bytes_max,
            &at("messageBytesTarget"),
            || {
                format!(
                    "{} is more than recordBatchBytesMax ({}), the largest that gateways read",
                    self.message_bytes_target, self.record_batch_bytes_max
                )
            },
        );
        self.tls.iter().for_each(|tls| tls.check(&at("tls"), found));
        self.sasl.iter().for_each(|sasl| sasl.check(&self.bootstrap_servers, &at("sasl"), found));
        kafka_properties::check_edge(&self.properties, &at("properties"), found);
    }
}

#[cfg(test)]
#[path = "edge_tests.rs"]
mod tests;
