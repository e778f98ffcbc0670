//! The real server as the sink of a run: a database for it, and the inserts in the server's own log.
//!
//! Limits: the log counts rows, not numbers, so lost and doubled spans are known only if the table keeps the rows. Background merges are
//! not part of the inserts and are not counted.

use anyhow::{Context as _, Result};
use sluice_gateway_config::Layout;

use super::report::Arrived;
use e2e_fixtures::oracle::{Database, Oracle, Server};
use e2e_fixtures::pipeline::TABLE;
use e2e_fixtures::produce;
use e2e_fixtures::spans::Run;
use e2e_stack::clickhouse::HOST_URL;
use e2e_stack::say;

/// Tries to remove a database; the server may take 30 s to answer each. Chosen: two minutes, several times what the merges after a run of
/// millions of spans took on busy cores.
const DELETE_TRIES: u32 = 4;

/// The two engines that runs are measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Rows are read and dropped: measures the cost of the format.
    Null,
    /// Rows are kept: measures the whole cost.
    MergeTree,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Engine::Null => "Null",
            Engine::MergeTree => "MergeTree",
        }
    }

    /// Turns the statement of a MergeTree table into one for this engine.
    fn statement(self, merge_tree: &str) -> String {
        match self {
            Engine::MergeTree => merge_tree.to_owned(),
            Engine::Null => null_statement(merge_tree),
        }
    }
}

/// A table with the same columns, without order, indexes and settings.
fn null_statement(merge_tree: &str) -> String {
    let body = merge_tree.split("\nENGINE = ").next().unwrap_or(merge_tree);
    let kept: Vec<_> = body.lines().filter(|line| !line.trim_start().starts_with("INDEX ")).collect();
    let kept = kept.join("\n").replace(",\n)", "\n)");
    format!("{kept}\nENGINE = Null")
}

pub fn stack_server() -> Server {
    Server::new(HOST_URL, "default", "")
}

/// A database of one run.
pub struct Sink {
    server: Server,
    database: Database,
    engine: Engine,
}

impl Sink {
    /// Makes the database and in it the table of `statements` with `engine`.
    pub async fn create(database: &str, statements: &[String], engine: Engine) -> Result<Sink> {
        let server = stack_server();
        let database = Database::create(&server, database).await?;
        for statement in statements {
            server.execute(&engine.statement(statement)).await?;
        }
        Ok(Sink { server, database, engine })
    }

    /// What arrived: counts from the server's log; lost and doubled spans from the table, if it keeps rows.
    pub async fn arrived(&self, run: Run, sent: &produce::Sent, layout: Layout) -> Result<Arrived> {
        self.server.execute("SYSTEM FLUSH LOGS query_log").await?;
        let logged = self.server.text(&log_query(self.database.name()), "TSV").await?;
        let mut arrived = read_log(&logged)?;
        if self.engine == Engine::MergeTree
            // A peer may make a table of another layout; then only the log counts.
            && let Ok(count) = self.database.oracle(TABLE, run).laid_out(layout).count(sent).await
        {
            arrived.rows = count.rows + count.foreign;
            arrived.lost = Some(sent.acked.count() - count.unique_acked);
            arrived.doubled = Some(count.rows - count.unique);
        }
        Ok(arrived)
    }

    pub fn oracle(&self, run: Run) -> Oracle {
        self.database.oracle(TABLE, run)
    }

    /// Removes the database. If that fails, it is only reported: the measurements stay valid.
    pub async fn delete(&self) {
        let name = self.database.name();
        // A merge of large parts does not stop at once; but no new one begins.
        self.server.execute(&format!("SYSTEM STOP MERGES `{name}`.`{TABLE}`")).await.ok();
        for tried in 1..=DELETE_TRIES {
            match self.database.delete().await {
                Ok(()) => return,
                Err(error) if tried == DELETE_TRIES => {
                    say::error(&format!("cannot remove the database {name}: {error:#}"));
                }
                Err(_) => say::progress("clickhouse", &format!("the database {name} is still being removed")),
            }
        }
    }
}

/// Format, rows, bytes and CPU time of the inserts into a database. There are two counters of bytes: the network's misses the bytes that
/// arrived with the headers, and that of compressed frames misses bodies without frames.
fn log_query(database: &str) -> String {
    format!(
        "SELECT any(extract(query, 'FORMAT\\s+(\\w+)')), sum(written_rows), \
         sum(greatest(ProfileEvents['NetworkReceiveBytes'], ProfileEvents['ReadCompressedBytes'])), \
         sum(ProfileEvents['UserTimeMicroseconds'] + ProfileEvents['SystemTimeMicroseconds']) \
         FROM system.query_log WHERE type = 'QueryFinish' AND query_kind IN ('Insert', 'AsyncInsertFlush') \
         AND has(databases, '{database}')"
    )
}

fn read_log(line: &str) -> Result<Arrived> {
    let cells: Vec<&str> = line.trim_end_matches('\n').split('\t').collect();
    let [format, rows, bytes, cpu] = cells[..] else {
        anyhow::bail!("the server's log answered {line:?}");
    };
    let number =
        |cell: &str| cell.parse::<u64>().with_context(|| format!("read {cell:?} of the server's log"));
    Ok(Arrived {
        format: format.to_owned(),
        rows: number(rows)?,
        bytes: number(bytes)?,
        server_cpu_us: Some(number(cpu)?),
        ..Arrived::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_null_table_keeps_the_columns_only() {
        let merge_tree = "CREATE TABLE `d`.`t`\n(\n    `a` String,\n    INDEX i a TYPE minmax\n)\nENGINE = MergeTree\n\
                          ORDER BY a\nSETTINGS x = 1";
        assert_eq!(null_statement(merge_tree), "CREATE TABLE `d`.`t`\n(\n    `a` String\n)\nENGINE = Null");
    }

    #[test]
    fn a_statement_without_engine_is_left_alone() {
        assert_eq!(Engine::MergeTree.statement("CREATE DATABASE d"), "CREATE DATABASE d");
    }

    #[test]
    fn the_log_is_read_cell_by_cell() {
        let arrived = read_log("RowBinary\t10\t980\t4200\n").unwrap();
        assert_eq!((arrived.rows, arrived.bytes, arrived.server_cpu_us), (10, 980, Some(4_200)));
        assert_eq!((arrived.format.as_str(), arrived.lost), ("RowBinary", None));
        assert!(read_log("x").is_err());
    }
}
