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
    /// A token endpoint gives it for the client's id and secret.
    ClientCredentials(Box<ClientCredentials>),
    /// It is in a file, or is given.
    Given(Text),
}

/// The client credentials grant of OAuth 2.0 (RFC 6749, 4.4).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCredentials {
    /// The URL of the token endpoint.
    pub endpoint: String,
    pub client_id: Text,
    pub client_secret: Text,
    /// Whether id and secret go in the body instead of the header `Authorization`.
    pub in_body: bool,
    /// More parameters by name: `scope`, `audience`, `resource`.
    pub parameters: Vec<(String, String)>,
    /// PEM certificates of the authorities that may sign the endpoint's certificate; without, those of the system.
    pub authorities: Option<Text>,
}

/// A text, or the file that has it. Its `Debug` text does not show it.
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
    /// That of a gateway's config; `None` if the config names no source, which its rules refuse.
    pub fn of_config(oauth: &contract::OAuth) -> Option<Self> {
        let source = match (&oauth.client_credentials, &oauth.token_file) {
            (Some(credentials), _) => Source::ClientCredentials(Box::new(of_credentials(credentials)?)),
            (None, Some(path)) => Source::Given(Text::File(path.clone())),
            (None, None) => return None,
        };
        Some(Self { source, extensions: pairs(&oauth.extensions) })
    }
}

fn of_credentials(credentials: &contract::ClientCredentials) -> Option<ClientCredentials> {
    let client_id = match (&credentials.client_id, &credentials.client_id_file) {
        (Some(id), _) => Text::Value(id.clone()),
        (None, Some(path)) => Text::File(path.clone()),
        (None, None) => return None,
    };
    Some(ClientCredentials {
        endpoint: credentials.token_endpoint.clone(),
        client_id,
        client_secret: Text::File(credentials.client_secret_file.clone()),
        in_body: credentials.credentials_in_body,
        parameters: pairs(&credentials.parameters),
        authorities: credentials.ca_file.clone().map(Text::File),
    })
}

fn pairs(map: &std::collections::BTreeMap<String, String>) -> Vec<(String, String)> {
    map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}
