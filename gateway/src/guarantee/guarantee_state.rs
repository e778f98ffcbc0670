//! What delivery relies on: for each shard, how long its tokens may be relied on and whether there are views below its table; and which
//! ranges are in doubt.
//!
//! Place in the flow: [`Watch`](super::Watch) records the servers' answers. A shipment asks about its own shard, and reports when it is in
//! doubt. A token belongs to one shard, so a shard that is away, or has no window, does not affect the tokens of others. Only the reported
//! guarantee is the weakest of all shards.
//!
//! Owner: shared, behind a lock that is held for one operation on a map, and only for blocks that failed. Limits: one entry for each block
//! in doubt.

use super::{Doubt, Load, Reason, Verdict, WINDOW_SHARE};
use crate::ground::metrics::GuaranteeMetrics;
use sluice_clickhouse::durability::Durability;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, oneshot};

/// What delivery relies on; shared. Times are on the scale of [`crate::delivery::tries`].
#[derive(Debug)]
pub struct GuaranteeState {
    metrics: GuaranteeMetrics,
    known: Mutex<Known>,
    /// Notified when a shard's servers are to be asked at once.
    ask: Notify,
}

#[derive(Debug)]
struct Known {
    /// By the shards' positions in the config: a token belongs to one shard.
    shards: Vec<OfShard>,
    /// Reasons that do not come from ClickHouse.
    beside: BTreeSet<Reason>,
    /// Shards whose servers are to be asked at once: one entry for each waiting block, and the sender that ends its wait.
    wanted: Vec<(usize, oneshot::Sender<()>)>,
    /// The shard of each range in doubt, and since when it is in doubt.
    in_doubt: BTreeMap<u64, (usize, Duration)>,
    next: u64,
}

/// The knowledge about one shard.
#[derive(Debug, Clone)]
struct OfShard {
    verdict: Verdict,
    /// The failures that acknowledged rows survive; `None` if unknown.
    durability: Option<Durability>,
    /// When its servers last answered; `None`: never.
    heard: Option<Duration>,
    /// The moment before which the servers have forgotten all tokens, and why.
    forgotten: Option<(Duration, Reason)>,
    /// When a block came last that may be elsewhere too: on other servers, or in another table.
    moved: Option<Duration>,
}

impl GuaranteeState {
    /// For this number of shards, before any answer of a server; `beside` has the reasons that do not come from ClickHouse.
    pub fn new(metrics: GuaranteeMetrics, shards: usize, beside: impl IntoIterator<Item = Reason>) -> Self {
        let known = Known {
            shards: vec![OfShard::unheard(); shards],
            beside: beside.into_iter().collect(),
            wanted: Vec::new(),
            in_doubt: BTreeMap::new(),
            next: 0,
        };
        let standing = Self { metrics, known: Mutex::new(known), ask: Notify::new() };
        standing.tell(Duration::ZERO);
        standing
    }

    /// How long a token of this shard may be relied on that was first sent at `since`.
    pub fn age_budget(&self, shard: usize, since: Duration) -> Duration {
        let known = self.known();
        let of = known.of(shard);
        let is_forgotten = of.forgotten.is_some_and(|(before, _)| since < before);
        if is_forgotten { Duration::ZERO } else { of.verdict.age_budget }
    }

    /// When a server of this shard last answered; `None`: never.
    pub fn heard(&self, shard: usize) -> Option<Duration> {
        self.known().of(shard).heard
    }

    /// Asks the servers of this shard at once, and waits until a question that started after this call has ended.
    pub async fn look(&self, shard: usize) {
        let (asked, wait) = oneshot::channel();
        self.known().wanted.push((shard, asked));
        self.ask.notify_one();
        // Ends with an error when the sender is dropped: after the question, or when the watch has ended.
        wait.await.ok();
    }

    /// Whether there are materialized views below this shard's table.
    pub fn has_views(&self, shard: usize) -> bool {
        self.known().of(shard).verdict.views
    }

    /// Records that a range of this shard is in doubt since then. Call [`Self::leave_doubt`] with the returned number when it is not any
    /// more.
    pub fn enter_doubt(&self, shard: usize, since: Duration) -> u64 {
        let mut known = self.known();
        let number = known.next;
        known.next += 1;
        known.in_doubt.insert(number, (shard, since));
        number
    }

    /// Records that the range with this number is no longer in doubt.
    pub fn leave_doubt(&self, number: u64) {
        self.known().in_doubt.remove(&number);
    }

    /// Records that a block came to this shard that may also be on other servers, or in another table.
    pub fn moved(&self, shard: usize, now: Duration) {
        self.known().shards.get_mut(shard).expect("blocks go to shards of the config").moved = Some(now);
        self.tell(now);
    }

    /// Adds or removes a reason that does not come from ClickHouse.
    pub fn beside(&self, reason: Reason, holds: bool, now: Duration) {
        let mut known = self.known();
        if holds {
            known.beside.insert(reason);
        } else {
            known.beside.remove(&reason);
        }
        drop(known);
        self.tell(now);
    }

