//! Reads the properties of a server and a table before rows are sent.
//!
//! Job: queries and DDL statements through the `clickhouse` crate. Place in the flow: at start, for `sluice-gateway check` and `ddl`,
//! after [`crate::outcome::Class::RefreshSchema`], and for [`crate::deduplication`] and [`crate::fate`]; never per stored block. Limits:
//! one query at a time, each within [`PROBE_TIMEOUT`] (statements: [`STATEMENT_TIMEOUT`]).

use std::time::Duration;

use clickhouse::{Client, Row, query::Query};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;

use crate::causes::with_causes;
use crate::client::IDLE_TIMEOUT;
use crate::endpoint::{Authorization, Credentials, Endpoint, UserError};
use crate::exception::{code_of, without_query};
use crate::probe_error::ProbeError;
use crate::settings::{DESCRIBE_PINNED, QUESTION_PINNED, STATEMENT_PINNED, WHOLE_PINNED, settings_table};
use crate::sql::table_name;
use crate::table::{DefaultKind, DescribedColumn};
use crate::tls::{Tls, tls_error};
use crate::ttl::RowTtl;

/// How long a query may take. Chosen: all of them read metadata; a server that takes longer has a problem.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a statement may take. Chosen: `CREATE TABLE` waits for metadata locks, and on replicas for Keeper.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_mins(1);

/// A server's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerVersion {
    /// As the server prints it: `26.7.2.1`.
    pub text: String,
    /// Year and month of the release, `(26, 7)`, to be compared with [`crate::settings::SERVER_VERSION_MIN`].
    pub release: (u16, u16),
}

/// How a table stores rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEngine {
    /// The engine's name: `MergeTree`, `ReplicatedMergeTree`, `Null`, …
    pub name: String,
    /// Number of blocks whose tokens the table remembers. 0: a retry is stored a second time.
    pub deduplication_window_blocks: u64,
    /// When it deletes rows.
    pub ttl: RowTtl,
}

/// A row of `DESCRIBE TABLE`; the library wants every column named.
#[derive(Debug, Row, Deserialize)]
struct DescribeRow {
    name: String,
    r#type: String,
    default_type: String,
    #[serde(rename = "default_expression")]
    _default_expression: String,
    #[serde(rename = "comment")]
    _comment: String,
    #[serde(rename = "codec_expression")]
    _codec_expression: String,
    #[serde(rename = "ttl_expression")]
    _ttl_expression: String,
}

/// A table's engine, as `system.tables` names it.
#[derive(Debug, Row, Deserialize)]
pub(crate) struct EngineRow {
    /// Its name.
    pub engine: String,
    /// With all its clauses: `MergeTree PARTITION BY … SETTINGS …`.
    pub engine_full: String,
}

/// Queries to one server about one database.
#[derive(Clone)]
pub struct Probe {
    client: Client,
    authorization: Authorization,
    endpoint: Endpoint,
    pub(crate) database: String,
}

impl TableEngine {
    /// Whether its rows and its tokens are shared by replicas.
    pub fn is_replicated(&self) -> bool {
        is_replicated(&self.name)
    }

    /// Whether its tokens are stored where all servers of `ClickHouse` Cloud find them.
    pub fn is_shared(&self) -> bool {
        self.name.starts_with("Shared")
    }

    /// Why rows should not be sent to it, if so.
    pub fn unfit(&self) -> Option<&'static str> {
        unfit(&self.name)
    }

    /// Whether it can remember tokens at all.
    pub fn has_window(&self) -> bool {
        window_setting(&self.name).is_some()
    }
}

/// Why rows should not be sent to a table of this engine, if so.
pub fn unfit(engine: &str) -> Option<&'static str> {
    match engine {
        "Buffer" => Some(
            "it acknowledges rows that are only in memory and loses them when its server ends; name its target table",
        ),
        "View" | "LiveView" | "WindowView" | "Merge" | "Dictionary" => {
            Some("it accepts no rows; name a table that stores them")
        }
        _ => None,
    }
}

