//! The Secrets that a spec names: for what, and which of their keys are read.

use super::{
    AwsSecretRef, CaSecretRef, CertificateSecretRef, ClientCredentials, ClientSecretRef, Sasl, Tls,
    UserSecretRef, client_secrets::of_clients,
};
use crate::{
    trace_connection::{ClickHouseConnection, KafkaConnection},
    trace_pipeline::{Credentials, TracePipelineSpec},
};

/// Key of the authorities' certificates where the spec names none.
pub const CA_KEY: &str = "ca.crt";
/// Key of the client's certificate where the spec names none.
pub const CERTIFICATE_KEY: &str = "tls.crt";
/// Key of the client's key where the spec names none.
pub const PRIVATE_KEY_KEY: &str = "tls.key";
/// Key of the user where the spec names none.
pub const USERNAME_KEY: &str = "username";
/// Key of the password where the spec names none.
pub const PASSWORD_KEY: &str = "password";

/// Key of a client's id where the spec names none.
pub const CLIENT_ID_KEY: &str = "client-id";
/// Key of a client's secret where the spec names none.
pub const CLIENT_SECRET_KEY: &str = "client-secret";
/// Key of a token where the spec names none.
pub const TOKEN_KEY: &str = "token";

/// Key of the id of an access key of AWS where the spec names none.
pub const ACCESS_KEY_ID_KEY: &str = "access-key-id";
/// Key of a secret access key of AWS where the spec names none.
pub const SECRET_ACCESS_KEY_KEY: &str = "secret-access-key";
/// The file of a session token of AWS. The spec names its key, or none is read.
pub const SESSION_TOKEN_KEY: &str = "session-token";

/// Key of the bearer tokens of OTLP clients where the spec names none.
pub const BEARER_TOKENS_KEY: &str = "tokens";
/// Key of the users of OTLP clients where the spec names none.
pub const BASIC_USERS_KEY: &str = "users";

/// Whose connections a Secret is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Those to Kafka; with `source.otlp`, those of OTLP clients.
    Source,
    /// Those to `ClickHouse`.
    Sink,
    /// Those of the edge's clients.
    Edge,
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
    /// `source.kafka.sasl.oauth.clientCredentials.secretRef`
    KafkaClient,
    /// `source.kafka.sasl.oauth.clientCredentials.caSecretRef`
    KafkaTokenAuthorities,
    /// `source.kafka.sasl.oauth.awsMskIam.secretRef`
    KafkaAws,
    /// `source.otlp.tls.certificateSecretRef`
    OtlpCertificate,
    /// `source.otlp.tls.clientCaSecretRef`
    OtlpClientAuthorities,
    /// `source.otlp.authentication.bearerTokensSecretRef`
    OtlpBearerTokens,
    /// `source.otlp.authentication.basicUsersSecretRef`
    OtlpBasicUsers,
    /// `sink.clickhouse.tls.caSecretRef`
    ClickHouseAuthorities,
    /// `sink.clickhouse.tls.clientCertificateSecretRef`
    ClickHouseCertificate,
    /// `sink.clickhouse.credentials.secretRef`
    ClickHouseUser,
    /// `sink.clickhouse.credentials.tokenSecretRef`
    ClickHouseToken,
    /// `edge.tls.certificateSecretRef`
    EdgeCertificate,
    /// `edge.tls.clientCaSecretRef`
    EdgeClientAuthorities,
    /// `edge.authentication.bearerTokensSecretRef`
    EdgeBearerTokens,
    /// `edge.authentication.basicUsersSecretRef`
    EdgeBasicUsers,
}

/// What the value of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyUse {
    /// Certificates of authorities.
    Authorities,
    /// The client's certificate.
    Certificate,
    /// The key of that certificate.
    PrivateKey,
    /// The user's name.
    Username,
    /// The password.
    Password,
    /// The id of an OAuth client.
    ClientId,
    /// The secret of an OAuth client.
    ClientSecret,
    /// A token.
    Token,
    /// The id of an access key of AWS.
    AccessKeyId,
    /// A secret access key of AWS.
    SecretAccessKey,
    /// The token of a session of AWS.
    SessionToken,
    /// Bearer tokens, one a line.
    BearerTokens,
    /// Users and their passwords, one a line.
    BasicUsers,
}

