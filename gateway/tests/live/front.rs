//! A proxy before `ClickHouse` that knows few parameters of the query string and drops all others, as chproxy does by default.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use std::convert::Infallible;
use tokio::{net::TcpListener, task::JoinSet};

/// What passes.
const PARAMETERS: [&str; 6] = ["query", "database", "default_format", "compress", "decompress", "query_id"];

/// Serves until it is dropped.
pub struct Front {
    pub url: String,
    _serving: JoinSet<()>,
}

impl Front {
    pub async fn before(authority: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, authority.to_owned()));
        Self { url, _serving: serving }
    }
}

async fn serve(listener: TcpListener, authority: String) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let authority = authority.clone();
        connections.spawn(async move {
            let service = service_fn(|request| pass(request, &authority));
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
            // A client may close whenever it wants to.
            drop(served);
        });
    }
}

async fn pass(request: Request<Incoming>, authority: &str) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let parameters = head.uri.query().unwrap_or_default().split('&');
    let kept = parameters
        .filter(|parameter| parameter.split_once('=').is_some_and(|(name, _)| PARAMETERS.contains(&name)));
    let uri = format!("http://{authority}/?{}", kept.collect::<Vec<_>>().join("&"));
    let mut passed = Request::post(uri).body(Full::new(body)).unwrap();
    *passed.headers_mut() = head.headers;
    let answer = Client::builder(TokioExecutor::new()).build_http().request(passed).await.unwrap();
    let (mut head, body) = answer.into_parts();
    head.headers.remove("transfer-encoding");
    Ok(Response::from_parts(head, Full::new(body.collect().await.unwrap().to_bytes())))
}
