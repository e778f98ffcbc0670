//! How a token is got.

use sluice_gateway_config as contract;
use std::fmt;

/// Where a token comes from, and what is sent with it. Equal ones share an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Login {
    /// Where it comes from.
    pub source: Source,
    /// SASL extensions (RFC 7628) that are sent with each token, by name.
    pub extensions: Vec<(String, String)>,
}

/// Where a token comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A token endpoint gives it for the client's id and a proof.
    ClientCredentials(Box<ClientCredentials>),
    /// It is in a file, or is given.
    Given(Text),
    /// It is a URL with a signature of AWS.
    AwsMskIam(Box<AwsMskIam>),
}

/// The client credentials grant of OAuth 2.0 (RFC 6749, 4.4).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCredentials {
    /// The URL of the token endpoint.
    pub endpoint: String,
    pub client_id: Text,
    pub proof: ClientProof,
    /// More parameters by name: `scope`, `audience`, `resource`.
    pub parameters: Vec<(String, String)>,
    /// PEM certificates of the authorities that may sign the endpoint's certificate; without, those of the system.
    pub authorities: Option<Text>,
}

/// What proves that a client's id is its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClientProof {
    /// Its secret.
    Secret {
        value: Text,
        /// Whether id and secret go in the body instead of the header `Authorization`.
        in_body: bool,
    },
    /// A token that another issuer signed and the endpoint trusts (RFC 7523).
    Assertion(Text),
}

/// The login to a cluster of Amazon MSK with IAM.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AwsMskIam {
    /// Where the cluster is.
    pub region: String,
    pub credentials: AwsCredentials,
}

/// Whose keys sign.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AwsCredentials {
    /// These.
    Given(AwsKeys),
    /// Those that AWS gives to this process for its environment: IRSA or EKS Pod Identity.
    Pod,
}

/// The keys of a user or a session of AWS.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AwsKeys {
    pub access_key_id: Text,
    pub secret_access_key: Text,
    /// The keys of a session have one.
    pub session_token: Option<Text>,
}

/// A text, or the file that contains it. Its `Debug` text does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Text {
    /// A file, which is read again for each token.
    File(String),
    /// The text itself.
    Value(String),
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Value(_) => f.write_str("Value"),
        }
    }
}

impl Login {
    /// That of a gateway's config; `None` if it logs in without tokens, or names no source or no region, which its rules refuse.
    pub fn of_config(kafka: &contract::Kafka) -> Option<Self> {
        let oauth = kafka.sasl.as_ref()?.oauth.as_ref()?;
        let source = match (&oauth.client_credentials, &oauth.token_file, &oauth.aws_msk_iam) {
            (Some(credentials), _, _) => Source::ClientCredentials(Box::new(of_credentials(credentials)?)),
            (None, Some(path), _) => Source::Given(Text::File(path.clone())),
            (None, None, Some(msk)) => {
                let region = msk.region_of(&kafka.bootstrap_servers)?.to_owned();
                Source::AwsMskIam(Box::new(AwsMskIam { region, credentials: of_keys(msk.keys.as_ref()) }))
            }
            (None, None, None) => return None,
        };
        Some(Self { source, extensions: pairs(&oauth.extensions) })
    }
}

fn of_keys(keys: Option<&contract::AwsKeys>) -> AwsCredentials {
    let Some(keys) = keys else { return AwsCredentials::Pod };
    AwsCredentials::Given(AwsKeys {
        access_key_id: Text::File(keys.access_key_id_file.clone()),
        secret_access_key: Text::File(keys.secret_access_key_file.clone()),
        session_token: keys.session_token_file.clone().map(Text::File),
    })
}

fn of_credentials(credentials: &contract::ClientCredentials) -> Option<ClientCredentials> {
    let client_id = match (&credentials.client_id, &credentials.client_id_file) {
        (Some(id), _) => Text::Value(id.clone()),
        (None, Some(path)) => Text::File(path.clone()),
        (None, None) => return None,
    };
    let proof = match (&credentials.client_secret_file, &credentials.client_assertion_file) {
        (Some(path), _) => {
            ClientProof::Secret { value: Text::File(path.clone()), in_body: credentials.credentials_in_body }
        }
        (None, Some(path)) => ClientProof::Assertion(Text::File(path.clone())),
        (None, None) => return None,
    };
    Some(ClientCredentials {
        endpoint: credentials.token_endpoint.clone(),
        client_id,
        proof,
        parameters: pairs(&credentials.parameters),
        authorities: credentials.ca_file.clone().map(Text::File),
    })
}

fn pairs(map: &std::collections::BTreeMap<String, String>) -> Vec<(String, String)> {
    map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}
