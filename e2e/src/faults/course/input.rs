//! Bad input: messages that nobody can read among good ones, the wrong encoding, a table that changes under a running gateway.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use serde_json::{Value, json};

use super::{INSERTS_BEFORE, SPANS_AFTER};
use crate::faults::scene::{Expected, Scene};
use crate::pipeline::TABLE;
use crate::produce::Feed;
use crate::spans::{Encoding, Generator, Run, Shape};

/// How long the broker may take for a message.
const SEND_PATIENCE: Duration = Duration::from_secs(30);

/// A length of a field, as a varint, that no message has: 2^62.
const LENGTH_TOO_LARGE: [u8; 9] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40];

/// Nested groups: more than any reader that calls itself survives.
const NESTED_GROUPS: usize = 100_000;

/// Spans as JSON for a gateway that reads protobuf.
const SPANS_WRONG: u64 = 1_600;

/// A column that is renamed and renamed back.
const COLUMN: &str = "StatusMessage";

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Bad messages in every partition are passed over.
    BadSkipped,
    /// A bad message stops its partition, alone.
    BadStops,
    /// Messages in another encoding are passed over.
    WrongEncoding,
    /// A column is renamed, and back.
    TableChanged,
    /// A column is added.
    ColumnAdded,
}

impl Input {
    /// What gateways are told otherwise than usual.
    pub fn change(self) -> Value {
        match self {
            Input::BadSkipped | Input::WrongEncoding => {
                json!({"delivery": {"deadLetter": {"onMissing": "Skip"}}})
            }
            _ => json!({}),
        }
    }

    /// Plays it.
    ///
    /// # Errors
    /// When what is waited for does not come, or a server refuses.
    pub async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        scene.start_gateway(Some("gateway-0"))?;
        scene.start_load();
        scene.wait_inserts(INSERTS_BEFORE).await?;
        match self {
            Input::BadSkipped => bad_skipped(scene).await,
            Input::BadStops => bad_stops(scene).await,
            Input::WrongEncoding => wrong_encoding(scene).await,
            Input::TableChanged => table_changed(scene).await,
            Input::ColumnAdded => column_added(scene).await,
        }
    }
}

/// Messages that are no spans; the last two are read and hold none.
fn bad_messages() -> Vec<Option<Vec<u8>>> {
    let good = Generator::new(Shape::Numbered, Run::fresh()).message(0..1).to_vec();
    let truncated = good[..good.len() - 3].to_vec();
    vec![
        Some(b"{\"resourceSpans\":[]}".to_vec()),
        Some(truncated),
        Some([&[0x0a][..], &LENGTH_TOO_LARGE].concat()),
        Some(vec![0x0b; NESTED_GROUPS]),
        Some(vec![0xff; 4_096]),
        Some(Vec::new()),
        None,
    ]
}

async fn send(producer: &FutureProducer, topic: &str, partition: i32, value: Option<&[u8]>) -> Result<i64> {
    let mut record = FutureRecord::<(), [u8]>::to(topic).partition(partition);
    record.payload = value;
    let sent = producer.send(record, SEND_PATIENCE).await;
    Ok(sent.map_err(|(error, _)| error).context("produce a bad message")?.offset)
}

fn producer(scene: &Scene<'_>) -> Result<FutureProducer> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", scene.stage.servers.kafka());
    config.create().context("make a producer of bad messages")
}

async fn bad_skipped(scene: &mut Scene<'_>) -> Result<Expected> {
    let producer = producer(scene)?;
    for partition in 0..scene.topic.partitions() {
        for message in bad_messages() {
            send(&producer, scene.topic.name(), partition, message.as_deref()).await?;
        }
    }
    recover(scene).await
}

/// The one partition stands; what is in it from the bad message on is not read, and nothing else is missing.
async fn bad_stops(scene: &mut Scene<'_>) -> Result<Expected> {
    let producer = producer(scene)?;
    let bad = send(&producer, scene.topic.name(), 0, Some(b"{}")).await?;
    let expected = recover(scene).await?;
    scene.stop_load().await?;
    let ends = scene.topic.watermarks().await?;
    let end = ends.iter().find(|found| found.partition == 0).context("the topic has a partition 0")?;
    let messages_left = end.high - bad;
    let lost = u64::try_from(messages_left - 1)? * Shape::Numbered.message_spans();
    Ok(Expected { lost, messages_left, ..expected })
}

async fn wrong_encoding(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.stop_load().await?;
    let feed = Feed { spans_per_second: None, ..scene.feed(Encoding::OtlpJson) };
    scene.produce_as(&feed, SPANS_WRONG).await?;
    scene.start_load();
    let expected = recover(scene).await?;
    Ok(Expected { lost: SPANS_WRONG, ..expected })
}

async fn table_changed(scene: &mut Scene<'_>) -> Result<Expected> {
    alter(scene, &format!("RENAME COLUMN {COLUMN} TO {COLUMN}Away")).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    alter(scene, &format!("RENAME COLUMN {COLUMN}Away TO {COLUMN}")).await?;
    recover(scene).await
}

async fn column_added(scene: &mut Scene<'_>) -> Result<Expected> {
    alter(scene, "ADD COLUMN Extra String DEFAULT 'none'").await?;
    recover(scene).await
}

async fn alter(scene: &Scene<'_>, change: &str) -> Result<()> {
    let table = format!("`{}`.`{TABLE}`", scene.database.name());
    scene.stage.servers.server.execute(&format!("ALTER TABLE {table} {change}")).await
}

async fn recover(scene: &mut Scene<'_>) -> Result<Expected> {
    let recovery = scene.recovered(Instant::now()).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    Ok(Expected { recovery_s: Some(recovery), ..Expected::default() })
}
