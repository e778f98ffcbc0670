//! Which rows of a block does the server refuse?
//!
//! Job: given a block that was refused, say which of its rows to send next, take what became of them, and end with the rows that are
//! refused one by one; all others are stored by then. Place in the flow: delivery asks after a refusal whose class is poison or split,
//! and does what it is told. Owner: the task that delivers the block. Pure: the same outcomes give the same windows.
//!
//! The block is taken apart level by level, each part into [`FAN_OUT`] ([`sluice_ranges::parts`]):
//!
//! ```text
//! rows 0..16, of which 5 is bad:   noted: 0..16 is refused
//!                                  sent:  0..4 stored   4..8 refused   8..12 stored   12..16 stored
//!                                  noted: 4..8 is refused
//!                                  sent:  4..5 stored   5..6 refused   6..7 stored    7..8 stored
//!                                  noted: 5..6 is refused: row 5
//! ```
//!
//! # Nothing is stored twice
//!
//! Each window has a token of its own, made from the block's and the rows. Windows of one level do not overlap, so
//! that any of them may be sent again, by this process or by the next owner of the partition. **Once a level is [noted](Step::Note), in a
//! plan that is stored, nothing of a level above is sent any more, and nothing of the level below is sent before.** Then it does
//! not matter when the table is mended: what was refused before and is taken now was not sent in smaller parts. Whoever goes on
//! later starts from what was noted, and sends all windows of that level: those that were stored are known by their tokens.
//!
//! Rows that are dead-lettered are noted too: they are not sent again either.
//!
//! # Limits
//!
//! [`TRIES_MAX`] windows and [`REFUSED_ROWS_MAX`] refused windows of a level; [`Quota`] bounds rows over time. Above them the table is what
//! is wrong, not the rows, and dead-lettering would empty the topic into the wrong place: [`Step::Halt`].
//!
//! Memory: the block itself, and [`block_rows::MEMORY_BYTES_MAX`] while a window's body is made, of which two frames stay until it is
//! sent. One block of a process is bisected at a time, for which the budget has [a part](sluice_gateway_config::budget::PARTS_BYTES).

use bytes::Bytes;
use sluice_clickhouse::{
    block_rows::{self, BlockError, Header},
    body::InsertBody,
    row_ends::RowShape,
};
use sluice_gateway_config::budget::{BLOCK_BYTES_MAX, PARTS_BYTES, ROW_BYTES_MAX};
use sluice_ranges::{
    Token,
    parts::{FAN_OUT, RefusedParts, part_rows},
};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    time::Duration,
};

/// Windows of one block that are sent before someone is called, and again after each time. Chosen: 30 bad rows anywhere in 100,000 are
/// found with it, and it makes at most three quarters as many parts, which a table stands at once.
pub const TRIES_MAX: u32 = 1_024;

/// Windows of one level whose rows may be refused. Chosen: a service that sends what a table does not take has more of them in a block;
/// then its rows are no exception any more.
pub const REFUSED_ROWS_MAX: usize = 64;

/// Rows that may be dead-lettered in a minute, from all blocks of a table. Chosen: blocks of low traffic hold few rows each, so
/// that the limit of a block alone would let all of them pass.
pub const REFUSED_ROWS_A_MINUTE_MAX: u32 = 600;

const _: () = assert!(
    block_rows::ROW_BYTES_MAX as u64 == ROW_BYTES_MAX
        && block_rows::BLOCK_BYTES_MAX as u64 == BLOCK_BYTES_MAX,
    "a row that is encoded must be found in its block"
);
const _: () = assert!(
    block_rows::MEMORY_BYTES_MAX as u64 <= PARTS_BYTES,
    "a block in parts takes more than the budget counts"
);

/// Rows to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Numbers of the rows in the block.
    pub rows: Range<u64>,
    /// Their deduplication token. The block's token is not what it begins with: who looks for attempts of the block finds none of this.
    pub token: String,
}

/// A row that the server refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRow {
    /// Its number in the block.
    pub row: u64,
    /// Why.
    pub refusal: Refusal,
}

