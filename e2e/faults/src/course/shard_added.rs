//! A gateway is killed after the server has stored an INSERT and before the gateway gets the answer. It is restarted with another shard in
//! its config.
//!
//! Half of the partitions go to the new shard from then on. Their ranges in flight go to the shard to which they were sent before, as the
//! plan says. The new shard does not know their token, and would store them again.

use anyhow::{Result, ensure};

use super::kill::{self, Step};
use crate::scene::{Expected, Scene};

const MEMBER: &str = "gateway-0";

pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.open_second_shard().await?;
    scene.start_under_load(Some(MEMBER)).await?;
    let killed = kill::at(scene, Step::AfterServerCommit).await?;
    scene.retire(0)?;
    scene.write_to_both_shards()?;
    scene.start_gateway(Some(MEMBER))?;
    let expected = scene.recover(killed).await?;
    let database = scene.database.name().to_owned();
    ensure!(scene.second_shard()?.rows(&database).await? > 0, "nothing goes to the new shard");
    Ok(expected)
}
