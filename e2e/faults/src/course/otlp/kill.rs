//! A gateway with `source.otlp` is killed and started again, at any moment or at a step.
//!
//! ```text
//! request -> write -> sync -> answer      plan or offset -> write -> sync      INSERT head, half, whole -> server
//!           ^       ^       ^                              ^       ^    ^        ^     ^           ^ after
//! ```
//!
//! The disk sees the steps of the log and holds the call of one; the front sees those of an INSERT.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum as _;

use super::{begin, begin_on_disk};
use crate::course::kill::{self, Step};
use crate::failing_disk::{FailingDisk, Hold};
use crate::scene::{Expected, SPANS_AFTER, Scene};
use e2e_fixtures::spans::Dice;

/// How often the gateway is killed at random moments.
const KILLS: usize = 8;

/// Longest life of a gateway that is killed at a random moment. By then, it may still be reading the log of the last one, or already
/// insert.
const LIFE_MS_MAX: u64 = 1_500;

/// How long a step may take to be seen: commits are a second apart.
pub(super) const STEP_PATIENCE: Duration = Duration::from_secs(30);

/// Kills the gateway at random moments.
pub(super) async fn at_any_moment(scene: &mut Scene<'_>) -> Result<Expected> {
    begin(scene).await?;
    let mut dice = Dice::new(scene.producer.run().id, 0);
    let mut killed = Instant::now();
    for _ in 0..KILLS {
        // Waits for nothing but this time: the moment is random.
        tokio::time::sleep(Duration::from_millis(dice.below(LIFE_MS_MAX))).await;
        scene.gateway(0).kill().await?;
        killed = Instant::now();
        scene.start_again(0, Some("gateway-0"))?;
    }
    scene.recover(killed).await
}

/// Kills the gateway at each call of a log.
pub(super) async fn in_log(scene: &mut Scene<'_>) -> Result<Expected> {
    let disk = begin_on_disk(scene).await?;
    let mut longest = 0.0_f64;
    for hold in Hold::value_variants() {
        let killed = at(scene, &disk, *hold).await?;
        scene.start_again(0, Some("gateway-0"))?;
        longest = longest.max(scene.recovered(killed).await?);
    }
    scene.wait_acked(SPANS_AFTER).await?;
    Ok(Expected { recovery_s: Some(longest), ..Expected::default() })
}

/// Kills the gateway in such a call, and returns when.
pub(super) async fn at(scene: &mut Scene<'_>, disk: &FailingDisk, hold: Hold) -> Result<Instant> {
    disk.hold(Some(hold))?;
    let caught = disk.caught(STEP_PATIENCE).await;
    let killed = match caught {
        Ok(()) => scene.gateway(0).kill().await,
        Err(unseen) => Err(unseen.context(format!("{hold:?}"))),
    };
    disk.hold(None)?;
    killed.map(|()| Instant::now())
}

/// Kills the gateway at each step of an INSERT.
pub(super) async fn in_insert(scene: &mut Scene<'_>) -> Result<Expected> {
    begin(scene).await?;
    let mut longest = 0.0_f64;
    for step in [Step::BeforeSend, Step::InTheMiddle, Step::AfterServerCommit] {
        let killed = kill::at(scene, step).await?;
        scene.start_again(0, Some("gateway-0"))?;
        longest = longest.max(scene.recovered(killed).await?);
    }
    scene.wait_acked(SPANS_AFTER).await?;
    Ok(Expected { recovery_s: Some(longest), ..Expected::default() })
}
