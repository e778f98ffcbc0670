//! Faults of a gateway with `source.otlp`: clients send to it, and only its volume has what it has accepted.
//!
//! ```text
//! clients -> gateway -> log on the volume -> gateway -> front -> ClickHouse
//!    ^          ^              ^                          ^
//!    '----------'--- fault ----'--------------------------'
//! ```
//!
//! In each round, spans of requests that were answered with success must be in the table once, and those of all other requests at most
//! once. At the end, the gateway is drained and must report that nothing is left.
//!
//! Power loss is not tested here: `gateway/tests/it/otlp_log.rs` and `gateway/spool/tests/it/log_crash.rs` test it on a model of a disk, at
//! each call.

mod damage;
mod disk;
mod full;
mod half;
mod kill;
mod outage;
mod two;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::disk::start_on_disk;
use super::server::Server;
use super::{FEW, Family, ONE, clock};
use crate::failing_disk::FailingDisk;
use crate::scene::{Expected, PATIENCE, Scene};
use e2e_fixtures::cluster::Seen;
use e2e_fixtures::gateway::ANY_PORT;
use e2e_fixtures::pipeline::merged;
use full::Room;

/// The memory limit that `gateway/SOURCE_OTLP.md` names for two workers.
const MEMORY: &str = "256MiB";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Otlp {
    /// source.otlp; SIGKILL eight times, at any moment
    Kill,
    /// SIGKILL before a record is written, before and after its sync, and the same of a committed offset
    KillInLog,
    /// SIGKILL before an INSERT, when the server has half of it, and when its answer is on its way
    KillInInsert,
    /// SIGKILL before a sync, and the last record is cut, has zeros, or is followed by garbage or by half a record
    Torn,
    /// SIGKILL, and bits are flipped in records that are inserted, and in two that are not: their requests are lost, and counted
    Damaged,
    /// the logs have their maximum size while ClickHouse is away: 503 with Retry-After; SIGKILL meanwhile in every other round
    Full,
    /// the same when the volume's file system is full
    FullDevice,
    /// EIO for syncs and writes of the volume: the gateway exits, and what was not synced had no success
    Eio,
    /// EIO for reads of a log: the gateway says so and refuses requests until a minute later the log can be read
    EioOfReads,
    /// a sync takes longer than 8 s: 503 with Retry-After, and the requests are stored once at the most
    SlowDisk,
    /// clients stop in headers and bodies, reset connections, or go before their answer; other clients are served
    Half,
    /// the wall clock jumps by an hour, ahead and back, also across a SIGKILL
    Clock,
    /// a second gateway is started on the volume of the first: it says why it ends, and the first goes on
    Two,
    /// ClickHouse is away, refuses six inserts, and answers to six stored inserts are lost
    Outage,
    /// no traffic to or from ClickHouse for longer than the insert's timeout
    Blackhole,
    /// SIGKILL of ClickHouse when it has stored an INSERT and its answer is on its way
    ClickhouseKill,
}

impl Family for Otlp {
    const PREFIX: &'static str = "otlp-";

    fn rounds(self) -> u32 {
        match self {
            Otlp::Kill | Otlp::KillInLog | Otlp::KillInInsert | Otlp::Torn => u32::MAX,
            Otlp::EioOfReads | Otlp::SlowDisk | Otlp::Two => ONE,
            _ => FEW,
        }
    }

    fn change(self) -> Value {
        let usual = json!({
            "source": {"kafka": null, "otlp": {"listen": {"http": ANY_PORT}, "deadLetterBytesMax": "2MiB"}},
            "queue": {"mode": "Spill", "maxBytes": "1GiB"},
            "memory": {"limit": MEMORY},
        });
        match self {
            // All requests share one log, so that its end is known.
            Otlp::Torn | Otlp::Damaged | Otlp::Eio | Otlp::EioOfReads => {
                merged(&usual, &json!({"source": {"otlp": {"logs": 1}}}))
            }
            Otlp::Full => merged(&usual, &Room::Bytes.change()),
            Otlp::FullDevice => merged(&usual, &Room::Device.change()),
            Otlp::Blackhole => merged(&usual, &Server::Blackhole.change()),
            _ => usual,
        }
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        match self {
            Otlp::Kill => kill::at_any_moment(scene).await,
            Otlp::KillInLog => kill::in_log(scene).await,
            Otlp::KillInInsert => kill::in_insert(scene).await,
            Otlp::Torn => damage::torn(scene).await,
            Otlp::Damaged => damage::flipped(scene).await,
            Otlp::Full => Room::Bytes.play(scene).await,
            Otlp::FullDevice => Room::Device.play(scene).await,
            Otlp::Eio => disk::fails(scene).await,
            Otlp::EioOfReads => disk::fails_reads(scene).await,
            Otlp::SlowDisk => disk::slow(scene).await,
            Otlp::Half => half::play(scene).await,
            Otlp::Clock => clock::play(scene).await,
            Otlp::Two => two::play(scene).await,
            Otlp::Outage => outage::play(scene).await,
            Otlp::Blackhole => Server::Blackhole.play(scene).await,
            Otlp::ClickhouseKill => Server::KillAfterCommit.play(scene).await,
        }
    }
}

/// What a gateway logs once its ports of OTLP are open.
const ACCEPTS: &str = "accepting OTLP requests";

/// Starts a gateway; returns once clients send to it and it inserts.
async fn begin(scene: &mut Scene<'_>) -> Result<()> {
    scene.start_gateway(Some("gateway-0"))?;
    begin_load(scene).await
}

/// Clients send from when the gateway accepts requests, so that each request has an answer.
async fn begin_load(scene: &mut Scene<'_>) -> Result<()> {
    scene.wait_logged(ACCEPTS).await?;
    scene.begin_load().await
}

/// As [`begin`], with a disk that can fail.
async fn begin_on_disk(scene: &mut Scene<'_>) -> Result<FailingDisk> {
    let disk = start_on_disk(scene)?;
    begin_load(scene).await?;
    Ok(disk)
}

/// Waits until gateways have asked clients to retry so often.
async fn wait_told_again(scene: &mut Scene<'_>, times: u64) -> Result<()> {
    let wanted = scene.clients()?.told_again() + times;
    scene
        .wait("clients that are asked to retry", PATIENCE, async |scene| {
            let told = scene.clients()?.told_again();
            Ok(Seen::when(told >= wanted, || format!("{told} of {wanted} requests")))
        })
        .await
}

/// Checks that every answer to the clients was a success or a request to retry.
fn ensure_answered(scene: &Scene<'_>) -> Result<()> {
    let broken = scene.clients()?.broken();
    ensure!(broken == 0, "{broken} requests had no answer");
    Ok(())
}
