//! How servers are connected to: TLS, user and password, all from Secrets. No secret ever stands in the resource.
//!
//! A reference names a Secret and the keys that are read of it. The defaults are the keys of cert-manager and of `kubernetes.io/tls`; Secrets
//! that other tools make are used as they are, by their own keys.

#![allow(clippy::doc_markdown, reason = "the comments on fields are descriptions, which are plain text")]

mod client_secrets;
mod named_secret;
mod oauth;

pub use named_secret::{
    ACCESS_KEY_ID_KEY, BASIC_USERS_KEY, BEARER_TOKENS_KEY, CA_KEY, CERTIFICATE_KEY, CLIENT_ID_KEY,
    CLIENT_SECRET_KEY, KeyUse, NamedSecret, PASSWORD_KEY, PRIVATE_KEY_KEY, SECRET_ACCESS_KEY_KEY,
    SESSION_TOKEN_KEY, SecretUse, Side, TOKEN_KEY, USERNAME_KEY, UsedKey,
};
pub use oauth::{
    AwsMskIam, AwsSecretRef, ClientAssertion, ClientAuthentication, ClientCredentials, ClientSecretRef,
    OAuth, SaslExtension, ServiceAccountToken,
};

use crate::{repeated::repeated_at, texts};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS to the servers.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// A Secret in the pipeline's namespace with PEM certificates of the authorities that may sign the servers' certificates. When it is not
    /// set, those that the gateway's image trusts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<CaSecretRef>,

    /// A Secret in the pipeline's namespace with the gateways' own certificate and its key, such as one of type kubernetes.io/tls, for
    /// servers that ask for one. When it is not set, gateways present none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_secret_ref: Option<CertificateSecretRef>,
}

/// A Secret with the certificates of authorities.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_name())]
    pub name: String,

    /// The key of the certificates. When it is not set, ca.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub key: Option<String>,
}

/// A Secret with a certificate and its key.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_name())]
    pub name: String,

    /// The key of the certificate and its chain, in PEM. When it is not set, tls.crt. Strimzi writes a KafkaUser's certificate to user.crt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub certificate_key: Option<String>,

    /// The key of the certificate's private key, in PEM and not encrypted. When it is not set, tls.key. Strimzi writes a KafkaUser's private key
    /// to user.key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub private_key_key: Option<String>,
}

/// A Secret with a password, and with the user's name unless that stands beside it.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UserSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_name())]
    pub name: String,

    /// The key of the user's name. When it is not set, username; none is read when the name stands in username beside secretRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub username_key: Option<String>,

    /// The key of the password. When it is not set, password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub password_key: Option<String>,
}

/// A Secret with a token.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_name())]
    pub name: String,

    /// The key of the token. When it is not set, token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub key: Option<String>,
}

/// A Secret with bearer tokens.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BearerTokensSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_name())]
    pub name: String,

    /// The key of the tokens, one a line. When it is not set, tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub key: Option<String>,
}

/// A Secret with users and their passwords.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BasicUsersSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_name())]
    pub name: String,

    /// The key of the users, one a line, each user:password. When it is not set, users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = texts::secret_key())]
    pub key: Option<String>,
}

/// The login to Kafka: user and password, or tokens.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.username) || !has(self.secretRef) || !has(self.secretRef.usernameKey)")
        .message("sasl has username and secretRef.usernameKey: keep username if the Secret has no key for it, else remove username"),
    validation = repeated_at(&["secretRef", "oauth: is set, but mechanism is not"], Rule::new("self.mechanism == 'OAuthBearer' || (has(self.secretRef) && !has(self.oauth))")
        .message("sasl.mechanism Plain, ScramSha256 or ScramSha512 needs secretRef and has no oauth: set secretRef, or mechanism OAuthBearer")),
    validation = repeated_at(&["oauth"], Rule::new("self.mechanism != 'OAuthBearer' || (has(self.oauth) && !has(self.secretRef) && !has(self.username))")
        .message("sasl.mechanism OAuthBearer needs oauth and has no username and no secretRef: a client's id and secret stand in \
                  oauth.clientCredentials"))
)]
pub struct Sasl {
    /// The SASL mechanism: Plain, ScramSha256, ScramSha512 or OAuthBearer. Plain sends the password in clear text and OAuthBearer the token,
    /// so use them only with tls.
    pub mechanism: SaslMechanism,

    /// The user's name, for a Secret without one, such as that of a KafkaUser of Strimzi (where it is the KafkaUser's name). When it is not
    /// set, the Secret must contain the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = texts::form(
        "^[^[:cntrl:]]+$",
        "username has no control characters, such as a line break"
    ))]
    pub username: Option<String>,

    /// A Secret in the pipeline's namespace with the password and, unless username is set, the user's name. When it changes, the gateways
    /// are restarted one by one. It is required, except with OAuthBearer, where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<UserSecretRef>,

    /// Where tokens come from, with mechanism OAuthBearer. When it is not set, there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<Box<OAuth>>,
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
    /// A token is sent.
    OAuthBearer,
}