    /// Updates the metrics, and returns the first reason why only "at least once" holds now.
    pub fn tell(&self, now: Duration) -> Option<Reason> {
        self.report(now).reasons.first().copied()
    }

    /// Updates the metrics, and returns the verdict that they show, with all reasons: the log writes the same one.
    pub fn report(&self, now: Duration) -> Verdict {
        let known = self.known();
        let doubt = known.doubt(now);
        let verdict = known.verdict(now);
        let durability = known.durability();
        drop(known);
        self.metrics.promise(verdict.reasons.first().copied());
        self.metrics.survives(durability);
        self.metrics.doubt(&doubt);
        verdict
    }

    /// Records the answer of a shard's servers; `forgot`: why they do not know earlier tokens.
    pub fn found(&self, shard: usize, verdict: Verdict, forgot: Option<Reason>, now: Duration) {
        let mut known = self.known();
        let of = known.shards.get_mut(shard).expect("only servers of the config are asked");
        of.verdict = verdict;
        of.heard = Some(now);
        if let Some(reason) = forgot {
            of.forgotten = Some((now, reason));
        }
    }

    /// Records the failures that acknowledged rows of this shard survive.
    pub fn found_durability(&self, shard: usize, durability: Option<Durability>) {
        let mut known = self.known();
        known.shards.get_mut(shard).expect("only servers of the config are asked").durability = durability;
    }

    /// The failures that acknowledged rows survive on all shards.
    pub fn durability(&self) -> Option<Durability> {
        self.known().durability()
    }

    /// Shards whose servers are to be asked at once, with the senders to drop after that.
    pub(super) fn take_wanted(&self) -> Vec<(usize, oneshot::Sender<()>)> {
        std::mem::take(&mut self.known().wanted)
    }

    /// Waits until servers are to be asked at once.
    pub(super) async fn wanted(&self) {
        self.ask.notified().await;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Poisoning is harmless: each change sets a value or changes one map.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfShard {
    fn unheard() -> Self {
        let nothing = Load { blocks_per_second: 0.0, insert_timeout: Duration::ZERO };
        // Until the absence of views is known, the rows of a block that a view refuses may be in the table.
        let verdict = Verdict { views: true, ..Verdict::of(&[], 0, &nothing) };
        Self { verdict, durability: None, heard: None, forgotten: None, moved: None }
    }

    /// How much of the window a range has used that has been in doubt for this long.
    fn window_used_ratio(&self, age: Duration) -> f64 {
        let budget = self.verdict.age_budget.as_secs_f64();
        if budget > 0.0 { age.as_secs_f64() * WINDOW_SHARE / budget } else { 1.0 }
    }

    /// Whether blocks that may also be elsewhere came lately: for as long as tokens would be relied on.
    fn is_moved(&self, now: Duration) -> bool {
        self.moved.is_some_and(|moved| now < moved + self.verdict.age_budget)
    }

    /// Why the shard forgot its tokens, as long as blocks sent before that may be in flight. After that they are settled, or reported as
    /// in doubt for too long.
    fn forgets(&self, now: Duration) -> Option<Reason> {
        let (before, reason) = self.forgotten?;
        (now < before + self.verdict.age_budget).then_some(reason)
    }
}

impl Known {
    fn of(&self, shard: usize) -> &OfShard {
        self.shards.get(shard).expect("only shards of the config are asked about")
    }

    /// The one verdict for metrics, log and `/state`.
    fn verdict(&self, now: Duration) -> Verdict {
        let verdicts = self.shards.iter().map(|of| of.verdict.clone());
        let answered = Verdict::of_shards(verdicts).expect("the config names at least one shard");
        self.reasons(now).into_iter().fold(answered, Verdict::and)
    }

    fn durability(&self) -> Option<Durability> {
        self.shards.iter().map(|of| of.durability).min().flatten()
    }

    fn doubt(&self, now: Duration) -> Doubt {
        let ages = || self.in_doubt.values().map(|(shard, since)| (*shard, now.saturating_sub(*since)));
        let used = ages().map(|(shard, age)| self.of(shard).window_used_ratio(age));
        Doubt {
            ranges: self.in_doubt.len(),
            oldest: ages().map(|(_, age)| age).max().unwrap_or_default(),
            window_used_ratio: used.fold(0.0, f64::max),
        }
    }

    /// The reasons beside those of the servers' answers.
    fn reasons(&self, now: Duration) -> BTreeSet<Reason> {
        let mut reasons = self.beside.clone();
        let is_too_old = |(shard, since): &(usize, Duration)| {
            now.saturating_sub(*since) > self.of(*shard).verdict.age_budget
        };
        if self.in_doubt.values().any(is_too_old) {
            reasons.insert(Reason::InDoubtTooOld);
        }
        reasons.extend(self.shards.iter().filter_map(|of| of.forgets(now)));
        if self.shards.iter().any(|of| of.is_moved(now)) {
            reasons.insert(Reason::DestinationChanged);
        }
        reasons
    }
}
