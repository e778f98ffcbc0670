//! Whether a block of unknown fate is in the table.
//!
//! Job: from what the servers wrote down about the attempts of one block, to [`Fate`]. Place in the flow: asked for a block that is
//! in doubt, when its token may be forgotten or before it is sent in parts; never otherwise. Limits: one block at a time, each
//! question within [`crate::probe::PROBE_TIMEOUT`]; reads the log tables of [`LOG_MARGIN`] and longer.
//!
//! | seen, on any replica | so it is |
//! | --- | --- |
//! | an attempt that finished and had read all of its rows (`query_log`) | stored, in views too |
//! | parts of its attempts, new or known by their token, with all of its rows (`part_log`) | in the table |
//! | every attempt failed for certain, none runs, none made a part, and the logs are whole | absent |
//! | anything else: logs off, not readable, cut by a restart; an attempt that they do not name | unknown |
//!
//! A log lags behind: its rows are written every few seconds, and a server that is killed loses what it has not written. What is
//! seen is so; what is not seen proves something only if the server has been up since before the first attempt and has
//! written its logs since the last one.
//!
//! A block never has 0 rows. An attempt may have: a body that is lost on its way is a valid INSERT of none, which finishes well and
//! stores nothing. So it is the rows that an attempt has read from its body (`read_rows`) that tell: they are the block's whether
//! the server drops them as known or not, while `written_rows` counts what goes on to the views.

use std::collections::BTreeMap;
use std::time::Duration;

use clickhouse::Row;
use serde::Deserialize;

use crate::probe::Probe;
use crate::probe_error::ProbeError;

/// By how much the server's clock may be off ours. Chosen: far above what machines with NTP are apart.
pub const LOG_MARGIN: Duration = Duration::from_mins(1);

/// After what time a log is taken to be written when it cannot be told to be. Specified: the server's interval is 7.5 s, and is
/// rarely set to more; four times that.
const LOG_WRITTEN_AFTER: Duration = Duration::from_secs(30);

/// What has become of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is in the table and in the views below it.
    Stored,
    /// It is in the table; views below it may lack it.
    InTable,
    /// It is not in the table, and no attempt goes on that could bring it there.
    Absent,
    /// There is no telling.
    Unknown,
}

/// The block whose fate is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Lost<'a> {
    /// What the `query_id` of each of its attempts begins with, and no other query's.
    pub query_id_start: &'a str,
    /// Attempts of which the server may have taken a byte; `None` when others may have made some.
    pub attempts: Option<u32>,
    /// Its rows, which are never none.
    pub rows: u64,
    /// When the first attempt began, since 1970.
    pub since: Duration,
}

/// What one server wrote down about a block's attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The most rows that an attempt had read which finished; 0 when none did.
    pub finished_rows: u64,
    /// Attempts that ended with an exception.
    pub failed: u64,
    /// Attempts that go on.
    pub running: u64,
    /// Of each table partition, the block's rows in parts that one of its attempts made, or found there; `None` when that is not
    /// written down.
    pub rows: Option<BTreeMap<String, u64>>,
    /// Whether the server has been up since before the first attempt and has written its logs since the last one.
    pub is_whole: bool,
}

/// What a server says that answers.
#[derive(Debug)]
pub enum Said {
    /// What it wrote down.
    Evidence(Evidence),
    /// Nothing: its log of queries is off, may not be read, or takes too long to be.
    Nothing(ProbeError),
}

impl Fate {
    /// The fate of `lost`, from what each replica of the shard says; `None` is one that says nothing.
    pub fn of(lost: &Lost<'_>, replicas: &[Option<Evidence>]) -> Self {
        let seen = || replicas.iter().flatten();
        if lost.rows > 0 && seen().any(|evidence| evidence.finished_rows >= lost.rows) {
            return Self::Stored;
        }
        let rows = rows_in_table(seen());
        if lost.rows > 0 && rows >= lost.rows {
            return Self::InTable;
        }
        let all_say = replicas.iter().all(Option::is_some) && seen().all(|e| e.rows.is_some() && e.is_whole);
        let running: u64 = seen().map(|evidence| evidence.running).sum();
        let failed: u64 = seen().map(|evidence| evidence.failed).sum();
        let all_failed = lost.attempts.is_some_and(|attempts| failed >= u64::from(attempts) && attempts > 0);
        if all_say && all_failed && rows == 0 && running == 0 { Self::Absent } else { Self::Unknown }
    }
}

/// Rows of the block that are in the table, by what all replicas have written down. What one of them has, the others have too and
/// may have been asked to store again (389): of each partition it counts once.
fn rows_in_table<'a>(seen: impl Iterator<Item = &'a Evidence>) -> u64 {
    let mut of_partitions: BTreeMap<&str, u64> = BTreeMap::new();
    for (partition, rows) in seen.filter_map(|evidence| evidence.rows.as_ref()).flatten() {
        let most = of_partitions.entry(partition).or_default();
        *most = (*most).max(*rows);
    }
    of_partitions.values().sum()
}

