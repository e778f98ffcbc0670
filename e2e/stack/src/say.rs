//! The only place of this package that writes to standard output: progress lines with the seconds since the command began, and results. Any
//! thread may call it; each line is written at once. If the reader has gone (a closed pipe), that is no error: the work continues.

use std::io::{Write, stderr, stdout};
use std::sync::OnceLock;
use std::time::Instant;

static BEGAN: OnceLock<(Instant, f64)> = OnceLock::new();

/// Seconds that the command had run when it started this program; set by [`clock_for_child`].
const SECONDS_BEFORE: &str = "SLUICE_SECONDS_BEFORE";

/// Starts the clock of the progress lines; only the first call counts. Without a call, the first line starts the clock.
pub fn begin() {
    clock();
}

/// Seconds since the command began.
pub fn elapsed_seconds() -> f64 {
    let (began, before) = clock();
    before + began.elapsed().as_secs_f64()
}

/// A variable for a program that this one starts: its progress lines then continue this program's clock.
pub fn clock_for_child() -> (&'static str, String) {
    (SECONDS_BEFORE, format!("{:.3}", elapsed_seconds()))
}

fn clock() -> &'static (Instant, f64) {
    BEGAN.get_or_init(|| {
        let before = std::env::var(SECONDS_BEFORE).ok().and_then(|text| text.parse().ok());
        (Instant::now(), before.unwrap_or_default())
    })
}

/// Prints one line of a result unchanged.
pub fn line(text: &str) {
    put(&mut stdout().lock(), &format!("{text}\n"));
}

pub fn lines(texts: &[String]) {
    for text in texts {
        line(text);
    }
}

/// One line of progress: seconds since the command began, the part it is about, what happened.
pub fn progress(part: &str, text: &str) {
    put(&mut stdout().lock(), &format!("{:7.1}s  {part:<12} {text}\n", elapsed_seconds()));
}

/// One line to standard error: a failure, or a note beside the result.
pub fn error(text: &str) {
    put(&mut stderr().lock(), &format!("{text}\n"));
}

/// Lines of cells below one another, as many in each: the first `words` columns to the left, numbers to the right.
pub fn aligned<L: AsRef<[String]>>(lines: &[L], words: usize) -> Vec<String> {
    let columns = lines.first().map_or(0, |cells| cells.as_ref().len());
    let width = |column: usize| lines.iter().map(|cells| cells.as_ref()[column].len()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    let line = |cells: &L| {
        let padded = cells.as_ref().iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column < words { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        padded.collect::<Vec<_>>().join("  ")
    };
    lines.iter().map(line).collect()
}

fn put(out: &mut dyn Write, text: &str) {
    if out.write_all(text.as_bytes()).is_ok() {
        out.flush().ok();
    }
}
