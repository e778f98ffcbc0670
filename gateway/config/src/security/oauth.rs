//! Tokens for Kafka: where they come from.

use crate::violation::Violations;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest name of a region of AWS. Chosen: twice that of the longest one.
const REGION_BYTES_MAX: usize = 32;

/// Where tokens for Kafka come from: exactly one of `clientCredentials`, `tokenFile` and `awsMskIam`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OAuth {
    /// A token endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_credentials: Option<ClientCredentials>,
    /// File with a token. It is read again while the gateway runs, as the kubelet replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// Tokens for Amazon MSK with IAM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws_msk_iam: Option<AwsMskIam>,
    /// SASL extensions that are sent with each token, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, String>,
}

/// The client credentials grant of OAuth 2.0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClientCredentials {
    /// The URL of the token endpoint, `http` or `https`.
    pub token_endpoint: String,
    /// The client's id; absent if `clientIdFile` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// File with the client's id; absent if `clientId` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id_file: Option<String>,
    /// File with the client's secret; absent if `clientAssertionFile` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<String>,
    /// File with a signed token that the endpoint takes instead of a secret (RFC 7523). It is read again for each token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_assertion_file: Option<String>,
    /// Whether id and secret go in the body of the request instead of its header `Authorization`. An assertion is always in the body.
    #[serde(default, skip_serializing_if = "is_false")]
    pub credentials_in_body: bool,
    /// More parameters of the request by name, such as `scope`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// File with the certificates of authorities that may sign the endpoint's certificate, in PEM; if absent, those of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Tokens for Amazon MSK with IAM, which the keys of a user or a role of AWS sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwsMskIam {
    /// The region of the cluster; if absent, that in the host name of a broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Files with keys; if absent, AWS gives keys to the pod's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<AwsKeys>,
}

/// Keys of AWS. The files are read again for each token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwsKeys {
    /// File with the id of the access key.
    pub access_key_id_file: String,
    /// File with the secret access key.
    pub secret_access_key_file: String,
    /// File with the token of a session, which temporary keys have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token_file: Option<String>,
}

impl OAuth {
    /// Adds what is wrong with it; `at` is its path, and these are the brokers.
    pub(super) fn check(&self, brokers: &[String], at: &str, found: &mut Violations) {
        let sources =
            [self.client_credentials.is_some(), self.token_file.is_some(), self.aws_msk_iam.is_some()];
        let count = sources.into_iter().filter(|is_set| *is_set).count();
        found.add_if(count != 1, at, || {
            "must have exactly one of clientCredentials, tokenFile and awsMskIam".into()
        });
        found.add_if(self.token_file.as_deref() == Some(""), &format!("{at}.tokenFile"), || {
            "must not be empty".into()
        });
        for (name, value) in &self.extensions {
            let is_usable = is_extension(name, value);
            found.add_if(!is_usable, &format!("{at}.extensions.{name}"), || {
                "an extension has a name of letters, other than auth, and a value of visible characters (RFC 7628)".into()
            });
        }
        if let Some(credentials) = &self.client_credentials {
            credentials.check(&format!("{at}.clientCredentials"), found);
        }
        if let Some(msk) = &self.aws_msk_iam {
            msk.check(brokers, &format!("{at}.awsMskIam"), found);
        }
    }
}

