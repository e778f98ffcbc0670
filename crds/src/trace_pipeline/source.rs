//! Where spans come from: topics of Kafka, or OTLP clients.

use crate::{
    repeated::repeated_at,
    security::{Sasl, Tls},
    trace_connection::ConnectionRef,
    trace_pipeline::otlp::OtlpSource,
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What another field or the gateway decides. The gateway's config knows the same names, with what decides each; here
/// they are refused at once. In two rules, for what one may cost the API server.
const OWNED: &str = "self.all(k, !(k in ['bootstrap.servers', 'metadata.broker.list', 'auto.offset.reset', 'security.protocol', \
    'fetch.message.max.bytes', 'max.partition.fetch.bytes', 'fetch.max.bytes', 'message.max.bytes', \
    'receive.message.max.bytes', 'partition.assignment.strategy', 'session.timeout.ms', 'heartbeat.interval.ms', \
    'max.poll.interval.ms', 'isolation.level', 'check.crcs', 'acks', 'request.required.acks', 'message.timeout.ms', \
    'delivery.timeout.ms', 'retries', 'message.send.max.retries', 'max.in.flight', \
    'max.in.flight.requests.per.connection', 'transactional.id', 'linger.ms', 'allow.auto.create.topics', \
    'topic.metadata.propagation.max.ms', 'fetch.queue.backoff.ms', 'fetch.error.backoff.ms', 'fetch.wait.max.ms', \
    'statistics.interval.ms', 'topic.metadata.refresh.interval.ms', 'socket.keepalive.enable', 'reconnect.backoff.ms', \
    'reconnect.backoff.max.ms', 'log.connection.close']) && !k.startsWith('ssl.') && !k.startsWith('sasl.') && !k.startsWith('group.') \
    && !k.startsWith('client.'))";

/// More beginnings of such names.
const OWNED_BEGINNINGS: &str = "self.all(k, !k.startsWith('enable.') && !k.startsWith('auto.commit.') \
    && !k.startsWith('queued.') && !k.startsWith('sluice.') && !k.startsWith('plugin.') \
    && !k.startsWith('compression.') && !k.startsWith('batch.') && !k.startsWith('queue.buffering.'))";

/// The form of each broker.
pub(crate) const BROKERS: &str = "self.all(s, s.matches('^[^/@, ]+:[1-9][0-9]{0,4}$'))";
/// What is said of another form.
pub(crate) const BROKERS_SAID: &str = "each of bootstrapServers is host:port, such as kafka:9092";

/// That a login with IAM knows the region.
pub(crate) const AWS_REGION: &str = "!has(self.sasl) || !has(self.sasl.oauth) || !has(self.sasl.oauth.awsMskIam) \
    || has(self.sasl.oauth.awsMskIam.region) || !has(self.bootstrapServers) \
    || self.bootstrapServers.exists(s, s.matches('[.]kafka(-serverless)?[.][a-z0-9-]+[.]amazonaws[.]com([.]cn)?:[0-9]+$'))";
/// Where the planner refuses the same.
pub(crate) const AWS_REGION_AT: &str = "sasl.oauth.awsMskIam.region";
/// What is said without it.
pub(crate) const AWS_REGION_SAID: &str = "awsMskIam needs region: no host of bootstrapServers names one, as NAME.kafka.eu-central-1.amazonaws.com does";

/// That a login with IAM uses TLS.
pub(crate) const AWS_TLS: &str =
    "!has(self.sasl) || !has(self.sasl.oauth) || !has(self.sasl.oauth.awsMskIam) || has(self.tls)";
/// What is said without it.
pub(crate) const AWS_TLS_SAID: &str =
    "awsMskIam needs tls: brokers of MSK take logins with IAM over TLS only; set tls: {}";

/// Where spans come from: exactly one of kafka and otlp.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.kafka) && self.kafka != null) != (has(self.otlp) && self.otlp != null)")
        .message("exactly one of kafka and otlp is set in source: gateways read topics of Kafka, or accept OTLP themselves; make a pipeline \
                  for each"),
    validation = Rule::new("(has(self.kafka) && self.kafka != null) == (has(oldSelf.kafka) && oldSelf.kafka != null)")
        .message("source.kafka and source.otlp cannot replace each other: what gateways keep on their volumes would be left there; make \
                  another pipeline")
)]
pub struct Source {
    /// Topics of Kafka. Either this or otlp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kafka: Option<KafkaSource>,

    /// OTLP that gateways accept themselves, without Kafka. Either this or kafka.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otlp: Option<Box<OtlpSource>>,
}

/// Brokers, topics and how they are read.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = repeated_at(&["bootstrapServers: at least one broker"], Rule::new("has(self.bootstrapServers) != has(self.connectionRef)")
        .message("exactly one of bootstrapServers and connectionRef is set in source.kafka: with connectionRef, the brokers stand in the \
                  TraceConnection")),
    validation = Rule::new("!has(self.connectionRef) || (!has(self.tls) && !has(self.sasl))")
        .message("with source.kafka.connectionRef, tls and sasl stand in the TraceConnection: remove them here"),
    validation = repeated_at(&[AWS_REGION_AT], Rule::new(AWS_REGION).message(AWS_REGION_SAID)),
    validation = Rule::new(AWS_TLS).message(AWS_TLS_SAID)
)]
pub struct KafkaSource {
    /// A TraceConnection in the pipeline's namespace with spec.kafka, instead of bootstrapServers, tls and sasl. When it is not set, they stand
    /// here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_ref: Option<ConnectionRef>,

