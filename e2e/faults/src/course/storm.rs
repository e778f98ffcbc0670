//! A topic with many malformed messages: a producer with the wrong format, or another topic's messages.
//!
//! Measures how fast they become dead letters, each once and in the order of its partition. Good messages come among them, or afterwards.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use rdkafka::producer::{FutureProducer, FutureRecord};

use super::input::{producer, send};
use crate::scene::{Expected, Scene};
use e2e_fixtures::letters::Place;

/// Bad messages in each partition.
const MESSAGES: usize = 1_500;

/// Bytes of a message. A letter carries the message, and 512 letters and 1,152 KiB of them may be under way; neither limit is reached here.
const MESSAGE_BYTES: usize = 1 << 10;

/// How long the broker may take for a message.
const SEND_PATIENCE: Duration = Duration::from_secs(30);

/// How long all letters may take: one letter at a time for each partition on a busy machine.
const LETTERS_PATIENCE: Duration = Duration::from_mins(3);

/// The metric of stored dead letters.
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
        send_each(scene).await?
    } else {
        send_all(scene).await?
    };
    let letters = count(places.len());
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
    scene.stop_load().await?;
    scene.wait_committed(0).await?;
    ensure_letters(scene, places, storm == Storm::Killed).await?;
    Ok(Expected { measures: vec![("letters/s", rate)], ..expected })
}

/// Checks that each message has its letter, in the order of its partition, and only one unless a process was killed.
async fn ensure_letters(scene: &mut Scene<'_>, places: Vec<Place>, may_double: bool) -> Result<()> {
    let letters = scene.letters().await?;
    letters.ensure_exactly(&scene.topic, "malformed", &places.into_iter().collect())?;
    letters.ensure_in_order()?;
    ensure!(may_double || letters.doubled() == 0, "{} letters are there again", letters.doubled());
    Ok(())
}

async fn send_all(scene: &Scene<'_>) -> Result<Vec<Place>> {
    let producer = producer(scene)?;
    let value = vec![0xff; MESSAGE_BYTES];
    let partitions = 0..scene.topic.partitions();
    let sent = partitions.map(|partition| send_many(&producer, scene.topic.name(), partition, &value));
    Ok(try_join_all(sent).await?.concat())
}

/// Sends one message after the other, so that those of the load come between them.
async fn send_each(scene: &Scene<'_>) -> Result<Vec<Place>> {
    let producer = producer(scene)?;
    let partitions = 0..scene.topic.partitions();
    let sent = partitions.map(async |partition| {
        let mut places = Vec::new();
        for _ in 0..MESSAGES {
            let offset = send(&producer, scene.topic.name(), partition, Some(b"{}")).await?;
            places.push((partition, offset));
        }
        anyhow::Ok(places)
    });
    Ok(try_join_all(sent).await?.concat())
}

async fn send_many(
    producer: &FutureProducer,
    topic: &str,
    partition: i32,
    value: &[u8],
) -> Result<Vec<Place>> {
    let send = |_| {
        producer.send(FutureRecord::<(), [u8]>::to(topic).partition(partition).payload(value), SEND_PATIENCE)
    };
    let mut places = Vec::new();
    for sent in (0..MESSAGES).map(send).collect::<Vec<_>>() {
        let delivery = sent.await.map_err(|(error, _)| error).context("produce a bad message")?;
        places.push((partition, delivery.offset));
    }
    Ok(places)
}

#[expect(clippy::cast_precision_loss, reason = "thousands of letters")]
fn count(letters: usize) -> f64 {
    letters as f64
}