/// What the server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What it finds fault with.
    pub fault: Fault,
    /// Its exception code.
    pub code: Option<u32>,
    /// Its message.
    pub text: String,
}

/// What a refusal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Rows, which are taken neither now nor later (poison).
    Rows,
    /// That there are so many at once (split).
    Size,
}

/// What became of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its rows are in the table.
    Stored,
    /// The server does not take it.
    Refused(Refusal),
    /// Nobody knows, or nothing was tried: the same window is next.
    Unknown,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Have this written into the plan, and say when it [is](Bisection::noted).
    Note(RefusedParts),
    /// Send these rows, and say what became of them.
    Send(Window),
    /// All rows are stored, but for these.
    Done(Vec<RefusedRow>),
    /// Too much is refused: stop, say so, and [try again](Bisection::renew) after a while. Nothing is lost.
    Halt(Excess),
}

/// What there is too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// Of refused rows.
    #[error(
        "ClickHouse refuses rows in more than {REFUSED_ROWS_MAX} places of one block: the cause is the table, not single rows"
    )]
    Rows,
    /// Of tries.
    #[error(
        "{TRIES_MAX} inserts did not find the refused rows of a block: the cause is the table, not single rows"
    )]
    Tries,
    /// Of places, for a plan.
    #[error(
        "the server takes a block only in more parts than the plan can hold; increase the server's limits"
    )]
    Places,
    /// Of rows of all blocks.
    #[error(
        "ClickHouse refuses more than {REFUSED_ROWS_A_MINUTE_MAX} rows a minute: the cause is the table, not single rows"
    )]
    Quota,
}

/// The search in one block.
#[derive(Debug, Clone)]
pub struct Bisection {
    token: String,
    check: u32,
    rows: u64,
    /// Of the windows that are sent, and of those refused.
    height: u8,
    /// Numbers of windows that are not decided, the next one first.
    pending: VecDeque<u64>,
    /// Numbers of windows that were refused.
    refused: BTreeMap<u64, Refusal>,
    /// Windows decided since the start or the last renewal.
    tries: u32,
    /// The last window that was tried again after a halt.
    renewed: Option<u64>,
    /// Whether windows that were refused are tried again one by one.
    is_renewing: bool,
    /// The refused rows are noted.
    is_over: bool,
}

impl Bisection {
    /// For a block of so many rows that was refused as a whole under `token`.
    ///
    /// # Panics
    /// When the block has no rows, which no server refuses.
    pub fn new(token: Token, rows: u64, refusal: Refusal) -> Self {
        let height = RefusedParts::height_of(rows);
        Self::at(token, rows, height, BTreeMap::from([(0, refusal)]))
    }

    /// Goes on where another process was. None when what it noted is not of this block.
    pub fn resume(token: Token, rows: u64, parts: &RefusedParts) -> Option<Self> {
        if !parts.is_of(token.check(), rows) {
            return None;
        }
        let refusal = Refusal {
            fault: Fault::Rows,
            code: Some(parts.code).filter(|code| *code > 0),
            text: "refused before the partition changed hands".to_owned(),
        };
        let refused = parts.refused.iter().map(|number| (*number, refusal.clone())).collect();
        let mut bisection = Self::at(token, rows, parts.height, refused);
        bisection.noted();
        Some(bisection)
    }

    fn at(token: Token, rows: u64, height: u8, refused: BTreeMap<u64, Refusal>) -> Self {
        Self {
            token: token.to_string(),
            check: token.check(),
            rows,
            height,
            pending: VecDeque::new(),
            refused,
            tries: 0,
            renewed: None,
            is_renewing: false,
            is_over: false,
        }
    }

    /// What to do next.
    pub fn step(&self) -> Step {
        if let Some(number) = self.pending.front() {
            return if self.tries >= TRIES_MAX {
                Step::Halt(Excess::Tries)
            } else {
                Step::Send(self.window(*number))
            };
        }
        if self.is_over || self.refused.is_empty() {
            let rows =
                self.refused.iter().map(|(row, refusal)| RefusedRow { row: *row, refusal: refusal.clone() });
            return Step::Done(rows.collect());
        }
        match self.excess() {
            Some(excess) => Step::Halt(excess),
            None => Step::Note(self.parts()),
        }
    }

