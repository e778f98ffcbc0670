//! TLS, certificates of clients, and files that change while the server runs.

use crate::{
    certificates::{Authority, Folder, Signed},
    client::{Http2, export, framed, post, request, spans},
    grpc::tonic_export,
    world::{World, soon},
};
use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use rustls::{ClientConfig, pki_types::ServerName};
use sluice_otlp_server::{
    ByteBudget, ConnectionEnd, CredentialFiles, Error, NoticeKind, Server, ServerConfig, TlsFiles,
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::{Certificate, Channel, ClientTlsConfig};

const OFTEN: Duration = Duration::from_millis(10);

fn files(folder: &Folder, signed: &Signed, client_ca: Option<&str>) -> TlsFiles {
    TlsFiles {
        certificate: folder.write("tls.crt", &signed.certificate),
        key: folder.write("tls.key", &signed.key),
        client_ca: client_ca.map(|pem| folder.write("ca.crt", pem)),
    }
}

async fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = soon(TcpStream::connect(address)).await?;
    let name = ServerName::try_from("localhost").unwrap();
    soon(TlsConnector::from(config.clone()).connect(name, stream)).await
}

fn certificate(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

fn message() -> http::Request<Full<Bytes>> {
    export(&[], Full::new(Bytes::from(framed(0, b"x"))))
}

#[tokio::test]
async fn both_ports_speak_tls_and_agree_on_the_protocol() {
    let (folder, authority) = (Folder::new("both_ports"), Authority::new());
    let world = World::accepting(|config| config.tls = Some(files(&folder, &authority.sign(), None))).await;
    let stream = connect(world.grpc, &authority.client(&["h2"], None)).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(Http2::over(stream).await.send(message()).await.grpc().0, "0");
    for (offered, agreed) in [(&["h2", "http/1.1"][..], "h2"), (&["http/1.1"], "http/1.1")] {
        let stream = connect(world.http, &authority.client(offered, None)).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(agreed.as_bytes()));
        if agreed == "h2" {
            let body = Full::new(Bytes::from_static(b"x"));
            let headers = [("content-type", "application/x-protobuf")];
            let message = request(Method::POST, "https://otlp/v1/traces", &headers, body);
            assert_eq!(Http2::over(stream).await.send(message).await.status, 200);
        }
    }
    let refused = connect(world.grpc, &authority.client(&["http/1.1"], None)).await;
    assert!(refused.is_err(), "gRPC is HTTP/2");
    world.ended(ConnectionEnd::Handshake, 1).await;
}

#[tokio::test]
async fn tonic_exports_over_tls() {
    let (folder, authority) = (Folder::new("tonic_exports"), Authority::new());
    let world = World::accepting(|config| config.tls = Some(files(&folder, &authority.sign(), None))).await;
    let tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&authority.pem)).domain_name("localhost");
    let endpoint = Channel::from_shared(format!("https://{}", world.grpc)).unwrap();
    let channel = soon(endpoint.tls_config(tls).unwrap().connect()).await.unwrap();
    tonic_export(channel, true, tonic::Request::new(spans(10))).await.unwrap();
}

#[tokio::test]
async fn plain_text_to_tls_is_closed_and_counted() {
    let (folder, authority) = (Folder::new("plain_text"), Authority::new());
    let mut world =
        World::accepting(|config| config.tls = Some(files(&folder, &authority.sign(), None))).await;
    let stream = soon(TcpStream::connect(world.http)).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let body = Full::new(Bytes::new());
    assert!(soon(sender.send_request(request(Method::POST, "/v1/traces", &[], body))).await.is_err());
    let notice = world.notice(NoticeKind::Connection(ConnectionEnd::Handshake)).await;
    assert!(notice.words.contains("handshake"), "{notice:?}");
}

#[tokio::test]
async fn clients_show_a_certificate_of_the_authority_if_there_is_one() {
    let (folder, authority, stranger) = (Folder::new("clients_show"), Authority::new(), Authority::new());
    let world = World::accepting(|config| {
        config.tls = Some(files(&folder, &authority.sign(), Some(&authority.pem)));
    })
    .await;
    let (own, other) = (authority.sign(), stranger.sign());
    let stream = connect(world.grpc, &authority.client(&["h2"], Some(&own))).await.unwrap();
    assert_eq!(Http2::over(stream).await.send(message()).await.grpc().0, "0");
    for signed in [None, Some(&other)] {
        // In TLS 1.3 the client may believe that it is connected, until it reads.
        if let Ok(stream) = connect(world.grpc, &authority.client(&["h2"], signed)).await {
            let client = Http2::over(stream).await;
            assert!(soon(client.begin(message())).await.unwrap().is_err());
        }
    }
    world.ended(ConnectionEnd::Handshake, 2).await;
}

#[tokio::test]
async fn new_certificates_are_shown_and_damaged_ones_are_not() {
    let (folder, authority) = (Folder::new("new_certificates"), Authority::new());
    let (first, second) = (authority.sign(), authority.sign());
    let mut world = World::accepting(|config| {
        config.tls = Some(files(&folder, &first, None));
        config.limits.reload_interval = OFTEN;
    })
    .await;
    let client = authority.client(&["h2"], None);
    let open = connect(world.grpc, &client).await.unwrap();
    let before = certificate(&open);
    let open = Http2::over(open).await;

    // Half of it is new: it does not fit, and the former one is shown on.
    folder.write("tls.crt", &second.certificate);
    let notice = world.notice(NoticeKind::FilesFailed).await;
    assert!(notice.words.contains("tls.crt") && notice.words.contains("used on"), "{notice:?}");
    assert_eq!(certificate(&connect(world.grpc, &client).await.unwrap()), before);

    folder.write("tls.key", &second.key);
    world.notice(NoticeKind::FilesReloaded).await;
    assert_ne!(certificate(&connect(world.grpc, &client).await.unwrap()), before);
    assert_eq!(open.send(message()).await.grpc().0, "0", "what is open stays open");
    assert_eq!(world.counters.files_reloaded(), 1);
    assert!(world.counters.files_failed() >= 1);
}

