//! Faults of ClickHouse: it dies, is slow, stops answering, or forgets tokens.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::only_copy::MAY_BE_DOUBLED;
use crate::gate::Caught;
use crate::kafka_front::Way;
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

/// The faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// SIGKILL when it has half of an INSERT, and a restart.
    KillInInsert,
    /// SIGKILL when it has stored an INSERT and its answer is on its way.
    KillAfterCommit,
    /// Answers are 20 s late; the gateway waits longer than that.
    Slow,
    /// The gateway waits for less time and sends again.
    SlowOverTimeout,
    /// No bytes pass, for longer than the gateway waits for an insert.
    Silent,
    /// The server remembers few tokens, and forgets that of an INSERT before the gateway would send it again.
    WindowShort,
    /// As `WindowShort`, and the server has also lost the logs that show that it has stored the INSERT.
    WindowShortUntold,
    /// The gateway sends an INSERT again after the server has forgotten its token, which the gateway cannot know.
    PastWindow,
}

impl Server {
    /// Changes of the usual config of the gateways.
    pub fn change(self) -> Value {
        let timeout = match self {
            // Answers are delayed for this long, or until the server has forgotten the token.
            Server::Slow | Server::WindowShortUntold => "30s",
            Server::Silent => "3s",
            _ => return json!({}),
        };
        json!({"sink": {"clickhouse": {"insert": {"timeout": timeout}}}})
    }

    /// Whether INSERTs stay without an answer for longer than the gateway waits for one.
    fn leaves_doubt(self) -> bool {
        matches!(self, Server::SlowOverTimeout | Server::Silent)
    }

    /// Whether the server remembers few tokens.
    fn forgets_soon(self) -> bool {
        matches!(self, Server::WindowShort | Server::WindowShortUntold)
    }

    /// Plays it.
    ///
    /// # Errors
    /// When what is waited for does not come, or the server could not be handled.
    pub async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        if self.forgets_soon() {
            scene.remember_tokens(WINDOW_SHORT).await?;
        }
        scene.start_under_load(Some("gateway-0")).await?;
        let mut doubled = 0;
        let since = match self {
            Server::KillInInsert => kill_at(scene, Leg::Middle).await?,
            Server::KillAfterCommit => kill_at(scene, Leg::Answered).await?,
            Server::Slow | Server::SlowOverTimeout => slow(scene, self.leaves_doubt()).await?,
            Server::Silent => silent(scene).await?,
            Server::WindowShort | Server::WindowShortUntold => {
                doubled = window_short(scene, self == Server::WindowShortUntold).await?;
                Instant::now()
            }
            Server::PastWindow => {
                doubled = past_window(scene).await?;
                Instant::now()
            }
        };
        let expected = scene.recover(since).await?;
        if self.leaves_doubt() {
            scene.wait_doubt(0, false).await?;
        }
        if self.forgets_soon() {
            // It has asked the server about the INSERT, and has got an answer or none.
            scene.ensure_doubles_told(0, MAY_BE_DOUBLED).await?;
            scene.wait_metric(0, AT_LEAST_ONCE, |holds| holds > 0.5).await?;
        }
        Ok(Expected { doubled, ..expected })
    }
}

async fn kill_at(scene: &Scene<'_>, leg: Leg) -> Result<Instant> {
    let servers = &scene.stage.servers;
    let caught =
        servers.sink.gate().trap("insert", move |passage| passage.leg == leg).caught(PATIENCE).await?;
    servers.kill_clickhouse().await?;
    caught.decide(Verdict::Reset);
    servers.start_clickhouse().await?;
    Ok(Instant::now())
}

/// If that leaves doubt, the gateway reports it before it retries the last of them.
async fn slow(scene: &mut Scene<'_>, leaves_doubt: bool) -> Result<Instant> {
    let gate = scene.stage.servers.sink.gate();
    let rule = gate.rule(SLOW_TIMES, Verdict::Late(SLOW), |passage| passage.leg == Leg::Answered);
    scene.wait_applied("slow inserts", &rule, SLOW_TIMES).await?;
    let since = Instant::now();
    if leaves_doubt {
        scene.wait_doubt(0, true).await?;
    }
    Ok(since)
}

/// Lasts until the gateway has reported the INSERTs in doubt.
async fn silent(scene: &mut Scene<'_>) -> Result<Instant> {
    let waited = scene.while_sink_goes(Way::Blackhole, async |scene| {
        scene.wait_acked(SPANS_SILENT).await?;
        scene.wait_doubt(0, true).await
    });
    waited.await.map(|()| Instant::now())
}

/// The answer to a stored INSERT is lost. The server takes so many others before the next try that it has forgotten the token. The gateway
/// has reported that it does not rely on so short a window, and does not send the INSERT again before it has asked the server. Returns the
/// rows that the server must then have twice: none, unless it has lost its logs and cannot answer.
async fn window_short(scene: &mut Scene<'_>, loses_logs: bool) -> Result<u64> {
    scene.wait_logged(SAYS_SHORT).await?;
    let caught = stored_insert(scene).await?;
    scene.wait_inserts(2 * WINDOW_SHORT).await?;
    let mut doubled = 0;
    if loses_logs {
        scene.lose_logs().await?;
        doubled = caught.passage.written_rows;
    }
    caught.decide(Verdict::Reset);
    Ok(doubled)
}

/// The answer to a stored INSERT is lost, and the server forgets all tokens before the next try. Returns the rows that it must then have
/// twice.
async fn past_window(scene: &mut Scene<'_>) -> Result<u64> {
    let caught = stored_insert(scene).await?;
    let rows = caught.passage.written_rows;
    scene.forget_tokens().await?;
    caught.decide(Verdict::Reset);
    Ok(rows)
}

pub(super) async fn stored_insert(scene: &Scene<'_>) -> Result<Caught<Passage, Verdict>> {
    scene.stage.servers.sink.gate().trap("stored insert", is_stored).caught(PATIENCE).await
}

/// Whether the server has stored the INSERT, and its answer is on its way.
pub(super) fn is_stored(passage: &Passage) -> bool {
    passage.leg == Leg::Answered && passage.written_rows > 0
}
