//! Bad input: malformed messages among valid ones, the wrong encoding, or a table that changes under a running gateway.

mod letter_answers;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use serde_json::{Value, json};

use super::storm::{self, Storm};
use super::{FEW, Family, ONE};
use crate::scene::{Expected, SPANS_AFTER, Scene};
use e2e_fixtures::letters::{Letters, Place};
use e2e_fixtures::produce::Topic;
use e2e_fixtures::spans::{Encoding, Generator, Run, Shape};

/// How long the broker may take for a message.
const SEND_PATIENCE: Duration = Duration::from_secs(30);

/// A field length as a varint that no message has: 2^62.
const LENGTH_TOO_LARGE: [u8; 9] = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40];

/// Nested groups: more than a recursive reader survives.
const NESTED_GROUPS: usize = 100_000;

/// Messages with spans as JSON, for a gateway that reads protobuf.
const MESSAGES_WRONG: i32 = 16;

/// The column that is renamed and renamed back.
const COLUMN: &str = "StatusMessage";

/// The gateway's metric of whether the table's columns are those that rows are encoded for.
const TABLE_FITS: &str = "sluice_gateway_table_fits";

/// What the gateway logs when they are not.
const SAYS_UNFIT: &str = "rows wait: ";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Input {
    /// garbage, truncated, hostile, empty and null messages in every partition; exactly one dead letter for each
    BadMessagesDeadLettered,
    /// the same, and SIGKILL while their dead letters are sent: a letter may be doubled, a row may not
    BadMessagesKill,
    /// the same without a dead-letter topic, onMissing: Skip
    BadMessagesSkipped,
    /// a malformed message stops only its partition without a dead-letter topic, onMissing: Stop
    BadMessageStops,
    /// the same until the watchdog reports the partition and the gateway is not ready, and until the broker allows to create the topic
    StoppedPartitionUnready,
    /// the same until the broker allows to create the dead-letter topic: the partition continues without a restart
    DeadLetterTopicRefused,
    /// answers to stored dead letters are lost: nothing is committed before an answer arrives, and no letter is doubled
    LetterAnswersLost,
    /// 12,000 malformed messages: dead letters per second, each once and in the order of the log
    PoisonStorm,
    /// the same, and SIGKILL in the middle: a letter may be doubled, none is missing
    PoisonStormKill,
    /// 12,000 malformed messages among good ones in every partition: no partition restarts, and each has one letter
    PoisonStormMixed,
    /// 16 messages of 100 spans arrive as JSON among valid ones, and become dead letters
    WrongEncoding,
    /// a column is renamed under the gateway, and back
    TableChanged,
    /// a column is added under the gateway
    ColumnAdded,
}

impl Family for Input {
    fn rounds(self) -> u32 {
        match self {
            Input::BadMessagesKill => u32::MAX,
            Input::StoppedPartitionUnready => ONE,
            _ => FEW,
        }
    }

    fn change(self) -> Value {
        match self {
            Input::BadMessagesSkipped => json!({"delivery": {"deadLetter": {"onMissing": "Skip"}}}),
            _ => json!({}),
        }
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        if !matches!(self, Input::PoisonStorm | Input::PoisonStormKill | Input::PoisonStormMixed) {
            scene.start_under_load(Some("gateway-0")).await?;
        }
        match self {
            Input::BadMessagesDeadLettered => bad_lettered(scene, false).await,
            Input::BadMessagesKill => bad_lettered(scene, true).await,
            Input::BadMessagesSkipped => bad_skipped(scene).await,
            Input::BadMessageStops => bad_stops(scene).await,
            Input::StoppedPartitionUnready => stops_unready(scene).await,
            Input::DeadLetterTopicRefused => letters_refused(scene).await,
            Input::LetterAnswersLost => letter_answers::lost(scene).await,
            Input::PoisonStorm => storm::play(scene, Storm::Alone).await,
            Input::PoisonStormKill => storm::play(scene, Storm::Killed).await,
            Input::PoisonStormMixed => storm::play(scene, Storm::Mixed).await,
            Input::WrongEncoding => wrong_encoding(scene).await,
            Input::TableChanged => table_changed(scene).await,
            Input::ColumnAdded => column_added(scene).await,
        }
    }
}

