//! A variant's table on the server: what its inserts cost, how large it is, and how long answers take.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::question::{POD, Subjects, TAG, questions};
use super::report::Answer;
use super::variant::Variant;
use crate::figures::float;
use crate::throughput::stack_server;
use e2e_fixtures::oracle::{Database, Server};
use e2e_fixtures::pipeline::TABLE;
use e2e_stack::say;

/// Longest time for the merge of a table into one part a day.
const MERGE_PATIENCE: Duration = Duration::from_mins(15);

/// Time between two checks of merges.
const LOOK: Duration = Duration::from_millis(500);

/// Cores of the server that a query may use: those of the machine on which the figures were measured.
const THREADS: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserts {
    pub count: u64,
    pub rows: u64,
    pub cpu_us: u64,
    /// Time from the start of each INSERT to its answer, in all.
    pub milliseconds: u64,
    /// Files and directories that were synced.
    pub syncs: u64,
}

/// Bytes on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub rows: u64,
    pub table_bytes: u64,
    pub view_bytes: u64,
}

pub async fn version() -> Result<String> {
    let text = stack_server().text("SELECT version()", "TSV").await?;
    Ok(text.trim().to_owned())
}

pub struct Table {
    server: Server,
    database: Database,
}

impl Table {
    /// Makes database, table and views. Without statements, another program makes the table.
    pub async fn create(server: &Server, database: &str, statements: &[String]) -> Result<Table> {
        let database = Database::create(server, database).await?;
        for statement in statements {
            server.execute(statement).await?;
        }
        Ok(Table { server: server.clone(), database })
    }

    /// Removes it. If that fails, it is only reported: the measurements stay valid.
    pub async fn delete(&self) {
        if let Err(error) = self.database.delete().await {
            say::error(&format!("cannot remove the database {}: {error:#}", self.database.name()));
        }
    }

    fn name(&self) -> String {
        format!("{}.{TABLE}", self.database.name())
    }

    /// The numbers in the single row that a query returns.
    pub async fn numbers<const N: usize>(&self, query: &str) -> Result<[u64; N]> {
        let text = self.server.text(query, "TSV").await?;
        numbers_in(&text).with_context(|| format!("understand the answer to {query}"))
    }

    /// The costs of the inserts, from the server's log.
    pub async fn inserts(&self) -> Result<Inserts> {
        self.server.execute("SYSTEM FLUSH LOGS query_log").await?;
        let of_log = format!(
            "SELECT count(), sum(ProfileEvents['UserTimeMicroseconds'] + ProfileEvents['SystemTimeMicroseconds']), \
             sum(query_duration_ms), sum(ProfileEvents['FileSync'] + ProfileEvents['DirectorySync']) FROM system.query_log \
             WHERE type = 'QueryFinish' AND query_kind = 'Insert' AND has(databases, '{}')",
            self.database.name()
        );
        let [count, cpu_us, milliseconds, syncs] = self.numbers(&of_log).await?;
        let [rows] = self.numbers(&format!("SELECT count() FROM {}", self.name())).await?;
        Ok(Inserts { count, rows, cpu_us, milliseconds, syncs })
    }

