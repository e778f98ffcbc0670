//! How gateways log in to Kafka: from the fields of the spec to those of the config.

use crate::names::{TokenUse, secret_file, token_file};
use sluice_crds::{
    Credentials, SaslMechanism, SecretUse,
    security::{
        ACCESS_KEY_ID_KEY, AwsMskIam, CA_KEY, CLIENT_ID_KEY, CLIENT_SECRET_KEY, ClientAuthentication,
        ClientCredentials, OAuth, PASSWORD_KEY, SECRET_ACCESS_KEY_KEY, SESSION_TOKEN_KEY, Sasl, TOKEN_KEY,
        USERNAME_KEY,
    },
};
use sluice_gateway_config::{self as contract, Violation};

/// The parameter of a token request whose field is `scope`.
const SCOPE: &str = "scope";

/// Fields of a login in the config, and those of the spec that they come from.
const FIELDS: [(&str, &str); 4] = [
    (".sasl.passwordFile", ".sasl.secretRef"),
    (".credentials.passwordFile", ".credentials.secretRef"),
    // Of tokenSecretRef or of serviceAccountToken.
    (".credentials.tokenFile", ".credentials"),
    (".clientCredentials.clientSecretFile", ".clientCredentials.secretRef"),
];

/// The field of the spec that a field of a login comes from. Other fields have the same name in both.
pub(super) fn field(path: String) -> String {
    let renamed = FIELDS.iter().find_map(|(of_config, of_spec)| {
        let before = path.strip_suffix(*of_config)?;
        Some(format!("{before}{of_spec}"))
    });
    renamed.unwrap_or(path)
}

/// Whether a missing user is said of the password, too: a spec has both in one Secret.
pub(super) fn is_said_of_password(one: &Violation) -> bool {
    one.path.ends_with(".usernameFile")
}

/// The login of a spec.
pub(super) fn sasl(sasl: &Sasl) -> contract::Sasl {
    let user = sasl.secret_ref.as_ref();
    contract::Sasl {
        mechanism: match sasl.mechanism {
            SaslMechanism::Plain => contract::SaslMechanism::Plain,
            SaslMechanism::ScramSha256 => contract::SaslMechanism::ScramSha256,
            SaslMechanism::ScramSha512 => contract::SaslMechanism::ScramSha512,
            SaslMechanism::OAuthBearer => contract::SaslMechanism::OAuthBearer,
        },
        username: sasl.username.clone(),
        username_file: user.and_then(|_| user_file(sasl.username.as_ref(), SecretUse::KafkaUser)),
        password_file: user.map(|_| secret_file(SecretUse::KafkaUser, PASSWORD_KEY)),
        oauth: sasl.oauth.as_deref().map(oauth),
    }
}

/// The login to ClickHouse of a spec.
pub(super) fn credentials(credentials: &Credentials) -> contract::Credentials {
    let user = credentials.secret_ref.as_ref();
    let of_secret = credentials.token_secret_ref.as_ref();
    let of_secret = of_secret.map(|_| secret_file(SecretUse::ClickHouseToken, TOKEN_KEY));
    let of_pod = credentials.service_account_token.as_ref().map(|_| token_file(TokenUse::ClickHouse));
    contract::Credentials {
        username: credentials.username.clone(),
        username_file: user.and_then(|_| user_file(credentials.username.as_ref(), SecretUse::ClickHouseUser)),
        password_file: user.map(|_| secret_file(SecretUse::ClickHouseUser, PASSWORD_KEY)),
        token_file: of_secret.or(of_pod),
    }
}

fn oauth(oauth: &OAuth) -> contract::OAuth {
    contract::OAuth {
        client_credentials: oauth.client_credentials.as_ref().map(client_credentials),
        token_file: oauth.service_account_token.as_ref().map(|_| token_file(TokenUse::Kafka)),
        aws_msk_iam: oauth.aws_msk_iam.as_ref().map(aws_msk_iam),
        extensions: oauth.extensions.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect(),
    }
}

fn aws_msk_iam(msk: &AwsMskIam) -> contract::AwsMskIam {
    let file = |key| secret_file(SecretUse::KafkaAws, key);
    let keys = msk.secret_ref.as_ref().map(|secret| contract::AwsKeys {
        access_key_id_file: file(ACCESS_KEY_ID_KEY),
        secret_access_key_file: file(SECRET_ACCESS_KEY_KEY),
        session_token_file: secret.session_token_key.as_ref().map(|_| file(SESSION_TOKEN_KEY)),
    });
    contract::AwsMskIam { region: msk.region.clone(), keys }
}

fn client_credentials(credentials: &ClientCredentials) -> contract::ClientCredentials {
    let file = |key| secret_file(SecretUse::KafkaClient, key);
    let parameters = credentials.parameters.iter().map(|(name, value)| (name.clone(), value.0.clone()));
    let assertion = credentials.client_assertion.as_ref();
    let scope = credentials.scope.iter().map(|scope| (SCOPE.to_owned(), scope.clone()));
    contract::ClientCredentials {
        token_endpoint: credentials.token_endpoint.clone(),
        client_id: credentials.client_id.clone(),
        client_id_file: credentials.client_id.is_none().then(|| file(CLIENT_ID_KEY)),
        client_secret_file: credentials.secret_ref.as_ref().map(|_| file(CLIENT_SECRET_KEY)),
        client_assertion_file: assertion.map(|_| token_file(TokenUse::KafkaAssertion)),
        // It says how a secret is sent.
        credentials_in_body: assertion.is_none() && credentials.authentication == ClientAuthentication::Post,
        parameters: parameters.chain(scope).collect(),
        ca_file: credentials
            .ca_secret_ref
            .as_ref()
            .map(|_| secret_file(SecretUse::KafkaTokenAuthorities, CA_KEY)),
    }
}

/// The file of a user's name that does not stand in the spec.
pub(super) fn user_file(name: Option<&String>, of: SecretUse) -> Option<String> {
    name.is_none().then(|| secret_file(of, USERNAME_KEY))
}
