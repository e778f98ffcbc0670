//! A proxy in front of `ClickHouse`. One kind forwards few parameters of the query string and drops all others, like chproxy by default.
//! Another kind looks as if it balanced over several servers, one removes the header with the summary, and one the parameter `decompress`.

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

/// What becomes of requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Most parameters are dropped.
    Narrow,
    /// Each is answered as if by another server.
    Balancing,
    /// Answers lose the header with the summary.
    WithoutSummary,
    /// Servers do not learn that bodies are compressed.
    WithoutDecompress,
}

impl Front {
    pub async fn before(authority: &str) -> Self {
        Self::on(authority, Way::Narrow).await
    }

    /// Behind which each question who the server is has another answer.
    pub async fn balancing(authority: &str) -> Self {
        Self::on(authority, Way::Balancing).await
    }

    /// Whose answers lack the header that tells of an INSERT that it was stored.
    pub async fn without_summary(authority: &str) -> Self {
        Self::on(authority, Way::WithoutSummary).await
    }

    /// Which passes all parameters but `decompress`.
    pub async fn without_decompress(authority: &str) -> Self {
        Self::on(authority, Way::WithoutDecompress).await
    }

    async fn on(authority: &str, way: Way) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, authority.to_owned(), way));
        Self { url, _serving: serving }
    }
}

async fn serve(listener: TcpListener, authority: String, way: Way) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let authority = authority.clone();
        connections.spawn(async move {
            let service = service_fn(|request| pass(request, &authority, way));
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
            // A client may close whenever it wants to.
            drop(served);
        });
    }
}

async fn pass(
    request: Request<Incoming>,
    authority: &str,
    way: Way,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = match std::str::from_utf8(&body) {
        Ok(text) if way == Way::Balancing => text.replace("serverUUID()", "generateUUIDv4()").into(),
        _ => body,
    };
    let parameters = head.uri.query().unwrap_or_default().split('&');
    let is_known =
        |parameter: &&str| parameter.split_once('=').is_some_and(|(name, _)| PARAMETERS.contains(&name));
    let kept = parameters.filter(|parameter| match way {
        Way::Narrow => is_known(parameter),
        Way::WithoutDecompress => *parameter != "decompress=1",
        Way::Balancing | Way::WithoutSummary => true,
    });
    let uri = format!("http://{authority}/?{}", kept.collect::<Vec<_>>().join("&"));
    let mut passed = Request::post(uri).body(Full::new(body)).unwrap();
    *passed.headers_mut() = head.headers;
    // The body may be another one.
    passed.headers_mut().remove("content-length");
    let answer = Client::builder(TokioExecutor::new()).build_http().request(passed).await.unwrap();
    let (mut head, body) = answer.into_parts();
    head.headers.remove("transfer-encoding");
    if way == Way::WithoutSummary {
        head.headers.remove("x-clickhouse-summary");
    }
    Ok(Response::from_parts(head, Full::new(body.collect().await.unwrap().to_bytes())))
}
