//! The address of a ClickHouse server, and the user.
//!
//! Job: addresses and credentials that are checked once. Place in the flow: parsed from the config; the probe and the insert client use
//! them, with [`crate::tls::Tls`] for `https`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};

use crate::bearer::{BearerError, BearerFile};

/// Default port of the HTTP interface. Specified: ClickHouse's `http_port`.
pub const HTTP_PORT: u16 = 8123;

/// Default port of the HTTP interface with TLS. Specified: ClickHouse's `https_port`.
pub const HTTPS_PORT: u16 = 8443;

/// Why an endpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not a URL.
    #[error(
        "reading the ClickHouse endpoint {endpoint:?}: expected http://host:port or https://host:port ({reason})"
    )]
    NotAUrl { endpoint: String, reason: String },
}

/// The HTTP interface of one server: `http://host:port` or `https://host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    is_https: bool,
    /// `host:port`, an IPv6 address in brackets.
    authority: String,
}

impl Endpoint {
    /// Parses `http://host[:port][/]` or `https://host[:port][/]`.
    ///
    /// # Errors
    /// [`EndpointError`] for anything else: another scheme, a path, a query, a user name.
    pub fn parse(endpoint: &str) -> Result<Self, EndpointError> {
        let refuse = |reason: &str| EndpointError::NotAUrl {
            endpoint: without_user(endpoint),
            reason: reason.to_owned(),
        };
        let uri: Uri = endpoint.parse().map_err(|error: http::uri::InvalidUri| refuse(&error.to_string()))?;
        let is_https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(refuse("the scheme is neither http nor https")),
            None => return Err(refuse("http:// or https:// is missing")),
        };
        let authority = uri.authority().ok_or_else(|| refuse("the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("credentials belong in the Secret, not in the endpoint"));
        }
        if authority.host().is_empty() {
            return Err(refuse("the host is missing"));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(refuse("there is a path or a query after the port"));
        }
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() == authority.host() => {
                if is_https {
                    HTTPS_PORT
                } else {
                    HTTP_PORT
                }
            }
            None => return Err(refuse("the port is not a number from 0 to 65535")),
        };
        Ok(Self { is_https, authority: format!("{}:{port}", authority.host().to_ascii_lowercase()) })
    }

    /// Whether it is reached over TLS.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// `host:port`
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// `http://host:port` or `https://host:port`
    pub fn url(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_https { "https" } else { "http" }, self.authority)
    }
}

/// Why credentials cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the user name {user:?} contains a colon, which HTTP Basic authentication does not allow; use another user"
)]
pub struct UserError {
    /// The user's name.
    user: String,
}

/// A user and password, or a token. The password is never printed.
#[derive(Clone)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The password; empty for none.
    pub password: String,
    /// A token, which is sent instead of user and password.
    pub token: Option<BearerFile>,
}

/// The header `Authorization` of requests.
#[derive(Clone, Debug)]
pub(crate) enum Authorization {
    /// The same for all.
    Fixed(HeaderValue),
    /// With the token that its file has.
    Bearer(BearerFile),
}

impl Authorization {
    /// That of a request which is sent now.
    pub(crate) fn now(&self) -> HeaderValue {
        match self {
            Self::Fixed(value) => value.clone(),
            Self::Bearer(file) => file.header(),
        }
    }

    /// Why the token of now cannot be sent.
    pub(crate) fn failure(&self) -> Option<BearerError> {
        match self {
            Self::Fixed(_) => None,
            Self::Bearer(file) => file.failure(),
        }
    }
}

impl Credentials {
    /// The `Authorization` header with both (RFC 7617, in UTF-8). `ClickHouse`'s own headers would lose spaces at the ends of a password.
    /// Without a name the user is `default`, as with those headers; `ClickHouse` would refuse an empty name here.
    ///
    /// # Errors
    /// [`UserError`] for a user with a colon in its name.
    pub(crate) fn authorization(&self) -> Result<Authorization, UserError> {
        if let Some(file) = &self.token {
            return Ok(Authorization::Bearer(file.clone()));
        }
        if self.user.contains(':') {
            return Err(UserError { user: self.user.clone() });
        }
        let user = if self.user.is_empty() { "default" } else { &self.user };
        let pair = STANDARD.encode(format!("{user}:{}", self.password));
        let mut value =
            HeaderValue::from_str(&format!("Basic {pair}")).expect("base64 is letters, digits and signs");
        // Keeps it out of all debug output.
        value.set_sensitive(true);
        Ok(Authorization::Fixed(value))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// `endpoint` without the part before an `@`: an error message must not repeat a password.
fn without_user(endpoint: &str) -> String {
    match (endpoint.split_once("://"), endpoint.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        (None, Some((_, host))) => format!("…@{host}"),
        _ => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_keep_their_spaces_and_go_as_one_header() {
        let of = |user: &str, password: &str| {
            let credentials = Credentials { user: user.into(), password: password.into(), token: None };
            credentials.authorization().map(|authorization| authorization.now())
        };
        // RFC 7617, section 2.
        assert_eq!(of("Aladdin", "open sesame").unwrap(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(of("a", " b\n").unwrap(), "Basic YTogYgo=");
        assert_eq!(of("", "").unwrap(), of("default", "").unwrap());
        assert!(of("a", "b").unwrap().is_sensitive());
        assert!(of("a:b", "c").unwrap_err().to_string().contains("a:b"));
    }

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        let table = [
            ("http://clickhouse:8123", "clickhouse:8123"),
            ("http://clickhouse.otel.svc/", "clickhouse.otel.svc:8123"),
            ("http://127.0.0.1:18123/", "127.0.0.1:18123"),
            ("http://[::1]:8123", "[::1]:8123"),
            ("http://[::1]", "[::1]:8123"),
            ("https://clickhouse", "clickhouse:8443"),
            ("https://clickhouse:443/", "clickhouse:443"),
        ];
        for (endpoint, authority) in table {
            let parsed = Endpoint::parse(endpoint).unwrap();
            assert_eq!(parsed.authority(), authority);
            let scheme = if endpoint.starts_with("https") { "https" } else { "http" };
            assert_eq!(parsed.url(), format!("{scheme}://{authority}"));
            assert_eq!(parsed.is_https(), scheme == "https");
            assert_eq!(Endpoint::parse(&parsed.url()).unwrap(), parsed);
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_was_expected() {
        for endpoint in [
            "",
            "clickhouse",
            "clickhouse:8123",
            "tcp://clickhouse:9000",
            "http://",
            "http://:8123",
            "http://c:70000",
        ] {
            let error = Endpoint::parse(endpoint).unwrap_err().to_string();
            assert!(error.contains("expected http://host:port"), "{endpoint}: {error}");
        }
        for endpoint in ["http://c:8123/db", "http://c:8123/?user=x"] {
            let error = Endpoint::parse(endpoint).unwrap_err().to_string();
            assert!(error.contains("a path or a query"), "{endpoint}: {error}");
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        for endpoint in ["http://me:s3cret@c:8123", "https://me:s3cret@c:8123", "me:s3cret@c"] {
            let error = Endpoint::parse(endpoint).unwrap_err();
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
        let credentials = Credentials { user: "gateway".into(), password: "s3cret".into(), token: None };
        assert!(!format!("{credentials:?}").contains("s3cret"));
    }
}
