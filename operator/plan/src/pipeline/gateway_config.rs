//! From the user's contract to the gateway's: each field of the config, and from which field of the spec it comes.

use super::{logins, otlp_config};
use crate::{
    ground::quantity,
    names::{Names, secret_file},
};
use sluice_crds::{
    AttributeAction, AttributesOf, Commit, Durability, Engine, Format, GroupProtocol, InitialOffset,
    InsertFormat, KafkaSource, Layout, LogLevel, OnMissing, OptionalColumns, PathType, Preset, QueueMode,
    SchemaManagement, SecretUse, Tls, TracePipelineSpec, UnreadableLetters, View,
    security::{CA_KEY, CERTIFICATE_KEY, PRIVATE_KEY_KEY},
};
use sluice_gateway_config as contract;
use sluice_gateway_config::{
    ByteSize, CONTRACT_VERSION, Duration, GatewayConfig, Violations, deduplication::window_blocks,
};
use std::collections::BTreeMap;

/// Seconds of the termination grace period that are not the program's: for the signal to arrive, for connections to be
/// closed and for the process to end before it is killed.
pub(super) const LEAVE_SECONDS: u64 = 10;

/// The shortest and the longest termination grace period, as the definition has them: what is left of it is at least 5 s to the gateway.
const GRACE: (Duration, Duration) = (Duration::secs(15), Duration::secs(3_600));

/// Where the bound of the queue stands.
const QUEUE_MAX_BYTES: &str = "spec.queue.maxBytes";

/// What the spec alone does not say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Worker threads.
    pub workers: u32,
    /// Partitions read at the same time.
    pub partitions_active_max: u32,
    /// The memory limit.
    pub memory: ByteSize,
}

/// The config of a pipeline's gateways, not yet checked; or what in the spec cannot be read.
pub(crate) fn build(
    names: &Names,
    spec: &TracePipelineSpec,
    share: Share,
) -> Result<GatewayConfig, Violations> {
    let mut found = Violations::default();
    let grace = grace_period(spec, &mut found).unwrap_or(Duration::secs(0));
    let source = source(names, spec, share, &mut found);
    let queue = queue(spec, &mut found);
    if let Some(otlp) = &source.otlp {
        let room = quantity::bytes(&spec.queue.size).map(|volume| queue.bytes_max(volume));
        otlp_config::check_room(otlp, room, &mut found);
    }
    let ends_ms = (LEAVE_SECONDS * 1_000).saturating_add(otlp_config::endpoints_wait_ms(spec));
    let attributes = attributes(spec, &mut found);
    let config = GatewayConfig {
        contract_version: CONTRACT_VERSION,
        pipeline: contract::Pipeline { namespace: names.namespace().into(), name: names.pipeline().into() },
        source,
        sink: contract::Sink { clickhouse: clickhouse(spec) },
        attributes,
        delivery: contract::Delivery {
            commit: commit(spec),
            dead_letter: contract::DeadLetter {
                topic: spec.delivery.dead_letter.topic.clone(),
                on_missing: on_missing(spec),
            },
        },
        queue,
        workers: share.workers,
        memory: contract::Memory { limit: share.memory },
        admin: contract::Admin::default(),
        shutdown: contract::Shutdown {
            deadline: Duration::millis(grace.as_millis().saturating_sub(ends_ms)),
        },
        log: contract::Log { level: log_level(spec).into(), ..contract::Log::default() },
    };
    found.or(config)
}

/// Reads the termination grace period.
pub(crate) fn grace_period(spec: &TracePipelineSpec, found: &mut Violations) -> Option<Duration> {
    let (text, at) = (&spec.gateway.termination_grace_period, "spec.gateway.terminationGracePeriod");
    let grace = text.parse::<Duration>().map_err(|e| found.add(at, e.to_string())).ok()?;
    let (shortest, longest) = GRACE;
    let is_possible = (shortest..=longest).contains(&grace);
    found.add_if(!is_possible, at, || format!("{grace} is not between {shortest} and {longest}"));
    Some(grace).filter(|_| is_possible)
}

