//! How the operator connects to Kafka: as the gateways do, but with the content of the Secrets instead of files.
//!
//! The values are part of a client's key: a changed Secret leads to another client, and the old one is closed when it is idle.

use super::{
    own_logins::{NotOwn, OwnLogins},
    tokens,
};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use sluice_crds::{
    KafkaSource, KeyUse, Sasl, SaslMechanism, SecretUse, Tls, UsedKey, security::UserSecretRef,
};
use sluice_login as login;
use std::{collections::BTreeMap, fmt, sync::Arc};

/// The Secrets for the connection to Kafka, by their use.
pub type KafkaSecrets = BTreeMap<SecretUse, Arc<Secret>>;

/// TLS and SASL settings of a connection. Its `Debug` text shows no secret.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct KafkaSecurity {
    tls: Option<TlsPem>,
    sasl: Option<Login>,
}

/// Why the Secrets do not allow a connection to Kafka.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// A Secret is missing or lacks a key. Another condition names it.
    #[error("the operator does not ask Kafka before its Secrets are complete")]
    Incomplete,
    /// The login is that of the pods, and an admin has not allowed the operator one of its own there.
    #[error(transparent)]
    NotOwn(#[from] NotOwn),
    /// The region of an MSK cluster is in no field and in no broker's name.
    #[error(
        "the operator does not ask Kafka for partitions and offsets: no host of source.kafka.bootstrapServers names a region of AWS; set \
         source.kafka.sasl.oauth.awsMskIam.region"
    )]
    NoRegion,
    /// A value is not UTF-8.
    #[error(
        "the operator does not ask Kafka: {key} of the Secret {secret} is not UTF-8 text; certificates and keys must be PEM (a file \
         that begins with -----BEGIN), not DER or PKCS #12"
    )]
    NoText { secret: String, key: String },
}

/// Kafka's name of the mechanism with tokens.
const OAUTHBEARER: &str = "OAUTHBEARER";

/// PEM texts, as librdkafka takes them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct TlsPem {
    authorities: Option<String>,
    client: Option<(String, String)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Login {
    User { mechanism: &'static str, user: String, password: String },
    Tokens(login::Login),
}

impl KafkaSecurity {
    /// From the spec and the Secrets that it names.
    ///
    /// # Errors
    /// If a Secret is missing or incomplete, a value is not UTF-8, or the operator has no login of its own for these brokers.
    pub fn of(kafka: &KafkaSource, secrets: &KafkaSecrets, own: &OwnLogins) -> Result<Self, Unreadable> {
        let tls = kafka.tls.as_ref().map(|tls| TlsPem::of(tls, secrets)).transpose()?;
        let sasl = kafka.sasl.as_ref().map(|sasl| Login::of(sasl, kafka, secrets, own)).transpose()?;
        Ok(Self { tls, sasl })
    }

    /// librdkafka's settings.
    pub fn settings(&self) -> Vec<(&'static str, &str)> {
        let mut settings = vec![("security.protocol", self.protocol())];
        if let Some(tls) = &self.tls {
            settings.push(("ssl.endpoint.identification.algorithm", "https"));
            settings.extend(tls.authorities.iter().map(|pem| ("ssl.ca.pem", pem.as_str())));
            let client = tls.client.iter();
            settings.extend(client.flat_map(|(certificate, key)| {
                [("ssl.certificate.pem", certificate.as_str()), ("ssl.key.pem", key.as_str())]
            }));
        }
        match &self.sasl {
            None => {}
            Some(Login::User { mechanism, user, password }) => settings.extend([
                ("sasl.mechanism", *mechanism),
                ("sasl.username", user.as_str()),
                ("sasl.password", password.as_str()),
            ]),
            Some(Login::Tokens(_)) => settings.push(("sasl.mechanism", OAUTHBEARER)),
        }
        settings
    }

    /// How tokens are got, if the login is one with tokens.
    pub fn tokens(&self) -> Option<&login::Login> {
        match &self.sasl {
            Some(Login::Tokens(login)) => Some(login),
            Some(Login::User { .. }) | None => None,
        }
    }

    fn protocol(&self) -> &'static str {
        match (self.tls.is_some(), self.sasl.is_some()) {
            (false, false) => "plaintext",
            (true, false) => "ssl",
            (false, true) => "sasl_plaintext",
            (true, true) => "sasl_ssl",
        }
    }
}

