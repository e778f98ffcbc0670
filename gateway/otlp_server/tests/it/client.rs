//! Clients that say exactly what a test wants, on hyper.

use crate::world::soon;
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use bytes::Bytes;
use flate2::write::GzEncoder;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::{Body, Incoming},
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use prost::Message as _;
use std::{io::Write as _, net::SocketAddr};
use tokio::{net::TcpStream, task::JoinHandle};
use tonic_types::{RpcStatusExt as _, Status};

pub const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A request with this many spans.
pub fn spans(count: usize) -> ExportTraceServiceRequest {
    let span = |number: usize| Span {
        name: format!("span {number}"),
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        ..Span::default()
    };
    let scope_spans = vec![ScopeSpans { spans: (0..count).map(span).collect(), ..ScopeSpans::default() }];
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    zstd_safe::compress(&mut out, bytes, 3).unwrap();
    out
}

/// A message of gRPC.
pub fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag], &length[..], message].concat()
}

/// What a client of HTTP got.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: HeaderMap,
}

impl Answer {
    pub async fn read(response: http::Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let collected = soon(body.collect()).await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        Self { status: parts.status, headers: parts.headers, body: collected.to_bytes(), trailers }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.get(name).or_else(|| self.trailers.get(name));
        found.map(|value| value.to_str().unwrap())
    }

    /// The status in the body, in the encoding of its content type.
    pub fn rpc_status(&self) -> (i32, String) {
        match self.header("content-type") {
            Some("application/x-protobuf") => {
                let status = Status::decode(self.body.clone()).unwrap();
                (status.code, status.message)
            }
            Some("application/json") => {
                let status: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
                let code = i32::try_from(status["code"].as_i64().unwrap()).unwrap();
                (code, status["message"].as_str().unwrap().to_owned())
            }
            other => panic!("{other:?}"),
        }
    }

    /// The status of gRPC, and its message in the header's encoding.
    pub fn grpc(&self) -> (&str, &str) {
        assert_eq!(self.status, StatusCode::OK);
        (self.header("grpc-status").unwrap(), self.header("grpc-message").unwrap_or_default())
    }

    /// Whether gRPC says when to come again.
    pub fn has_retry_info(&self) -> bool {
        let Some(details) = self.header("grpc-status-details-bin") else { return false };
        let status = Status::decode(STANDARD_NO_PAD.decode(details).unwrap().as_slice()).unwrap();
        status.get_error_details().retry_info().is_some()
    }

    pub fn response(&self) -> ExportTraceServiceResponse {
        ExportTraceServiceResponse::decode(self.body.clone()).unwrap()
    }
}

/// The headers of a request with these pairs.
pub fn request<B>(method: Method, path: &str, headers: &[(&str, &str)], body: B) -> Request<B> {
    let mut request = Request::builder().method(method).uri(path).header("host", "otlp");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).unwrap()
}

/// Sends a request over HTTP/1.1 on a connection of its own.
pub async fn send<B>(address: SocketAddr, request: Request<B>) -> Answer
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let stream = soon(TcpStream::connect(address)).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Answer::read(soon(sender.send_request(request)).await.unwrap()).await
}

/// Posts to the path of traces over HTTP/1.1.
pub async fn post(address: SocketAddr, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
    send(address, request(Method::POST, "/v1/traces", headers, Full::new(body.into()))).await
}

/// A connection of HTTP/2, and the task that ends with it.
pub struct Http2<B> {
    pub sender: http2::SendRequest<B>,
    pub connection: JoinHandle<hyper::Result<()>>,
}

impl<B> Http2<B>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + Unpin + 'static,
{
    pub async fn connect(address: SocketAddr) -> Self {
        Self::over(soon(TcpStream::connect(address)).await.unwrap()).await
    }

    pub async fn over(
        stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    ) -> Self {
        let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = soon(shaken).await.unwrap();
        Self { sender, connection: tokio::spawn(connection) }
    }

    /// Sends a request; its answer is a task of its own.
    pub fn begin(&self, request: Request<B>) -> JoinHandle<hyper::Result<Answer>> {
        let mut sender = self.sender.clone();
        tokio::spawn(async move {
            sender.ready().await?;
            Ok(Answer::read(sender.send_request(request).await?).await)
        })
    }

    pub async fn send(&self, request: Request<B>) -> Answer {
        soon(self.begin(request)).await.unwrap().unwrap()
    }
}

/// A request of gRPC with this body.
pub fn export<B>(headers: &[(&str, &str)], body: B) -> Request<B> {
    let all: Vec<_> = [("content-type", "application/grpc"), ("te", "trailers")]
        .into_iter()
        .chain(headers.iter().copied())
        .collect();
    request(Method::POST, &format!("http://otlp{EXPORT}"), &all, body)
}

/// Sends a body to gRPC on a connection of its own.
pub async fn export_raw(address: SocketAddr, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
    Http2::connect(address).await.send(export(headers, Full::new(body.into()))).await
}