#[derive(Debug, Row, Deserialize)]
struct QueryLogRow {
    finished_rows: u64,
    failed: u64,
    last_seconds: u64,
}

#[derive(Debug, Row, Deserialize)]
struct PartLogRow {
    partition_id: String,
    partition_rows: u64,
}

#[derive(Debug, Row, Deserialize)]
struct ServerRow {
    now_seconds: u64,
    up_seconds: u64,
    running: u64,
}

impl Probe {
    /// What this server wrote down about the block's attempts. The log of parts need not be there.
    ///
    /// # Errors
    /// [`ProbeError`] when it does not even say what time it is.
    pub async fn evidence(&self, table: &str, lost: &Lost<'_>) -> Result<Said, ProbeError> {
        let is_written = self.write_logs().await;
        let server = self.server_row(lost).await?;
        let queries = match self.query_log_row(lost).await {
            Ok(queries) => queries,
            Err(error) => return Ok(Said::Nothing(error)),
        };
        let rows = self.part_log_rows(table, lost).await.ok();
        let since_last = Duration::from_secs(server.now_seconds.saturating_sub(queries.last_seconds));
        let started = Duration::from_secs(server.now_seconds.saturating_sub(server.up_seconds));
        Ok(Said::Evidence(Evidence {
            finished_rows: queries.finished_rows,
            failed: queries.failed,
            running: server.running,
            rows,
            is_whole: started + LOG_MARGIN <= lost.since && (is_written || since_last >= LOG_WRITTEN_AFTER),
        }))
    }

    /// Has the server write its logs, if it lets us.
    async fn write_logs(&self) -> bool {
        let statement = "SYSTEM FLUSH LOGS query_log, part_log";
        let answer = self.client.query_raw(statement).execute();
        self.within(crate::probe::PROBE_TIMEOUT, "flushing the system logs", answer).await.is_ok()
    }

    async fn server_row(&self, lost: &Lost<'_>) -> Result<ServerRow, ProbeError> {
        let question = "SELECT toUInt64(toUnixTimestamp(now())) AS now_seconds, toUInt64(uptime()) AS up_seconds, \
                        ifNull((SELECT count() FROM system.processes WHERE startsWith(query_id, ?)), 0) AS running";
        let answer = self.client.query(question).bind(lost.query_id_start).fetch_one::<ServerRow>();
        self.within(crate::probe::PROBE_TIMEOUT, "looking for running INSERT attempts", answer).await
    }

    /// Attempts that ended with 319 (`UNKNOWN_STATUS_OF_INSERT`) are none that failed: their parts are kept, and may be in the table. Nor are
    /// those that ended while they waited for a quorum, by their time limit (159) or because they were cancelled (394): the server has their
    /// parts by then, and writes them into `part_log` only after the wait.
    async fn query_log_row(&self, lost: &Lost<'_>) -> Result<QueryLogRow, ProbeError> {
        let question = "SELECT maxIf(read_rows, type = 'QueryFinish') AS finished_rows, \
                        uniqExactIf(query_id, type IN ('ExceptionBeforeStart', 'ExceptionWhileProcessing') AND exception_code != 319 \
                        AND NOT (exception_code IN (159, 394) AND Settings['insert_quorum'] NOT IN ('', '0', '1'))) \
                        AS failed, \
                        toUInt64(toUnixTimestamp(max(event_time))) AS last_seconds \
                        FROM system.query_log \
                        WHERE event_date >= toDate(fromUnixTimestamp64Second(?)) - 1 \
                        AND event_time >= fromUnixTimestamp64Second(?) AND startsWith(query_id, ?)";
        let since = log_start(lost);
        let answer =
            self.whole(question).bind(since).bind(since).bind(lost.query_id_start).fetch_one::<QueryLogRow>();
        self.within(crate::probe::PROBE_TIMEOUT, "reading system.query_log", answer).await
    }

    /// Rows that the block has in each partition of the table: what one attempt put there or was told to be there (389).
    async fn part_log_rows(&self, table: &str, lost: &Lost<'_>) -> Result<BTreeMap<String, u64>, ProbeError> {
        let question = "SELECT partition_id, max(attempt_rows) AS partition_rows FROM (\
                        SELECT partition_id, sum(rows) AS attempt_rows FROM system.part_log \
                        WHERE event_date >= toDate(fromUnixTimestamp64Second(?)) - 1 \
                        AND event_time >= fromUnixTimestamp64Second(?) AND startsWith(query_id, ?) \
                        AND event_type = 'NewPart' AND database = ? AND table = ? AND error IN (0, 389) \
                        GROUP BY query_id, partition_id) GROUP BY partition_id";
        let since = log_start(lost);
        let answer = self
            .whole(question)
            .bind(since)
            .bind(since)
            .bind(lost.query_id_start)
            .bind(&self.database)
            .bind(table)
            .fetch_all::<PartLogRow>();
        let rows = self.within(crate::probe::PROBE_TIMEOUT, "reading system.part_log", answer).await?;
        Ok(rows.into_iter().map(|row| (row.partition_id, row.partition_rows)).collect())
    }
}

