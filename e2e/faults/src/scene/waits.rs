//! Waits for an observed state of a round: of gateways, of the table, of the group.
//!
//! Owner: the round. Limits: [`PATIENCE`], or the given one; the error of a missed deadline has the last state.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::load::{Feeding, SPANS_AFTER};
use super::{Expected, PATIENCE, Scene};
use crate::course::spooled::is_same;
use crate::course::volume::as_real;
use crate::front::Way;
use crate::gate::Rule;
use crate::sink_front::{SinkFront, Stored};
use e2e_fixtures::cluster::{Seen, until};
use e2e_stack::process::interrupt;
use tokio::sync::watch;

/// How long it may take until a stopped partition is reported as stuck, or no longer so: twice the gateway's two minutes.
const WATCHDOG_PATIENCE: Duration = Duration::from_mins(4);

impl<'a> Scene<'a> {
    /// Waits until a line in the log of gateway 0 contains this.
    pub async fn wait_logged(&mut self, text: &str) -> Result<()> {
        self.wait(&format!("\"{text}\" in the log"), PATIENCE, async |scene| {
            Ok(Seen::when(scene.lines_logged(text)? > 0, || "no such line".to_owned()))
        })
        .await
    }

    /// How many lines in the log of gateway 0 contain this, of all its processes.
    pub fn lines_logged(&self, text: &str) -> Result<usize> {
        let log = self.members[0].gateway.log();
        let log = std::fs::read_to_string(log).context("read a gateway's log")?;
        Ok(log.lines().filter(|line| line.contains(text)).count())
    }

    /// Waits until gateway 0 reports that it is ready, or is not; returns why not.
    pub async fn wait_ready(&mut self, wanted: bool) -> Result<Option<String>> {
        let what = if wanted { "a ready gateway" } else { "a gateway that is not ready" };
        self.wait(what, WATCHDOG_PATIENCE, async |scene| {
            let unready = scene.gateway(0).admin().unready().await?;
            let seen = format!("{unready:?}");
            Ok(if unready.is_none() == wanted { Seen::Done(unready) } else { Seen::NotYet(seen) })
        })
        .await
    }

    /// Waits until gateways got answers for `more` inserts from now on.
    pub async fn wait_inserts(&mut self, more: u64) -> Result<()> {
        let stage = self.stage;
        self.wait_inserts_at(&stage.servers.sink, more).await
    }

    /// As [`Self::wait_inserts`], for inserts through one front.
    pub async fn wait_inserts_at(&mut self, front: &SinkFront, more: u64) -> Result<()> {
        let wanted = front.stored().borrow().inserts + more;
        self.wait_inserts_up_to(front, wanted).await
    }

    /// Waits until gateways got answers for this many inserts through one front, since its start.
    pub async fn wait_inserts_up_to(&mut self, front: &SinkFront, wanted: u64) -> Result<()> {
        let stored = front.stored();
        self.wait("inserts", PATIENCE, async |_| {
            let inserts = stored.borrow().inserts;
            Ok(Seen::when(inserts >= wanted, || format!("{inserts} of {wanted}")))
        })
        .await
    }

    /// Waits until the load had `more` spans acknowledged from now on.
    pub async fn wait_acked(&mut self, more: u64) -> Result<()> {
        let wanted = self.load.as_ref().map_or(0, Feeding::acked) + more;
        self.wait("acknowledged spans", PATIENCE, async |scene| {
            let acked = scene.load.as_ref().map_or(0, Feeding::acked);
            Ok(Seen::when(acked >= wanted, || format!("{acked} of {wanted}")))
        })
        .await
    }

    /// Waits until a front has applied a rule so often.
    pub async fn wait_applied<P, V>(&mut self, what: &str, rule: &Rule<'_, P, V>, times: u32) -> Result<()> {
        self.wait(what, PATIENCE, async |_| {
            let applied = rule.applied();
            Ok(Seen::when(applied >= times, || format!("{applied} of {times}")))
        })
        .await
    }

    /// Waits until a metric of a gateway is as wanted: summed over its labels, or with exactly the labels that `name` has.
    pub async fn wait_metric(
        &mut self,
        number: usize,
        name: &str,
        wanted: impl Fn(f64) -> bool,
    ) -> Result<f64> {
        self.wait_metric_within(number, name, PATIENCE, wanted).await
    }

    pub async fn wait_metric_within(
        &mut self,
        number: usize,
        name: &str,
        patience: Duration,
        wanted: impl Fn(f64) -> bool,
    ) -> Result<f64> {
        self.wait(name, patience, async |scene| {
            let value = scene.members[number].gateway.metric(name).await;
            Ok(Seen::of(value.filter(|value| wanted(*value)), || format!("{value:?}")))
        })
        .await
    }

