//! The steps of `verify`: commands that succeed or fail, and test programs whose tests are counted. Steps may run in parallel.
//!
//! Limits: after [`FAILURES_MAX`] failures no further step begins, so that a broken machine or program ends `verify` within minutes.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use e2e_stack::paths::Paths;
use e2e_stack::process::{Job, interrupt};
use e2e_stack::say;
use rustix::process::{Pid, Signal, kill_process_group};

/// Failures after which no further step begins. Chosen: more than one broken part causes in the tests of the packages.
pub const FAILURES_MAX: usize = 20;

/// Failures of end-to-end tests after which the others of the same program are not begun; each may take minutes to fail.
const CLUSTER_FAILURES_MAX: usize = 5;

/// Variable that passes [`CLUSTER_FAILURES_MAX`] to the end-to-end tests.
const CLUSTER_FAILURES_VARIABLE: &str = "SLUICE_FAILURES_MAX";

/// Tests that are listed with their seconds at the end.
const SLOWEST: usize = 10;

/// Interval of the check for Ctrl-C while tests run.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Counts and failures so far.
#[derive(Debug, Default)]
pub struct Steps(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    passed: u64,
    failures: Vec<Failure>,
    steps: Vec<Took>,
    tests: Vec<Took>,
}

#[derive(Debug)]
struct Failure {
    name: String,
    cause: String,
}

#[derive(Clone, Debug)]
struct Took {
    name: String,
    seconds: f64,
}

/// Does both at the same time. If both fail, the error is that of `one`.
pub fn beside(
    one: impl FnOnce() -> anyhow::Result<()> + Send,
    other: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        one.join().ok().context("a thread of verify panicked")?.and(other)
    })
}

