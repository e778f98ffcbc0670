//! A topic with many malformed messages: a producer with the wrong format, or another topic's messages.
//!
//! Measures how fast they become dead letters, each once and in the order of its partition. Good messages come among them, or afterwards.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;

use super::input::{ensure_letters, producer, send};
use super::volume::as_real;
use crate::scene::{Expected, Scene};
use e2e_fixtures::letters::Place;

/// Bad messages in each partition.
const MESSAGES: usize = 1_500;

/// Bytes of a message. A letter carries the message, and 512 letters and 1,152 KiB of them may be under way; neither limit is reached here.
const MESSAGE_BYTES: usize = 1 << 10;

/// How long all letters may take: one letter at a time for each partition on a busy machine.
const LETTERS_PATIENCE: Duration = Duration::from_mins(3);

const LETTERS: &str = "sluice_gateway_dead_letters_total";

/// What happens beside the letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storm {
    Alone,
    /// SIGKILL in the middle of them.
    Killed,
    /// Good messages come among the bad ones, in every partition.
    Mixed,
}

pub(super) async fn play(scene: &mut Scene<'_>, storm: Storm) -> Result<Expected> {
    let places = if storm == Storm::Mixed {
        scene.start_load();
        send_many(scene, b"{}").await?
    } else {
        send_many(scene, &[0xff; MESSAGE_BYTES]).await?
    };
    let letters = as_real(places.len() as u64);
    scene.start_gateway(Some("gateway-0"))?;
    let first = scene.wait_metric(0, LETTERS, |count| count > 0.0).await?;
    let began = Instant::now();
    if storm == Storm::Killed {
        scene.wait_metric(0, LETTERS, |count| count > letters / 4.0).await?;
        scene.restart(0).await?;
        scene.wait_committed_within(0, LETTERS_PATIENCE).await?;
    } else {
        scene.wait_metric_within(0, LETTERS, LETTERS_PATIENCE, |count| count >= letters).await?;
    }
    let rate = (letters - first) / began.elapsed().as_secs_f64();
    let good = Instant::now();
    if storm != Storm::Mixed {
        scene.start_load();
    }
    let expected = scene.recover(good).await?;
    let places = places.into_iter().collect();
    ensure_letters(scene, &places, storm == Storm::Killed).await?.ensure_in_order()?;
    Ok(Expected { measures: vec![("letters/s", rate)], ..expected })
}

/// Sends the message to every partition, one after the other, so that those of the load come between them.
async fn send_many(scene: &Scene<'_>, value: &[u8]) -> Result<Vec<Place>> {
    let producer = producer(scene)?;
    let partitions = 0..scene.topic.partitions();
    let sent = partitions.map(async |partition| {
        let mut places = Vec::new();
        for _ in 0..MESSAGES {
            let offset = send(&producer, scene.topic.name(), partition, Some(value)).await?;
            places.push((partition, offset));
        }
        anyhow::Ok(places)
    });
    Ok(try_join_all(sent).await?.concat())
}
