//! The tries of one block: decides the next step from the outcome of the last one.
//!
//! Place in the flow: delivery has one [`Tries`] per block. It asks before each send and after each failure, follows the answer, and passes
//! back what it finds out. Pure: no clock, no randomness, no server; all of that comes in as [`At`].
//!
//! ```text
//!            sending() ----------------- send ---------------- failed() --> SendAgain, Halt: wait, then sending()
//!               |                                                  |------> Describe: check the table, then described()
//!               |--> Look: in doubt, and for how long tokens       |------> AskFate: before it is sent in parts, then told()
//!               |    are remembered was not asked since,          |------> Bisect, Split: over; its parts have tries of their own
//!               |    then looked()                                 `------> Settle: over; its rows are in the table
//!               `--> AskFate: in doubt for longer than the
//!                    server remembers tokens, then told(), or untold() while none answers
//! ```
//!
//! Rules:
//! - While the server remembers the token, a block that may be in the table is sent only whole, under that token, and to a replica of the
//!   same shard. After that, or in parts, it is sent once its fate is known; otherwise with `may_double`.
//! - Rows count as the cause only if the table was described after the server refused them, and still has the columns that they were
//!   encoded for.
//! - No block is given up.
//!
//! Times are durations since a fixed point such as 1970, by a clock that is never set back while the program runs. The times that a former
//! owner recorded about a range are on the same scale, apart from the difference between the clocks of two machines.

use crate::{
    delivery::retry::{self, Pace},
    guarantee::OUTDATED_AFTER,
    table::table_watch::Described,
};
use sluice_clickhouse::{
    fate::Fate,
    outcome::{self, Actor, Class},
};
use std::time::Duration;

/// Tries for a class that is an accident once, and not when it repeats. Specified: a checksum mismatch is the network's fault once, and our
/// own defect the second time.
const RETRY_TRIES_MAX: u32 = 2;

/// Tries for an answer that may depend on the rows (a defect of the server, or a view). Chosen: with their waits about 3 s, so that a
/// passing fault has passed.
const IN_DOUBT_TRIES_MAX: u32 = 5;

/// Tries under pressure: of memory, which the block itself may cause, before it is halved; of a full disk, before someone must act. Chosen:
/// with their waits about 12 s, as long as a merge or a large query may take.
const PRESSURE_TRIES_MAX: u32 = 7;

/// Tries of a block in doubt that needs more memory than one query may use. Chosen: the server counts up to 4 MiB more or less each time (measured on
/// 26.7), so that a second try of a block near the limit may succeed.
const QUERY_LIMIT_TRIES_MAX: u32 = 2;

/// How long a description of the table is considered current. Chosen: the try that follows it starts within seconds, and tables are altered
/// by hand.
const TABLE_FRESH_MAX: Duration = Duration::from_mins(1);

/// The inputs of a decision.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// The current time.
    pub now: Duration,
    /// How long a token may be relied on ([`crate::guarantee::age_budget`]); zero when the server remembers none.
    pub age_budget: Duration,
    /// When a server last confirmed that budget ([`crate::guarantee::GuaranteeState::heard`]).
    pub heard: Option<Duration>,
    /// The longest duration of a try.
    pub insert_timeout: Duration,
    /// A random number from 0 to 1.
    pub random: f64,
}

/// The failure of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub class: Class,
    /// ClickHouse's exception code, if there was one.
    pub code: Option<u32>,
    /// Whether it needed more memory than one query may use: no other query is the cause ([`outcome::is_query_limit`]).
    pub is_query_limit: bool,
}

/// The server of the next try. All servers are replicas of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replica {
    /// The server of the last try.
    Same,
    /// Another one, if any is healthy.
    Another,
}