impl TlsPem {
    fn of(tls: &Tls, secrets: &KafkaSecrets) -> Result<Self, Unreadable> {
        let authorities = tls
            .ca_secret_ref
            .as_ref()
            .map(|named| value_of(secrets, SecretUse::KafkaAuthorities, &named.keys(), KeyUse::Authorities));
        let client = tls.client_certificate_secret_ref.as_ref().map(|named| -> Result<_, Unreadable> {
            let keys = named.keys();
            let text = |of| value_of(secrets, SecretUse::KafkaCertificate, &keys, of);
            Ok((text(KeyUse::Certificate)?, text(KeyUse::PrivateKey)?))
        });
        Ok(Self { authorities: authorities.transpose()?, client: client.transpose()? })
    }
}

impl Login {
    fn of(
        sasl: &Sasl,
        kafka: &KafkaSource,
        secrets: &KafkaSecrets,
        own: &OwnLogins,
    ) -> Result<Self, Unreadable> {
        match (&sasl.oauth, &sasl.secret_ref) {
            (Some(oauth), _) => tokens::login(oauth, kafka, secrets, own).map(Self::Tokens),
            (None, Some(user)) => Self::of_user(sasl, user, secrets),
            // The definition refuses it.
            (None, None) => Err(Unreadable::Incomplete),
        }
    }

    fn of_user(sasl: &Sasl, named: &UserSecretRef, secrets: &KafkaSecrets) -> Result<Self, Unreadable> {
        let keys = named.keys(sasl.username.as_deref());
        let text = |of| value_of(secrets, SecretUse::KafkaUser, &keys, of);
        Ok(Self::User {
            mechanism: name(sasl.mechanism),
            user: match &sasl.username {
                Some(name) => name.clone(),
                None => text(KeyUse::Username)?,
            },
            password: text(KeyUse::Password)?,
        })
    }
}

impl fmt::Debug for KafkaSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSecurity").field("protocol", &self.protocol()).finish_non_exhaustive()
    }
}

/// What the Secret of a use has for this.
pub(super) fn value_of(
    secrets: &KafkaSecrets,
    of: SecretUse,
    keys: &[UsedKey],
    value: KeyUse,
) -> Result<String, Unreadable> {
    let secret = secrets.get(&of).ok_or(Unreadable::Incomplete)?;
    let key = keys.iter().find(|key| key.of == value).ok_or(Unreadable::Incomplete)?;
    text(secret, &key.key)
}

/// The value of a key without the one line end that an editor leaves. The gateway reads its files in the same way.
fn text(secret: &Secret, key: &str) -> Result<String, Unreadable> {
    let value = secret.data.as_ref().and_then(|data| data.get(key)).ok_or(Unreadable::Incomplete)?;
    let is_no_text = |_| Unreadable::NoText { secret: secret.name_any(), key: key.to_owned() };
    let text = std::str::from_utf8(&value.0).map_err(is_no_text)?;
    let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.unwrap_or(text).to_owned())
}

