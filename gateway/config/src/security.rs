//! The security of a connection: TLS, user and password, tokens.
//!
//! Secrets are never in the config, which is in a ConfigMap: it names files, which the operator mounts from Secrets. They are read when a
//! client is created. A changed Secret restarts the gateway, so the files are read only once; those of tokens are read again while it runs.

mod oauth;

pub use oauth::{AwsKeys, AwsMskIam, ClientCredentials, OAuth, is_aws_region};

use crate::violation::Violations;
use serde::{Deserialize, Serialize};

/// TLS to a server. If it is empty, the system's authorities are trusted and there is no client certificate. All files are PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tls {
    /// File with the certificates of authorities that may sign the server's certificate. If absent, those of the system (`SSL_CERT_FILE`,
    /// else where OpenSSL looks).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// File with the client's certificate and its chain; requires `keyFile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_file: Option<String>,
    /// File with the client's key, not encrypted; requires `certificateFile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
}

/// User and password for Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sasl {
    /// The SASL mechanism.
    pub mechanism: SaslMechanism,
    /// The user's name; absent if `usernameFile` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// File with the user's name; absent if `username` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username_file: Option<String>,
    /// File with the password; absent with [`SaslMechanism::OAuthBearer`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// Where tokens come from; only with [`SaslMechanism::OAuthBearer`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OAuth>,
}

/// User and password, or a token. The files of user and password are read at the start and contain only the text; one trailing line end is
/// ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credentials {
    /// The user's name; absent if `usernameFile` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// File with the user's name; absent if `username` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username_file: Option<String>,
    /// File with the password; absent if `tokenFile` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// File with a token, which is sent instead of user and password. It is read again while the gateway runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
}

/// How user and password are proved to a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SaslMechanism {
    /// The password is sent in clear text.
    Plain,
    /// The password is proved by SHA-256 without being sent.
    ScramSha256,
    /// The password is proved by SHA-512 without being sent.
    ScramSha512,
    /// A token is sent.
    OAuthBearer,
}

impl Tls {
    /// The certificate file and the key file, if both are set.
    pub fn client_certificate(&self) -> Option<(&str, &str)> {
        self.certificate_file.as_deref().zip(self.key_file.as_deref())
    }

    /// Adds what is wrong with it; `at` is its path.
    pub(crate) fn check(&self, at: &str, found: &mut Violations) {
        for (field, file) in [
            ("caFile", &self.ca_file),
            ("certificateFile", &self.certificate_file),
            ("keyFile", &self.key_file),
        ] {
            found
                .add_if(file.as_deref() == Some(""), &format!("{at}.{field}"), || "must not be empty".into());
        }
        let (has_certificate, has_key) = (self.certificate_file.is_some(), self.key_file.is_some());
        found.add_if(has_certificate && !has_key, &format!("{at}.keyFile"), || {
            "must be set, since certificateFile is".into()
        });
        found.add_if(has_key && !has_certificate, &format!("{at}.certificateFile"), || {
            "must be set, since keyFile is".into()
        });
    }
}

impl Sasl {
    /// Adds what is wrong with it; `at` is its path, and these are the brokers.
    pub(crate) fn check(&self, brokers: &[String], at: &str, found: &mut Violations) {
        if self.mechanism == SaslMechanism::OAuthBearer {
            let has_user =
                self.username.is_some() || self.username_file.is_some() || self.password_file.is_some();
            found.add_if(has_user, at, || {
                "has a user or a password, which mechanism OAuthBearer does not use: remove them".into()
            });
            match &self.oauth {
                Some(oauth) => oauth.check(brokers, &format!("{at}.oauth"), found),
                None => found.add(format!("{at}.oauth"), "must be set, since mechanism is OAuthBearer"),
            }
            return;
        }
        check_user(self.username.as_deref(), self.username_file.as_deref(), at, found);
        let password_at = format!("{at}.passwordFile");
        match self.password_file.as_deref() {
            None => found.add(password_at, "must be set"),
            Some(file) => found.add_if(file.is_empty(), &password_at, || "must not be empty".into()),
        }
        found.add_if(self.oauth.is_some(), &format!("{at}.oauth"), || {
            "is set, but mechanism is not OAuthBearer".into()
        });
    }

    /// The user's name, or what is wrong with its file.
    pub fn user(&self) -> Result<String, SecretFileError> {
        read_user(self.username.as_deref(), self.username_file.as_deref())
    }

    /// The password, or what is wrong with its file. Without a file it is empty, which the config's rules refuse.
    pub fn password(&self) -> Result<String, SecretFileError> {
        self.password_file.as_deref().map_or_else(|| Ok(String::new()), |file| read_secret("password", file))
    }
}

