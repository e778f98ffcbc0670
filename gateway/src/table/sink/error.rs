//! Why the sink cannot be used, and what helps.

use sluice_clickhouse::{
    bearer::BearerError,
    client::SUMMARY,
    endpoint::{EndpointError, UserError},
    insert::{INSERT_TIMEOUT_MIN, InsertError, TargetError},
    probe_error::{CONSTRAINT_VIOLATED, ProbeError},
    table::Mismatch,
    tls::TlsError,
};
use sluice_gateway_config::SecretFileError;

/// `ACCESS_DENIED`: a grant is missing.
pub(super) const ACCESS_DENIED: u32 = 497;

/// `READONLY`: the user may change no settings.
pub(super) const READONLY: u32 = 164;

/// `QUOTA_EXCEEDED`: a quota of the user is used up until its interval ends.
pub(super) const QUOTA_EXCEEDED: u32 = 201;

/// The server's time limit of an INSERT, which follows from `sink.clickhouse.insert.timeout`.
const MAX_EXECUTION_TIME: &str = "max_execution_time";

/// Why the sink cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A credentials file cannot be read.
    #[error(transparent)]
    Credentials(SecretFileError),
    /// The file with the token cannot be used.
    #[error(transparent)]
    Token(BearerError),
    /// Certificates or keys cannot be used.
    #[error(transparent)]
    Tls(TlsError),
    /// An endpoint of the config is not valid.
    #[error(transparent)]
    Endpoint(EndpointError),
    /// The user name cannot be sent.
    #[error(transparent)]
    User(UserError),
    /// The inserts cannot be prepared.
    #[error(transparent)]
    Target(TargetError),
    /// A server did not answer a question.
    #[error(transparent)]
    Probe(ProbeError),
    /// The table's columns do not fit.
    #[error("the table {table} does not fit: {}", list(.mismatches, .remedy.as_deref()))]
    Table {
        table: String,
        /// Every column that is missing or of another type.
        mismatches: Vec<Mismatch>,
        /// What adds those that are missing.
        remedy: Option<String>,
    },
    /// The user may not insert.
    #[error("the user {user} may not INSERT into {table} at {endpoint}: GRANT INSERT ON {table} TO {user}")]
    Grant { endpoint: String, table: String, user: String },
    /// The user may not create the table that is missing.
    #[error(
        "the table {table} does not exist, and the user {user} may not create it at {endpoint}: {grants}; or have another user run the \
         statements of `sluice-gateway ddl print`"
    )]
    Create { endpoint: String, table: String, user: String, grants: String },
    /// The user's profile refuses every INSERT, whatever grants the user has.
    #[error(
        "the profile of the user {user} at {endpoint} sets readonly = {readonly}, with which no INSERT is accepted into {table}: set \
         readonly = 0 in that profile"
    )]
    ReadOnly { endpoint: String, table: String, user: String, readonly: String },
    /// No INSERT would count as stored.
    #[error(
        "the answers of {endpoint} lack the header {SUMMARY}, without which no INSERT counts as stored: let the proxy in between pass it"
    )]
    NoSummary { endpoint: String },
    /// An INSERT without rows fails.
    #[error(transparent)]
    Insert(InsertError),
    /// A quota of the user is used up.
    #[error("{0}; raise this quota of the gateway's user, or wait until its interval ends")]
    Quota(InsertError),
    /// The user may not read the columns, which comes before every INSERT.
    #[error(
        "the user {user} may neither read the columns of {table} (SHOW COLUMNS) nor insert into it (INSERT), which includes the former: \
         GRANT INSERT ON {table} TO {user}; {source}"
    )]
    Columns { table: String, user: String, source: Box<ProbeError> },
    /// The user may not set what every INSERT sets.
    #[error("{source}; {remedy}")]
    Setting { source: ProbeError, remedy: String },
    /// The table's engine accepts no rows, or does not store them.
    #[error("the table {table} is a {engine}: {why}")]
    Engine { table: String, engine: String, why: &'static str },
    /// The table was created, and the next question did not find it.
    #[error(
        "the table {table} was created at {endpoint}, which now says that it does not exist: the address may lead to several servers with tables \
         of their own; name each of them in sink.clickhouse.endpoints (replicas) or sink.clickhouse.shards"
    )]
    Vanished { table: String, endpoint: String },
    /// The tables of two shards differ, but rows are encoded once for all shards.
    #[error(
        "the table {table} differs between servers: at {servers} it has {columns}, at {first_servers} {first_columns}"
    )]
    ShardsDiffer {
        table: String,
        first_servers: String,
        first_columns: String,
        servers: String,
        columns: String,
    },
}

impl Error {
    /// The error in one word, for the reasons of the conditions `SchemaReady` and `SinkReachable`. `None` if the config is wrong.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Probe(ProbeError::Unreachable { .. } | ProbeError::Foreign { .. }) => Some("Unreachable"),
            Self::Probe(ProbeError::Silent { .. }) => Some("Timeout"),
            Self::Probe(ProbeError::Tls { .. }) => Some("TlsFailed"),
            Self::Probe(ProbeError::Refused { .. })
            | Self::Grant { .. }
            | Self::Create { .. }
            | Self::ReadOnly { .. }
            | Self::Columns { .. } => Some("AuthFailed"),
            Self::Probe(ProbeError::UnknownDatabase { .. }) => Some("DatabaseMissing"),
            Self::Probe(ProbeError::UnknownTable { .. }) | Self::Vanished { .. } => Some("TableMissing"),
            Self::Table { .. } | Self::ShardsDiffer { .. } => Some("ColumnMismatch"),
            Self::Probe(ProbeError::Other { .. })
            | Self::Credentials(_)
            | Self::Token(_)
            | Self::Tls(_)
            | Self::Endpoint(_)
            | Self::Setting { .. }
            | Self::NoSummary { .. }
            | Self::Insert(_)
            | Self::Quota(_)
            | Self::Engine { .. }
            | Self::User(_)
            | Self::Target(_) => None,
        }
    }

    /// Whether the table is not what rows need, as opposed to a missing answer.
    pub fn is_about_the_table(&self) -> bool {
        matches!(
            self,
            Self::Table { .. }
                | Self::Engine { .. }
                | Self::Vanished { .. }
                | Self::Probe(ProbeError::UnknownTable { .. } | ProbeError::UnknownDatabase { .. })
        )
    }
}

