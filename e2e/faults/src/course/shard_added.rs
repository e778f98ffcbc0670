//! A gateway is killed after the server has stored an INSERT and before the gateway gets the answer. It is restarted with another shard in
//! its config.
//!
//! Half of the partitions go to the new shard from then on. Their ranges in flight go to the shard to which they were sent before, as the
//! plan says. The new shard does not know their token, and would store them again.

use anyhow::{Result, ensure};

use super::kill;
use crate::scene::{Expected, Scene};

pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.open_second_shard().await?;
    let (killed, _) = kill::with_change(scene, |scene| scene.write_to_both_shards()).await?;
    let expected = scene.recover(killed).await?;
    ensure!(scene.second_shard()?.rows(scene.database.name()).await? > 0, "nothing goes to the new shard");
    Ok(expected)
}
