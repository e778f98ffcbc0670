//! One scenario from its start to its end.
//!
//! ```text
//! gateway reads -> after a quarter and a second of inserts: sink outage -> time passes -> sink is back -> all committed -> SIGTERM -> counts
//! ```

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::Plan;
use super::front::{Behaviour, Front};
use super::gateway::{Gateway, Usage, write_config};
use super::load::{Filling, Load};
use super::pace::Pace;
use super::report::Outcome;
use super::scenario::{Outage, SIZES, Size, oversized_mib};
use crate::figures::{broken, float, mib};
use crate::throughput::{Columns, NullSink, Stored};
use e2e_fixtures::gateway::{Orders, metric, table_statements};
use e2e_stack::paths::create_folder;
use e2e_stack::process::interrupt;
use e2e_stack::say;

/// Time between two checks of the gateway: ten in the window of a rate.
const LOOK: Duration = Duration::from_millis(100);

/// A run that neither reads nor inserts for this long, while the sink works, has failed. Longer than the first rebalance.
const STALL: Duration = Duration::from_mins(1);

/// How soon full speed must be back.
const RECOVERY_MAX_S: f64 = 5.0;

const OVERSIZED_PARTITION: i32 = 3;

/// How long the other partitions are watched after one has stopped, so that a late failure is seen.
const WATCH: Duration = Duration::from_secs(5);

/// The settings of the runs, and the folder for their configs and logs.
pub struct Course {
    pub plan: Plan,
    pub folder: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Progress {
    read: f64,
    /// Rows that the sink has acknowledged.
    inserted: f64,
}

/// A running gateway, and the sink that it writes to.
struct Scene {
    gateway: Gateway,
    front: Front,
    sink: NullSink,
    group: String,
    began: Instant,
    pace: Pace,
}

impl Course {
    /// The gateway reads a backlog while the sink has an outage.
    pub async fn backlog(&self, name: &str, size: &Size, outage: &Outage, load: &Load) -> Result<Outcome> {
        let outcome = self.backlog_in(name, size, outage, load).await;
        load.topic.delete_group(&group_of(name, load)).await?;
        outcome
    }

    async fn backlog_in(&self, name: &str, size: &Size, outage: &Outage, load: &Load) -> Result<Outcome> {
        let mut scene = self.open(name, size, load)?;
        let back = match outage.behaviour {
            None => None,
            Some(behaviour) if outage.from_start => {
                scene.until_read(1).await?;
                self.away(name, &mut scene, behaviour).await?;
                None
            }
            Some(behaviour) => Some(self.outage(name, &mut scene, behaviour, load).await?),
        };
        scene.until_committed(load).await?;
        let Scene { gateway, sink, pace, .. } = scene;
        let usage = gateway.end().await?;
        let mut outcome = counted(name, size, usage, (&sink, load), 0)?;
        match back {
            // If the outage lasts from the start, there is no earlier speed to compare with.
            None if outage.from_start => {}
            None => outcome.rate = pace.rate_until(Duration::MAX),
            Some((gone, back)) => {
                outcome.rate = pace.rate_until(gone);
                outcome.recovery_s = outcome.rate.and_then(|rate| pace.recovered(back, rate));
                outcome.failures.extend(slow_return(&outcome, pace.rows_since(back)));
            }
        }
        Ok(outcome)
    }

    /// One batch is larger than the budget allows.
    pub async fn oversized(&self, name: &str, codec: &'static str, spans: u64) -> Result<Outcome> {
        let size = SIZES[0];
        let filling = Filling { batch_bytes: 512 << 10, message_spans: 4_096, padded: false, codec };
        let mut load = Load::create(&self.plan.broker, size.partitions, &filling).await?;
        let outcome = self.oversized_in(name, &size, &filling, (&mut load, spans)).await;
        let group_deleted = load.topic.delete_group(&group_of(name, &load)).await;
        load.topic.delete().await?;
        group_deleted?;
        outcome
    }

    async fn oversized_in(
        &self,
        name: &str,
        size: &Size,
        filling: &Filling,
        (load, spans): (&mut Load, u64),
    ) -> Result<Outcome> {
        load.fill(filling, spans / 2).await?;
        let large = Filling {
            batch_bytes: oversized_mib(filling.codec) << 20,
            message_spans: 100,
            padded: true,
            codec: filling.codec,
        };
        let end = load.spans + large.message_spans;
        let held = load.batch(&large, OVERSIZED_PARTITION, end).await?;
        // More batches behind it, in all partitions but its own, which stays stopped.
        let others: Vec<i32> = (0..size.partitions).filter(|number| *number != OVERSIZED_PARTITION).collect();
        let rest = load.spans + spans / 2;
        load.fill_partitions(filling, &others, rest).await?;
        let mut scene = self.open(name, size, load)?;
        scene.until_only_the_stopped_is_left(load).await?;
        let log = scene.gateway.log()?;
        let Scene { gateway, sink, .. } = scene;
        let usage = gateway.end().await?;
        let mut outcome = counted(name, size, usage, (&sink, load), held.end - held.start)?;
        outcome.failures.extend(unexplained(&log, oversized_mib(filling.codec)));
        Ok(outcome)
    }

