//! How the operator gets tokens for Kafka: as the gateways do, with the content of the Secrets; and with a login of its own where theirs is that of
//! their pods.

use super::{
    own_logins::OwnLogins,
    security::{KafkaSecrets, Unreadable, value_of},
};
use sluice_crds::{
    KafkaSource, KeyUse, SecretUse,
    security::{AwsMskIam, ClientAuthentication, ClientCredentials, OAuth},
};
use sluice_gateway_config::{self as contract, security::is_aws_region};
use sluice_login as login;

/// The login of a spec.
pub(super) fn login(
    oauth: &OAuth,
    kafka: &KafkaSource,
    secrets: &KafkaSecrets,
    own: &OwnLogins,
) -> Result<login::Login, Unreadable> {
    let source = match (&oauth.client_credentials, &oauth.service_account_token, &oauth.aws_msk_iam) {
        (Some(credentials), _, _) => {
            login::Source::ClientCredentials(Box::new(of_client(credentials, kafka, secrets, own)?))
        }
        // The token of pods is theirs. The operator logs in as its own ServiceAccount.
        (None, Some(token), _) => {
            login::Source::Given(login::Text::File(own.token(&token.audience, kafka)?.to_owned()))
        }
        (None, None, Some(msk)) => login::Source::AwsMskIam(Box::new(of_msk(msk, kafka, secrets, own)?)),
        // The definition refuses it.
        (None, None, None) => return Err(Unreadable::Incomplete),
    };
    let extensions = oauth.extensions.iter().map(|(name, value)| (name.clone(), value.0.clone()));
    Ok(login::Login { source, extensions: extensions.collect() })
}

fn of_client(
    credentials: &ClientCredentials,
    kafka: &KafkaSource,
    secrets: &KafkaSecrets,
    own: &OwnLogins,
) -> Result<login::ClientCredentials, Unreadable> {
    let named = credentials.secret_ref.as_ref();
    let keys = named.map(|named| named.keys(credentials.client_id.as_deref())).unwrap_or_default();
    let text = |of| value_of(secrets, SecretUse::KafkaClient, &keys, of);
    let client_id = match &credentials.client_id {
        Some(id) => id.clone(),
        None => text(KeyUse::ClientId)?,
    };
    let proof = match (&credentials.client_assertion, named) {
        (Some(_), _) => {
            let file = own.assertion(&credentials.token_endpoint, kafka)?;
            login::ClientProof::Assertion(login::Text::File(file.to_owned()))
        }
        (None, _) => login::ClientProof::Secret {
            value: login::Text::Value(text(KeyUse::ClientSecret)?),
            in_body: credentials.authentication == ClientAuthentication::Post,
        },
    };
    let authorities = credentials
        .ca_secret_ref
        .as_ref()
        .map(|named| value_of(secrets, SecretUse::KafkaTokenAuthorities, &named.keys(), KeyUse::Authorities));
    let scope = credentials.scope.iter().map(|scope| ("scope".to_owned(), scope.clone()));
    let given = credentials.parameters.iter().map(|(name, value)| (name.clone(), value.0.clone()));
    Ok(login::ClientCredentials {
        endpoint: credentials.token_endpoint.clone(),
        client_id: login::Text::Value(client_id),
        proof,
        parameters: given.chain(scope).collect(),
        authorities: authorities.transpose()?.map(login::Text::Value),
    })
}

