//! An OAuth 2.0 server of the test's own: it gives tokens to a client, and publishes the key with which brokers check them.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

use crate::prelude::*;

pub const CLIENT: &str = "sluice";
pub const CLIENT_SECRET: &str = "correct/horse+battery";

/// The audience of tokens, unless the client asks for another one.
pub const AUDIENCE: &str = "kafka";

const KEY_ID: &str = "one";

/// A server. Ends when dropped.
pub struct Issuer {
    state: Arc<State>,
    /// Aborted when dropped.
    _accepts: JoinSet<()>,
}

struct State {
    address: String,
    key: EcdsaKeyPair,
    lifetime_seconds: AtomicU64,
    issued: AtomicU64,
}

impl Issuer {
    pub async fn start(lifetime_seconds: u64) -> Result<Issuer> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(|_| anyhow!("make a key"))?;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random)
            .map_err(|error| anyhow!("use the key: {error}"))?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for the issuer")?;
        let address = listener.local_addr().context("ask for the issuer's port")?.to_string();
        let state = Arc::new(State {
            address,
            key,
            lifetime_seconds: AtomicU64::new(lifetime_seconds),
            issued: AtomicU64::new(0),
        });
        let of_all = Arc::clone(&state);
        let mut accepts = JoinSet::new();
        accepts.spawn(async move {
            loop {
                // The client had disconnected before.
                let Ok((stream, _)) = listener.accept().await else { continue };
                let state = Arc::clone(&of_all);
                tokio::spawn(async move {
                    let answer = service_fn(move |request| answer(Arc::clone(&state), request));
                    // A client that disconnects during an answer does not need it.
                    http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await.ok();
                });
            }
        });
        Ok(Issuer { state, _accepts: accepts })
    }

    /// Its name in tokens, and the beginning of its URLs.
    pub fn url(&self) -> String {
        format!("http://{}", self.state.address)
    }

    pub fn token_endpoint(&self) -> String {
        format!("{}/token", self.url())
    }

    /// The URL at which brokers get its key.
    pub fn keys(&self) -> String {
        format!("{}/keys", self.url())
    }

    pub fn issued(&self) -> u64 {
        self.state.issued.load(Ordering::Relaxed)
    }

    pub fn token(&self, audience: &str) -> Result<String> {
        self.state.token(audience)
    }
}

impl State {
    fn token(&self, audience: &str) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs();
        let expires = now + self.lifetime_seconds.load(Ordering::Relaxed);
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": KEY_ID});
        let claims = json!({
            "iss": format!("http://{}", self.address), "sub": CLIENT, "aud": audience, "scope": "kafka",
            "iat": now, "exp": expires,
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature =
            self.key.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|_| anyhow!("sign"))?;
        self.issued.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// The key with which its tokens are checked (RFC 7517): the two halves of an uncompressed point.
    fn keys(&self) -> String {
        let point = self.key.public_key().as_ref();
        let [x, y] = [1..33, 33..65].map(|half| URL_SAFE_NO_PAD.encode(&point[half]));
        json!({"keys": [{
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": KEY_ID, "x": x, "y": y,
        }]})
        .to_string()
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match request.uri().path() {
        "/keys" => (StatusCode::OK, state.keys()),
        "/token" => granted(&state, request).await,
        "/nonsense" => (StatusCode::OK, "<html>".to_owned()),
        _ => (StatusCode::NOT_FOUND, "there is nothing".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    Ok(response)
}

async fn granted(state: &State, request: Request<Incoming>) -> (StatusCode, String) {
    let authorization = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let authorization = authorization.map(str::to_owned);
    let Ok(body) = request.into_body().collect().await else {
        return (StatusCode::BAD_REQUEST, "no body".to_owned());
    };
    let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let form: HashMap<&str, &str> = body.split('&').filter_map(|pair| pair.split_once('=')).collect();
    // As in RFC 6749, 2.3.1: the secret's characters are percent-encoded before base64.
    let pair = format!("{CLIENT}:{}", CLIENT_SECRET.replace('/', "%2F").replace('+', "%2B"));
    let expected = format!("Basic {}", STANDARD.encode(pair));
    if authorization != Some(expected) {
        return (StatusCode::UNAUTHORIZED, json!({"error": "invalid_client"}).to_string());
    }
    if form.get("grant_type") != Some(&"client_credentials") {
        return (StatusCode::BAD_REQUEST, json!({"error": "unsupported_grant_type"}).to_string());
    }
    match state.token(form.get("audience").copied().unwrap_or(AUDIENCE)) {
        Ok(token) => {
            let seconds = state.lifetime_seconds.load(Ordering::Relaxed);
            let grant = json!({"access_token": token, "token_type": "Bearer", "expires_in": seconds});
            (StatusCode::OK, grant.to_string())
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