impl Probe {
    /// A probe of `endpoint` for `database`, which need not exist yet. Sends nothing before the first query.
    ///
    /// # Errors
    /// [`UserError`] if the user's name is not allowed.
    pub fn new(
        endpoint: &Endpoint,
        credentials: &Credentials,
        database: &str,
        tls: &Tls,
    ) -> Result<Self, UserError> {
        let authorization = credentials.authorization()?;
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(tls.connector(HttpConnector::new()));
        // The database is named in each query instead of being the session's: a server refuses even SELECT version() in a database that
        // does not exist.
        let client = Client::with_http_client(http).with_url(endpoint.url());
        let client =
            QUESTION_PINNED.iter().fold(client, |client, (name, value)| client.with_setting(*name, *value));
        Ok(Self { client, authorization, endpoint: endpoint.clone(), database: database.to_owned() })
    }

    /// The server.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The client, with the token of now if it logs in with one.
    pub(crate) fn client(&self) -> Client {
        let authorization = self.authorization.now();
        let text = authorization.to_str().expect("base64 and tokens are text");
        self.client.clone().with_header("Authorization", text)
    }

    /// A probe of the same server for another database.
    pub(crate) fn of(&self, database: &str) -> Self {
        Self { database: database.to_owned(), ..self.clone() }
    }

    /// The server's version.
    pub async fn server_version(&self) -> Result<ServerVersion, ProbeError> {
        let action = "reading the version";
        let answer = self.client().query_raw("SELECT version()").fetch_one::<String>();
        let text = self.within(PROBE_TIMEOUT, action, answer).await?;
        match release(&text) {
            Some(release) => Ok(ServerVersion { text, release }),
            None => Err(self.other(action, format!("cannot read the version {text:?}"))),
        }
    }

    /// The table's columns, in its order.
    pub async fn describe(&self, table: &str) -> Result<Vec<DescribedColumn>, ProbeError> {
        let name = table_name(&self.database, table);
        let action = format!("describing {name}");
        let question = self.client().query_raw(&format!("DESCRIBE TABLE {name}"));
        let answer = with_settings(question, DESCRIBE_PINNED).fetch_all::<DescribeRow>();
        let rows = self.within(PROBE_TIMEOUT, &action, answer).await?;
        let described = rows.into_iter().map(|row| DescribedColumn {
            name: row.name,
            type_name: row.r#type,
            default_kind: DefaultKind::from_described(&row.default_type),
        });
        Ok(described.collect())
    }

    /// The table's engine and its deduplication window.
    pub async fn engine(&self, table: &str) -> Result<TableEngine, ProbeError> {
        let row = self.engine_row(table).await?;
        let deduplication_window_blocks = match window_setting(&row.engine) {
            None => 0,
            Some(setting) => self.setting_of(&row, setting).await?,
        };
        let ttl = RowTtl::in_engine(&row.engine_full);
        Ok(TableEngine { name: row.engine, deduplication_window_blocks, ttl })
    }

    /// The value of a setting of the table: its own, or else the server's.
    pub(crate) async fn table_setting(&self, table: &str, setting: &str) -> Result<u64, ProbeError> {
        let row = self.engine_row(table).await?;
        self.setting_of(&row, setting).await
    }

    pub(crate) async fn engine_row(&self, table: &str) -> Result<EngineRow, ProbeError> {
        let name = table_name(&self.database, table);
        let action = format!("reading the engine of {name}");
        let answer = self
            .client()
            .query("SELECT engine, engine_full FROM system.tables WHERE database = ? AND name = ?")
            .bind(&self.database)
            .bind(table)
            .fetch_optional::<EngineRow>();
        let endpoint = self.endpoint.to_string();
        let missing = || ProbeError::UnknownTable {
            action: action.clone(),
            endpoint,
            reason: "it is not in system.tables".into(),
        };
        self.within(PROBE_TIMEOUT, &action, answer).await?.ok_or_else(missing)
    }

    /// The value of a setting of this table: its own, or else the server's.
    pub(crate) async fn setting_of(&self, row: &EngineRow, setting: &str) -> Result<u64, ProbeError> {
        match setting_in(&row.engine_full, setting) {
            Some(value) => Ok(value),
            None => self.merge_tree_setting(setting, is_replicated(&row.engine)).await,
        }
    }

