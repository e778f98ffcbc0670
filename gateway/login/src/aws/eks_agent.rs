//! Keys of the role that EKS Pod Identity gives to a pod. An agent on the node takes a token of the ServiceAccount for them.

use super::keys::Keys;
use crate::{
    Error,
    answer::{Answer, is_code, told},
    http_client::{self, Server},
};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use jiff::Timestamp;
use serde::Deserialize;

/// What a person checks after a refusal.
const CHECK: &str = "that EKS has an association of this ServiceAccount with a role";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Granted {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: String,
}

#[derive(Deserialize)]
struct Denied {
    #[serde(alias = "Code")]
    code: String,
    #[serde(alias = "Message", default)]
    message: String,
}

/// Asks for keys.
///
/// # Errors
/// [`Error`], without the token.
pub(super) async fn keys(endpoint: &str, token: &str) -> Result<Keys, Error> {
    let request = request(endpoint, token)?;
    let answer = http_client::ask((Server::EksPodIdentity, endpoint), request, None).await?;
    granted(endpoint, &answer, token)
}

fn request(endpoint: &str, token: &str) -> Result<Request<Full<Bytes>>, Error> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = http_client::url(Server::EksPodIdentity, endpoint)?;
    let mut value = HeaderValue::from_str(token).map_err(|_| Error::Keys {
        reason: "the token for the EKS Pod Identity agent has characters that no header has".to_owned(),
    })?;
    value.set_sensitive(true);
    let headers = request.headers_mut();
    headers.insert(header::AUTHORIZATION, value);
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    Ok(request)
}

fn granted(endpoint: &str, answer: &Answer, token: &str) -> Result<Keys, Error> {
    let server = Server::EksPodIdentity;
    let endpoint = endpoint.to_owned();
    if !answer.is_grant() {
        let denied: Option<Denied> = serde_json::from_slice(&answer.body).ok();
        let said = match denied.filter(|denied| is_code(&denied.code)) {
            Some(denied) => told(denied.code, denied.message, &[token]),
            None => "no error of the agent in JSON".to_owned(),
        };
        return Err(Error::Refused { server, endpoint, status: answer.status, said, check: CHECK });
    }
    let found = || {
        // What serde says of a text may repeat a part of it.
        let granted: Granted = serde_json::from_slice(&answer.body).map_err(|_| {
            "it is no JSON object with AccessKeyId, SecretAccessKey, Token and Expiration".to_owned()
        })?;
        let expires: Timestamp =
            granted.expiration.parse().map_err(|_| "its Expiration is no time".to_owned())?;
        let Granted { access_key_id, secret_access_key, token, .. } = granted;
        Keys::new(access_key_id, secret_access_key, Some(token), Some(expires.as_millisecond()))
    };
    found().map_err(|reason| Error::Nonsense { server, endpoint, bytes: answer.body.len(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANTED: &str = r#"{"AccessKeyId": "ASIA", "SecretAccessKey": "s3cret", "Token": "IQo", "AccountId": "1",
        "Expiration": "2026-11-28T06:15:00Z"}"#;

    fn of(status: u16, body: &str) -> Result<Keys, String> {
        let answer = Answer { status, body: body.as_bytes().to_vec() };
        granted("http://agent", &answer, "t0ken").map_err(|error| error.to_string())
    }

    #[test]
    fn the_token_goes_in_a_header_that_is_not_printed() {
        let request = request("http://169.254.170.23/v1/credentials", "t0ken").unwrap();
        assert_eq!(request.headers()[header::AUTHORIZATION], "t0ken");
        assert!(!format!("{request:?}").contains("t0ken"));
        let said = super::request("http://agent/", "t0\nken").unwrap_err().to_string();
        assert!(said.contains("no header has") && !said.contains("t0"), "{said}");
    }

    #[test]
    fn an_answer_has_keys_a_refusal_has_a_code_and_the_rest_is_not_shown() {
        let keys = of(200, GRANTED).ok().unwrap();
        assert_eq!(
            (keys.id.as_str(), keys.secret.as_str(), keys.session.as_deref()),
            ("ASIA", "s3cret", Some("IQo"))
        );
        assert_eq!(keys.expires_ms, Some(1_795_846_500_000));
        for (status, body, expected) in [
            (
                404,
                r#"{"code":"ResourceNotFoundException","message":"No association of t0ken. Id 1"}"#
                    .to_owned(),
                "answered 404: ResourceNotFoundException: No association of …; check that EKS has an association",
            ),
            (500, r#"{"Code":"a"}"#.into(), "answered 500: a; check"),
            (
                403,
                "[0a-1]: (AccessDenied): t0ken".into(),
                "answered 403: no error of the agent in JSON; check",
            ),
            (200, "[]".into(), "2 bytes without usable keys: it is no JSON object"),
            (200, "s3cret".into(), "6 bytes without usable keys"),
            (200, GRANTED.replace("2026-", ""), "its Expiration is no time"),
            (200, GRANTED.replace("ASIA", ""), "the access key id is empty"),
        ] {
            let said = of(status, &body).err().unwrap();
            assert!(said.contains(expected), "{said}");
            assert!(!said.contains("s3cret") && !said.contains("t0ken"), "{said}");
        }
    }
}