/// The largest message: a record batch of Kafka, or a request of OTLP; or adds what cannot be read.
pub(crate) fn message_bytes_max(spec: &TracePipelineSpec, found: &mut Violations) -> Option<ByteSize> {
    match (&spec.source.kafka, &spec.source.otlp) {
        (Some(kafka), _) => record_batch_bytes_max(kafka, found),
        (None, Some(otlp)) => Some(otlp_config::requests(otlp, found)?.decompressed_bytes_max),
        (None, None) => {
            found.add("spec.source", otlp_config::NO_SOURCE);
            None
        }
    }
}

/// Reads the largest record batch.
pub(crate) fn record_batch_bytes_max(kafka: &KafkaSource, found: &mut Violations) -> Option<ByteSize> {
    let text = &kafka.record_batch_bytes_max;
    text.parse().map_err(|e| found.add("spec.source.kafka.recordBatchBytesMax", format!("{e}"))).ok()
}

/// What becomes of attributes.
fn attributes(spec: &TracePipelineSpec, found: &mut Violations) -> contract::Attributes {
    let Some(attributes) = &spec.attributes else { return contract::Attributes::default() };
    let value_bytes_max = attributes.value_bytes_max.as_ref().and_then(|text| {
        text.parse().map_err(|e| found.add("spec.attributes.valueBytesMax", format!("{e}"))).ok()
    });
    let rules = attributes.rules.iter().map(|rule| contract::AttributeRule {
        action: match rule.action {
            AttributeAction::Keep => contract::AttributeAction::Keep,
            AttributeAction::Drop => contract::AttributeAction::Drop,
            AttributeAction::Hash => contract::AttributeAction::Hash,
        },
        keys: rule.keys.clone(),
        sets: sets(&rule.sets),
    });
    contract::Attributes {
        value_bytes_max,
        rules: rules.collect(),
        unreadable_letters: match attributes.unreadable_letters {
            UnreadableLetters::Original => contract::UnreadableLetters::Original,
            UnreadableLetters::WithoutValue => contract::UnreadableLetters::WithoutValue,
        },
    }
}

/// Whose attributes a rule is for, all if the spec names none; each once and in one order: another order must not restart gateways.
fn sets(sets: &[AttributesOf]) -> Vec<contract::AttributesOf> {
    let of_spec = |set: contract::AttributesOf| match set {
        contract::AttributesOf::Resource => AttributesOf::Resource,
        contract::AttributesOf::Scope => AttributesOf::Scope,
        contract::AttributesOf::Span => AttributesOf::Span,
        contract::AttributesOf::Event => AttributesOf::Event,
        contract::AttributesOf::Link => AttributesOf::Link,
    };
    let named = |set: &contract::AttributesOf| sets.is_empty() || sets.contains(&of_spec(*set));
    contract::AttributesOf::ALL.into_iter().filter(named).collect()
}

/// The queue. Without a volume there is nothing to bound.
fn queue(spec: &TracePipelineSpec, found: &mut Violations) -> contract::Queue {
    let mode = queue_mode(spec);
    let wanted = spec.queue.max_bytes.as_ref().filter(|_| mode == contract::QueueMode::Spill);
    let max_bytes = wanted.and_then(|text| {
        text.parse::<ByteSize>().map_err(|e| found.add(QUEUE_MAX_BYTES, e.to_string())).ok()
    });
    let room = quantity::bytes(&spec.queue.size).map(|volume| contract::Queue::default().bytes_max(volume));
    if let Some((bytes, room)) = max_bytes.zip(room) {
        found.add_if(bytes.get() > room, QUEUE_MAX_BYTES, || {
            let size = &spec.queue.size;
            format!("{bytes} is more than 95 % of {size}: the file system needs 5 % of the volume; set at most {}Mi", room >> 20)
        });
    }
    contract::Queue { mode, max_bytes, ..contract::Queue::default() }
}

/// Violations of the config, said of the fields of the spec that they come from.
pub(crate) fn of_spec(violations: &Violations) -> Violations {
    with_paths(violations, spec_path)
}

/// The violations with other paths.
pub(super) fn with_paths(violations: &Violations, path: impl Fn(&str) -> String) -> Violations {
    let mut found = Violations::default();
    for violation in violations.iter().filter(|one| !logins::is_said_of_password(one)) {
        found.add(path(&violation.path), violation.message.clone());
    }
    found
}

