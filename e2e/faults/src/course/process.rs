//! Gateways are stopped, ended or added under load, or two have the same name.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::leave::{END_MAX, NOT_LEFT};
use super::rule_change::RuleChange;
use super::{FEW, Family, MANY, ONE, changed, clock, foreign};
use crate::front::Way;
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Process {
    /// SIGSTOP for two seconds, shorter than the session timeout
    StopShorter,
    /// SIGSTOP until another member has taken over; the INSERT on its way arrives after that
    StopLonger,
    /// SIGTERM while connections to the sink are refused: exit code 1, in time
    TermDeadSink,
    /// three members leave and come back in turn
    RebalanceStorm,
    /// the topic grows from 8 to 12 partitions under load
    PartitionAdded,
    /// the wall clock jumps by an hour, ahead and back, also between a SIGKILL and the next start
    ClockJump,
    /// two members with 3 and 5 messages a range; SIGKILL of each in turn, once its INSERT is stored but not answered
    RuleChange,
    /// the same with two versions of the rule, as during a rolling upgrade: 4 and 3 messages a range
    RuleVersions,
    /// SIGKILL when the server has stored an INSERT and its answer is on its way; the member comes back with the other insert.format
    FormatChange,
    /// while a gateway is down, another client commits four partitions with foreign metadata: é, no text, half a plan, nothing; the gateway
    /// plans each anew
    ForeignMetadata,
    /// a second process joins with the same group.instance.id
    DuplicateMember,
}

impl Family for Process {
    fn rounds(self) -> u32 {
        match self {
            Process::PartitionAdded => ONE,
            Process::FormatChange => MANY,
            _ => FEW,
        }
    }

    fn change(self) -> Value {
        match self {
            Process::TermDeadSink => json!({"shutdown": {"deadline": SHUTDOWN_DEADLINE}}),
            Process::RuleChange => RuleChange::Settings.change(0),
            Process::RuleVersions => RuleChange::Versions.change(0),
            _ => json!({}),
        }
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        match self {
            Process::StopShorter => stop_shorter(scene).await,
            Process::StopLonger => stop_longer(scene).await,
            Process::TermDeadSink => term_dead_sink(scene).await,
            Process::RebalanceStorm => rebalance_storm(scene).await,
            Process::PartitionAdded => partition_added(scene).await,
            Process::ClockJump => clock::play(scene).await,
            Process::RuleChange => RuleChange::Settings.play(scene).await,
            Process::RuleVersions => RuleChange::Versions.play(scene).await,
            Process::FormatChange => changed::format(scene).await,
            Process::ForeignMetadata => foreign::play(scene).await,
            Process::DuplicateMember => duplicate_member(scene).await,
        }
    }
}

async fn stop_shorter(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    scene.gateway(0).signal(Signal::STOP)?;
    scene.wait_acked(SPANS_SHORT).await?;
    scene.gateway(0).signal(Signal::CONT)?;
    scene.recover(Instant::now()).await
}

async fn stop_longer(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
    let gate = scene.stage.servers.sink.gate();
    let caught = gate.trap("insert", |passage| passage.leg == Leg::Head).caught(PATIENCE).await?;
    scene.gateway(0).signal(Signal::STOP)?;
    scene.start_gateway(Some("gateway-1"))?;
    scene.wait_inserts(INSERTS_OF_ANOTHER).await?;
    // The INSERT from before the stop arrives after the next owner has sent the same range.
    caught.decide(Verdict::Pass);
    scene.gateway(0).signal(Signal::CONT)?;
    scene.recover(Instant::now()).await
}

async fn term_dead_sink(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
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
    scene.recover(Instant::now()).await
}

async fn rebalance_storm(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(None).await?;
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
    scene.recover(Instant::now()).await
}

async fn partition_added(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
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
    scene.recover(grown).await
}

async fn duplicate_member(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.start_under_load(Some("gateway-0")).await?;
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
    scene.recover(Instant::now()).await
}
