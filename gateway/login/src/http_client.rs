//! One request to a server, with bounds of time and size. A connection is not kept: there is one request in minutes.

use crate::{
    Error, Text,
    answer::{ANSWER_BYTES_MAX, Answer},
    file,
};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{error::Error as StdError, sync::Arc, time::Duration};

/// How long a server may take for its whole answer. Chosen: a login server answers in a second, a proxy tells of one that is away after ten.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The content type of a form.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// What kind of server is asked, in the words of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// It grants tokens.
    TokenEndpoint,
    /// It gives keys for the token of a ServiceAccount.
    AwsSts,
    /// It gives keys to the pods of its node.
    EksPodIdentity,
}

impl Server {
    /// Its name in a sentence.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TokenEndpoint => "token endpoint",
            Self::AwsSts => "AWS STS endpoint",
            Self::EksPodIdentity => "EKS Pod Identity agent",
        }
    }

    /// A URL of its kind.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::TokenEndpoint => "https://login.example.com/oauth2/token",
            Self::AwsSts => "https://sts.eu-central-1.amazonaws.com",
            Self::EksPodIdentity => "http://169.254.170.23/v1/credentials",
        }
    }

    /// What it gives.
    pub(crate) fn grant(self) -> &'static str {
        match self {
            Self::TokenEndpoint => "a usable token",
            Self::AwsSts | Self::EksPodIdentity => "usable keys",
        }
    }

    /// What it is.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::TokenEndpoint => "the token endpoint of an OAuth 2.0 server",
            Self::AwsSts => "the endpoint of AWS STS, and that no proxy answers in its place",
            Self::EksPodIdentity => "the agent of EKS Pod Identity, and that no proxy answers in its place",
        }
    }
}

/// The URL of a server: `http` or `https`, with a host.
///
/// # Errors
/// [`Error::Endpoint`].
pub fn url(server: Server, endpoint: &str) -> Result<Uri, Error> {
    let refused = |reason: &str| Error::Endpoint {
        server,
        endpoint: without_user(endpoint),
        reason: reason.to_owned(),
    };
    let uri: Uri = endpoint.parse().map_err(|_| refused("it cannot be read"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(refused("it does not begin with https:// or http://"));
    }
    match uri.authority() {
        None => Err(refused("it has no host")),
        Some(authority) if authority.as_str().contains('@') => Err(refused("a user belongs in the Secret")),
        Some(_) => Ok(uri),
    }
}

/// What of an endpoint may be printed.
pub(crate) fn without_user(endpoint: &str) -> String {
    endpoint.rsplit_once('@').map_or_else(|| endpoint.to_owned(), |(_, host)| format!("…@{host}"))
}

/// Sends a request and reads the whole answer.
///
/// # Errors
/// [`Error::Unreachable`], [`Error::Slow`], [`Error::Nonsense`] for an answer that is too long, and [`Error::Authorities`].
pub async fn ask(
    (server, endpoint): (Server, &str),
    request: Request<Full<Bytes>>,
    authorities: Option<&Text>,
) -> Result<Answer, Error> {
    let roots = roots(server, request.uri(), authorities)?;
    let asked = tokio::time::timeout(REQUEST_TIMEOUT, exchange((server, endpoint), request, roots)).await;
    asked.unwrap_or_else(|_| {
        Err(Error::Slow { server, endpoint: endpoint.to_owned(), seconds: REQUEST_TIMEOUT.as_secs() })
    })
}

async fn exchange(
    (server, endpoint): (Server, &str),
    request: Request<Full<Bytes>>,
    roots: RootCertStore,
) -> Result<Answer, Error> {
    let unreachable = |error: &dyn StdError| Error::Unreachable {
        server,
        endpoint: endpoint.to_owned(),
        reason: causes(error),
    };
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls(roots))
        .https_or_http()
        .enable_http1()
        .wrap_connector(http);
    let client: Client<_, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
    let answer = client.request(request).await.map_err(|error| unreachable(&error))?;
    let status = answer.status().as_u16();
    match Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await {
        Ok(body) => Ok(Answer { status, body: body.to_bytes().to_vec() }),
        Err(error) if error.is::<LengthLimitError>() => Err(Error::Nonsense {
            server,
            endpoint: endpoint.to_owned(),
            bytes: ANSWER_BYTES_MAX,
            reason: "its answer goes on behind them".to_owned(),
        }),
        Err(error) => Err(unreachable(&*error)),
    }
}

fn tls(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows the suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The authorities that are trusted; none for a server without TLS.
fn roots(server: Server, uri: &Uri, authorities: Option<&Text>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    if uri.scheme_str() == Some("http") {
        return Ok(roots);
    }
    let refused = |reason: String| Error::Authorities { server, reason };
    let pem = match authorities {
        None => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            let none = || refused("this system has none; name them in caSecretRef".into());
            return if added > 0 { Ok(roots) } else { Err(none()) };
        }
        Some(Text::Value(pem)) => pem.clone(),
        Some(Text::File(path)) => file::read_long(file::Content::Authorities, path)?,
    };
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| refused(format!("they are not PEM: {error}")))?;
        roots.add(certificate).map_err(|error| refused(error.to_string()))?;
    }
    if roots.is_empty() { Err(refused("there is no certificate in them".into())) } else { Ok(roots) }
}

/// An error with its causes: hyper's own text names none.
fn causes(error: &dyn StdError) -> String {
    let mut text = lasting(&error.to_string()).to_owned();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {}", lasting(&next.to_string()));
        cause = next.source();
    }
    text
}

/// A text without the time of the try, which rustls puts at its end: the same failure has the same text each time.
fn lasting(text: &str) -> &str {
    text.split_once(": verification time").map_or(text, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_scheme_and_a_host_and_no_user() {
        for good in
            ["https://login.example.com/oauth2/token", "http://keycloak:8080/a?b=c", "https://[::1]:1/"]
        {
            url(Server::TokenEndpoint, good).unwrap();
        }
        for bad in ["", "login.example.com", "ftp://a/b", "/token", "https:// a"] {
            assert!(url(Server::TokenEndpoint, bad).is_err(), "{bad}");
        }
        let said = url(Server::TokenEndpoint, "https://user:s3cret@login/token").unwrap_err().to_string();
        assert!(
            said.contains("the token endpoint")
                && said.contains("belongs in the Secret")
                && !said.contains("s3cret"),
            "{said}"
        );
    }

    #[test]
    fn the_same_failure_has_the_same_words_at_each_try() {
        let expired = |now: u64| {
            let at = |seconds| rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            let error = rustls::CertificateError::ExpiredContext { time: at(now), not_after: at(1_000) };
            causes(&std::io::Error::other(rustls::Error::InvalidCertificate(error)))
        };
        assert_eq!(expired(2_000), "invalid peer certificate: certificate expired");
        assert_eq!(expired(2_000), expired(2_001));
        assert_eq!(causes(&std::io::Error::other("gone")), "gone");
    }
}
