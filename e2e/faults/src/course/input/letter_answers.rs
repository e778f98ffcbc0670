//! Answers to dead letters are lost: the broker has the letter, and the gateway cannot know.
//!
//! ```text
//! gateway -- letter --> front --> broker, which stores it
//! gateway       X------ front <-- answer
//! gateway -- the same letter under the same number --> broker, which has it: one letter
//! ```
//!
//! The producer of letters is idempotent, so that a letter that is sent again is not there again. Until an answer arrives its message
//! stays in front of the committed offset.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::{ensure_letters, producer, recover, send, send_bad};
use crate::kafka_front::{Leg, Passage, Verdict};
use crate::kafka_wire::PRODUCE;
use crate::scene::{Expected, PATIENCE, Scene};
use e2e_fixtures::cluster::Seen;
use e2e_fixtures::letters::Place;

/// The partition with the message whose letter's answer is held.
const PARTITION: i32 = 0;

/// Answers that are lost in a row after that one.
const ANSWERS_LOST: u32 = 4;

/// Gateways produce only dead letters, and only gateways use the front.
fn is_answer(passage: &Passage) -> bool {
    passage.leg == Leg::Answered && passage.request.api == PRODUCE
}

/// One is held until all other partitions have gone on, and lost; then some more are, of many letters.
pub(super) async fn lost(scene: &mut Scene<'_>) -> Result<Expected> {
    let held = held(scene).await?;
    let rule = scene.stage.servers.kafka_gate().rule(ANSWERS_LOST, Verdict::Reset, is_answer);
    let mut places = send_bad(scene).await?;
    places.extend(held);
    scene
        .wait("lost answers to letters", PATIENCE, async |_| {
            let applied = rule.applied();
            Ok(if applied >= ANSWERS_LOST {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("{applied} of {ANSWERS_LOST}"))
            })
        })
        .await?;
    let expected = recover(scene).await?;
    ensure_letters(scene, &places, false).await?;
    Ok(expected)
}

/// A message that cannot be read is not passed over before its letter is known to be stored. Gives where it is; by then the answer is
/// lost.
async fn held(scene: &mut Scene<'_>) -> Result<[Place; 2]> {
    let made = delivered(scene).await?;
    let trap = scene.stage.servers.kafka_gate().trap("answer to a letter", is_answer);
    let bad = send(&producer(scene)?, scene.topic.name(), PARTITION, Some(b"{}")).await?;
    let caught = trap.caught(PATIENCE).await?;
    let ends = scene.topic.dead_letters()?.watermarks().await?;
    let stored: i64 = ends.iter().map(|marks| marks.high - marks.low).sum();
    ensure!(stored == 2, "{stored} letters are stored of two messages");
    let before: BTreeMap<i32, i64> = scene.committed().await?.into_iter().collect();
    scene
        .wait("commits of all other partitions", PATIENCE, async |scene| {
            let committed = scene.committed().await?;
            let moved = committed.iter().filter(|(partition, offset)| before.get(partition) < Some(offset));
            let others: Vec<i32> =
                moved.map(|(partition, _)| *partition).filter(|other| *other != PARTITION).collect();
            let wanted = scene.topic.partitions() - 1;
            Ok(if i32::try_from(others.len())? == wanted {
                Seen::Done(())
            } else {
                Seen::NotYet(format!("those of {others:?}"))
            })
        })
        .await?;
    let committed = scene.committed().await?;
    let own = committed.iter().find(|(partition, _)| *partition == PARTITION);
    let (_, offset) = own.context("the partition is committed")?;
    ensure!(
        *offset <= bad,
        "{offset} is committed behind message {bad}, whose letter nobody has acknowledged"
    );
    caught.decide(Verdict::Reset);
    Ok([(PARTITION, made), (PARTITION, bad)])
}

/// A letter whose answer arrives: it has the topic made, whose partitions refuse letters until they have leaders.
async fn delivered(scene: &mut Scene<'_>) -> Result<i64> {
    let bad = send(&producer(scene)?, scene.topic.name(), PARTITION, Some(b"{}")).await?;
    scene
        .wait("a commit behind a message with a letter", PATIENCE, async |scene| {
            let committed = scene.committed().await?;
            let own = committed.into_iter().find(|(partition, _)| *partition == PARTITION);
            Ok(match own {
                Some((_, offset)) if offset > bad => Seen::Done(bad),
                other => Seen::NotYet(format!("{other:?}, and the message is {bad}")),
            })
        })
        .await
}