    /// The server-wide value of a table setting; replicated tables may have another one.
    async fn merge_tree_setting(&self, setting: &str, of_replicated: bool) -> Result<u64, ProbeError> {
        let action = format!("reading the setting {setting}");
        let table = settings_table(of_replicated);
        let question = format!("SELECT toUInt64(value) FROM system.{table} WHERE name = ?");
        let answer = self.client().query(&question).bind(setting).fetch_one::<u64>();
        self.within(PROBE_TIMEOUT, &action, answer).await
    }

    /// Runs one statement of [`crate::ddl`].
    pub async fn execute(&self, statement: &str) -> Result<(), ProbeError> {
        let first_line = statement.lines().next().unwrap_or_default();
        let action = format!("running {first_line:?}");
        let statement = with_settings(self.client().query_raw(statement), STATEMENT_PINNED);
        self.within(STATEMENT_TIMEOUT, &action, statement.execute()).await
    }

    /// A query that aggregates or counts rows, with `?` for bound values.
    pub(crate) fn whole(&self, question: &str) -> Query {
        with_settings(self.client().query(question), WHOLE_PINNED)
    }

    /// Waits for an answer, and classifies an error by the caller's next action.
    pub(crate) async fn within<T>(
        &self,
        timeout: Duration,
        action: &str,
        answer: impl Future<Output = clickhouse::error::Result<T>>,
    ) -> Result<T, ProbeError> {
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.sorted(action, error)),
            // Connecting has a shorter limit.
            Err(_) => {
                let (action, endpoint) = (action.to_owned(), self.endpoint.to_string());
                Err(ProbeError::Silent { action, endpoint, reason: format!("no answer within {timeout:?}") })
            }
        }
    }

    fn sorted(&self, action: &str, error: clickhouse::error::Error) -> ProbeError {
        use clickhouse::error::Error;
        let reason = match error {
            Error::Network(cause) if tls_error(&*cause).is_some() => {
                let (action, endpoint) = (action.to_owned(), self.endpoint.to_string());
                return ProbeError::Tls { action, endpoint, reason: with_causes(&*cause) };
            }
            Error::Network(cause) => return self.unreachable(action, with_causes(&*cause)),
            Error::TimedOut => return self.unreachable(action, "timed out".to_owned()),
            Error::BadResponse(reason) => without_query(&reason).to_owned(),
            other => return self.other(action, other.to_string()),
        };
        let (action, endpoint) = (action.to_owned(), self.endpoint.to_string());
        match code_of(&reason) {
            Some(code) if ACCESS_CODES.contains(&code) => {
                ProbeError::Refused { action, endpoint, code, reason }
            }
            Some(81) => ProbeError::UnknownDatabase { action, endpoint, reason },
            Some(60 | 218) => ProbeError::UnknownTable { action, endpoint, reason },
            Some(code) => ProbeError::Other { action, endpoint, code: Some(code), reason },
            // ClickHouse sends a code: so something else answered, and the server's answer is unknown.
            None => ProbeError::Foreign { action, endpoint, reason: foreign(&reason) },
        }
    }

    fn unreachable(&self, action: &str, reason: String) -> ProbeError {
        ProbeError::Unreachable { action: action.to_owned(), endpoint: self.endpoint.to_string(), reason }
    }

    fn other(&self, action: &str, reason: String) -> ProbeError {
        let (action, endpoint) = (action.to_owned(), self.endpoint.to_string());
        ProbeError::Other { action, endpoint, code: None, reason }
    }
}