    fn open(&self, name: &str, size: &Size, load: &Load) -> Result<Scene> {
        let folder = create_folder(self.folder.join(name))?;
        let group = group_of(name, load);
        let (plan, topic) = (&self.plan, load.topic.name());
        // Printing the table's statement needs no server.
        let (broker, sink) = (plan.broker.as_str(), "http://127.0.0.1:1");
        let orders = Orders { broker, topic, group: &group, sink, database: "memory" };
        let config = write_config(&orders, size, plan.queue, &folder)?;
        let sink = NullSink::start(Columns::of_table(&table_statements(&plan.program, &config)?)?)?;
        let front = Front::start(sink.url())?;
        let url = front.url();
        let orders = Orders { sink: &url, ..orders };
        say::progress(name, &format!("{} spans in {} MiB", load.spans, size.limit_mib));
        let config = write_config(&orders, size, plan.queue, &folder)?;
        let gateway = Gateway::start(&plan.program, &config, size.limit_mib, &folder)?;
        Ok(Scene { gateway, front, sink, group, began: Instant::now(), pace: Pace::default() })
    }

    /// The sink goes away once a quarter is read and inserts were seen for long enough to know their rate, and comes back. Returns when it
    /// came back, since the start.
    async fn outage(
        &self,
        name: &str,
        scene: &mut Scene,
        behaviour: Behaviour,
        load: &Load,
    ) -> Result<(Duration, Duration)> {
        scene.until_read(load.spans / 4).await?;
        while !scene.pace.has_rate() {
            let inserted = scene.look().await?.inserted;
            ensure!(
                inserted < float(load.spans),
                "all rows were inserted before the rate of inserts could be measured: increase --spans"
            );
            ensure!(
                scene.began.elapsed() < 2 * STALL,
                "the rate of inserts could not be measured within {:?}",
                2 * STALL
            );
        }
        let gone = scene.began.elapsed();
        self.away(name, scene, behaviour).await?;
        Ok((gone, scene.began.elapsed()))
    }

    /// The sink goes away for the time of an outage, and comes back.
    async fn away(&self, name: &str, scene: &mut Scene, behaviour: Behaviour) -> Result<()> {
        scene.front.behave(behaviour);
        say::progress(name, &format!("the sink is {behaviour:?} for {:?}", self.plan.outage));
        let since = Instant::now();
        while since.elapsed() < self.plan.outage {
            scene.look().await?;
        }
        scene.front.behave(Behaviour::Normal);
        Ok(())
    }
}

impl Scene {
    /// Waits a moment and checks the gateway.
    async fn look(&mut self) -> Result<Progress> {
        tokio::time::sleep(LOOK).await;
        interrupt::check()?;
        self.gateway.check()?;
        let metrics = self.gateway.metrics().await;
        let value = |name| metric(&metrics, name).unwrap_or_default();
        let progress = Progress {
            read: value("sluice_gateway_spans_total"),
            inserted: value("sluice_gateway_rows_inserted_total"),
        };
        self.pace.look(self.began.elapsed(), progress.inserted);
        Ok(progress)
    }

    async fn until_read(&mut self, spans: u64) -> Result<()> {
        let began = Instant::now();
        while self.look().await?.read < float(spans) {
            ensure!(began.elapsed() < STALL, "it did not read {spans} spans within {STALL:?}");
        }
        Ok(())
    }

    async fn until_committed(&mut self, load: &Load) -> Result<()> {
        let (mut last, mut moved) = (Progress::default(), Instant::now());
        loop {
            let progress = self.look().await?;
            if progress != last {
                (last, moved) = (progress, Instant::now());
            }
            let all_read = progress.read >= float(load.spans);
            // Each query costs Kafka a connection, so it is sent only once everything is read.
            if all_read && load.topic.lag(&self.group).await?.messages == 0 {
                return Ok(());
            }
            if moved.elapsed() > STALL {
                let lag = load.topic.lag(&self.group).await?.messages;
                if lag == 0 {
                    return Ok(());
                }
                bail!("{lag} messages behind and not moving, {} of {} spans read", progress.read, load.spans);
            }
        }
    }

