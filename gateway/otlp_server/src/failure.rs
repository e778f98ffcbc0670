//! A request that is not accepted: how it is counted, and what its answer says.

use crate::{
    byte_budget::{ByteBudget, NoRoom},
    config::WORDS_BYTES_MAX,
    counters::Outcome,
    request::Refusal,
};
use http::StatusCode;
use std::{error::Error, io, time::Duration};

/// Bytes of a client's own words in an answer, after which they are cut. Chosen: a path or a name is recognized by them.
const SHOWN_BYTES_MAX: usize = 128;

/// The shortest wait that is asked of a client. Chosen: after 0 s a client would send at once, and get the same answer.
pub(crate) const AFTER_MIN: Duration = Duration::from_millis(100);

/// Headers of a request over HTTP/1.1 from which hyper refuses it.
const HEADERS_MAX: usize = 100;

/// Causes of an error that an answer names. Chosen: hyper's have two.
const CAUSES_MAX: usize = 4;

/// Status codes of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Ok = 0,
    InvalidArgument = 3,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// The schemes of the header `Authorization` that files are configured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub bearer: bool,
    pub basic: bool,
}

impl Challenge {
    /// For people.
    pub fn schemes(self) -> &'static str {
        match (self.bearer, self.basic) {
            (true, true) => "Bearer or Basic",
            (false, true) => "Basic",
            (_, false) => "Bearer",
        }
    }

    /// As the value of `WWW-Authenticate` (RFC 9110, 11.6.1).
    pub fn header(self) -> &'static str {
        match (self.bearer, self.basic) {
            (true, true) => "Bearer realm=\"otlp\", Basic realm=\"otlp\"",
            (false, true) => "Basic realm=\"otlp\"",
            (_, false) => "Bearer realm=\"otlp\"",
        }
    }
}

/// Why a request is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub outcome: Outcome,
    pub code: Code,
    pub http: StatusCode,
    pub words: String,
    /// When the client may come again, at least [`AFTER_MIN`]; `None`: it must not.
    pub after: Option<Duration>,
    /// How a client proves who it is, if it did not.
    pub challenge: Option<Challenge>,
    /// Whether the connection ends, so that the client connects elsewhere.
    pub leaves: bool,
}

impl Failure {
    fn new(outcome: Outcome, code: Code, http: StatusCode, words: impl Into<String>) -> Self {
        Self { outcome, code, http, words: cut(words.into()), after: None, challenge: None, leaves: false }
    }

    fn again(self, after: Duration) -> Self {
        Self { after: Some(after.max(AFTER_MIN)), ..self }
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

    /// The body ended early: the client broke the framing of HTTP/1.1, or has gone. The second one rarely sees this.
    pub fn broken(error: &(dyn Error + 'static)) -> Self {
        let words = format!("the body cannot be read to its end: {}", with_causes(error));
        let outcome = if is_framing(error) { Outcome::Malformed } else { Outcome::Cancelled };
        Self { outcome, ..Self::malformed(words) }
    }

    /// Headers of HTTP/1.1 above a limit.
    pub fn headers_too_large(http: StatusCode, bytes_max: u32) -> Self {
        let words = format!(
            "the path or the headers of the request are larger than {bytes_max} bytes, or there are {HEADERS_MAX} headers or more; send \
             fewer or shorter ones"
        );
        Self { http, ..Self::too_large(words) }
    }

    /// A request over HTTP/1.1 that does not say whether it has a body.
    pub fn length_required() -> Self {
        let words = "the request has neither Content-Length nor Transfer-Encoding, so it has no body; send one of them. A request \
                     without spans has Content-Length: 0";
        Self { http: StatusCode::LENGTH_REQUIRED, ..Self::malformed(words) }
    }

    pub fn unauthenticated(words: impl Into<String>, challenge: Challenge) -> Self {
        let failure =
            Self::new(Outcome::Unauthenticated, Code::Unauthenticated, StatusCode::UNAUTHORIZED, words);
        Self { challenge: Some(challenge), ..failure }
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
            Refusal::Elsewhere { after, words } => {
                Self { leaves: true, ..Self::from(Refusal::Retry { after, words }) }
            }
            Refusal::TenantLimit { after, words } => {
                let code = Code::ResourceExhausted;
                Self::new(Outcome::TenantLimit, code, StatusCode::TOO_MANY_REQUESTS, words).again(after)
            }
        }
    }
}

/// An error and its causes.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
    .take(CAUSES_MAX)
}

fn with_causes(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Whether the client sent chunks that are none, as hyper says it.
fn is_framing(error: &(dyn Error + 'static)) -> bool {
    causes(error)
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData))
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
