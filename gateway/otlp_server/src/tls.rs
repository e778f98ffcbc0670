//! TLS of the server: its certificate, and the authorities of its clients.
//!
//! rustls with ring, as everywhere in the gateway.

use crate::{
    config::TlsFiles,
    files::{Contents, Files, read},
    server::Error,
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use std::{ops::Range, path::Path, sync::Arc};

/// What connections of each port begin with.
#[derive(Debug)]
pub(crate) struct Tls {
    /// HTTP/2 only, as gRPC is.
    pub grpc: Arc<ServerConfig>,
    /// HTTP/2 or HTTP/1.1.
    pub http: Arc<ServerConfig>,
}

impl Files for TlsFiles {
    type Made = Tls;

    fn read(&self) -> Vec<Result<Vec<u8>, Error>> {
        let mut contents = vec![read("certificate", &self.certificate), read("key", &self.key)];
        contents.extend(self.client_ca.as_deref().map(|file| read("authorities of clients", file)));
        contents
    }

    fn groups(&self) -> Vec<Range<usize>> {
        let certificate_and_key = 0..2;
        let authorities = self.client_ca.as_ref().map(|_| 2..3);
        std::iter::once(certificate_and_key).chain(authorities).collect()
    }

    fn make(&self, contents: &Contents) -> Result<Tls, Error> {
        let of = |index: usize| contents.get(index).map(Vec::as_slice).unwrap_or_default();
        let unusable =
            |what, file: &Path, reason: String| Error::Unusable { what, file: file.to_owned(), reason };
        let chain = certificates("certificate", &self.certificate, of(0))?;
        let key = PrivateKeyDer::from_pem_slice(of(1))
            .map_err(|error| unusable("key", &self.key, error.to_string()))?;
        let authorities = match &self.client_ca {
            Some(file) => Some(authorities(file, of(2))?),
            None => None,
        };
        let provider = Arc::new(ring::default_provider());
        let versions = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("ring knows the suites of TLS 1.2 and 1.3");
        let clients = match (authorities, &self.client_ca) {
            (Some(roots), Some(file)) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                let what = "authorities of clients";
                let verifier = verifier.map_err(|error| unusable(what, file, error.to_string()))?;
                versions.with_client_cert_verifier(verifier)
            }
            _ => versions.with_no_client_auth(),
        };
        // This also checks that the key is that of the certificate: of files that are being replaced, one may be new and one old.
        let mut http = clients
            .with_single_cert(chain, key)
            .map_err(|error| unusable("certificate and its key", &self.certificate, error.to_string()))?;
        let mut grpc = http.clone();
        grpc.alpn_protocols = vec![b"h2".to_vec()];
        http.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls { grpc: Arc::new(grpc), http: Arc::new(http) })
    }
}

fn certificates(
    what: &'static str,
    file: &Path,
    content: &[u8],
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let unusable = |reason| Error::Unusable { what, file: file.to_owned(), reason };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(content).collect();
    let found = found.map_err(|error| unusable(error.to_string()))?;
    if found.is_empty() {
        return Err(unusable("it contains no certificate".to_owned()));
    }
    Ok(found)
}

fn authorities(file: &Path, content: &[u8]) -> Result<RootCertStore, Error> {
    let what = "authorities of clients";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, file, content)? {
        roots.add(certificate).map_err(|error| Error::Unusable {
            what,
            file: file.to_owned(),
            reason: error.to_string(),
        })?;
    }
    Ok(roots)
}
