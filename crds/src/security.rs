//! How servers are connected to: TLS, user and password, all from Secrets. No secret ever stands in the resource.
//!
//! One key has one name in every Secret: those of cert-manager and of `kubernetes.io/tls`.

#![allow(clippy::doc_markdown, reason = "the comments on fields are descriptions, which are plain text")]

use crate::trace_pipeline::{SecretRef, TracePipelineSpec};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS to the servers.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// A Secret in the pipeline's namespace with the key ca.crt: PEM certificates of the authorities that may sign the
    /// servers' certificates. When it is not set, those that the gateway's image trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretRef>,

    /// A Secret in the pipeline's namespace with the keys tls.crt and tls.key, such as one of type kubernetes.io/tls: the gateways' own
    /// certificate, for servers that ask for one. When it is not set, gateways present none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_secret_ref: Option<SecretRef>,
}

/// User and password for Kafka.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sasl {
    /// The SASL mechanism: Plain, ScramSha256 or ScramSha512. Plain sends the password in clear text, so use it only with tls.
    pub mechanism: SaslMechanism,

    /// A Secret in the pipeline's namespace with the keys username and password. When it changes, the gateways are
    /// restarted one by one.
    pub secret_ref: SecretRef,
}

/// The SASL mechanism.
#[derive(JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SaslMechanism {
    /// It is sent in clear text.
    Plain,
    /// It is proved by SHA-256, without being sent.
    ScramSha256,
    /// It is proved by SHA-512, without being sent.
    ScramSha512,
}

/// What a Secret is named for. The order is that of the fields in the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretUse {
    /// `source.kafka.tls.caSecretRef`
    KafkaAuthorities,
    /// `source.kafka.tls.clientCertificateSecretRef`
    KafkaCertificate,
    /// `source.kafka.sasl.secretRef`
    KafkaUser,
    /// `sink.clickhouse.tls.caSecretRef`
    ClickHouseAuthorities,
    /// `sink.clickhouse.tls.clientCertificateSecretRef`
    ClickHouseCertificate,
    /// `sink.clickhouse.credentials.secretRef`
    ClickHouseUser,
}

/// Key of the authorities' certificates.
pub const CA_KEY: &str = "ca.crt";
/// Key of the client's certificate.
pub const CERTIFICATE_KEY: &str = "tls.crt";
/// Key of the client's key.
pub const PRIVATE_KEY_KEY: &str = "tls.key";
/// Key of the user.
pub const USERNAME_KEY: &str = "username";
/// Key of the password.
pub const PASSWORD_KEY: &str = "password";

impl SecretUse {
    /// The keys that are read.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::KafkaAuthorities | Self::ClickHouseAuthorities => &[CA_KEY],
            Self::KafkaCertificate | Self::ClickHouseCertificate => &[CERTIFICATE_KEY, PRIVATE_KEY_KEY],
            Self::KafkaUser | Self::ClickHouseUser => &[USERNAME_KEY, PASSWORD_KEY],
        }
    }

    /// Whether Kafka is connected to with it; else `ClickHouse`.
    pub fn is_of_source(self) -> bool {
        matches!(self, Self::KafkaAuthorities | Self::KafkaCertificate | Self::KafkaUser)
    }
}

impl TracePipelineSpec {
    /// Every Secret that the spec names, and for what.
    pub fn secrets(&self) -> Vec<(SecretUse, &str)> {
        let (kafka, clickhouse) = (&self.source.kafka, &self.sink.clickhouse);
        let named = [
            (SecretUse::KafkaAuthorities, kafka.tls.as_ref().and_then(|tls| tls.ca_secret_ref.as_ref())),
            (
                SecretUse::KafkaCertificate,
                kafka.tls.as_ref().and_then(|tls| tls.client_certificate_secret_ref.as_ref()),
            ),
            (SecretUse::KafkaUser, kafka.sasl.as_ref().map(|sasl| &sasl.secret_ref)),
            (
                SecretUse::ClickHouseAuthorities,
                clickhouse.tls.as_ref().and_then(|tls| tls.ca_secret_ref.as_ref()),
            ),
            (
                SecretUse::ClickHouseCertificate,
                clickhouse.tls.as_ref().and_then(|tls| tls.client_certificate_secret_ref.as_ref()),
            ),
            (SecretUse::ClickHouseUser, clickhouse.credentials.as_ref().map(|user| &user.secret_ref)),
        ];
        named.into_iter().filter_map(|(of, named)| Some((of, named?.name.as_str()))).collect()
    }
}