/// Adds what is wrong with a user's name, which stands in the config or in a file; `at` is the path of what has both fields.
pub(crate) fn check_user(name: Option<&str>, file: Option<&str>, at: &str, found: &mut Violations) {
    let (name_at, file_at) = (format!("{at}.username"), format!("{at}.usernameFile"));
    let empty = || "must not be empty".to_owned();
    found.add_if(name == Some(""), &name_at, empty);
    found.add_if(file == Some(""), &file_at, empty);
    found.add_if(name.is_some() && file.is_some(), &name_at, || {
        "is set together with usernameFile: remove one of them".into()
    });
    found.add_if(name.is_none() && file.is_none(), &file_at, || "must be set, unless username is".into());
}

/// The user's name: the one in the config, or the content of the file. Without both it is empty, which the config's rules refuse.
pub(crate) fn read_user(name: Option<&str>, file: Option<&str>) -> Result<String, SecretFileError> {
    match (name, file) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, Some(file)) => read_secret("user", file),
        (None, None) => Ok(String::new()),
    }
}

impl Credentials {
    /// The password, or what is wrong with its file. Without a file it is empty, which the config's rules refuse.
    pub fn password(&self) -> Result<String, SecretFileError> {
        self.password_file.as_deref().map_or_else(|| Ok(String::new()), |file| read_secret("password", file))
    }

    /// Adds what is wrong with them; `at` is their path.
    pub(crate) fn check(&self, at: &str, found: &mut Violations) {
        let (name, file) = (self.username.as_deref(), self.username_file.as_deref());
        let (password_at, token_at) = (format!("{at}.passwordFile"), format!("{at}.tokenFile"));
        match (self.token_file.as_deref(), self.password_file.as_deref()) {
            (Some(token), password) => {
                found.add_if(token.is_empty(), &token_at, || "must not be empty".into());
                let has_user = name.is_some() || file.is_some() || password.is_some();
                found.add_if(has_user, &token_at, || {
                    "a token is set together with a user or a password: remove them, or the token".into()
                });
            }
            (None, password) => {
                check_user(name, file, at, found);
                found.add_if(password.is_none(), &password_at, || {
                    "must be set, unless there is a token".into()
                });
                found.add_if(password == Some(""), &password_at, || "must not be empty".into());
            }
        }
    }

    /// The user's name, or what is wrong with its file.
    pub fn user(&self) -> Result<String, SecretFileError> {
        read_user(self.username.as_deref(), self.username_file.as_deref())
    }
}

impl SaslMechanism {
    /// Kafka's name of the mechanism.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OAuthBearer => "OAUTHBEARER",
        }
    }
}

/// A secret file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the {what} from {path}: {source}")]
pub struct SecretFileError {
    /// Its content: "user", "password".
    pub what: &'static str,
    /// The file.
    pub path: String,
    /// What the system said.
    pub source: std::io::Error,
}

