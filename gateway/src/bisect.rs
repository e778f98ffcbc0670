//! Which rows of a block does the server refuse?
//!
//! Job: given a block that was refused, say which of its rows to send next, take what became of them, and end with the rows that are
//! refused one by one; all others are stored by then. Place in the flow: delivery asks after a refusal whose class is poison, and sends
//! what it is told. Owner: the task that delivers the block. Pure: the same outcomes give the same windows.
//!
//! ```text
//! rows 0..8, of which 5 is bad:   0..8 refused by delivery
//!                                 |-- 0..4 stored
//!                                 `-- 4..8 refused
//!                                     |-- 4..6 refused
//!                                     |   |-- 4..5 stored
//!                                     |   `-- 5..6 refused: row 5
//!                                     `-- 6..8 stored
//! ```
//!
//! # Nothing is stored twice
//!
//! Each window has a token of its own, made from the block's and the rows. A window is split only after the server refused it,
//! which stores nothing; so no row is in two windows that are stored. That must stay so when the table is mended half-way, and
//! when another process goes on: **once the first window is sent, the block as a whole must not be sent again, and a window that
//! was split must not be**. Whoever goes on later starts from [`Bisection::progress`], which is taken down before each window is
//! sent, and sends the window that is named there first: if it was stored, the server knows its token.
//!
//! # Limits
//!
//! [`TRIES_MAX`] windows and [`REFUSED_ROWS_MAX`] rows a block; [`Quota`] bounds rows over time. Above them the table is what
//! is wrong, not the rows, and dead-lettering would empty the topic into the wrong place: [`Step::Halt`].
//!
//! Memory: the block itself, and for a window's body two frames and the largest row of the block while it is made. The budget has no
//! part for that: one block of a process is bisected at a time.

use bytes::Bytes;
use sluice_clickhouse::{
    block_rows::{self, BlockError, Header},
    body::InsertBody,
    row_ends::RowShape,
};
use sluice_gateway_config::budget::ROW_BYTES_MAX;
use std::{ops::Range, time::Duration};

/// Windows of one block that may be sent. Chosen: 40 bad rows anywhere in 100,000 are found with it, and it makes at most half as
/// many parts, which a table stands at once.
pub const TRIES_MAX: u32 = 1_024;

/// Rows of one block that may be refused. Chosen: a service that sends what a table does not take has more of them in a block;
/// then its rows are no exception any more.
pub const REFUSED_ROWS_MAX: usize = 64;

/// Rows that may be dead-lettered in a minute, from all blocks of a table. Chosen: blocks of low traffic hold few rows each, so
/// that the limit of a block alone would let all of them pass.
pub const REFUSED_ROWS_A_MINUTE_MAX: u32 = 600;

const _: () = assert!(
    block_rows::ROW_BYTES_MAX as u64 >= ROW_BYTES_MAX,
    "a row that is encoded must be found in its block"
);

/// Rows to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Numbers of the rows in the block.
    pub rows: Range<u64>,
    /// Their deduplication token.
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
    /// Its exception code.
    pub code: Option<u32>,
    /// Its message.
    pub text: String,
}

/// What became of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its rows are in the table.
    Stored,
    /// The server takes them neither now nor later (poison), or not at once (split).
    Refused(Refusal),
    /// Nobody knows, or nothing was tried: the same window is next.
    Unknown,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send these rows, and say what became of them.
    Send(Window),
    /// All rows are stored, but for these.
    Done(Vec<RefusedRow>),
    /// Too much is refused: stop, say so, and [go on](Bisection::renew) after someone has acted. Nothing is lost.
    Halt(Excess),
}

/// What there is too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// Of refused rows.
    #[error(
        "more than {REFUSED_ROWS_MAX} rows of one block are refused: that is no matter of single rows; look at the table"
    )]
    Rows,
    /// Of tries.
    #[error(
        "the refused rows of a block were not found with {TRIES_MAX} inserts: that is no matter of single rows; look at the table"
    )]
    Tries,
}

/// How far a bisection is: enough to go on in another process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The window that is sent next. The windows that hold it were refused; every row before it is stored or refused.
    pub next: Range<u64>,
    /// Rows refused so far.
    pub refused: Vec<u64>,
}

