//! A token for the client's id and secret, from a token endpoint.
//!
//! Id and secret go in the header `Authorization`, encoded as RFC 6749, 2.3.1 has it, or in the body for servers that want them there.

use crate::{ClientCredentials, Error, Text, Token, answer, file, http_client, token::now_ms};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use form_urlencoded::{Serializer, byte_serialize};
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;

/// Asks for a token.
///
/// # Errors
/// [`Error`], without the secret.
pub async fn fetch(credentials: &ClientCredentials) -> Result<Token, Error> {
    let (id, secret) =
        (text("client id", &credentials.client_id)?, text("client secret", &credentials.client_secret)?);
    let request = request(credentials, &id, &secret)?;
    let endpoint = &credentials.endpoint;
    let answer = http_client::ask(endpoint, request, credentials.authorities.as_ref()).await?;
    let in_url = encoded(&secret);
    answer::token(endpoint, &answer, &[&secret, &in_url], now_ms())
}

fn text(what: &'static str, text: &Text) -> Result<String, Error> {
    match text {
        Text::Value(value) => Ok(value.clone()),
        Text::File(path) => file::read(what, path),
    }
}

fn request(credentials: &ClientCredentials, id: &str, secret: &str) -> Result<Request<Full<Bytes>>, Error> {
    let given = credentials.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let own = [("client_id", id), ("client_secret", secret)].into_iter().filter(|_| credentials.in_body);
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials").extend_pairs(given).extend_pairs(own);
    let body = form.finish();
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http_client::url(&credentials.endpoint)?;
    let headers = request.headers_mut();
    let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(header::CONTENT_TYPE, form_type);
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if !credentials.in_body {
        let pair = STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)));
        let mut value =
            HeaderValue::from_str(&format!("Basic {pair}")).expect("base64 is letters, digits and signs");
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(request)
}

/// A name or value as `application/x-www-form-urlencoded` has it (RFC 6749, appendix B).
fn encoded(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    fn credentials(in_body: bool) -> ClientCredentials {
        ClientCredentials {
            endpoint: "https://login/token".into(),
            client_id: Text::Value("me:you".into()),
            client_secret: Text::Value("s3 cret".into()),
            in_body,
            parameters: vec![("scope".into(), "api://a/.default".into())],
            authorities: None,
        }
    }

    async fn sent(in_body: bool) -> (Option<String>, String) {
        let request = request(&credentials(in_body), "me:you", "s3 cret").unwrap();
        assert_eq!(request.method(), Method::POST);
        let header = request.headers().get(header::AUTHORIZATION);
        assert!(!format!("{request:?}").contains("czMrY3JldA"), "the header is not printed");
        let header = header.map(|value| value.to_str().unwrap().to_owned());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        (header, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn id_and_secret_go_in_the_header_or_in_the_body() {
        let scope = "grant_type=client_credentials&scope=api%3A%2F%2Fa%2F.default";
        let header = format!("Basic {}", STANDARD.encode("me%3Ayou:s3+cret"));
        assert_eq!(sent(false).await, (Some(header), scope.to_owned()));
        let body = format!("{scope}&client_id=me%3Ayou&client_secret=s3+cret");
        assert_eq!(sent(true).await, (None, body));
    }
}
