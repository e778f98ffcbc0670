//! The table of a round, changed as a person or the server changes it.
//!
//! Owner: the round.

use anyhow::Result;

use super::Scene;
use e2e_fixtures::pipeline::TABLE;

/// Number of tokens that a table remembers after it has forgotten all of them.
const WINDOW: u64 = 10_000;

impl Scene<'_> {
    /// Makes the table forget all tokens, and remember new ones.
    pub async fn forget_tokens(&self) -> Result<()> {
        // Without a window, the server keeps no token; with a new window, it begins with none.
        for window in [0, WINDOW] {
            self.remember_tokens(window).await?;
        }
        Ok(())
    }

    /// Removes the server's logs of inserts and of their parts: a gateway can no longer ask what happened to an INSERT.
    pub async fn lose_logs(&self) -> Result<()> {
        // The server writes its logs to the tables with a delay.
        for statement in [
            "SYSTEM FLUSH LOGS",
            "TRUNCATE TABLE IF EXISTS system.query_log",
            "TRUNCATE TABLE IF EXISTS system.part_log",
        ] {
            self.stage.servers.server.execute(statement).await?;
        }
        Ok(())
    }

    /// Makes the table remember the tokens of this many blocks from now on.
    pub async fn remember_tokens(&self, blocks: u64) -> Result<()> {
        self.alter(&format!("MODIFY SETTING non_replicated_deduplication_window = {blocks}")).await
    }

    /// The quoted name of the table, with its database.
    pub fn table(&self) -> String {
        format!("`{}`.`{TABLE}`", self.database.name())
    }

    /// Changes the table: the end of an `ALTER TABLE`.
    pub async fn alter(&self, change: &str) -> Result<()> {
        self.stage.servers.server.execute(&format!("ALTER TABLE {} {change}", self.table())).await
    }
}