/// Whether librdkafka takes it: it refuses the whole login otherwise.
fn is_extension(name: &str, value: &str) -> bool {
    let is_name = !name.is_empty() && name != "auth" && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_name && value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

impl ClientCredentials {
    fn check(&self, at: &str, found: &mut Violations) {
        let endpoint = &self.token_endpoint;
        let is_url = endpoint.starts_with("https://") || endpoint.starts_with("http://");
        found.add_if(!is_url || endpoint.contains('@'), &format!("{at}.tokenEndpoint"), || {
            "must be a URL such as https://login.example.com/oauth2/token, without a user".into()
        });
        let (id, file) = (self.client_id.as_deref(), self.client_id_file.as_deref());
        found.add_if(id.is_some() == file.is_some(), &format!("{at}.clientId"), || {
            "exactly one of clientId and clientIdFile must be set".into()
        });
        let (secret, assertion) = (self.client_secret_file.as_deref(), self.client_assertion_file.as_deref());
        found.add_if(secret.is_some() == assertion.is_some(), &format!("{at}.clientSecretFile"), || {
            "exactly one of a client's secret and a client assertion must be set".into()
        });
        for (field, file) in [
            ("clientIdFile", file),
            ("clientSecretFile", secret),
            ("clientAssertionFile", assertion),
            ("caFile", self.ca_file.as_deref()),
        ] {
            found.add_if(file == Some(""), &format!("{at}.{field}"), || "must not be empty".into());
        }
        let of_assertion =
            ["client_assertion", "client_assertion_type"].into_iter().filter(|_| assertion.is_some());
        for owned in ["grant_type", "client_id", "client_secret"].into_iter().chain(of_assertion) {
            found.add_if(self.parameters.contains_key(owned), &format!("{at}.parameters.{owned}"), || {
                "is set by other fields".into()
            });
        }
    }
}

impl AwsMskIam {
    /// The region: the field, else that of the first broker whose host name has one; `None` without both.
    pub fn region_of<'a>(&'a self, brokers: &'a [String]) -> Option<&'a str> {
        self.region.as_deref().or_else(|| brokers.iter().find_map(|broker| region_of_host(broker)))
    }

    fn check(&self, brokers: &[String], at: &str, found: &mut Violations) {
        let region_at = format!("{at}.region");
        match self.region_of(brokers) {
            None => found.add(
                region_at,
                "must be set, since no host of bootstrapServers names a region, as NAME.kafka.eu-central-1.amazonaws.com does",
            ),
            Some(region) => found.add_if(!is_aws_region(region), &region_at, || {
                "must be the name of a region of AWS, such as eu-central-1".into()
            }),
        }
        let Some(keys) = &self.keys else { return };
        for (field, file) in [
            ("accessKeyIdFile", Some(&keys.access_key_id_file)),
            ("secretAccessKeyFile", Some(&keys.secret_access_key_file)),
            ("sessionTokenFile", keys.session_token_file.as_ref()),
        ] {
            let is_empty = file.is_some_and(String::is_empty);
            found.add_if(is_empty, &format!("{at}.keys.{field}"), || "must not be empty".into());
        }
    }
}

/// The region in a broker of MSK: `NAME.kafka.REGION.amazonaws.com:PORT`, `kafka-serverless` without brokers of one's own, and `.cn` behind it in
/// China.
fn region_of_host(broker: &str) -> Option<&str> {
    let (host, _) = broker.rsplit_once(':')?;
    let host = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com")?;
    let (before, region) = host.rsplit_once('.')?;
    let (_, service) = before.rsplit_once('.')?;
    (matches!(service, "kafka" | "kafka-serverless") && is_aws_region(region)).then_some(region)
}

/// Whether a text can be the name of a region. It is part of host names that tokens are sent to.
pub fn is_aws_region(text: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    text.len() <= REGION_BYTES_MAX && text.contains('-') && text.split('-').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_the_field_or_in_the_name_of_a_broker() {
        let none = AwsMskIam { region: None, keys: None };
        for (broker, expected) in [
            ("b-1.traces.a1b2c3.c2.kafka.eu-central-1.amazonaws.com:9098", Some("eu-central-1")),
            ("boot-a1b2c3d4.c1.kafka-serverless.us-east-1.amazonaws.com:9098", Some("us-east-1")),
            ("b-1-public.t.a.c2.kafka.us-gov-west-1.amazonaws.com:9198", Some("us-gov-west-1")),
            ("b-1.t.a.c2.kafka.cn-north-1.amazonaws.com.cn:9098", Some("cn-north-1")),
            ("msk.example.com:9098", None),
            ("kafka.eu-central-1.amazonaws.com:9098", None),
            ("a.kafka.eu-central-1.amazonaws.com.example.com:9098", None),
            ("a.kafka.eu-central-1.amazonaws.com", None),
            ("a.kafka.EU.amazonaws.com:1", None),
            ("a.s3.eu-central-1.amazonaws.com:1", None),
            ("", None),
        ] {
            let brokers = ["kafka:9092".to_owned(), broker.to_owned()];
            assert_eq!(none.region_of(&brokers), expected, "{broker}");
            let named = AwsMskIam { region: Some("eu-west-1".into()), keys: None };
            assert_eq!(named.region_of(&brokers), Some("eu-west-1"), "the field comes first");
        }
    }

    #[test]
    fn a_region_is_part_of_a_host_name_and_nothing_more() {
        for good in ["eu-central-1", "us-gov-east-1", "us-isob-east-1", "eusc-de-east-1"] {
            assert!(is_aws_region(good), "{good}");
        }
        for bad in [
            "",
            "eu",
            "eu-central-1.example.com",
            "eu-",
            "-eu",
            "EU-central-1",
            "a-b/",
            "a-b@c",
            &"a-".repeat(20),
        ] {
            assert!(!is_aws_region(bad), "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_login_to_msk_is_named_by_its_field() {
        let keys = |id: &str| AwsKeys {
            access_key_id_file: id.into(),
            secret_access_key_file: "s".into(),
            session_token_file: Some("t".into()),
        };
        for (region, id, expected) in [
            (Some("eu-central-1"), "i", ""),
            (None, "i", "msk.region: must be set, since no host of bootstrapServers names a region"),
            (Some("eu central"), "i", "msk.region: must be the name of a region"),
            (Some("eu-central-1"), "", "msk.keys.accessKeyIdFile: must not be empty"),
        ] {
            let msk = AwsMskIam { region: region.map(str::to_owned), keys: Some(keys(id)) };
            let mut found = Violations::default();
            msk.check(&["kafka:9098".to_owned()], "msk", &mut found);
            let found = found.to_string();
            assert!(found.starts_with(expected) && found.is_empty() == expected.is_empty(), "{found}");
        }
    }
}
