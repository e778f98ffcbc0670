//! The volume is full while ClickHouse is unreachable: the gateway asks clients to retry, stays ready, and loses nothing.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{begin, ensure_answered, wait_told_again};
use crate::front::Way;
use crate::otlp_clients::CLIENTS;
use crate::scene::{Expected, PATIENCE, SPANS_AFTER, Scene};
use e2e_fixtures::cluster::Seen;

/// Size of the volume, KiB: some 600 requests, six seconds of load, beside the dead letters, and several times as many, as they are compressed.
/// Offsets are committed once a second, so committed data never takes much of it.
const VOLUME_KIB: u32 = 32 << 10;

/// Such answers to wait for: each client has some.
const TOLD_AGAIN: u64 = 8 * CLIENTS as u64;

/// The gateway's metric of requests that it refused for this reason.
const REFUSED_FULL: &str = "sluice_gateway_otlp_requests_refused_total{reason=\"full\"}";

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The logs reach their limit: 95 % of the volume, minus the dead letters.
    Bytes,
    /// The file system is full: the limit of the logs is larger than it.
    Device,
}

impl Room {
    /// Changes of the config of the gateways.
    pub(super) fn change(self) -> Value {
        match self {
            Room::Bytes => json!({"queue": {"maxBytes": null}}),
            Room::Device => json!({"queue": {"maxBytes": "40MiB"}}),
        }
    }

    pub(super) async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.mount_volume(0, VOLUME_KIB)?;
        begin(scene).await?;
        scene.while_sink_goes(Way::Refused, async |scene| fill(scene).await).await?;
        let recovery = scene.recovered(Instant::now()).await?;
        wait_all_accepted(scene).await?;
        scene.wait_acked(SPANS_AFTER).await?;
        Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
    }
}

/// Waits until there is no room for any client.
async fn fill(scene: &mut Scene<'_>) -> Result<()> {
    wait_told_again(scene, TOLD_AGAIN).await?;
    ensure_answered(scene)?;
    scene.wait_metric(0, REFUSED_FULL, |requests| requests > 0.0).await?;
    let unready = scene.gateway(0).admin().unready().await?;
    ensure!(unready.is_none(), "it is not ready though it answers clients: {unready:?}");
    if scene.round % 2 == 1 {
        scene.restart(0).await?;
    }
    Ok(())
}

/// Waits until each client has had another success.
async fn wait_all_accepted(scene: &mut Scene<'_>) -> Result<()> {
    let before = scene.clients()?.accepted();
    scene
        .wait("a success of each client", PATIENCE, async |scene| {
            let now = scene.clients()?.accepted();
            let is_over = now.iter().zip(before).all(|(now, before)| *now > before);
            Ok(Seen::when(is_over, || format!("{before:?}, then {now:?}")))
        })
        .await
}