/// Why a block's fate is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is in doubt, and was first sent so long ago that the server may have forgotten its token.
    TooOld,
    /// It is in doubt, and is to be sent in parts, under other tokens.
    BeforeParts,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Wait, then send the same bytes under the same token.
    SendAgain {
        /// How long to wait.
        after: Duration,
        /// Where to.
        replica: Replica,
        /// Whether its rows may be in the table twice if this succeeds: count them as possible duplicates.
        may_double: bool,
    },
    /// Describe the table, then call [`Tries::described`].
    Describe,
    /// Ask the servers how long a token may be relied on, then call [`Tries::looked`].
    Look,
    /// Look up whether the block is in the table, then call [`Tries::told`].
    AskFate(Why),
    /// Rows are refused: send it in parts, down to single rows, and dead-letter those that remain.
    Bisect {
        /// Whether its rows may be in the table twice if parts succeed.
        may_double: bool,
    },
    /// It is too large for the server at once: send it in parts.
    Split {
        /// Whether its rows may be in the table twice if parts succeed.
        may_double: bool,
    },
    /// Log who must act, wait, and send again.
    Halt {
        /// Who must act.
        actor: Actor,
        /// How long to wait.
        after: Duration,
    },
    /// Its rows are in the table.
    Settle {
        /// Whether views below the table may lack them.
        views_incomplete: bool,
    },
}

/// Why a block is sent in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Bisect,
    Split,
}

/// The tries of one block.
#[derive(Debug, Clone)]
pub struct Tries {
    /// Whether there are materialized views below the table.
    views: bool,
    /// Failures so far.
    failures: u32,
    /// Failures after the server may have received a byte; `None` when a former owner may have had some.
    begun: Option<u32>,
    /// When the first try started, by any owner; `None` before it.
    first_sent: Option<Duration>,
    /// The last failure, and the number of equal ones in a row.
    last: Option<Failure>,
    alike: u32,
    /// When the last try started.
    sent: Duration,
    /// When the first try started whose outcome is unknown.
    doubt_since: Option<Duration>,
    /// When the last try ended that left the block in doubt.
    unsure: Option<Duration>,
    /// When the table was last seen to have the columns that rows are encoded for.
    described: Option<Duration>,
    /// The next step once the fate is known; `None`: send again.
    cut: Option<Cut>,
}

impl Tries {
    /// For a block that no process has sent.
    pub fn new(views: bool) -> Self {
        Self {
            views,
            failures: 0,
            begun: Some(0),
            first_sent: None,
            last: None,
            alike: 0,
            sent: Duration::ZERO,
            doubt_since: None,
            unsure: None,
            described: None,
            cut: None,
        }
    }

    /// For a block that a former owner of its partition may have sent, at `since` at the earliest.
    pub fn inherited(views: bool, since: Duration) -> Self {
        Self { doubt_since: Some(since), first_sent: Some(since), begun: None, ..Self::new(views) }
    }

    /// Records that another owner may have sent it unnoticed, at `since` at the earliest. Changes nothing for a block that was sent before.
    pub fn doubted(&mut self, since: Duration) {
        if self.first_sent.is_none() {
            *self = Self { described: self.described, ..Self::inherited(self.views, since) };
        }
    }

    /// For a part of this block, or of another one, that no process has sent. Keeps what is known about the table.
    #[must_use]
    pub fn of_part(&self) -> Self {
        Self { described: self.described, ..Self::new(self.views) }
    }

    /// The same for a part that a former owner may have sent, at `since` at the earliest.
    #[must_use]
    pub fn of_inherited_part(&self, since: Duration) -> Self {
        Self { described: self.described, ..Self::inherited(self.views, since) }
    }

    /// Failures so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Attempts that the server may know; `None` when a former owner may have made some. [`sluice_clickhouse::fate::Lost`] needs this and
    /// [`Self::first_sent`].
    pub fn begun(&self) -> Option<u32> {
        self.begun
    }

    /// When the first try started, including those of a former owner; zero before any.
    pub fn first_sent(&self) -> Duration {
        self.first_sent.unwrap_or_default()
    }

    /// Since when it is unknown whether the block is in the table; `None`: it is not in the table.
    pub fn doubt_since(&self) -> Option<Duration> {
        self.doubt_since
    }

    /// Call before each send. `None`: the try may start now, and then must start.
    pub fn sending(&mut self, at: &At) -> Option<Next> {
        // This comes first: without an answer from a server, the age limit of tokens and the fate of the block are unknown.
        if self.must_look(at) {
            return Some(Next::Look);
        }
        if self.is_too_old(at.now, at) {
            self.cut = None;
            return Some(Next::AskFate(Why::TooOld));
        }
        self.sent = at.now;
        self.first_sent.get_or_insert(at.now);
        None
    }