    /// Merges the table into one part a day, so that sizes and answers do not depend on the state of background merges.
    pub async fn merge(&self) -> Result<()> {
        let started = Instant::now();
        let parts = format!(
            "SELECT count() - uniqExact(partition), (SELECT count() FROM system.merges WHERE database = '{0}') FROM system.parts \
             WHERE active AND database = '{0}' AND table = '{TABLE}'",
            self.database.name()
        );
        loop {
            let [surplus, merges] = self.numbers(&parts).await?;
            if surplus == 0 && merges == 0 {
                return Ok(());
            }
            // The server continues even if the answer takes longer than we wait. A second OPTIMIZE meanwhile would merge the finished part
            // again.
            if merges == 0 {
                self.server.execute(&format!("OPTIMIZE TABLE {} FINAL", self.name())).await.ok();
            }
            ensure!(started.elapsed() < MERGE_PATIENCE, "the table is not merged after {MERGE_PATIENCE:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    pub async fn sizes(&self) -> Result<Sizes> {
        let query = format!(
            "SELECT sumIf(rows, table = '{TABLE}'), sumIf(bytes_on_disk, table = '{TABLE}'), sumIf(bytes_on_disk, table != '{TABLE}') \
             FROM system.parts WHERE active AND database = '{}'",
            self.database.name()
        );
        let [rows, table_bytes, view_bytes] = self.numbers(&query).await?;
        Ok(Sizes { rows, table_bytes, view_bytes })
    }

    /// Runs the queries with these names `times` times; the first answer, which fills caches, does not count.
    pub async fn ask(&self, variant: &Variant, names: &[&'static str], times: u32) -> Result<Vec<Answer>> {
        let about = self.subjects(variant).await?;
        let asked = questions(variant, &self.name(), &about);
        for (name, text) in asked.into_iter().filter(|(name, _)| names.contains(name)) {
            for time in 0..=times {
                let comment = if time == 0 { "first".to_owned() } else { self.comment(name) };
                let settings = format!("SETTINGS max_threads = {THREADS}, log_comment = '{comment}'");
                self.server.execute(&format!("{text} FORMAT Null {settings}")).await?;
            }
        }
        self.server.execute("SYSTEM FLUSH LOGS query_log").await?;
        let mut answers = Vec::new();
        for &name in names {
            answers.push(self.answer(name).await?);
        }
        Ok(answers)
    }

    fn comment(&self, question: &str) -> String {
        format!("{}-{question}", self.database.name())
    }

    async fn answer(&self, question: &'static str) -> Result<Answer> {
        let query = format!(
            "SELECT toUInt64(quantileExact(query_duration_ms)), \
             toUInt64(quantileExact(ProfileEvents['UserTimeMicroseconds'] + ProfileEvents['SystemTimeMicroseconds'])), \
             max(read_rows), max(read_bytes) FROM system.query_log WHERE type = 'QueryFinish' AND log_comment = '{}'",
            self.comment(question)
        );
        let [milliseconds, cpu_us, read_rows, read_bytes] = self.numbers(&query).await?;
        Ok(Answer {
            name: question,
            milliseconds,
            cpu_milliseconds: float(cpu_us) / 1_000.0,
            read_rows,
            read_bytes,
        })
    }

    async fn subjects(&self, variant: &Variant) -> Result<Subjects> {
        let (table, tag) = (self.name(), variant.text(TAG));
        let counts = format!(
            "SELECT intDiv(uniqExact(TraceId), 2), intDiv(uniqExact(ServiceName, SpanName), 2), \
             toUInt64(quantileExact(0.999)(Duration)) FROM {table}"
        );
        let [traces, operations, duration] = self.numbers(&counts).await?;
        let trace = format!("SELECT DISTINCT TraceId FROM {table} ORDER BY TraceId LIMIT 1 OFFSET {traces}");
        let [trace] = self.cells(&trace).await?;
        let operation = format!(
            "SELECT ServiceName, SpanName FROM {table} GROUP BY ALL ORDER BY count(), ServiceName, SpanName \
             LIMIT 1 OFFSET {operations}"
        );
        let [service, operation] = self.cells(&operation).await?;
        let seldom = |value: &str| {
            format!(
                "SELECT {value} AS value FROM {table} WHERE notEmpty(ifNull(value, '')) GROUP BY value ORDER BY count(), value LIMIT 1"
            )
        };
        let [tag] = self.cells(&seldom(&tag)).await?;
        let [pod] = self.cells(&seldom(&variant.resource_text(POD))).await?;
        Ok(Subjects { trace, service, operation, tag, pod, duration })
    }

    /// The single row that a query returns.
    async fn cells<const N: usize>(&self, query: &str) -> Result<[String; N]> {
        let text = self.server.text(query, "TSV").await?;
        cells_in(&text).with_context(|| format!("understand the answer to {query}"))
    }
}

/// The cells of an answer that is one row of tab-separated text. An answer without a row is one empty cell.
fn cells_in<const N: usize>(text: &str) -> Result<[String; N]> {
    let cells: Vec<String> = text.trim_end_matches('\n').split('\t').map(str::to_owned).collect();
    cells.try_into().map_err(|cells| anyhow::anyhow!("{cells:?} are not {N} cells"))
}

/// The numbers of an answer that is one row of tab-separated text.
fn numbers_in<const N: usize>(text: &str) -> Result<[u64; N]> {
    let mut numbers = [0; N];
    for (number, cell) in numbers.iter_mut().zip(cells_in::<N>(text)?) {
        *number = cell.parse().with_context(|| format!("read the number {cell:?}"))?;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_cell_by_cell() {
        assert_eq!(numbers_in::<3>("7\t0\t18446744073709551615\n").unwrap(), [7, 0, u64::MAX]);
        assert_eq!(cells_in::<2>("a b\t\n").unwrap(), ["a b".to_owned(), String::new()]);
        assert_eq!(cells_in::<1>("").unwrap(), [String::new()], "no row");
    }

    #[test]
    fn an_answer_of_another_form_is_refused() {
        assert!(numbers_in::<2>("7\n").is_err());
        assert!(numbers_in::<1>("7\t8\n").is_err());
        for cell in ["", "x", "-1", "1.5", "nan"] {
            assert!(numbers_in::<1>(cell).is_err(), "{cell:?}");
        }
    }
}
