//! A request that is not accepted: how it is counted, and what its client is told.

use crate::{
    byte_budget::{ByteBudget, NoRoom},
    config::WORDS_BYTES_MAX,
    counters::Outcome,
    request::Refusal,
};
use http::StatusCode;
use std::{fmt::Display, time::Duration};

/// Bytes of a client's own words in an answer, after which they are cut. Chosen: a path or a name is recognized by them.
const SHOWN_BYTES_MAX: usize = 128;

/// Status codes of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Ok = 0,
    Cancelled = 1,
    InvalidArgument = 3,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// Why a request is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub outcome: Outcome,
    pub code: Code,
    pub http: StatusCode,
    pub words: String,
    /// When the client may come again; `None`: it must not.
    pub after: Option<Duration>,
}

impl Failure {
    fn new(outcome: Outcome, code: Code, http: StatusCode, words: impl Into<String>) -> Self {
        Self { outcome, code, http, words: cut(words.into()), after: None }
    }

    fn again(self, after: Duration) -> Self {
        Self { after: Some(after), ..self }
    }

    pub fn malformed(words: impl Into<String>) -> Self {
        Self::new(Outcome::Malformed, Code::InvalidArgument, StatusCode::BAD_REQUEST, words)
    }

    /// gRPC asks for another code than for what is malformed otherwise.
    pub fn compressed_without_name() -> Self {
        let words = "the message is compressed, and the header grpc-encoding does not say how";
        Self::new(Outcome::Malformed, Code::Internal, StatusCode::BAD_REQUEST, words)
    }

    /// The same for a second message.
    pub fn second_message() -> Self {
        let words = "Export takes one message, and the client sent more";
        Self::new(Outcome::Malformed, Code::Unimplemented, StatusCode::BAD_REQUEST, words)
    }

    pub fn too_large(words: impl Into<String>) -> Self {
        Self::new(Outcome::TooLarge, Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE, words)
    }

    pub fn body_too_large(bytes: Option<u64>, bytes_max: u32) -> Self {
        let size = bytes.map_or_else(String::new, |bytes| format!(" ({bytes} bytes)"));
        Self::too_large(format!(
            "the body is larger{size} than the {bytes_max} bytes that are accepted; send smaller batches, or compress them"
        ))
    }

    /// No permit, beside what the request holds already. If all of the budget is less, it never helps to come again.
    pub fn no_room(NoRoom(wanted): NoRoom, held: usize, budget: &ByteBudget, after: Duration) -> Self {
        let needed = wanted.saturating_add(u64::try_from(held).unwrap_or(u64::MAX));
        let total = budget.total_bytes();
        if needed > total {
            return Self::too_large(format!(
                "the request needs {needed} bytes of memory, and all requests together have {total} bytes; send smaller batches, or give \
                 the server more memory"
            ));
        }
        let words = format!("no room for {wanted} bytes now: requests before it are not stored yet");
        Self::new(Outcome::NoMemory, Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, words).again(after)
    }

    pub fn busy(requests_max: usize, after: Duration) -> Self {
        let words = format!("{requests_max} requests wait for their answer, and no more are taken now");
        Self::new(Outcome::Busy, Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, words).again(after)
    }

    pub fn ending(after: Duration) -> Self {
        let words = "the server is ending";
        Self::new(Outcome::Busy, Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, words).again(after)
    }

    /// A client drops what was answered with 408, so this is 503: the network may be at fault.
    pub fn slow(after: Duration) -> Self {
        let words = "the body did not come in time";
        Self::new(Outcome::Slow, Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, words).again(after)
    }

    /// The client has gone, or broke the rules of HTTP. It rarely sees this.
    pub fn broken(error: &impl Display) -> Self {
        let words = format!("the body ended early: {error}");
        Self::new(Outcome::Cancelled, Code::Cancelled, StatusCode::BAD_REQUEST, words)
    }

    pub fn unauthenticated(words: &'static str) -> Self {
        Self::new(Outcome::Unauthenticated, Code::Unauthenticated, StatusCode::UNAUTHORIZED, words)
    }

    pub fn not_found(words: impl Into<String>) -> Self {
        Self::new(Outcome::NotFound, Code::Unimplemented, StatusCode::NOT_FOUND, words)
    }

    pub fn wrong_method(words: impl Into<String>) -> Self {
        Self::new(Outcome::WrongMethod, Code::Unimplemented, StatusCode::METHOD_NOT_ALLOWED, words)
    }

    pub fn wrong_type(words: impl Into<String>) -> Self {
        Self::new(Outcome::WrongType, Code::Unimplemented, StatusCode::UNSUPPORTED_MEDIA_TYPE, words)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed(words) => Self::malformed(words),
            Refusal::TooLarge(words) => Self::too_large(words),
            Refusal::Retry { after, words } => {
                Self::new(Outcome::Retry, Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, words)
                    .again(after)
            }
            Refusal::TenantLimit { after, words } => {
                let code = Code::ResourceExhausted;
                Self::new(Outcome::TenantLimit, code, StatusCode::TOO_MANY_REQUESTS, words).again(after)
            }
        }
    }
}

/// Cuts words at their limit, between characters.
pub(crate) fn cut(mut words: String) -> String {
    words.truncate(words.floor_char_boundary(WORDS_BYTES_MAX));
    words
}

/// A client's own words, as an answer repeats them.
pub(crate) fn shown(words: &str) -> &str {
    words.get(..words.floor_char_boundary(SHOWN_BYTES_MAX)).unwrap_or_default()
}
