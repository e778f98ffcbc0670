//! The only place of this package that writes to standard output: progress lines with the seconds since the command began, and
//! results. Every thread may call it; a line is written whole. A reader that went away (a closed pipe) is no error: the work
//! goes on.

use std::io::{Write, stderr, stdout};
use std::sync::OnceLock;
use std::time::Instant;

static BEGAN: OnceLock<Instant> = OnceLock::new();

/// Starts the clock of the progress lines; the first call counts. Without it the first line starts the clock.
pub fn begin() {
    BEGAN.get_or_init(Instant::now);
}

/// Seconds since the command began.
pub fn elapsed_seconds() -> f64 {
    BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// One line of a result, as it is.
pub fn line(text: &str) {
    put(&mut stdout().lock(), &format!("{text}\n"));
}

/// One line of progress: seconds since the command began, the part it is about, what happened.
pub fn progress(part: &str, text: &str) {
    put(&mut stdout().lock(), &format!("{:7.1}s  {part:<12} {text}\n", elapsed_seconds()));
}

/// One line to standard error: what went wrong, or what the user should know beside the result.
pub fn error(text: &str) {
    put(&mut stderr().lock(), &format!("{text}\n"));
}

fn put(out: &mut dyn Write, text: &str) {
    if out.write_all(text.as_bytes()).is_ok() {
        out.flush().ok();
    }
}
