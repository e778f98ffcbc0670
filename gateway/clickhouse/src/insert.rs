//! One INSERT as a request, and its result.
//!
//! Job: [`InsertTarget`] contains everything about an INSERT that does not change between blocks; token and query id are added per
//! attempt. Place in the flow: delivery creates a target per table and endpoint at start, and passes it to
//! [`crate::client::InsertClient`] with each block's body.
//!
//! ```text
//! POST /?database=…&query=INSERT INTO `db`.`table` (`Timestamp`, …) FORMAT RowBinaryWithNamesAndTypes&decompress=1&…
//!     &max_execution_time=…[&settings of the config]&query_id=…[&insert_deduplication_token=…]
//! Authorization: Basic, Content-Length
//! body: frames (crate::frame): one of names and types (crate::header), then those of the block
//! ```
//!
//! With a body of columns ([`crate::native`]) the statement says `FORMAT Native`, and there is no header.
//!
//! Limits: the query string is about 2 KiB, 3 KiB with groups; the server takes 1 MiB (`http_max_uri_size`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Uri};

use crate::bearer::BearerError;
use crate::body::WireFormat;
use crate::column::TableColumns;
use crate::endpoint::{Authorization, Credentials, Endpoint, UserError};
use crate::outcome::Class;
use crate::settings::{NATIVE_PINNED, PINNED};
use crate::sql::{identifier, percent_encoded, table_name};
use crate::{header, native};

/// The minimum timeout of an INSERT. Chosen: the server's own limit is in whole seconds and must expire first.
pub const INSERT_TIMEOUT_MIN: Duration = Duration::from_secs(2);

/// How much shorter the server's time limit is than the gateway's. Chosen: an INSERT that the gateway has given up must not run in the
/// server beside its retry.
const SERVER_TIMEOUT_MARGIN: Duration = Duration::from_secs(1);

/// Why a target cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The user's name is not allowed.
    #[error("preparing inserts into {table}: {reason}")]
    User { table: String, reason: UserError },
    /// The timeout is shorter than [`INSERT_TIMEOUT_MIN`].
    #[error("preparing inserts into {table}: the timeout of {timeout:?} is below {INSERT_TIMEOUT_MIN:?}")]
    Timeout { table: String, timeout: Duration },
}

/// What a target is made of.
#[derive(Debug, Clone)]
pub struct TargetSpec<'a> {
    /// The server.
    pub endpoint: &'a Endpoint,
    /// The user.
    pub credentials: &'a Credentials,
    pub database: &'a str,
    pub table: &'a str,
    /// The columns of the rows.
    pub columns: &'a TableColumns,
    /// How long one attempt may take, from connecting to the last byte of the answer.
    pub timeout: Duration,
    /// More settings. The config's rules ensure that no setting here is in [`PINNED`] or changes how rows are read.
    pub settings: &'a BTreeMap<String, String>,
}

/// A table on a server, prepared for inserts.
#[derive(Debug, Clone)]
pub struct InsertTarget {
    endpoint: Endpoint,
    table: String,
    /// The constant part of the URI, for rows and for columns.
    uri_start: String,
    native_uri_start: String,
    authorization: Authorization,
    /// The frame before those of every block.
    header: Bytes,
    timeout: Duration,
}

impl InsertTarget {
    /// Prepares inserts into a table.
    ///
    /// # Errors
    /// [`TargetError`] if the user's name is not allowed or the timeout is too short.
    pub fn new(spec: &TargetSpec<'_>) -> Result<Self, TargetError> {
        let table = table_name(spec.database, spec.table);
        if spec.timeout < INSERT_TIMEOUT_MIN {
            return Err(TargetError::Timeout { table, timeout: spec.timeout });
        }
        let refused = |reason| TargetError::User { table: table.clone(), reason };
        let authorization = spec.credentials.authorization().map_err(refused)?;
        Ok(Self {
            endpoint: spec.endpoint.clone(),
            uri_start: uri_start(spec, &table, header::FORMAT, &[]),
            native_uri_start: uri_start(spec, &table, native::FORMAT, NATIVE_PINNED),
            table,
            authorization,
            header: header::frame(spec.columns),
            timeout: spec.timeout,
        })
    }

