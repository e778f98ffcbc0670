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
use crate::gate;
use crate::kafka_front::{self, Leg};
use crate::kafka_wire::{Commit, OFFSET_COMMIT};
use crate::scene::{Expected, Scene};
use crate::sink_front;

/// How long a step may take to be seen: commits are a second apart.
const STEP_PATIENCE: Duration = Duration::from_secs(30);

/// One in this many rounds has another member take over.
const OTHER_MEMBER_EVERY: u32 = 4;

/// How many passages of a step later rounds skip, in turn, so that rounds differ.
pub(super) const SKIPS: u32 = 5;

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

impl Step {
    /// Sets the trap, which skips `skips` passages of the step.
    pub(super) fn trap(self, scene: &Scene<'_>, skips: u32) -> Trap {
        let servers = &scene.stage.servers;
        let commits = |leg: Leg, is_wanted: fn(&mut Seen, &Commit) -> bool| {
            let mut seen = Seen::default();
            let mut left = skips;
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
            Trap::Kafka(servers.kafka_gate().trap("such commit", wants))
        };
        let inserts = |leg: sink_front::Leg| {
            let mut left = skips;
            let wants = move |passage: &sink_front::Passage| passage.leg == leg && count_down(&mut left);
            Trap::Sink(servers.sink.gate().trap("such insert", wants))
        };
        match self {
            Step::BeforePlanCommit => commits(Leg::Asked, Seen::plans),
            Step::AfterPlanCommit => commits(Leg::Answered, Seen::plans),
            Step::BeforeSend => inserts(sink_front::Leg::Head),
            Step::InTheMiddle => inserts(sink_front::Leg::Middle),
            Step::AfterServerCommit => inserts(sink_front::Leg::Answered),
            Step::BeforeOffsetCommit => commits(Leg::Asked, Seen::moves),
            Step::AfterOffsetCommit => commits(Leg::Answered, Seen::moves),
        }
    }
}

impl Family for Step {
    const PREFIX: &'static str = "kill-";

    fn rounds(self) -> u32 {
        u32::MAX
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.start_under_load(Some("gateway-0")).await?;
        let killed = at(scene, self).await?;
        let other = scene.round % OTHER_MEMBER_EVERY == OTHER_MEMBER_EVERY - 1;
        scene.start_again(0, Some(if other { "gateway-1" } else { "gateway-0" }))?;
        scene.recover(killed).await
    }
}

/// Kills gateway 0 at a step, another one each round, and returns when.
pub(super) async fn at(scene: &mut Scene<'_>, step: Step) -> Result<Instant> {
    let caught = step.trap(scene, scene.round % SKIPS).caught().await?;
    scene.gateway(0).kill().await?;
    let killed = Instant::now();
    caught.cut();
    Ok(killed)
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

pub(super) enum Trap {
    Kafka(gate::Trap<kafka_front::Passage, kafka_front::Verdict>),
    Sink(gate::Trap<sink_front::Passage, sink_front::Verdict>),
}

pub(super) enum Caught {
    Kafka(gate::Caught<kafka_front::Passage, kafka_front::Verdict>),
    Sink(gate::Caught<sink_front::Passage, sink_front::Verdict>),
}

impl Trap {
    /// Waits until something is caught.
    pub(super) async fn caught(self) -> Result<Caught> {
        Ok(match self {
            Trap::Kafka(trap) => Caught::Kafka(trap.caught(STEP_PATIENCE).await?),
            Trap::Sink(trap) => Caught::Sink(trap.caught(STEP_PATIENCE).await?),
        })
    }
}

impl Caught {
    /// The request is never forwarded.
    pub(super) fn cut(self) {
        match self {
            Caught::Kafka(caught) => caught.decide(kafka_front::Verdict::Reset),
            Caught::Sink(caught) => caught.decide(sink_front::Verdict::Reset),
        }
    }
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
