//! Why a reconcile failed. There is one error for all steps: what the operator does next depends on its [`ErrorClass`] alone, and a person reads
//! which request failed.

use super::api_error::{ApiError, ErrorClass};
use std::any::Any;

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request to the API server failed.
    #[error("{action}")]
    Request {
        /// What the operator could not do, as "cannot delete the Job a".
        action: String,
        source: ApiError,
    },
    /// The status could not be written, so that no failure can be reported there.
    #[error("cannot write the status")]
    Status { source: ApiError },
    /// An object of that name exists and does not belong to the pipeline.
    #[error(
        "there is a {kind} {name} that does not belong to this pipeline: delete it, or give the pipeline another name"
    )]
    Foreign { kind: &'static str, name: String },
    /// The operator cannot list the kinds of objects that only an edge has.
    #[error(
        "the operator cannot list Deployments and HorizontalPodAutoscalers, which spec.edge needs: grant the rights of operator/SECURITY.md, or \
         remove edge"
    )]
    EdgeNotListed,
    /// Another field manager sets the number of gateways.
    #[error("{words}")]
    ReplicaConflict { words: String, source: Option<ApiError> },
    /// The reconcile took too long.
    #[error(
        "the reconcile did not end within {seconds} s: check for an API server, or an admission webhook, that answers slowly"
    )]
    Timeout { seconds: u64 },
    /// A bug of the operator.
    #[error("a defect of the operator, please report it: {0}")]
    Panicked(String),
}

impl Error {
    /// A failed request, with what the operator could not do.
    pub fn request(action: impl Into<String>, source: impl Into<ApiError>) -> Self {
        Self::Request { action: action.into(), source: source.into() }
    }

    /// The class of the error.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Request { source, .. } | Self::Status { source } => source.class(),
            Self::Foreign { .. } => ErrorClass::Foreign,
            Self::EdgeNotListed => ErrorClass::Forbidden,
            Self::ReplicaConflict { .. } => ErrorClass::Conflict,
            Self::Timeout { .. } => ErrorClass::Timeout,
            Self::Panicked(_) => ErrorClass::Panicked,
        }
    }

    /// Whether the API server refused the request, so that it would refuse the same request again.
    pub fn is_refusal(&self) -> bool {
        matches!(self.class(), ErrorClass::Forbidden | ErrorClass::Refused)
    }

    /// Whether the namespace is being deleted, and the pipeline with it.
    pub fn is_namespace_going(&self) -> bool {
        matches!(self, Self::Request { source, .. } if source.is_namespace_going())
    }

    /// Who else sets the number of gateways, in words, if that is what failed.
    pub fn replica_conflict(&self) -> Option<&str> {
        match self {
            Self::ReplicaConflict { words, .. } => Some(words),
            _ => None,
        }
    }
}

/// The message of a panic.
pub fn panic_words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
