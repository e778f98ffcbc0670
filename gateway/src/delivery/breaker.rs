//! Limits how many tries each server gets.
//!
//! Place in the flow: before each try, delivery asks [`Endpoints`] for a server and a [`Pass`], and returns the pass with the answer. Pure:
//! time and randomness are arguments. One owner; behind a lock if tries are separate tasks, since nothing here waits.
//!
//! ```text
//!            overloaded                        the wait is over, and all tries in flight have ended
//!  CLOSED ------------------> OPEN(until) ---------------------------------------> RECOVERING(1, 2, 4, ..)
//!    ^    all of them at once   ^                                                     |        |
//!    |                          `-- overloaded, or no answer -------------------------'        |
//!    `--------------------------------- as many answers as the concurrency allows -------------'
//! ```
//!
//! While it is open, nothing is sent. Then it allows one try, after its end two, and so on, so that the backlog does not overload a
//! server that has just recovered. Once a server answers again, its full concurrency is back after [`WAIT_MAX`], the end of the tries in
//! flight, and one round of tries for each doubling.
//!
//! A failed connection does not open it: it costs the server nothing, and each block has its own wait. It is counted, so that another replica
//! is tried first.

use crate::delivery::tries::{Failure, Replica};
use sluice_clickhouse::outcome::{self, Class};
use std::time::Duration;

/// The wait after the first opening. Chosen: an insert takes tenths of a second, so a server works off its queue of inserts in this time.
pub const WAIT_MIN: Duration = Duration::from_millis(500);

/// The longest wait between tries on a server that stays overloaded. Chosen: merges that catch up, or the end of a quota, take minutes; ten
/// seconds more do not matter, and rows are fresh again soon after.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

/// The outcome of a try, as far as it concerns the server's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It answered: stored, or refused for a reason other than its load.
    Well,
    /// It refused because of its table, rights, settings or disk, which someone must fix. Another server may be better.
    Unfit,
    Overloaded,
    /// It did not answer, or not completely.
    None,
}

impl Answer {
    /// The answer for a failure. A success is [`Answer::Well`].
    pub fn of(failure: Failure) -> Self {
        match failure {
            Failure { code, class, .. } if outcome::is_pressure(code, class) => Self::Overloaded,
            Failure { code, class: Class::Retry | Class::InDoubt, .. } if !outcome::is_servers(code) => {
                Self::None
            }
            Failure { class: Class::Halt | Class::RefreshSchema, .. } => Self::Unfit,
            _ => Self::Well,
        }
    }
}

/// The right to one try. It must be returned.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a pass that is not returned stays in flight forever"]
pub struct Pass {
    /// Number of openings when it was issued. An answer to a try from before the last opening says nothing about the time after it.
    openings: u64,
}

/// How long no pass is issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until this moment.
    Until(Duration),
    /// Until a pass is returned.
    Returned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    Open { until: Duration },
    Recovering { allowed: u32, well: u32 },
}

/// The breaker of one server.
#[derive(Debug)]
pub struct Breaker {
    concurrency_max: u32,
    phase: Phase,
    in_flight: u32,
    /// Openings since the start.
    openings: u64,
    /// Openings since it was last closed.
    openings_in_a_row: u32,
    /// Tries without an answer since the last answer.
    unanswered: u32,
    /// Whether its last answer was [`Answer::Unfit`].
    is_unfit: bool,
}

impl Breaker {
    /// Closed, for `concurrency_max` concurrent tries, at least one.
    pub fn new(concurrency_max: u32) -> Self {
        Self {
            concurrency_max: concurrency_max.max(1),
            phase: Phase::Closed,
            in_flight: 0,
            openings: 0,
            openings_in_a_row: 0,
            unanswered: 0,
            is_unfit: false,
        }
    }

    /// A pass, if a try is allowed now.
    ///
    /// # Errors
    /// [`Wait`]: when to ask again.
    pub fn ask(&mut self, now: Duration) -> Result<Pass, Wait> {
        let allowed = match self.phase {
            Phase::Closed => self.concurrency_max,
            Phase::Open { until } if now < until => return Err(Wait::Until(until)),
            Phase::Open { .. } => 1,
            Phase::Recovering { allowed, .. } => allowed,
        };
        if self.in_flight >= allowed {
            return Err(Wait::Returned);
        }
        if matches!(self.phase, Phase::Open { .. }) {
            self.phase = Phase::Recovering { allowed: 1, well: 0 };
        }
        self.in_flight += 1;
        Ok(Pass { openings: self.openings })
    }

