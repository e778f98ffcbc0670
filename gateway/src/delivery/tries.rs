//! The tries of one block: from what came of the last one to what is done next.
//!
//! Place in the flow: delivery has one [`Tries`] per block, asks it before each send and after each failure, does what it
//! says, and tells it what it found out. Pure: no clock, no chance, no server; all of that comes in as [`At`].
//!
//! ```text
//!            sending() ----------------- send ---------------- failed() --> SendAgain, Halt: wait, then sending()
//!               |                                                  |------> Describe: look at the table, then described()
//!               |--> Look: in doubt, and for how long tokens       |------> AskFate: before it is sent in parts, then told()
//!               |    are remembered was not asked since,          |------> Bisect, Split: over; its parts have tries of their own
//!               |    then looked()                                 `------> Settle: over; its rows are in the table
//!               `--> AskFate: in doubt for longer than the
//!                    server remembers tokens, then told(), or untold() while none answers
//! ```
//!
//! What it keeps to:
//! - A block that may be in the table is sent under its own token only, whole, and to a replica of the same shard, while the
//!   server remembers the token. Later, and in parts, it is sent once its fate is known, or else `may_double` is said.
//! - Rows are to blame only when the table was looked at after the server refused them, and is as they were encoded for.
//! - Nothing is given up.
//!
//! Times are durations since a fixed point, 1970 say, by a clock that is never set back while the program runs: what a former
//! owner wrote down about a range is on the same scale, give or take the clocks of two machines.

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

/// Tries that a class is given that stands for an accident: the second one like it is none. Specified: a checksum that does not
/// match is the network once, and our own defect twice.
const RETRY_TRIES_MAX: u32 = 2;

/// Tries that an answer is given that may depend on the rows (a defect of the server, or a view). Chosen: with their waits about
/// 3 s, so that what passes by itself has passed.
const IN_DOUBT_TRIES_MAX: u32 = 5;

/// Tries that a block is given against pressure that may be of its own making (memory), before it is halved; and against a full
/// disk before someone is called. Chosen: with their waits about 12 s, which a merge or a large query may well take.
const PRESSURE_TRIES_MAX: u32 = 7;

/// How long it is taken for granted that the table is as it was seen. Chosen: the try that follows a look at the table begins
/// within seconds, and tables are altered by hand.
const TABLE_FRESH_MAX: Duration = Duration::from_mins(1);

/// What holds at the moment of a question.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// The time.
    pub now: Duration,
    /// For how long a token may be relied on ([`crate::guarantee::age_budget`]); zero when the server remembers none.
    pub age_budget: Duration,
    /// When a server has said last what that budget rests on ([`crate::guarantee::GuaranteeState::heard`]).
    pub heard: Option<Duration>,
    /// How long a try takes at the most.
    pub insert_timeout: Duration,
    /// A random number from 0 to 1.
    pub random: f64,
}

/// What came of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Its class.
    pub class: Class,
    /// ClickHouse's exception code, if there was one.
    pub code: Option<u32>,
}

/// Where the next try goes. All servers are replicas of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replica {
    /// To the server of the last one.
    Same,
    /// To another one, if there is any that is well.
    Another,
}

/// Why a block's fate is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is in doubt, and was first sent so long ago that the server may have forgotten its token.
    TooOld,
    /// It is in doubt, and is to be sent in parts, under other tokens.
    BeforeParts,
}

/// What is done next.
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
    /// Look at the table, then say [`Tries::described`].
    Describe,
    /// Ask the servers for how long a token may be relied on, then say [`Tries::looked`].
    Look,
    /// Find out whether the block is in the table, then say [`Tries::told`].
    AskFate(Why),
    /// Rows are at fault: send it in parts, down to the row, and dead-letter what remains.
    Bisect {
        /// Whether its rows may be in the table twice if parts succeed.
        may_double: bool,
    },
    /// It is too much at once: send it in parts.
    Split {
        /// Whether its rows may be in the table twice if parts succeed.
        may_double: bool,
    },
    /// Say who must act, wait, and send again.
    Halt {
        /// Who.
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

/// How a block is cut up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Bisect,
    Split,
}

/// The tries of one block.
#[derive(Debug, Clone)]
pub struct Tries {
    /// Whether materialized views hang below the table.
    views: bool,
    /// Failures so far.
    failures: u32,
    /// Of those, the ones of which the server may have taken a byte; `None` when others may have made some.
    begun: Option<u32>,
    /// When the first try began, by whomever; `None` before it.
    first_sent: Option<Duration>,
    /// The last failure, and how many like it came one after another.
    last: Option<Failure>,
    alike: u32,
    /// When the last try began.
    sent: Duration,
    /// When the first try began of which nobody knows whether it stored the block.
    doubt_since: Option<Duration>,
    /// When the last try ended that left the block in doubt.
    unsure: Option<Duration>,
    /// When the table was last seen to be as rows are encoded for.
    described: Option<Duration>,
    /// What is done once the fate is known; `None`: send again.
    cut: Option<Cut>,
}

impl Tries {
    /// Of a block that nobody has sent.
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

    /// Of a block that a former owner of its partition may have sent, at `since` at the earliest.
    pub fn inherited(views: bool, since: Duration) -> Self {
        Self { doubt_since: Some(since), first_sent: Some(since), begun: None, ..Self::new(views) }
    }

    /// Another owner may have sent it unnoticed, at `since` at the earliest. Says nothing new of a block that was sent, or doubted, before.
    pub fn doubted(&mut self, since: Duration) {
        if self.first_sent.is_none() {
            *self = Self { described: self.described, ..Self::inherited(self.views, since) };
        }
    }

