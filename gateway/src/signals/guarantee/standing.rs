//! What delivery goes by: of each shard, for how long its tokens may be relied on, and whether views hang below its table; and what is in
//! doubt.
//!
//! Place in the flow: [`Watch`](super::Watch) writes down what the servers of a shard have answered; a shipment asks about its own shard, and
//! says when it is in doubt. A token is one shard's: what is away, or has no window, says nothing of the tokens of others. Only what is
//! reported is of the weakest.
//!
//! Owner: shared, behind a lock that is held for a map's operation and only for blocks that failed. Limits: a number for each block on its
//! way that is in doubt.

use super::{Load, Reason, Verdict, WINDOW_SHARE};
use crate::signals::metrics::GuaranteeMetrics;
use sluice_clickhouse::durability::Durability;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, oneshot};

/// What is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Doubt {
    /// How many ranges.
    pub ranges: usize,
    /// How long ago the first of them was sent.
    pub oldest: Duration,
    /// What the range that has used most of its shard's window has used of it: half of it is relied on, and at 1 its token may be
    /// forgotten; more while it waits beyond that, and 1 where there is no window.
    pub window_used_ratio: f64,
}

/// What delivery goes by; shared. Times are on the scale of [`crate::delivery::tries`].
#[derive(Debug)]
pub struct Standing {
    metrics: GuaranteeMetrics,
    known: Mutex<Known>,
    /// Told when a shard's servers are to be asked at once.
    ask: Notify,
}

#[derive(Debug)]
struct Known {
    /// By their places in the config: a token is one shard's, and so is what it may be relied on for.
    shards: Vec<OfShard>,
    /// What others than the sink have found.
    beside: BTreeSet<Reason>,
    /// Shards whose servers are to be asked at once, for each block on its way that waits for it, and what ends its wait.
    wanted: Vec<(usize, oneshot::Sender<()>)>,
    /// Of which shard each range is that is in doubt, and since when.
    in_doubt: BTreeMap<u64, (usize, Duration)>,
    next: u64,
}

/// What is known of one shard.
#[derive(Debug, Clone)]
struct OfShard {
    verdict: Verdict,
    /// What rows survive that its servers have acknowledged; `None` while that is not known.
    durability: Option<Durability>,
    /// When its servers have answered last; `None`: they never have.
    heard: Option<Duration>,
    /// Before this moment tokens were written that its servers do not know any more, and why.
    forgotten: Option<(Duration, Reason)>,
    /// When a block came last that may be elsewhere too: on other servers, or in another table.
    moved: Option<Duration>,
}

impl Standing {
    /// Nothing is known about the sink's shards, of which there are so many, and `beside` is what is known otherwise.
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

    /// For how long a token of this shard may be relied on that was first sent at `since`.
    pub fn age_budget(&self, shard: usize, since: Duration) -> Duration {
        let known = self.known();
        let of = known.of(shard);
        let is_forgotten = of.forgotten.is_some_and(|(before, _)| since < before);
        if is_forgotten { Duration::ZERO } else { of.verdict.age_budget }
    }

    /// When a server of this shard was asked last what that rests on, and answered; `None`: none has answered yet.
    pub fn heard(&self, shard: usize) -> Option<Duration> {
        self.known().of(shard).heard
    }

    /// Has the servers of this shard asked at once, and waits until that was tried after this call.
    pub async fn look(&self, shard: usize) {
        let (asked, wait) = oneshot::channel();
        self.known().wanted.push((shard, asked));
        self.ask.notify_one();
        // Ends with an error, once it was tried or when nobody asks any more: the other end was dropped.
        wait.await.ok();
    }

    /// Whether materialized views hang below this shard's table.
    pub fn has_views(&self, shard: usize) -> bool {
        self.known().of(shard).verdict.views
    }

    /// A range of this shard is in doubt since then. Say [`Self::leave_doubt`] with the number once it is not.
    pub fn enter_doubt(&self, shard: usize, since: Duration) -> u64 {
        let mut known = self.known();
        let number = known.next;
        known.next += 1;
        known.in_doubt.insert(number, (shard, since));
        number
    }

