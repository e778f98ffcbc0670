//! One round of a scenario, from an empty topic to the counts.

pub mod broker;
pub mod clock;
pub mod columns;
pub mod damage;
pub mod disk;
pub mod failover;
pub mod foreign;
pub mod format_change;
pub mod input;
pub mod kill;
pub mod leave;
pub mod only_copy;
pub mod otlp;
pub mod outage;
pub mod process;
pub mod protocol;
pub mod refuse;
pub mod rows;
pub mod rule_change;
pub mod server;
mod server_changed;
pub mod shard;
mod shard_added;
mod shard_audit;
pub mod spooled;
pub mod storm;
pub mod trickle;
mod unnamed_cluster;
pub mod volume;
mod zone_changed;

use anyhow::Result;
use serde_json::{Value, json};

use super::report::Round;
use super::scenario::{Fault, Scenario};
use super::scene::{Expected, Scene, Stage};

/// Plays round `number` (from 0 on), and removes what it made.
///
/// # Errors
/// The round could not be played to its end.
pub async fn round(stage: &Stage, scenario: &Scenario, number: u32) -> Result<Round> {
    let mut scene = Scene::open(stage, scenario.name, number, &change(scenario.fault)).await?;
    let played = match play(&mut scene, scenario.fault).await {
        Ok(expected) => scene.settle(&expected).await,
        Err(failure) => Err(failure),
    };
    let closed = scene.close().await;
    let round = played?;
    closed.map(|()| round)
}

/// The changes to a gateway's usual config.
fn change(fault: Fault) -> Value {
    match fault {
        Fault::Process(process) => process.change(),
        Fault::Protocol(_) => protocol::Protocol::change(),
        Fault::Server(server) => server.change(),
        Fault::Rows(rows) => rows.change(),
        Fault::Input(input) => input.change(),
        Fault::Leave(leave) => leave.change(),
        Fault::Volume(volume) => volume.change(),
        Fault::Spooled(spooled) => spooled.change(),
        Fault::Damage(damage) => damage.change(),
        Fault::LongOutage => outage::change(),
        Fault::OnlyCopy(only_copy) => only_copy.change(),
        Fault::Otlp(otlp) => otlp.change(),
        Fault::Trickle(_) => trickle::Trickle::change(),
        Fault::ShardLost(lost) => lost.change(),
        Fault::Disk(disk) => disk.change(),
        Fault::Columns(columns) => columns.change(),
        Fault::RuleChange(change) => change.change(0),
        Fault::ZoneChanged => zone_changed::change(),
        Fault::Kill(_)
        | Fault::ClockJump
        | Fault::FormatChange
        | Fault::ForeignMetadata
        | Fault::Broker(_)
        | Fault::Refuse(_)
        | Fault::Storm(_)
        | Fault::ShardAdded
        | Fault::ServerChanged
        | Fault::ShardAudit
        | Fault::Failover
        | Fault::UnnamedCluster => json!({}),
    }
}

async fn play(scene: &mut Scene<'_>, fault: Fault) -> Result<Expected> {
    match fault {
        Fault::Kill(step) => kill::play(scene, step).await,
        Fault::Process(process) => process.play(scene).await,
        Fault::Protocol(protocol) => protocol.play(scene).await,
        Fault::ClockJump => clock::play(scene).await,
        Fault::RuleChange(change) => change.play(scene).await,
        Fault::FormatChange => format_change::play(scene).await,
        Fault::ForeignMetadata => foreign::play(scene).await,
        Fault::Broker(broker) => broker.play(scene).await,
        Fault::Server(server) => server.play(scene).await,
        Fault::Refuse(refusal) => refuse::play(scene, refusal).await,
        Fault::Rows(rows) => rows.play(scene).await,
        Fault::Input(input) => input.play(scene).await,
        Fault::Storm(storm) => storm.play(scene).await,
        Fault::Leave(leave) => leave.play(scene).await,
        Fault::ShardLost(lost) => shard::play(scene, lost).await,
        Fault::ShardAdded => shard_added::play(scene).await,
        Fault::ServerChanged => server_changed::play(scene).await,
        Fault::ShardAudit => shard_audit::play(scene).await,
        Fault::Failover => failover::play(scene).await,
        Fault::UnnamedCluster => unnamed_cluster::play(scene).await,
        Fault::ZoneChanged => zone_changed::play(scene).await,
        Fault::Disk(disk) => disk.play(scene).await,
        Fault::Columns(columns) => columns.play(scene).await,
        Fault::Volume(volume) => volume.play(scene).await,
        Fault::Spooled(spooled) => spooled.play(scene).await,
        Fault::Damage(damage) => damage.play(scene).await,
        Fault::LongOutage => outage::play(scene).await,
        Fault::OnlyCopy(only_copy) => only_copy.play(scene).await,
        Fault::Otlp(otlp) => otlp.play(scene).await,
        Fault::Trickle(trickle) => trickle.play(scene).await,
    }
}
