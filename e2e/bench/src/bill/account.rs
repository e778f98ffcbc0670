//! What the server's own logs say about a case.
//!
//! Job: CPU time and bytes of inserts, views and merges. Place in the flow: after merges are quiet, before the queries. The server is new for
//! each case, so that all that its logs have is of the case.
//!
//! | log | gives |
//! | --- | --- |
//! | `query_log` | CPU time of statements; that of an INSERT includes its views and the writing of its parts |
//! | `query_views_log` | CPU time of views |
//! | `part_log`, `NewPart` | bytes of new parts; no CPU time, which is that of the INSERT |
//! | `part_log`, `MergeParts` | bytes, rows and CPU time of merges |

use anyhow::{Context as _, Result};

use super::quiet::LOOK_COMMENT;
use crate::schema_bench::Table;
use e2e_fixtures::oracle::Server;
use e2e_fixtures::pipeline::TABLE;

pub const DATABASE: &str = "bill";

/// CPU time of a row of a log, microseconds.
const CPU_US: &str = "ProfileEvents['UserTimeMicroseconds'] + ProfileEvents['SystemTimeMicroseconds']";

/// The sums of the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Successful INSERT statements.
    pub inserts: u64,
    /// CPU time of INSERT statements, with views, microseconds.
    pub insert_cpu_us: u64,
    /// CPU time of other statements, without the looks at merges, microseconds.
    pub statement_cpu_us: u64,
    /// CPU time of the looks at merges up to the end of the last merge, microseconds.
    pub look_cpu_us: u64,
    /// CPU time of views, microseconds.
    pub view_cpu_us: u64,
    /// CPU time of merges of the case's tables, microseconds.
    pub merge_cpu_us: u64,
    /// CPU time of merges of the server's own logs, microseconds.
    pub log_merge_cpu_us: u64,
    pub new_bytes: u64,
    /// Merges of the case's tables.
    pub merges: u64,
    pub merged_bytes: u64,
    /// Rows of the main table that merges wrote.
    pub merged_rows: u64,
    /// Largest number of active parts of the main table in a partition.
    pub parts_max: u64,
    /// Active parts of the main table at the end.
    pub parts_end: u64,
    /// Bytes on disk of all active parts at the end.
    pub stored_bytes: u64,
}

impl Account {
    /// Reads the logs. Of the looks at merges, those that began up to `looks_until_us` count, in microseconds since 1970.
    pub async fn read(server: &Server, table: &Table, looks_until_us: u64) -> Result<Account> {
        server.execute("SYSTEM FLUSH LOGS query_log, query_views_log, part_log").await?;
        let statements = table.numbers(&statements_query(looks_until_us)).await;
        let [inserts, insert_cpu_us, statement_cpu_us, look_cpu_us] =
            statements.context("read the log of statements")?;
        let [view_cpu_us] = table.numbers(&views_query()).await.context("read the log of views")?;
        let parts = table.numbers(&parts_query()).await.context("read the log of parts")?;
        let [new_bytes, merges, merged_bytes, merged_rows, merge_cpu_us, log_merge_cpu_us] = parts;
        let [parts_max] = table.numbers(&parts_max_query()).await.context("read the log of parts")?;
        let [parts_end, stored_bytes] = table.numbers(&stored_query()).await.context("read the parts")?;
        Ok(Account {
            inserts,
            insert_cpu_us,
            statement_cpu_us,
            look_cpu_us,
            view_cpu_us,
            merge_cpu_us,
            log_merge_cpu_us,
            new_bytes,
            merges,
            merged_bytes,
            merged_rows,
            parts_max,
            parts_end,
            stored_bytes,
        })
    }
}

/// Which spans are in the main table, by the numbers that their ids carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub rows: u64,
    /// Different spans among them.
    pub unique: u64,
}

impl Stored {
    /// Reads every id of the table.
    pub async fn count(table: &Table) -> Result<Stored> {
        let [rows, unique] = table.numbers(&ids_query()).await.context("count the spans")?;
        Ok(Stored { rows, unique })
    }

