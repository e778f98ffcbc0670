//! Tokens for Kafka: where they come from.

use super::CaSecretRef;
use crate::{repeated::repeated_at, texts};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where tokens for Kafka come from.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
        "[has(self.clientCredentials), has(self.serviceAccountToken), has(self.awsMskIam)].exists_one(is_set, is_set)")
    .message("oauth has exactly one of clientCredentials, serviceAccountToken and awsMskIam"))]
pub struct OAuth {
    /// A token endpoint gives tokens for a client's id and a secret or a signed assertion (OpenID Connect, OAuth 2.0 client credentials):
    /// Keycloak, Entra ID, Okta, Confluent Cloud. When it is not set, none is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_credentials: Option<ClientCredentials>,

    /// The token of the pods' own ServiceAccount, for brokers that trust the cluster's issuer. When it is not set, none is mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_token: Option<ServiceAccountToken>,

    /// Amazon MSK with IAM: keys of a Secret, or of the pods' identity, sign each token. {} is the pods' identity, and the region in the
    /// brokers' names. When it is not set, nothing is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws_msk_iam: Option<AwsMskIam>,

    /// SASL extensions that are sent with each token, by name; at most 16. A name has letters only. Confluent Cloud wants logicalCluster and identityPoolId.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    #[x_kube(validation = repeated_at(&["auth"], Rule::new("self.all(k, k != 'auth')")
        .message("an extension of oauth cannot have the name auth, under which the token itself is sent")))]
    pub extensions: BTreeMap<String, SaslExtension>,
}

/// The value of a SASL extension or of a parameter.
#[derive(JsonSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SaslExtension(
    #[schemars(length(max = 1024), extend("x-kubernetes-validations" = [texts::sasl_extension()]))] pub String,
);

/// The client credentials grant of OAuth 2.0.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.clientId) || !has(self.secretRef) || !has(self.secretRef.clientIdKey)")
        .message("clientCredentials has clientId and secretRef.clientIdKey: keep clientId if the Secret has no key for it, else remove \
                  clientId"),
    validation = repeated_at(&["secretRef"], Rule::new("has(self.secretRef) != has(self.clientAssertion)")
        .message("clientCredentials has exactly one of secretRef (the client's secret) and clientAssertion (a token of the pods' ServiceAccount)")),
    validation = Rule::new("!has(self.clientAssertion) || has(self.clientId)")
        .message("clientAssertion needs clientId: without secretRef there is no Secret that has the id"),
    validation = repeated_at(&["parameters.client_assertion", "parameters.client_assertion_type"], Rule::new(
        "!has(self.clientAssertion) || !has(self.parameters) \
         || self.parameters.all(k, !(k in ['client_assertion', 'client_assertion_type']))")
        .message("parameters of clientCredentials has client_assertion or client_assertion_type, which clientAssertion decides: remove them"))
)]
pub struct ClientCredentials {
    /// The URL of the token endpoint, such as https://login.example.com/realms/kafka/protocol/openid-connect/token. http sends the client's
    /// secret in clear text.
    #[schemars(length(min = 8, max = 1024))]
    #[x_kube(validation = Rule::new("self.matches('^https?://[^/@ ]+(/[^@ ]*)?$')")
        .message("tokenEndpoint is a URL without a user, such as https://login.example.com/oauth2/token"))]
    pub token_endpoint: String,

    /// The client's id, for a Secret without one, and with clientAssertion. When it is not set, the Secret contains the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = texts::form(
        "^[^[:cntrl:]]+$",
        "clientId has no control characters, such as a line break"
    ))]
    pub client_id: Option<String>,

    /// A Secret in the pipeline's namespace with the client's secret and, unless clientId is set, the client's id. When it changes, the
    /// gateways are restarted one by one. It is required, except with clientAssertion, where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<ClientSecretRef>,

    /// A token of the pods' ServiceAccount instead of a secret, for endpoints that trust the cluster's issuer (RFC 7523; workload identity of
    /// Entra ID). {} is a token for Entra ID. It is read again for each request. When it is not set, secretRef has a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_assertion: Option<ClientAssertion>,

    /// How id and secret are sent: Basic, in the header Authorization (the default), or Post, in the body of the request. An assertion is
    /// always in the body.
    #[serde(default)]
    pub authentication: ClientAuthentication,

    /// The scope that is asked for. When it is not set, the server's default. Entra ID wants https://NAMESPACE.servicebus.windows.net/.default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = texts::form(
        "^[ -~]+$",
        "scope is ASCII without control characters, such as api://kafka/.default"
    ))]
    pub scope: Option<String>,

    /// More parameters of the request by name, such as audience or resource; at most 16.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    #[x_kube(validation = repeated_at(
        &["grant_type", "client_id", "client_secret"],
        Rule::new("self.all(k, !(k in ['grant_type', 'client_id', 'client_secret', 'scope']))")
        .message("parameters of clientCredentials has a name that another field decides: grant_type, client_id, client_secret or scope")))]
    pub parameters: BTreeMap<String, SaslExtension>,

    /// A Secret in the pipeline's namespace with PEM certificates of the authorities that may sign the endpoint's certificate. When it is not
    /// set, those that the image trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<CaSecretRef>,
}

/// A Secret with a client's secret, and with its id unless that stands beside it.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_name())]
    pub name: String,

    /// The key of the client's id. When it is not set, client-id; none is read when the id stands in clientId beside secretRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub client_id_key: Option<String>,

    /// The key of the client's secret. When it is not set, client-secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub client_secret_key: Option<String>,
}

/// A token of the pods' ServiceAccount that a token endpoint takes instead of a client's secret.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientAssertion {
    /// Whom the token is for: what the token endpoint expects as its audience. Default api://AzureADTokenExchange, that of Entra ID.
    #[serde(default = "assertion_audience")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = texts::audience())]
    pub audience: String,

    /// How long a token lives, in seconds: 600 to 86400. When it is not set, 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 600, max = 86_400))]
    pub expiration_seconds: Option<i64>,
}

fn assertion_audience() -> String {
    "api://AzureADTokenExchange".to_owned()
}

/// The login to a cluster of Amazon MSK with IAM.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AwsMskIam {
    /// The region of the cluster, such as eu-central-1. When it is not set, that in the host name of a broker
    /// (NAME.kafka.REGION.amazonaws.com).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]+(-[a-z0-9]+)+$')")
        .message("region is a region of AWS, such as eu-central-1"))]
    pub region: Option<String>,

    /// A Secret in the pipeline's namespace with keys of a user of AWS. When it changes, the gateways are restarted one by one. When it is not
    /// set, the identity of the pods: EKS Pod Identity, or a role for their ServiceAccount (IRSA).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<AwsSecretRef>,
}

/// A Secret with keys of AWS.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AwsSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_name())]
    pub name: String,

    /// The key of the access key's id. When it is not set, access-key-id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub access_key_id_key: Option<String>,

    /// The key of the secret access key. When it is not set, secret-access-key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub secret_access_key_key: Option<String>,

    /// The key of the session token that temporary keys have. When it is not set, none is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub session_token_key: Option<String>,
}

/// How a client's id and secret are sent.
#[derive(JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientAuthentication {
    /// In the header Authorization.
    #[default]
    Basic,
    /// In the body of the request.
    Post,
}

/// A token of the pods' ServiceAccount, which the kubelet mounts and replaces.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountToken {
    /// Whom the token is for: what brokers expect as its audience.
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = texts::audience())]
    pub audience: String,

    /// How long a token lives, in seconds: 600 to 86400. When it is not set, 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 600, max = 86_400))]
    pub expiration_seconds: Option<i64>,
}