fn name(mechanism: SaslMechanism) -> &'static str {
    match mechanism {
        SaslMechanism::Plain => "PLAIN",
        SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
        SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        SaslMechanism::OAuthBearer => OAUTHBEARER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use serde_json::json;

    fn kafka() -> KafkaSource {
        serde_json::from_value(json!({
            "bootstrapServers": ["kafka:9093"], "topics": ["spans"],
            "tls": {"caSecretRef": {"name": "ca"}},
            "sasl": {"mechanism": "ScramSha512", "secretRef": {"name": "user"}},
        }))
        .unwrap()
    }

    fn secret(values: &[(&str, &str)]) -> Arc<Secret> {
        let data =
            values.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        Arc::new(Secret { data: Some(data.collect()), ..Secret::default() })
    }

    #[test]
    fn the_settings_are_those_of_the_spec_and_its_secrets() {
        let user = secret(&[("username", "gateway\n"), ("password", "s3cret")]);
        let mut secrets: KafkaSecrets = [(SecretUse::KafkaUser, user)].into();
        assert_eq!(
            KafkaSecurity::of(&kafka(), &secrets, &OwnLogins::default()),
            Err(Unreadable::Incomplete),
            "without the authorities nothing is tried"
        );
        secrets.insert(SecretUse::KafkaAuthorities, secret(&[("ca.crt", "PEM")]));
        let security = KafkaSecurity::of(&kafka(), &secrets, &OwnLogins::default()).unwrap();
        assert_eq!(
            security.settings(),
            [
                ("security.protocol", "sasl_ssl"),
                ("ssl.endpoint.identification.algorithm", "https"),
                ("ssl.ca.pem", "PEM"),
                ("sasl.mechanism", "SCRAM-SHA-512"),
                ("sasl.username", "gateway"),
                ("sasl.password", "s3cret"),
            ]
        );
    }

    /// As Strimzi writes them for a `KafkaUser`: one with SCRAM, whose name is in no key, and one with a certificate.
    #[test]
    fn secrets_of_other_tools_are_read_by_their_own_keys() {
        let kafka: KafkaSource = serde_json::from_value(json!({
            "bootstrapServers": ["kafka:9093"], "topics": ["spans"],
            "tls": {
                "caSecretRef": {"name": "bundle", "key": "root.pem"},
                "clientCertificateSecretRef": {"name": "user", "certificateKey": "user.crt", "privateKeyKey": "user.key"},
            },
            "sasl": {"mechanism": "ScramSha512", "username": "sluice", "secretRef": {"name": "scram"}},
        }))
        .unwrap();
        let certificate =
            secret(&[("ca.crt", "CA"), ("user.crt", "CRT"), ("user.key", "KEY"), ("user.p12", "P")]);
        let secrets: KafkaSecrets = [
            (SecretUse::KafkaAuthorities, secret(&[("root.pem", "ROOT")])),
            (SecretUse::KafkaCertificate, certificate),
            (SecretUse::KafkaUser, secret(&[("password", "s3cret"), ("sasl.jaas.config", "x")])),
        ]
        .into();
        let security = KafkaSecurity::of(&kafka, &secrets, &OwnLogins::default()).unwrap();
        let settings = security.settings();
        for expected in [
            ("ssl.ca.pem", "ROOT"),
            ("ssl.certificate.pem", "CRT"),
            ("ssl.key.pem", "KEY"),
            ("sasl.username", "sluice"),
            ("sasl.password", "s3cret"),
        ] {
            assert!(settings.contains(&expected), "{expected:?}");
        }
    }

    #[test]
    fn a_value_that_is_no_text_is_named() {
        let der = Secret {
            data: Some([("ca.crt".to_owned(), ByteString(vec![0x30, 0x82, 0xff]))].into()),
            metadata: serde_json::from_value(json!({"name": "ca"})).unwrap(),
            ..Secret::default()
        };
        let said = KafkaSecurity::of(
            &kafka(),
            &[(SecretUse::KafkaAuthorities, Arc::new(der))].into(),
            &OwnLogins::default(),
        );
        assert_eq!(said, Err(Unreadable::NoText { secret: "ca".into(), key: "ca.crt".into() }));
        let text = said.unwrap_err().to_string();
        assert!(text.contains("ca.crt of the Secret ca") && text.contains("PEM"), "{text}");
    }

    #[test]
    fn no_secret_is_printed() {
        let user = secret(&[("username", "gateway"), ("password", "s3cret")]);
        let plain = KafkaSource { tls: None, ..kafka() };
        let security =
            KafkaSecurity::of(&plain, &[(SecretUse::KafkaUser, user)].into(), &OwnLogins::default()).unwrap();
        let text = format!("{security:?}");
        assert!(text.contains("sasl_plaintext") && !text.contains("s3cret"), "{text}");
    }
}
