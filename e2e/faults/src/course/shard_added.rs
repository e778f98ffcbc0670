//! A gateway dies when the server has stored an INSERT whose answer it does not have, and comes back with another shard in its config.
//!
//! Half of the partitions go to the new shard from then on. What was in flight of them goes where it was sent before, as the plan says: the
//! new shard knows nothing of its token, and would store it again.

use anyhow::{Result, ensure};

use super::kill::{self, Step};
use super::{INSERTS_BEFORE, SPANS_AFTER};
use crate::scene::{Expected, Scene};

/// The member that comes back.
const MEMBER: &str = "gateway-0";

/// Plays it.
///
/// # Errors
/// When the step was not seen, or a process could not be handled.
pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.open_second_shard().await?;
    scene.start_gateway(Some(MEMBER))?;
    scene.start_load();
    scene.wait_inserts(INSERTS_BEFORE).await?;
    let killed = kill::at(scene, Step::AfterServerCommit).await?;
    scene.retire(0)?;
    scene.write_to_both_shards()?;
    scene.start_gateway(Some(MEMBER))?;
    let recovery = scene.recovered(killed).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    let database = scene.database.name().to_owned();
    ensure!(scene.second_shard()?.rows(&database).await? > 0, "nothing goes to the new shard");
    Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
}
