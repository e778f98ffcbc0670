//! Why a query has no answer, by the caller's next action: wait for the server, ask for access, create the table.

use crate::outcome::{Class, MEMORY_LIMIT_EXCEEDED, classify};

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// No server answered in time: ask again later.
    #[error("{action} at {endpoint}: cannot reach the server: {reason}")]
    Unreachable { action: String, endpoint: String, reason: String },
    /// The server, a proxy before it, or the name server does not answer: ask again later.
    #[error(
        "{action} at {endpoint}: the server does not answer: {reason}; check for a server that hangs or has too much to do, for a proxy \
         without a server behind it, and whether the cluster's DNS answers"
    )]
    Silent { action: String, endpoint: String, reason: String },
    /// Something else answered, for example a proxy that cannot reach the server: ask again later.
    #[error(
        "{action} at {endpoint}: the answer is not from ClickHouse, or a proxy removes parameters of the request: {reason}"
    )]
    Foreign { action: String, endpoint: String, reason: String },
    /// The server was reached, but TLS failed: certificates or ports need a fix.
    #[error("{action} at {endpoint}: no TLS connection: {reason}")]
    Tls { action: String, endpoint: String, reason: String },
    /// The server refused the user: user, password or grants need a fix.
    #[error("{action} at {endpoint}: refused (code {code}): {reason}")]
    Refused { action: String, endpoint: String, code: u32, reason: String },
    /// There is no such database.
    #[error("{action} at {endpoint}: the database does not exist: {reason}")]
    UnknownDatabase { action: String, endpoint: String, reason: String },
    /// There is no such table.
    #[error("{action} at {endpoint}: the table does not exist: {reason}")]
    UnknownTable { action: String, endpoint: String, reason: String },
    /// Anything else.
    #[error("{action} at {endpoint}: {reason}{}", remedy(*.code, .reason))]
    Other {
        action: String,
        endpoint: String,
        /// ClickHouse's exception code, if there is one.
        code: Option<u32>,
        reason: String,
    },
}

impl ProbeError {
    /// Whether the query was not answered at all: no server answered, or it is overloaded (no memory, too many queries). Ask again; other
    /// servers may know the answer.
    pub fn is_unanswered(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Foreign { .. } | Self::Tls { .. } => true,
            Self::Other { code: Some(code), reason, .. } => {
                // Such answers have this status, which only matters for unknown codes.
                classify(Some(*code), 500, reason) == Class::BackPressure
            }
            _ => false,
        }
    }

    /// Whether the query needed more memory than the server allows its user or a query of that user.
    pub fn is_above_own_memory(&self) -> bool {
        matches!(self, Self::Other { code: Some(MEMORY_LIMIT_EXCEEDED), reason, .. } if !reason.contains(OF_SERVER))
    }
}

/// What the answer says if the limit is that of the server, and not of a query or its user.
const OF_SERVER: &str = "(total)";

/// `SETTING_CONSTRAINT_VIOLATION`: the user's profile does not allow the value of a setting.
pub const CONSTRAINT_VIOLATED: u32 = 452;

/// `SYNTAX_ERROR`: also for a query that is longer than the profile allows.
const SYNTAX_ERROR: u32 = 62;

/// `TOO_MANY_ROWS`, `TOO_MANY_BYTES` and `TOO_MANY_ROWS_OR_BYTES`: a limit of the profile on what a query reads or answers.
const LIMITS_EXCEEDED: [u32; 3] = [158, 307, 396];

/// `TOO_MANY_COLUMNS`, `TOO_DEEP_AST` and `TOO_BIG_AST`: a limit of the profile on the text of a query.
const TEXT_LIMITS_EXCEEDED: [u32; 3] = [161, 167, 168];

/// `QUOTA_EXCEEDED`.
const QUOTA_EXCEEDED: u32 = 201;

/// What helps after this answer, as the end of a sentence; empty if that depends on more than the answer.
fn remedy(code: Option<u32>, reason: &str) -> &'static str {
    match code {
        Some(CONSTRAINT_VIOLATED) => {
            "; the gateway sends this setting: remove the constraint from the profile of its user"
        }
        Some(SYNTAX_ERROR) if reason.contains("max_query_size") => {
            "; raise max_query_size in the profile of the gateway's user"
        }
        Some(MEMORY_LIMIT_EXCEEDED) if !reason.contains(OF_SERVER) => {
            "; raise max_memory_usage and max_memory_usage_for_user in the profile of the gateway's user"
        }
        Some(QUOTA_EXCEEDED) => {
            "; wait until the interval of this quota ends, or raise it for the gateway's user"
        }
        Some(code) if TEXT_LIMITS_EXCEEDED.contains(&code) => {
            "; raise or remove this limit (max_columns_to_read, max_ast_depth, max_ast_elements or max_expanded_ast_elements) in the profile of the gateway's user"
        }
        Some(code) if LIMITS_EXCEEDED.contains(&code) => {
            "; raise or remove this limit (max_result_rows, max_result_bytes, max_rows_to_read or max_bytes_to_read) in the profile of the gateway's user"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_too_much_to_do_says_nothing_of_what_it_was_asked() {
        for (code, reason, is_unanswered, is_own_memory) in [
            (241, "(total) memory limit exceeded: would use 22.00 GiB", true, false),
            (241, "Query memory limit exceeded: would use 2.00 MiB, maximum: 976.56 KiB", true, true),
            (202, "Too many simultaneous queries", true, false),
            (62, "Syntax error", false, false),
            (497, "Not enough privileges", false, false),
        ] {
            let (action, endpoint) = ("asking".to_owned(), "http://clickhouse:8123".to_owned());
            let error = ProbeError::Other { action, endpoint, code: Some(code), reason: reason.to_owned() };
            assert_eq!(error.is_unanswered(), is_unanswered, "{error}");
            assert_eq!(error.is_above_own_memory(), is_own_memory, "{error}");
        }
    }

    #[test]
    fn what_a_profile_forbids_is_named_with_what_helps() {
        let text = |code, reason: &str| {
            let (action, endpoint) = ("describing otel.t".to_owned(), "http://clickhouse:8123".to_owned());
            ProbeError::Other { action, endpoint, code: Some(code), reason: reason.to_owned() }.to_string()
        };
        for (code, reason, helps) in [
            (452, "Setting describe_include_virtual_columns should not be changed", "remove the constraint"),
            (
                62,
                "Max query size exceeded (can be increased with the `max_query_size` setting)",
                "raise max_query_size in",
            ),
            (
                396,
                "Limit for result exceeded, max rows: 1.00, current rows: 14.00",
                "raise or remove this limit",
            ),
            (168, "AST is too big. Maximum: 15", "max_ast_elements"),
            (241, "Query memory limit exceeded: would use 2.00 MiB", "raise max_memory_usage and"),
            (201, "Quota for user `u` for 3600s has been exceeded: queries = 2/1.", "raise it for"),
        ] {
            let text = text(code, reason);
            assert!(text.contains(reason) && text.contains(helps) && text.ends_with("user"), "{text}");
        }
        assert_eq!(text(62, "Syntax error"), "describing otel.t at http://clickhouse:8123: Syntax error");
    }
}