    /// The server.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The table's full name, quoted.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// How long one attempt may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The frame of names and types before those of a block ([`crate::header`]). Only blocks that were encoded for these columns may
    /// follow it.
    pub fn header(&self) -> &Bytes {
        &self.header
    }

    /// The header for a body of this format.
    pub(crate) fn header_of(&self, format: WireFormat) -> Bytes {
        match format {
            WireFormat::RowBinary => self.header.clone(),
            WireFormat::Native => Bytes::new(),
        }
    }

    /// Why the file with the token cannot be read any more, if the last request was sent with an older token for that reason.
    pub fn token_failure(&self) -> Option<BearerError> {
        self.authorization.failure()
    }

    pub(crate) fn authorization(&self) -> HeaderValue {
        self.authorization.now()
    }

    pub(crate) fn uri(&self, format: WireFormat, id: &InsertId<'_>) -> Uri {
        let mut uri = match format {
            WireFormat::RowBinary => self.uri_start.clone(),
            WireFormat::Native => self.native_uri_start.clone(),
        };
        uri.push_str("&query_id=");
        uri.push_str(&percent_encoded(id.query_id));
        if let Some(token) = id.token {
            uri.push_str("&insert_deduplication_token=");
            uri.push_str(&percent_encoded(token));
        }
        uri.parse().expect("an endpoint and percent-encoded parameters are a URI")
    }
}

/// The ids of one attempt.
#[derive(Debug, Clone, Copy)]
pub struct InsertId<'a> {
    /// `insert_deduplication_token`: the same for all attempts of a block, and for no other rows, ever: the server drops all rows under a
    /// token that it knows. None: the server compares a hash of the rows instead.
    pub token: Option<&'a str>,
    /// `query_id`: another one for each attempt, so that attempts are distinct in `system.query_log`.
    pub query_id: &'a str,
}

/// An INSERT that was stored, now or earlier under the same token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// From the start of the attempt to the end of the answer.
    pub elapsed: Duration,
}

/// An INSERT that was not confirmed. Its class says what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("inserting into {table} at {endpoint}: {message}")]
pub struct InsertError {
    /// What the caller does next.
    pub class: Class,
    /// ClickHouse's exception code, if there is one, or [`crate::outcome::NOT_THE_SERVERS`].
    pub code: Option<u32>,
    /// The HTTP status, if there was an answer.
    pub http_status: Option<u16>,
    /// The first [`crate::client::MESSAGE_CHARS_MAX`] characters of the server's or the connection's message.
    pub message: String,
    /// The server.
    pub endpoint: String,
    /// The table's full name, quoted.
    pub table: String,
}

/// Settings of an INSERT with this timeout, besides those of every INSERT ([`PINNED`]): the server's own time limit, and the config's
/// settings.
pub(crate) fn settings_beside_pinned(
    timeout: Duration,
    asked: &BTreeMap<String, String>,
) -> impl Iterator<Item = (String, String)> {
    let server_timeout = timeout.saturating_sub(SERVER_TIMEOUT_MARGIN).as_secs();
    let limit = ("max_execution_time".to_owned(), server_timeout.to_string());
    std::iter::once(limit).chain(asked.clone())
}

