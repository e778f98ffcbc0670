//! Errors of requests to the API server: a short text, and a class that decides what the caller does next.

use std::{collections::BTreeSet, error::Error, fmt};

/// The API server's reason for a field that another field manager owns.
const FIELD_MANAGER_CONFLICT: &str = "FieldManagerConflict";

/// The API server's reason to create nothing in a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// An error of the client library with the server's own text. The library's text repeats everything twice.
#[derive(Debug)]
pub struct ApiError(Box<kube::Error>);

impl ApiError {
    /// The class of the error.
    pub fn class(&self) -> ErrorClass {
        ErrorClass::of(&self.0)
    }

    /// Whether the object or its kind does not exist.
    pub fn is_missing(&self) -> bool {
        matches!(&*self.0, kube::Error::Api(status) if status.code == 404)
    }

    /// Whether nothing can be created because the namespace is being deleted.
    pub fn is_namespace_going(&self) -> bool {
        let kube::Error::Api(status) = &*self.0 else { return false };
        let mut causes = status.details.iter().flat_map(|details| &details.causes);
        causes.any(|cause| cause.reason == NAMESPACE_TERMINATING)
    }

    /// The field managers that own a field of the apply, sorted; empty if the server names none. The server names them only inside a text:
    /// `conflict with "kubectl-edit" using apps/v1`.
    pub fn managers(&self) -> Vec<String> {
        let kube::Error::Api(status) = &*self.0 else { return Vec::new() };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        let conflicts = causes.filter(|cause| cause.reason == FIELD_MANAGER_CONFLICT);
        let managers: BTreeSet<&str> =
            conflicts.filter_map(|cause| cause.message.split('"').nth(1)).collect();
        managers.into_iter().map(str::to_owned).collect()
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            kube::Error::Api(status) => {
                write!(f, "{} (status {}){}", status.message, status.code, remedy(status.code))
            }
            kube::Error::Service(_) => f.write_str("the API server cannot be reached"),
            other => other.fmt(f),
        }
    }
}

impl Error for ApiError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &*self.0 {
            // Display already shows the status.
            kube::Error::Api(_) => None,
            other => other.source(),
        }
    }
}

/// What helps after this answer, if the server's text does not name it: with 403 it names the right or the quota.
fn remedy(code: u16) -> &'static str {
    match code {
        401 => ", check the ServiceAccount of the operator and its token",
        404 => ", check that the object, its namespace and its kind (CRD) exist",
        _ => "",
    }
}

/// An error and all its causes, in one line.
pub fn described(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Classes of errors. None is fatal: the operator retries with a growing delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Another client changed the object at the same time, or owns the field.
    Conflict,
    /// The server rejects the request: a rule of an admission controller, or a bug of the operator.
    Refused,
    /// The operator lacks the right.
    Forbidden,
    /// The object, its namespace or its kind does not exist.
    Missing,
    /// An object of that name exists and does not belong to the pipeline.
    Foreign,
    /// The server is unreachable, overloaded or broken.
    Unavailable,
    /// The answer cannot be parsed.
    Unreadable,
    /// The time limit passed.
    Timeout,
    /// A bug of the operator caused a panic.
    Panicked,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: [Self; 9] = [
        Self::Conflict,
        Self::Refused,
        Self::Forbidden,
        Self::Missing,
        Self::Foreign,
        Self::Unavailable,
        Self::Unreadable,
        Self::Timeout,
        Self::Panicked,
    ];

    /// The class of an error of the client library.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status.code),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Unreadable,
            kube::Error::BuildRequest(_) => Self::Refused,
            _ => Self::Unavailable,
        }
    }

    fn of_status(code: u16) -> Self {
        match code {
            409 => Self::Conflict,
            401 | 403 => Self::Forbidden,
            404 => Self::Missing,
            408 | 429 | 500.. => Self::Unavailable,
            _ => Self::Refused,
        }
    }

    /// The class as a label of a metric and a field of a log line.
    pub fn label(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Forbidden => "forbidden",
            Self::Missing => "missing",
            Self::Foreign => "foreign",
            Self::Unavailable => "unavailable",
            Self::Unreadable => "unreadable",
            Self::Timeout => "timeout",
            Self::Panicked => "panicked",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;
    use serde_json::{Value, json};

    #[test]
    fn what_the_server_said_is_told_once() {
        let status = Status { code: 409, ..Status::failure("somebody else owns it", "Conflict") };
        let error = ApiError::from(kube::Error::Api(status.boxed()));
        assert_eq!(error.to_string(), "somebody else owns it (status 409)");
        assert_eq!(described(&error), error.to_string());
        assert_eq!(error.class(), ErrorClass::Conflict);
    }

    #[test]
    fn what_helps_is_told_where_the_server_does_not_name_it() {
        let words = |code| {
            let status = Status { code, ..Status::failure("no", "No") };
            ApiError::from(kube::Error::Api(status.boxed())).to_string()
        };
        assert!(words(401).ends_with("(status 401), check the ServiceAccount of the operator and its token"));
        assert!(words(404).contains("(status 404), check that the object, its namespace and its kind"));
        assert_eq!(words(403), "no (status 403)");
    }

    #[test]
    fn whoever_has_a_field_is_read_from_the_conflict() {
        let cause = |reason: &str, manager: &str| {
            let message = format!("conflict with \"{manager}\" with subresource \"scale\" using apps/v1");
            json!({"reason": reason, "message": message, "field": ".spec.replicas"})
        };
        let managers = |causes: Value| {
            let status = json!({"status": "Failure", "code": 409, "reason": "Conflict", "details": {"causes": causes}});
            let status: Status = serde_json::from_value(status).unwrap();
            ApiError::from(kube::Error::Api(status.boxed())).managers()
        };
        let (one, other) = (cause(FIELD_MANAGER_CONFLICT, "kubectl"), cause(FIELD_MANAGER_CONFLICT, "keda"));
        assert_eq!(managers(json!([one, other, one])), ["keda", "kubectl"]);
        assert!(managers(json!([cause("UidMismatch", "kubectl")])).is_empty());
        assert!(managers(json!([{"reason": FIELD_MANAGER_CONFLICT, "message": "conflict"}])).is_empty());
        let away = kube::Error::Service(Box::new(std::io::Error::other("connection refused")));
        assert!(ApiError::from(away).managers().is_empty());
    }

    #[test]
    fn a_server_that_is_away_is_told_with_its_cause() {
        let cause = std::io::Error::other("connection refused");
        let error = ApiError::from(kube::Error::Service(Box::new(cause)));
        assert_eq!(described(&error), "the API server cannot be reached: connection refused");
        assert_eq!(error.class(), ErrorClass::Unavailable);
    }

    #[test]
    fn answers_are_sorted_by_what_they_ask_for() {
        for (code, class) in [
            (409, ErrorClass::Conflict),
            (422, ErrorClass::Refused),
            (404, ErrorClass::Missing),
            (401, ErrorClass::Forbidden),
            (403, ErrorClass::Forbidden),
            (429, ErrorClass::Unavailable),
            (500, ErrorClass::Unavailable),
            (503, ErrorClass::Unavailable),
        ] {
            assert_eq!(ErrorClass::of_status(code), class, "{code}");
        }
    }
}