    /// Connections to ClickHouse go this way while `act` runs, and are open again after it.
    pub async fn while_sink_goes<T>(
        &mut self,
        way: Way,
        act: impl AsyncFnOnce(&mut Scene<'a>) -> Result<T>,
    ) -> Result<T> {
        let sink = &self.stage.servers.sink;
        sink.go(way);
        let done = act(self).await;
        sink.go(Way::Open);
        done
    }

    /// Waits for an insert after the end of a fault, and for more of the load. Returns what a course then expects if no span is lost or
    /// doubled.
    pub async fn recover(&mut self, since: Instant) -> Result<Expected> {
        let recovery_s = Some(self.recovered(since).await?);
        self.wait_acked(SPANS_AFTER).await?;
        Ok(Expected { recovery_s, ..Expected::default() })
    }

    /// Seconds from `since` until a gateway got the answer of an insert, not counting those before this call.
    pub async fn recovered(&mut self, since: Instant) -> Result<f64> {
        self.recovered_at(self.stage.servers.sink.stored(), since).await
    }

    /// As [`Self::recovered`], for one server, whose stored INSERTs are in `stored`.
    pub async fn recovered_at(&mut self, stored: watch::Receiver<Stored>, since: Instant) -> Result<f64> {
        let asked = Instant::now();
        let last = self
            .wait("an insert after the fault", PATIENCE, async |_| {
                let last = stored.borrow().last.filter(|last| *last > asked);
                Ok(Seen::of(last, || "none".to_owned()))
            })
            .await?;
        Ok(last.duration_since(since).as_secs_f64())
    }

    /// Waits until the group has committed all but so many messages.
    pub async fn wait_committed(&mut self, messages_left: i64) -> Result<()> {
        self.wait_committed_within(messages_left, PATIENCE).await
    }

    pub async fn wait_committed_within(&mut self, messages_left: i64, patience: Duration) -> Result<()> {
        self.wait("everything committed", patience, async |scene| {
            let lag = scene.topic.lag(&scene.group).await?;
            Ok(Seen::when(lag.messages == messages_left, || format!("{} messages are left", lag.messages)))
        })
        .await
    }

    /// Waits until the group has committed everything except messages of this partition.
    pub async fn wait_committed_but(&mut self, partition: usize) -> Result<()> {
        self.wait(&format!("everything committed but partition {partition}"), PATIENCE, async |scene| {
            let lag = scene.topic.lag(&scene.group).await?;
            let left = lag.by_partition.get(partition).copied().unwrap_or_default();
            let is_all = lag.messages == left && left > 0;
            Ok(Seen::when(is_all, || format!("{:?} messages are left by partition", lag.by_partition)))
        })
        .await
    }

    /// Waits until every span that Kafka has taken has a row.
    pub async fn wait_stored(&mut self) -> Result<()> {
        let (oracle, sent) = (self.oracle(), self.sent.clone());
        self.wait("everything stored", PATIENCE, async |_| {
            let missing = sent.acked.count() - oracle.count(&sent).await?.unique_acked;
            Ok(Seen::when(missing == 0, || format!("{missing} spans are missing")))
        })
        .await
    }

    /// Ends the load, and fails unless the table has as many doubled rows as this metric of gateway `number` reports.
    pub async fn ensure_doubles_told(&mut self, number: usize, metric: &str) -> Result<()> {
        let sent = self.stop_load().await?.clone();
        self.wait_committed(0).await?;
        let count = self.oracle().count(&sent).await?;
        let doubled = count.rows - count.unique;
        let told = self.wait_metric(number, metric, |_| true).await?;
        let differs = !is_same(told, as_real(doubled));
        ensure!(!differs, "{doubled} rows are doubled, but the gateway counts {told}");
        Ok(())
    }

    /// Checks until it sees the expected state, and meanwhile restarts gateways that have ended.
    pub async fn wait<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut look: impl AsyncFnMut(&mut Scene<'a>) -> Result<Seen<T>>,
    ) -> Result<T> {
        until(what, patience, async || {
            if interrupt::requested() {
                return Ok(Seen::Failed(anyhow::anyhow!("interrupted")));
            }
            // An error of a check does not end the wait; this one does.
            if let Err(failure) = self.tend() {
                return Ok(Seen::Failed(failure));
            }
            look(self).await
        })
        .await
    }
}