    /// Takes down that what [`Bisection::step`] said is noted.
    pub fn noted(&mut self) {
        let Some(height) = self.height.checked_sub(1) else {
            self.is_over = true;
            return;
        };
        self.height = height;
        let count = self.rows.div_ceil(part_rows(height));
        let parts = |number: u64| number * FAN_OUT..((number + 1) * FAN_OUT).min(count);
        self.pending = std::mem::take(&mut self.refused).into_keys().flat_map(parts).collect();
        (self.renewed, self.is_renewing) = (None, false);
    }

    /// Takes down what became of the window that [`Bisection::step`] named.
    ///
    /// # Panics
    /// When there was none.
    pub fn take(&mut self, outcome: Outcome) {
        let refusal = match outcome {
            Outcome::Unknown => return,
            Outcome::Stored => None,
            Outcome::Refused(refusal) => Some(refusal),
        };
        let number = self.pending.pop_front().expect("an outcome is of a window that was to be sent");
        self.tries = self.tries.saturating_add(1);
        match refusal {
            Some(refusal) => {
                self.refused.insert(number, refusal);
            }
            // The table was mended: another one may be taken now, too.
            None if self.is_renewing && self.pending.is_empty() => self.renew(),
            None => {}
        }
    }

    /// Goes on after a halt: tries one of the refused windows again, each in its turn, as if none were tried before.
    pub fn renew(&mut self) {
        self.tries = 0;
        if !self.pending.is_empty() || self.excess().is_none() {
            return;
        }
        let behind = |number: &&u64| self.renewed.is_none_or(|renewed| **number > renewed);
        let next = self.refused.keys().find(behind).or_else(|| self.refused.keys().next()).copied();
        if let Some(number) = next {
            self.refused.remove(&number);
            self.pending.push_back(number);
            (self.renewed, self.is_renewing) = (Some(number), true);
        }
    }

    fn excess(&self) -> Option<Excess> {
        let rows = self.refused.values().filter(|refusal| refusal.fault == Fault::Rows).count();
        if rows > REFUSED_ROWS_MAX {
            Some(Excess::Rows)
        } else if self.parts().fits() {
            None
        } else {
            Some(Excess::Places)
        }
    }

    fn parts(&self) -> RefusedParts {
        let code = self.refused.values().find_map(|refusal| refusal.code);
        RefusedParts {
            check: self.check,
            rows: self.rows,
            height: self.height,
            code: code.unwrap_or_default(),
            refused: self.refused.keys().copied().collect(),
        }
    }

    fn window(&self, number: u64) -> Window {
        let part = part_rows(self.height);
        let rows = number * part..((number + 1) * part).min(self.rows);
        let token = format!("{}-{}-{}", rows.start, rows.end, self.token);
        Window { rows, token }
    }
}

/// The body of a window of a block: frames of its rows, of which those in the middle are the block's own.
///
/// # Errors
/// [`BlockError`] when the block does not hold such rows.
pub fn body(
    shape: &RowShape,
    frames: &[Bytes],
    header: Header,
    window: &Window,
) -> Result<InsertBody, BlockError> {
    block_rows::window(shape, frames, header, window.rows.clone()).map(InsertBody::new)
}

/// How many rows of a table may be dead-lettered over time. Pure: time is an argument.
#[derive(Debug, Clone, Default)]
pub struct Quota {
    /// Rows of late, each fading within a minute.
    level: f64,
    /// Time of the last look.
    at: Duration,
}

impl Quota {
    /// Whether so many rows more may be dead-lettered; if so they are counted. `now` is the time since any fixed moment.
    pub fn admits(&mut self, now: Duration, rows: usize) -> bool {
        let most = f64::from(REFUSED_ROWS_A_MINUTE_MAX);
        let faded = now.saturating_sub(self.at).as_secs_f64() * most / 60.0;
        self.level = (self.level - faded).max(0.0);
        self.at = self.at.max(now);
        let rows = f64::from(u32::try_from(rows).unwrap_or(u32::MAX));
        let admits = self.level + rows <= most;
        if admits {
            self.level += rows;
        }
        admits
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
