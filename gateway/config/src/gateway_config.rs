//! The config of a gateway, in the order in which data flows.
//!
//! Every struct refuses unknown fields: a misspelt field is an error with its path, never a silent default.

use crate::{
    attributes::Attributes,
    budget::{BATCH_BYTES_DEFAULT, PARTITIONS_ACTIVE_DEFAULT, RECORD_BATCH_BYTES_DEFAULT},
    otlp_source::OtlpSource,
    schema::Schema,
    security::{Credentials, Sasl, Tls},
    units::{ByteSize, Duration},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole config of one gateway process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayConfig {
    /// The contract version of the config ([`crate::CONTRACT_VERSION`]).
    pub contract_version: u32,
    /// The pipeline: shown in logs, client ids and `log_comment`.
    pub pipeline: Pipeline,
    /// The source of messages.
    pub source: Source,
    /// The destination of rows.
    pub sink: Sink,
    /// What becomes of attributes on their way into rows.
    #[serde(default, skip_serializing_if = "Attributes::is_default")]
    pub attributes: Attributes,
    /// What happens to data that cannot be delivered.
    #[serde(default)]
    pub delivery: Delivery,
    /// The queue volume.
    #[serde(default)]
    pub queue: Queue,
    /// Worker threads, which decode and encode; 1 to 64.
    pub workers: u32,
    /// The memory limit that the budget divides.
    pub memory: Memory,
    /// The address of `/metrics`, `/livez` and `/readyz`.
    #[serde(default)]
    pub admin: Admin,
    /// How the gateway shuts down.
    #[serde(default)]
    pub shutdown: Shutdown,
    /// What it logs.
    #[serde(default)]
    pub log: Log,
}

/// The pipeline's name in Kubernetes, or any two words elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pipeline {
    pub namespace: String,
    pub name: String,
}

/// The source: exactly one of both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// Topics of Kafka.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kafka: Option<Kafka>,
    /// OTLP that the gateway accepts itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otlp: Option<OtlpSource>,
}

impl Source {
    /// Topics of Kafka, and no OTLP.
    pub fn of_kafka(kafka: Kafka) -> Self {
        Self { kafka: Some(kafka), otlp: None }
    }
}

/// Topics and how they are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kafka {
    /// Bootstrap brokers, `host:port`; at least one.
    pub bootstrap_servers: Vec<String>,
    /// TLS to the brokers; absent means plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// User and password; absent if the brokers require none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<Sasl>,
    /// Topics by name; at least one.
    pub topics: Vec<String>,
    pub consumer_group: String,
    /// The protocol of the consumer group.
    #[serde(default, skip_serializing_if = "GroupProtocol::is_classic")]
    pub group_protocol: GroupProtocol,
    /// Where a partition without a committed offset starts.
    #[serde(default)]
    pub initial_offset: InitialOffset,
    /// The encoding of messages.
    #[serde(default)]
    pub format: Format,
    /// Maximum number of partitions that are read at the same time; buffers are sized for it. 1 to 1,024.
    #[serde(default = "partitions_active_max")]
    pub partitions_active_max: u32,
    /// Maximum size of a record batch, decompressed or never compressed: 64 KiB to 256 MiB.
    #[serde(default = "record_batch_bytes_max")]
    pub record_batch_bytes_max: ByteSize,
    /// More librdkafka settings, checked by [`crate::kafka_properties`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

fn partitions_active_max() -> u32 {
    PARTITIONS_ACTIVE_DEFAULT
}

pub(crate) fn record_batch_bytes_max() -> ByteSize {
    RECORD_BATCH_BYTES_DEFAULT
}

/// Seconds after which the group removes a member without heartbeats (`session.timeout.ms`): the default of Kafka's own consumer since
/// 3.0, and the brokers' default for the new protocol. Until then no other member reads the partitions of a gateway that ended.
pub const SESSION_SECONDS: u32 = 45;

