//! One round of a scenario, from an empty topic to the counts.

pub mod broker;
mod changed;
mod clock;
pub mod columns;
pub mod damage;
pub mod disk;
mod failover;
mod foreign;
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
mod rule_change;
pub mod server;
pub mod shard;
mod shard_audit;
pub mod spooled;
mod storm;
pub mod trickle;
mod unnamed_cluster;
pub mod volume;
mod zone_changed;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::report::Round;
use super::scenario::{Fault, Scenario};
use super::scene::{Expected, Scene, Stage};

/// Largest number of rounds of a scenario that is slow or does not depend on timing.
const FEW: u32 = 3;

/// Largest number of rounds of a scenario that depends on timing, and restarts a server or a gateway in each.
const MANY: u32 = 20;

/// Largest number of rounds of a scenario that takes a minute.
const ONE: u32 = 1;

/// Scenarios of one kind: an enum with a variant for each. A scenario has the name of its variant on the command line, and the variant's
/// documentation is its description for `--list`.
pub trait Family: ValueEnum + Copy + 'static {
    /// How the names of its scenarios begin.
    const PREFIX: &'static str = "";

    /// Largest number of rounds.
    fn rounds(self) -> u32 {
        FEW
    }

    /// Changes of the usual config of the gateways.
    fn change(self) -> Value {
        json!({})
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected>;
}

/// Plays round `number` (from 0 on), and removes what it made.
pub async fn round(stage: &Stage, scenario: &Scenario, number: u32) -> Result<Round> {
    let mut scene = Scene::open(stage, &scenario.name, number, &scenario.change).await?;
    let played = match play(&mut scene, scenario.fault).await {
        Ok(expected) => scene.settle(&expected).await,
        Err(failure) => Err(failure),
    };
    let closed = scene.close().await;
    let round = played?;
    closed.map(|()| round)
}

async fn play(scene: &mut Scene<'_>, fault: Fault) -> Result<Expected> {
    match fault {
        Fault::Kill(kill) => kill.play(scene).await,
        Fault::Process(process) => process.play(scene).await,
        Fault::Protocol(protocol) => protocol.play(scene).await,
        Fault::Leave(leave) => leave.play(scene).await,
        Fault::Trickle(trickle) => trickle.play(scene).await,
        Fault::Broker(broker) => broker.play(scene).await,
        Fault::Server(server) => server.play(scene).await,
        Fault::Shard(shard) => shard.play(scene).await,
        Fault::Refuse(refuse) => refuse.play(scene).await,
        Fault::Rows(rows) => rows.play(scene).await,
        Fault::Input(input) => input.play(scene).await,
        Fault::Volume(volume) => volume.play(scene).await,
        Fault::Spooled(spooled) => spooled.play(scene).await,
        Fault::Damage(damage) => damage.play(scene).await,
        Fault::Disk(disk) => disk.play(scene).await,
        Fault::Columns(columns) => columns.play(scene).await,
        Fault::Outage(outage) => outage.play(scene).await,
        Fault::OnlyCopy(only_copy) => only_copy.play(scene).await,
        Fault::Otlp(otlp) => otlp.play(scene).await,
    }
}
