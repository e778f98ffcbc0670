//! Counts in `ClickHouse` what `produce` put into Kafka, and reads picked rows back.
//!
//! Job: say how many acknowledged spans are missing and how many rows are there twice, exactly, by their numbers; wait until
//! nothing is missing; read a row field by field with the stored types ([`Oracle::read`]). Place in the flow: the far end
//! of every end-to-end run. Owner: the test or the demo. Limits: one query takes at most [`QUERY_TIMEOUT`]; counting holds
//! 8 bytes a number in the server's memory.
//!
//! | word | meaning |
//! | --- | --- |
//! | lost | acknowledged numbers without a row |
//! | doubled | rows beyond the first of a number |
//! | foreign | rows of another run, without a number, or with a number that was never produced |

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clickhouse::{Client, Row};
use serde::{Deserialize, Serialize};
use sluice_gateway_config::Layout;
use tokio::time::Instant;

use crate::produce::Sent;
use crate::spans::{Numbers, Run};

mod readback;

/// Longest time for one query; counting a million rows takes well under a second.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two counts while waiting: short beside the seconds that a run takes, long beside the cost of a count.
const POLL: Duration = Duration::from_millis(500);

/// A `ClickHouse` server, over HTTP.
#[derive(Clone)]
pub struct Server {
    client: Client,
    url: String,
}

impl Server {
    /// The server at `url` (`http://host:port`). Does not connect yet.
    pub fn new(url: &str, user: &str, password: &str) -> Server {
        let client = Client::default().with_url(url).with_user(user).with_password(password);
        Server { client, url: url.to_owned() }
    }

    /// Runs a statement that gives no rows.
    pub async fn execute(&self, statement: &str) -> Result<()> {
        self.limited(statement, self.client.query_raw(statement).execute()).await
    }

    /// What a query prints in `format`.
    pub async fn text(&self, query: &str, format: &str) -> Result<String> {
        let answer = async {
            let mut cursor = self.client.query_raw(query).fetch_bytes(format)?;
            cursor.collect().await
        };
        let bytes = self.limited(query, answer).await?;
        String::from_utf8(bytes.to_vec()).context("the answer is not UTF-8")
    }

    /// True when the server answers a query now.
    pub async fn answers(&self) -> bool {
        self.execute("SELECT 1 FORMAT Null").await.is_ok()
    }

    async fn limited<T>(
        &self,
        statement: &str,
        answer: impl Future<Output = clickhouse::error::Result<T>>,
    ) -> Result<T> {
        let answer = tokio::time::timeout(QUERY_TIMEOUT, answer).await;
        let answer = answer
            .with_context(|| format!("{} did not answer in {QUERY_TIMEOUT:?}: {statement}", self.url))?;
        answer.with_context(|| format!("ask {}: {statement}", self.url))
    }
}

/// A database of a test, made empty and removed with all its tables.
#[derive(Clone)]
pub struct Database {
    server: Server,
    name: String,
}

impl Database {
    /// Makes database `name`; one of that name that an earlier run left is removed first.
    pub async fn create(server: &Server, name: &str) -> Result<Database> {
        let database = Database { server: server.clone(), name: name.to_owned() };
        database.delete().await?;
        server.execute(&format!("CREATE DATABASE `{name}`")).await?;
        Ok(database)
    }

    /// A database that is there already, or that someone else makes.
    pub fn existing(server: &Server, name: &str) -> Database {
        Database { server: server.clone(), name: name.to_owned() }
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes the database.
    pub async fn delete(&self) -> Result<()> {
        self.server.execute(&format!("DROP DATABASE IF EXISTS `{}` SYNC", self.name)).await
    }

    /// What counts the spans of `run` in `table`.
    pub fn oracle(&self, table: &str, run: Run) -> Oracle {
        let table = format!("`{}`.`{table}`", self.name);
        Oracle { server: self.server.clone(), table, layout: Layout::Json, run }
    }
}

/// Counts and reads the spans of one run in one table.
#[derive(Clone)]
pub struct Oracle {
    server: Server,
    /// Quoted name of the table, with its database.
    table: String,
    layout: Layout,
    run: Run,
}

/// What is in the table at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Row, Deserialize)]
pub struct Count {
    /// Rows whose number was produced.
    pub rows: u64,
    /// Different acknowledged numbers among them.
    pub unique_acked: u64,
    /// Different numbers among them, those of doubtful messages included.
    pub unique: u64,
    /// Rows of another run, without a number, or with a number that was not produced.
    pub foreign: u64,
}

/// How an end-to-end run ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Spans that Kafka acknowledged.
    pub spans: u64,
    /// Rows of them in the table.
    pub rows: u64,
    /// Acknowledged spans without a row.
    pub lost: u64,
    /// Rows beyond the first of a span.
    pub doubled: u64,
    /// Time from the first question to the last, seconds.
    pub seconds: f64,
    /// Rows that are not of this run. Not part of the report file, whose five fields are fixed.
    #[serde(skip)]
    pub foreign: u64,
}

/// How long to wait for rows.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// In all.
    pub deadline: Duration,
    /// Without a new number, the time of a server that does not answer included.
    pub stall: Duration,
}

impl Oracle {
    /// The same of a table with another layout than `Json`. It counts; rows are read back with types from `Json` alone.
    #[must_use]
    pub fn laid_out(self, layout: Layout) -> Oracle {
        Oracle { layout, ..self }
    }