/// From when the logs are read, in seconds since 1970.
fn log_start(lost: &Lost<'_>) -> u64 {
    lost.since.saturating_sub(LOG_MARGIN).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Lost<'_> =
        Lost { query_id_start: "token-", attempts: Some(2), rows: 10, since: Duration::from_secs(1_000) };

    /// Both attempts failed and left nothing.
    fn failed() -> Evidence {
        Evidence { finished_rows: 0, failed: 2, running: 0, rows: Some(BTreeMap::new()), is_whole: true }
    }

    fn nothing() -> Evidence {
        Evidence { failed: 0, ..failed() }
    }

    fn in_parts(rows: &[(&str, u64)]) -> Evidence {
        let rows = rows.iter().map(|(partition, rows)| ((*partition).to_owned(), *rows)).collect();
        Evidence { rows: Some(rows), ..failed() }
    }

    #[test]
    fn what_is_seen_is_so_and_what_is_not_seen_must_be_proved() {
        let finished = |rows| Some(Evidence { finished_rows: rows, ..nothing() });
        let cut = Evidence { finished_rows: 10, is_whole: false, ..nothing() };
        let table: Vec<(&str, Vec<Option<Evidence>>, Fate)> = vec![
            ("finished", vec![Some(cut)], Fate::Stored),
            ("finished on one replica", vec![None, finished(10)], Fate::Stored),
            ("finished with rows of a view beside its own", vec![finished(12)], Fate::Stored),
            ("finished without a row", vec![finished(0)], Fate::Unknown),
            ("finished with too few rows", vec![finished(9)], Fate::Unknown),
            ("all rows in parts", vec![Some(in_parts(&[("p1", 10)]))], Fate::InTable),
            ("some rows in parts", vec![Some(in_parts(&[("p1", 9)]))], Fate::Unknown),
            ("every attempt failed", vec![Some(failed())], Fate::Absent),
            ("one each on two replicas", vec![Some(Evidence { failed: 1, ..failed() }); 2], Fate::Absent),
            ("an attempt that nobody saw", vec![Some(Evidence { failed: 1, ..failed() })], Fate::Unknown),
            ("an attempt goes on", vec![Some(Evidence { running: 1, ..failed() })], Fate::Unknown),
            ("parts are not logged", vec![Some(Evidence { rows: None, ..failed() })], Fate::Unknown),
            (
                "restarted, not yet written",
                vec![Some(Evidence { is_whole: false, ..failed() })],
                Fate::Unknown,
            ),
            ("a replica says nothing", vec![Some(failed()), None], Fate::Unknown),
            ("nothing is seen", vec![Some(nothing())], Fate::Unknown),
            ("nobody answers", vec![None], Fate::Unknown),
        ];
        for (case, replicas, fate) in table {
            assert_eq!(Fate::of(&LOST, &replicas), fate, "{case}");
        }
    }

    #[test]
    fn rows_that_two_replicas_name_count_once() {
        let table: &[(&str, &[Evidence], Fate)] = &[
            (
                "the same partition on both, stored and known",
                &[in_parts(&[("p1", 5)]), in_parts(&[("p1", 5)])],
                Fate::Unknown,
            ),
            ("a partition each", &[in_parts(&[("p1", 5)]), in_parts(&[("p2", 5)])], Fate::InTable),
            (
                "one known, the other stored by the second attempt",
                &[in_parts(&[("p1", 5)]), in_parts(&[("p1", 5), ("p2", 5)])],
                Fate::InTable,
            ),
        ];
        for (case, replicas, fate) in table {
            let replicas: Vec<_> = replicas.iter().cloned().map(Some).collect();
            assert_eq!(Fate::of(&LOST, &replicas), *fate, "{case}");
        }
    }

    #[test]
    fn attempts_of_others_are_never_known_to_have_failed() {
        let inherited = Lost { attempts: None, ..LOST };
        assert_eq!(Fate::of(&inherited, &[Some(failed())]), Fate::Unknown);
        let finished = Evidence { finished_rows: 10, ..failed() };
        assert_eq!(Fate::of(&inherited, &[Some(finished)]), Fate::Stored);
        assert_eq!(Fate::of(&Lost { attempts: Some(0), ..LOST }, &[Some(failed())]), Fate::Unknown);
    }
}