    /// What is wrong, if not every span is there exactly once.
    pub fn failures(self, spans: u64) -> Vec<String> {
        let (lost, doubled) = (spans.saturating_sub(self.unique), self.rows.saturating_sub(self.unique));
        let foreign = self.unique.saturating_sub(spans);
        [(lost, "spans are lost"), (doubled, "rows are doubled"), (foreign, "spans were never sent")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect()
    }
}

/// Rows and different span ids. All spans of a case are of one run, in which each number has a span id of its own.
fn ids_query() -> String {
    format!("SELECT count(), uniqExact(reinterpretAsUInt64(unhex(SpanId))) FROM {DATABASE}.{TABLE}")
}

/// Inserts, their CPU time, that of other statements, and that of the looks at merges up to a time. A statement that failed has used CPU time
/// too.
fn statements_query(looks_until_us: u64) -> String {
    format!(
        "SELECT countIf(is_insert AND type = 'QueryFinish'), sumIf(cpu_us, is_insert), sumIf(cpu_us, NOT is_insert AND NOT is_look), \
         sumIf(cpu_us, is_look AND begun <= fromUnixTimestamp64Micro(toInt64({looks_until_us}))) \
         FROM (SELECT type, query_kind IN ('Insert', 'AsyncInsertFlush') AS is_insert, log_comment = '{LOOK_COMMENT}' AS is_look, \
         query_start_time_microseconds AS begun, {CPU_US} AS cpu_us \
         FROM system.query_log WHERE type IN ('QueryFinish', 'ExceptionWhileProcessing'))"
    )
}

fn views_query() -> String {
    format!(
        "SELECT sum({CPU_US}) FROM system.query_views_log WHERE status IN ('QueryFinish', 'ExceptionWhileProcessing')"
    )
}

/// Bytes of new parts; merges with their bytes, rows of the main table, and CPU time; CPU time of merges of the server's own logs.
fn parts_query() -> String {
    format!(
        "SELECT sumIf(size_in_bytes, is_new AND is_ours), countIf(is_merge AND is_ours), \
         sumIf(size_in_bytes, is_merge AND is_ours), sumIf(rows, is_merge AND is_ours AND table = '{TABLE}'), \
         sumIf(cpu_us, is_merge AND is_ours), sumIf(cpu_us, is_merge AND NOT is_ours) \
         FROM (SELECT table, rows, size_in_bytes, event_type = 'NewPart' AS is_new, event_type = 'MergeParts' AS is_merge, \
         database = '{DATABASE}' AS is_ours, {CPU_US} AS cpu_us FROM system.part_log WHERE error = 0)"
    )
}

/// The largest number of active parts: a new part is one more, a merge replaces its sources by one.
fn parts_max_query() -> String {
    format!(
        "SELECT max(parts) FROM (SELECT sum(if(event_type = 'NewPart', 1, 1 - toInt64(length(merged_from)))) \
         OVER (PARTITION BY partition_id ORDER BY event_time_microseconds ROWS UNBOUNDED PRECEDING) AS parts \
         FROM system.part_log WHERE event_type IN ('NewPart', 'MergeParts') AND error = 0 \
         AND database = '{DATABASE}' AND table = '{TABLE}')"
    )
}

/// Active parts of the main table, and bytes of all tables.
fn stored_query() -> String {
    format!(
        "SELECT countIf(table = '{TABLE}'), sum(bytes_on_disk) \
         FROM system.parts WHERE active AND database = '{DATABASE}'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_read_for_the_tables_of_the_case() {
        for query in [parts_query(), parts_max_query(), stored_query()] {
            assert!(query.contains("'bill'") && query.contains("'otel_traces'"), "{query}");
        }
        assert!(!statements_query(0).contains("databases"), "a statement that failed names no database");
    }

    #[test]
    fn looks_at_merges_are_no_other_statements_and_count_only_until_the_last_merge() {
        let query = statements_query(1_700_000_000_000_000);
        assert!(query.contains("sumIf(cpu_us, NOT is_insert AND NOT is_look)"), "{query}");
        assert!(query.contains("log_comment = 'bill-look' AS is_look"), "{query}");
        assert!(
            query.contains("is_look AND begun <= fromUnixTimestamp64Micro(toInt64(1700000000000000))"),
            "{query}"
        );
    }

    #[test]
    fn one_lost_span_and_one_doubled_row_are_no_exact_count() {
        let stored = |rows, unique| Stored { rows, unique };
        assert_eq!(stored(10, 10).failures(10), Vec::<String>::new());
        assert_eq!(stored(10, 9).failures(10), ["1 spans are lost", "1 rows are doubled"]);
        assert_eq!(stored(11, 11).failures(10), ["1 spans were never sent"]);
    }

    #[test]
    fn a_part_that_the_server_dropped_is_not_counted() {
        assert!(parts_query().contains("error = 0") && parts_max_query().contains("error = 0"));
    }
}
