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

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::clock;
use super::server::Server;
use crate::failing_disk::FailingDisk;
use crate::scene::{Expected, PATIENCE, Scene};
use e2e_fixtures::cluster::Seen;
use e2e_fixtures::gateway::ANY_PORT;
use e2e_fixtures::pipeline::merged;
use full::Room;

/// The memory limit that `gateway/SOURCE_OTLP.md` names for two workers.
const MEMORY: &str = "256MiB";

/// The faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otlp {
    /// SIGKILL at any moment, many times.
    Kill,
    /// SIGKILL at each step from a request to its answer, and of a commit.
    KillInLog,
    /// SIGKILL at each step of an INSERT.
    KillInInsert,
    /// SIGKILL, and the end of the log is incomplete.
    Torn,
    /// SIGKILL, and bits of records are flipped.
    Damaged,
    /// The volume is full.
    Full(Room),
    /// Writes and syncs of the disk fail.
    Eio,
    /// Reads of the disk fail.
    EioOfReads,
    /// A sync takes longer than a request may wait.
    SlowDisk,
    /// Clients stop in the middle of a request.
    Half,
    /// The wall clock jumps.
    Clock,
    /// A second gateway uses the same volume.
    Two,
    /// ClickHouse is unreachable, then refuses, then its answers are lost.
    Outage,
    /// ClickHouse does not answer.
    Blackhole,
    /// ClickHouse is killed.
    ServerKilled,
}

impl Otlp {
    /// All of them, with a scenario's name, rounds at the most and words.
    pub const ALL: [(Otlp, &'static str, u32, &'static str); 16] = [
        (Otlp::Kill, "otlp-kill", u32::MAX, "source.otlp; SIGKILL eight times, at any moment"),
        (
            Otlp::KillInLog,
            "otlp-kill-in-log",
            u32::MAX,
            "SIGKILL before a record is written, before and after its sync, and the same of a committed offset",
        ),
        (
            Otlp::KillInInsert,
            "otlp-kill-in-insert",
            u32::MAX,
            "SIGKILL before an INSERT, when the server has half of it, and when its answer is on its way",
        ),
        (
            Otlp::Torn,
            "otlp-torn",
            u32::MAX,
            "SIGKILL before a sync, and the last record is cut, has zeros, or is followed by garbage or by half a record",
        ),
        (
            Otlp::Damaged,
            "otlp-damaged",
            3,
            "SIGKILL, and bits are flipped in records that are inserted, and in two that are not: their requests are lost, and counted",
        ),
        (
            Otlp::Full(Room::Bytes),
            "otlp-full",
            3,
            "the logs have their maximum size while ClickHouse is away: 503 with Retry-After; SIGKILL meanwhile in every other round",
        ),
        (Otlp::Full(Room::Device), "otlp-full-device", 3, "the same when the volume's file system is full"),
        (
            Otlp::Eio,
            "otlp-eio",
            3,
            "EIO for syncs and writes of the volume: the gateway exits, and what was not synced had no success",
        ),
        (
            Otlp::EioOfReads,
            "otlp-eio-of-reads",
            1,
            "EIO for reads of a log: the gateway says so and refuses requests until a minute later the log can be read",
        ),
        (
            Otlp::SlowDisk,
            "otlp-slow-disk",
            1,
            "a sync takes longer than 8 s: 503 with Retry-After, and the requests are stored once at the most",
        ),
        (
            Otlp::Half,
            "otlp-half",
            3,
            "clients stop in headers and bodies, reset connections, or go before their answer; other clients are served",
        ),
        (
            Otlp::Clock,
            "otlp-clock",
            3,
            "the wall clock jumps by an hour, ahead and back, also across a SIGKILL",
        ),
        (
            Otlp::Two,
            "otlp-two",
            1,
            "a second gateway is started on the volume of the first: it says why it ends, and the first goes on",
        ),
        (
            Otlp::Outage,
            "otlp-outage",
            3,
            "ClickHouse is away, refuses six inserts, and answers to six stored inserts are lost",
        ),
        (
            Otlp::Blackhole,
            "otlp-blackhole",
            3,
            "no traffic to or from ClickHouse for longer than the insert's timeout",
        ),
        (
            Otlp::ServerKilled,
            "otlp-clickhouse-kill",
            3,
            "SIGKILL of ClickHouse when it has stored an INSERT and its answer is on its way",
        ),
    ];

    /// Changes of the usual config of the gateways.
    pub fn change(self) -> Value {
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
            Otlp::Full(room) => merged(&usual, &room.change()),
            Otlp::Blackhole => merged(&usual, &Server::Silent.change()),
            _ => usual,
        }
    }

    /// Plays it.
    ///
    /// # Errors
    /// When what is waited for does not come, or a process could not be handled.
    pub async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        match self {
            Otlp::Kill => kill::at_any_moment(scene).await,
            Otlp::KillInLog => kill::in_log(scene).await,
            Otlp::KillInInsert => kill::in_insert(scene).await,
            Otlp::Torn => damage::torn(scene).await,
            Otlp::Damaged => damage::flipped(scene).await,
            Otlp::Full(room) => room.play(scene).await,
            Otlp::Eio => disk::fails(scene).await,
            Otlp::EioOfReads => disk::fails_reads(scene).await,
            Otlp::SlowDisk => disk::slow(scene).await,
            Otlp::Half => half::play(scene).await,
            Otlp::Clock => clock::play(scene).await,
            Otlp::Two => two::play(scene).await,
            Otlp::Outage => outage::play(scene).await,
            Otlp::Blackhole => Server::Silent.play(scene).await,
            Otlp::ServerKilled => Server::KillAfterCommit.play(scene).await,
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
    let queue = scene.volume(0);
    std::fs::create_dir_all(&queue).with_context(|| format!("create {}", queue.display()))?;
    let disk = FailingDisk::make(&scene.stage.folder, scene.topic.name(), &queue)?;
    scene.start_gateway_with(Some("gateway-0"), disk.environment())?;
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