/// Messages without spans; the last two are valid and empty.
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

pub(super) async fn send(
    producer: &FutureProducer,
    topic: &str,
    partition: i32,
    value: Option<&[u8]>,
) -> Result<i64> {
    let mut record = FutureRecord::<(), [u8]>::to(topic).partition(partition);
    record.payload = value;
    let sent = producer.send(record, SEND_PATIENCE).await;
    Ok(sent.map_err(|(error, _)| error).context("produce a bad message")?.offset)
}

pub(super) fn producer(scene: &Scene<'_>) -> Result<FutureProducer> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", scene.stage.servers.kafka());
    config.create().context("make a producer of bad messages")
}

/// Sends all of them to every partition; returns the places of those that cannot be read.
async fn send_bad(scene: &Scene<'_>) -> Result<BTreeSet<Place>> {
    let producer = producer(scene)?;
    let mut places = BTreeSet::new();
    for partition in 0..scene.topic.partitions() {
        for message in bad_messages() {
            let offset = send(&producer, scene.topic.name(), partition, message.as_deref()).await?;
            // An empty message, or one without a value, has no spans.
            if message.is_some_and(|message| !message.is_empty()) {
                places.insert((partition, offset));
            }
        }
    }
    Ok(places)
}

async fn bad_lettered(scene: &mut Scene<'_>, kill: bool) -> Result<Expected> {
    let places = send_bad(scene).await?;
    if kill {
        scene.gateway(0).kill().await?;
    }
    let expected = scene.recover(Instant::now()).await?;
    ensure_letters(scene, &places, kill).await?;
    Ok(expected)
}

/// Ends the load, and checks the letters once everything is committed: each of these messages has one, and only one unless `may_double`.
pub(super) async fn ensure_letters(
    scene: &mut Scene<'_>,
    places: &BTreeSet<Place>,
    may_double: bool,
) -> Result<Letters> {
    scene.stop_load().await?;
    scene.wait_committed(0).await?;
    let letters = scene.letters().await?;
    letters.ensure_exactly(&scene.topic, "malformed", places)?;
    ensure!(may_double || letters.doubled() == 0, "{} letters are there again", letters.doubled());
    Ok(letters)
}

async fn bad_skipped(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.topic.refuse_dead_letters().await?;
    send_bad(scene).await?;
    let expected = scene.recover(Instant::now()).await?;
    ensure_letters(scene, &BTreeSet::new(), false).await?;
    Ok(expected)
}

/// Sends a bad message while there is no dead-letter topic; waits until its partition has stopped.
async fn stop_partition(scene: &mut Scene<'_>) -> Result<(Topic, i64)> {
    let taken = scene.topic.refuse_dead_letters().await?;
    let bad = send(&producer(scene)?, scene.topic.name(), 0, Some(b"{}")).await?;
    scene.wait_logged("Kafka refuses its dead letter").await?;
    Ok((taken, bad))
}

/// One partition has stopped: its messages from the bad one on are not read. Nothing else is missing.
async fn bad_stops(scene: &mut Scene<'_>) -> Result<Expected> {
    let (_, bad) = stop_partition(scene).await?;
    let expected = scene.recover(Instant::now()).await?;
    scene.stop_load().await?;
    let ends = scene.topic.watermarks().await?;
    let end = ends.iter().find(|found| found.partition == 0).context("the topic has a partition 0")?;
    let messages_left = end.high - bad;
    let lost = u64::try_from(messages_left - 1)? * Shape::Numbered.message_spans();
    Ok(Expected { lost, messages_left, ..expected })
}

