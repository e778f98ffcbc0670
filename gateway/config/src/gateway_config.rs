//! What a gateway is told, in the order in which data flows.
//!
//! Every struct refuses unknown fields: a misspelt one is an error with its path, never a silent default.

use crate::{
    budget::{BATCH_BYTES_DEFAULT, PARTITIONS_ACTIVE_DEFAULT, RECORD_BATCH_BYTES_DEFAULT},
    schema::Schema,
    security::{Sasl, Tls},
    units::{ByteSize, Duration},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole config of one gateway process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayConfig {
    /// The version of this contract that the config is written in ([`crate::CONTRACT_VERSION`]).
    pub contract_version: u32,
    /// Whose gateway this is: in logs, client ids and `log_comment`.
    pub pipeline: Pipeline,
    /// Where messages come from.
    pub source: Source,
    /// Where rows go.
    pub sink: Sink,
    /// What is done with what cannot be delivered.
    #[serde(default)]
    pub delivery: Delivery,
    /// The queue volume.
    #[serde(default)]
    pub queue: Queue,
    /// Worker threads that walk and encode; 1 to 64.
    pub workers: u32,
    /// The memory limit that the budget divides.
    pub memory: Memory,
    /// Where `/metrics`, `/livez` and `/readyz` are served.
    #[serde(default)]
    pub admin: Admin,
    /// How the gateway leaves.
    #[serde(default)]
    pub shutdown: Shutdown,
    /// What it logs.
    #[serde(default)]
    pub log: Log,
}

/// The pipeline's name in Kubernetes, or any two words where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pipeline {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// The source: Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// Kafka.
    pub kafka: Kafka,
}

/// Topics and how they are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kafka {
    /// Brokers to ask first, `host:port`; at least one.
    pub bootstrap_servers: Vec<String>,
    /// TLS to the brokers; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// User and password; absent means that brokers ask for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<Sasl>,
    /// Topics by name; at least one.
    pub topics: Vec<String>,
    /// The consumer group.
    pub consumer_group: String,
    /// How it is a member of it.
    #[serde(default, skip_serializing_if = "GroupProtocol::is_classic")]
    pub group_protocol: GroupProtocol,
    /// Where a partition without a committed offset is begun.
    #[serde(default)]
    pub initial_offset: InitialOffset,
    /// How the messages are encoded.
    #[serde(default)]
    pub format: Format,
    /// Partitions that are read at the same time; the buffers are sized for this many. 1 to 1,024.
    #[serde(default = "partitions_active_max")]
    pub partitions_active_max: u32,
    /// The largest record batch, decompressed or never compressed, that must be read: 64 KiB to 256 MiB.
    #[serde(default = "record_batch_bytes_max")]
    pub record_batch_bytes_max: ByteSize,
    /// More settings of librdkafka: what [`crate::kafka_properties`] lets pass.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

fn partitions_active_max() -> u32 {
    PARTITIONS_ACTIVE_DEFAULT
}

fn record_batch_bytes_max() -> ByteSize {
    RECORD_BATCH_BYTES_DEFAULT
}

/// Seconds after which the group takes a member for gone that sends no heartbeat (`session.timeout.ms`): what Kafka's own consumer has since
/// 3.0, and the brokers' default for the new protocol. Until then nobody else reads the partitions of a gateway that ended.
pub const SESSION_SECONDS: u32 = 45;

/// The protocol between the members of a consumer group and its coordinator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupProtocol {
    /// One of the members divides the partitions (cooperative-sticky). A pod is a static member: one that comes back within 45 s has its
    /// partitions at once, and nobody else moves.
    #[default]
    Classic,
    /// The coordinator divides them (KIP-848): brokers from 4.0 on. No member waits for others in a rebalance. All members of a
    /// group should use the same protocol; while it is changed they may be mixed.
    ///
    /// What is known of it in librdkafka 2.12:
    /// - Session timeout and heartbeat interval are the brokers' (`group.consumer.session.timeout.ms`, 45 s unless set).
    /// - Membership is dynamic: a static member that died could not come back before its session is over, because the coordinator
    ///   refuses the new one rather than the dead one, and librdkafka takes that for fatal. So a restart moves partitions, and one that
    ///   leaves has left at once.
    /// - A commit may be refused while the member's epoch moves on (`STALE_MEMBER_EPOCH`); it is made again. The coordinator checks the
    ///   epoch of a commit as it checks the generation of a classic one, so that the plan of a member that was left behind is refused.
    /// - A member that cannot reach the coordinator goes on reading; nothing is sent without a proof of membership of the last 30 s.
    /// - Consumers were seen elsewhere to stop fetching for minutes while a group is reconciled (mended in 2.15); the gateway's watchdog
    ///   names a partition that stands still.
    Consumer,
}

impl GroupProtocol {
    /// Whether it is the default.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_classic(&self) -> bool {
        *self == Self::Classic
    }
}

/// Where a partition without a committed offset is begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitialOffset {
    /// At the oldest message that Kafka still has.
    #[default]
    Earliest,
    /// Behind the newest message.
    Latest,
}

/// How the messages are encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// An OTLP `ExportTraceServiceRequest` or `TracesData` as protobuf (the Collector's `otlp_proto`).
    #[default]
    OtlpProto,
    /// The same in OTLP/JSON (the Collector's `otlp_json`): one document a message.
    OtlpJson,
}

/// The sink: ClickHouse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sink {
    /// ClickHouse.
    pub clickhouse: ClickHouse,
}

