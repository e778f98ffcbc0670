//! TLS before the real `ClickHouse`: what comes over it goes on as it is.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::{RootCertStore, server::danger::ClientCertVerifier};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::keys::{Keys, SERVER_NAME};

/// A front. Ends when dropped.
pub struct Front {
    /// `https://host:port`, by the name in the certificate.
    pub url: String,
    /// The port alone.
    pub port: u16,
    accepts: JoinHandle<()>,
}

impl Front {
    /// Listens before the server at `http://host:port`; asks for a client certificate where that is wanted.
    pub async fn start(server: &str, keys: &Keys, asks_for_certificate: bool) -> Result<Front> {
        let behind = server.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let acceptor = TlsAcceptor::from(Arc::new(config(keys, asks_for_certificate)?));
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen for the front")?;
        let port = listener.local_addr().context("ask for the front's port")?.port();
        let accepts = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                // A handshake that fails is what some tests are about.
                tokio::spawn(async move { forward(&acceptor, stream, &behind).await.ok() });
            }
        });
        Ok(Front { url: format!("https://{SERVER_NAME}:{port}"), port, accepts })
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

async fn forward(acceptor: &TlsAcceptor, stream: TcpStream, behind: &str) -> Result<()> {
    let mut secured = acceptor.accept(stream).await?;
    let mut plain = TcpStream::connect(behind).await?;
    tokio::io::copy_bidirectional(&mut secured, &mut plain).await?;
    Ok(())
}

fn config(keys: &Keys, asks_for_certificate: bool) -> Result<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .context("choose TLS versions")?;
    let verifier: Arc<dyn ClientCertVerifier> = if asks_for_certificate {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&keys.certificate("ca"))? {
            roots.add(certificate).context("trust the authority")?;
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .context("ask for certificates")?
    } else {
        WebPkiClientVerifier::no_client_auth()
    };
    let key = PrivateKeyDer::from_pem_file(keys.key("server")).context("read the server's key")?;
    let chain = certificates(&keys.certificate("server"))?;
    builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .context("use the server's certificate")
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).context("open a certificate")?.collect();
    read.context("read a certificate")
}
