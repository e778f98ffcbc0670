//! Checks an INSERT's settings and rights without an INSERT.
//!
//! Job: finds what would prevent every INSERT from being stored, or from being stored once, and can be known in advance: settings that a
//! profile does not allow, settings that get lost on the way, a header that gets lost on the way
//! back, missing grants, limits on memory. Place in the flow: `sluice-gateway check`, and
//! [`crate::deduplication`] for lost settings. Limits: each query takes at most [`PROBE_TIMEOUT`].

use std::collections::BTreeMap;
use std::time::Duration;

use clickhouse::Row;
use serde::Deserialize;

use crate::column::TableColumns;
use crate::deduplication::DECISIVE;
use crate::insert::settings_beside_pinned;
use crate::probe::{PROBE_TIMEOUT, Probe};
use crate::probe_error::ProbeError;
use crate::settings::{NATIVE_PINNED, PINNED};
use crate::sql::{identifier, literal, table_name};

/// The setting that carries a block's token, and its value in a query.
const TOKEN: (&str, &str) = ("insert_deduplication_token", "asked");

/// A parameter of the HTTP interface that is not a setting: the server would decompress the query.
const NO_SETTING: &str = "decompress";

/// The settings that limit the memory of a query, and of all queries of a user. 0: no limit.
const MEMORY_LIMITS: [&str; 2] = ["max_memory_usage", "max_memory_usage_for_user"];

/// The grants that it takes to create a missing table, by `CREATE DATABASE IF NOT EXISTS` and `CREATE TABLE`, and to insert into it: as a statement
/// `GRANT` has them.
pub fn grants_to_create(database: &str, table: &str) -> [String; 2] {
    [
        format!("CREATE DATABASE ON {}.*", identifier(database)),
        format!("CREATE TABLE, INSERT ON {}", table_name(database, table)),
    ]
}

#[derive(Debug, Row, Deserialize)]
struct ValueRow {
    name: String,
    value: String,
}

impl Probe {
    /// Runs a query with all settings of an INSERT that has this timeout and these settings of the config, and a token. Not included:
    /// `query_id`, which is no setting, and the password, which every query has.
    ///
    /// # Errors
    /// [`ProbeError::Refused`] or [`ProbeError::Other`] if the user may not set one of them, or the server does not know it; the error
    /// names the setting.
    pub async fn allows_settings(
        &self,
        timeout: Duration,
        asked: &BTreeMap<String, String>,
    ) -> Result<(), ProbeError> {
        let mut question = self.client().query_raw("SELECT 1");
        for (name, value) in settings_beside_pinned(timeout, asked) {
            question = question.with_setting(name, value);
        }
        for (name, value) in pinned().chain([&TOKEN]) {
            question = question.with_setting(*name, *value);
        }
        let answer = question.fetch_one::<u8>();
        self.within(PROBE_TIMEOUT, "testing the settings of an INSERT", answer).await.map(drop)
    }

    /// Whether answers have the header with the summary, without which no INSERT counts as stored ([`crate::client::SUMMARY`]). A proxy may
    /// remove it.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers.
    pub async fn has_summary(&self) -> Result<bool, ProbeError> {
        let question = self.client().query_raw("SELECT 1").with_setting("wait_end_of_query", "1");
        let answer = async {
            let mut rows = question.fetch::<u8>()?;
            rows.next().await?;
            Ok(rows.summary().is_some_and(|summary| summary.read_rows().is_some()))
        };
        self.within(PROBE_TIMEOUT, "reading the summary of a query", answer).await
    }

    /// Settings for deduplication, including the token, that do not reach the server as sent: most likely a proxy removes parameters from
    /// the query string.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers, or the user may not set one of them.
    pub async fn lost_settings(&self) -> Result<Vec<String>, ProbeError> {
        let sent: Vec<_> =
            pinned().filter(|(name, _)| DECISIVE.contains(name)).chain([&TOKEN]).copied().collect();
        let names = sent.iter().map(|(name, _)| literal(name)).collect::<Vec<_>>().join(", ");
        let mut question = self
            .client()
            .query_raw(&format!("SELECT name, value FROM system.settings WHERE name IN ({names})"));
        for (name, value) in &sent {
            question = question.with_setting(*name, *value);
        }
        let answer = question.fetch_all::<ValueRow>();
        let rows = self.within(PROBE_TIMEOUT, "reading back the settings of an INSERT", answer).await?;
        let is_lost =
            |row: &ValueRow| sent.iter().any(|(name, value)| *name == row.name && *value != row.value);
        Ok(rows.into_iter().filter(is_lost).map(|row| row.name).collect())
    }

    /// Whether the user may insert these columns into the table.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers, or the server does not support the query.
    pub async fn may_insert(&self, table: &str, columns: &TableColumns) -> Result<bool, ProbeError> {
        let name = table_name(&self.database, table);
        let columns = columns.columns();
        let columns: Vec<_> = columns.iter().map(|column| identifier(&column.name)).collect();
        let question = format!("CHECK GRANT INSERT({}) ON {name}", columns.join(", "));
        let answer = self.client().query_raw(&question).fetch_one::<u8>();
        Ok(self.within(PROBE_TIMEOUT, &format!("checking the grant to insert into {name}"), answer).await?
            == 1)
    }

