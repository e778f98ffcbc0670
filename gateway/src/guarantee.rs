//! Determines the delivery guarantee: whether every row is in the table exactly once, or at least once, and why.
//!
//! Place in the flow: a task of its own ([`Watch`]) asks the servers before the first block is sent, and every [`LOOK_INTERVAL`]. It asks
//! at once when a block in doubt is to be sent and the last answer is older than [`OUTDATED_AFTER`]. Delivery reads the results, shard by
//! shard ([`GuaranteeState`]): how long a token may be relied on, and whether there are views below the table. The guarantee itself is
//! only reported. It changes nothing, except that possible duplicates are counted.
//!
//! "Once" needs the following; each has a [`Reason`] for its absence. The next owner cuts the same ranges. The table remembers tokens, and
//! its servers share them. The user's profile does not force other settings. Views drop retries too. Retries arrive while the token is
//! remembered.
//!
//! Owner: [`Watch`] belongs to one task; [`GuaranteeState`] is shared.

mod guarantee_state;
mod places;
mod watch;

pub use crate::ground::at_least_once::{Doubt, Reason};
pub use guarantee_state::GuaranteeState;
pub use watch::Watch;

use sluice_clickhouse::deduplication::Deduplication;
use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    time::Duration,
};

/// How often the servers are asked. Chosen: windows, views and profiles are changed by hand; the rate of blocks, which is also in the
/// answer, changes with the load of a minute.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// How long an answer is valid. Chosen: one question may fail; the blocks that others write in a minute are within the share of the
/// window that is not relied on.
pub const OUTDATED_AFTER: Duration = LOOK_INTERVAL.saturating_mul(2);

/// The share of the time that a token is remembered in which it is relied on. Chosen: the rate of blocks may double before it is measured
/// again, and clocks differ.
const WINDOW_SHARE: f64 = 0.5;

/// The longest time for which a token is relied on. Chosen: in a longer time, the table is likely to have changed in
/// other ways than its window. A person should look at a range that is in doubt for a day anyway.
pub const AGE_BUDGET_MAX: Duration = Duration::from_hours(24);

/// Blocks per second of a busy table, if its rate was not measured. Chosen: ClickHouse's documentation recommends one insert a second,
/// and tens work as long as merges keep up.
pub const BUSY_BLOCKS_PER_SECOND: f64 = 10.0;

/// Blocks per second assumed for an idle table. Chosen: traffic may start at any moment and is measured half a minute later. A window of a
/// hundred blocks is then relied on for minutes, and one of ten thousand for half a day.
pub const IDLE_BLOCKS_PER_SECOND: f64 = 0.1;

/// Number of measurements that are kept. Chosen: those of five minutes; a burst counts for as long.
const RATE_SAMPLES_MAX: usize = 11;

/// The result of the servers' answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Why only "at least once" holds; empty for "once".
    pub reasons: BTreeSet<Reason>,
    /// How long a token may be relied on.
    pub age_budget: Duration,
    /// Whether there are materialized views below the table.
    pub views: bool,
}

impl Verdict {
    /// From the answers of the servers that have answered; `servers` is the number of servers in the config.
    pub fn of(answers: &[Deduplication], servers: usize, load: &Load) -> Self {
        let mut reasons = BTreeSet::new();
        if answers.is_empty() {
            reasons.insert(Reason::NotProbed);
        }
        for answer in answers {
            reasons.extend(reasons_of(answer, servers));
        }
        if are_apart(answers) {
            reasons.insert(Reason::ServersNotReplicas);
        }
        if answers.iter().any(|answer| answer.partition_zone != answers[0].partition_zone) {
            reasons.insert(Reason::TimeZone);
        }
        let budgets = answers.iter().map(|answer| age_budget(answer, load.blocks_per_second));
        let is_kept = !reasons.iter().any(|reason| reason.voids_tokens());
        let age_budget = budgets.min().filter(|_| is_kept).unwrap_or_default();
        // Time for one lost try and one after it.
        if reasons.is_empty() && age_budget < 2 * load.insert_timeout {
            reasons.insert(Reason::WindowShort);
        }
        Self { reasons, age_budget, views: answers.iter().any(|answer| !answer.views.is_empty()) }
    }

    /// Adds a reason.
    #[must_use]
    pub fn and(mut self, reason: Reason) -> Self {
        self.reasons.insert(reason);
        let age_budget = if reason.voids_tokens() { Duration::ZERO } else { self.age_budget };
        Self { age_budget, ..self }
    }

