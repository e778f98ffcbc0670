//! A token for a client's id and proof, from a token endpoint.
//!
//! Id and secret go in the header `Authorization`, encoded as RFC 6749, 2.3.1 says, or in the body for servers that want them there. An
//! assertion (RFC 7523, 2.2) is always in the body. It is read again for each token: the kubelet replaces it.

use crate::{
    ClientCredentials, ClientProof, Error, Text, Token,
    answer::{self, Refusal},
    file::{self, Content},
    http_client::{self, Server},
    token::now_ms,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use form_urlencoded::{Serializer, byte_serialize};
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;

/// What an assertion is, for the endpoint (RFC 7523, 2.2).
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// What proves a client's id, with its text.
enum Proof<'a> {
    SecretInHeader(&'a str),
    SecretInBody(&'a str),
    Assertion(&'a str),
}

/// Asks for a token.
///
/// # Errors
/// [`Error`], without the secret and the assertion.
pub async fn fetch(credentials: &ClientCredentials) -> Result<Token, Error> {
    let id = text(Content::ClientId, &credentials.client_id)?;
    let (secret, check) = match &credentials.proof {
        ClientProof::Secret { value, .. } => {
            (text(Content::ClientSecret, value)?, "the client's id and secret, scope and parameters")
        }
        ClientProof::Assertion(value) => (
            text(Content::ClientAssertion, value)?,
            "the client's id and scope, and that the client trusts issuer, subject and audience of the ServiceAccount's token",
        ),
    };
    let proof = match &credentials.proof {
        ClientProof::Secret { in_body: false, .. } => Proof::SecretInHeader(&secret),
        ClientProof::Secret { in_body: true, .. } => Proof::SecretInBody(&secret),
        ClientProof::Assertion(_) => Proof::Assertion(&secret),
    };
    let request = request(credentials, &id, &proof)?;
    let endpoint = &credentials.endpoint;
    let server = (Server::TokenEndpoint, endpoint.as_str());
    let answer = http_client::ask(server, request, credentials.authorities.as_ref()).await?;
    let in_url = encoded(&secret);
    answer::token(endpoint, &answer, Refusal { secrets: &[&secret, &in_url], check }, now_ms())
}

fn text(what: Content, text: &Text) -> Result<String, Error> {
    match text {
        Text::Value(value) => Ok(value.clone()),
        Text::File(path) => file::read(what, path),
    }
}

fn request(
    credentials: &ClientCredentials,
    id: &str,
    proof: &Proof<'_>,
) -> Result<Request<Full<Bytes>>, Error> {
    let given = credentials.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials").extend_pairs(given);
    match proof {
        Proof::SecretInHeader(_) => {}
        Proof::SecretInBody(secret) => {
            form.append_pair("client_id", id).append_pair("client_secret", secret);
        }
        Proof::Assertion(assertion) => {
            form.append_pair("client_id", id)
                .append_pair("client_assertion_type", JWT_BEARER)
                .append_pair("client_assertion", assertion);
        }
    }
    let body = form.finish();
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http_client::url(Server::TokenEndpoint, &credentials.endpoint)?;
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(http_client::FORM));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Proof::SecretInHeader(secret) = proof {
        let pair = STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)));
        let mut value =
            HeaderValue::from_str(&format!("Basic {pair}")).expect("base64 is letters, digits and signs");
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(request)
}

/// A name or value in `application/x-www-form-urlencoded` (RFC 6749, appendix B).
fn encoded(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    async fn sent(proof: Proof<'_>) -> (Option<String>, String) {
        let credentials = ClientCredentials {
            endpoint: "https://login/token".into(),
            client_id: Text::Value("me:you".into()),
            proof: ClientProof::Assertion(Text::File("/token".into())),
            parameters: vec![("scope".into(), "api://a/.default".into())],
            authorities: None,
        };
        let request = request(&credentials, "me:you", &proof).unwrap();
        assert_eq!(request.method(), Method::POST);
        let header = request.headers().get(header::AUTHORIZATION);
        assert!(!format!("{request:?}").contains("czMrY3JldA"), "the header is not printed");
        let header = header.map(|value| value.to_str().unwrap().to_owned());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        (header, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn id_and_secret_go_in_the_header_or_in_the_body_and_an_assertion_in_the_body() {
        let scope = "grant_type=client_credentials&scope=api%3A%2F%2Fa%2F.default";
        let header = format!("Basic {}", STANDARD.encode("me%3Ayou:s3+cret"));
        assert_eq!(sent(Proof::SecretInHeader("s3 cret")).await, (Some(header), scope.to_owned()));
        let body = format!("{scope}&client_id=me%3Ayou&client_secret=s3+cret");
        assert_eq!(sent(Proof::SecretInBody("s3 cret")).await, (None, body));
        let kind = "urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";
        let body = format!(
            "{scope}&client_id=me%3Ayou&client_assertion_type={kind}&client_assertion=eyJhbGciOiJSUzI1NiJ9.e30.c2ln"
        );
        assert_eq!(sent(Proof::Assertion("eyJhbGciOiJSUzI1NiJ9.e30.c2ln")).await, (None, body));
    }
}