/// The protocol between the members of a consumer group and its coordinator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupProtocol {
    /// One of the members assigns the partitions (cooperative-sticky). A pod is a static member: if it returns within 45 s, it gets its
    /// partitions back at once, and no other partition moves.
    #[default]
    Classic,
    /// The coordinator assigns the partitions (KIP-848): brokers from 4.0 on. No member waits for others in a rebalance. All members of a
    /// group should use the same protocol; during a change they may be mixed.
    ///
    /// Behaviour of librdkafka 2.12:
    /// - Session timeout and heartbeat interval are the brokers' (`group.consumer.session.timeout.ms`, 45 s by default).
    /// - Membership is dynamic: a static member that died could not return before its session ends, because the coordinator refuses the
    ///   new member rather than the dead one, and librdkafka treats that as fatal. So a restart moves partitions, and a member that
    ///   leaves has left at once.
    /// - A commit may be refused while the member's epoch changes (`STALE_MEMBER_EPOCH`); it is made again. The coordinator checks the
    ///   epoch of a commit like the generation of a classic one, so that it refuses the plan of a member that was left behind.
    /// - A member that cannot reach the coordinator continues to read; it sends no block without a proof of membership from the last 30
    ///   s.
    /// - Others have reported consumers that stop fetching for minutes while a group is reconciled (fixed in 2.15); the gateway's
    ///   watchdog reports a partition without progress.
    Consumer,
}

impl GroupProtocol {
    /// Whether it is the default.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_classic(&self) -> bool {
        *self == Self::Classic
    }
}

/// Where a partition without a committed offset starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitialOffset {
    /// At the oldest message that Kafka still has.
    #[default]
    Earliest,
    /// After the newest message.
    Latest,
}

/// The encoding of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// An OTLP `ExportTraceServiceRequest` or `TracesData` as protobuf (the Collector's `otlp_proto`).
    #[default]
    OtlpProto,
    /// The same in OTLP/JSON (the Collector's `otlp_json`): one document per message.
    OtlpJson,
}

/// The sink: ClickHouse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sink {
    pub clickhouse: ClickHouse,
}

/// Servers, table and inserts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClickHouse {
    /// HTTP interfaces of the replicas of a single shard, all `http://host:8123` or all `https://host:8443`; at least one, unless
    /// `shards` is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// The endpoints of several shards, instead of `endpoints`; each partition of the source goes to one shard. New shards are added at
    /// the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Vec<String>>,
    /// Trusted authorities and client certificate for `https` endpoints; absent means the system's authorities and no certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    pub database: String,
    pub table: String,
    /// User and password; absent means the user `default` without a password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// How the table is created.
    #[serde(default)]
    pub schema: Schema,
    /// When a block closes and how it is sent.
    #[serde(default)]
    pub insert: Insert,
}

impl ClickHouse {
    /// The endpoints of each shard; at least one shard.
    pub fn shards(&self) -> Vec<&[String]> {
        if self.shards.is_empty() {
            vec![&self.endpoints]
        } else {
            self.shards.iter().map(Vec::as_slice).collect()
        }
    }
}

/// When a block closes and how it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Insert {
    /// A block closes when it has this many messages, each with at least one row: 1 to 1,000,000.
    #[serde(default = "max_rows")]
    pub max_rows: u32,
    /// A block closes when its messages have this size, decompressed: 64 KiB to 16 MiB.
    #[serde(default = "max_bytes")]
    pub max_bytes: ByteSize,
    /// A block closes this long after its first message: 50 ms to 5 m.
    #[serde(default = "max_interval")]
    pub max_interval: Duration,
    /// Time limit of an insert, enforced by gateway and server: 2 s to 10 m.
    #[serde(default = "timeout")]
    pub timeout: Duration,
    /// Concurrent inserts from this process to each shard: 1 to 64.
    #[serde(default = "concurrency")]
    pub concurrency: u32,
    /// The format of blocks on the wire.
    #[serde(default, skip_serializing_if = "InsertFormat::is_row_binary")]
    pub format: InsertFormat,
    /// More ClickHouse settings for every INSERT, checked by [`crate::insert_settings`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

// 100,000 rows are the upper end of the ClickHouse documentation's advice for one insert.
fn max_rows() -> u32 {
    100_000
}

fn max_bytes() -> ByteSize {
    BATCH_BYTES_DEFAULT
}

fn max_interval() -> Duration {
    Duration::secs(1)
}

fn timeout() -> Duration {
    Duration::secs(30)
}

fn concurrency() -> u32 {
    2
}

impl Default for Insert {
    fn default() -> Self {
        Self {
            max_rows: max_rows(),
            max_bytes: max_bytes(),
            max_interval: max_interval(),
            timeout: timeout(),
            concurrency: concurrency(),
            format: InsertFormat::default(),
            settings: BTreeMap::new(),
        }
    }
}

