//! Gateways leave, by a drain request or SIGTERM, while sink and brokers work, are slow, or are unreachable.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::Family;
use super::only_copy::PARTITIONS_OWNED;
use super::spooled::is_same;
use super::volume::{self, LEAVE_SOON, ensure_on_volume, read_all};
use crate::admin::Admin;
use crate::front::Way;
use crate::gate::Rule;
use crate::scene::{Expected, INSERTS_BEFORE, PARTITIONS, PATIENCE, Scene};
use crate::sink_front::{Leg, Passage, Verdict};
use e2e_fixtures::cluster::Seen;
use e2e_fixtures::pipeline::merged;
use e2e_stack::process::Signal;

/// `shutdown.deadline`: how long a gateway gives its blocks in flight when it leaves.
const SHUTDOWN_DEADLINE: &str = "6s";

/// The same while the server is slow. It has delayed so many blocks by then that they take half of this time on a busy machine.
const SHUTDOWN_DEADLINE_SLOW: &str = "30s";

/// How soon a gateway that cannot insert anything must have ended: its deadline, plus less than a grace period leaves after it.
pub(super) const END_MAX: Duration = Duration::from_secs(10);

/// The same for a gateway with the longer deadline, within which it inserts everything.
const END_SLOW_MAX: Duration = Duration::from_secs(30);

/// The same for a gateway that moves its remaining blocks to its volume 3 s before its deadline.
const END_VOLUME_MAX: Duration = Duration::from_secs(12);

/// The exit code of a gateway if something was not inserted or not committed by its deadline.
pub(super) const NOT_LEFT: i32 = 1;

/// How late a slow server's answers are.
const SLOW: Duration = Duration::from_millis(400);

/// How often a gateway gets drain and resume requests without a wait for their effect.
const CHANGES: u32 = 6;

/// Spans while the sink or the broker is unreachable.
const SPANS_GONE: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Leave {
    /// one of two static members gets a drain and a resume request, also in the middle of the drain
    DrainAndResume,
    /// one of two gets a drain request while connections to the sink are refused
    DrainDeadSink,
    /// SIGTERM while answers are 400 ms late: everything that was read is inserted by the deadline
    TermSlowSink,
    /// the same with a queue volume and a short deadline: what is not inserted by then is on the volume
    TermSlowSinkVolume,
    /// SIGTERM while there is no traffic to or from the broker
    TermSilentBroker,
}

impl Family for Leave {
    fn change(self) -> Value {
        let deadline = match self {
            Leave::TermSlowSink => SHUTDOWN_DEADLINE_SLOW,
            Leave::TermSlowSinkVolume => LEAVE_SOON,
            Leave::DrainAndResume | Leave::DrainDeadSink | Leave::TermSilentBroker => SHUTDOWN_DEADLINE,
        };
        let own = json!({"shutdown": {"deadline": deadline}});
        if self == Leave::TermSlowSinkVolume { merged(&volume::change(false), &own) } else { own }
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.start_gateway(Some("gateway-0"))?;
        if matches!(self, Leave::DrainAndResume | Leave::DrainDeadSink) {
            scene.start_gateway(Some("gateway-1"))?;
        }
        scene.begin_load().await?;
        let since = match self {
            Leave::DrainAndResume => drain(scene).await?,
            Leave::DrainDeadSink => drain_dead_sink(scene).await?,
            Leave::TermSlowSink => term_slow_sink(scene).await?,
            Leave::TermSlowSinkVolume => term_slow_sink_volume(scene).await?,
            Leave::TermSilentBroker => term_silent_broker(scene).await?,
        };
        scene.recover(since).await
    }
}

async fn drain(scene: &mut Scene<'_>) -> Result<Instant> {
    let leaving = scene.gateway(0).admin();
    wait_share(scene, 0, f64::from(PARTITIONS) / 2.0).await?;
    let told = leaving.drain().await?;
    ensure!(told.uncommitted > 0, "it has said that it was empty before it had left: {told:?}");
    wait_empty(scene, &leaving).await?;
    ensure!(leaving.unready().await?.is_some(), "it says that it is ready, and takes no part");
    // Its process is alive, and its session could be too. If another gateway owns the partitions, it has left the group.
    wait_share(scene, 1, f64::from(PARTITIONS)).await?;
    scene.wait_inserts(INSERTS_BEFORE).await?;
    leaving.resume().await?;
    wait_share(scene, 0, f64::from(PARTITIONS) / 2.0).await?;
    ensure!(leaving.unready().await?.is_none(), "it takes part and says that it is not ready");
    for _ in 0..CHANGES {
        leaving.drain().await?;
        scene.wait_inserts(1).await?;
        leaving.resume().await?;
        scene.wait_inserts(1).await?;
    }
    wait_share(scene, 0, f64::from(PARTITIONS) / 2.0).await?;
    Ok(Instant::now())
}

