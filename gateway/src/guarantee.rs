//! What can be promised about delivery: that every row is in the table once, or that it is there at least once, and why.
//!
//! Place in the flow: asked before the first block is sent, and again every [`LOOK_INTERVAL`] by a task of its own ([`Watch`]), and
//! at once when a block in doubt is to be sent on the strength of an answer that is older than [`OUTDATED_AFTER`]; delivery reads what
//! follows from it, shard by shard ([`GuaranteeState`]): for how long a token may be relied on, and whether views hang below the table.
//! It is a report: nothing is done differently because of it, but that doubles which cannot be excluded are counted.
//!
//! "Once" needs, each with a [`Reason`] that says it is missing: ranges that the next owner cuts as this one did; a table that
//! remembers tokens, on servers that share them; settings that the user's profile does not force to others; views that drop
//! retries too; and retries that come while the token is remembered.
//!
//! Owner: [`Watch`] is one task's; [`GuaranteeState`] is shared.

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

/// How often the servers are asked. Chosen: a window, a view or a profile is changed by hand; the rate of blocks, which the answer also
/// gives, changes with the load of a minute.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// After what time without an answer it is not known any more for how long a token may be relied on. Chosen: one look may fail; what
/// others write in a minute is in the share of the window that is not relied on.
pub const OUTDATED_AFTER: Duration = LOOK_INTERVAL.saturating_mul(2);

/// Of the time that a token is remembered, the share in which it is relied on. Chosen: the rate of blocks may double before it is
/// measured again, and clocks differ.
const WINDOW_SHARE: f64 = 0.5;

/// The longest time for which a token is relied on. Chosen: beyond it something else than the window is likely to have
/// happened to the table, and a range in doubt for a day is someone's business anyway.
pub const AGE_BUDGET_MAX: Duration = Duration::from_hours(24);

/// What a busy table takes a second, for when its rate was not measured. Chosen: ClickHouse's documentation wishes for one insert a
/// second, and tens work as long as merges keep up.
pub const BUSY_BLOCKS_PER_SECOND: f64 = 10.0;

/// What a table that takes nothing now is reckoned with. Chosen: traffic may begin at any moment, and is measured half a minute later; so a
/// window of a hundred blocks is relied on for minutes, and one of ten thousand still for half a day.
pub const IDLE_BLOCKS_PER_SECOND: f64 = 0.1;

/// Measurements of blocks that are kept. Chosen: five minutes of looks; a burst is remembered for as long.
const RATE_SAMPLES_MAX: usize = 11;

/// What follows from the servers' answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Why no more than "at least once" can be promised; empty when "once" can.
    pub reasons: BTreeSet<Reason>,
    /// For how long a token may be relied on.
    pub age_budget: Duration,
    /// Whether materialized views hang below the table.
    pub views: bool,
}

impl Verdict {
    /// From what each server says that has answered; `servers` is how many the config names.
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
        // One try that is lost, and one after it.
        if reasons.is_empty() && age_budget < 2 * load.insert_timeout {
            reasons.insert(Reason::WindowShort);
        }
        Self { reasons, age_budget, views: answers.iter().any(|answer| !answer.views.is_empty()) }
    }

    /// The same with another reason.
    #[must_use]
    pub fn and(mut self, reason: Reason) -> Self {
        self.reasons.insert(reason);
        let age_budget = if reason.voids_tokens() { Duration::ZERO } else { self.age_budget };
        Self { age_budget, ..self }
    }

    /// Of several shards: what each of them allows.
    pub fn of_shards(verdicts: impl IntoIterator<Item = Self>) -> Option<Self> {
        verdicts.into_iter().reduce(|all, one| Self {
            reasons: all.reasons.union(&one.reasons).copied().collect(),
            age_budget: all.age_budget.min(one.age_budget),
            views: all.views || one.views,
        })
    }
}

/// In one line, for a person.
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

/// What is sent to the table.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Blocks that all writers insert a second, once per table partition that they touch; 0 when it is not known.
    pub blocks_per_second: f64,
    /// How long a try takes at the most.
    pub insert_timeout: Duration,
}

/// Whether replicated tables at several addresses keep their tokens in several places: they are shards.
fn are_apart(answers: &[Deduplication]) -> bool {
    let replicated = answers.iter().filter(|answer| answer.engine.is_replicated());
    // Of an address that leads to several there is a reason of its own.
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

/// For how long a token may be relied on: half of the time until the window has moved on, by its age if it has one, and by the blocks
/// that all writers insert. Zero without a window.
pub fn age_budget(answer: &Deduplication, blocks_per_second: f64) -> Duration {
    let of_views = answer.views.iter().map(|view| view.window_blocks).filter(|blocks| *blocks > 0);
    let blocks = of_views.chain([answer.engine.deduplication_window_blocks]).min().unwrap_or_default();
    if answer.engine.deduplication_window_blocks == 0 {
        return Duration::ZERO;
    }
    let by_age = answer.window_age.unwrap_or(Duration::MAX).as_secs_f64();
    // Zero blocks a second never fill it.
    let by_blocks = u32::try_from(blocks).map_or(f64::INFINITY, f64::from) / blocks_per_second;
    let seconds = (by_age.min(by_blocks) * WINDOW_SHARE).min(AGE_BUDGET_MAX.as_secs_f64());
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// How many blocks a second are inserted, from a count that grows.
#[derive(Debug, Default)]
pub struct BlockRate(VecDeque<(Duration, u64)>);

impl BlockRate {
    /// Takes down the count at a moment.
    pub fn count(&mut self, now: Duration, blocks: u64) {
        if self.0.len() == RATE_SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, blocks));
    }

    /// The highest rate between two counts that are kept, but no less than that of an idle table; before there are two, that of a busy one.
    pub fn per_second(&self) -> f64 {
        if self.0.len() < 2 {
            return BUSY_BLOCKS_PER_SECOND;
        }
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        let rates = pairs.map(|((from, less), (to, more))| {
            // Fewer than before: the table was made anew, or its newest parts were dropped.
            let blocks = u32::try_from(more.saturating_sub(*less)).unwrap_or(u32::MAX);
            f64::from(blocks) / to.saturating_sub(*from).as_secs_f64().max(1.0)
        });
        rates.fold(IDLE_BLOCKS_PER_SECOND, f64::max)
    }
}

#[cfg(test)]
mod tests;
