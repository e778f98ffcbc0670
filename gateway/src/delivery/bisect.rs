//! Finds the rows of a block that the server refuses.
//!
//! Job: given a refused block, name the rows to send next, take the outcome, and end with the rows that are refused one by one. At that
//! time, all other rows are stored. Place in the flow: delivery uses it after a refusal of class poison or split. Owner: the task that
//! delivers the block. Pure: the same outcomes give the same windows.
//!
//! The block is split level by level, each part into [`FAN_OUT`] ([`sluice_ranges::parts`]):
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
//! Each window has its own token, made from the block's token and the row numbers. Windows of one level do not overlap, so each may be sent
//! again, by this process or by the next owner of the partition. **A level is [noted](Step::Note) in a stored plan before a window of the
//! next level is sent. From then on, no window of a higher level is sent.** So it does not matter when the table is fixed: a
//! window that was refused and is accepted now was not sent in smaller parts. A process that continues later starts from the noted level
//! and sends all of its windows: the server knows the stored ones by their tokens.
//!
//! Dead-lettered rows are noted too, so they are not sent again either.
//!
//! # Limits
//!
//! [`TRIES_MAX`] windows, and [`REFUSED_ROWS_MAX`] refused windows of a level; [`Quota`] limits rows over time. Above these limits the
//! cause is the table, not the rows, and dead letters would move the whole topic to the dead-letter topic: [`Step::Halt`].
//!
//! Memory: the block itself, and [`block_rows::MEMORY_BYTES_MAX`] while a window's body is built; two of its frames stay until the window
//! is sent. A process bisects one block at a time, for which the budget has [a part](sluice_gateway_config::budget::PARTS_BYTES).

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

/// Windows of one block that are sent before someone must act, and again after each halt. Chosen: this finds 30 bad rows anywhere in
/// 100,000, and makes at most three quarters as many parts, which a table can take at once.
pub const TRIES_MAX: u32 = 1_024;

/// Refused windows of one level. Chosen: a service whose rows the table does not accept has more of them in a block; its rows are then
/// not an exception.
pub const REFUSED_ROWS_MAX: usize = 64;

/// Rows of all blocks of a table that may be dead-lettered in a minute. Chosen: blocks of low traffic have few rows each, so a limit per
/// block alone would let all of them pass.
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

/// Rows to send under one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Numbers of the rows in the block.
    pub rows: Range<u64>,
    /// Their deduplication token. It does not start with the block's token, so a search for attempts of the block finds none of these.
    pub token: String,
}

/// A row that the server refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRow {
    /// Its number in the block.
    pub row: u64,
    /// Why ClickHouse refuses it.
    pub refusal: Refusal,
}

/// The server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What the server refuses: rows, or their number.
    pub fault: Fault,
    /// Its exception code.
    pub code: Option<u32>,
    /// Its message.
    pub text: String,
}

/// The subject of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Rows, which the server refuses at any time (poison).
    Rows,
    /// The size: too much at once (split).
    Size,
}

/// The outcome of sending a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its rows are in the table.
    Stored,
    /// The server refuses it.
    Refused(Refusal),
    /// Unknown, or nothing was sent: the same window is next.
    Unknown,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Write this into the plan, and call [`Bisection::noted`] once it is stored.
    Note(RefusedParts),
    /// Send these rows, and pass the outcome to [`Bisection::take`].
    Send(Window),
    /// All rows are stored, except these.
    Done(Vec<RefusedRow>),
    /// Too much is refused: stop, report it, and [try again](Bisection::renew) later. Nothing is lost.
    Halt(Excess),
}

/// The limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// Refused rows of the block.
    #[error(
        "ClickHouse refuses rows in more than {REFUSED_ROWS_MAX} places of one block: the cause is the table, not single rows"
    )]
    Rows,
    /// Windows of the block.
    #[error(
        "{TRIES_MAX} inserts did not find the refused rows of a block: the cause is the table, not single rows"
    )]
    Tries,
    /// Places for the plan.
    #[error(
        "the server takes a block only in more parts than the plan can hold; increase the server's limits"
    )]
    Places,
    /// Refused rows of all blocks.
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
    /// The level of the windows that are sent and of those refused.
    height: u8,
    /// Numbers of undecided windows, the next one first.
    pending: VecDeque<u64>,
    /// Numbers of refused windows.
    refused: BTreeMap<u64, Refusal>,
    /// Windows decided since the start or the last renewal.
    tries: u32,
    /// The last window that was tried again after a halt.
    renewed: Option<u64>,
    /// Whether refused windows are tried again one by one.
    is_renewing: bool,
    /// Whether the refused rows are noted.
    is_over: bool,
}

impl Bisection {
    /// For a block with this number of rows that was refused as a whole under `token`.
    ///
    /// # Panics
    /// If the block has no rows; no server refuses such a block.
    pub fn new(token: Token, rows: u64, refusal: Refusal) -> Self {
        let height = RefusedParts::height_of(rows);
        Self::at(token, rows, height, BTreeMap::from([(0, refusal)]))
    }

    /// Continues where another process stopped. `None` if its notes are not of this block.
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

    /// The next step.
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

    /// Records that the parts of the last [`Step::Note`] are stored.
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

    /// Records the outcome of the window of the last [`Step::Send`].
    ///
    /// # Panics
    /// If there was none.
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
            // The table was fixed: another refused window may be accepted now, too.
            None if self.is_renewing && self.pending.is_empty() => self.renew(),
            None => {}
        }
    }

    /// Continues after a halt: tries one of the refused windows again, in turn, with a new count of tries.
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

/// The body of a window: frames of its rows; those in the middle are the block's own frames.
///
/// # Errors
/// [`BlockError`] if the block does not have these rows.
pub fn body(
    shape: &RowShape,
    frames: &[Bytes],
    header: Header,
    window: &Window,
) -> Result<InsertBody, BlockError> {
    block_rows::window(shape, frames, header, window.rows.clone()).map(InsertBody::new)
}

/// Limits how many rows of a table are dead-lettered over time. Pure: time is an argument.
#[derive(Debug, Clone, Default)]
pub struct Quota {
    /// Recent rows; each fades within a minute.
    level: f64,
    /// Time of the last call.
    at: Duration,
}

impl Quota {
    /// Whether this many more rows may be dead-lettered; if so, counts them. `now` is the time since any fixed moment.
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