fn of_msk(
    msk: &AwsMskIam,
    kafka: &KafkaSource,
    secrets: &KafkaSecrets,
    own: &OwnLogins,
) -> Result<login::AwsMskIam, Unreadable> {
    let of_gateways = contract::AwsMskIam { region: msk.region.clone(), keys: None };
    let region = of_gateways.region_of(&kafka.bootstrap_servers).filter(|region| is_aws_region(region));
    let region = region.ok_or(Unreadable::NoRegion)?.to_owned();
    let Some(named) = &msk.secret_ref else {
        own.aws(kafka)?;
        return Ok(login::AwsMskIam { region, credentials: login::AwsCredentials::Pod });
    };
    let keys = named.keys();
    let text = |of| value_of(secrets, SecretUse::KafkaAws, &keys, of).map(login::Text::Value);
    let session = named.session_token_key.as_ref();
    let credentials = login::AwsCredentials::Given(login::AwsKeys {
        access_key_id: text(KeyUse::AccessKeyId)?,
        secret_access_key: text(KeyUse::SecretAccessKey)?,
        session_token: session.map(|_| text(KeyUse::SessionToken)).transpose()?,
    });
    Ok(login::AwsMskIam { region, credentials })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::kafka::{
        own_logins::{BoundFile, NotOwn},
        security::KafkaSecurity,
    };
    use k8s_openapi::{ByteString, api::core::v1::Secret};
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn kafka(servers: &[&str], oauth: &Value) -> KafkaSource {
        serde_json::from_value(json!({
            "bootstrapServers": servers, "topics": ["spans"], "tls": {},
            "sasl": {"mechanism": "OAuthBearer", "oauth": oauth},
        }))
        .unwrap()
    }

    fn secrets(of: SecretUse, values: &[(&str, &str)]) -> KafkaSecrets {
        let data =
            values.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        [(of, Arc::new(Secret { data: Some(data.collect()), ..Secret::default() }))].into()
    }

    fn own(name: &str, servers: &[&str]) -> OwnLogins {
        let servers: Vec<String> = servers.iter().map(|server| (*server).to_owned()).collect();
        let bound = BoundFile { file: "/token".to_owned(), servers: servers.clone() };
        let files: std::collections::BTreeMap<_, _> = [(name.to_owned(), bound)].into();
        OwnLogins { tokens: files.clone(), assertions: files, aws_brokers: servers }
    }

    fn value(text: &str) -> login::Text {
        login::Text::Value(text.to_owned())
    }

    #[test]
    fn tokens_are_asked_for_as_the_gateways_do_with_the_content_of_the_secrets() {
        let oauth = json!({
            "clientCredentials": {
                "tokenEndpoint": "https://login/token", "clientId": "me", "scope": "kafka",
                "parameters": {"audience": "brokers"},
                "secretRef": {"name": "client", "clientSecretKey": "secret"},
            },
            "extensions": {"logicalCluster": "lkc-1"},
        });
        let secrets = secrets(SecretUse::KafkaClient, &[("secret", "s3cret\n")]);
        let security = KafkaSecurity::of(&kafka(&["a:1"], &oauth), &secrets, &OwnLogins::default()).unwrap();
        assert!(security.settings().contains(&("sasl.mechanism", "OAUTHBEARER")));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let credentials = login::ClientCredentials {
            endpoint: "https://login/token".into(),
            client_id: value("me"),
            proof: login::ClientProof::Secret { value: value("s3cret"), in_body: false },
            parameters: vec![pair("audience", "brokers"), pair("scope", "kafka")],
            authorities: None,
        };
        let source = login::Source::ClientCredentials(Box::new(credentials));
        let expected = login::Login { source, extensions: vec![pair("logicalCluster", "lkc-1")] };
        assert_eq!(security.tokens(), Some(&expected));
        assert!(!format!("{security:?} {expected:?}").contains("s3cret"));
    }

    #[test]
    fn a_token_of_pods_is_in_their_pods_and_the_operator_needs_its_own() {
        let kafka = kafka(&["a:9093", "b:9093"], &json!({"serviceAccountToken": {"audience": "kafka"}}));
        let of = |own: &OwnLogins| KafkaSecurity::of(&kafka, &KafkaSecrets::new(), own);
        let missing = of(&own("other", &["a:9093", "b:9093"])).unwrap_err();
        assert_eq!(missing, Unreadable::NotOwn(NotOwn::NoToken { audience: "kafka".into() }));
        let security = of(&own("kafka", &["c:9093", "b:9093", "a:9093"])).unwrap();
        let source = login::Source::Given(login::Text::File("/token".into()));
        assert_eq!(security.tokens(), Some(&login::Login { source, extensions: Vec::new() }));
    }

    #[test]
    fn an_assertion_of_pods_is_theirs_and_the_operators_goes_to_the_endpoint_that_an_admin_named() {
        let endpoint = "https://login/token";
        let oauth = json!({"clientCredentials": {"tokenEndpoint": endpoint, "clientId": "me", "clientAssertion": {}}});
        let kafka = kafka(&["a:9093"], &oauth);
        let of = |own: &OwnLogins| KafkaSecurity::of(&kafka, &KafkaSecrets::new(), own);
        let missing = of(&own("https://other/token", &["a:9093"])).unwrap_err();
        assert_eq!(missing, Unreadable::NotOwn(NotOwn::NoAssertion { endpoint: endpoint.into() }));
        let elsewhere = of(&own(endpoint, &["b:9093"])).unwrap_err();
        assert_eq!(
            elsewhere,
            Unreadable::NotOwn(NotOwn::AssertionNotForBrokers { endpoint: endpoint.into() })
        );
        let security = of(&own(endpoint, &["a:9093"])).unwrap();
        let login::Source::ClientCredentials(found) = &security.tokens().unwrap().source else { panic!() };
        assert_eq!(found.proof, login::ClientProof::Assertion(login::Text::File("/token".into())));
        assert_eq!((found.endpoint.as_str(), &found.client_id), (endpoint, &value("me")));
    }

    #[test]
    fn keys_of_aws_come_from_the_secret_or_from_the_operators_identity_for_brokers_that_an_admin_named() {
        let broker = "b-1.t.a.c2.kafka.eu-central-1.amazonaws.com:9098";
        let of = |msk: Value,
                  servers: &[&str],
                  secrets: &KafkaSecrets,
                  own: &OwnLogins|
         -> Result<_, Unreadable> {
            let found = KafkaSecurity::of(&kafka(servers, &json!({"awsMskIam": msk})), secrets, own)?;
            let login::Source::AwsMskIam(found) = &found.tokens().unwrap().source else { panic!() };
            Ok(*found.clone())
        };
        let none = OwnLogins::default();
        let all = secrets(
            SecretUse::KafkaAws,
            &[("access-key-id", "AKID\n"), ("secret-access-key", "s"), ("t", "IQo")],
        );
        let given = login::AwsKeys {
            access_key_id: value("AKID"),
            secret_access_key: value("s"),
            session_token: None,
        };
        let expected = |credentials| Ok(login::AwsMskIam { region: "eu-central-1".into(), credentials });
        let keys = login::AwsCredentials::Given(given.clone());
        assert_eq!(of(json!({"secretRef": {"name": "aws"}}), &[broker], &all, &none), expected(keys));
        let with_session = login::AwsKeys { session_token: Some(value("IQo")), ..given };
        let named = json!({"region": "eu-central-1", "secretRef": {"name": "aws", "sessionTokenKey": "t"}});
        let keys = login::AwsCredentials::Given(with_session);
        assert_eq!(
            of(named, &["any:9098"], &all, &none),
            expected(keys),
            "the author's keys may go anywhere"
        );
        let of_pod = |servers: &[&str], own: &OwnLogins| {
            of(json!({"region": "eu-central-1"}), servers, &KafkaSecrets::new(), own)
        };
        let refused = Err(Unreadable::NotOwn(NotOwn::AwsNotForBrokers));
        assert_eq!(of_pod(&[broker], &none), refused);
        assert_eq!(of_pod(&[broker, "theirs:9098"], &own("", &[broker])), refused);
        assert_eq!(of_pod(&[broker], &own("", &[broker])), expected(login::AwsCredentials::Pod));
        for region in [json!({}), json!({"region": "evil.example.com/"})] {
            assert_eq!(of(region, &["a:9098"], &all, &own("", &["a:9098"])), Err(Unreadable::NoRegion));
        }
    }
}