pub(crate) fn with_settings(question: Query, settings: &[(&str, &str)]) -> Query {
    settings.iter().fold(question, |question, (name, value)| question.with_setting(*name, *value))
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe")
            .field("endpoint", &self.endpoint)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

/// Codes that need manual action: `READONLY`, `UNKNOWN_USER`, `WRONG_PASSWORD`, `REQUIRED_PASSWORD`, `IP_ADDRESS_NOT_ALLOWED`,
/// `DATABASE_ACCESS_DENIED`, `ACCESS_DENIED`, `SET_NON_GRANTED_ROLE`, `AUTHENTICATION_FAILED`.
const ACCESS_CODES: [u32; 9] = [164, 192, 193, 194, 195, 291, 497, 512, 516];

/// Maximum characters of an answer that is not ClickHouse's: a proxy may send a whole page.
const FOREIGN_CHARS_MAX: usize = 200;

/// The beginning of an answer that is not ClickHouse's, as one line.
fn foreign(answer: &str) -> String {
    let words: Vec<&str> = answer.split_whitespace().collect();
    words.join(" ").chars().take(FOREIGN_CHARS_MAX).collect()
}

/// Year and month of `26.7.2.1`.
fn release(version: &str) -> Option<(u16, u16)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The setting that bounds an engine's deduplication, if there is one.
fn window_setting(engine: &str) -> Option<&'static str> {
    if !engine.ends_with("MergeTree") {
        return None;
    }
    Some(if is_replicated(engine) {
        "replicated_deduplication_window"
    } else {
        "non_replicated_deduplication_window"
    })
}

/// Whether tables of this engine share rows and tokens with replicas.
pub(crate) fn is_replicated(engine: &str) -> bool {
    engine.starts_with("Replicated") || engine.starts_with("Shared")
}

/// The value of a setting in the text of an engine: `… SETTINGS index_granularity = 8192, x = 100`.
pub(crate) fn setting_in(engine_full: &str, setting: &str) -> Option<u64> {
    let (_, settings) = engine_full.rsplit_once("SETTINGS ")?;
    settings.split(", ").find_map(|assignment| {
        let (name, value) = assignment.split_once(" = ")?;
        (name == setting).then(|| number(value.trim().trim_matches('\'')))?
    })
}

