//! Whether a block of unknown fate is in the table.
//!
//! Job: derives [`Fate`] from the servers' logs about the attempts of one block. Place in the flow: asked for a block in doubt, when its
//! token may be forgotten or before it is sent in parts; never otherwise. Limits: one block at a time, each query takes at most
//! [`crate::probe::PROBE_TIMEOUT`]; reads the log tables of [`LOG_MARGIN`] and longer.
//!
//! | seen, on any replica | conclusion |
//! | --- | --- |
//! | an attempt that finished and read all of its rows (`query_log`) | stored, in views too |
//! | parts of its attempts, new or known by their token, with all of its rows (`part_log`) | in the table |
//! | every attempt was refused before it began (`ExceptionBeforeStart`), none is running, and `query_log` is complete | absent, refused |
//! | every attempt failed certainly, none is running, none created a part, and the logs are complete | absent |
//! | anything else: logs off, unreadable, or cut by a restart; an attempt that they do not contain | unknown |
//!
//! Logs lag behind: a server writes them every few seconds, and loses unwritten rows when it is killed. What a log contains is true. What
//! it lacks proves something only if the server has been up since before the first attempt and has written its logs since the last one.
//!
//! A block never has 0 rows, but an attempt may: if the body is lost on its way, it is a valid INSERT of no rows, which succeeds and
//! stores nothing. So the decisive number is the rows that an attempt has read from its body (`read_rows`): those of the block, whether
//! the server drops them as known or not. `written_rows` counts the rows that go on to the views.

use std::collections::BTreeMap;
use std::time::Duration;

use clickhouse::Row;
use serde::Deserialize;

use crate::probe::Probe;
use crate::probe_error::ProbeError;

/// Maximum difference between the server's clock and the gateway's. Chosen: far above the difference of machines with NTP.
pub const LOG_MARGIN: Duration = Duration::from_mins(1);

/// Time after which a log counts as written if the server cannot be told to flush it. Specified: the server's interval is 7.5 s and
/// rarely longer; four times that.
const LOG_WRITTEN_AFTER: Duration = Duration::from_secs(30);

/// The rows of a log since a time, which is bound twice, in seconds since 1970. The log is sorted by date and time. The dates are in the
/// time zone that the server had when it wrote them: [`crate::zones::ZONE_DAYS_APART_MAX`], as text.
const LOGGED_SINCE: &str =
    "event_date >= toDate(fromUnixTimestamp64Second(?)) - 2 AND event_time >= fromUnixTimestamp64Second(?)";

/// The fate of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is in the table and in the views below it.
    Stored,
    /// It is in the table; views below it may lack its rows.
    InTable,
    /// It is not in the table, and no running attempt could store it.
    Absent,
    /// The same, and the server refused each attempt before it read a row: user, settings, quotas or the table are the cause.
    Refused,
    Unknown,
}

/// The block in question.
#[derive(Debug, Clone, Copy)]
pub struct Lost<'a> {
    /// The prefix of the `query_id` of each of its attempts, and of no other query.
    pub query_id_start: &'a str,
    /// Number of attempts that sent the server at least a byte, or may have; `None` if other processes may have made some.
    pub attempts: Option<u32>,
    /// Number of its rows, never 0.
    pub rows: u64,
    /// When the first attempt began, since 1970.
    pub since: Duration,
}

/// What one server logged about a block's attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Most rows that a finished attempt had read; 0 if none finished.
    pub finished_rows: u64,
    /// Attempts that ended with an exception.
    pub failed: u64,
    /// Those of them that the server refused before they began.
    pub refused: u64,
    /// Attempts that are still running.
    pub running: u64,
    /// Per partition of the table, the block's rows in parts that one of its attempts created or found; `None` if that is not logged.
    pub rows: Option<BTreeMap<String, u64>>,
    /// Whether the server has been up since before the first attempt, and has written its logs since the last one.
    pub is_whole: bool,
}

/// The answer of a server.
#[derive(Debug)]
pub enum Said {
    /// What it logged.
    Evidence(Evidence),
    /// No evidence: its query log is off, may not be read, or takes too long to read.
    Nothing(ProbeError),
}

impl Fate {
    /// The fate of `lost`, from the evidence of each replica of the shard; `None` for a replica without evidence.
    pub fn of(lost: &Lost<'_>, replicas: &[Option<Evidence>]) -> Self {
        let seen = || replicas.iter().flatten();
        if lost.rows > 0 && seen().any(|evidence| evidence.finished_rows >= lost.rows) {
            return Self::Stored;
        }
        let rows = rows_in_table(seen());
        if lost.rows > 0 && rows >= lost.rows {
            return Self::InTable;
        }
        let attempts = lost.attempts.map(u64::from).filter(|attempts| *attempts > 0);
        let are_all = |count: fn(&Evidence) -> u64| {
            attempts.is_some_and(|attempts| seen().map(count).sum::<u64>() >= attempts)
        };
        let is_running = seen().any(|evidence| evidence.running > 0);
        let all_say = replicas.iter().all(Option::is_some) && seen().all(|evidence| evidence.is_whole);
        if !all_say || is_running || rows > 0 {
            return Self::Unknown;
        }
        // An attempt that never began has no parts: their log says nothing more.
        if are_all(|evidence| evidence.refused) {
            return Self::Refused;
        }
        let has_parts_logged = seen().all(|evidence| evidence.rows.is_some());
        if has_parts_logged && are_all(|evidence| evidence.failed) { Self::Absent } else { Self::Unknown }
    }
}

