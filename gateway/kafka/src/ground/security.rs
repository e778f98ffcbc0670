//! Connections to brokers: librdkafka's settings for TLS, user and password, and the meaning of a rejection.
//!
//! librdkafka itself reads files of certificates and keys. It takes user and password only as settings, so they are read here when a
//! client is created.

use rdkafka::{error::KafkaError, types::RDKafkaErrorCode};
use sluice_gateway_config::{
    AwsMskIam, Kafka, OAuth, Sasl, SaslMechanism, SecretFileError, Tls, security::read_secret,
};

/// The librdkafka settings for TLS and SASL.
pub fn security_settings(kafka: &Kafka) -> Result<Vec<(&'static str, String)>, SecretFileError> {
    let mut settings = vec![("security.protocol", protocol(kafka).to_owned())];
    if let Some(tls) = &kafka.tls {
        for (what, file) in tls_files(tls) {
            // librdkafka's own error would not name the file.
            read_secret(what, file)?;
        }
        settings.extend(tls_settings(tls));
    }
    if let Some(sasl) = &kafka.sasl {
        settings.push(("sasl.mechanism", sasl.mechanism.name().to_owned()));
        if sasl.mechanism != SaslMechanism::OAuthBearer {
            settings.extend([("sasl.username", sasl.user()?), ("sasl.password", sasl.password()?)]);
        }
    }
    Ok(settings)
}

fn protocol(kafka: &Kafka) -> &'static str {
    match (kafka.tls.is_some(), kafka.sasl.is_some()) {
        (false, false) => "plaintext",
        (true, false) => "ssl",
        (false, true) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    }
}

fn tls_files(tls: &Tls) -> impl Iterator<Item = (&'static str, &str)> {
    let files = [
        ("authorities", tls.ca_file.as_deref()),
        ("client certificate", tls.certificate_file.as_deref()),
        ("client key", tls.key_file.as_deref()),
    ];
    files.into_iter().filter_map(|(what, file)| Some((what, file?)))
}

fn tls_settings(tls: &Tls) -> Vec<(&'static str, String)> {
    // The default of librdkafka since 2.0, set because older documents differ: the certificate must be valid for the broker's host name.
    let mut settings = vec![("ssl.endpoint.identification.algorithm", "https".to_owned())];
    // Without it OpenSSL trusts the system's authorities, or those of SSL_CERT_FILE.
    settings.extend(tls.ca_file.iter().map(|file| ("ssl.ca.location", file.clone())));
    if let Some((certificate, key)) = tls.client_certificate() {
        settings.extend([
            ("ssl.certificate.location", certificate.to_owned()),
            ("ssl.key.location", key.to_owned()),
        ]);
    }
    settings
}

/// Why a broker was reached but the connection failed, for a reason that does not pass by waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionProblem {
    /// TLS could not be negotiated, or one side does not trust the other's certificate.
    Tls,
    /// The broker rejected the user, the password or the SASL mechanism.
    Credentials,
    /// The broker rejected the token.
    Token,
}

impl ConnectionProblem {
    /// Classifies an error of a client.
    pub fn of(error: &KafkaError) -> Option<Self> {
        match error.rdkafka_error_code()? {
            RDKafkaErrorCode::SSL => Some(Self::Tls),
            RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed => {
                Some(Self::Credentials)
            }
            _ => None,
        }
    }

    /// The same of this config: librdkafka has one code for every login.
    #[must_use]
    pub fn with(self, kafka: &Kafka) -> Self {
        let has_tokens = kafka.sasl.as_ref().is_some_and(|sasl| sasl.oauth.is_some());
        if has_tokens && self == Self::Credentials { Self::Token } else { self }
    }

    /// What a user should check next, according to the TLS and SASL settings.
    pub fn advice(self, kafka: &Kafka) -> String {
        match self {
            Self::Tls => tls_advice(kafka.tls.as_ref()),
            Self::Credentials | Self::Token => match &kafka.sasl {
                Some(sasl) => sasl_advice(sasl),
                None => "the broker requires a user and a password: set source.kafka.sasl".into(),
            },
        }
    }
}

fn sasl_advice(sasl: &Sasl) -> String {
    if let Some(oauth) = &sasl.oauth {
        return oauth_advice(oauth);
    }
    let user = match (&sasl.username, &sasl.username_file) {
        (Some(name), _) => format!("the user {name:?}"),
        (None, file) => format!("the user in {}", file.as_deref().unwrap_or_default()),
    };
    format!(
        "check source.kafka.sasl: the broker must accept {user} with the password in {} for {}",
        sasl.password_file.as_deref().unwrap_or_default(),
        sasl.mechanism.name()
    )
}

fn oauth_advice(oauth: &OAuth) -> String {
    if let Some(msk) = &oauth.aws_msk_iam {
        return msk_advice(msk);
    }
    let from = match (&oauth.client_credentials, &oauth.token_file) {
        (Some(credentials), _) => format!("from {}", credentials.token_endpoint),
        (None, file) => format!("in {}", file.as_deref().unwrap_or_default()),
    };
    format!(
        "check source.kafka.sasl.oauth: the broker must accept the issuer, audience and scope of the token {from}, and the principal \
         that it reads in it"
    )
}

fn msk_advice(msk: &AwsMskIam) -> String {
    let whose = match &msk.keys {
        Some(keys) => format!("the user of AWS whose keys are in {}", keys.access_key_id_file),
        None => "the role of AWS that the pod's ServiceAccount has".to_owned(),
    };
    format!(
        "check that the policies of {whose} allow kafka-cluster:Connect on the cluster, that the cluster takes logins with IAM, and \
         source.kafka.sasl.oauth.awsMskIam.region"
    )
}