/// All that is missing together, with one remedy, and then the others.
fn list(mismatches: &[Mismatch], remedy: Option<&str>) -> String {
    let Some(remedy) = remedy else {
        return mismatches.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    };
    let (missing, others): (Vec<&Mismatch>, Vec<_>) =
        mismatches.iter().partition(|mismatch| matches!(mismatch, Mismatch::Missing { .. }));
    let names: Vec<_> = missing.iter().map(|mismatch| mismatch.column()).collect();
    let (columns, are) = if names.len() == 1 { ("column", "is") } else { ("columns", "are") };
    let mut texts = vec![format!("{columns} {} {are} missing: {remedy}", names.join(", "))];
    texts.extend(others.into_iter().map(ToString::to_string));
    texts.join("; ")
}

/// The error of a setting that the server does not accept from the user, with what helps.
pub(super) fn refused_setting(source: ProbeError) -> Error {
    let remedy = match &source {
        ProbeError::Other { code: Some(CONSTRAINT_VIOLATED), reason, .. }
            if reason.contains(MAX_EXECUTION_TIME) =>
        {
            timeout_remedy(reason)
        }
        ProbeError::Refused { code: READONLY, .. } => {
            "the gateway sends settings with every question and every INSERT: set readonly = 0 in the profile of its user"
                .to_owned()
        }
        _ => return Error::Probe(source),
    };
    Error::Setting { source, remedy }
}

/// What helps besides another profile. The server's text is `Setting max_execution_time shouldn't be greater than 10`.
fn timeout_remedy(reason: &str) -> String {
    let limit = reason.split_once("greater than ").map_or("", |(_, limit)| limit);
    let digits = limit.find(|char: char| !char.is_ascii_digit()).map_or(limit, |end| &limit[..end]);
    match digits.parse::<u64>() {
        Ok(seconds) => {
            format!("or set sink.clickhouse.insert.timeout: {}s", seconds.max(INSERT_TIMEOUT_MIN.as_secs()))
        }
        Err(_) => "or change sink.clickhouse.insert.timeout, from which it follows".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(code: u32, reason: &str) -> ProbeError {
        let (action, endpoint) = ("testing the settings of an INSERT".into(), "http://c:8123".into());
        ProbeError::Other { action, endpoint, code: Some(code), reason: reason.into() }
    }

    #[test]
    fn columns_that_are_missing_come_with_one_statement() {
        let missing = |column: &str| Mismatch::Missing { column: column.into(), expected: "String".into() };
        let computed =
            Mismatch::Type { column: "Duration".into(), expected: "UInt64".into(), found: "String".into() };
        let of = |mismatches, remedy: Option<&str>| {
            let remedy = remedy.map(str::to_owned);
            Error::Table { table: "otel.otel_traces".into(), mismatches, remedy }.to_string()
        };
        let add = "ALTER TABLE `otel`.`otel_traces` ADD COLUMN IF NOT EXISTS `TraceState` String";
        let one = of(vec![missing("TraceState")], Some(add));
        assert_eq!(
            one,
            format!("the table otel.otel_traces does not fit: column TraceState is missing: {add}")
        );
        let several = of(vec![missing("TraceState"), computed, missing("SpanKind")], Some(add));
        let expected =
            format!("does not fit: columns TraceState, SpanKind are missing: {add}; column Duration has ");
        assert!(several.contains(&expected), "{several}");
    }

    #[test]
    fn a_server_that_does_not_answer_is_not_one_that_cannot_be_reached() {
        let of = |error| Error::Probe(error).reason();
        let words = || ("asking".to_owned(), "http://c:8123".to_owned(), "none".to_owned());
        let (action, endpoint, reason) = words();
        assert_eq!(of(ProbeError::Silent { action, endpoint, reason }), Some("Timeout"));
        let (action, endpoint, reason) = words();
        assert_eq!(of(ProbeError::Unreachable { action, endpoint, reason }), Some("Unreachable"));
    }

    #[test]
    fn a_setting_that_a_profile_does_not_allow_is_named_with_what_helps() {
        for (reason, remedy) in [
            (
                "Setting max_execution_time shouldn't be greater than 10",
                "of its user; or set sink.clickhouse.insert.timeout: 10s",
            ),
            ("Setting max_execution_time shouldn't be greater than 10. (X)", "insert.timeout: 10s"),
            ("Setting max_execution_time shouldn't be greater than 1", "insert.timeout: 2s"),
            ("Setting max_execution_time shouldn't be less than 60", "change sink.clickhouse.insert.timeout"),
            ("Setting insert_deduplication_token should not be changed", "remove the constraint"),
        ] {
            let text = refused_setting(other(CONSTRAINT_VIOLATED, reason)).to_string();
            assert!(text.contains(reason) && text.contains(remedy), "{text}");
        }
        assert!(matches!(refused_setting(other(62, "Syntax error")), Error::Probe(_)));
    }
}