    /// Call after each failed send.
    pub fn failed(&mut self, failure: Failure, at: &At) -> Next {
        self.failures = self.failures.saturating_add(1);
        self.alike = if self.last == Some(failure) { self.alike.saturating_add(1) } else { 1 };
        self.last = Some(failure);
        if (failure.class, failure.code) != (Class::Retry, None) {
            self.begun = self.begun.map(|begun| begun.saturating_add(1));
        }
        if outcome::may_be_stored(failure.code, failure.class, self.views) {
            self.doubt_since.get_or_insert(self.sent);
            self.unsure = Some(at.now);
        }
        match self.class_now(failure, at) {
            Class::Done => Next::Settle { views_incomplete: false },
            Class::Retry | Class::InDoubt | Class::BackPressure => self.again(replica(failure), at),
            Class::RefreshSchema => Next::Describe,
            Class::Poison if !self.is_fresh(at) => Next::Describe,
            Class::Poison => self.cut(Cut::Bisect),
            Class::Split => self.cut(Cut::Split),
            Class::Halt => self.halt(outcome::who_acts(failure.code), at),
        }
    }

    /// Call after the table was described.
    pub fn described(&mut self, found: Described, at: &At) -> Next {
        match found {
            Described::Unchanged => {
                self.described = Some(at.now);
                self.again(Replica::Same, at)
            }
            Described::Unfit => self.halt(Actor::Table, at),
            Described::Unknown => self.again(Replica::Another, at),
        }
    }

    /// Call after the servers were asked. While none answers, the block waits: what was true before the servers went away must not be
    /// relied on.
    pub fn looked(&self, at: &At) -> Next {
        let after = if self.must_look(at) { self.wait_for_answer(at) } else { Duration::ZERO };
        let replica = self.last.map_or(Replica::Another, replica);
        Next::SendAgain { after, replica, may_double: false }
    }

    /// Call after the fate was looked up and no server answered. The block waits, since a server that returns may know.
    pub fn untold(&mut self, at: &At) -> Next {
        self.cut = None;
        Next::SendAgain { after: self.wait_for_answer(at), replica: Replica::Another, may_double: false }
    }

    /// Whether the servers must be asked again before a block in doubt is sent again. An old answer does not include blocks that others
    /// have written since. An answer from before the last try in doubt does not show a restart; after a restart the server may have
    /// another version or time zone and not find the token.
    pub fn must_look(&self, at: &At) -> bool {
        let is_outdated = |heard: Duration| {
            at.now.saturating_sub(heard) > OUTDATED_AFTER || self.unsure.is_some_and(|unsure| heard < unsure)
        };
        self.doubt_since.is_some() && at.heard.is_none_or(is_outdated)
    }

    fn wait_for_answer(&self, at: &At) -> Duration {
        retry::wait(Pace::Slow, self.failures.max(1), at.random)
    }

    /// Call after the fate was looked up.
    pub fn told(&mut self, fate: Fate, at: &At) -> Next {
        let cut = self.cut.take();
        match (fate, cut) {
            (Fate::Stored, _) => Next::Settle { views_incomplete: false },
            // The table has the rows. Sending again would repair the views. While the token is remembered, that was tried; later, it would
            // duplicate the rows in the table.
            (Fate::InTable, _) => Next::Settle { views_incomplete: self.views },
            // The server read no row of it, so it would refuse its parts, too.
            (Fate::Refused, Some(Cut::Bisect)) => {
                self.doubt_since = None;
                self.halt(Actor::Settings, at)
            }
            (Fate::Absent | Fate::Refused, cut) => {
                self.doubt_since = None;
                parts_or_again(cut, false)
            }
            // Others may use up the memory. A whole block under its token duplicates nothing, so it waits. It does not once its token is
            // too old, or the server has refused it several times for what it is.
            (Fate::Unknown, Some(Cut::Split)) if !self.is_too_old(at.now, at) && !self.is_futile(at) => {
                self.again(Replica::Another, at)
            }
            (Fate::Unknown, cut) => {
                // From here on, doubt is about the token of the next try.
                self.doubt_since = None;
                parts_or_again(cut, true)
            }
        }
    }

