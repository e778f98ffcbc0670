//! Answers to dead letters are lost: the broker has stored the letter, and the gateway does not know.
//!
//! ```text
//! gateway -- letter --> front --> broker, which stores it
//! gateway       X------ front <-- answer
//! gateway -- the same letter under the same number --> broker, which already has it: one letter
//! ```
//!
//! The producer of letters is idempotent, so the broker stores a letter that is sent again only once. Until an answer arrives, the message
//! is not before the committed offset.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::{ensure_letters, producer, send, send_bad};
use crate::kafka_front::{Leg, Passage, Verdict};
use crate::kafka_wire::PRODUCE;
use crate::scene::{Expected, PATIENCE, Scene};
use e2e_fixtures::cluster::Seen;
use e2e_fixtures::letters::Place;

/// The partition with the message whose letter's answer is held.
const PARTITION: i32 = 0;

/// Answers that are lost in a row after the held one.
const ANSWERS_LOST: u32 = 4;

/// Gateways produce only dead letters, and only gateways use the front.
fn is_answer(passage: &Passage) -> bool {
    passage.leg == Leg::Answered && passage.request.api == PRODUCE
}

/// Holds the answer of one letter until all other partitions have continued, and drops it. Then drops more answers, of many letters.
pub(super) async fn lost(scene: &mut Scene<'_>) -> Result<Expected> {
    let held = held(scene).await?;
    let rule = scene.stage.servers.kafka_gate().rule(ANSWERS_LOST, Verdict::Reset, is_answer);
    let mut places = send_bad(scene).await?;
    places.extend(held);
    scene.wait_applied("lost answers to letters", &rule, ANSWERS_LOST).await?;
    let expected = scene.recover(Instant::now()).await?;
    ensure_letters(scene, &places, false).await?;
    Ok(expected)
}

/// The gateway does not continue behind a bad message before it knows that the letter is stored. Returns the places of the messages; by
/// then the answer is lost.
async fn held(scene: &mut Scene<'_>) -> Result<[Place; 2]> {
    let made = delivered(scene).await?;
    let trap = scene.stage.servers.kafka_gate().trap("answer to a letter", is_answer);
    let bad = send(&producer(scene)?, scene.topic.name(), PARTITION, Some(b"{}")).await?;
    let caught = trap.caught(PATIENCE).await?;
    let ends = scene.topic.dead_letters()?.watermarks().await?;
    let stored: i64 = ends.iter().map(|marks| marks.high - marks.low).sum();
    ensure!(stored == 2, "{stored} letters are stored of two messages");
    let before = scene.committed().await?;
    scene
        .wait("commits of all other partitions", PATIENCE, async |scene| {
            let committed = scene.committed().await?;
            let moved = committed.iter().filter(|(partition, offset)| before.get(*partition) < Some(*offset));
            let others: Vec<i32> =
                moved.map(|(partition, _)| *partition).filter(|other| *other != PARTITION).collect();
            let is_each = i32::try_from(others.len())? == scene.topic.partitions() - 1;
            Ok(Seen::when(is_each, || format!("those of {others:?}")))
        })
        .await?;
    let committed = scene.committed().await?;
    let offset = committed.get(&PARTITION).context("the partition is committed")?;
    ensure!(*offset <= bad, "{offset} is committed behind message {bad}, whose letter is not acknowledged");
    caught.decide(Verdict::Reset);
    Ok([(PARTITION, made), (PARTITION, bad)])
}

/// Waits for a letter whose answer arrives. It makes the topic; partitions of a new topic refuse letters until they have leaders.
async fn delivered(scene: &mut Scene<'_>) -> Result<i64> {
    let bad = send(&producer(scene)?, scene.topic.name(), PARTITION, Some(b"{}")).await?;
    scene
        .wait("a commit behind a message with a letter", PATIENCE, async |scene| {
            Ok(match scene.committed().await?.get(&PARTITION) {
                Some(offset) if *offset > bad => Seen::Done(bad),
                other => Seen::NotYet(format!("{other:?}, and the message is {bad}")),
            })
        })
        .await
}
