//! The wall clock of a gateway jumps by an hour, ahead and back, while it works, and between its death and its next start.
//!
//! A plan has one time of day: the moment before which none of its ranges was sent. The clock of the gateway that reads it may be off by
//! two hours.

use std::time::Instant;

use anyhow::Result;

use crate::scene::{Expected, INSERTS_BEFORE, SPANS_AFTER, Scene};
use crate::wall_clock::WallClock;

/// Seconds that it jumps by, in turn.
const JUMPS: [i64; 2] = [3_600, -3_600];

pub async fn play(scene: &mut Scene<'_>) -> Result<Expected> {
    let clock = WallClock::make(&scene.stage.folder, &format!("jump-{}", scene.round))?;
    scene.start_gateway_with(Some("gateway-0"), clock.environment())?;
    scene.begin_load().await?;
    for seconds in JUMPS {
        clock.set(seconds)?;
        scene.wait_inserts(INSERTS_BEFORE).await?;
    }
    let mut longest = 0.0_f64;
    for seconds in JUMPS {
        clock.set(seconds)?;
        scene.wait_inserts(INSERTS_BEFORE).await?;
        scene.gateway(0).kill().await?;
        let killed = Instant::now();
        clock.set(-seconds)?;
        scene.start_again(0, Some("gateway-0"))?;
        longest = longest.max(scene.recovered(killed).await?);
    }
    scene.wait_acked(SPANS_AFTER).await?;
    Ok(Expected { recovery_s: Some(longest), ..Expected::default() })
}