/// A key that is read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsedKey {
    /// What its value is.
    pub of: KeyUse,
    /// Its name in the Secret.
    pub key: String,
}

/// A Secret that the spec names, for one use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSecret<'a> {
    /// For what.
    pub of: SecretUse,
    /// Its name.
    pub name: &'a str,
    /// The keys that are read, each once.
    pub keys: Vec<UsedKey>,
}

impl SecretUse {
    /// The field that names the Secret.
    pub fn field(self) -> &'static str {
        match self {
            Self::KafkaAuthorities => "spec.source.kafka.tls.caSecretRef",
            Self::KafkaCertificate => "spec.source.kafka.tls.clientCertificateSecretRef",
            Self::KafkaUser => "spec.source.kafka.sasl.secretRef",
            Self::KafkaClient => "spec.source.kafka.sasl.oauth.clientCredentials.secretRef",
            Self::KafkaTokenAuthorities => "spec.source.kafka.sasl.oauth.clientCredentials.caSecretRef",
            Self::KafkaAws => "spec.source.kafka.sasl.oauth.awsMskIam.secretRef",
            Self::OtlpCertificate => "spec.source.otlp.tls.certificateSecretRef",
            Self::OtlpClientAuthorities => "spec.source.otlp.tls.clientCaSecretRef",
            Self::OtlpBearerTokens => "spec.source.otlp.authentication.bearerTokensSecretRef",
            Self::OtlpBasicUsers => "spec.source.otlp.authentication.basicUsersSecretRef",
            Self::ClickHouseAuthorities => "spec.sink.clickhouse.tls.caSecretRef",
            Self::ClickHouseCertificate => "spec.sink.clickhouse.tls.clientCertificateSecretRef",
            Self::ClickHouseUser => "spec.sink.clickhouse.credentials.secretRef",
            Self::ClickHouseToken => "spec.sink.clickhouse.credentials.tokenSecretRef",
            Self::EdgeCertificate => "spec.edge.tls.certificateSecretRef",
            Self::EdgeClientAuthorities => "spec.edge.tls.clientCaSecretRef",
            Self::EdgeBearerTokens => "spec.edge.authentication.bearerTokensSecretRef",
            Self::EdgeBasicUsers => "spec.edge.authentication.basicUsersSecretRef",
        }
    }

    /// Whose connections it is for.
    pub fn side(self) -> Side {
        match self {
            Self::KafkaAuthorities
            | Self::KafkaCertificate
            | Self::KafkaUser
            | Self::KafkaClient
            | Self::KafkaTokenAuthorities
            | Self::KafkaAws
            | Self::OtlpCertificate
            | Self::OtlpClientAuthorities
            | Self::OtlpBearerTokens
            | Self::OtlpBasicUsers => Side::Source,
            Self::ClickHouseAuthorities
            | Self::ClickHouseCertificate
            | Self::ClickHouseUser
            | Self::ClickHouseToken => Side::Sink,
            Self::EdgeCertificate
            | Self::EdgeClientAuthorities
            | Self::EdgeBearerTokens
            | Self::EdgeBasicUsers => Side::Edge,
        }
    }
}

impl KeyUse {
    /// The key where the spec names none. Pods have the value in a file of this name, whatever its key.
    pub fn default_key(self) -> &'static str {
        match self {
            Self::Authorities => CA_KEY,
            Self::Certificate => CERTIFICATE_KEY,
            Self::PrivateKey => PRIVATE_KEY_KEY,
            Self::Username => USERNAME_KEY,
            Self::Password => PASSWORD_KEY,
            Self::ClientId => CLIENT_ID_KEY,
            Self::ClientSecret => CLIENT_SECRET_KEY,
            Self::Token => TOKEN_KEY,
            Self::AccessKeyId => ACCESS_KEY_ID_KEY,
            Self::SecretAccessKey => SECRET_ACCESS_KEY_KEY,
            Self::SessionToken => SESSION_TOKEN_KEY,
            Self::BearerTokens => BEARER_TOKENS_KEY,
            Self::BasicUsers => BASIC_USERS_KEY,
        }
    }

    /// The field of the reference that names the key.
    pub fn field(self) -> &'static str {
        match self {
            Self::Authorities | Self::Token | Self::BearerTokens | Self::BasicUsers => "key",
            Self::Certificate => "certificateKey",
            Self::PrivateKey => "privateKeyKey",
            Self::Username => "usernameKey",
            Self::Password => "passwordKey",
            Self::ClientId => "clientIdKey",
            Self::ClientSecret => "clientSecretKey",
            Self::AccessKeyId => "accessKeyIdKey",
            Self::SecretAccessKey => "secretAccessKeyKey",
            Self::SessionToken => "sessionTokenKey",
        }
    }
}