    /// The verdict for several shards: the weakest.
    pub fn of_shards(verdicts: impl IntoIterator<Item = Self>) -> Option<Self> {
        verdicts.into_iter().reduce(|all, one| Self {
            reasons: all.reasons.union(&one.reasons).copied().collect(),
            age_budget: all.age_budget.min(one.age_budget),
            views: all.views || one.views,
        })
    }
}

/// In one line.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reasons.is_empty() {
            let minutes = self.age_budget.as_secs() / 60;
            return write!(f, "exactly_once_effect: the server drops a retry for at least {minutes} minutes");
        }
        let reasons: Vec<_> = self.reasons.iter().map(ToString::to_string).collect();
        write!(f, "at_least_once: {}", reasons.join("; "))
    }
}

/// The load of the table.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Blocks that all writers insert a second, counted once per table partition that they touch; 0 if unknown.
    pub blocks_per_second: f64,
    /// The longest duration of a try.
    pub insert_timeout: Duration,
}

/// Whether replicated tables at several addresses keep their tokens in different places, which means that they are shards.
fn are_apart(answers: &[Deduplication]) -> bool {
    let replicated = answers.iter().filter(|answer| answer.engine.is_replicated());
    // An address that leads to several places has its own reason.
    let mut places = replicated.map(|answer| &answer.token_places).filter(|places| places.len() == 1);
    let first = places.next();
    places.any(|place| Some(place) != first)
}

fn reasons_of(answer: &Deduplication, servers: usize) -> Vec<Reason> {
    let engine = &answer.engine;
    let mut reasons = Vec::new();
    if matches!(engine.name.as_str(), "Distributed" | "Buffer") {
        reasons.push(Reason::EngineForwards);
    } else if !engine.has_window() {
        reasons.push(Reason::EngineForgets);
    } else if engine.deduplication_window_blocks == 0 {
        reasons.push(Reason::WindowOff);
    }
    if servers > 1 && !engine.is_replicated() {
        reasons.push(Reason::ServersNotReplicas);
    }
    if answer.token_places.len() > 1 {
        reasons.push(Reason::AddressBalances);
    }
    reasons.extend(answer.forced.iter().map(|forced| match forced.name.as_str() {
        "async_insert" => Reason::AsyncInsertForced,
        _ => Reason::SettingsForced,
    }));
    if !answer.lost.is_empty() {
        reasons.push(Reason::SettingsLost);
    }
    let (seen, unseen): (Vec<_>, Vec<_>) = answer.views.iter().partition(|view| view.is_seen());
    if !unseen.is_empty() {
        reasons.push(Reason::ViewsUnseen);
    }
    if seen.iter().any(|view| !view.is_once(answer.version)) {
        reasons.push(Reason::ViewsNotOnce);
    }
    reasons
}

/// How long a token may be relied on: half of the time until the window has moved on, by its age limit if there is one, and by the blocks
/// that all writers insert. Zero without a window.
pub fn age_budget(answer: &Deduplication, blocks_per_second: f64) -> Duration {
    let of_views = answer.views.iter().map(|view| view.window_blocks).filter(|blocks| *blocks > 0);
    let blocks = of_views.chain([answer.engine.deduplication_window_blocks]).min().unwrap_or_default();
    if answer.engine.deduplication_window_blocks == 0 {
        return Duration::ZERO;
    }
    let by_age = answer.window_age.unwrap_or(Duration::MAX).as_secs_f64();
    // At zero blocks a second, the window never fills up.
    let by_blocks = u32::try_from(blocks).map_or(f64::INFINITY, f64::from) / blocks_per_second;
    let seconds = (by_age.min(by_blocks) * WINDOW_SHARE).min(AGE_BUDGET_MAX.as_secs_f64());
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// The rate of inserted blocks, measured from a growing count.
#[derive(Debug, Default)]
pub struct BlockRate(VecDeque<(Duration, u64)>);

impl BlockRate {
    /// Records the count at a moment.
    pub fn count(&mut self, now: Duration, blocks: u64) {
        if self.0.len() == RATE_SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, blocks));
    }

    /// The highest rate between two kept counts, at least that of an idle table; with fewer than two counts, that of a busy one.
    pub fn per_second(&self) -> f64 {
        if self.0.len() < 2 {
            return BUSY_BLOCKS_PER_SECOND;
        }
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        let rates = pairs.map(|((from, less), (to, more))| {
            // A lower count: the table was recreated, or its newest parts were dropped.
            let blocks = u32::try_from(more.saturating_sub(*less)).unwrap_or(u32::MAX);
            f64::from(blocks) / to.saturating_sub(*from).as_secs_f64().max(1.0)
        });
        rates.fold(IDLE_BLOCKS_PER_SECOND, f64::max)
    }
}

#[cfg(test)]
mod tests;