/// Rows of the block in the table, according to the logs of all replicas. Replicas share rows, and each may have been asked to store them
/// again (389): so each partition counts once.
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
    refused: u64,
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
    /// What this server logged about the block's attempts. The log of parts may be missing.
    ///
    /// # Errors
    /// [`ProbeError`] if the server does not even return its time.
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
            refused: queries.refused,
            running: server.running,
            rows,
            is_whole: started + LOG_MARGIN <= lost.since && (is_written || since_last >= LOG_WRITTEN_AFTER),
        }))
    }

    /// Asks the server to write its logs, if the user may do that.
    async fn write_logs(&self) -> bool {
        let statement = "SYSTEM FLUSH LOGS query_log, part_log";
        let answer = self.client().query_raw(statement).execute();
        self.within(crate::probe::PROBE_TIMEOUT, "flushing the system logs", answer).await.is_ok()
    }

    async fn server_row(&self, lost: &Lost<'_>) -> Result<ServerRow, ProbeError> {
        let question = "SELECT toUInt64(toUnixTimestamp(now())) AS now_seconds, toUInt64(uptime()) AS up_seconds, \
                        ifNull((SELECT count() FROM system.processes WHERE startsWith(query_id, ?)), 0) AS running";
        let answer = self.client().query(question).bind(lost.query_id_start).fetch_one::<ServerRow>();
        self.within(crate::probe::PROBE_TIMEOUT, "looking for running INSERT attempts", answer).await
    }

    /// Attempts that ended with 319 (`UNKNOWN_STATUS_OF_INSERT`) do not count as failed: their parts are kept, and may be in the table.
    /// Neither do those that ended during the wait for a quorum, by the time limit (159) or by cancellation (394): the server has their
    /// parts by then, and logs them in `part_log` only after the wait. An id that is running already (216) is refused for the sake of the
    /// attempt that runs.
    async fn query_log_row(&self, lost: &Lost<'_>) -> Result<QueryLogRow, ProbeError> {
        let question = format!(
            "SELECT maxIf(read_rows, type = 'QueryFinish') AS finished_rows, \
             uniqExactIf(query_id, type IN ('ExceptionBeforeStart', 'ExceptionWhileProcessing') AND exception_code != 319 \
             AND NOT (exception_code IN (159, 394) AND Settings['insert_quorum'] NOT IN ('', '0', '1'))) AS failed, \
             uniqExactIf(query_id, type = 'ExceptionBeforeStart' AND exception_code != 216) AS refused, \
             toUInt64(toUnixTimestamp(max(event_time))) AS last_seconds \
             FROM system.query_log WHERE {LOGGED_SINCE} AND startsWith(query_id, ?)"
        );
        let since = log_start(lost);
        let answer = self
            .whole(&question)
            .bind(since)
            .bind(since)
            .bind(lost.query_id_start)
            .fetch_one::<QueryLogRow>();
        self.within(crate::probe::PROBE_TIMEOUT, "reading system.query_log", answer).await
    }

    /// The block's rows in each partition of the table: those that an attempt stored or that were already there (389).
    async fn part_log_rows(&self, table: &str, lost: &Lost<'_>) -> Result<BTreeMap<String, u64>, ProbeError> {
        let question = format!(
            "SELECT partition_id, max(attempt_rows) AS partition_rows FROM (\
             SELECT partition_id, sum(rows) AS attempt_rows FROM system.part_log \
             WHERE {LOGGED_SINCE} AND startsWith(query_id, ?) \
             AND event_type = 'NewPart' AND database = ? AND table = ? AND error IN (0, 389) \
             GROUP BY query_id, partition_id) GROUP BY partition_id"
        );
        let since = log_start(lost);
        let answer = self
            .whole(&question)
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

/// The start of the log range to read, in seconds since 1970.
fn log_start(lost: &Lost<'_>) -> u64 {
    lost.since.saturating_sub(LOG_MARGIN).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Lost<'_> =
        Lost { query_id_start: "token-", attempts: Some(2), rows: 10, since: Duration::from_secs(1_000) };

    /// Both attempts failed and left no part.
    fn failed() -> Evidence {
        Evidence {
            finished_rows: 0,
            failed: 2,
            refused: 0,
            running: 0,
            rows: Some(BTreeMap::new()),
            is_whole: true,
        }
    }

    fn nothing() -> Evidence {
        Evidence { failed: 0, ..failed() }
    }

    fn in_parts(rows: &[(&str, u64)]) -> Evidence {
        let rows = rows.iter().map(|(partition, rows)| ((*partition).to_owned(), *rows)).collect();
        Evidence { rows: Some(rows), ..failed() }
    }

    #[test]
    fn dates_of_every_time_zone_are_read() {
        let margin = format!(" - {} AND", crate::zones::ZONE_DAYS_APART_MAX);
        assert!(LOGGED_SINCE.contains(&margin), "{LOGGED_SINCE}");
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
    fn attempts_that_never_began_need_no_log_of_parts() {
        let refused = Evidence { refused: 2, rows: None, ..failed() };
        let table: Vec<(&str, Vec<Option<Evidence>>, Fate)> = vec![
            ("both refused", vec![Some(refused.clone())], Fate::Refused),
            (
                "one each on two replicas",
                vec![Some(Evidence { refused: 1, ..refused.clone() }); 2],
                Fate::Refused,
            ),
            ("one began", vec![Some(Evidence { refused: 1, ..failed() })], Fate::Absent),
            (
                "one began, and parts are not logged",
                vec![Some(Evidence { refused: 1, ..refused.clone() })],
                Fate::Unknown,
            ),
            ("a replica says nothing", vec![Some(refused.clone()), None], Fate::Unknown),
            (
                "the log may lack an attempt",
                vec![Some(Evidence { is_whole: false, ..refused.clone() })],
                Fate::Unknown,
            ),
            ("an attempt goes on", vec![Some(Evidence { running: 1, ..refused })], Fate::Unknown),
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