    /// Waits until one partition has stopped and all others are committed, and then for [`WATCH`].
    async fn until_only_the_stopped_is_left(&mut self, load: &Load) -> Result<()> {
        let began = Instant::now();
        loop {
            self.look().await?;
            let stopped = metric(&self.gateway.metrics().await, "sluice_gateway_partitions_stopped");
            // Before it answers, no partition has stopped.
            let stopped = stopped.unwrap_or_default();
            let lag = load.topic.lag(&self.group).await?.messages;
            if (stopped - 1.0).abs() < f64::EPSILON && lag == 1 {
                break;
            }
            ensure!(
                began.elapsed() < STALL,
                "after {STALL:?}, {stopped} partitions have stopped instead of 1 and {lag} messages are left instead of 1"
            );
        }
        let stopped = Instant::now();
        while stopped.elapsed() < WATCH {
            self.look().await?;
        }
        Ok(())
    }
}

fn group_of(name: &str, load: &Load) -> String {
    format!("{}-{name}", load.topic.name())
}

/// The requirements of every run. `held` is the number of spans in a batch that must not pass.
fn counted(
    name: &str,
    size: &Size,
    usage: Usage,
    (sink, load): (&NullSink, &Load),
    held: u64,
) -> Result<Outcome> {
    let Stored { rows, lost, doubled, foreign } = sink.count(load.run, load.spans)?.stored;
    let (resident_mib, limit_mib) = (mib(usage.resident_peak), size.limit_mib);
    let failures = broken([
        (usage.kills == 0, format!("the kernel OOM-killed {} processes", usage.kills)),
        (usage.exit_code == 0, format!("it ended with code {}", usage.exit_code)),
        (lost == held, format!("{lost} spans have no row instead of {held}")),
        (doubled == 0, format!("{doubled} rows are doubled")),
        (foreign == 0, format!("{foreign} rows are of no span that was produced")),
        (resident_mib < float(limit_mib), format!("{resident_mib:.1} MiB resident in {limit_mib} MiB")),
    ]);
    Ok(Outcome {
        name: name.to_owned(),
        limit_mib,
        peak_rss_mib: resident_mib,
        peak_anonymous_mib: mib(usage.anonymous_peak),
        kills: usage.kills,
        spans: load.spans,
        rows,
        lost,
        doubled,
        rate: None,
        recovery_s: None,
        failures,
    })
}

/// Full speed must be back in time, if enough of the backlog was left to measure that.
fn slow_return(outcome: &Outcome, left: f64) -> Option<String> {
    let Some(rate) = outcome.rate else {
        return Some("too few inserts before the outage to measure full speed".to_owned());
    };
    match outcome.recovery_s {
        Some(seconds) if seconds <= RECOVERY_MAX_S => None,
        Some(seconds) => Some(format!("full speed was back only after {seconds:.1} s")),
        // Enough was left for two windows, and no window was at full speed.
        None if left >= 2.0 * rate => Some("full speed was not back".to_owned()),
        None => None,
    }
}

/// One log line must say what stopped and which setting would help.
fn unexplained(log: &str, batch_mib: u64) -> Option<String> {
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("its partition stops")).collect();
    match lines.as_slice() {
        [line] if says_what_would_do(line, batch_mib) => {
            say::line(line);
            None
        }
        [line] => Some(format!("the log line names no remedy: {line}")),
        others => Some(format!("{} lines say why the partition stopped", others.len())),
    }
}

/// Whether the line has a limit and the batch's size, or the next MiB if only an upper bound of the size is known.
fn says_what_would_do(line: &str, batch_mib: u64) -> bool {
    let sizes = [batch_mib, batch_mib + 1];
    let said = |size| line.contains(&format!("recordBatchBytesMax: {size}Mi with memory.limit: "));
    sizes.into_iter().any(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::scenario::Scenario;

    #[test]
    fn a_return_is_slow_or_unknown_unless_full_speed_was_seen_again() {
        let steady = Scenario::all()[0];
        let outcome = |rate, recovery_s| Outcome { rate, recovery_s, ..Outcome::ended(&steady, "") };
        assert!(slow_return(&outcome(None, None), 1e6).is_some(), "there is nothing to compare with");
        assert!(slow_return(&outcome(Some(100.0), Some(RECOVERY_MAX_S + 1.0)), 1e6).is_some());
        assert!(slow_return(&outcome(Some(100.0), None), 200.0).is_some());
        assert_eq!(slow_return(&outcome(Some(100.0), None), 100.0), None, "the rest was too short");
        assert_eq!(slow_return(&outcome(Some(100.0), Some(1.0)), 1e6), None);
    }
}
