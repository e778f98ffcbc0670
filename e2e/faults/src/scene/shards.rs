//! A second shard, for rounds that have one.
//!
//! Owner: the round. The rows of both are counted as soon as it exists.

use anyhow::{Context as _, Result};
use serde_json::json;

use super::Scene;
use crate::second_shard::{ALL_SHARDS, SecondShard};
use e2e_fixtures::gateway;

impl Scene<'_> {
    /// Starts a second ClickHouse with the same table; from now on the rows of both are counted.
    pub async fn open_second_shard(&mut self) -> Result<()> {
        let shard = SecondShard::start(&self.config.with_extension("shard")).await?;
        for statement in gateway::table_statements(&self.stage.program, &self.config)? {
            shard.server.execute(&statement).await?;
        }
        self.stage.servers.server.execute(&shard.view(self.database.name())).await?;
        self.counted = ALL_SHARDS;
        self.second_shard = Some(shard);
        Ok(())
    }

    pub fn second_shard(&self) -> Result<&SecondShard> {
        self.second_shard.as_ref().context("there is no second shard")
    }

    /// Gateways that start from now on write to both shards.
    pub fn write_to_both_shards(&mut self) -> Result<()> {
        let urls = [self.stage.servers.sink.url(), self.second_shard()?.front.url()];
        let shards: Vec<[&String; 1]> = urls.iter().map(|url| [url]).collect();
        self.reconfigure(&json!({"sink": {"clickhouse": {"endpoints": [], "shards": shards}}}))
    }
}