    /// Of a part of this block, or of another one, that nobody has sent. What was seen of the table is still so.
    #[must_use]
    pub fn of_part(&self) -> Self {
        Self { described: self.described, ..Self::new(self.views) }
    }

    /// The same of a part that a former owner may have sent, at `since` at the earliest.
    #[must_use]
    pub fn of_inherited_part(&self, since: Duration) -> Self {
        Self { described: self.described, ..Self::inherited(self.views, since) }
    }

    /// Failures so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Attempts of which the server may know; `None` when a former owner may have made some. With [`Self::first_sent`] what
    /// [`sluice_clickhouse::fate::Lost`] asks for.
    pub fn begun(&self) -> Option<u32> {
        self.begun
    }

    /// When the first try began, a former owner's among them; zero before any.
    pub fn first_sent(&self) -> Duration {
        self.first_sent.unwrap_or_default()
    }

    /// Since when nobody knows whether the block is in the table; `None`: it is not.
    pub fn doubt_since(&self) -> Option<Duration> {
        self.doubt_since
    }

    /// Before each send: `None` when it may begin now, and then it must.
    pub fn sending(&mut self, at: &At) -> Option<Next> {
        // First: until a server answers, none can say how old is too old, and none what became of the block.
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

    /// After each send that failed.
    pub fn failed(&mut self, failure: Failure, at: &At) -> Next {
        self.failures = self.failures.saturating_add(1);
        self.alike = if self.last == Some(failure) { self.alike.saturating_add(1) } else { 1 };
        self.last = Some(failure);
        if failure != (Failure { class: Class::Retry, code: None }) {
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

    /// After the table was looked at.
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

    /// After the servers were asked. While none answers the block waits: it is not sent on the strength of what was so before they
    /// went away.
    pub fn looked(&self, at: &At) -> Next {
        let after = if self.must_look(at) { self.wait_for_answer(at) } else { Duration::ZERO };
        let replica = self.last.map_or(Replica::Another, replica);
        Next::SendAgain { after, replica, may_double: false }
    }

    /// After the fate was asked for and no server answered: the block waits, since one that comes back may know.
    pub fn untold(&mut self, at: &At) -> Next {
        self.cut = None;
        Next::SendAgain { after: self.wait_for_answer(at), replica: Replica::Another, may_double: false }
    }

    /// Whether the servers must be asked again before a block in doubt is sent again. An old answer does not count the blocks that others have
    /// written since. An answer from before the last try that left doubt does not tell of a restart, after which the server may have another
    /// version or time zone and not find the token.
    pub fn must_look(&self, at: &At) -> bool {
        let is_outdated = |heard: Duration| {
            at.now.saturating_sub(heard) > OUTDATED_AFTER || self.unsure.is_some_and(|unsure| heard < unsure)
        };
        self.doubt_since.is_some() && at.heard.is_none_or(is_outdated)
    }

    fn wait_for_answer(&self, at: &At) -> Duration {
        retry::wait(Pace::Slow, self.failures.max(1), at.random)
    }

    /// After the fate was asked for.
    pub fn told(&mut self, fate: Fate, at: &At) -> Next {
        let cut = self.cut.take();
        match (fate, cut) {
            (Fate::Stored, _) => Next::Settle { views_incomplete: false },
            // The table has them; sending again would repair the views, but as long as the token is remembered that was
            // tried, and later it would double the table.
            (Fate::InTable, _) => Next::Settle { views_incomplete: self.views },
            (Fate::Absent, cut) => {
                self.doubt_since = None;
                parts_or_again(cut, false)
            }
            // Memory may be short for other reasons than this block: a whole block under its token doubles nothing, and
            // waits until the token is too old to be relied on.
            (Fate::Unknown, Some(Cut::Split)) if !self.is_too_old(at.now, at) => {
                self.again(Replica::Another, at)
            }
            (Fate::Unknown, cut) => {
                // From here on the token is the one that the next try leaves behind.
                self.doubt_since = None;
                parts_or_again(cut, true)
            }
        }
    }

    /// Instead of parts, when the block is a single row: `Bisect` says that the row is dead-lettered.
    pub fn indivisible(&self, at: &At) -> Next {
        match self.last.and_then(|failure| failure.code) {
            Some(158 | 307 | 396) => self.halt(Actor::Settings, at),
            Some(173 | 241 | 776..=778) => self.halt(Actor::Server, at),
            _ => Next::Bisect { may_double: false },
        }
    }

    /// The class, or what it has become after as many tries as it is given.
    fn class_now(&self, failure: Failure, at: &At) -> Class {
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

    /// Whether a try that begins at `when` might end after the token was forgotten.
    fn is_too_old(&self, when: Duration, at: &At) -> bool {
        self.doubt_since.is_some_and(|since| when + at.insert_timeout > since.saturating_add(at.age_budget))
    }

    fn again(&self, replica: Replica, at: &At) -> Next {
        let wait = retry::wait(Pace::Quick, self.failures, at.random);
        // A last try that the token is still good for is worth more than the rest of the wait.
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

/// Where to try after a failure. What is about the server alone another one may do better; what is about the block, or about what
/// the replicas share, none does; and an attempt that is still running (216) is waited for where it runs.
fn replica(failure: Failure) -> Replica {
    match (failure.code, failure.class) {
        (Some(3 | 40 | 216 | 252 | 271), _) => Replica::Same,
        (_, Class::Retry | Class::InDoubt | Class::BackPressure) => Replica::Another,
        _ => Replica::Same,
    }
}

#[cfg(test)]
mod tests;