    /// The grants of [`grants_to_create`] that the user lacks.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers, or the server does not support the query.
    pub async fn lacks_to_create(&self, table: &str) -> Result<Vec<String>, ProbeError> {
        let action = format!("checking the grants to create {}", table_name(&self.database, table));
        let mut lacks = Vec::new();
        for grants in grants_to_create(&self.database, table) {
            let answer = self.client().query_raw(&format!("CHECK GRANT {grants}")).fetch_one::<u8>();
            if self.within(PROBE_TIMEOUT, &action, answer).await? != 1 {
                lacks.push(grants);
            }
        }
        Ok(lacks)
    }

    /// The user's setting `readonly`: 0, or 1 or 2 with which no INSERT is accepted.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers.
    pub async fn readonly(&self) -> Result<String, ProbeError> {
        let answer = self
            .client()
            .query_raw("SELECT value FROM system.settings WHERE name = 'readonly'")
            .fetch_one::<String>();
        self.within(PROBE_TIMEOUT, "reading the setting readonly", answer).await
    }

    /// The user's limits on the memory of an INSERT with these settings of the config, in bytes; limits that are not set are left out.
    ///
    /// # Errors
    /// [`ProbeError`] if no server answers.
    pub async fn memory_limits(
        &self,
        asked: &BTreeMap<String, String>,
    ) -> Result<Vec<(String, u64)>, ProbeError> {
        let names = MEMORY_LIMITS.map(literal).join(", ");
        let question = format!("SELECT name, value FROM system.settings WHERE name IN ({names})");
        let question = asked.iter().fold(self.client().query_raw(&question), |question, (name, value)| {
            question.with_setting(name, value)
        });
        let answer = question.fetch_all::<ValueRow>();
        let rows = self.within(PROBE_TIMEOUT, "reading the limits on memory of an INSERT", answer).await?;
        let limits = rows.into_iter().filter_map(|row| Some((row.name, row.value.parse().ok()?)));
        Ok(limits.filter(|(_, bytes)| *bytes > 0).collect())
    }

    /// Why INSERTs fail at materialized views that read the inserted rows with the rights of the user that inserts: one answer of the server for
    /// each such view. Views with a definer or `SQL SECURITY NONE`, and views that the user may not see, are left out.
    ///
    /// # Errors
    /// [`ProbeError`] when no server answers, or the server does not support the query.
    pub async fn refused_views(&self, table: &str) -> Result<Vec<ProbeError>, ProbeError> {
        let mut refused = Vec::new();
        for view in self.dependents(&self.database, table).await? {
            let checks_no_one = view.create_table_query.contains("SQL SECURITY NONE");
            if view.as_select.is_empty() || !view.definer.is_empty() || checks_no_one {
                continue;
            }
            // It checks the same grants as the INSERT does, and does not read the table.
            let answer =
                self.client().query_raw(&format!("EXPLAIN {}", view.as_select)).fetch_all::<String>();
            let action =
                format!("reading inserted rows for the materialized view {}.{}", view.database, view.name);
            // What else may be wrong with the view, an INSERT will say.
            if let Err(error @ ProbeError::Refused { .. }) = self.within(PROBE_TIMEOUT, &action, answer).await
            {
                refused.push(error);
            }
        }
        Ok(refused)
    }
}

/// The settings of every INSERT, for rows and for columns.
fn pinned() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    PINNED.iter().chain(NATIVE_PINNED).filter(|(name, _)| *name != NO_SETTING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::WireFormat;
    use crate::endpoint::{Credentials, Endpoint};
    use crate::insert::{InsertId, InsertTarget, TargetSpec};
    use crate::tls::Tls;
    use std::collections::BTreeSet;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    /// Parameters of an INSERT that are no settings, or that every query has.
    const NO_SETTINGS: [&str; 4] = ["query", "database", "query_id", NO_SETTING];

    /// The names of the parameters in the first line of a request.
    fn parameters(line: &str) -> BTreeSet<String> {
        let query = line.split_once('?').unwrap().1.split(' ').next().unwrap();
        query.split('&').map(|parameter| parameter.split_once('=').unwrap().0.to_owned()).collect()
    }

    #[tokio::test]
    async fn every_setting_of_an_insert_is_rehearsed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let credentials = Credentials { user: "u".into(), password: "p".into(), token: None };
        let asked = BTreeMap::from([("insert_quorum".to_owned(), "2".to_owned())]);
        let timeout = Duration::from_secs(30);
        let probe = Probe::new(&endpoint, &credentials, "otel", &Tls::unused()).unwrap();
        let request = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.contains(&b'\n') {
                assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
            }
            String::from_utf8(head).unwrap().lines().next().unwrap().to_owned()
        };
        let (line, answer) = tokio::join!(request, probe.allows_settings(timeout, &asked));
        assert!(answer.is_err(), "the connection ends without an answer");
        let rehearsed = parameters(&line);
        let target = InsertTarget::new(&TargetSpec {
            endpoint: &endpoint,
            credentials: &credentials,
            database: "otel",
            table: "otel_traces",
            columns: &TableColumns::default(),
            timeout,
            settings: &asked,
        })
        .unwrap();
        let id = InsertId { token: Some("t"), query_id: "q" };
        for format in [WireFormat::RowBinary, WireFormat::Native] {
            let sent = parameters(&target.uri(format, &id).to_string());
            let settings = sent.iter().filter(|name| !NO_SETTINGS.contains(&name.as_str()));
            let missing: Vec<_> = settings.filter(|name| !rehearsed.contains(*name)).collect();
            assert!(missing.is_empty(), "{missing:?} are not in {line}");
        }
    }
}