    /// Instead of parts, for a single row: `Bisect` means that the row is dead-lettered.
    pub fn indivisible(&self, at: &At) -> Next {
        match self.last.and_then(|failure| failure.code) {
            Some(158 | 307 | 396) => self.halt(Actor::Settings, at),
            code if needs_memory(code) => {
                let is_query_limit = self.last.is_some_and(|failure| failure.is_query_limit);
                self.halt(if is_query_limit { Actor::Settings } else { Actor::Server }, at)
            }
            _ => Next::Bisect { may_double: false },
        }
    }

    /// The class of the failure, or the class that it becomes after the last allowed try.
    fn class_now(&self, failure: Failure, at: &At) -> Class {
        if failure.is_query_limit {
            return Class::Split;
        }
        let in_vain = match failure.class {
            Class::Retry => self.alike >= RETRY_TRIES_MAX,
            Class::InDoubt => self.alike >= IN_DOUBT_TRIES_MAX,
            Class::BackPressure => self.alike >= PRESSURE_TRIES_MAX,
            Class::RefreshSchema => self.is_fresh(at),
            Class::Done | Class::Poison | Class::Split | Class::Halt => false,
        };
        if in_vain { outcome::in_vain(failure.code, failure.class) } else { failure.class }
    }

    fn is_fresh(&self, at: &At) -> bool {
        self.described.is_some_and(|seen| at.now.saturating_sub(seen) <= TABLE_FRESH_MAX)
    }

    /// Whether the server has refused the whole block several times for what it is, such as too many partitions, or more memory than one
    /// query may use: it will not take it. With views, one of them may have refused what the table has stored.
    fn is_futile(&self, at: &At) -> bool {
        let is_too_large = |failure: Failure| {
            let tries = if failure.is_query_limit { QUERY_LIMIT_TRIES_MAX } else { IN_DOUBT_TRIES_MAX };
            let may_pass = needs_memory(failure.code) && !failure.is_query_limit;
            self.alike >= tries && !may_pass && self.class_now(failure, at) == Class::Split
        };
        !self.views && self.last.is_some_and(is_too_large)
    }

    /// Whether a try that begins at `when` might end after the token was forgotten.
    fn is_too_old(&self, when: Duration, at: &At) -> bool {
        self.doubt_since.is_some_and(|since| when + at.insert_timeout > since.saturating_add(at.age_budget))
    }

    fn again(&self, replica: Replica, at: &At) -> Next {
        let wait = retry::wait(Pace::Quick, self.failures, at.random);
        // A last try while the token is still remembered is worth more than the rest of the wait.
        let after = match self.doubt_since {
            Some(since) if !self.is_too_old(at.now, at) => {
                let latest = since.saturating_add(at.age_budget).saturating_sub(at.insert_timeout);
                wait.min(latest.saturating_sub(at.now))
            }
            _ => wait,
        };
        Next::SendAgain { after, replica, may_double: false }
    }

    fn cut(&mut self, cut: Cut) -> Next {
        if self.doubt_since.is_some() {
            self.cut = Some(cut);
            return Next::AskFate(Why::BeforeParts);
        }
        parts_or_again(Some(cut), false)
    }

    fn halt(&self, actor: Actor, at: &At) -> Next {
        Next::Halt { actor, after: retry::wait(Pace::Slow, self.failures, at.random) }
    }
}

fn parts_or_again(cut: Option<Cut>, may_double: bool) -> Next {
    match cut {
        Some(Cut::Bisect) => Next::Bisect { may_double },
        Some(Cut::Split) => Next::Split { may_double },
        None => Next::SendAgain { after: Duration::ZERO, replica: Replica::Same, may_double },
    }
}

/// Whether the server had too little memory for the block at that time.
fn needs_memory(code: Option<u32>) -> bool {
    matches!(code, Some(173 | 241 | 776..=778))
}

/// Where to try after a failure. Another server may succeed if the cause is the server alone, but not if it is the block, or something that
/// the replicas share. An attempt that is still running (216) is waited for at its server.
fn replica(failure: Failure) -> Replica {
    match (failure.code, failure.class) {
        (Some(3 | 40 | 216 | 252 | 271), _) => Replica::Same,
        (_, Class::Retry | Class::InDoubt | Class::BackPressure) => Replica::Another,
        _ => Replica::Same,
    }
}

#[cfg(test)]
mod tests;