    /// Brokers to ask first, each as host:port; 1 to 16. Either these or connectionRef.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 3, max = 261)))]
    #[x_kube(
        validation = Rule::new(BROKERS).message(BROKERS_SAID),
        merge_strategy = ListMerge::Atomic
    )]
    pub bootstrap_servers: Vec<String>,

    /// TLS to the brokers. When it is not set, none; {} is TLS with the authorities that the image trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,

    /// User and password. When it is not set, the brokers ask for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sasl: Option<Sasl>,

    /// Topics by name; 1 to 64.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 249)))]
    #[x_kube(
        validation = Rule::new("self.all(t, t.matches('^[a-zA-Z0-9._-]+$'))")
            .message("each of topics is the name of a topic: a-z, A-Z, 0-9, '.', '_' and '-', such as otlp_spans"),
        merge_strategy = ListMerge::Set
    )]
    pub topics: Vec<String>,

    /// The consumer group. When it is not set, or empty, <namespace>.<name>. Once gateways have read, another one is refused, since it would
    /// read everything again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    #[x_kube(validation = Rule::new("oldSelf == '' || self == '' || self == oldSelf")
        .message("consumerGroup cannot be changed once it is set: another group would read everything again"))]
    pub consumer_group: Option<String>,

    /// How gateways are members of the group. Classic (the default): one member assigns the partitions; a member that is back within 45 s
    /// gets its own again, and no other partition moves. Consumer (KIP-848, brokers from 4.0 on): the brokers assign them and no member
    /// waits for another, but a restart moves partitions. During a change, the group may have members of both.
    #[serde(default)]
    pub group_protocol: GroupProtocol,

    /// Where reading begins in a partition without a committed offset: Earliest (the default) or Latest. A partition that is added while a
    /// gateway runs is always read from its oldest message.
    #[serde(default)]
    pub initial_offset: InitialOffset,

    /// How the messages are encoded: OtlpProto (the default) or OtlpJson. With OtlpJson each worker needs memory for two of
    /// the largest record batches more.
    #[serde(default)]
    pub format: Format,

    /// The largest record batch that must be read, decompressed: a whole number of Ki or Mi, 64Ki to 256Mi. Default 1Mi.
    /// It decides how much memory each partition needs.
    #[serde(default = "record_batch_bytes_max")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[1-9][0-9]*(Ki|Mi)$') && quantity(self).compareTo(quantity('64Ki')) >= 0 \
         && quantity(self).compareTo(quantity('256Mi')) <= 0")
        .message("recordBatchBytesMax is a whole number of Ki or Mi from 64Ki to 256Mi, such as 1Mi"))]
    pub record_batch_bytes_max: String,

    /// More settings of librdkafka by name, at most 32, for what no other field decides, such as socket.receive.buffer.bytes. A setting
    /// that another field or the gateway decides is refused with the name of that field. The operator refuses a setting that librdkafka does
    /// not know, and a value that it does not take (SpecInvalid). Settings of connections hold for the operator as well.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(
        validation = repeated_at(&["*: cannot be set here"], Rule::new(OWNED)
            .message("properties has a name that another field or the gateway decides: where it reads (bootstrap.servers, \
                      auto.offset.reset), security (ssl.*, sasl.*, security.protocol), how it is a member of its group (group.*, \
                      client.*, session.timeout.ms), sizes (*.max.bytes), dead letters (acks, retries), or one that is tuned")),
        validation = repeated_at(&["*: cannot be set here"], Rule::new(OWNED_BEGINNINGS)
            .message("properties has a name with a beginning that another field or the gateway decides: enable., auto.commit., \
                      queued., sluice., plugin., compression., batch. or queue.buffering."))
    )]
    pub properties: BTreeMap<String, PropertyValue>,
}

/// The value of a setting, as text.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PropertyValue(#[schemars(length(max = 1024))] pub String);

fn record_batch_bytes_max() -> String {
    "1Mi".to_owned()
}

/// The protocol between the members of a consumer group and its coordinator.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupProtocol {
    /// One of the members divides the partitions; gateways are static members.
    #[default]
    Classic,
    /// The coordinator divides them (KIP-848); gateways are dynamic members.
    Consumer,
}

/// Where a partition without a committed offset is begun.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitialOffset {
    /// At the oldest message that Kafka still has.
    #[default]
    Earliest,
    /// Behind the newest message.
    Latest,
}

/// How the messages are encoded.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// An OTLP export request as protobuf, the Collector's `otlp_proto`.
    #[default]
    OtlpProto,
    /// An OTLP export request as JSON, the Collector's `otlp_json`.
    OtlpJson,
}