fn spec_path(path: &str) -> String {
    match path {
        "memory.limit" => "spec.gateway.resources.limits.memory".into(),
        "workers" => "spec.gateway.workers".into(),
        "shutdown.deadline" => "spec.gateway.terminationGracePeriod".into(),
        "log.level" => "spec.gateway.logLevel".into(),
        "pipeline.name" | "pipeline.namespace" => path.replace("pipeline", "metadata"),
        // The spec has the limits and the listeners beside the other fields.
        _ if path.starts_with("source.otlp.limits.") => format!("spec.{}", path.replacen("limits.", "", 1)),
        _ if path.starts_with("source.otlp.listen") => format!("spec.{}", path.replacen(".listen", "", 1)),
        _ => logins::field(format!("spec.{path}")),
    }
}

/// The source of the spec. The config's own check refuses a source with both kinds, or with neither.
fn source(names: &Names, spec: &TracePipelineSpec, share: Share, found: &mut Violations) -> contract::Source {
    let kafka = spec.source.kafka.as_ref().map(|from| {
        let batch = record_batch_bytes_max(from, found).unwrap_or(ByteSize::bytes(0));
        kafka(names, (spec, from), batch, share)
    });
    let otlp = spec.source.otlp.as_ref().and_then(|otlp| otlp_config::source(otlp, found));
    contract::Source { kafka, otlp }
}

fn kafka(
    names: &Names,
    (spec, kafka): (&TracePipelineSpec, &KafkaSource),
    batch: ByteSize,
    share: Share,
) -> contract::Kafka {
    // Topics are a set: another order of the same ones must not restart gateways.
    let mut topics = kafka.topics.clone();
    topics.sort();
    contract::Kafka {
        bootstrap_servers: kafka.bootstrap_servers.clone(),
        tls: tls(kafka.tls.as_ref(), SecretUse::KafkaAuthorities, SecretUse::KafkaCertificate),
        sasl: kafka.sasl.as_ref().map(logins::sasl),
        topics,
        consumer_group: consumer_group(names, kafka),
        group_protocol: match kafka.group_protocol {
            GroupProtocol::Classic => contract::GroupProtocol::Classic,
            GroupProtocol::Consumer => contract::GroupProtocol::Consumer,
        },
        initial_offset: match kafka.initial_offset {
            InitialOffset::Earliest => contract::InitialOffset::Earliest,
            InitialOffset::Latest => contract::InitialOffset::Latest,
        },
        format: format(spec),
        partitions_active_max: share.partitions_active_max,
        record_batch_bytes_max: batch,
        properties: kafka.properties.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect(),
    }
}

/// How the messages are encoded. The logs of `source.otlp` have protobuf, whatever clients send.
pub(crate) fn format(spec: &TracePipelineSpec) -> contract::Format {
    match spec.source.kafka.as_ref().map(|kafka| kafka.format) {
        Some(Format::OtlpProto) | None => contract::Format::OtlpProto,
        Some(Format::OtlpJson) => contract::Format::OtlpJson,
    }
}

/// The consumer group: what the spec says, else one that belongs to this pipeline alone.
pub(crate) fn consumer_group(names: &Names, kafka: &KafkaSource) -> String {
    let given = kafka.consumer_group.as_ref().filter(|group| !group.is_empty());
    given.cloned().unwrap_or_else(|| names.consumer_group())
}

fn clickhouse(spec: &TracePipelineSpec) -> contract::ClickHouse {
    let clickhouse = &spec.sink.clickhouse;
    contract::ClickHouse {
        // The definition refuses a server that is listed twice, but objects of an older definition may have one and must not stop.
        endpoints: contract::each_once(&clickhouse.endpoints),
        shards: clickhouse.shards.iter().map(|shard| contract::each_once(&shard.endpoints)).collect(),
        tls: tls(clickhouse.tls.as_ref(), SecretUse::ClickHouseAuthorities, SecretUse::ClickHouseCertificate),
        database: clickhouse.database.clone(),
        table: clickhouse.table.clone(),
        credentials: clickhouse.credentials.as_ref().map(logins::credentials),
        schema: contract::Schema {
            management: management(clickhouse.schema.management),
            // How the table is made is the schema Job's business: an edit of it must not restart gateways. A quorum is a setting of INSERTs.
            // Optional columns are filled by gateways that started when the table had them.
            optional_columns: optional_columns(spec),
            durability: match durability(spec) {
                contract::Durability::Quorum => contract::Durability::Quorum,
                contract::Durability::Process | contract::Durability::Fsync => contract::Durability::Process,
            },
            ..contract::Schema::default()
        },
        insert: contract::Insert {
            format: insert_format(spec),
            settings: settings(spec),
            ..contract::Insert::default()
        },
    }
}

