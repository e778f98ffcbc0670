//! Faults of ClickHouse: it dies, is slow, stops answering, or forgets tokens.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::only_copy::MAY_BE_DOUBLED;
use super::{FEW, Family, MANY, ONE, changed, failover, shard_audit, zone_changed};
use crate::front::Way;
use crate::gate::Caught;
use crate::scene::{Expected, PATIENCE, Scene};
use crate::sink_front::{Leg, Passage, Verdict};

/// How long a slow server delays its answers.
const SLOW: Duration = Duration::from_secs(20);

/// How many inserts are slow: both that a gateway has in flight, and two more.
const SLOW_TIMES: u32 = 4;

/// Spans while the server is silent: six seconds of load, longer than the insert's timeout below.
const SPANS_SILENT: u64 = 30_000;

/// Blocks whose tokens the server remembers, in scenarios in which it forgets them soon.
pub(super) const WINDOW_SHORT: u64 = 4;

/// The gateway's series that is 1 while it does not rely on the tokens of such a table.
pub(super) const AT_LEAST_ONCE: &str =
    "sluice_gateway_delivery_guarantee{guarantee=\"at_least_once\",reason=\"window_short\"}";

/// What a gateway logs if a deduplication window is too short to rely on.
const SAYS_SHORT: &str = "reasons=\"window_short\"";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Server {
    /// SIGKILL of ClickHouse when it has half of an INSERT
    #[value(name = "clickhouse-kill-in-insert")]
    KillInInsert,
    /// SIGKILL of ClickHouse when it has stored an INSERT and its answer is on its way
    #[value(name = "clickhouse-kill-after-commit")]
    KillAfterCommit,
    /// four answers are 20 s late, within the insert's timeout
    Slow,
    /// four answers are 20 s late, over the insert's timeout
    SlowOverTimeout,
    /// no traffic to or from ClickHouse for longer than the insert's timeout
    Blackhole,
    /// the table remembers four tokens, and has forgotten that of a stored INSERT whose answer was lost: the gateway asks the server's log
    WindowShort,
    /// the same, but the server has lost its logs: the rows are doubled, and counted as possible duplicates
    WindowShortUntold,
    /// an INSERT is sent again after its token was forgotten, which the gateway cannot know: its rows are doubled
    PastWindow,
    /// SIGKILL when the server has stored an INSERT and its answer is on its way; the member comes back with a second shard
    ShardAdded,
    /// SIGKILL when the server has stored an INSERT; the member comes back with another server: its rows are doubled, and said to be
    #[value(name = "server-changed")]
    Changed,
    /// rows of three messages vanish from one of two shards, others are on both: audit reports them; 300 spans are lost, 100 doubled
    ShardRowsVanish,
    /// one of two endpoints fails during an INSERT, stored or not: the gateway sends it to the other with the same token
    ReplicaFailsOver,
    /// the server comes back without its logs in another time zone, on which the table's partitions depend: rows are doubled, and counted
    ZoneChanged,
}

impl Family for Server {
    fn rounds(self) -> u32 {
        match self {
            Server::KillInInsert | Server::KillAfterCommit => MANY,
            Server::Slow | Server::SlowOverTimeout => ONE,
            _ => FEW,
        }
    }

    fn change(self) -> Value {
        let timeout = match self {
            // Answers are delayed for this long, or until the server has forgotten the token.
            Server::Slow | Server::WindowShortUntold => "30s",
            Server::Blackhole => "3s",
            Server::ZoneChanged => return zone_changed::change(),
            _ => return json!({}),
        };
        json!({"sink": {"clickhouse": {"insert": {"timeout": timeout}}}})
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        match self {
            Server::KillInInsert => kill_at(scene, Leg::Middle).await,
            Server::KillAfterCommit => kill_at(scene, Leg::Answered).await,
            Server::Slow => slow(scene, false).await,
            Server::SlowOverTimeout => slow(scene, true).await,
            Server::Blackhole => blackhole(scene).await,
            Server::WindowShort => window_short(scene, false).await,
            Server::WindowShortUntold => window_short(scene, true).await,
            Server::PastWindow => past_window(scene).await,
            Server::ShardAdded => changed::shard_added(scene).await,
            Server::Changed => changed::server(scene).await,
            Server::ShardRowsVanish => shard_audit::play(scene).await,
            Server::ReplicaFailsOver => failover::play(scene).await,
            Server::ZoneChanged => zone_changed::play(scene).await,
        }
    }
}