fn tls_advice(tls: Option<&Tls>) -> String {
    let Some(tls) = tls else { return "the broker requires TLS: set source.kafka.tls".into() };
    let authority = match &tls.ca_file {
        Some(file) => format!("the broker's certificate is signed by an authority in {file}"),
        None => "the broker's certificate is signed by an authority that this system trusts (else set \
                 source.kafka.tls.caFile)"
            .into(),
    };
    let client = match tls.client_certificate() {
        Some((file, _)) => format!("the broker trusts the client certificate in {file}"),
        None => "the broker requires no client certificate (else set source.kafka.tls.certificateFile and keyFile)".into(),
    };
    format!(
        "check that the port of source.kafka.bootstrapServers is one for TLS; that {authority} and made out to the host in \
         source.kafka.bootstrapServers; and that {client}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::settings::tests::kafka;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn sasl(mechanism: SaslMechanism) -> Sasl {
        // A file of each call: another test may read it while this one writes.
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let file = |name: &str, content: &str| {
            let path = std::env::temp_dir().join(format!("sluice-{name}-{}-{call}", std::process::id()));
            std::fs::write(&path, content).unwrap();
            path.to_str().unwrap().to_owned()
        };
        Sasl {
            mechanism,
            username: None,
            username_file: Some(file("user", "gateway\n")),
            password_file: Some(file("password", "s3cret")),
            oauth: None,
        }
    }

    fn with_token() -> Sasl {
        let oauth = OAuth {
            client_credentials: None,
            token_file: Some("/token".into()),
            aws_msk_iam: None,
            extensions: std::collections::BTreeMap::new(),
        };
        let none = Sasl { username_file: None, password_file: None, ..sasl(SaslMechanism::OAuthBearer) };
        Sasl { oauth: Some(oauth), ..none }
    }

    #[test]
    fn a_login_with_tokens_has_no_user_and_advice_of_its_own() {
        let kafka = Kafka { sasl: Some(with_token()), ..kafka() };
        let settings = security_settings(&kafka).unwrap();
        assert!(settings.contains(&("sasl.mechanism", "OAUTHBEARER".into())), "{settings:?}");
        assert!(settings.iter().all(|(name, _)| *name != "sasl.username"), "{settings:?}");
        let client: Result<rdkafka::consumer::BaseConsumer, _> = {
            let mut config = rdkafka::ClientConfig::new();
            for (name, value) in settings {
                config.set(name, value);
            }
            config.create()
        };
        client.unwrap();
        let problem = ConnectionProblem::Credentials.with(&kafka);
        assert_eq!(problem, ConnectionProblem::Token);
        assert!(problem.advice(&kafka).contains("the token in /token"), "{}", problem.advice(&kafka));
        assert_eq!(ConnectionProblem::Tls.with(&kafka), ConnectionProblem::Tls);
        let mut msk = with_token();
        let aws_msk_iam = Some(AwsMskIam { region: None, keys: None });
        msk.oauth = msk.oauth.map(|oauth| OAuth { token_file: None, aws_msk_iam, ..oauth });
        let advice = ConnectionProblem::Token.advice(&Kafka { sasl: Some(msk), ..kafka });
        assert!(advice.contains("the role of AWS") && advice.contains("kafka-cluster:Connect"), "{advice}");
    }

    #[test]
    fn the_protocol_follows_from_what_is_set() {
        let tls = Tls::default();
        for (tls, sasl, expected) in [
            (None, None, "plaintext"),
            (Some(tls.clone()), None, "ssl"),
            (None, Some(sasl(SaslMechanism::Plain)), "sasl_plaintext"),
            (Some(tls), Some(sasl(SaslMechanism::ScramSha512)), "sasl_ssl"),
        ] {
            let settings = security_settings(&Kafka { tls, sasl, ..kafka() }).unwrap();
            assert!(settings.contains(&("security.protocol", expected.into())), "{settings:?}");
        }
    }

    #[test]
    fn a_user_that_stands_in_the_config_needs_no_file() {
        let named =
            Sasl { username: Some("sluice".into()), username_file: None, ..sasl(SaslMechanism::ScramSha512) };
        let kafka = Kafka { sasl: Some(named), ..kafka() };
        let settings = security_settings(&kafka).unwrap();
        assert!(settings.contains(&("sasl.username", "sluice".into())), "{settings:?}");
        let advice = ConnectionProblem::Credentials.advice(&kafka);
        assert!(advice.contains("the user \"sluice\" with the password in"), "{advice}");
    }

    #[test]
    fn librdkafka_knows_every_mechanism() {
        for mechanism in [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512] {
            let kafka = Kafka { tls: Some(Tls::default()), sasl: Some(sasl(mechanism)), ..kafka() };
            let mut config = rdkafka::ClientConfig::new();
            for (name, value) in security_settings(&kafka).unwrap() {
                config.set(name, value);
            }
            let client: Result<rdkafka::consumer::BaseConsumer, _> = config.create();
            client.unwrap();
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let sasl = Sasl { password_file: Some("/nowhere/password".into()), ..sasl(SaslMechanism::Plain) };
        let error = security_settings(&Kafka { sasl: Some(sasl), ..kafka() }).unwrap_err().to_string();
        assert!(error.contains("cannot read the password from /nowhere/password"), "{error}");
        let tls = Tls { ca_file: Some("/nowhere/ca.crt".into()), ..Tls::default() };
        let error = security_settings(&Kafka { tls: Some(tls), ..kafka() }).unwrap_err().to_string();
        assert!(error.contains("cannot read the authorities from /nowhere/ca.crt"), "{error}");
    }
}
