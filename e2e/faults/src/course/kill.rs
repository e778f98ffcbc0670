//! A gateway is killed at a step of a range and started again. The requests that pass the fronts show the step.
//!
//! ```text
//! plan commit ------> broker    INSERT head, half, whole ------> server    offset commit ------> broker
//!   ^ before   after ^            ^ before   ^ in the middle  after ^        ^ before     after ^
//! ```
//!
//! A caught request is never forwarded: it died with its sender. In every fourth round, another member takes over after the group has
//! removed the dead one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;

use super::Family;
use crate::gate::Caught;
use crate::kafka_front::{self, Leg};
use crate::kafka_wire::{Commit, OFFSET_COMMIT};
use crate::scene::{Expected, Scene};
use crate::sink_front;

/// How long a step may take to be seen: commits are a second apart.
const STEP_PATIENCE: Duration = Duration::from_secs(30);

/// One in this many rounds has another member take over.
const OTHER_MEMBER_EVERY: u32 = 4;

/// How many passages of a step later rounds skip, in turn, so that rounds differ.
const SKIPS: u32 = 5;

/// The steps at which the gateway is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// SIGKILL while a commit with a new planned cut is on its way
    BeforePlanCommit,
    /// SIGKILL once the broker has stored a new planned cut
    AfterPlanCommit,
    /// SIGKILL before the first byte of an INSERT arrives
    BeforeSend,
    /// SIGKILL when the server has half of an INSERT
    InTheMiddle,
    /// SIGKILL when the server has stored an INSERT and its answer is on its way
    AfterServerCommit,
    /// SIGKILL while a commit that moves an offset is on its way
    BeforeOffsetCommit,
    /// SIGKILL once the broker has stored a moved offset
    AfterOffsetCommit,
}

impl Family for Step {
    const PREFIX: &'static str = "kill-";

    fn rounds(self) -> u32 {
        u32::MAX
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.start_under_load(Some("gateway-0")).await?;
        let killed = at(scene, self).await?;
        come_back(scene)?;
        scene.recover(killed).await
    }
}

/// Kills gateway 0 at a step, another one each round, and returns when.
pub(super) async fn at(scene: &mut Scene<'_>, step: Step) -> Result<Instant> {
    match step {
        Step::BeforePlanCommit => at_commit(scene, Leg::Asked, Seen::plans).await,
        Step::AfterPlanCommit => at_commit(scene, Leg::Answered, Seen::plans).await,
        Step::BeforeSend => at_insert(scene, sink_front::Leg::Head).await,
        Step::InTheMiddle => at_insert(scene, sink_front::Leg::Middle).await,
        Step::AfterServerCommit => at_insert(scene, sink_front::Leg::Answered).await,
        Step::BeforeOffsetCommit => at_commit(scene, Leg::Asked, Seen::moves).await,
        Step::AfterOffsetCommit => at_commit(scene, Leg::Answered, Seen::moves).await,
    }
}

async fn at_commit(
    scene: &mut Scene<'_>,
    leg: Leg,
    is_wanted: fn(&mut Seen, &Commit) -> bool,
) -> Result<Instant> {
    let (mut seen, mut left) = (Seen::default(), scene.round % SKIPS);
    let topic = scene.topic.name().to_owned();
    let wants = move |passage: &kafka_front::Passage| {
        // The other leg has the same commit, and must not be recorded twice.
        if passage.leg != leg || passage.request.api != OFFSET_COMMIT {
            return false;
        }
        let mut found = false;
        for commit in passage.request.commits.iter().filter(|commit| commit.topic == topic) {
            // Checks all commits, also after the first match: `seen` must record all.
            found |= is_wanted(&mut seen, commit);
        }
        found && count_down(&mut left)
    };
    let trap = scene.stage.servers.kafka_gate().trap("such commit", wants);
    die(scene, trap.caught(STEP_PATIENCE).await?, kafka_front::Verdict::Reset).await
}

async fn at_insert(scene: &mut Scene<'_>, leg: sink_front::Leg) -> Result<Instant> {
    let mut left = scene.round % SKIPS;
    let wants = move |passage: &sink_front::Passage| passage.leg == leg && count_down(&mut left);
    let trap = scene.stage.servers.sink.gate().trap("such insert", wants);
    die(scene, trap.caught(STEP_PATIENCE).await?, sink_front::Verdict::Reset).await
}

/// Kills gateway 0, and returns when; the request that is caught ends with the verdict `reset`.
pub(super) async fn die<P, V>(scene: &mut Scene<'_>, caught: Caught<P, V>, reset: V) -> Result<Instant> {
    scene.gateway(0).kill().await?;
    let killed = Instant::now();
    caught.decide(reset);
    Ok(killed)
}

/// Starts gateway 0 again, in some rounds as another member.
pub(super) fn come_back(scene: &mut Scene<'_>) -> Result<()> {
    let other = scene.round % OTHER_MEMBER_EVERY == OTHER_MEMBER_EVERY - 1;
    scene.start_again(0, Some(if other { "gateway-1" } else { "gateway-0" }))
}

/// The cuts and offsets of the commits until now, by partition.
#[derive(Default)]
struct Seen {
    offsets: HashMap<i32, i64>,
    cuts: HashMap<i32, i64>,
}

impl Seen {
    /// Whether it has a cut behind all earlier ones.
    fn plans(&mut self, commit: &Commit) -> bool {
        let Some(cut) = commit.last_planned_cut() else { return false };
        self.cuts.insert(commit.partition, cut).is_none_or(|before| cut > before)
    }

    /// Whether its offset is behind the earlier one.
    fn moves(&mut self, commit: &Commit) -> bool {
        self.offsets.insert(commit.partition, commit.offset).is_some_and(|before| commit.offset > before)
    }
}

/// True once `left` passages have been skipped.
fn count_down(left: &mut u32) -> bool {
    let over = *left == 0;
    *left = left.saturating_sub(1);
    over
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_moves_once_it_is_behind_the_one_before() {
        let commit = |offset| Commit { topic: "t".into(), partition: 1, offset, metadata: String::new() };
        let mut seen = Seen::default();
        let moved: Vec<bool> = [5, 5, 9, 9, 10].map(|offset| seen.moves(&commit(offset))).to_vec();
        assert_eq!(moved, [false, false, true, false, true]);
        assert!(!seen.plans(&commit(11)), "it has no plan");
    }

    #[test]
    fn so_many_go_by() {
        let mut left = 2;
        assert_eq!([(); 4].map(|()| count_down(&mut left)), [false, false, true, true]);
    }
}
