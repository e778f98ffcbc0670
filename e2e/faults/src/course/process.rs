//! Gateways are stopped, ended or added under load, or two have the same name.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::leave::{END_MAX, NOT_LEFT};
use crate::kafka_front::Way;
use crate::scene::{Expected, INSERTS_BEFORE, PATIENCE, SPANS_AFTER, Scene};
use crate::sink_front::{Leg, Verdict};
use e2e_fixtures::cluster::Seen;
use e2e_stack::process::Signal;

/// `shutdown.deadline`: how long a gateway gives its blocks in flight when it leaves and the sink is unreachable.
const SHUTDOWN_DEADLINE: &str = "3s";

/// How often members of the storm leave.
const STORM_LEAVES: usize = 6;

const STORM_MEMBERS: usize = 3;

/// Spans during a stop that the group does not notice: two seconds of load.
const SPANS_SHORT: u64 = 10_000;

/// Inserts that show that another member is inserting: a stopped gateway has at most two in flight.
const INSERTS_OF_ANOTHER: u64 = 6;

/// Partitions that the topic grows to.
const PARTITIONS_MORE: i32 = 12;

/// New partitions are found when the metadata is read again, every ten seconds. The rebalance after it takes most of the time.
const METADATA_PATIENCE: Duration = Duration::from_mins(3);

/// The exit code of a gateway after another process has taken its name in the group.
const FENCED: i32 = 1;

/// Its last log lines: that it exits, and the broker's reason.
const SAYS_FENCED: [&str; 3] = [
    "the consumer of group ",
    " cannot go on: ",
    "Static consumer fenced by other consumer with same group.instance.id",
];

/// The faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// SIGSTOP, and SIGCONT within the session.
    StopShort,
    /// SIGSTOP with an INSERT on its way; both continue once another member has taken over.
    StopLong,
    /// SIGTERM while the sink refuses connections.
    TermDeadSink,
    /// Three members come and go.
    Storm,
    /// The topic gets more partitions.
    PartitionAdded,
    /// A second process joins as the same member.
    DuplicateMember,
}

impl Process {
    /// Changes of the usual config of the gateways.
    pub fn change(self) -> Value {
        match self {
            Process::TermDeadSink => json!({"shutdown": {"deadline": SHUTDOWN_DEADLINE}}),
            _ => json!({}),
        }
    }

    /// Plays it.
    ///
    /// # Errors
    /// When what is waited for does not come, or a process could not be handled.
    pub async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.start_under_load((self != Process::Storm).then_some("gateway-0")).await?;
        let since = match self {
            Process::StopShort => stop_short(scene).await?,
            Process::StopLong => stop_long(scene).await?,
            Process::TermDeadSink => term_dead_sink(scene).await?,
            Process::Storm => storm(scene).await?,
            Process::PartitionAdded => partition_added(scene).await?,
            Process::DuplicateMember => duplicate_member(scene).await?,
        };
        scene.recover(since).await
    }
}

async fn stop_short(scene: &mut Scene<'_>) -> Result<Instant> {
    scene.gateway(0).signal(Signal::STOP)?;
    scene.wait_acked(SPANS_SHORT).await?;
    scene.gateway(0).signal(Signal::CONT)?;
    Ok(Instant::now())
}

async fn stop_long(scene: &mut Scene<'_>) -> Result<Instant> {
    let gate = scene.stage.servers.sink.gate();
    let caught = gate.trap("insert", |passage| passage.leg == Leg::Head).caught(PATIENCE).await?;
    scene.gateway(0).signal(Signal::STOP)?;
    scene.start_gateway(Some("gateway-1"))?;
    scene.wait_inserts(INSERTS_OF_ANOTHER).await?;
    // The INSERT from before the stop arrives after the next owner has sent the same range.
    caught.decide(Verdict::Pass);
    scene.gateway(0).signal(Signal::CONT)?;
    Ok(Instant::now())
}

async fn term_dead_sink(scene: &mut Scene<'_>) -> Result<Instant> {
    let ended = scene.while_sink_goes(Way::Refused, async |scene| {
        scene.wait_acked(SPANS_SHORT).await?;
        scene.gateway(0).signal(Signal::TERM)?;
        scene.gateway(0).end_within(END_MAX).await
    });
    let code = ended.await?;
    ensure!(
        code == NOT_LEFT,
        "it ended with code {code} though nothing could go in, and there is no queue volume"
    );
    scene.start_again(0, Some("gateway-0"))?;
    Ok(Instant::now())
}

async fn storm(scene: &mut Scene<'_>) -> Result<Instant> {
    for _ in 1..STORM_MEMBERS {
        scene.start_gateway(None)?;
    }
    for leaving in 0..STORM_LEAVES {
        scene.wait_inserts(INSERTS_BEFORE).await?;
        let leaving = leaving % STORM_MEMBERS;
        scene.gateway(leaving).signal(Signal::TERM)?;
        let code = scene.gateway(leaving).end_within(PATIENCE).await?;
        ensure!(code == 0, "a member that was told to end ended with code {code}");
        scene.start_again(leaving, None)?;
    }
    Ok(Instant::now())
}

async fn partition_added(scene: &mut Scene<'_>) -> Result<Instant> {
    scene.topic.grow(PARTITIONS_MORE).await?;
    let grown = Instant::now();
    scene.wait_acked(SPANS_AFTER).await?;
    scene.stop_load().await?;
    // An old producer holds messages for partitions that it does not know yet.
    scene.renew_producer()?;
    scene.start_load();
    scene
        .wait("commits of every partition", METADATA_PATIENCE, async |scene| {
            let committed = scene.committed().await?.into_values().filter(|offset| *offset > 0).count();
            let is_each = i32::try_from(committed)? == PARTITIONS_MORE;
            Ok(Seen::when(is_each, || format!("{committed} partitions")))
        })
        .await?;
    Ok(grown)
}

async fn duplicate_member(scene: &mut Scene<'_>) -> Result<Instant> {
    scene.start_gateway(Some("gateway-0"))?;
    // The group gives the name to the last member that joined; the first one must notice that it lost the name, and exit.
    let code = scene.gateway(0).end_within(PATIENCE).await?;
    scene.retire(0)?;
    ensure!(code == FENCED, "it ended with code {code} though another one has its name");
    let log =
        std::fs::read_to_string(scene.gateway(0).log()).context("read the log of the one that is fenced")?;
    let last = log.lines().last().unwrap_or_default();
    ensure!(SAYS_FENCED.iter().all(|part| last.contains(part)), "its last line is: {last}");
    // The member that has the name now continues as if it had been alone.
    ensure!(scene.gateway(1).ended()?.is_none(), "the other one has ended, too");
    Ok(Instant::now())
}