async fn kill_at(scene: &mut Scene<'_>, leg: Leg) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    let servers = &scene.stage.servers;
    let caught =
        servers.sink.gate().trap("insert", move |passage| passage.leg == leg).caught(PATIENCE).await?;
    servers.kill_clickhouse().await?;
    caught.decide(Verdict::Reset);
    servers.start_clickhouse().await?;
    scene.recover(Instant::now()).await
}

/// If that leaves doubt, because the gateway does not wait so long, the gateway reports it before it retries the last of them.
async fn slow(scene: &mut Scene<'_>, leaves_doubt: bool) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    let gate = scene.stage.servers.sink.gate();
    let rule = gate.rule(SLOW_TIMES, Verdict::Late(SLOW), |passage| passage.leg == Leg::Answered);
    scene.wait_applied("slow inserts", &rule, SLOW_TIMES).await?;
    drop(rule);
    let since = Instant::now();
    if leaves_doubt {
        scene.wait_doubt(0, true).await?;
    }
    let expected = scene.recover(since).await?;
    if leaves_doubt {
        scene.wait_doubt(0, false).await?;
    }
    Ok(expected)
}

/// Lasts until the gateway has reported the INSERTs in doubt.
async fn blackhole(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    let waited = scene.while_sink_goes(Way::Blackhole, async |scene| {
        scene.wait_acked(SPANS_SILENT).await?;
        scene.wait_doubt(0, true).await
    });
    waited.await?;
    let expected = scene.recover(Instant::now()).await?;
    scene.wait_doubt(0, false).await?;
    Ok(expected)
}

/// The answer to a stored INSERT is lost. The server takes so many others before the next try that it has forgotten the token. The gateway
/// has reported that it does not rely on so short a window, and does not send the INSERT again before it has asked the server. The server then
/// has no row twice, unless it has lost its logs and cannot answer.
async fn window_short(scene: &mut Scene<'_>, loses_logs: bool) -> Result<Expected> {
    scene.remember_tokens(WINDOW_SHORT).await?;
    scene.start_under_load(Some("gateway-0")).await?;
    scene.wait_logged(SAYS_SHORT).await?;
    let caught = stored_insert(scene).await?;
    scene.wait_inserts(2 * WINDOW_SHORT).await?;
    let mut doubled = 0;
    if loses_logs {
        scene.lose_logs().await?;
        doubled = caught.passage.written_rows;
    }
    caught.decide(Verdict::Reset);
    let expected = scene.recover(Instant::now()).await?;
    // It has asked the server about the INSERT, and has got an answer or none.
    scene.ensure_doubles_told(0, MAY_BE_DOUBLED).await?;
    scene.wait_metric(0, AT_LEAST_ONCE, |holds| holds > 0.5).await?;
    Ok(Expected { doubled, ..expected })
}

/// The answer to a stored INSERT is lost, and the server forgets all tokens before the next try. The server must then have its rows twice.
async fn past_window(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    let caught = stored_insert(scene).await?;
    let doubled = caught.passage.written_rows;
    scene.forget_tokens().await?;
    caught.decide(Verdict::Reset);
    Ok(Expected { doubled, ..scene.recover(Instant::now()).await? })
}

pub(super) async fn stored_insert(scene: &Scene<'_>) -> Result<Caught<Passage, Verdict>> {
    scene.stage.servers.sink.gate().trap("stored insert", is_stored).caught(PATIENCE).await
}

/// Whether the server has stored the INSERT, and its answer is on its way.
pub(super) fn is_stored(passage: &Passage) -> bool {
    passage.leg == Leg::Answered && passage.written_rows > 0
}