impl UsedKey {
    pub(super) fn new(of: KeyUse, named: Option<&String>) -> Self {
        Self { of, key: named.cloned().unwrap_or_else(|| of.default_key().to_owned()) }
    }

    /// Whether it is the key that is read where the spec names none.
    pub fn is_default(&self) -> bool {
        self.key == self.of.default_key()
    }
}

impl CaSecretRef {
    /// The keys that are read.
    pub fn keys(&self) -> Vec<UsedKey> {
        vec![UsedKey::new(KeyUse::Authorities, self.key.as_ref())]
    }
}

impl CertificateSecretRef {
    /// The keys that are read.
    pub fn keys(&self) -> Vec<UsedKey> {
        vec![
            UsedKey::new(KeyUse::Certificate, self.certificate_key.as_ref()),
            UsedKey::new(KeyUse::PrivateKey, self.private_key_key.as_ref()),
        ]
    }
}

impl UserSecretRef {
    /// The keys that are read; `username` is the name that stands beside the reference.
    pub fn keys(&self, username: Option<&str>) -> Vec<UsedKey> {
        let user = username.is_none().then(|| UsedKey::new(KeyUse::Username, self.username_key.as_ref()));
        user.into_iter().chain([UsedKey::new(KeyUse::Password, self.password_key.as_ref())]).collect()
    }
}

impl ClientSecretRef {
    /// The keys that are read; `id` is the one that stands beside the reference.
    pub fn keys(&self, id: Option<&str>) -> Vec<UsedKey> {
        let client = id.is_none().then(|| UsedKey::new(KeyUse::ClientId, self.client_id_key.as_ref()));
        let secret = UsedKey::new(KeyUse::ClientSecret, self.client_secret_key.as_ref());
        client.into_iter().chain([secret]).collect()
    }
}

impl AwsSecretRef {
    /// The keys that are read.
    pub fn keys(&self) -> Vec<UsedKey> {
        let id = UsedKey::new(KeyUse::AccessKeyId, self.access_key_id_key.as_ref());
        let secret = UsedKey::new(KeyUse::SecretAccessKey, self.secret_access_key_key.as_ref());
        let session = self.session_token_key.as_ref();
        let session = session.map(|key| UsedKey::new(KeyUse::SessionToken, Some(key)));
        [id, secret].into_iter().chain(session).collect()
    }
}

impl TracePipelineSpec {
    /// Every Secret that the spec names, in the order of [`SecretUse`]. Those that a referenced `TraceConnection` names are not among them.
    pub fn secrets(&self) -> Vec<NamedSecret<'_>> {
        let (source, clickhouse) = (&self.source, &self.sink.clickhouse);
        let kafka = source.kafka.iter().flat_map(|kafka| of_kafka(kafka.tls.as_ref(), kafka.sasl.as_ref()));
        let otlp = source.otlp.iter().flat_map(|otlp| of_clients(otlp.listeners(), SecretUse::OF_OTLP));
        let sink = of_clickhouse(clickhouse.tls.as_ref(), clickhouse.credentials.as_ref());
        let edge = self.edge.iter().flat_map(|edge| of_clients(edge.listeners(), SecretUse::OF_EDGE));
        kafka.chain(otlp).chain(sink).chain(edge).collect()
    }
}

