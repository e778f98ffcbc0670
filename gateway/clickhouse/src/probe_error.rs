//! Why a question to a server has no answer, sorted by what the caller does: wait for the server, ask a person for access, create the table.

use crate::outcome::{Class, classify};

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// No server answered, or not in time: ask again later.
    #[error("{action} at {endpoint}: cannot reach the server: {reason}")]
    Unreachable {
        /// What was asked.
        action: String,
        /// The server.
        endpoint: String,
        /// What the connection said.
        reason: String,
    },
    /// Something in between answered for the server, as a proxy does that cannot reach it: ask again later.
    #[error("{action} at {endpoint}: the answer is not from ClickHouse: {reason}")]
    Foreign {
        /// What was asked.
        action: String,
        /// The server.
        endpoint: String,
        /// What was answered.
        reason: String,
    },
    /// A server was reached, and no TLS connection came of it: a person must mend certificates or ports.
    #[error("{action} at {endpoint}: no TLS connection: {reason}")]
    Tls {
        /// What was asked.
        action: String,
        /// The server.
        endpoint: String,
        /// What the connection said, and what to look at.
        reason: String,
    },
    /// The server knows us and refuses, or does not know us: a person must mend user, password or grants.
    #[error("{action} at {endpoint}: refused (code {code}): {reason}")]
    Refused {
        /// What was asked.
        action: String,
        /// The server.
        endpoint: String,
        /// ClickHouse's exception code.
        code: u32,
        /// What the server said.
        reason: String,
    },
    /// There is no such database.
    #[error("{action} at {endpoint}: the database does not exist: {reason}")]
    UnknownDatabase {
        /// What was asked.
        action: String,
        /// The server.
        endpoint: String,
        /// What the server said.
        reason: String,
    },
    /// There is no such table.
    #[error("{action} at {endpoint}: the table does not exist: {reason}")]
    UnknownTable {
        /// What was asked.
        action: String,
        /// The server.
        endpoint: String,
        /// What the server said.
        reason: String,
    },
    /// Anything else.
    #[error("{action} at {endpoint}: {reason}")]
    Other {
        /// What was asked.
        action: String,
        /// The server.
        endpoint: String,
        /// ClickHouse's exception code, if it said one.
        code: Option<u32>,
        /// What the server or the library said.
        reason: String,
    },
}

impl ProbeError {
    /// Whether nothing was said of what was asked: no server answered, or it has too much to do to answer (no memory, too many queries). It is
    /// to be asked again, and other servers may know.
    pub fn is_unanswered(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Foreign { .. } | Self::Tls { .. } => true,
            Self::Other { code: Some(code), reason, .. } => {
                // Such answers have this status, which decides for unknown codes alone.
                classify(Some(*code), 500, reason) == Class::BackPressure
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_too_much_to_do_says_nothing_of_what_it_was_asked() {
        for (code, reason, is_unanswered) in [
            (241, "Memory limit (total) exceeded", true),
            (202, "Too many simultaneous queries", true),
            (62, "Syntax error", false),
            (497, "Not enough privileges", false),
        ] {
            let (action, endpoint) = ("asking".to_owned(), "http://clickhouse:8123".to_owned());
            let error = ProbeError::Other { action, endpoint, code: Some(code), reason: reason.to_owned() };
            assert_eq!(error.is_unanswered(), is_unanswered, "{error}");
        }
    }
}
