//! `sluice-gateway drain`: empties a queue volume whose gateway is gone.
//!
//! Place in the flow: the operator or a person runs it beside the gateways, with the volume mounted at the config's path. It joins no
//! group and commits nothing. Kafka's answers decide what happens to each block ([`crate::volume::only_copy`]). Blocks are inserted like a
//! gateway's, under their own tokens, with the same retries, parts and dead letters.
//!
//! ```text
//!  claim, open --> ask Kafka --> drop blocks that are in the table or are read again --> insert the rest --> report
//!                     |                                                                                    |
//!                     `-- no answer: blocks are left, exit code 69 ----------------------------------------'
//! ```
//!
//! It may be killed at any moment, and run again. Inserted blocks are marked, and the server knows their tokens. A block that was found
//! to be an only copy is recorded as such before it is inserted, and stays one.
//!
//! Rows may be duplicated, and are counted then: those of blocks that were sent before and whose tokens the server may have forgotten;
//! those of messages that are in the table or are read again although other messages of the block are not; and those of blocks that were
//! never sent and whose end other owners may not know.
//!
//! Owner: the command's thread. Limits: [`Request::timeout`] without progress; the memory of a gateway with this config, without its Kafka
//! consumer and its pool.

mod inserts;
mod logs;
mod report;

pub use report::{Damaged, Fate, Problem, Report, Tally};

use crate::{
    delivery::retry::{self, Pace},
    ground::{
        account::RowAccount,
        metrics::{Metrics, ROW_REFUSED},
    },
    source::opening,
    table::sink,
    volume::{
        only_copy::{
            Fits, Judged, Logs, OnlyCopyBlock, OnlyCopySender, RowLocation, Unsendable, judge, partition_of,
        },
        spool::{self, Ended, LeftBlock, Missing, Spool},
    },
};
use crossbeam_channel::{Receiver, bounded};
use inserts::Inserts;
use sluice_clickhouse::column::TableColumns;
use sluice_gateway_config::{CheckedConfig, Commit, GatewayConfig, Kafka};
use sluice_kafka::{Patience, TopicReader};
use sluice_ranges::PartitionId;
use sluice_spool::{Fatal, Identity, Options, Recovered, Volume};
use std::{
    collections::BTreeSet,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long brokers may take to answer. Chosen: longer than the election of a coordinator.
const PATIENCE: Patience = Patience { answer: Duration::from_secs(10), message: Duration::from_secs(10) };

/// How often the remaining blocks are reported.
const SAY_INTERVAL: Duration = Duration::from_secs(5);

/// How long the volume may take to sync at the end.
const CLOSE_WAIT: Duration = Duration::from_secs(30);

/// The options of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// How long it runs without progress.
    pub timeout: Duration,
    /// Whether to give up records that cannot be read and are the only copy of their rows.
    pub give_up_damaged: bool,
}

/// The progress of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The current action.
    pub action: &'a str,
    /// The remaining readable blocks.
    pub left: Tally,
    /// The remaining records that cannot be read.
    pub damaged: usize,
}

