//! TLS before the real `ClickHouse`: it forwards the decrypted bytes unchanged. Servers with TLS of their own are forwarded without
//! decryption: for pods, and for tests that make a server unreachable for themselves only.

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::{RootCertStore, server::danger::ClientCertVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::keys::{Keys, SERVER_NAME};
use crate::prelude::*;

/// A front. Ends when dropped, and every connection through it.
pub struct Front {
    /// `host:port`, by a name or an address in the certificate.
    pub address: String,
    pub port: u16,
    opens: watch::Sender<bool>,
    /// Aborted when dropped.
    _accepts: JoinSet<()>,
}

impl Front {
    /// A front at this address of this machine, before the server at `behind` (`http://host:port`). With keys, it has TLS, and asks for a
    /// client certificate if the flag is set; without keys, the server has its own TLS.
    pub async fn start(host: &str, behind: &str, tls: Option<(&Keys, bool)>) -> Result<Front> {
        let acceptor = tls.map(|(keys, asks)| acceptor(keys, asks)).transpose()?;
        let behind = behind.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind((host, 0)).await.context("listen for the front")?;
        let port = listener.local_addr().context("ask for the front's port")?.port();
        let (opens, is_open) = watch::channel(true);
        let mut accepts = JoinSet::new();
        accepts.spawn(async move {
            loop {
                // The client had disconnected before.
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (acceptor, behind, mut is_open) = (acceptor.clone(), behind.clone(), is_open.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        _ = is_open.wait_for(|is_open| !is_open) => {}
                        // Some tests cause a failed handshake on purpose.
                        _ = forward(acceptor, stream, &behind) => {}
                    }
                });
            }
        });
        let name = if host == NODE_ADDRESS { host } else { SERVER_NAME };
        Ok(Front { address: format!("{name}:{port}"), port, opens, _accepts: accepts })
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Makes the server reachable, or unreachable: then connections are closed, and new ones at once.
    pub fn open(&self, is_open: bool) {
        self.opens.send_replace(is_open);
    }
}

async fn forward(acceptor: Option<TlsAcceptor>, stream: TcpStream, behind: &str) -> Result<()> {
    match acceptor {
        Some(acceptor) => pass(acceptor.accept(stream).await?, behind).await,
        None => pass(stream, behind).await,
    }
}

async fn pass(mut client: impl AsyncRead + AsyncWrite + Unpin, behind: &str) -> Result<()> {
    let mut server = TcpStream::connect(behind).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

fn acceptor(keys: &Keys, asks_for_certificate: bool) -> Result<TlsAcceptor> {
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
    let config = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key);
    Ok(TlsAcceptor::from(Arc::new(config.context("use the server's certificate")?)))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(file).context("open a certificate")?.collect();
    read.context("read a certificate")
}
