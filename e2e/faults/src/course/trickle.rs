//! Low traffic: ten spans a second and partition. Measures how many inserts that makes, and how fresh rows are.
//!
//! The freshness of a row is the time from when its message was given to the producer until the server evaluated the default of a column.
//! The scenario adds that column. Both times come from one clock.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::{FEW, Family, ONE};
use crate::scene::{Expected, PARTITIONS, Scene};
use e2e_fixtures::produce::Feed;
use e2e_fixtures::spans::{Encoding, Shape};
use e2e_stack::process::interrupt;

/// Spans of a message: one a second for each partition.
const MESSAGE_SPANS: u64 = 10;

/// Duration, seconds: long enough that blocks which close at once do not matter.
const SECONDS: u64 = 135;

/// The same if the gateway is killed: fifteen times the age of a block.
const SECONDS_KILLED: u64 = 60;

/// The same with many partitions: three times the age of a block.
const SECONDS_MANY: u64 = 150;

/// Seconds at the beginning that do not count: saved inserts may be used at once.
const SECONDS_BEFORE: u64 = 15;

/// Largest number of inserts a second.
const INSERTS_PER_SECOND_MAX: f64 = 2.0;

/// Extra inserts that a count may have, whatever its duration: blocks may close at once, right after its begin and right before its end.
/// The gateway's own limit (`AT_ONCE` in its `batch.rs`); 0.07 a second here.
const INSERTS_AT_ONCE: u32 = 8;

/// The same if a gateway comes back meanwhile: it may also use the saved inserts of its start at once.
const INSERTS_PER_SECOND_MAX_KILLED: f64 = 3.0;

/// The same with many partitions. Only 8 have a row buffer at a time, and a block closes whenever another partition needs its buffer.
/// Measured: 6 a second; chosen: a sixth above.
const INSERTS_PER_SECOND_MAX_MANY: f64 = 7.0;

/// Upper limit of the 99th percentile of freshness.
const FRESHNESS_P99_MAX_S: f64 = 5.0;

/// The same with many partitions. Measured: 24 s; chosen: a quarter above.
const FRESHNESS_P99_MAX_S_MANY: f64 = 30.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Trickle {
    /// ten spans a second in each of 8 partitions: inserts per second, and freshness of rows
    #[value(name = "low-traffic")]
    Few,
    /// the same, with a SIGKILL of the gateway
    #[value(name = "low-traffic-kill")]
    Killed,
    /// as low-traffic, in 96 partitions
    #[value(name = "low-traffic-96")]
    Many,
}

impl Trickle {
    fn partitions(self) -> i32 {
        if self == Trickle::Many { 96 } else { PARTITIONS }
    }

    fn seconds(self) -> u64 {
        match self {
            Trickle::Few => SECONDS,
            Trickle::Killed => SECONDS_KILLED,
            Trickle::Many => SECONDS_MANY,
        }
    }

    /// Upper limits of inserts a second and of the 99th percentile of freshness; no limit of freshness if a gateway is dead meanwhile.
    fn limits(self) -> (f64, Option<f64>) {
        match self {
            Trickle::Few => (INSERTS_PER_SECOND_MAX, Some(FRESHNESS_P99_MAX_S)),
            Trickle::Killed => (INSERTS_PER_SECOND_MAX_KILLED, None),
            Trickle::Many => (INSERTS_PER_SECOND_MAX_MANY, Some(FRESHNESS_P99_MAX_S_MANY)),
        }
    }

    async fn trickle(self, scene: &mut Scene<'_>) -> Result<Counted> {
        let feed =
            Feed { spans_per_second: None, partitions: self.partitions(), ..scene.feed(Encoding::OtlpProto) };
        let stored = scene.stage.servers.sink.stored();
        let (mut at, mut counted) = (HashMap::new(), None);
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        for second in 0..self.seconds() {
            clock.tick().await;
            interrupt::check()?;
            if second == SECONDS_BEFORE {
                counted = Some((Instant::now(), stored.borrow().inserts));
            }
            if self == Trickle::Killed && second == self.seconds() / 2 {
                scene.restart(0).await?;
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).context("read the clock")?.as_secs_f64();
            let starts =
                (0..u64::try_from(feed.partitions)?).map(|partition| number(&feed, second, partition));
            let starts: Vec<u64> = starts.collect::<Result<_>>()?;
            at.extend(starts.iter().map(|start| (start / MESSAGE_SPANS, now)));
            let producer = scene.producer.clone();
            let sending = starts.iter().map(|start| producer.produce(&feed, *start..start + MESSAGE_SPANS));
            for sent in try_join_all(sending).await? {
                scene.add(sent);
            }
        }
        let (since, before) = counted.context("it is over before it counts")?;
        let inserts = u32::try_from(stored.borrow().inserts - before)?;
        Ok(Counted { produced: at, inserts, seconds: since.elapsed().as_secs_f64() })
    }
}

