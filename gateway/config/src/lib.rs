//! The contract between operator and gateway.
//!
//! The operator writes a [`GatewayConfig`] as YAML into a ConfigMap; the gateway reads it with [`parse`] and does not start unless
//! [`GatewayConfig::check`] accepts it. Both use the same arithmetic ([`budget`]) for the memory limit, so that the operator refuses a
//! pipeline for the same reason as the gateway.
//!
//! This package is synchronous and does not use the network. Only [`parse::read`] and [`security::read_secret`] open a file.

pub mod attributes;
pub mod budget;
mod checked;
pub mod client_limits;
pub mod deduplication;
mod durability;
pub mod edge;
pub mod edge_budget;
pub mod exposition;
#[cfg(test)]
mod fixtures;
mod gateway_config;
pub mod insert_settings;
pub mod kafka_properties;
pub mod log_filter;
mod optional_columns;
pub mod otlp_source;
pub mod parse;
pub mod pod_uid;
mod preset;
mod remaining;
pub mod schema;
pub mod security;
mod state;
mod units;
mod violation;

pub use attributes::{AttributeAction, AttributeRule, Attributes, AttributesOf, UnreadableLetters};
pub use budget::{Budget, Shortfall, Sizing};
pub use checked::{
    CheckedConfig, DEAD_LETTER_SUFFIX, SharedServer, each_once, in_two_shards, is_same_address, left_out,
};
pub use client_limits::{ClientLimits, EdgeLimits, OtlpLimits};
pub use durability::Durability;
pub use edge::{Authentication, CheckedEdgeConfig, EdgeConfig, EdgeKafka, EdgeListen, ServerTls, Tenants};
pub use gateway_config::{
    Admin, ClickHouse, Commit, DeadLetter, Delivery, Format, GatewayConfig, GroupProtocol, InitialOffset,
    Insert, InsertFormat, Kafka, Log, LogFormat, Memory, OnMissing, Pipeline, Queue, QueueMode,
    SESSION_SECONDS, Shutdown, Sink, Source,
};
pub use optional_columns::OptionalColumns;
pub use otlp_source::{OtlpAddresses, OtlpSource, Reading};
pub use preset::Preset;
pub use remaining::Remaining;
pub use schema::{Engine, ExtraColumn, Layout, Schema, SchemaManagement, TypedPaths, Views};
pub use security::{
    AwsKeys, AwsMskIam, ClientCredentials, Credentials, OAuth, Sasl, SaslMechanism, SecretFileError, Tls,
};
pub use state::{
    DeliveryState, GatewaySample, GatewayState, INSERT_ERROR_CHARS_MAX, InsertErrorState,
    OpenTransactionState, OtherServices, PartitionState, PodIdentity, QueueState, Readiness, STATE_BYTES_MAX,
    STATE_PATH, STATE_VERSION, ServiceVolume, ServiceVolumes, StateError, TablePartsState, TopicState,
    UNCONNECTED_CHARS_MAX, UnconnectedState, UnfetchedCause, UnfetchedState, VolumeFullState, VolumeLimit,
    cut_in_the_middle,
};
pub use units::{ByteSize, Duration, UnitError};
pub use violation::{Violation, Violations};

/// The version of this contract. A gateway image accepts only the versions that it knows; the operator never gives an image a config of
/// another version. It is raised when a field changes its meaning or a new required field is added.
pub const CONTRACT_VERSION: u32 = 1;
