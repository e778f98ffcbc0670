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
//! | source | what a token is | what is asked for it |
//! | --- | --- | --- |
//! | [`Source::ClientCredentials`] | what a token endpoint grants for a client's secret, or for a signed assertion in a file | the token endpoint |
//! | [`Source::Given`] | the text of a file | nothing |
//! | [`Source::AwsMskIam`] | a URL with a signature of AWS | nothing with keys of a Secret; AWS STS or the EKS Pod Identity agent for the pod's identity |
//!
//! Limits: an answer has up to [`ANSWER_BYTES_MAX`], a file or token up to [`TOKEN_BYTES_MAX`], and a request [`REQUEST_TIMEOUT`]. Tokens and
//! secrets are in no error and in no debug output.

mod agent;
mod answer;
mod aws;
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
pub use file::Content;
pub use http_client::{REQUEST_TIMEOUT, Server};
#[cfg(feature = "rdkafka")]
pub use librdkafka::Renewal;
pub use login::{AwsCredentials, AwsKeys, AwsMskIam, ClientCredentials, ClientProof, Login, Source, Text};
pub use schedule::{FILE_LOOK, RETRY_WAIT, RETRY_WAIT_MAX, refresh_in, retry_in};
pub use token::{TOKEN_BYTES_MAX, Token};

/// Why there is no token. Each names what was asked, what came, and what helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read the {what} from {path}: {reason}")]
    File { what: Content, path: String, reason: String },
    /// The URL of a server cannot be used.
    #[error("the {} {endpoint:?} is no URL such as {}: {reason}", .server.name(), .server.example())]
    Endpoint { server: Server, endpoint: String, reason: String },
    /// The authorities for the endpoint's certificate cannot be used.
    #[error("cannot use the authorities for the {}: {reason}", .server.name())]
    Authorities { server: Server, reason: String },
    /// A server did not answer.
    #[error(
        "the {} {endpoint} does not answer: {reason}; check its host, port and TLS, and network policies",
        .server.name()
    )]
    Unreachable { server: Server, endpoint: String, reason: String },
    /// A server did not answer in time.
    #[error(
        "the {} {endpoint} does not answer within {seconds} s; check its host and network policies",
        .server.name()
    )]
    Slow { server: Server, endpoint: String, seconds: u64 },
    /// A server refuses.
    #[error("the {} {endpoint} answered {status}: {said}; check {check}", .server.name())]
    Refused { server: Server, endpoint: String, status: u16, said: String, check: &'static str },
    /// A server's answer has nothing that can be used. The answer is not shown: it may have a token or a key.
    #[error(
        "the {} {endpoint} answered {bytes} bytes without {}: {reason}; check that it is {}",
        .server.name(),
        .server.grant(),
        .server.kind()
    )]
    Nonsense { server: Server, endpoint: String, bytes: usize, reason: String },
    /// A file's token cannot be used.
    #[error("the token in {path} cannot be used: {reason}")]
    Token { path: String, reason: String },
    /// The process has no identity of AWS.
    #[error(
        "this pod has no identity of AWS: {reason}; give its ServiceAccount a role (with EKS Pod Identity, after which the pod is made anew, or \
         with eks.amazonaws.com/role-arn in gateway.podTemplate.serviceAccountAnnotations), or set \
         source.kafka.sasl.oauth.awsMskIam.secretRef"
    )]
    NoIdentity { reason: String },
    /// The keys of AWS sign nothing.
    #[error("the keys of AWS cannot be used: {reason}")]
    Keys { reason: String },
}
