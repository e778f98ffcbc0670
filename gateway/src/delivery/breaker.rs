//! How much may be sent to each server right now.
//!
//! Place in the flow: delivery asks [`Endpoints`] before each try for a server and a [`Pass`], and gives the pass back with what came
//! of it. Pure: time and chance are arguments. One owner; behind a lock if tries are tasks of their own, since nothing here waits.
//!
//! ```text
//!            too much to do                    the wait is over, and what was in flight has come back
//!  CLOSED ------------------> OPEN(until) ---------------------------------------> RECOVERING(1, 2, 4, ..)
//!    ^    all of them at once   ^                                                     |        |
//!    |                          `-- too much to do, or no answer ---------------------'        |
//!    `--------------------------------- as many answered as are allowed in all ----------------'
//! ```
//!
//! While it is open nothing is sent; then one try, and after it came back two, and so on: what waited must not come down on a
//! server that has just recovered. Once a server answers again all of its concurrency is back after [`WAIT_MAX`], the end of the
//! tries that were in flight, and one round of tries for each doubling.
//!
//! That no connection comes about opens nothing: it costs the server nothing, and each block has a wait of its own. It is counted, so
//! that another replica is tried first.

use crate::delivery::tries::{Failure, Replica};
use sluice_clickhouse::outcome::{self, Class};
use std::time::Duration;

/// The wait after the first opening. Chosen: an insert takes tenths of a second, and a queue of them as long as this is drained.
pub const WAIT_MIN: Duration = Duration::from_millis(500);

/// The longest wait, with which a server is asked that has had too much to do for long. Chosen: merges that catch up, or a quota that
/// ends, take minutes; ten seconds more do not matter, and rows are fresh again soon after.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

/// What came of a try, as far as the server's health goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It answered: stored, or refused for a reason that is not its load.
    Well,
    /// It refused for what someone must mend: its table, rights, settings or disk. Another server may have what it lacks.
    Unfit,
    /// It has too much to do.
    Overloaded,
    /// It did not answer, or not to the end.
    None,
}

impl Answer {
    /// Of a failure. A success is [`Answer::Well`].
    pub fn of(failure: Failure) -> Self {
        match failure {
            Failure { code, class } if outcome::is_pressure(code, class) => Self::Overloaded,
            Failure { code, class: Class::Retry | Class::InDoubt } if !outcome::is_servers(code) => {
                Self::None
            }
            Failure { class: Class::Halt | Class::RefreshSchema, .. } => Self::Unfit,
            _ => Self::Well,
        }
    }
}

/// The right to one try. It must be given back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a pass that is not given back is in flight for ever"]
pub struct Pass {
    /// Openings before it was given: an answer to a try from before the last one says nothing about what came after.
    openings: u64,
}

/// Until when there is no pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until this moment.
    Until(Duration),
    /// Until a pass comes back.
    Returned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    Open { until: Duration },
    Recovering { allowed: u32, well: u32 },
}

/// One server's.
#[derive(Debug)]
pub struct Breaker {
    concurrency_max: u32,
    phase: Phase,
    in_flight: u32,
    /// Ever.
    openings: u64,
    /// Since it was closed last.
    openings_in_a_row: u32,
    /// Tries without an answer since the last one with one.
    unanswered: u32,
    /// Whether its last answer was [`Answer::Unfit`].
    is_unfit: bool,
}

impl Breaker {
    /// Closed, for `concurrency_max` tries at the same time, at least one.
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

    /// Whether it holds tries back.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Tries in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// A pass, if one may be sent now.
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

    /// Takes a pass back of a try that was given up: nothing is known.
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

/// The wait after so many openings in a row: doubling from the least to the most, and of that between a half and the whole, so that
/// gateways that were turned away together do not come back together.
fn wait(openings_in_a_row: u32, random: f64) -> Duration {
    let doublings = openings_in_a_row.saturating_sub(1).min(16);
    let doubled = WAIT_MIN.saturating_mul(2u32.pow(doublings));
    doubled.min(WAIT_MAX).mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0))
}

/// The servers of one shard, in the order of the config.
#[derive(Debug)]
pub struct Endpoints(Vec<Breaker>);

impl Endpoints {
    /// `count` servers, at least one, for `concurrency_max` tries each at the same time.
    pub fn new(count: usize, concurrency_max: u32) -> Self {
        Self((0..count.max(1)).map(|_| Breaker::new(concurrency_max)).collect())
    }

    /// A server for the next try, by its place in the config, and a pass for it: the first one that has answered last, did not refuse for
    /// what someone must mend, and is not held back. After a try at `last`, that one alone for [`Replica::Same`], and only in the end for
    /// [`Replica::Another`].
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

    /// Takes a pass back of a try that was given up.
    pub fn give_up(&mut self, endpoint: usize, pass: Pass) {
        self.0[endpoint].give_up(pass);
    }

    /// How many servers are held back.
    pub fn held_back(&self) -> usize {
        self.0.iter().filter(|breaker| !breaker.is_closed()).count()
    }
}

#[cfg(test)]
mod tests;