/// The partition stops until the broker allows to create the topic, and then continues.
async fn letters_refused(scene: &mut Scene<'_>) -> Result<Expected> {
    let (taken, bad) = stop_partition(scene).await?;
    scene.wait_acked(SPANS_AFTER).await?;
    taken.delete().await?;
    let healed = Instant::now();
    scene.wait_logged("the partition continues").await?;
    let recovery_s = Some(healed.elapsed().as_secs_f64());
    scene.wait_acked(SPANS_AFTER).await?;
    ensure_letters(scene, &BTreeSet::from([(0, bad)]), false).await?;
    Ok(Expected { recovery_s, ..Expected::default() })
}

/// The watchdog reports the partition and the reason. The others continue, and the gateway is ready again once the partition continues.
async fn stops_unready(scene: &mut Scene<'_>) -> Result<Expected> {
    let (taken, bad) = stop_partition(scene).await?;
    let words = scene.wait_ready(false).await?.unwrap_or_default();
    let named = format!("{}/0 stands still", scene.topic.name());
    ensure!(
        words.contains(&named) && words.contains("dead letter"),
        "it is not ready for another reason: {words}"
    );
    ensure!(!words.contains("; partition"), "other partitions stand still, too: {words}");
    taken.delete().await?;
    let healed = Instant::now();
    scene.wait_ready(true).await?;
    let recovery_s = Some(healed.elapsed().as_secs_f64());
    scene.wait_acked(SPANS_AFTER).await?;
    ensure_letters(scene, &BTreeSet::from([(0, bad)]), false).await?;
    Ok(Expected { recovery_s, ..Expected::default() })
}

async fn wrong_encoding(scene: &mut Scene<'_>) -> Result<Expected> {
    // With a run of their own, because the table's rows are counted for the load's run.
    let mut wrong = Generator::new(Shape::Numbered, Run::fresh()).encoded_as(Encoding::OtlpJson);
    let (producer, mut places) = (producer(scene)?, BTreeSet::new());
    for number in 0..MESSAGES_WRONG {
        let partition = number % scene.topic.partitions();
        let first = u64::try_from(number)? * Shape::Numbered.message_spans();
        let message = wrong.message(first..first + Shape::Numbered.message_spans());
        places.insert((partition, send(&producer, scene.topic.name(), partition, Some(message)).await?));
    }
    let expected = scene.recover(Instant::now()).await?;
    ensure_letters(scene, &places, false).await?;
    Ok(expected)
}

/// Rows wait while a column is missing, and the gateway reports it. Restoring the table is enough to continue.
async fn table_changed(scene: &mut Scene<'_>) -> Result<Expected> {
    let told = scene.stage.servers.sink.stored();
    scene.alter(&format!("RENAME COLUMN {COLUMN} TO {COLUMN}Away")).await?;
    // ClickHouse may still confirm rows that were on their way to the former table.
    scene.wait_acked(SPANS_AFTER).await?;
    scene.wait_metric(0, TABLE_FITS, |fits| fits == 0.0).await?;
    scene.wait_logged(SAYS_UNFIT).await?;
    let before = told.borrow().inserts;
    scene.wait_acked(SPANS_AFTER).await?;
    let inserts = told.borrow().inserts - before;
    ensure!(inserts == 0, "{inserts} inserts went into a table that lacks a column of theirs");
    scene.alter(&format!("RENAME COLUMN {COLUMN}Away TO {COLUMN}")).await?;
    let expected = scene.recover(Instant::now()).await?;
    scene.wait_metric(0, TABLE_FITS, |fits| fits > 0.0).await?;
    Ok(expected)
}

async fn column_added(scene: &mut Scene<'_>) -> Result<Expected> {
    scene.alter("ADD COLUMN Extra String DEFAULT 'none'").await?;
    scene.recover(Instant::now()).await
}
