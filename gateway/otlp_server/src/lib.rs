//! OTLP in: a server of gRPC and HTTP that hands traces to an [`Acceptor`].
//!
//! The acceptor stores a request and returns the outcome; everything before and after is here. No message is decoded into structs: the
//! acceptor gets the body as bytes.
//!
//! ```text
//!  socket -> TLS -> HTTP/1.1, HTTP/2 -> headers: path, type, credentials, tenant
//!                                         -> permit for the body's bytes -> body -> decompressed -> Acceptor -> answer
//!                                             |                                                       |
//!                                             none: come again (RetryInfo, Retry-After)               drops the permit
//! ```
//!
//! | situation | gRPC | HTTP |
//! | --- | --- | --- |
//! | stored, also without spans | `OK` | 200 |
//! | some spans are rejected for good; a warning | `OK`, `partial_success` | 200, `partialSuccess` |
//! | no permit, too many requests, slow body, [`Refusal::Retry`] | `UNAVAILABLE`, `RetryInfo` | 503, `Retry-After` |
//! | [`Refusal::Elsewhere`]; the connection ends | `UNAVAILABLE`, `RetryInfo` | 503, `Retry-After` |
//! | [`Refusal::TenantLimit`] | `RESOURCE_EXHAUSTED`, `RetryInfo` | 429, `Retry-After` |
//! | [`Refusal::Malformed`], compression or framing that cannot be read | `INVALID_ARGUMENT` | 400 |
//! | [`Refusal::TooLarge`], as received or decompressed; larger than the whole budget | `RESOURCE_EXHAUSTED` without `RetryInfo` | 413 |
//! | no or wrong credentials | `UNAUTHENTICATED` | 401 |
//! | another path, service or method; logs, metrics, profiles | `UNIMPLEMENTED` | 404 |
//! | an HTTP method other than `POST` | 405 | 405 |
//! | another content type or compression, or the other port's protocol | `UNIMPLEMENTED`, 415 | 415 |
//! | HTTP/1.1 with neither `Content-Length` nor `Transfer-Encoding` | 415 | 411 |
//! | larger headers; headers that are none | 431 | 431, 414; 400 |
//!
//! Every answer over HTTP/1.1 other than 200 has a `google.rpc.Status` as its body, in the encoding of the request, or in JSON if its headers
//! could not be read. Over HTTP/2, h2 itself answers larger headers, without a body. A request without any byte is a success, and its
//! `partial_success` says that it was empty.

mod activity;
mod answer;
mod body;
mod byte_budget;
mod config;
mod connection;
mod counters;
mod credential_lines;
mod credentials;
mod early_answer;
mod exchange;
mod failure;
mod files;
mod grpc;
mod held_updates;
mod http;
mod http2_frames;
mod lifetime;
mod limits;
mod listener;
mod notices;
mod read_ahead;
mod reading;
mod request;
mod server;
mod status;
mod tls;

pub use byte_budget::{ByteBudget, BytePermit, NoRoom};
pub use config::{CredentialFiles, ServerConfig, TENANT_BYTES_MAX, TlsFiles, WORDS_BYTES_MAX};
pub use counters::{ConnectionEnd, Counters, Outcome, Protocol};
pub use limits::{
    AGE_JITTER_DIVISOR, HEADER_BYTES_MIN, Limits, WIDE_FRAME_BYTES, WIDE_WINDOW_BYTES, WINDOW_BYTES_MIN,
};
pub use notices::{Notice, NoticeKind, NoticeTaker};
pub use request::{Accepted, Acceptor, Encoding, Refusal, Request};
pub use server::{Error, Server, Unanswered};