#[tokio::test]
async fn new_tokens_pass_and_former_ones_do_not() {
    let folder = Folder::new("new_tokens");
    let tokens = folder.write("tokens", "first");
    let users = folder.write("users", "anna:secret");
    let mut world = World::accepting(|config| {
        let (bearer_tokens, basic_users) = (vec![tokens], vec![users]);
        config.credentials = Some(CredentialFiles { bearer_tokens, basic_users });
        config.limits.reload_interval = OFTEN;
    })
    .await;
    let send = async |address, token| {
        let headers = [("content-type", "application/x-protobuf"), ("authorization", token)];
        post(address, &headers, "x").await.status.as_u16()
    };
    assert_eq!(send(world.http, "Bearer first").await, 200);
    assert_eq!(send(world.http, "Basic YW5uYTpzZWNyZXQ=").await, 200);
    assert_eq!(send(world.http, "Bearer second").await, 401);
    // Both, while clients change.
    folder.write("tokens", "first\nsecond");
    world.notice(NoticeKind::FilesReloaded).await;
    assert_eq!(send(world.http, "Bearer first").await, 200);
    assert_eq!(send(world.http, "Bearer second").await, 200);
    folder.write("tokens", "second");
    world.notice(NoticeKind::FilesReloaded).await;
    assert_eq!(send(world.http, "Bearer first").await, 401);
    // A file that has gone leaves what was read.
    std::fs::remove_file(folder.path("users")).unwrap();
    let notice = world.notice(NoticeKind::FilesFailed).await;
    assert!(notice.words.contains("users"), "{notice:?}");
    assert_eq!(send(world.http, "Basic YW5uYTpzZWNyZXQ=").await, 200);
    // The other one is read all the same.
    folder.write("tokens", "third");
    world.notice(NoticeKind::FilesReloaded).await;
    assert_eq!(send(world.http, "Bearer third").await, 200);
    assert_eq!(send(world.http, "Bearer second").await, 401);
    // A line that is no token is named, and the file before is used on; the secret is not repeated.
    folder.write("tokens", "third\nthird secret");
    let notice = soon(async {
        loop {
            let notice = world.notice(NoticeKind::FilesFailed).await;
            if notice.words.contains("line 2") {
                break notice;
            }
        }
    });
    let notice = notice.await;
    assert!(notice.words.contains("line 2 has a space") && !notice.words.contains("third"), "{notice:?}");
    assert_eq!(send(world.http, "Bearer third").await, 200);
}

#[tokio::test]
async fn authorities_of_clients_that_are_missing_keep_no_new_certificate_away() {
    let (folder, authority) = (Folder::new("missing_authorities"), Authority::new());
    let (first, second, own) = (authority.sign(), authority.sign(), authority.sign());
    let mut world = World::accepting(|config| {
        config.tls = Some(files(&folder, &first, Some(&authority.pem)));
        config.limits.reload_interval = OFTEN;
    })
    .await;
    let client = authority.client(&["h2"], Some(&own));
    let before = certificate(&connect(world.grpc, &client).await.unwrap());
    std::fs::remove_file(folder.path("ca.crt")).unwrap();
    let notice = world.notice(NoticeKind::FilesFailed).await;
    assert!(notice.words.contains("ca.crt") && !notice.words.contains("tls.crt"), "{notice:?}");
    folder.write("tls.crt", &second.certificate);
    folder.write("tls.key", &second.key);
    world.notice(NoticeKind::FilesReloaded).await;
    assert_ne!(certificate(&connect(world.grpc, &client).await.unwrap()), before);
}

#[tokio::test]
async fn a_server_does_not_start_with_files_that_it_cannot_use() {
    struct Nobody;
    impl sluice_otlp_server::Acceptor for Nobody {
        async fn accept(&self, _: sluice_otlp_server::Request) -> crate::world::Reply {
            unreachable!("it never serves")
        }
    }
    let (folder, authority) = (Folder::new("cannot_use"), Authority::new());
    let (one, other) = (authority.sign(), authority.sign());
    let start = async |tls: Option<TlsFiles>, grpc: Option<SocketAddr>| {
        let mut config = ServerConfig::new(ByteBudget::new(1), Arc::new(|_| {}));
        (config.tls, config.grpc) = (tls, grpc);
        Server::bind(config, Nobody).await.map(drop).unwrap_err()
    };
    let any = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    let good = files(&folder, &one, None);
    let missing = TlsFiles { key: folder.path("missing"), ..good.clone() };
    assert!(matches!(start(Some(missing), any).await, Error::Read { what: "key", .. }));
    folder.write("tls.key", &other.key);
    assert!(matches!(start(Some(good.clone()), any).await, Error::Unusable { .. }));
    folder.write("tls.crt", "no certificate");
    let error = start(Some(good), any).await.to_string();
    assert!(error.contains("tls.crt") && error.contains("contains no certificate"), "{error}");
    assert!(start(None, None).await.is_of_config());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = start(None, Some(taken.local_addr().unwrap())).await;
    assert!(matches!(error, Error::Listen { .. }) && !error.is_of_config(), "{error}");
}
