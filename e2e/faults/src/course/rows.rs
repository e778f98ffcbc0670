//! The server refuses a block because some rows violate a constraint of the table, or because the block is too large.
//!
//! The dead-letter topic must have exactly the refused rows, and the table all others once.

mod without_letters;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};

use super::{FEW, Family, kill};
use crate::kafka_front;
use crate::kafka_wire::OFFSET_COMMIT;
use crate::scene::{Expected, SPANS_AFTER, Scene};
use crate::sink_front::{self, Answer, Verdict};
use e2e_fixtures::kafka_fields::Fields;
use e2e_fixtures::produce::Watermarks;
use e2e_fixtures::spans::{NUMBER_KEY, Numbers};

/// The spans that the table refuses: one in `every`, whose number has the remainder `rest`.
#[derive(Clone, Copy, Debug)]
struct Constraint {
    every: u64,
    rest: u64,
}

/// Refuses rows in all partitions: about one a second, each in a block of its own.
const ANYWHERE: Constraint = Constraint { every: 6_007, rest: 700 };

/// Bytes above which a block is refused as too large: a fifth of a full one.
const BODY_BYTES_MAX: usize = 12 << 10;

/// Inserts that are refused as too large before all are accepted again.
const TOO_LARGE: u32 = 40;

/// How long a step of a parted block may take to be seen.
const STEP_PATIENCE: Duration = Duration::from_mins(1);

/// Kinds of steps at which the gateway is killed, in turn.
const STEPS: u32 = 4;

/// How long it may take until every refused row is found: each takes a second or two of commits and inserts on an idle machine.
const SETTLE_PATIENCE: Duration = Duration::from_mins(6);

/// How long the dead-letter topic may take to be read.
const READ_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rows {
    /// a constraint refuses one span of 6,007: these become dead letters, all others are inserted
    #[value(name = "refused-rows")]
    Refused,
    /// SIGKILL while a block is sent in parts to find them: around each level's commit, around an INSERT
    #[value(name = "refused-rows-kill")]
    RefusedKill,
    /// the same rows without a dead-letter topic, onMissing: Skip: they are skipped and counted
    #[value(name = "refused-rows-skipped")]
    Skipped,
    /// refused rows of one partition without a dead-letter topic, onMissing: Stop: only it waits, also across a SIGKILL, and continues
    #[value(name = "refused-rows-stop")]
    Stops,
    /// blocks above 12 KiB are refused with 252, too many partitions in one block
    #[value(name = "block-too-large-splits")]
    TooLarge,
}

impl Family for Rows {
    fn rounds(self) -> u32 {
        if self == Rows::RefusedKill { u32::MAX } else { FEW }
    }

    fn change(self) -> Value {
        match self {
            Rows::Skipped => json!({"delivery": {"deadLetter": {"onMissing": "Skip"}}}),
            Rows::Refused | Rows::RefusedKill | Rows::TooLarge | Rows::Stops => json!({}),
        }
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        match self {
            Rows::Refused => {
                ANYWHERE.add(scene).await?;
                scene.start_under_load(Some("gateway-0")).await?;
                scene.wait_acked(SPANS_AFTER).await?;
                all_letters(scene, ANYWHERE, None).await
            }
            Rows::RefusedKill => {
                ANYWHERE.add(scene).await?;
                scene.start_under_load(Some("gateway-0")).await?;
                let killed = kill_in_parts(scene).await?;
                let recovery_s = scene.recover(killed).await?.recovery_s;
                all_letters(scene, ANYWHERE, recovery_s).await
            }
            Rows::TooLarge => {
                scene.start_under_load(Some("gateway-0")).await?;
                too_large(scene).await
            }
            Rows::Skipped => without_letters::skipped(scene).await,
            Rows::Stops => without_letters::stops(scene).await,
        }
    }
}

impl Constraint {
    /// Makes the table refuse these spans.
    async fn add(self, scene: &Scene<'_>) -> Result<()> {
        let Constraint { every, rest } = self;
        let number = "(reinterpretAsUInt64(reverse(unhex(SpanId))) - 1)";
        scene.alter(&format!("ADD CONSTRAINT refused CHECK {number} % {every} != {rest}")).await
    }

    /// The spans among `numbers` that the table refuses.
    fn refused(self, numbers: &Numbers) -> BTreeSet<u64> {
        let all = numbers.ranges().iter().cloned().flatten();
        all.filter(|number| number % self.every == self.rest).collect()
    }
}