/// Its blocks cannot be inserted. After its deadline it drops them, and the other gateway inserts their rows.
async fn drain_dead_sink(scene: &mut Scene<'_>) -> Result<Instant> {
    let leaving = scene.gateway(0).admin();
    wait_share(scene, 0, f64::from(PARTITIONS) / 2.0).await?;
    let gone = scene.while_sink_goes(Way::Refused, async |scene| {
        scene.wait_acked(SPANS_GONE).await?;
        let told = leaving.drain().await?;
        ensure!(told.blocks > 0, "it holds no blocks while the sink is away: {told:?}");
        wait_empty(scene, &leaving).await?;
        wait_share(scene, 1, f64::from(PARTITIONS)).await
    });
    gone.await.map(|()| Instant::now())
}

async fn term_slow_sink(scene: &mut Scene<'_>) -> Result<Instant> {
    let rule = slow(scene).await?;
    scene.gateway(0).signal(Signal::TERM)?;
    let code = scene.gateway(0).end_within(END_SLOW_MAX).await?;
    ensure!(code == 0, "it ended with code {code} though the sink answered within its time");
    drop(rule);
    scene.start_again(0, Some("gateway-0"))?;
    Ok(Instant::now())
}

/// From now on, answers are late. Returns after the first late answer.
async fn slow<'a>(scene: &mut Scene<'a>) -> Result<Rule<'a, Passage, Verdict>> {
    let gate = scene.stage.servers.sink.gate();
    let rule = gate.rule(u32::MAX, Verdict::Late(SLOW), |passage| passage.leg == Leg::Answered);
    scene.wait_applied("a slow insert", &rule, 1).await?;
    Ok(rule)
}

/// More spans come at once than can be inserted by the deadline. When the gateway has ended, each of its blocks is in the table or on the
/// volume.
async fn term_slow_sink_volume(scene: &mut Scene<'_>) -> Result<Instant> {
    let rule = slow(scene).await?;
    // Spans that are produced from here on continue the numbers of the load.
    scene.stop_load().await?;
    let spans = read_all(scene).await?.acked.count();
    scene.gateway(0).signal(Signal::TERM)?;
    let code = scene.gateway(0).end_within(END_VOLUME_MAX).await?;
    ensure!(code == 0, "it ended with code {code}, and should have left on its volume what did not go in");
    drop(rule);
    let (inserted, _) = ensure_on_volume(scene).await?;
    ensure!(inserted < spans, "all {spans} spans went in by the deadline: it shows nothing");
    scene.start_again(0, Some("gateway-0"))?;
    let back = Instant::now();
    scene.start_load();
    Ok(back)
}

/// Offsets cannot be committed. The gateway must still end within its time.
async fn term_silent_broker(scene: &mut Scene<'_>) -> Result<Instant> {
    scene.stage.servers.kafka_goes(Way::Blackhole);
    scene.gateway(0).signal(Signal::TERM)?;
    let ended = scene.gateway(0).end_within(END_MAX).await;
    scene.stage.servers.kafka_goes(Way::Open);
    let code = ended?;
    ensure!(code == NOT_LEFT, "it ended with code {code} though nothing could be committed");
    scene.start_again(0, Some("gateway-0"))?;
    Ok(Instant::now())
}

/// Waits until a gateway owns so many partitions.
pub(super) async fn wait_share(scene: &mut Scene<'_>, number: usize, partitions: f64) -> Result<()> {
    let waited = scene.wait_metric(number, PARTITIONS_OWNED, |owned| is_same(owned, partitions)).await;
    waited.map(drop).context("its share of the partitions")
}

async fn wait_empty(scene: &mut Scene<'_>, admin: &Admin) -> Result<()> {
    scene
        .wait("nothing left", PATIENCE, async |_| {
            let left = admin.drainz().await?;
            Ok(Seen::when(left.is_empty(), || format!("{left:?}")))
        })
        .await
}