impl KafkaConnection {
    /// Every Secret that it names.
    pub fn secrets(&self) -> Vec<NamedSecret<'_>> {
        of_kafka(self.tls.as_ref(), self.sasl.as_ref())
    }
}

impl ClickHouseConnection {
    /// Every Secret that it names.
    pub fn secrets(&self) -> Vec<NamedSecret<'_>> {
        of_clickhouse(self.tls.as_ref(), self.credentials.as_ref())
    }
}

fn of_kafka<'a>(tls: Option<&'a Tls>, sasl: Option<&'a Sasl>) -> Vec<NamedSecret<'a>> {
    let mut named = of_tls(tls, SecretUse::KafkaAuthorities, SecretUse::KafkaCertificate);
    named.extend(sasl.into_iter().flat_map(of_sasl));
    named
}

fn of_clickhouse<'a>(tls: Option<&'a Tls>, credentials: Option<&'a Credentials>) -> Vec<NamedSecret<'a>> {
    let mut named = of_tls(tls, SecretUse::ClickHouseAuthorities, SecretUse::ClickHouseCertificate);
    named.extend(credentials.into_iter().flat_map(of_credentials));
    named
}

fn of_tls(tls: Option<&Tls>, authorities: SecretUse, certificate: SecretUse) -> Vec<NamedSecret<'_>> {
    let Some(tls) = tls else { return Vec::new() };
    let ca = tls.ca_secret_ref.as_ref();
    let client = tls.client_certificate_secret_ref.as_ref();
    let ca = ca.map(|ca| NamedSecret { of: authorities, name: &ca.name, keys: ca.keys() });
    let client =
        client.map(|client| NamedSecret { of: certificate, name: &client.name, keys: client.keys() });
    ca.into_iter().chain(client).collect()
}

fn of_sasl(sasl: &Sasl) -> Vec<NamedSecret<'_>> {
    let user = sasl.secret_ref.as_ref();
    let user = user.map(|user| of_user(SecretUse::KafkaUser, user, sasl.username.as_deref()));
    let oauth = sasl.oauth.as_ref();
    let client = oauth.and_then(|oauth| oauth.client_credentials.as_ref());
    let aws = oauth.and_then(|oauth| oauth.aws_msk_iam.as_ref()).and_then(|msk| msk.secret_ref.as_ref());
    let aws = aws.map(|aws| NamedSecret { of: SecretUse::KafkaAws, name: &aws.name, keys: aws.keys() });
    user.into_iter().chain(client.into_iter().flat_map(of_client)).chain(aws).collect()
}

fn of_client(client: &ClientCredentials) -> Vec<NamedSecret<'_>> {
    let secret = client.secret_ref.as_ref().map(|secret| NamedSecret {
        of: SecretUse::KafkaClient,
        name: &secret.name,
        keys: secret.keys(client.client_id.as_deref()),
    });
    let ca = client.ca_secret_ref.as_ref();
    let ca =
        ca.map(|ca| NamedSecret { of: SecretUse::KafkaTokenAuthorities, name: &ca.name, keys: ca.keys() });
    secret.into_iter().chain(ca).collect()
}

fn of_credentials(credentials: &Credentials) -> Vec<NamedSecret<'_>> {
    let user = credentials.secret_ref.as_ref();
    let user = user.map(|user| of_user(SecretUse::ClickHouseUser, user, credentials.username.as_deref()));
    let token = credentials.token_secret_ref.as_ref().map(|token| {
        let keys = vec![UsedKey::new(KeyUse::Token, token.key.as_ref())];
        NamedSecret { of: SecretUse::ClickHouseToken, name: &token.name, keys }
    });
    user.into_iter().chain(token).collect()
}

