//! Why a gateway gave no answer.

use super::{REQUEST_SECONDS, exchange};
use hyper::StatusCode;
use sluice_gateway_config::StateError;
use sluice_plan::{drain::Answer, observed::Silence};
use std::net::SocketAddr;

/// Why a gateway gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error("cannot connect to {address}: {source}")]
    Connect { address: SocketAddr, source: std::io::Error },
    /// No connection in time, as through a network that lets nothing pass.
    #[error("cannot connect to {address} within {REQUEST_SECONDS} s")]
    Unreached { address: SocketAddr },
    /// The connection broke, or the answer cannot be read.
    #[error("cannot ask {address} for {path}: {source}")]
    Ask { address: SocketAddr, path: &'static str, source: exchange::Error },
    /// A connection, and nothing more in time. The kernel takes connections also for a process that is stopped.
    #[error("{address} does not answer {path} within {REQUEST_SECONDS} s")]
    Timeout { address: SocketAddr, path: &'static str },
    /// It answers that it cannot.
    #[error("{address} answers {path} with status {status}")]
    Refused { address: SocketAddr, path: &'static str, status: StatusCode },
    /// It answers something else.
    #[error("the answer of {address} to {path} {source}")]
    Unreadable { address: SocketAddr, path: &'static str, source: StateError },
    /// The address is another pod's by now, which does not say which.
    #[error("{address} answers {path} as another pod")]
    Misdirected { address: SocketAddr, path: &'static str },
    /// The address is another pod's by now.
    #[error("{address} answers {path} as another pod, {found}, not as {meant}")]
    OtherPod { address: SocketAddr, path: &'static str, found: String, meant: String },
}

impl Error {
    /// Whether something answers there, and not as a gateway of a version that this operator knows.
    pub fn is_strange(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Unreached { .. } | Self::Timeout { .. } | Self::Refused { .. } => {
                false
            }
            Self::Ask { source, .. } => matches!(source, exchange::Error::TooLarge),
            Self::Unreadable { .. } | Self::Misdirected { .. } | Self::OtherPod { .. } => true,
        }
    }

    /// What a drain takes it for.
    pub(super) fn answer(&self) -> Answer {
        match self {
            Self::Misdirected { .. } | Self::OtherPod { .. } => Answer::OtherPod,
            _ => Answer::Silent,
        }
    }

    /// How a gateway is silent that gives no answer.
    pub fn silence(&self) -> Silence {
        match self {
            Self::Timeout { .. } => Silence::Hangs,
            other if other.is_strange() || matches!(other, Self::Refused { .. }) => {
                Silence::Strange(other.to_string())
            }
            _ => Silence::Unreached,
        }
    }
}