/// Servers, table and how rows are inserted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClickHouse {
    /// HTTP interfaces of replicas of the one shard, all `http://host:8123` or all `https://host:8443`; at least one, unless there are
    /// several `shards`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
    /// The same for each of several shards, instead of `endpoints`; each partition of the source goes to one of them. Shards are added at
    /// the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Vec<String>>,
    /// How `https` endpoints are trusted, and the client's certificate; absent means the authorities that the system trusts
    /// and no certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Database.
    pub database: String,
    /// Table.
    pub table: String,
    /// User and password; absent means the user `default` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Credentials>,
    /// Who makes the table.
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

/// Files that hold user and password. They are read at the start and hold nothing but the text; one line end at the
/// end is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credentials {
    /// File with the user's name.
    pub username_file: String,
    /// File with the password.
    pub password_file: String,
}

/// When a block closes and how it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Insert {
    /// A block closes once it has this many messages, each of which has a row at least: 1 to 1,000,000.
    #[serde(default = "max_rows")]
    pub max_rows: u32,
    /// A block closes once the messages in it are this large, as read from Kafka and decompressed: 64 KiB to 16 MiB.
    #[serde(default = "max_bytes")]
    pub max_bytes: ByteSize,
    /// A block closes this long after its first message: 50 ms to 5 m.
    #[serde(default = "max_interval")]
    pub max_interval: Duration,
    /// An insert that takes longer is ended by both sides: 2 s to 10 m.
    #[serde(default = "timeout")]
    pub timeout: Duration,
    /// Inserts at the same time from this process to each shard: 1 to 64.
    #[serde(default = "concurrency")]
    pub concurrency: u32,
    /// How blocks go over the wire.
    #[serde(default, skip_serializing_if = "InsertFormat::is_row_binary")]
    pub format: InsertFormat,
    /// More settings of ClickHouse for every INSERT: what [`crate::insert_settings`] lets pass.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

// 100,000 rows are the upper end of what ClickHouse's documentation advises for one insert.
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

/// How blocks go over the wire. Which one changes nothing that is stored, and no block's identity: it may be changed at any time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InsertFormat {
    /// As the rows that they are kept as: the gateway's CPU is the least.
    #[default]
    RowBinary,
    /// Turned into columns before they are sent: the server's CPU is the least, and that of both together. What comes from the queue
    /// volume, goes in parts, or does not fit the memory for it goes as rows.
    Native,
}

impl InsertFormat {
    /// Whether it is the default.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_row_binary(&self) -> bool {
        *self == Self::RowBinary
    }
}

/// What is done with what cannot be delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delivery {
    /// When an offset may be committed.
    #[serde(default, skip_serializing_if = "Commit::is_default")]
    pub commit: Commit,
    /// Messages that cannot be read, and rows that are refused.
    #[serde(default)]
    pub dead_letter: DeadLetter,
}

/// When an offset may be committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Commit {
    /// Once every row below it is in ClickHouse, or a dead letter: Kafka is the durable copy, and the queue volume may be lost.
    #[default]
    AfterInsert,
    /// Also once rows are synced to the queue volume, which is then their only copy: a volume that is lost takes them with it.
    AfterEnqueue,
}

impl Commit {
    /// Whether it is what a config without it means.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Messages that cannot be read, and rows that are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetter {
    /// The topic that they are put into, for all topics of the source; absent means a topic beside each of them, with
    /// [`DEAD_LETTER_SUFFIX`](crate::DEAD_LETTER_SUFFIX) behind its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// What happens to one that has nowhere to go.
    #[serde(default)]
    pub on_missing: OnMissing,
}

/// What happens to a message that cannot be read and has nowhere to go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnMissing {
    /// Its partition stops in front of it, alone, and says so.
    #[default]
    Stop,
    /// It is counted and passed over.
    Skip,
}

/// The queue volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Queue {
    /// Whether there is one.
    #[serde(default)]
    pub mode: QueueMode,
    /// Where it is mounted.
    #[serde(default = "queue_path")]
    pub path: String,
    /// Bytes that blocks may take on it: at least 32 MiB. Absent means all of the volume but a twentieth, which the file system needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<ByteSize>,
}

impl Queue {
    /// Bytes that blocks may take on a volume of so many bytes.
    pub fn bytes_max(&self, volume_bytes: u64) -> u64 {
        self.max_bytes.map_or(volume_bytes - volume_bytes / 20, ByteSize::get)
    }
}

/// The smallest `queue.maxBytes`. Chosen: above the largest block and what its file needs beside it.
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
    /// There is one, and the gateway claims it at the start.
    #[default]
    Spill,
    /// There is none.
    Disabled,
}

/// The memory limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Memory {
    /// What the process may use at the most, in whole MiB.
    pub limit: ByteSize,
}

/// Where `/metrics`, `/livez` and `/readyz` are served; commands are taken one port above it ([`crate::CheckedConfig::control`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Admin {
    /// Address and port; `0.0.0.0` and `[::]` are all addresses, of IPv6 and of IPv4. With port 0 the kernel chooses one, which the first line of the log names, and there is no port for commands.
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

/// How the gateway leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Shutdown {
    /// How long SIGTERM waits for blocks in flight: 1 s to 1 h. Shorter than the pod's termination grace period.
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

/// What it logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Log {
    /// A level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or several by commas, of which those that are `target=level` hold for a part
    /// of the program: what [`crate::log_filter`] lets pass.
    #[serde(default = "level")]
    pub level: String,
    /// How a line is written.
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

/// How a log line is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// For a person at a terminal.
    Text,
}