fn of_user<'a>(of: SecretUse, user: &'a UserSecretRef, username: Option<&str>) -> NamedSecret<'a> {
    NamedSecret { of, name: &user.name, keys: user.keys(username) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn secrets(tls: &Value, sasl: &Value) -> Vec<(SecretUse, String, Vec<String>)> {
        let spec: TracePipelineSpec = serde_json::from_value(json!({
            "source": {"kafka": {"bootstrapServers": ["kafka:9093"], "topics": ["t"], "tls": tls, "sasl": sasl}},
            "sink": {"clickhouse": {"endpoints": ["http://clickhouse:8123"]}},
        }))
        .unwrap();
        let named = spec.secrets().into_iter();
        named
            .map(|one| (one.of, one.name.to_owned(), one.keys.into_iter().map(|key| key.key).collect()))
            .collect()
    }

    #[test]
    fn a_reference_without_keys_means_what_it_always_meant() {
        let tls = json!({"caSecretRef": {"name": "ca"}, "clientCertificateSecretRef": {"name": "client"}});
        let sasl = json!({"mechanism": "Plain", "secretRef": {"name": "user"}});
        let expected = [
            (SecretUse::KafkaAuthorities, "ca", vec!["ca.crt"]),
            (SecretUse::KafkaCertificate, "client", vec!["tls.crt", "tls.key"]),
            (SecretUse::KafkaUser, "user", vec!["username", "password"]),
        ];
        let expected = expected.map(|(of, name, keys)| {
            (of, name.to_owned(), keys.into_iter().map(str::to_owned).collect::<Vec<_>>())
        });
        assert_eq!(secrets(&tls, &sasl), expected);
        // And it is written back as it was: a new field in a stored object would look like an edit.
        let read: Tls = serde_json::from_value(tls.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), tls);
    }

    #[test]
    fn named_keys_take_the_place_of_the_defaults_and_a_name_that_stands_there_needs_no_key() {
        let tls = json!({
            "caSecretRef": {"name": "ca", "key": "root.pem"},
            "clientCertificateSecretRef": {"name": "client", "certificateKey": "user.crt", "privateKeyKey": "user.key"},
        });
        let found = secrets(
            &tls,
            &json!({"mechanism": "Plain", "username": "sluice", "secretRef": {"name": "u", "passwordKey": "p"}}),
        );
        let keys: Vec<_> = found.iter().map(|(_, _, keys)| keys.join(" ")).collect();
        assert_eq!(keys, ["root.pem", "user.crt user.key", "p"]);
        let found = secrets(
            &Value::Null,
            &json!({"mechanism": "Plain", "secretRef": {"name": "u", "usernameKey": "login"}}),
        );
        assert_eq!(found[0].2, ["login", "password"]);
    }

    #[test]
    fn keys_of_aws_have_a_session_token_only_if_its_key_is_named_and_an_assertion_needs_no_secret() {
        let found =
            |oauth: Value| secrets(&Value::Null, &json!({"mechanism": "OAuthBearer", "oauth": oauth}));
        let keys = |of: Value| {
            let found = found(json!({"awsMskIam": {"secretRef": of}}));
            (found[0].0, found[0].2.join(" "))
        };
        let default = (SecretUse::KafkaAws, "access-key-id secret-access-key".to_owned());
        assert_eq!(keys(json!({"name": "aws"})), default);
        let named = json!({"name": "aws", "accessKeyIdKey": "id", "secretAccessKeyKey": "key", "sessionTokenKey": "token"});
        assert_eq!(keys(named), (SecretUse::KafkaAws, "id key token".to_owned()));
        assert_eq!(found(json!({"awsMskIam": {}})), []);
        let client = json!({"tokenEndpoint": "https://a/b", "clientId": "i", "clientAssertion": {}});
        assert_eq!(found(json!({"clientCredentials": client})), []);
    }

    #[test]
    fn each_key_has_a_file_and_a_field_of_its_own() {
        let all = [
            KeyUse::Authorities,
            KeyUse::Certificate,
            KeyUse::PrivateKey,
            KeyUse::Username,
            KeyUse::Password,
            KeyUse::ClientId,
            KeyUse::ClientSecret,
            KeyUse::Token,
            KeyUse::AccessKeyId,
            KeyUse::SecretAccessKey,
            KeyUse::SessionToken,
            KeyUse::BearerTokens,
            KeyUse::BasicUsers,
        ];
        for (at, of) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                assert_ne!(of.default_key(), other.default_key());
                // A Secret of authorities, one of a token, and one of tokens or users have one key each.
                assert!(of.field() != other.field() || of.field() == "key");
            }
        }
    }
}