    /// The range with this number is in doubt no more.
    pub fn leave_doubt(&self, number: u64) {
        self.known().in_doubt.remove(&number);
    }

    /// A block has come to this shard that may be on other servers too, or in another table.
    pub fn moved(&self, shard: usize, now: Duration) {
        self.known().shards.get_mut(shard).expect("only shards of the config are sent to").moved = Some(now);
        self.tell(now);
    }

    /// Something else than the sink holds up the guarantee, or does so no more.
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

    /// Writes down the metrics, and returns the reason why no more than "at least once" holds now.
    pub fn tell(&self, now: Duration) -> Option<Reason> {
        let known = self.known();
        let doubt = known.doubt(now);
        let reason = known.reasons(now).into_iter().next();
        let durability = known.durability();
        drop(known);
        self.metrics.promise(reason);
        self.metrics.survives(durability);
        self.metrics.doubt(&doubt);
        reason
    }

    /// What the servers of this shard say now; `forgot` why they do not know the tokens of before.
    pub fn found(&self, shard: usize, verdict: Verdict, forgot: Option<Reason>, now: Duration) {
        let mut known = self.known();
        let of = known.shards.get_mut(shard).expect("only servers of the config are asked");
        of.verdict = verdict;
        of.heard = Some(now);
        if let Some(reason) = forgot {
            of.forgotten = Some((now, reason));
        }
    }

    /// What rows survive that the servers of this shard have acknowledged.
    pub fn found_durability(&self, shard: usize, durability: Option<Durability>) {
        let mut known = self.known();
        known.shards.get_mut(shard).expect("only servers of the config are asked").durability = durability;
    }

    /// What rows survive, whatever their shard.
    pub fn durability(&self) -> Option<Durability> {
        self.known().durability()
    }

    /// What all shards together allow: what each of them does.
    pub fn verdict(&self) -> Verdict {
        self.known().verdict()
    }

    /// Shards whose servers are to be asked at once, and what is dropped once that was tried.
    pub(super) fn take_wanted(&self) -> Vec<(usize, oneshot::Sender<()>)> {
        std::mem::take(&mut self.known().wanted)
    }

    /// Waits until servers are to be asked at once.
    pub(super) async fn wanted(&self) {
        self.ask.notified().await;
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // A value is set or a map changed while it is held; nothing of that can be left half done.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfShard {
    fn unheard() -> Self {
        let nothing = Load { blocks_per_second: 0.0, insert_timeout: Duration::ZERO };
        // Until it is known that there are none: what a view refuses may be in the table.
        let verdict = Verdict { views: true, ..Verdict::of(&[], 0, &nothing) };
        Self { verdict, durability: None, heard: None, forgotten: None, moved: None }
    }

    /// How much of the window a range has used that is in doubt for so long.
    fn window_used_ratio(&self, age: Duration) -> f64 {
        let budget = self.verdict.age_budget.as_secs_f64();
        if budget > 0.0 { age.as_secs_f64() * WINDOW_SHARE / budget } else { 1.0 }
    }

    /// Whether blocks that may be elsewhere too came of late: as for tokens that were forgotten.
    fn is_moved(&self, now: Duration) -> bool {
        self.moved.is_some_and(|moved| now < moved + self.verdict.age_budget)
    }

    /// Why it forgot its tokens, while something sent before that may be in flight still: later it is settled, or named as in doubt for
    /// too long.
    fn forgets(&self, now: Duration) -> Option<Reason> {
        let (before, reason) = self.forgotten?;
        (now < before + self.verdict.age_budget).then_some(reason)
    }
}

impl Known {
    fn of(&self, shard: usize) -> &OfShard {
        self.shards.get(shard).expect("only shards of the config are asked about")
    }

    fn verdict(&self) -> Verdict {
        let verdicts = self.shards.iter().map(|of| of.verdict.clone());
        Verdict::of_shards(verdicts).expect("the config names at least one shard")
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

    fn reasons(&self, now: Duration) -> BTreeSet<Reason> {
        let mut reasons = self.verdict().reasons;
        reasons.extend(&self.beside);
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
