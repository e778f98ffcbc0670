//! What can be promised about delivery: that every row is in the table once, or that it is there at least once, and why.
//!
//! Place in the flow: asked before the first block is sent, and again every [`LOOK_INTERVAL`] by a task of its own ([`Watch`]), and
//! at once when a block in doubt is to be sent on the strength of an answer that is older than [`OUTDATED_AFTER`]; delivery reads what
//! follows from it, shard by shard ([`Standing`]): for how long a token may be relied on, and whether views hang below the table.
//! It is a report: nothing is done differently because of it, but that doubles which cannot be excluded are counted.
//!
//! "Once" needs, each with a [`Reason`] that says it is missing: ranges that the next owner cuts as this one did; a table that
//! remembers tokens, on servers that share them; settings that the user's profile does not force to others; views that drop
//! retries too; and retries that come while the token is remembered.
//!
//! Owner: [`Watch`] is one task's; [`Standing`] is shared.

mod places;
mod standing;
mod watch;

pub use standing::{Doubt, Standing};
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

/// Why no more than "at least once" is promised. In the order of what to mend first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No server has answered yet, or the user may not read what it rests on.
    NotProbed,
    /// Another owner would cut other ranges.
    RangesNotPlanned,
    /// The plan of ranges cannot be written or read.
    PlanUnavailable,
    /// Kafka removes messages from the middle of a range.
    TopicCompacted,
    /// The table hands rows on later (`Distributed`, `Buffer`).
    EngineForwards,
    /// The table's engine remembers nothing (`Null`, `Memory`, `Log`).
    EngineForgets,
    /// The table's window is 0.
    WindowOff,
    /// The table forgets a token before a retry can come.
    WindowShort,
    /// There are several servers, and each has a table of its own.
    ServersNotReplicas,
    /// One address leads to several servers that do not share tokens, or its server was replaced.
    AddressBalances,
    /// The user's profile forces asynchronous inserts.
    AsyncInsertForced,
    /// The user's profile forces other settings than every INSERT asks for.
    SettingsForced,
    /// Settings of INSERTs, tokens among them, do not reach the server.
    SettingsLost,
    /// What was in flight when the config changed goes to other servers, or into another table.
    DestinationChanged,
    /// The server was upgraded to one that does not know the tokens of before.
    ServerUpgraded,
    /// The table's partitions depend on the server's time zone, which has changed, or differs between servers.
    TimeZone,
    /// A range is in doubt for longer than its token may be relied on.
    InDoubtTooOld,
    /// A view below the table, or the view's table, may not be seen by the gateway's user. The table itself has every row once.
    ViewsUnseen,
    /// A view below the table takes retries for new rows. The table itself has every row once.
    ViewsNotOnce,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::NotProbed,
        Self::RangesNotPlanned,
        Self::PlanUnavailable,
        Self::TopicCompacted,
        Self::EngineForwards,
        Self::EngineForgets,
        Self::WindowOff,
        Self::WindowShort,
        Self::ServersNotReplicas,
        Self::AddressBalances,
        Self::AsyncInsertForced,
        Self::SettingsForced,
        Self::SettingsLost,
        Self::DestinationChanged,
        Self::ServerUpgraded,
        Self::TimeZone,
        Self::InDoubtTooOld,
        Self::ViewsUnseen,
        Self::ViewsNotOnce,
    ];

    /// Whether a retry may be stored twice although the table has a window.
    fn voids_tokens(self) -> bool {
        matches!(
            self,
            Self::ServersNotReplicas
                | Self::AddressBalances
                | Self::AsyncInsertForced
                | Self::SettingsForced
                | Self::SettingsLost
                | Self::TimeZone
        )
    }

    /// As a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::NotProbed => "not_probed",
            Self::RangesNotPlanned => "ranges_are_not_planned",
            Self::PlanUnavailable => "plan_unavailable",
            Self::TopicCompacted => "topic_compacted",
            Self::EngineForwards => "engine_forwards",
            Self::EngineForgets => "engine_forgets",
            Self::WindowOff => "window_off",
            Self::WindowShort => "window_short",
            Self::ServersNotReplicas => "servers_not_replicas",
            Self::AddressBalances => "address_balances",
            Self::AsyncInsertForced => "async_insert_forced",
            Self::SettingsForced => "settings_forced",
            Self::SettingsLost => "settings_lost",
            Self::DestinationChanged => "destination_changed",
            Self::ServerUpgraded => "server_upgraded",
            Self::TimeZone => "time_zone",
            Self::InDoubtTooOld => "in_doubt_too_old",
            Self::ViewsUnseen => "views_unseen",
            Self::ViewsNotOnce => "views_not_once",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotProbed => "what it rests on could not be read from the server",
            Self::RangesNotPlanned => "another owner of a partition would cut other ranges",
            Self::PlanUnavailable => "the plan of ranges cannot be kept in Kafka",
            Self::TopicCompacted => "the topic is compacted, which changes ranges that are in flight",
            Self::EngineForwards => "the table's engine hands rows on after it has acknowledged them",
            Self::EngineForgets => "the table's engine remembers no deduplication tokens",
            Self::WindowOff => {
                "the table's deduplication window is 0; set non_replicated_deduplication_window to 10000"
            }
            Self::WindowShort => {
                "the table forgets a deduplication token before a retry can come; widen its window"
            }
            Self::ServersNotReplicas => {
                "the servers are no replicas of one table, so that a retry at another one is stored twice"
            }
            Self::AddressBalances => {
                "one address of sink.clickhouse leads to several servers that do not share deduplication tokens, or its server was \
                 replaced, so that a retry may be stored twice; name each shard by an address of its own (shards)"
            }
            Self::AsyncInsertForced => "the user's profile forces async_insert",
            Self::SettingsForced => "the user's profile forces settings on which deduplication rests",
            Self::SettingsLost => {
                "something between the gateway and the server takes settings out of the query string of requests, deduplication tokens \
                 among them; let it pass all of them, or name the server itself as endpoint"
            }
            Self::DestinationChanged => {
                "the servers of a shard or its table were changed while ranges were in flight to those of before, which may have them too; \
                 change them while the pipeline is suspended and has drained"
            }
            Self::ServerUpgraded => {
                "the server was upgraded and has forgotten the deduplication tokens of before"
            }
            Self::TimeZone => {
                "the table's partitions depend on the server's time zone, which has changed or differs between servers, so that a retry \
                 may come into another partition, where its deduplication token is not known; name a zone in PARTITION BY"
            }
            Self::InDoubtTooOld => {
                "a range is in doubt for longer than its deduplication token is remembered"
            }
            Self::ViewsUnseen => {
                "the table has every row once, but the gateway's user may not see a materialized view below it, or the view's table, and \
                 cannot tell whether they take retries for new rows; GRANT SHOW TABLES, SHOW COLUMNS on both to the user"
            }
            Self::ViewsNotOnce => {
                "the table has every row once, but a materialized view below it takes retries for new rows; \
                 give the view's table a deduplication window"
            }
        })
    }
}

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
            return write!(f, "exactly_once_effect: a retry is dropped for at least {minutes} minutes");
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