    /// Takes a pass back. `random` is a number from 0 to 1.
    #[expect(clippy::needless_pass_by_value, reason = "a pass is good for one try")]
    pub fn give_back(&mut self, pass: Pass, answer: Answer, now: Duration, random: f64) {
        self.in_flight -= 1;
        self.unanswered = if answer == Answer::None { self.unanswered.saturating_add(1) } else { 0 };
        match answer {
            Answer::Unfit => self.is_unfit = true,
            Answer::Well => self.is_unfit = false,
            Answer::Overloaded | Answer::None => {}
        }
        let Pass { openings } = pass;
        if openings != self.openings {
            return;
        }
        match (answer, self.phase) {
            (Answer::Overloaded, _) | (Answer::None, Phase::Recovering { .. }) => self.open(now, random),
            (Answer::Well | Answer::Unfit, Phase::Recovering { allowed, well }) => {
                self.step(allowed, well + 1);
            }
            (Answer::Well | Answer::Unfit | Answer::None, _) => {}
        }
    }

    /// Takes back a pass whose try was cancelled: its outcome is unknown.
    #[expect(clippy::needless_pass_by_value, reason = "a pass is good for one try")]
    pub fn give_up(&mut self, pass: Pass) {
        let Pass { openings: _ } = pass;
        self.in_flight -= 1;
    }

    fn open(&mut self, now: Duration, random: f64) {
        self.openings += 1;
        self.openings_in_a_row = self.openings_in_a_row.saturating_add(1);
        self.phase = Phase::Open { until: now + wait(self.openings_in_a_row, random) };
    }

    fn step(&mut self, allowed: u32, well: u32) {
        self.phase = match (allowed, well) {
            _ if well < allowed => Phase::Recovering { allowed, well },
            _ if allowed.saturating_mul(2) < self.concurrency_max => {
                Phase::Recovering { allowed: allowed * 2, well: 0 }
            }
            _ => {
                self.openings_in_a_row = 0;
                Phase::Closed
            }
        };
    }
}

/// The wait after this many openings in a row. It doubles from the least to the most, and is a random value between half and all of that,
/// so that gateways that were rejected together do not return together.
fn wait(openings_in_a_row: u32, random: f64) -> Duration {
    let doublings = openings_in_a_row.saturating_sub(1).min(16);
    let doubled = WAIT_MIN.saturating_mul(2u32.pow(doublings));
    doubled.min(WAIT_MAX).mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0))
}

/// The breakers of one shard's servers, in the order of the config.
#[derive(Debug)]
pub struct Endpoints(Vec<Breaker>);

impl Endpoints {
    /// `count` servers, at least one, each for `concurrency_max` concurrent tries.
    pub fn new(count: usize, concurrency_max: u32) -> Self {
        Self((0..count.max(1)).map(|_| Breaker::new(concurrency_max)).collect())
    }

    /// A server for the next try, as its position in the config, and a pass for it. Prefers the first server that answered its last try,
    /// did not refuse for a cause that someone must fix, and is not held back. After a try at `last`: only that server for
    /// [`Replica::Same`], and that server as the last choice for [`Replica::Another`].
    ///
    /// # Errors
    /// [`Wait`]: when to ask again.
    pub fn choose(&mut self, last: Option<(usize, Replica)>, now: Duration) -> Result<(usize, Pass), Wait> {
        let mut candidates: Vec<usize> = match last {
            Some((endpoint, Replica::Same)) => vec![endpoint],
            _ => (0..self.0.len()).collect(),
        };
        let avoided = |endpoint: usize| last == Some((endpoint, Replica::Another));
        candidates.sort_by_key(|&endpoint| {
            let Breaker { unanswered, is_unfit, .. } = self.0[endpoint];
            (avoided(endpoint), unanswered, is_unfit, endpoint)
        });
        let mut soonest = Wait::Returned;
        for endpoint in candidates {
            match (self.0[endpoint].ask(now), soonest) {
                (Ok(pass), _) => return Ok((endpoint, pass)),
                (Err(Wait::Until(until)), Wait::Until(other)) => soonest = Wait::Until(until.min(other)),
                (Err(until @ Wait::Until(_)), Wait::Returned) => soonest = until,
                (Err(Wait::Returned), _) => {}
            }
        }
        Err(soonest)
    }

    /// Takes a pass back. `random` is a number from 0 to 1.
    pub fn give_back(&mut self, endpoint: usize, pass: Pass, answer: Answer, (now, random): (Duration, f64)) {
        self.0[endpoint].give_back(pass, answer, now, random);
    }

    /// Takes back a pass whose try was cancelled.
    pub fn give_up(&mut self, endpoint: usize, pass: Pass) {
        self.0[endpoint].give_up(pass);
    }
}

#[cfg(test)]
mod tests;
