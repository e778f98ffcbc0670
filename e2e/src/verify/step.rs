//! One step of `verify`: a command that is right or wrong, or a test program whose tests are counted.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::process::{Job, interrupt};
use crate::say;
use crate::stack::paths::Paths;

/// How often a wish to stop is looked for while tests run.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What passed and what failed so far.
#[derive(Debug, Default)]
pub struct Steps {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
    left_out: Vec<String>,
}

impl Steps {
    /// A step that counts as one.
    pub fn once(&mut self, name: &str, check: impl FnOnce() -> anyhow::Result<()>) {
        if interrupt::requested() {
            return;
        }
        match check() {
            Ok(()) => {
                self.passed += 1;
                say::progress("verify", &format!("{name} ... ok"));
            }
            Err(failure) => {
                self.failed += 1;
                say::progress("verify", &format!("{name} ... FAILED"));
                say::line(&format!("{failure:#}"));
                self.failures.push(name.to_owned());
            }
        }
    }

    /// A test program: its output is passed on, and its own tests are counted. One that ends early, or does not compile,
    /// counts as one failure.
    pub fn tests(&mut self, mut tests: Command) -> anyhow::Result<()> {
        interrupt::check()?;
        let name = words(&tests);
        say::progress("verify", &name);
        // In a group of its own, so that Ctrl-C reaches it through us alone, once, and with all that it started.
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
        self.passed += counted.passed;
        self.failed += counted.failed;
        self.failures.append(&mut counted.failures);
        self.left_out.append(&mut counted.left_out);
        if !status.success() && counted.failed == 0 {
            self.failed += 1;
            self.failures.push(format!("{name}: {status}"));
        }
        interrupt::check()
    }

    /// Whether no step and no test was counted yet.
    pub fn is_nothing_checked(&self) -> bool {
        self.passed + self.failed == 0
    }

    /// Names what was left out and what failed, and counts in the last line.
    pub fn conclude(self) -> ExitCode {
        for left_out in &self.left_out {
            say::line(&format!("LEFT OUT  {left_out}"));
        }
        for failure in &self.failures {
            say::line(&format!("FAILED  {failure}"));
        }
        say::progress("verify", "done");
        say::line(&format!("{} passed, {} failed", self.passed, self.failed));
        self.code()
    }

    /// Success, unless something failed or nothing was checked.
    fn code(&self) -> ExitCode {
        if self.failed == 0 && self.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// What the lines of Rust's test programs say.
#[derive(Debug, Default)]
struct Counted {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
    /// Tests that were not asked for, with the reason that they give.
    left_out: Vec<String>,
}

/// Ends a test program and all that it started once we are asked to stop.
fn end_when_asked(child: &Child, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        if interrupt::requested() {
            if let Err(error) = kill_process_group(Pid::from_child(child), Signal::TERM) {
                say::error(&format!("the tests could not be ended: {error}"));
            }
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

impl Counted {
    /// Counts what a test program says while it says it, and passes it on.
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
        if let Some((name, end)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            if end == "FAILED" {
                self.failures.push(name.to_owned());
            } else if let Some(reason) = end.strip_prefix("ignored") {
                self.left_out.push(format!("{name}{reason}"));
            }
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        self.passed += number_before(result, " passed").unwrap_or_default();
        self.failed += number_before(result, " failed").unwrap_or_default();
    }
}

fn number_before(text: &str, word: &str) -> Option<u64> {
    let before = &text[..text.find(word)?];
    before.rsplit([' ', '.', ';']).next()?.parse().ok()
}

/// Lines that say nothing, such as those of programs that have no test at all.
fn is_noise(line: &str) -> bool {
    line.is_empty()
        || line == "running 0 tests"
        // Most of those wait for their turn.
        || line.ends_with(" has been running for over 60 seconds")
        || line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored")
}

/// Runs a command whose output matters only when it fails.
pub fn quiet(name: &str, mut step: Command) -> anyhow::Result<()> {
    let log = Paths::from_environment()?.build_log(&name.replace(' ', "-"));
    let doing = words(&step);
    Job { part: "verify", doing: &doing, log }.run(&mut step)
}

/// Runs a short command and gives what it printed.
pub fn printed(mut step: Command) -> anyhow::Result<String> {
    let name = words(&step);
    let done = step.stdin(Stdio::null()).output().with_context(|| format!("start {name}"))?;
    if !done.status.success() {
        bail!("{name}: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    String::from_utf8(done.stdout).with_context(|| format!("the output of {name} is not UTF-8"))
}

fn words(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_from_their_output() {
        let mut counted = Counted::default();
        for line in [
            "running 3 tests",
            "test a::b ... ok",
            "test c ... FAILED",
            "test d ... ignored, takes 7 minutes: cargo verify --all",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: ok. 17 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.04s",
        ] {
            counted.see(line);
        }
        assert_eq!((counted.passed, counted.failed), (19, 1));
        assert_eq!(counted.failures, ["c"]);
        assert_eq!(counted.left_out, ["d, takes 7 minutes: cargo verify --all"]);
    }

    #[test]
    fn a_step_that_fails_is_a_failure() {
        let mut steps = Steps::default();
        steps.once("right", || Ok(()));
        steps.once("wrong", || bail!("so it is"));
        assert_eq!((steps.passed, steps.failed), (1, 1));
        assert_eq!(steps.code(), ExitCode::FAILURE);
    }

    #[test]
    fn nothing_checked_is_no_success() {
        assert_eq!(Steps::default().code(), ExitCode::FAILURE);
    }
}
