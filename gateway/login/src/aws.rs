//! Tokens for Amazon MSK with IAM: a URL that asks for `kafka-cluster:Connect`, signed by the keys of a user or a role of AWS. Brokers take it
//! as a token of SASL OAUTHBEARER and ask AWS whose it is.
//!
//! ```text
//!  keys of a Secret -------------------------------.
//!  AWS_WEB_IDENTITY_TOKEN_FILE --> AWS STS --------+--> signature --> token, 15 min at most
//!  AWS_CONTAINER_CREDENTIALS_FULL_URI --> agent ---'
//! ```
//!
//! Files are read, and AWS is asked, again for each token: no keys are kept, and a role or a file that changes needs no restart.

mod eks_agent;
mod keys;
mod pod_identity;
mod signature;
mod sts;

use crate::{
    AwsCredentials, AwsKeys, AwsMskIam, Error, Text, Token,
    file::{self, Content},
    http_client::Server,
    token::now_ms,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use form_urlencoded::byte_serialize;
use keys::Keys;
use pod_identity::PodIdentity;
use signature::Signed;

/// How long a token lives, in seconds: the longest that brokers of MSK take.
const LIFETIME_SECONDS: u64 = 900;

/// The service that the signature is for.
const SERVICE: &str = "kafka-cluster";

/// Who signs, for AWS's records of requests.
const USER_AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

/// Makes a token.
///
/// # Errors
/// [`Error`], without a key.
pub async fn fetch(login: &AwsMskIam) -> Result<Token, Error> {
    let keys = match &login.credentials {
        AwsCredentials::Given(given) => of_texts(given)?,
        AwsCredentials::Pod => of_identity(&PodIdentity::of_process(&login.region)?).await?,
    };
    token(&login.region, &keys, now_ms())
}

/// Why there is no token yet although no try has failed.
pub fn slow(login: &AwsMskIam, seconds: u64) -> Error {
    let late = |path: &str| {
        let reason = format!("it is not read within {seconds} s");
        Error::File { what: Content::AccessKeyId, path: path.to_owned(), reason }
    };
    match &login.credentials {
        AwsCredentials::Given(AwsKeys { access_key_id: Text::File(path), .. }) => late(path),
        AwsCredentials::Given(_) => late("the operator's memory"),
        AwsCredentials::Pod => match PodIdentity::of_process(&login.region) {
            Ok(PodIdentity::WebIdentity { endpoint, .. }) => {
                Error::Slow { server: Server::AwsSts, endpoint, seconds }
            }
            Ok(PodIdentity::Agent { endpoint, .. }) => {
                Error::Slow { server: Server::EksPodIdentity, endpoint, seconds }
            }
            Err(error) => error,
        },
    }
}

fn of_texts(given: &AwsKeys) -> Result<Keys, Error> {
    let text = |what: Content, text: &Text| match text {
        Text::Value(value) => Ok(value.clone()),
        Text::File(path) => file::read(what, path),
    };
    let id = text(Content::AccessKeyId, &given.access_key_id)?;
    let secret = text(Content::SecretAccessKey, &given.secret_access_key)?;
    let session = given.session_token.as_ref().map(|token| text(Content::SessionToken, token)).transpose()?;
    Keys::new(id, secret, session, None).map_err(|reason| Error::Keys { reason })
}

async fn of_identity(identity: &PodIdentity) -> Result<Keys, Error> {
    match identity {
        PodIdentity::WebIdentity { endpoint, role, session, token_file } => {
            let token = file::read(Content::StsToken, token_file)?;
            sts::keys(endpoint, &sts::Question { role, session, token: &token }).await
        }
        PodIdentity::Agent { endpoint, token_file } => {
            let token = file::read(Content::AgentToken, token_file)?;
            eks_agent::keys(endpoint, &token).await
        }
    }
}

/// A token of these keys. It lives no longer than they do.
fn token(region: &str, keys: &Keys, now_ms: i64) -> Result<Token, Error> {
    let url = format!("https://kafka.{region}.amazonaws.com/?Action=kafka-cluster%3AConnect");
    let signed = Signed::of(region, SERVICE, LIFETIME_SECONDS).url(&url, keys, now_ms)?;
    // It is outside of the signature, as in the tokens of AWS's own libraries.
    let agent: String = byte_serialize(USER_AGENT.as_bytes()).collect();
    let value = URL_SAFE_NO_PAD.encode(format!("{signed}&User-Agent={agent}"));
    let longest = i64::try_from(LIFETIME_SECONDS).unwrap_or(i64::MAX);
    let left = keys.expires_ms.map_or(longest, |at| at.saturating_sub(now_ms).div_euclid(1_000));
    Token::new(&value, Some(left.min(longest)), now_ms).map_err(|reason| Error::Keys { reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests::{http, issuer};
    use std::collections::BTreeMap;

    /// 2026-11-28, 06:00 UTC.
    const NOW: i64 = 1_795_845_600_000;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    fn keys(id: &str, session: Option<&str>, expires_ms: Option<i64>) -> Keys {
        Keys::new(id.into(), SECRET.into(), session.map(str::to_owned), expires_ms).unwrap()
    }

    fn parameters(token: &Token) -> (String, BTreeMap<String, String>) {
        let url = String::from_utf8(URL_SAFE_NO_PAD.decode(&token.value).unwrap()).unwrap();
        let (before, query) = url.split_once('?').unwrap();
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        (before.to_owned(), pairs.collect())
    }

    /// What AWS's own library for Python (aws-msk-iam-sasl-signer-python 1.0.2) makes of the same keys at the same time.
    #[test]
    fn a_token_is_what_the_library_of_aws_makes_of_the_same_keys() {
        let session = "IQoJb3JpZ2luX2VjEXAMPLE//session/token==";
        for (id, session, region, signature) in [
            (
                "AKIDEXAMPLE",
                None,
                "us-east-1",
                "7558c11b7a95858fd70b058d47d788cdcd996cfcce7c8df964548ee09519e81f",
            ),
            (
                "AKIDEXAMPLE",
                None,
                "eu-central-1",
                "2e79b32ac5fae71cd8f01554dfee964990136b65ef1c2f2b5bf11baa74fed931",
            ),
            (
                "ASIAEXAMPLE",
                Some(session),
                "us-east-1",
                "d4c5a2830739fddbf8f9c4dbef36658e4f117869f0470067dc03d79fcd441658",
            ),
            (
                "ASIAEXAMPLE",
                Some(session),
                "eu-central-1",
                "1f39610fd85f387111b9af8b42f0be5d9cc7137143ce895df5068569f574b38c",
            ),
        ] {
            let token = token(region, &keys(id, session, None), NOW).unwrap();
            assert_eq!(token.expires_ms - NOW, 900_000);
            assert!(!token.value.contains(['=', '+', '/']), "base64url without padding");
            let (url, found) = parameters(&token);
            assert_eq!(url, format!("https://kafka.{region}.amazonaws.com/"));
            let mut expected: BTreeMap<String, String> = [
                ("Action", "kafka-cluster:Connect".to_owned()),
                ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
                ("X-Amz-Credential", format!("{id}/20261128/{region}/kafka-cluster/aws4_request")),
                ("X-Amz-Date", "20261128T060000Z".to_owned()),
                ("X-Amz-Expires", "900".to_owned()),
                ("X-Amz-SignedHeaders", "host".to_owned()),
                ("X-Amz-Signature", signature.to_owned()),
                ("User-Agent", USER_AGENT.to_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
            expected.extend(session.map(|token| ("X-Amz-Security-Token".to_owned(), token.to_owned())));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_token_lives_no_longer_than_its_keys() {
        for (keys_live_ms, expected) in [(100_000, 100_000), (900_500, 900_000), (3_600_000, 900_000)] {
            let keys = keys("ASIAEXAMPLE", Some("s"), Some(NOW + keys_live_ms));
            assert_eq!(token("us-east-1", &keys, NOW).unwrap().expires_ms - NOW, expected);
        }
        for over in [NOW, NOW - 1, i64::MIN, NOW + 999] {
            let said = token("us-east-1", &keys("A", None, Some(over)), NOW).unwrap_err().to_string();
            assert!(said.contains("keys of AWS") && said.contains("expired"), "{said}");
        }
    }

    #[tokio::test]
    async fn keys_of_files_are_read_for_each_token_and_are_in_no_error() {
        let folder = std::env::temp_dir().join(format!("sluice-login-aws-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str| Text::File(folder.join(name).to_str().unwrap().to_owned());
        let given =
            AwsKeys { access_key_id: file("id"), secret_access_key: file("secret"), session_token: None };
        let credentials = AwsCredentials::Given(given);
        let login = AwsMskIam { region: "us-east-1".into(), credentials };
        std::fs::write(folder.join("id"), "AKIDEXAMPLE\n").unwrap();
        let said = fetch(&login).await.unwrap_err().to_string();
        assert!(said.contains("cannot read the secret access key from"), "{said}");
        std::fs::write(folder.join("secret"), SECRET).unwrap();
        let (_, found) = parameters(&fetch(&login).await.unwrap());
        assert!(found["X-Amz-Credential"].starts_with("AKIDEXAMPLE/"), "{found:?}");
        std::fs::write(folder.join("secret"), format!("{SECRET}\nand more")).unwrap();
        let said = fetch(&login).await.unwrap_err().to_string();
        assert!(said.contains("the secret access key has characters") && !said.contains("wJal"), "{said}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// The identities of a pod that asks this server.
    fn identities(endpoint: &str, token_file: &str) -> [PodIdentity; 2] {
        let (endpoint, token_file) = (endpoint.to_owned(), token_file.to_owned());
        let (role, session) = ("arn:aws:iam::1:role/r".to_owned(), "sluice".to_owned());
        [
            PodIdentity::Agent { endpoint: endpoint.clone(), token_file: token_file.clone() },
            PodIdentity::WebIdentity { endpoint, role, session, token_file },
        ]
    }

    #[tokio::test]
    async fn a_pod_gets_keys_for_the_token_in_its_file() {
        let path = std::env::temp_dir().join(format!("sluice-login-identity-{}", std::process::id()));
        std::fs::write(&path, "t0ken\n").unwrap();
        let endpoint = issuer(|request| {
            let (id, secret, token, at) = ("ASIA", "s3cret", "IQo", "2099-01-01T00:00:00Z");
            if request.starts_with("GET ") && request.contains("authorization: t0ken\r\n") {
                let body = format!(
                    r#"{{"AccessKeyId":"{id}","SecretAccessKey":"{secret}","Token":"{token}","Expiration":"{at}"}}"#
                );
                return http("200 OK", &body);
            }
            if request.starts_with("POST ") && request.ends_with("&WebIdentityToken=t0ken") {
                let body = format!(
                    "<Credentials><AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}\
                     </SessionToken><Expiration>{at}</Expiration></Credentials>"
                );
                return http("200 OK", &body);
            }
            http("400 Bad Request", "")
        });
        for identity in identities(&endpoint, path.to_str().unwrap()) {
            let keys = of_identity(&identity).await.unwrap();
            assert_eq!((keys.id.as_str(), keys.session.as_deref()), ("ASIA", Some("IQo")), "{identity:?}");
            let (_, found) = parameters(&token("us-east-1", &keys, now_ms()).unwrap());
            assert_eq!(found["X-Amz-Security-Token"], "IQo");
        }
        std::fs::remove_file(&path).unwrap();
        for identity in identities(&endpoint, path.to_str().unwrap()) {
            let said = of_identity(&identity).await.err().unwrap().to_string();
            assert!(said.contains("cannot read the token for"), "{said}");
        }
    }

    #[tokio::test]
    async fn who_gives_keys_and_refuses_talks_nonsense_or_is_away_is_told() {
        let path = std::env::temp_dir().join(format!("sluice-login-refused-{}", std::process::id()));
        std::fs::write(&path, "t0ken").unwrap();
        let long = "x".repeat(1 << 20);
        for (status, body, expected) in [
            ("403 Forbidden", "t0ken", "answered 403: no error of"),
            ("500 Internal Server Error", "", "answered 500: no error of"),
            ("200 OK", "<html>", "answered 6 bytes without usable keys"),
            ("200 OK", long.as_str(), "its answer goes on behind them"),
        ] {
            let body = body.to_owned();
            let endpoint = issuer(move |_| http(status, &body));
            for identity in identities(&endpoint, path.to_str().unwrap()) {
                let said = of_identity(&identity).await.err().unwrap().to_string();
                assert!(said.contains(expected) && !said.contains("t0ken"), "{identity:?}: {said}");
            }
        }
        for identity in identities("http://127.0.0.1:1/", path.to_str().unwrap()) {
            let said = of_identity(&identity).await.err().unwrap().to_string();
            assert!(said.contains("http://127.0.0.1:1/ does not answer: "), "{said}");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_keys_and_never_answers_is_given_up_after_the_bound() {
        let path = std::env::temp_dir().join(format!("sluice-login-slow-{}", std::process::id()));
        std::fs::write(&path, "t0ken").unwrap();
        // The system accepts connections, and no program reads them. The clock jumps to the bound while everything waits.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/", listener.local_addr().unwrap());
        for (identity, name) in identities(&endpoint, path.to_str().unwrap())
            .into_iter()
            .zip(["EKS Pod Identity agent", "AWS STS endpoint"])
        {
            let said = of_identity(&identity).await.err().unwrap().to_string();
            assert!(said.contains(name) && said.contains("does not answer within 10 s"), "{said}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