impl Family for Trickle {
    fn rounds(self) -> u32 {
        if self == Trickle::Many { ONE } else { FEW }
    }

    /// Gateways close blocks as they do by default.
    fn change(self) -> Value {
        json!({"sink": {"clickhouse": {"insert": {"maxRows": 100_000, "maxInterval": "1s"}}}})
    }

    async fn play(self, scene: &mut Scene<'_>) -> Result<Expected> {
        if self.partitions() > PARTITIONS {
            scene.topic.grow(self.partitions()).await?;
            scene.renew_producer()?;
        }
        scene.alter("ADD COLUMN InsertedAt DateTime64(6) DEFAULT now64(6)").await?;
        scene.start_gateway(Some("gateway-0"))?;
        let Counted { produced, inserts, seconds } = self.trickle(scene).await?;
        scene.wait_stored().await?;
        let fresh = freshness(scene, &produced).await?;
        let p99 = fresh[fresh.len() * 99 / 100];
        let (inserts_max, p99_max) = self.limits();
        let beyond = inserts.saturating_sub(INSERTS_AT_ONCE);
        ensure!(
            f64::from(beyond) <= inserts_max * seconds,
            "{inserts} inserts in {seconds:.0} s, over {inserts_max} a second and {INSERTS_AT_ONCE}"
        );
        ensure!(
            p99_max.is_none_or(|p99_max| p99 < p99_max),
            "one row in a hundred is older than {p99:.2} s, over {p99_max:?}"
        );
        let measures = vec![
            ("inserts_per_second", f64::from(inserts) / seconds),
            ("freshness_p50_s", fresh[fresh.len() / 2]),
            ("freshness_p99_s", p99),
            ("freshness_max_s", fresh[fresh.len() - 1]),
        ];
        Ok(Expected { measures, ..Expected::default() })
    }
}

/// The produced messages, and the inserts after the first seconds.
struct Counted {
    /// When each message was produced, by its first number in tens.
    produced: HashMap<u64, f64>,
    inserts: u32,
    /// The duration of the count, seconds.
    seconds: f64,
}

/// The first number of a partition's message in a second: each hundred numbers belong to one partition.
fn number(feed: &Feed, second: u64, partition: u64) -> Result<u64> {
    let hundred = Shape::Numbered.message_spans();
    let messages = hundred / MESSAGE_SPANS;
    let round = second / messages * u64::try_from(feed.partitions)? + partition;
    Ok(round * hundred + second % messages * MESSAGE_SPANS)
}

/// The freshness of each row in seconds, ascending.
async fn freshness(scene: &Scene<'_>, produced: &HashMap<u64, f64>) -> Result<Vec<f64>> {
    let query = format!(
        "SELECT intDiv(assumeNotNull(SpanAttributes.`sluice`.`seq`.:`Int64`), {MESSAGE_SPANS}), \
         toFloat64(InsertedAt) FROM {}",
        scene.table()
    );
    let rows = scene.stage.servers.server.text(&query, "TSV").await?;
    let mut fresh = Vec::new();
    for row in rows.lines() {
        let (message, inserted) = row.split_once('\t').with_context(|| format!("read {row:?}"))?;
        let since = produced.get(&message.parse()?).with_context(|| format!("{row:?} was not produced"))?;
        fresh.push(inserted.parse::<f64>()? - since);
    }
    fresh.sort_by(f64::total_cmp);
    ensure!(!fresh.is_empty(), "there are no rows");
    Ok(fresh)
}
