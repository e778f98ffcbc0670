//! TLS to the servers: trusted authorities and the client's certificate.
//!
//! Job: reads certificates and keys from files once, and explains a failed handshake. Place in the flow: created at start from the
//! config; the probe and the insert client connect with it. Not used for `http` endpoints.
//!
//! rustls with ring, like the operator's for Kubernetes: one implementation in both programs, and no C code except ring's arithmetic.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

/// The files of certificates and keys, all PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities that may sign a server's certificate; the system's if there is no file.
    pub ca: Option<PathBuf>,
    /// The client's certificate with its chain, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Why connections cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file does not exist, or is not PEM.
    #[error("reading the {what} from {}: {source}", file.display())]
    Read { what: &'static str, file: PathBuf, source: pem::Error },
    /// A file contains no certificate.
    #[error("reading the {what} from {}: it contains no certificate", file.display())]
    Empty { what: &'static str, file: PathBuf },
    /// A certificate or key cannot be used.
    #[error("using the {what} from {}: {source}", file.display())]
    Unusable { what: &'static str, file: PathBuf, source: rustls::Error },
    /// The system has no trusted authorities.
    #[error("this system has no trusted certificate authorities ({reason}); set tls.caFile")]
    NoAuthorities { reason: String },
}

/// How to connect to servers. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// For `http` endpoints: no server is trusted, since none shows a certificate.
    pub fn unused() -> Self {
        Self(Arc::new(trusting(RootCertStore::empty()).with_no_client_auth()))
    }

    /// Reads the files, or the system's authorities.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let roots = match &files.ca {
            Some(file) => authorities(file)?,
            None => system_authorities()?,
        };
        let config = match &files.client {
            None => trusting(roots).with_no_client_auth(),
            Some((certificate, key)) => client_config(roots, certificate, key)?,
        };
        Ok(Self(Arc::new(config)))
    }

    /// A connector that uses TLS if the URL says `https`.
    pub(crate) fn connector(&self, mut http: HttpConnector) -> HttpsConnector<HttpConnector> {
        http.enforce_http(false);
        let config = ClientConfig::clone(&self.0);
        HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

type WantsClient = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn trusting(roots: RootCertStore) -> WantsClient {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows the suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
}

fn client_config(roots: RootCertStore, certificate: &Path, key: &Path) -> Result<ClientConfig, TlsError> {
    let chain = certificates("client certificate", certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::Read {
        what: "client key",
        file: key.to_owned(),
        source,
    })?;
    trusting(roots).with_client_auth_cert(chain, private).map_err(|source| TlsError::Unusable {
        what: "client certificate and key",
        file: certificate.to_owned(),
        source,
    })
}

fn authorities(file: &Path) -> Result<RootCertStore, TlsError> {
    let what = "authorities";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, file)? {
        roots.add(certificate).map_err(|source| TlsError::Unusable {
            what,
            file: file.to_owned(),
            source,
        })?;
    }
    Ok(roots)
}

/// The authorities in `SSL_CERT_FILE`, or where OpenSSL looks, so that Kafka and `ClickHouse` trust the same ones. Unreadable ones among
/// hundreds are skipped.
fn system_authorities() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    let reasons: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
    let reason = if reasons.is_empty() { "no certificates are installed".into() } else { reasons.join("; ") };
    Err(TlsError::NoAuthorities { reason })
}

fn certificates(what: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::Read { what, file: file.to_owned(), source };
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(file).map_err(failed)?.collect();
    let certificates = read.map_err(failed)?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { what, file: file.to_owned() });
    }
    Ok(certificates)
}

/// The TLS error among the causes of an error, if there is one.
pub(crate) fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    // An I/O error reports the causes of its inner error, but not the inner error itself.
    let carried = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let carried = carried.and_then(|carried| tls_error(carried));
    carried.or_else(|| tls_error(error.source()?))
}

/// What a user should check next.
pub(crate) fn advice(error: &rustls::Error) -> &'static str {
    use rustls::Error;
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "no trusted authority signed the server's certificate: check tls.caFile, which must contain the \
             signing authority"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the server's certificate is not valid for the endpoint's host",
        // webpki's name for it; rustls carries it as an error of another library.
        Error::InvalidCertificate(CertificateError::Other(other))
            if other.to_string().contains("CaUsedAsEndEntity") =>
        {
            "the server shows the certificate of an authority as its own: give it one with basicConstraints CA:FALSE, and the authority \
             that signed it to tls.caFile"
        }
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => {
            "the server's certificate is expired or not yet valid: renew it, or check the clock of the gateway's node"
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server requires a client certificate: set tls.certificateFile and tls.keyFile"
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::DecryptError,
        ) => "the server does not trust the client certificate of tls.certificateFile",
        Error::InvalidMessage(_) => {
            "the server does not speak TLS on this port: check the endpoint's port, or write it as http://"
        }
        _ => "check tls and the server's TLS settings",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_what_should_be_in_it() {
        let file = std::env::temp_dir().join(format!("sluice-tls-{}.pem", std::process::id()));
        std::fs::write(&file, "no certificate").unwrap();
        let nowhere = PathBuf::from("/nowhere/ca.crt");
        for (files, expected) in [
            (
                TlsFiles { ca: Some(nowhere.clone()), client: None },
                "reading the authorities from /nowhere/ca.crt",
            ),
            (TlsFiles { ca: Some(file.clone()), client: None }, "it contains no certificate"),
        ] {
            let error = Tls::load(&files).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error = client_config(RootCertStore::empty(), &nowhere, &file).unwrap_err().to_string();
        assert!(error.contains("reading the client certificate from /nowhere/ca.crt"), "{error}");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_tls_error_is_found_below_the_errors_that_carry_it() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let carried = std::io::Error::other(std::io::Error::other(tls.clone()));
        assert_eq!(tls_error(&carried), Some(&tls));
        assert!(advice(&tls).contains("tls.caFile"));
        assert_eq!(tls_error(&std::io::Error::other("closed")), None);
    }
}