/// The format of blocks on the wire. It changes neither the stored rows nor a block's identity, and may be changed at any time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InsertFormat {
    /// Rows, as they are stored in blocks: least CPU in the gateway.
    #[default]
    RowBinary,
    /// Columns, converted before sending: least CPU in the server, and in total. Blocks from the queue volume, blocks in parts, and
    /// blocks that do not fit the memory for conversion are sent as rows.
    Native,
}

impl InsertFormat {
    /// Whether it is the default.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_row_binary(&self) -> bool {
        *self == Self::RowBinary
    }
}

/// What happens to data that cannot be delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delivery {
    /// When an offset may be committed.
    #[serde(default, skip_serializing_if = "Commit::is_default")]
    pub commit: Commit,
    /// Malformed messages, and rows that ClickHouse refuses.
    #[serde(default)]
    pub dead_letter: DeadLetter,
}

/// When an offset may be committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Commit {
    /// Once every row below it is in ClickHouse or in a dead letter: Kafka is the durable copy, and the queue volume may be lost.
    #[default]
    AfterInsert,
    /// Also once rows are synced to the queue volume, which is then their only copy: if the volume is lost, they are lost.
    AfterEnqueue,
}

impl Commit {
    /// Whether it is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Malformed messages, and rows that ClickHouse refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetter {
    /// The dead-letter topic for all topics of the source; absent means one topic per source topic, named with the suffix
    /// [`DEAD_LETTER_SUFFIX`](crate::DEAD_LETTER_SUFFIX).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// What happens if the dead letter cannot be delivered.
    #[serde(default)]
    pub on_missing: OnMissing,
}

/// What happens to a message or row whose dead letter cannot be delivered, for example because the topic is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnMissing {
    /// Its partition stops before it, and reports that; other partitions continue.
    #[default]
    Stop,
    /// It is counted and skipped.
    Skip,
}

/// The queue volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Queue {
    /// Whether there is a queue volume.
    #[serde(default)]
    pub mode: QueueMode,
    /// Its mount path.
    #[serde(default = "queue_path")]
    pub path: String,
    /// Maximum bytes of blocks on it: at least 32 MiB. Absent means 95 % of the volume; the file system needs the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<ByteSize>,
}

impl Queue {
    /// Maximum bytes of blocks on a volume of this size.
    pub fn bytes_max(&self, volume_bytes: u64) -> u64 {
        self.max_bytes.map_or(volume_bytes - volume_bytes / 20, ByteSize::get)
    }
}

/// The smallest `queue.maxBytes`. Chosen: more than the largest block and its file overhead.
pub const QUEUE_BYTES_MIN: ByteSize = ByteSize::mib(32);

fn queue_path() -> String {
    "/var/lib/sluice/queue".to_owned()
}

impl Default for Queue {
    fn default() -> Self {
        Self { mode: QueueMode::default(), path: queue_path(), max_bytes: None }
    }
}

/// Whether there is a queue volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueMode {
    /// There is one; the gateway claims it at the start.
    #[default]
    Spill,
    /// There is none.
    Disabled,
}

/// The memory limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Memory {
    /// Maximum memory of the process, in whole MiB.
    pub limit: ByteSize,
}

/// The address of `/metrics`, `/livez` and `/readyz`; commands are accepted one port above it ([`crate::CheckedConfig::control`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Admin {
    /// Address and port; `0.0.0.0` and `[::]` mean all addresses, IPv6 and IPv4. With port 0 the kernel chooses one, which the first log
    /// line names, and there is no port for commands.
    #[serde(default = "listen")]
    pub listen: String,
}

fn listen() -> String {
    "0.0.0.0:9090".to_owned()
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: listen() }
    }
}

/// How the gateway shuts down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Shutdown {
    /// How long SIGTERM waits for blocks in flight: 1 s to 1 h. Must be shorter than the pod's termination grace period.
    #[serde(default = "deadline")]
    pub deadline: Duration,
}

fn deadline() -> Duration {
    Duration::secs(50)
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { deadline: deadline() }
    }
}

/// What the gateway logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Log {
    /// A level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or several separated by commas; `target=level` sets the level of a
    /// part of the program. Checked by [`crate::log_filter`].
    #[serde(default = "level")]
    pub level: String,
    /// The format of a log line.
    #[serde(default)]
    pub format: LogFormat,
}

fn level() -> String {
    "info".to_owned()
}

impl Default for Log {
    fn default() -> Self {
        Self { level: level(), format: LogFormat::default() }
    }
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogFormat {
    /// One JSON object per line.
    #[default]
    Json,
    /// Text for a terminal.
    Text,
}
