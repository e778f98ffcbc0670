//! A request as the acceptor gets it, and what the acceptor answers.

use crate::byte_budget::BytePermit;
use bytes::Bytes;
use std::{future::Future, time::Duration};

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Protobuf, as all of gRPC and `application/x-protobuf` over HTTP.
    Protobuf,
    /// ProtoJSON, `application/json` over HTTP.
    Json,
}

/// One request. Its body was read and decompressed, and not looked at.
#[derive(Debug)]
pub struct Request {
    /// An `ExportTraceServiceRequest`, decompressed. Never empty: the server itself answers a request without any byte, which as protobuf
    /// has no spans, and as JSON is malformed.
    pub body: Bytes,
    /// How it is written.
    pub encoding: Encoding,
    /// The value of [`crate::ServerConfig::tenant_header`], if the client sent one. Visible ASCII, up to
    /// [`crate::TENANT_BYTES_MAX`] bytes.
    pub tenant: Option<String>,
    /// Holds the body's bytes in the budget. The acceptor drops it with the body, or with what it made of it.
    pub permit: BytePermit,
}

/// The request is stored, but for the spans that were rejected for good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Spans that the client must not send again; 0 with a message is a warning.
    pub rejected_spans: u64,
    /// Why, and what helps; empty without either.
    pub message: String,
}

/// The request is not stored, as far as the client may assume. Words say why and what helps, and reach the client: they contain no secret.
/// The server cuts them at [`crate::WORDS_BYTES_MAX`]. A time below 100 ms reaches the client as 100 ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It can never be read: `INVALID_ARGUMENT`, 400. Clients drop it.
    Malformed(String),
    /// It is too large: `RESOURCE_EXHAUSTED` without `RetryInfo`, 413. Clients drop it.
    TooLarge(String),
    /// It may be sent again, after this time: `UNAVAILABLE` with `RetryInfo`, 503 with `Retry-After`.
    Retry {
        /// How soon.
        after: Duration,
        /// Why.
        words: String,
    },
    /// Others take requests, and this server takes none for long: as [`Refusal::Retry`], and the connection ends once its requests are answered
    /// (GOAWAY, or `Connection: close`). A client that has one connection would otherwise come back to this server.
    Elsewhere {
        /// How soon.
        after: Duration,
        /// Why.
        words: String,
    },
    /// Its tenant sends more than it may: `RESOURCE_EXHAUSTED` with `RetryInfo`, 429 with `Retry-After`.
    TenantLimit {
        /// How soon its limit has room again.
        after: Duration,
        /// Which limit.
        words: String,
    },
}

/// Stores requests.
pub trait Acceptor: Send + Sync + 'static {
    /// Stores one, and returns once it is safe. Runs on an I/O thread, so it must not block, nor work for long.
    ///
    /// If the client goes away, or the server ends, the future is dropped at its next wait. What must be completed nevertheless belongs
    /// into a task.
    fn accept(&self, request: Request) -> impl Future<Output = Result<Accepted, Refusal>> + Send;
}
