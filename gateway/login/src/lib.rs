//! Tokens to log in to Kafka with (SASL OAUTHBEARER): where they come from, and when the next one is asked for.
//!
//! ```text
//!  Login (files, endpoint) --> agent's thread: fetch -> Token -> Tokens <-- latest() -- each client's own thread -> librdkafka
//!                                    ^                  |
//!                                    `- wait: 2/3 of the lifetime, or 1 s to 30 s after a failure
//! ```
//!
//! One [`Login`] has one agent in a process, whatever number of clients log in with it: [`Tokens::of`]. The agent has a thread of its own, so a
//! token endpoint that is slow or away blocks no thread that polls: a client takes the last token that there is. librdkafka's own client for
//! OIDC needs libcurl when it is built and in the image; it has no way to read a file that the kubelet rotates, and none to sign.
//!
//! Limits: an answer has up to [`ANSWER_BYTES_MAX`], a file or token up to [`TOKEN_BYTES_MAX`], and a request [`REQUEST_TIMEOUT`]. Tokens and
//! secrets are in no error and in no debug output.

mod agent;
mod answer;
mod client_credentials;
mod file;
mod http_client;
#[cfg(feature = "rdkafka")]
mod librdkafka;
mod login;
mod schedule;
mod token;

pub use agent::{Counts, Tokens};
pub use answer::ANSWER_BYTES_MAX;
pub use http_client::REQUEST_TIMEOUT;
#[cfg(feature = "rdkafka")]
pub use librdkafka::Renewal;
pub use login::{ClientCredentials, Login, Source, Text};
pub use schedule::{FILE_LOOK, RETRY_WAIT, RETRY_WAIT_MAX, refresh_in, retry_in};
pub use token::{TOKEN_BYTES_MAX, Token};

/// Why there is no token. Each names what was asked, what came, and what helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read the {what} from {path}: {reason}")]
    File { what: &'static str, path: String, reason: String },
    /// The URL of the endpoint cannot be used.
    #[error(
        "the token endpoint {endpoint:?} is no URL such as https://login.example.com/oauth2/token: {reason}"
    )]
    Endpoint { endpoint: String, reason: String },
    /// The authorities for the endpoint's certificate cannot be used.
    #[error("cannot use the authorities for the token endpoint: {reason}")]
    Authorities { reason: String },
    /// The endpoint did not answer.
    #[error(
        "the token endpoint {endpoint} does not answer: {reason}; check its host, port and TLS, and network policies"
    )]
    Unreachable { endpoint: String, reason: String },
    /// The endpoint did not answer in time.
    #[error(
        "the token endpoint {endpoint} does not answer within {seconds} s; check its host and network policies"
    )]
    Slow { endpoint: String, seconds: u64 },
    /// The endpoint refuses.
    #[error(
        "the token endpoint {endpoint} answered {status}: {said}; check the client's id and secret, scope and parameters"
    )]
    Refused { endpoint: String, status: u16, said: String },
    /// The endpoint's answer has no token that can be used. The answer is not shown: it may have one.
    #[error(
        "the token endpoint {endpoint} answered {bytes} bytes without a usable token: {reason}; check that it is the token endpoint of an OAuth 2.0 server"
    )]
    Nonsense { endpoint: String, bytes: usize, reason: String },
    /// A file's token cannot be used.
    #[error("the token in {path} cannot be used: {reason}")]
    Token { path: String, reason: String },
}