    /// Counts once, against what was sent.
    pub async fn count(&self, sent: &Sent) -> Result<Count> {
        let query = count_query((&self.table, self.layout), self.run, sent);
        self.server.limited(&query, self.server.client.query_raw(&query).fetch_one::<Count>()).await
    }

    /// The run whose spans it counts.
    pub fn run(&self) -> Run {
        self.run
    }

    /// Rows of the run in the table.
    pub async fn rows_of_run(&self) -> Result<u64> {
        let prefix = self.run.trace_id_prefix();
        let query = format!("SELECT count() FROM {} WHERE startsWith(TraceId, '{prefix}')", self.table);
        self.server.limited(&query, self.server.client.query_raw(&query).fetch_one::<u64>()).await
    }

    /// Rows in the table, whatever they are.
    pub async fn rows(&self) -> Result<u64> {
        let query = format!("SELECT count() FROM {}", self.table);
        self.server.limited(&query, self.server.client.query_raw(&query).fetch_one::<u64>()).await
    }

    /// Counts until every acknowledged number has a row, `patience` ends, or nothing moves any more; `progress` sees every
    /// count. Lost spans are a verdict, not an error; it is an error when no count succeeded.
    pub async fn wait_until_complete(
        &self,
        sent: &Sent,
        patience: Patience,
        mut progress: impl FnMut(&Count),
    ) -> Result<Verdict> {
        let started = Instant::now();
        let (mut last, mut moved) = (None, started);
        loop {
            let counted = self.count(sent).await;
            if let Ok(count) = &counted {
                progress(count);
                if last.is_none_or(|last: Count| count.unique > last.unique) {
                    moved = Instant::now();
                }
                last = Some(*count);
            }
            let complete = last.is_some_and(|count| count.unique_acked == sent.acked.count());
            let over = started.elapsed() >= patience.deadline || moved.elapsed() >= patience.stall;
            if complete || over {
                return match (last, counted) {
                    (Some(count), _) => Ok(verdict(sent, count, started.elapsed())),
                    (None, Err(error)) => Err(error.context("no count succeeded")),
                    (None, Ok(_)) => bail!("no count succeeded"),
                };
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

fn verdict(sent: &Sent, count: Count, elapsed: Duration) -> Verdict {
    let spans = sent.acked.count();
    Verdict {
        spans,
        rows: count.rows,
        lost: spans - count.unique_acked,
        doubled: count.rows - count.unique,
        seconds: elapsed.as_secs_f64(),
        foreign: count.foreign,
    }
}

/// The number of a row's span; -1 without one.
fn number_in(layout: Layout) -> &'static str {
    match layout {
        Layout::Json => "ifNull(SpanAttributes.`sluice`.`seq`.:`Int64`, -1)",
        Layout::Map => "toInt64OrDefault(SpanAttributes['sluice.seq'], toInt64(-1))",
        Layout::Nested => {
            "if(has(`SpanAttributesInt.Key`, 'sluice.seq'), \
             `SpanAttributesInt.Value`[indexOf(`SpanAttributesInt.Key`, 'sluice.seq')], -1)"
        }
    }
}

fn count_query((table, layout): (&str, Layout), run: Run, sent: &Sent) -> String {
    let mut produced = sent.acked.clone();
    produced.extend(&sent.doubtful);
    format!(
        "SELECT countIf(produced) AS rows, uniqExactIf(number, acked) AS unique_acked, \
         uniqExactIf(number, produced) AS unique, countIf(NOT produced) AS foreign \
         FROM (SELECT {number} AS number, \
         startsWith(TraceId, '{prefix}') AS ours, ours AND ({acked}) AS acked, ours AND ({produced}) AS produced \
         FROM {table})",
        number = number_in(layout),
        prefix = run.trace_id_prefix(),
        acked = condition(&sent.acked),
        produced = condition(&produced),
    )
}

/// "`number` is one of these", as SQL.
fn condition(numbers: &Numbers) -> String {
    let ranges = numbers.ranges().iter();
    let ranges: Vec<String> =
        ranges.map(|range| format!("(number >= {} AND number < {})", range.start, range.end)).collect();
    if ranges.is_empty() { "false".to_owned() } else { ranges.join(" OR ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_counts_lost_and_doubled_apart() {
        let sent =
            Sent { acked: Numbers::from(0..100), doubtful: Numbers::from(100..110), ..Sent::default() };
        let count = Count { rows: 107, unique_acked: 97, unique: 102, foreign: 3 };
        let verdict = verdict(&sent, count, Duration::from_secs(2));
        assert_eq!((verdict.spans, verdict.lost, verdict.doubled, verdict.foreign), (100, 3, 5, 3));
    }

    #[test]
    fn the_report_has_the_five_fields() {
        let verdict = Verdict { spans: 2, rows: 3, lost: 0, doubled: 1, seconds: 1.5, foreign: 0 };
        let report = serde_json::to_string(&verdict).unwrap();
        assert_eq!(report, r#"{"spans":2,"rows":3,"lost":0,"doubled":1,"seconds":1.5}"#);
    }

    #[test]
    fn a_condition_names_every_range() {
        let mut numbers = Numbers::from(0..10);
        numbers.insert(20..30);
        assert_eq!(condition(&numbers), "(number >= 0 AND number < 10) OR (number >= 20 AND number < 30)");
        assert_eq!(condition(&Numbers::default()), "false");
    }
}