/// The server prints a value as it was given.
fn number(value: &str) -> Option<u64> {
    match value {
        "true" => Some(1),
        "false" => Some(0),
        _ => value.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::percent_encoded;
    use clickhouse::error::Error;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    fn probe() -> Probe {
        probe_of("http://clickhouse:8123")
    }

    fn probe_of(url: &str) -> Probe {
        let credentials = Credentials { user: "gateway".into(), password: "s3cret".into(), token: None };
        Probe::new(&Endpoint::parse(url).unwrap(), &credentials, "otel", &Tls::unused()).unwrap()
    }

    /// The first line of a request that gets no answer.
    async fn request_line(listener: &TcpListener) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.contains(&b'\n') {
            assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
        }
        String::from_utf8(head).unwrap().lines().next().unwrap().to_owned()
    }

    #[tokio::test]
    async fn the_settings_of_a_profile_change_no_question() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let probe = probe_of(&format!("http://{}", listener.local_addr().unwrap()));
        let has = |line: &str, pinned: &[(&str, &str)]| {
            for (name, value) in pinned.iter().chain(QUESTION_PINNED) {
                let sent = format!("{name}={}", percent_encoded(value));
                assert!(line.split(['?', '&', ' ']).any(|part| part == sent), "{sent} in {line}");
            }
        };
        let (line, refused) = tokio::join!(request_line(&listener), probe.describe("t"));
        has(&line, &[("describe_include_virtual_columns", "0"), ("limit", "0"), ("join_use_nulls", "0")]);
        has(&line, DESCRIBE_PINNED);
        assert!(refused.is_err());
        let (line, _) = tokio::join!(request_line(&listener), probe.blocks_written("t"));
        has(&line, WHOLE_PINNED);
        let (line, _) = tokio::join!(request_line(&listener), probe.execute("CREATE TABLE t"));
        has(&line, STATEMENT_PINNED);
    }

    #[tokio::test]
    async fn a_listener_that_does_not_answer_is_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let probe = probe_of(&format!("http://{}", listener.local_addr().unwrap()));
        let question = probe.client().query_raw("SELECT 1").execute();
        let error = probe.within(Duration::from_millis(100), "asking", question).await.unwrap_err();
        let words = "the server does not answer: no answer within 100ms; check for a server that hangs";
        assert!(error.is_unanswered() && error.to_string().contains(words), "{error}");
    }

    #[test]
    fn errors_are_sorted_by_what_the_caller_does() {
        let sorted = |text: &str| probe().sorted("asking", Error::BadResponse(text.into()));
        for code in ACCESS_CODES {
            let error = sorted(&format!("Code: {code}. DB::Exception: no"));
            assert!(matches!(error, ProbeError::Refused { code: found, .. } if found == code), "{error}");
        }
        assert!(matches!(sorted("Code: 81. DB::Exception: x"), ProbeError::UnknownDatabase { .. }));
        assert!(matches!(sorted("Code: 60. DB::Exception: x"), ProbeError::UnknownTable { .. }));
        assert!(matches!(sorted("Code: 218. DB::Exception: x"), ProbeError::UnknownTable { .. }));
        assert!(matches!(sorted("Code: 62. DB::Exception: x"), ProbeError::Other { code: Some(62), .. }));
        let error = sorted("<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>");
        assert!(error.is_unanswered(), "a proxy knows nothing of the server behind it: {error}");
        let words = "the answer is not from ClickHouse, or a proxy removes parameters of the request: <html> <head><title>502 Bad Gateway</title></head> <body>";
        assert_eq!(error.to_string(), format!("asking at http://clickhouse:8123: {words}"));
        let error = sorted(
            "Code: 60. DB::Exception: Unknown table expression identifier 'system.part_log' in scope SELECT sum(rows) FROM \
             system.part_log. (UNKNOWN_TABLE) (version 26.7.2.1)",
        );
        let text = "the table does not exist: Code: 60. DB::Exception: Unknown table expression identifier 'system.part_log'";
        assert!(
            matches!(error, ProbeError::UnknownTable { .. }) && error.to_string().ends_with(text),
            "{error}"
        );
        let error = probe().sorted("asking", Error::TimedOut);
        assert_eq!(error.to_string(), "asking at http://clickhouse:8123: cannot reach the server: timed out");
    }

    #[test]
    fn a_version_is_compared_by_release() {
        assert_eq!(release("26.7.2.1"), Some((26, 7)));
        assert_eq!(release("25.12"), Some((25, 12)));
        assert_eq!(release("26.7.2.1-altinity"), Some((26, 7)));
        assert_eq!(release("unknown"), None);
        assert!((26, 7) >= crate::settings::SERVER_VERSION_MIN);
        assert!((25, 12) < crate::settings::SERVER_VERSION_MIN);
    }

    #[test]
    fn the_window_is_read_from_the_engine_text() {
        let text = "MergeTree PARTITION BY toDate(Timestamp) ORDER BY x \
                    SETTINGS index_granularity = 8192, non_replicated_deduplication_window = 10000";
        assert_eq!(setting_in(text, "non_replicated_deduplication_window"), Some(10_000));
        assert_eq!(setting_in(text, "index_granularity"), Some(8192));
        assert_eq!(setting_in(text, "replicated_deduplication_window"), None);
        assert_eq!(setting_in("MergeTree ORDER BY x", "index_granularity"), None);
        let text = "MergeTree ORDER BY x SETTINGS fsync_after_insert = true, fsync_part_directory = false";
        assert_eq!(setting_in(text, "fsync_after_insert"), Some(1));
        assert_eq!(setting_in(text, "fsync_part_directory"), Some(0));
    }

    #[test]
    fn only_merge_trees_have_a_window() {
        let table = [
            ("MergeTree", Some("non_replicated_deduplication_window")),
            ("ReplacingMergeTree", Some("non_replicated_deduplication_window")),
            ("ReplicatedMergeTree", Some("replicated_deduplication_window")),
            ("SharedMergeTree", Some("replicated_deduplication_window")),
            ("Null", None),
            ("Distributed", None),
        ];
        for (engine, setting) in table {
            assert_eq!(window_setting(engine), setting, "{engine}");
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        assert!(!format!("{:?}", probe()).contains("s3cret"));
    }
}