/// How blocks go over the wire.
pub(crate) fn insert_format(spec: &TracePipelineSpec) -> contract::InsertFormat {
    match spec.sink.clickhouse.insert.format.unwrap_or_default() {
        InsertFormat::RowBinary => contract::InsertFormat::RowBinary,
        InsertFormat::Native => contract::InsertFormat::Native,
    }
}

/// Inserts at the same time from one gateway, to all shards together.
pub(crate) fn insert_concurrency(spec: &TracePipelineSpec) -> u32 {
    let shards = u32::try_from(spec.sink.clickhouse.shards.len().max(1)).unwrap_or(u32::MAX);
    contract::Insert::default().concurrency.saturating_mul(shards)
}

fn settings(spec: &TracePipelineSpec) -> BTreeMap<String, String> {
    let settings = spec.sink.clickhouse.insert.settings.iter();
    settings.map(|(name, value)| (name.clone(), value.0.clone())).collect()
}

/// How the table is made; `partitions` decide for how long it remembers tokens.
pub(crate) fn schema(spec: &TracePipelineSpec, partitions: u32, found: &mut Violations) -> contract::Schema {
    let schema = &spec.sink.clickhouse.schema;
    let ttl = schema.ttl.as_deref().and_then(|text| {
        text.parse().map_err(|e| found.add("spec.sink.clickhouse.schema.ttl", format!("{e}"))).ok()
    });
    let paths = |paths: &BTreeMap<String, PathType>| {
        paths.iter().map(|(path, of)| (path.clone(), of.0.clone())).collect()
    };
    let columns = schema.columns.iter().map(|column| contract::ExtraColumn {
        name: column.name.clone(),
        r#type: column.type_name.clone(),
        default: column.default.clone(),
    });
    contract::Schema {
        management: management(schema.management),
        preset: schema.preset.map(preset),
        layout: schema.layout.map(layout),
        engine: schema.engine.map(engine),
        cluster: schema.cluster.clone(),
        ttl,
        order_by: schema.order_by.clone(),
        max_dynamic_paths: schema.max_dynamic_paths,
        typed_paths: contract::TypedPaths {
            resource: paths(&schema.typed_paths.resource),
            span: paths(&schema.typed_paths.span),
        },
        optional_columns: optional_columns(spec),
        columns: columns.collect(),
        views: contract::Views {
            operations: schema.views.contains(&View::Operations),
            trace_times: schema.views.contains(&View::TraceTimes),
        },
        deduplication_window: Some(window_blocks(partitions, contract::Insert::default().max_interval)),
        durability: durability(spec),
    }
}

/// Columns that gateways fill if the table has them. They are a set: another order of the same ones must not restart gateways.
fn optional_columns(spec: &TracePipelineSpec) -> Option<Vec<contract::OptionalColumns>> {
    let asked = spec.sink.clickhouse.schema.optional_columns.as_ref()?;
    let asked: Vec<_> = asked.iter().map(|group| optional_group(*group)).collect();
    Some(contract::OptionalColumns::ALL.into_iter().filter(|group| asked.contains(group)).collect())
}

fn optional_group(group: OptionalColumns) -> contract::OptionalColumns {
    match group {
        OptionalColumns::AttributeKeys => contract::OptionalColumns::AttributeKeys,
        OptionalColumns::ScopeAttributes => contract::OptionalColumns::ScopeAttributes,
        OptionalColumns::SchemaUrls => contract::OptionalColumns::SchemaUrls,
        OptionalColumns::DroppedCounts => contract::OptionalColumns::DroppedCounts,
        OptionalColumns::TraceFlags => contract::OptionalColumns::TraceFlags,
        OptionalColumns::KafkaCoordinates => contract::OptionalColumns::KafkaCoordinates,
        OptionalColumns::KafkaHeaders => contract::OptionalColumns::KafkaHeaders,
    }
}

/// What rows are to survive.
fn durability(spec: &TracePipelineSpec) -> contract::Durability {
    match spec.sink.clickhouse.schema.durability.unwrap_or_default() {
        Durability::Process => contract::Durability::Process,
        Durability::Fsync => contract::Durability::Fsync,
        Durability::Quorum => contract::Durability::Quorum,
    }
}