/// The content of a secret file, without one trailing line end.
pub fn read_secret(what: &'static str, path: &str) -> Result<String, SecretFileError> {
    let text = std::fs::read_to_string(path).map_err(|source| SecretFileError {
        what,
        path: path.to_owned(),
        source,
    })?;
    let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.unwrap_or(&text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(tls: &Tls) -> String {
        let mut found = Violations::default();
        tls.check("tls", &mut found);
        found.to_string()
    }

    #[test]
    fn a_certificate_goes_with_its_key() {
        let file = |text: &str| Some(text.to_owned());
        for (certificate_file, key_file, expected) in [
            (None, None, ""),
            (file("c"), file("k"), ""),
            (file("c"), None, "tls.keyFile: must be set, since certificateFile is"),
            (None, file("k"), "tls.certificateFile: must be set, since keyFile is"),
            (file(""), file("k"), "tls.certificateFile: must not be empty"),
        ] {
            assert_eq!(violations(&Tls { ca_file: None, certificate_file, key_file }), expected);
        }
    }

    #[test]
    fn a_mechanism_has_what_it_needs_and_nothing_else() {
        let oauth = r#""oauth":{"clientCredentials":{"tokenEndpoint":"https://l/t","clientId":"i","clientSecretFile":"s"}}"#;
        let file = r#""oauth":{"tokenFile":"t","extensions":{"logicalCluster":"lkc-1"}}"#;
        let user = r#""usernameFile":"u","passwordFile":"p""#;
        for (mechanism, fields, expected) in [
            ("Plain", user.to_owned(), ""),
            ("OAuthBearer", r#""oauth":{"awsMskIam":{}}"#.into(), ""),
            ("OAuthBearer", oauth.replace("clientSecretFile", "clientAssertionFile"), ""),
            (
                "OAuthBearer",
                oauth.replace("}}", r#","clientAssertionFile":"a"}}"#),
                "sasl.oauth.clientCredentials.clientSecretFile: exactly one of",
            ),
            (
                "OAuthBearer",
                oauth.replace(r#","clientSecretFile":"s""#, ""),
                "sasl.oauth.clientCredentials.clientSecretFile: exactly one of",
            ),
            (
                "OAuthBearer",
                r#""oauth":{"awsMskIam":{},"tokenFile":"t"}"#.into(),
                "sasl.oauth: must have exactly one of",
            ),
            ("OAuthBearer", oauth.to_owned(), ""),
            ("OAuthBearer", file.to_owned(), ""),
            ("OAuthBearer", r#""oauth":{}"#.into(), "sasl.oauth: must have exactly one of"),
            ("OAuthBearer", user.to_owned(), "sasl: has a user or a password"),
            ("OAuthBearer", format!("{user},{oauth}"), "sasl: has a user or a password"),
            ("Plain", format!("{user},{oauth}"), "sasl.oauth: is set, but mechanism is not"),
            ("ScramSha512", r#""username":"u""#.into(), "sasl.passwordFile: must be set"),
            (
                "OAuthBearer",
                file.replace("logicalCluster", "auth"),
                "sasl.oauth.extensions.auth: an extension has",
            ),
            ("OAuthBearer", file.replace("logicalCluster", "a-b"), "sasl.oauth.extensions.a-b:"),
            ("OAuthBearer", oauth.replace("https:", "ftp:"), "sasl.oauth.clientCredentials.tokenEndpoint:"),
            ("OAuthBearer", oauth.replace("//l", "//u:p@l"), "sasl.oauth.clientCredentials.tokenEndpoint:"),
            (
                "OAuthBearer",
                oauth.replace("\"clientId\":\"i\",", ""),
                "sasl.oauth.clientCredentials.clientId: exactly one",
            ),
            (
                "OAuthBearer",
                oauth.replace(
                    "\"clientId\":\"i\"",
                    r#""clientId":"i","parameters":{"grant_type":"password"}"#,
                ),
                "sasl.oauth.clientCredentials.parameters.grant_type: is set by other fields",
            ),
        ] {
            let text = format!(r#"{{"mechanism":"{mechanism}",{fields}}}"#);
            let sasl: Sasl = serde_json::from_str(&text).unwrap();
            let mut found = Violations::default();
            sasl.check(
                &["b-1.traces.a1b2c3.c2.kafka.eu-central-1.amazonaws.com:9098".to_owned()],
                "sasl",
                &mut found,
            );
            let found = found.to_string();
            assert!(
                found.starts_with(expected) && found.is_empty() == expected.is_empty(),
                "{text}: {found}"
            );
        }
    }

    #[test]
    fn a_user_stands_in_the_config_or_in_a_file() {
        for (name, file, expected) in [
            (Some("u"), None, ""),
            (None, Some("f"), ""),
            (None, None, "sasl.usernameFile: must be set, unless username is"),
            (Some("u"), Some("f"), "sasl.username: is set together with usernameFile: remove one of them"),
            (Some(""), None, "sasl.username: must not be empty"),
            (None, Some(""), "sasl.usernameFile: must not be empty"),
        ] {
            let mut found = Violations::default();
            check_user(name, file, "sasl", &mut found);
            assert_eq!(found.to_string(), expected);
        }
        assert_eq!(read_user(Some("gateway"), None).unwrap(), "gateway");
        let error = read_user(None, Some("/nowhere/username")).unwrap_err().to_string();
        assert!(error.contains("cannot read the user from /nowhere/username"), "{error}");
    }

    #[test]
    fn a_secret_loses_one_line_end_and_nothing_else() {
        let folder = std::env::temp_dir();
        let file = folder.join(format!("sluice-secret-{}", std::process::id()));
        let path = file.to_str().unwrap();
        for (content, expected) in
            [("s3cret", "s3cret"), ("s3cret\n", "s3cret"), ("s\r\n", "s"), ("s \n\n", "s \n"), ("s\r", "s\r")]
        {
            std::fs::write(&file, content).unwrap();
            assert_eq!(read_secret("password", path).unwrap(), expected);
        }
        std::fs::remove_file(&file).unwrap();
        let error = read_secret("password", path).unwrap_err().to_string();
        assert!(error.contains("cannot read the password from") && error.contains(path), "{error}");
    }
}