/// Why a volume cannot be drained.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Gateways of the other kind have left something on it, which only they read.
    #[error(
        "the queue volume {path} has {what} of a gateway with {source_kind}: empty it with that config; nothing was changed"
    )]
    OfOther {
        /// Its path.
        path: String,
        /// What they have left.
        what: &'static str,
        /// Their source.
        source_kind: &'static str,
    },
    /// Its folders cannot be listed.
    #[error("{0:#}; nothing was changed")]
    Unlisted(anyhow::Error),
    /// It cannot be claimed.
    #[error("{0}; nothing was changed")]
    Volume(#[from] sluice_spool::Error),
    /// It cannot be opened.
    #[error(transparent)]
    Spool(#[from] spool::Error),
    /// A call on it failed.
    #[error("the queue volume has failed, and the last changes may not be on it: {0}")]
    Failed(Fatal),
    /// It did not close in time.
    #[error("the queue volume did not sync within {} s", CLOSE_WAIT.as_secs())]
    Close,
    /// No runtime.
    #[error("cannot start the I/O runtime: {0}")]
    Runtime(std::io::Error),
}

/// Empties the volume of the config as far as possible. Calls `tell` with each step and, while it takes long, with what is left.
pub fn drain(
    checked: &CheckedConfig,
    request: Request,
    tell: impl FnMut(&Progress<'_>),
) -> Result<Report, Error> {
    let config = checked.config();
    let Some(kafka) = config.source.kafka.as_ref() else {
        return logs::look(config, request.give_up_damaged);
    };
    let path = Path::new(&config.queue.path);
    let identity = Identity::of(&config.pipeline.namespace, &config.pipeline.name);
    let volume = Volume::claim(path, &identity)?;
    if let Some(what) = opening::left(path).map_err(Error::Unlisted)?.of_logs() {
        return Err(Error::OfOther { path: config.queue.path.clone(), what, source_kind: "source.otlp" });
    }
    let enqueues = config.delivery.commit == Commit::AfterEnqueue;
    let bytes_max = config.queue.bytes_max(volume.space()?.total);
    let options = Options::new(identity.number(), bytes_max, enqueues);
    let (failed_out, failed) = bounded(1);
    let (spool, recovered) = Spool::start(path, options, move |fatal| {
        if failed_out.try_send(fatal).is_err() {
            // The command has ended already.
        }
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let mut course = DrainRun {
        config,
        kafka,
        request,
        tell,
        metrics: Arc::new(Metrics::new(checked.budget())),
        account: RowAccount::default(),
        failed,
        moved: Instant::now(),
        said: Instant::now(),
        report: Report { volume: config.queue.path.clone(), ..Report::default() },
        spool: spool.clone(),
    };
    runtime.map_err(Error::Runtime)?.block_on(course.run(&recovered))?;
    let DrainRun { report, failed, .. } = course;
    if let Ok(fatal) = failed.try_recv() {
        return Err(Error::Failed(fatal));
    }
    if !spool.close(CLOSE_WAIT) {
        return Err(failed.try_recv().map_or(Error::Close, Error::Failed));
    }
    Ok(report)
}

struct DrainRun<'a, F> {
    config: &'a GatewayConfig,
    kafka: &'a Kafka,
    request: Request,
    tell: F,
    spool: Spool,
    metrics: Arc<Metrics>,
    account: RowAccount,
    /// Receives a failure of the volume.
    failed: Receiver<Fatal>,
    /// The time of the last progress.
    moved: Instant,
    said: Instant,
    report: Report,
}

/// No server has answered in time.
struct Away(String);

impl<F: FnMut(&Progress<'_>)> DrainRun<'_, F> {
    async fn run(&mut self, recovered: &Recovered) -> Result<(), Error> {
        let left = self.spool.left().take_all();
        for block in &left {
            self.report.found += Tally::of(block.rows());
        }
        self.report.left = self.report.found;
        self.report.damaged = damaged(recovered);
        self.say("opened the queue volume");
        if self.spool.usage().blocks > self.report.found.blocks {
            let text = "blocks became unreadable during this run; run it again".to_owned();
            self.report.problem = Some(Problem::ByHand(text));
        }
        if self.report.is_empty() {
            return Ok(());
        }
        let partitions = partitions(&left, recovered);
        let logs = match self.ask(partitions).await {
            Ok(logs) => logs,
            Err(Away(text)) => {
                self.report.problem = Some(Problem::Unavailable(text));
                return Ok(());
            }
        };
        self.judge_damaged(&logs);
        let only_copies = self.drop_others(judge(left, &logs, &self.spool).await);
        self.say("asked Kafka");
        if !only_copies.is_empty() {
            self.insert(only_copies).await?;
        }
        if self.report.problem.is_none() && !self.report.is_empty() {
            let count = self.report.damaged.iter().filter(|damaged| damaged.stays()).count();
            let text = format!("{count} records cannot be read and may be the only copy of their rows");
            self.report.problem = Some(Problem::ByHand(text));
        }
        self.own_up();
        Ok(())
    }

    /// Reports lost rows as a problem, even if nothing is left and nothing can be done: the next run would find an empty volume and report
    /// success. Records that the user gave up do not count.
    fn own_up(&mut self) {
        let torn = self.report.damaged.iter().filter(|damaged| damaged.fate == Fate::Lost).count();
        if self.report.lost.rows == 0 && torn == 0 {
            return;
        }
        let lost = format!(
            "{} could not be read any more and {torn} records were incomplete, and they were the only copy of their rows",
            self.report.lost
        );
        self.report.problem = Some(Problem::Lost(match &self.report.problem {
            None => lost,
            Some(other) => format!("{lost}; {other}"),
        }));
    }

    /// Asks Kafka until it answers, or the time is over.
    async fn ask(&mut self, partitions: BTreeSet<PartitionId>) -> Result<Logs, Away> {
        for tries in 1.. {
            let kafka = self.kafka.clone();
            let wanted = partitions.clone();
            let asked = tokio::task::spawn_blocking(move || {
                let reader = TopicReader::new(&kafka, "drain", PATIENCE)?;
                Logs::ask(&reader, &kafka, &wanted)
            });
            match asked.await {
                Ok(Ok(logs)) => return Ok(logs),
                Ok(Err(error)) => self.again(&error.to_string(), tries).await?,
                Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            }
        }
        unreachable!("it is asked until the time is over")
    }

    /// Waits before the next try, unless the time is over.
    async fn again(&mut self, error: &str, tries: u32) -> Result<(), Away> {
        if self.moved.elapsed() >= self.request.timeout {
            let seconds = self.request.timeout.as_secs();
            return Err(Away(format!("no progress for {seconds} s (--timeout): {error}")));
        }
        if self.said.elapsed() >= SAY_INTERVAL || tries == 1 {
            self.say(&format!("{error}; asking again"));
        }
        tokio::time::sleep(retry::wait(Pace::Quick, tries, 1.0)).await;
        Ok(())
    }

    fn judge_damaged(&mut self, logs: &Logs) {
        let enqueues = self.config.delivery.commit == Commit::AfterEnqueue;
        // In the order in which they were found when the volume was opened.
        for (damaged, missing) in self.report.damaged.iter_mut().zip(self.spool.left().take_missing()) {
            let is_unknown = missing.is_enqueued(enqueues) && !self.request.give_up_damaged;
            damaged.fate = match (logs.whereabouts_of_missing(&missing, enqueues), missing.record) {
                (Some(RowLocation::Settled), _) => Fate::Settled,
                (Some(RowLocation::OnlyCopy(_)), None) => Fate::Lost,
                (None, None) if is_unknown => Fate::Unknown,
                // An incomplete record was never the reason for a commit: its messages are read again, whatever it contained.
                (Some(RowLocation::InKafka), _) | (None, None) => Fate::InKafka,
                (_, Some(_)) if self.request.give_up_damaged => Fate::GivenUp,
                (Some(RowLocation::OnlyCopy(_)), Some(_)) => Fate::Nowhere,
                (None, Some(_)) => Fate::Unknown,
            };
            if let Some(record) = missing.record.filter(|_| !damaged.stays()) {
                self.spool.end(record, Ended::Damaged);
            }
        }
    }

    /// Drops blocks that are in the table or are read again, and returns the others.
    fn drop_others(&mut self, Judged { settled, in_kafka, only_copies }: Judged) -> Vec<OnlyCopyBlock> {
        let report = &mut self.report;
        for (blocks, dropped) in [(settled, &mut report.settled), (in_kafka, &mut report.in_kafka)] {
            for block in blocks {
                let tally = Tally::of(block.rows());
                *dropped += tally;
                report.left.blocks -= tally.blocks;
                report.left.rows -= tally.rows;
                self.spool.end(block.record(), Ended::Dropped);
            }
        }
        self.moved = Instant::now();
        only_copies
    }

    async fn insert(&mut self, blocks: Vec<OnlyCopyBlock>) -> Result<(), Error> {
        let mut inserts = match self.prepare().await {
            Ok(inserts) => inserts,
            Err(Away(text)) => {
                self.report.problem = Some(Problem::Unavailable(text));
                return Ok(());
            }
        };
        let before = self.report.left;
        let sender = OnlyCopySender {
            spool: self.spool.clone(),
            account: self.account.clone(),
            metrics: self.metrics.clone(),
            route: inserts.shards().route(),
            tables: inserts.tables(),
        };
        let (mut unsent, mut why, mut fits) = (Tally::default(), None, Fits::default());
        for block in blocks {
            match sender.ready(&block, &mut fits).await {
                Ok(ready) => inserts.add(ready),
                Err(unsendable) => {
                    unsent += Tally::of(block.block().rows());
                    why.get_or_insert(unsendable);
                }
            }
        }
        let sent = Tally { blocks: before.blocks - unsent.blocks, rows: before.rows - unsent.rows };
        let is_over = self.wait(&mut inserts, sent, unsent).await?;
        if !is_over {
            let seconds = self.request.timeout.as_secs();
            let text = format!("nothing was inserted for {seconds} s (--timeout); the log says why");
            self.report.problem = Some(Problem::Unavailable(text));
        } else if let Some(why) = why {
            self.report.problem = Some(problem(unsent, &why));
        }
        Ok(())
    }

    /// Waits until the table fits, or the time is over.
    async fn prepare(&mut self) -> Result<Inserts, Away> {
        for tries in 1.. {
            let clickhouse = &self.config.sink.clickhouse;
            let shards = sink::shards(clickhouse).map_err(|error| Away(error.to_string()))?;
            match sink::check_shards(&shards).await {
                Ok(fit) => {
                    self.moved = Instant::now();
                    return self.inserts(shards, &fit.columns).await;
                }
                Err(error) => self.again(&error.to_string(), tries).await?,
            }
        }
        unreachable!("it is asked until the time is over")
    }

    async fn inserts(&self, shards: Vec<sink::Sink>, columns: &TableColumns) -> Result<Inserts, Away> {
        let made = Inserts::new((self.config, self.kafka), shards, columns, &self.metrics, &self.spool).await;
        made.map_err(|error| Away(error.to_string()))
    }

    /// Waits until `sent` is stored, and reports periodically. `false` without progress for too long.
    async fn wait(&mut self, inserts: &mut Inserts, sent: Tally, unsent: Tally) -> Result<bool, Error> {
        self.moved = Instant::now();
        let is_over = loop {
            let ended = tokio::time::timeout(SAY_INTERVAL, inserts.next()).await;
            self.count(sent, unsent);
            match ended {
                Ok(true) => self.moved = Instant::now(),
                Ok(false) => break true,
                Err(_) => {}
            }
            if self.said.elapsed() >= SAY_INTERVAL {
                self.say("inserting");
            }
            if let Ok(fatal) = self.failed.try_recv() {
                return Err(Error::Failed(fatal));
            }
            if self.moved.elapsed() >= self.request.timeout {
                break false;
            }
        };
        self.say("inserted");
        Ok(is_over)
    }

    /// Counts the results of the inserts.
    fn count(&mut self, sent: Tally, unsent: Tally) {
        let metrics = &self.metrics;
        let in_flight = u64::try_from(metrics.blocks_in_flight.get()).unwrap_or(0);
        let report = &mut self.report;
        report.dead_lettered_rows = metrics.dead_letters.with_label_values(&[ROW_REFUSED]).get();
        report.skipped_rows = metrics.refused.rows_skipped.get();
        report.possible_duplicate_rows = metrics.guarantee.possible_duplicate_rows.get();
        let rows_left = self.account.in_flight();
        let lost_rows = metrics.spool.rows_lost.get();
        let blocks = metrics.blocks_inserted.get();
        // A block that is just ending may be counted in two places; once all have ended, none is.
        let rows = sent.rows.saturating_sub(rows_left).saturating_sub(lost_rows);
        let lost_blocks = sent.blocks.saturating_sub(in_flight).saturating_sub(blocks);
        report.inserted = Tally { blocks, rows };
        report.lost = Tally { blocks: lost_blocks, rows: lost_rows };
        report.left = Tally { blocks: in_flight, rows: rows_left };
        report.left += unsent;
    }

    fn say(&mut self, action: &str) {
        self.said = Instant::now();
        let damaged = self.report.damaged.iter().filter(|damaged| damaged.stays()).count();
        (self.tell)(&Progress { action, left: self.report.left, damaged });
    }
}

/// Why blocks were not sent.
fn problem(unsent: Tally, why: &Unsendable) -> Problem {
    match why {
        Unsendable::Unfit(_) => Problem::ByHand(format!(
            "the table does not accept {unsent}: {why}. Give it those columns, or name a table that has them in the config"
        )),
        Unsendable::Unknown(_) => {
            Problem::Unavailable(format!("no server says whether the table accepts {unsent}: {why}"))
        }
        Unsendable::Foreign => Problem::ByHand(format!(
            "{unsent} cannot be sent: {why}. Run `drain` of the sluice-gateway version that wrote them"
        )),
    }
}

/// The records that cannot be read, in the order in which they were found. Their fate is not known yet.
fn damaged(recovered: &Recovered) -> Vec<Damaged> {
    let found = Missing::found(recovered).map(|(file, reason, missing)| {
        let covers = missing.covers.as_ref();
        Damaged {
            file: file.to_owned(),
            reason: reason.to_owned(),
            partition: covers.map(|c| format!("{}/{}", c.partition.topic, c.partition.partition)),
            first: covers.map(|covers| covers.first),
            next: covers.map(|covers| covers.next),
            rows: covers.map(|covers| covers.rows),
            fate: Fate::Unknown,
        }
    });
    found.collect()
}

/// The partitions of a volume's blocks and unreadable records.
fn partitions(left: &[LeftBlock], recovered: &Recovered) -> BTreeSet<PartitionId> {
    let covers = Missing::found(recovered).filter_map(|(_, _, missing)| missing.covers);
    let of_missing = covers.map(|covers| partition_of(&covers));
    left.iter().map(LeftBlock::partition).chain(of_missing).collect()
}