fn management(management: SchemaManagement) -> contract::SchemaManagement {
    match management {
        SchemaManagement::None => contract::SchemaManagement::None,
        SchemaManagement::Validate => contract::SchemaManagement::Validate,
        SchemaManagement::CreateIfMissing => contract::SchemaManagement::CreateIfMissing,
        SchemaManagement::Evolve => contract::SchemaManagement::Evolve,
    }
}

fn preset(preset: Preset) -> contract::Preset {
    match preset {
        Preset::ClickStack => contract::Preset::ClickStack,
    }
}

fn layout(layout: Layout) -> contract::Layout {
    match layout {
        Layout::Json => contract::Layout::Json,
        Layout::Map => contract::Layout::Map,
        Layout::Nested => contract::Layout::Nested,
    }
}

fn engine(engine: Engine) -> contract::Engine {
    match engine {
        Engine::MergeTree => contract::Engine::MergeTree,
        Engine::ReplicatedMergeTree => contract::Engine::ReplicatedMergeTree,
        Engine::Null => contract::Engine::Null,
    }
}

/// The files of what is named; those of the certificate are one Secret's.
pub(super) fn tls(
    tls: Option<&Tls>,
    authorities: SecretUse,
    certificate: SecretUse,
) -> Option<contract::Tls> {
    let tls = tls?;
    let of_client = |key| tls.client_certificate_secret_ref.as_ref().map(|_| secret_file(certificate, key));
    Some(contract::Tls {
        ca_file: tls.ca_secret_ref.as_ref().map(|_| secret_file(authorities, CA_KEY)),
        certificate_file: of_client(CERTIFICATE_KEY),
        key_file: of_client(PRIVATE_KEY_KEY),
    })
}

fn commit(spec: &TracePipelineSpec) -> contract::Commit {
    match spec.delivery.commit {
        Commit::AfterInsert => contract::Commit::AfterInsert,
        Commit::AfterEnqueue => contract::Commit::AfterEnqueue,
    }
}

fn on_missing(spec: &TracePipelineSpec) -> contract::OnMissing {
    match spec.delivery.dead_letter.on_missing {
        OnMissing::Stop => contract::OnMissing::Stop,
        OnMissing::Skip => contract::OnMissing::Skip,
    }
}

fn queue_mode(spec: &TracePipelineSpec) -> contract::QueueMode {
    match spec.queue.mode {
        QueueMode::Spill => contract::QueueMode::Spill,
        QueueMode::Disabled => contract::QueueMode::Disabled,
    }
}

pub(super) fn log_level(spec: &TracePipelineSpec) -> &'static str {
    match spec.gateway.log_level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_are_said_of_the_spec() {
        for (path, expected) in [
            ("memory.limit", "spec.gateway.resources.limits.memory"),
            ("workers", "spec.gateway.workers"),
            ("shutdown.deadline", "spec.gateway.terminationGracePeriod"),
            ("source.kafka.topics", "spec.source.kafka.topics"),
            ("source", "spec.source"),
            ("source.otlp.logs", "spec.source.otlp.logs"),
            ("source.otlp.tenants.header", "spec.source.otlp.tenants.header"),
            ("source.otlp.limits.requestBytesMax", "spec.source.otlp.requestBytesMax"),
            ("source.otlp.listen", "spec.source.otlp"),
            ("source.otlp.listen.authentication", "spec.source.otlp.authentication"),
            ("source.kafka.sasl.passwordFile", "spec.source.kafka.sasl.secretRef"),
            ("sink.clickhouse.credentials.passwordFile", "spec.sink.clickhouse.credentials.secretRef"),
            ("sink.clickhouse.credentials.tokenFile", "spec.sink.clickhouse.credentials"),
            (
                "source.kafka.sasl.oauth.clientCredentials.clientSecretFile",
                "spec.source.kafka.sasl.oauth.clientCredentials.secretRef",
            ),
            ("sink.clickhouse.table", "spec.sink.clickhouse.table"),
            ("pipeline.name", "metadata.name"),
        ] {
            let mut violations = Violations::default();
            violations.add(path, "m");
            assert_eq!(of_spec(&violations).to_string(), format!("{expected}: m"));
        }
    }
}
