//! Errors of requests to the API server, in the server's own words. The client library's text repeats them.

use std::error::Error as _;

/// The error and all its causes, in one line.
pub fn words(error: &kube::Error) -> String {
    let first = match error {
        // Its causes are the same status again.
        kube::Error::Api(status) => return format!("{} (status {})", status.message, status.code),
        kube::Error::Service(_) => "the API server cannot be reached".to_owned(),
        other => other.to_string(),
    };
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(first, |text, cause| format!("{text}: {cause}"))
}

/// Whether the object or its kind does not exist.
pub fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether the server has refused the request and done nothing. After any other error it may have done what was asked.
pub fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code))
}

/// Whether the server refuses the same request again. After 408 and 429, which are about its load, it may accept it.
pub fn is_lasting(error: &kube::Error) -> bool {
    is_refusal(error) && !matches!(error, kube::Error::Api(status) if [408, 429].contains(&status.code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn the_servers_words_and_each_cause_are_said_once() {
        let status = Status { code: 404, ..Status::failure("there is none", "NotFound") };
        let missing = kube::Error::Api(status.boxed());
        assert_eq!(words(&missing), "there is none (status 404)");
        assert!(is_missing(&missing) && is_refusal(&missing));
        let away = kube::Error::Service(Box::new(std::io::Error::other("connection refused")));
        assert_eq!(words(&away), "the API server cannot be reached: connection refused");
        assert!(!is_missing(&away) && !is_refusal(&away));
    }

    #[test]
    fn a_refusal_lasts_unless_it_is_about_load() {
        for (code, expected) in
            [(400, true), (401, true), (403, true), (408, false), (429, false), (500, false)]
        {
            let status = Status { code, ..Status::failure("no", "Reason") };
            assert_eq!(is_lasting(&kube::Error::Api(status.boxed())), expected, "{code}");
        }
    }
}