fn uri_start(spec: &TargetSpec<'_>, table: &str, format: &str, pinned: &[(&str, &str)]) -> String {
    let columns = spec.columns.columns();
    let columns: Vec<_> = columns.iter().map(|column| identifier(&column.name)).collect();
    let query = format!("INSERT INTO {table} ({}) FORMAT {}", columns.join(", "), format);
    let mut uri = format!(
        "{}/?database={}&query={}",
        spec.endpoint,
        percent_encoded(spec.database),
        percent_encoded(&query),
    );
    let mut add = |name: &str, value: &str| {
        write!(uri, "&{}={}", percent_encoded(name), percent_encoded(value))
            .expect("writing to a String cannot fail");
    };
    settings_beside_pinned(spec.timeout, spec.settings).for_each(|(name, value)| add(&name, &value));
    PINNED.iter().chain(pinned).for_each(|(name, value)| add(name, value));
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_instead_of_user_and_password() {
        let path = std::env::temp_dir().join(format!("sluice-insert-token-{}", std::process::id()));
        std::fs::write(&path, "t0ken\n").unwrap();
        let token = crate::bearer::BearerFile::open(path.to_str().unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let target = InsertTarget::new(&TargetSpec {
            endpoint: &Endpoint::parse("https://clickhouse:8443").unwrap(),
            credentials: &Credentials { user: "a:b".into(), password: String::new(), token: Some(token) },
            database: "otel",
            table: "otel_traces",
            columns: &TableColumns::default(),
            timeout: INSERT_TIMEOUT_MIN,
            settings: &BTreeMap::new(),
        })
        .unwrap();
        let header = target.authorization();
        assert_eq!(header, "Bearer t0ken");
        assert!(header.is_sensitive());
        assert_eq!(target.token_failure(), None, "nobody has looked again");
    }

    fn target(database: &str, password: &str, timeout: Duration) -> Result<InsertTarget, TargetError> {
        InsertTarget::new(&TargetSpec {
            endpoint: &Endpoint::parse("http://clickhouse:8123").unwrap(),
            credentials: &Credentials { user: "gateway".into(), password: password.into(), token: None },
            database,
            table: "otel_traces",
            columns: &TableColumns::default(),
            timeout,
            settings: &BTreeMap::from([("insert_quorum".to_owned(), "2&async_insert=1".to_owned())]),
        })
    }

    #[test]
    fn the_uri_names_table_columns_and_settings() {
        let target = target("otel", "", Duration::from_secs(30)).unwrap();
        let id = InsertId { token: None, query_id: "q-1" };
        let uri = target.uri(WireFormat::RowBinary, &id).to_string();
        assert!(uri.starts_with(
            "http://clickhouse:8123/?database=otel&query=INSERT%20INTO%20%60otel%60.%60otel_traces%60%20\
             %28%60Timestamp%60%2C%20%60TraceId%60%2C%20"
        ));
        assert!(uri.contains(
            "%60Links.Attributes%60%29%20FORMAT%20RowBinaryWithNamesAndTypes&max_execution_time=29&\
             insert_quorum=2%26async_insert%3D1&decompress=1"
        ));
        assert!(uri.ends_with("&query_id=q-1"), "{uri}");
        let native = target.uri(WireFormat::Native, &id).to_string();
        assert!(native.contains("%29%20FORMAT%20Native&max_execution_time=29&insert_quorum="), "{native}");
        for (name, value) in PINNED {
            assert!(uri.contains(&format!("&{name}={value}")), "{name}");
            assert!(native.contains(&format!("&{name}={value}")), "{name}");
        }
        assert!(native.contains("&input_format_native_allow_types_conversion=0&"));
    }

    #[test]
    fn a_token_and_names_are_encoded() {
        let target = target("o&t", "", Duration::from_secs(2)).unwrap();
        assert_eq!(target.table(), "`o&t`.`otel_traces`");
        let uri = target
            .uri(WireFormat::RowBinary, &InsertId { token: Some("topic/0:1-2&x=1"), query_id: "a b" })
            .to_string();
        assert!(uri.contains("/?database=o%26t&query="));
        assert!(uri.ends_with("&query_id=a%20b&insert_deduplication_token=topic%2F0%3A1-2%26x%3D1"));
        assert!(uri.contains("&max_execution_time=1&"));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_at_start() {
        assert!(matches!(target("otel", "", Duration::from_millis(1999)), Err(TargetError::Timeout { .. })));
    }

    #[test]
    fn a_password_is_never_printed() {
        let target = target("otel", "s3cret", Duration::from_secs(30)).unwrap();
        assert!(!format!("{target:?}").contains("s3cret"));
        assert!(
            !target
                .uri(WireFormat::RowBinary, &InsertId { token: None, query_id: "q" })
                .to_string()
                .contains("s3cret")
        );
    }
}