/// Kills the gateway before or after a commit that marks a block as parted, or before or after a later insert.
async fn kill_in_parts(scene: &mut Scene<'_>) -> Result<Instant> {
    let step = scene.round % STEPS;
    let leg = if step == 0 { kafka_front::Leg::Asked } else { kafka_front::Leg::Answered };
    let topic = scene.topic.name().to_owned();
    // Each level of parts has one such commit; later rounds skip some.
    let mut left = scene.round / STEPS % STEPS;
    let wants = move |passage: &kafka_front::Passage| {
        let is_parted =
            passage.request.commits.iter().any(|commit| commit.topic == topic && commit.is_parted());
        let is_wanted = passage.leg == leg && passage.request.api == OFFSET_COMMIT && is_parted;
        let is_over = is_wanted && left == 0;
        left = left.saturating_sub(u32::from(is_wanted));
        is_over
    };
    let commit = scene.stage.servers.kafka_gate().trap("commit of a block in parts", wants);
    let commit = commit.caught(STEP_PATIENCE).await?;
    let insert = match step {
        2 => Some(sink_front::Leg::Head),
        3 => Some(sink_front::Leg::Answered),
        _ => None,
    };
    let killed = if let Some(leg) = insert {
        let trap =
            scene.stage.servers.sink.gate().trap("insert behind it", move |passage| passage.leg == leg);
        commit.decide(kafka_front::Verdict::default());
        kill::die(scene, trap.caught(STEP_PATIENCE).await?, Verdict::Reset).await?
    } else {
        kill::die(scene, commit, kafka_front::Verdict::Reset).await?
    };
    kill::come_back(scene)?;
    Ok(killed)
}

async fn too_large(scene: &mut Scene<'_>) -> Result<Expected> {
    let message = "Too many partitions for single INSERT block (more than 100).";
    let verdict = Verdict::Answer(Answer::exception(500, 252, "TOO_MANY_PARTS", message));
    let is_large = |passage: &sink_front::Passage| {
        passage.leg == sink_front::Leg::Head && passage.body_bytes > BODY_BYTES_MAX
    };
    let servers = &scene.stage.servers;
    let rule = servers.sink.gate().rule(TOO_LARGE, verdict, is_large);
    scene.wait_applied("inserts that are too large", &rule, TOO_LARGE).await?;
    let over = Instant::now();
    drop(rule);
    scene.recover(over).await
}

/// Ends the load, waits until everything is inserted or a letter, and compares the letters with the refused rows.
async fn all_letters(
    scene: &mut Scene<'_>,
    constraint: Constraint,
    recovery_s: Option<f64>,
) -> Result<Expected> {
    let sent = scene.stop_load().await?.clone();
    scene.wait_committed_within(0, SETTLE_PATIENCE).await?;
    let (brokers, topic) = (scene.stage.servers.kafka(), scene.topic.dead_letters()?);
    let (name, marks) = (topic.name().to_owned(), topic.watermarks().await?);
    let letters = tokio::task::spawn_blocking(move || read_letters(&brokers, &name, &marks)).await??;
    topic.delete().await?;
    let (must, doubtful) = (constraint.refused(&sent.acked), constraint.refused(&sent.doubtful));
    ensure!(!must.is_empty(), "no row was refused");
    let missing = must.difference(&letters).count();
    let other = letters.iter().filter(|number| !must.contains(number) && !doubtful.contains(number)).count();
    ensure!(
        missing == 0 && other == 0,
        "of {} refused rows {missing} have no letter, and {other} letters are of no such row",
        must.len()
    );
    let lost = u64::try_from(must.len()).context("count letters")?;
    Ok(Expected { lost, recovery_s, ..Expected::default() })
}

/// The numbers of the spans in a dead-letter topic. Each letter must have its reason.
fn read_letters(brokers: &str, topic: &str, marks: &[Watermarks]) -> Result<BTreeSet<u64>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "sluice-e2e-looks")
        .set("enable.auto.commit", "false")
        .create()
        .context("make a reader of dead letters")?;
    let mut list = TopicPartitionList::new();
    for found in marks {
        list.add_partition_offset(topic, found.partition, Offset::Offset(found.low))?;
    }
    let mut left: i64 = marks.iter().map(|found| found.high - found.low).sum();
    consumer.assign(&list).context("read the dead letters")?;
    let (mut numbers, deadline) = (BTreeSet::new(), Instant::now() + READ_PATIENCE);
    while left > 0 {
        ensure!(Instant::now() < deadline, "{left} dead letters were not read within {READ_PATIENCE:?}");
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            let message = message.context("read a dead letter")?;
            numbers.insert(number(&message)?);
            left -= 1;
        }
    }
    Ok(numbers)
}

/// The number of the span in a letter.
fn number(letter: &BorrowedMessage<'_>) -> Result<u64> {
    let header = |name: &str| {
        let headers = letter.headers()?;
        let found = headers.iter().find(|header| header.key == name)?;
        std::str::from_utf8(found.value?).ok().map(str::to_owned)
    };
    let said =
        ["reason", "code", "value"].map(|name| header(&format!("sluice.dev/{name}")).unwrap_or_default());
    ensure!(said == ["row_refused", "469", "span"], "a letter says {said:?}");
    let payload = letter.payload().context("a letter has a value")?;
    let key = NUMBER_KEY.as_bytes();
    let at =
        payload.windows(key.len()).position(|bytes| bytes == key).context("a letter's span has a number")?;
    // Behind the attribute's key: the key and length of the value, and in it the key of an int.
    let digits = payload.get(at + key.len() + 3..).context("a number has digits")?;
    Fields::of(digits).varint().context("a number has an end")
}