impl Steps {
    /// A step that counts as one; returns what it made, or `None` if it failed, which is counted. An error means that no further step may
    /// begin, after Ctrl-C or too many failures.
    pub fn once<T>(
        &self,
        name: &str,
        check: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<Option<T>> {
        self.ensure_goes_on()?;
        let began = Instant::now();
        let outcome = check();
        let seconds = began.elapsed().as_secs_f64();
        let mut seen = self.seen();
        seen.steps.push(Took { name: name.to_owned(), seconds });
        seen.passed += u64::from(outcome.is_ok());
        let result = if outcome.is_ok() { "ok" } else { "FAILED" };
        say::progress("verify", &format!("{name} ... {result}, {seconds:.1} s"));
        if let Err(failure) = &outcome {
            let cause = format!("{failure:#}");
            say::line(&cause);
            seen.failures.push(Failure { name: name.to_owned(), cause });
        }
        drop(seen);
        interrupt::check()?;
        Ok(outcome.ok())
    }

    /// Runs a test program, prints its output, and counts its tests. A program that ends early or does not compile counts as one failure.
    pub fn tests(&self, tests: &mut Command) -> anyhow::Result<()> {
        self.ensure_goes_on()?;
        let began = Instant::now();
        let name = words(tests);
        say::progress("verify", &name);
        tests.env(CLUSTER_FAILURES_VARIABLE, CLUSTER_FAILURES_MAX.to_string()).envs([say::clock_for_child()]);
        // In a process group of its own: this process forwards Ctrl-C once, to the program and all its children.
        tests.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = tests.spawn().with_context(|| format!("start {name}"))?;
        let output = child.stdout.take().context("the output of the tests is not piped")?;
        let over = AtomicBool::new(false);
        let mut counted = std::thread::scope(|scope| {
            scope.spawn(|| end_when_asked(&child, &over));
            let counted = Counted::of(BufReader::new(output));
            over.store(true, Ordering::Release);
            counted.with_context(|| format!("read the output of {name}"))
        })?;
        let status = child.wait().with_context(|| format!("wait for {name}"))?;
        if !status.success() && counted.failures.is_empty() {
            counted
                .failures
                .push(Failure { name: name.clone(), cause: format!("{status}; its output is above") });
        }
        let mut seen = self.seen();
        seen.steps.push(Took { name, seconds: began.elapsed().as_secs_f64() });
        seen.passed += counted.passed;
        seen.failures.append(&mut counted.failures);
        seen.tests.append(&mut counted.took);
        drop(seen);
        interrupt::check()
    }

    /// Counts the error that prevents further steps, unless it is the number of failures itself.
    pub fn cut_off(&self, why: &anyhow::Error) {
        let mut seen = self.seen();
        if seen.failures.len() < FAILURES_MAX {
            say::line(&format!("{why:#}"));
            seen.failures.push(Failure { name: "cut off".to_owned(), cause: format!("{why:#}") });
        }
    }

    /// Steps and tests that passed or failed so far.
    pub fn counted(&self) -> u64 {
        let seen = self.seen();
        seen.passed + seen.failures.len() as u64
    }

    pub fn failed(&self) -> usize {
        self.seen().failures.len()
    }

    /// Prints the slowest tests, the failures, and the counts in the last line.
    pub fn conclude(self) -> ExitCode {
        let Seen { passed, failures, steps, mut tests, .. } =
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        say::line("");
        tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        for step in &steps {
            say::line(&step.line("step"));
        }
        for test in tests.iter().take(SLOWEST) {
            say::line(&test.line("test"));
        }
        for Failure { name, cause } in &failures {
            say::line(&format!("FAILED  {name}: {}", first_words(cause)));
        }
        if failures.len() >= FAILURES_MAX {
            say::line(&format!("stopped after {} failures", failures.len()));
        }
        say::progress("verify", if interrupt::requested() { "interrupted" } else { "done" });
        say::line(&format!("{passed} passed, {} failed", failures.len()));
        if interrupt::requested() {
            return ExitCode::from(interrupt::EXIT_CODE);
        }
        code(passed, failures.len())
    }

    fn ensure_goes_on(&self) -> anyhow::Result<()> {
        interrupt::check()?;
        let failed = self.failed();
        ensure!(failed < FAILURES_MAX, "{failed} steps and tests have failed");
        Ok(())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Success, unless something failed or nothing was checked.
fn code(passed: u64, failed: usize) -> ExitCode {
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Took {
    fn line(&self, what: &str) -> String {
        format!("{:8.1} s  {what}  {}", self.seconds, self.name)
    }
}

/// A cause in one line of the summary, with the beginnings of all its lines: what is missing is often named in the second. The status of a
/// pipeline, with which many causes end, fits.
fn first_words(cause: &str) -> String {
    const CHARACTERS: usize = 2_000;
    let words: Vec<&str> = cause.split_whitespace().collect();
    words.join(" ").chars().take(CHARACTERS).collect()
}

/// Results from the output of test programs: Rust's own lines, and the lines of end-to-end tests with durations and causes of failures.
#[derive(Debug, Default)]
struct Counted {
    passed: u64,
    failures: Vec<Failure>,
    took: Vec<Took>,
    /// Causes by test. A cause is printed before the test's result.
    causes: Vec<(String, String)>,
}

/// Ends a test program and all its children after Ctrl-C.
fn end_when_asked(child: &Child, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        if interrupt::requested() {
            if let Err(error) = kill_process_group(Pid::from_child(child), Signal::TERM) {
                say::error(&format!("cannot end the tests: {error}"));
            }
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

impl Counted {
    /// Counts the results in a test program's output, and prints the output as it arrives.
    fn of(output: impl BufRead) -> std::io::Result<Self> {
        let mut counted = Self::default();
        for line in output.lines() {
            let line = line?;
            counted.see(&line);
            if !is_noise(&line) {
                say::line(&line);
            }
        }
        Ok(counted)
    }

    fn see(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            let known = self.causes.iter().find(|(test, _)| name.ends_with(test.as_str()));
            let cause = known.map_or_else(|| "its output is above".to_owned(), |(_, cause)| cause.clone());
            self.failures.push(Failure { name: name.to_owned(), cause });
        }
        if let Some((name, seconds)) = line.strip_prefix("took ").and_then(|rest| rest.split_once(' ')) {
            self.took.extend(seconds.parse().ok().map(|seconds| Took { name: name.to_owned(), seconds }));
        }
        if let Some((name, cause)) = line.strip_prefix("cause ").and_then(|rest| rest.split_once(' ')) {
            self.causes.push((name.to_owned(), cause.to_owned()));
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += number_before(result, " passed").unwrap_or_default();
        }
    }
}

fn number_before(text: &str, word: &str) -> Option<u64> {
    let before = &text[..text.find(word)?];
    before.rsplit([' ', '.', ';']).next()?.parse().ok()
}

/// Whether a line has no information, such as those of programs without tests.
fn is_noise(line: &str) -> bool {
    line.is_empty()
        || line == "running 0 tests"
        // Most of these tests wait for their turn.
        || line.ends_with(" has been running for over 60 seconds")
        || line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored")
}

/// Runs a command whose output is shown only if it fails.
pub fn quiet(name: &str, mut step: Command) -> anyhow::Result<()> {
    let log = Paths::from_environment()?.build_log(&name.replace(' ', "-"));
    let doing = words(&step);
    Job { part: "verify", doing: &doing, log }.run(&mut step)
}

/// A command in one line, or the beginning of it: it may name a hundred tests.
fn words(command: &Command) -> String {
    const WORDS: usize = 16;
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
    let rest = command.get_args().len().saturating_sub(WORDS);
    let words = std::iter::once(program).chain(command.get_args().take(WORDS));
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    if rest == 0 { line } else { format!("{line} and {rest} words more") }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn tests_are_counted_from_their_output() {
        let mut counted = Counted::default();
        for line in [
            "running 3 tests",
            "test a::b ... ok",
            "took a::b 12.5",
            "cause c no row came",
            "test c ... FAILED",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: ok. 17 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.04s",
        ] {
            counted.see(line);
        }
        assert_eq!((counted.passed, counted.failures.len()), (19, 1));
        assert_eq!(
            (counted.failures[0].name.as_str(), counted.failures[0].cause.as_str()),
            ("c", "no row came")
        );
        assert_eq!((counted.took[0].name.as_str(), counted.took[0].seconds), ("a::b", 12.5));
    }

    #[test]
    fn after_too_many_failures_no_step_begins() {
        let steps = Steps::default();
        let failure = || Failure { name: "wrong".to_owned(), cause: "so it is".to_owned() };
        steps.seen().failures.extend((0..FAILURES_MAX).map(|_| failure()));
        let over = steps.once::<()>("not run", || bail!("it is not begun")).unwrap_err();
        steps.cut_off(&over);
        assert_eq!(steps.failed(), FAILURES_MAX, "which is said once");
    }

    #[test]
    fn the_summary_has_what_the_second_line_of_a_cause_names() {
        let cause = "the stack cannot start; missing:\n  - disk space: 6 GiB\n";
        assert_eq!(first_words(cause), "the stack cannot start; missing: - disk space: 6 GiB");
    }

    #[test]
    fn nothing_checked_is_no_success() {
        assert_eq!(code(0, 0), ExitCode::FAILURE);
        assert_eq!(code(1, 0), ExitCode::SUCCESS);
        assert_eq!(code(1, 1), ExitCode::FAILURE);
    }
}