/// The search in one block.
#[derive(Debug, Clone)]
pub struct Bisection {
    token: String,
    /// Windows that are not decided, the next one last; they follow one another up to the block's end.
    pending: Vec<Range<u64>>,
    refused: Vec<RefusedRow>,
    /// Windows decided since the start or the last renewal.
    tries: u32,
    /// Rows refused before the last renewal.
    refused_before: usize,
}

impl Bisection {
    /// For a block of so many rows that was refused as a whole under `token`.
    ///
    /// # Panics
    /// When the block has no rows, which no server refuses.
    pub fn new(token: impl Into<String>, rows: u64, refusal: Refusal) -> Self {
        assert!(rows > 0, "a block without rows is not sent");
        let mut bisection = Self {
            token: token.into(),
            pending: Vec::new(),
            refused: Vec::new(),
            tries: 0,
            refused_before: 0,
        };
        bisection.refuse(0..rows, refusal);
        bisection
    }

    /// Goes on where another process was. `refusal` stands for what it knew of the rows refused so far. None when the progress is
    /// not one of a block of so many rows.
    pub fn resume(
        token: impl Into<String>,
        rows: u64,
        progress: &Progress,
        refusal: &Refusal,
    ) -> Option<Self> {
        let mut pending = Vec::new();
        let mut window = 0..rows;
        let next = &progress.next;
        while window != *next {
            let [left, right] = halves(&window)?;
            if next.start >= right.start {
                window = right;
            } else {
                pending.push(right);
                window = left;
            }
        }
        let sound = !next.is_empty() && progress.refused.iter().all(|row| *row < next.start);
        let refused = progress.refused.iter().map(|row| RefusedRow { row: *row, refusal: refusal.clone() });
        let refused: Vec<RefusedRow> = refused.collect();
        pending.push(window);
        let refused_before = refused.len();
        sound.then_some(Self { token: token.into(), pending, refused, tries: 0, refused_before })
    }

    /// How far it is; none when it is done.
    pub fn progress(&self) -> Option<Progress> {
        let next = self.pending.last()?.clone();
        Some(Progress { next, refused: self.refused.iter().map(|refused| refused.row).collect() })
    }

    /// What to do next.
    pub fn step(&self) -> Step {
        let Some(rows) = self.pending.last() else { return Step::Done(self.refused.clone()) };
        if self.refused.len() - self.refused_before > REFUSED_ROWS_MAX {
            Step::Halt(Excess::Rows)
        } else if self.tries >= TRIES_MAX {
            Step::Halt(Excess::Tries)
        } else {
            let token = format!("{}-{}-{}", self.token, rows.start, rows.end);
            Step::Send(Window { rows: rows.clone(), token })
        }
    }

    /// Takes down what became of the window that [`Bisection::step`] named.
    ///
    /// # Panics
    /// When there was none.
    pub fn take(&mut self, outcome: Outcome) {
        let decided = match outcome {
            Outcome::Unknown => return,
            Outcome::Stored | Outcome::Refused(_) => self.pending.pop(),
        };
        let rows = decided.expect("an outcome is of a window that was to be sent");
        self.tries = self.tries.saturating_add(1);
        if let Outcome::Refused(refusal) = outcome {
            self.refuse(rows, refusal);
        }
    }

    /// Goes on after a halt, with the limits of a new block.
    pub fn renew(&mut self) {
        self.tries = 0;
        self.refused_before = self.refused.len();
    }

    fn refuse(&mut self, rows: Range<u64>, refusal: Refusal) {
        match halves(&rows) {
            Some([left, right]) => self.pending.extend([right, left]),
            None => self.refused.push(RefusedRow { row: rows.start, refusal }),
        }
    }
}

/// Two halves of a window, the first no smaller than the second; none of a window of one row.
fn halves(window: &Range<u64>) -> Option<[Range<u64>; 2]> {
    let rows = window.end.checked_sub(window.start)?;
    let middle = window.start + rows.div_ceil(2);
    (rows > 1).then_some([window.start..middle, middle..window.end])
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

/// Which message of a block a row is of, and which span of that: `messages` are offsets and their numbers of rows, in order.
pub fn locate(row: u64, messages: impl IntoIterator<Item = (i64, u64)>) -> Option<(i64, u64)> {
    let mut first = 0;
    for (offset, rows) in messages {
        if row - first < rows {
            return Some((offset, row - first));
        }
        first += rows;
    }
    None
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
#[path = "bisect_tests.rs"]
mod tests;
