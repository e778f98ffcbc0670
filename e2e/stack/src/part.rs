//! One part of the stack: its status, and how it is started, probed, and started again if it hangs.

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use rustix::process::Signal;
use serde::Serialize;

use crate::process::{Daemon, interrupt, wait};
use crate::say;

/// Time for a part that hangs to end after SIGTERM before it is killed.
const HUNG_PATIENCE: Duration = Duration::from_secs(10);

/// The probe of a part: it answers within a second or two, or returns why not.
pub type Probe = Box<dyn Fn() -> anyhow::Result<()> + Send + Sync>;

pub struct Part {
    pub daemon: Daemon,
    /// `host:port` or socket path; empty for a part that does not listen.
    pub address: String,
    pub probe: Probe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Up,
    Unhealthy,
    Down,
}

/// One row of `status`.
#[derive(Clone, Debug, Serialize)]
pub struct PartStatus {
    pub name: &'static str,
    pub pid: Option<i32>,
    /// Where it listens; empty for a part that does not listen.
    pub address: String,
    pub state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Part {
    /// A part that does not listen: it works if its process lives.
    pub fn silent(daemon: Daemon) -> Self {
        Self { daemon, address: String::new(), probe: Box::new(|| Ok(())) }
    }

    /// Starts it if it does not run, and waits at most `patience` until it answers. If it already ran but hangs, restarts it once.
    pub fn ensure(&self, what: &Command, patience: Duration) -> anyhow::Result<()> {
        let started = self.daemon.start(what)?;
        match self.answers_within(patience) {
            Ok(()) => return Ok(()),
            Err(failure) if started || interrupt::requested() => return Err(failure),
            Err(_) => say::progress(self.daemon.name(), "runs but does not answer; restarting it"),
        }
        self.daemon.stop(Signal::TERM, HUNG_PATIENCE)?;
        self.daemon.start(what)?;
        self.answers_within(patience)
    }

    /// Waits until it answers; fails as soon as its process has ended.
    pub fn answers_within(&self, patience: Duration) -> anyhow::Result<()> {
        let answer = wait::until(patience, || {
            if self.daemon.process().is_none() {
                // Waiting longer is of no use: an outer Ok ends the wait.
                return Ok(Err(anyhow::anyhow!("it did not stay up")));
            }
            (self.probe)().map(Ok)
        });
        answer.and_then(|living| living).map_err(|failure| self.daemon.explain(&failure))
    }

    pub fn status(&self) -> PartStatus {
        let pid = self.daemon.process().map(|process| process.pid());
        let answer = pid.map(|_| (self.probe)());
        let (state, reason) = match answer {
            None => (State::Down, None),
            Some(Ok(())) => (State::Up, None),
            Some(Err(failure)) => (State::Unhealthy, Some(format!("{failure:#}"))),
        };
        PartStatus { name: self.daemon.name(), pid, address: self.address.clone(), state, reason }
    }
}

pub type Task<'a> = (&'static str, Box<dyn FnOnce() -> anyhow::Result<()> + Send + 'a>);

/// Runs steps in parallel, each in its thread, and waits for all of them. If one fails, the results of the others are kept. A failure is
/// printed at once; the error has all failures, one per line. A panic of a step goes on.
pub fn beside(tasks: Vec<Task<'_>>) -> anyhow::Result<()> {
    let failures: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> =
            tasks.into_iter().map(|(name, task)| scope.spawn(move || attempt(name, task))).collect();
        let ended = running.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended
            .filter_map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).err())
            .collect()
    });
    interrupt::check()?;
    anyhow::ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

fn attempt(name: &str, task: impl FnOnce() -> anyhow::Result<()>) -> Result<(), String> {
    task().map_err(|failure| {
        if !interrupt::requested() {
            say::progress(name, "failed; the other parts continue, so that their builds are kept");
        }
        format!("{name}: {failure:#}")
    })
}

/// Connects to a `host:port` on this machine. An answer may take as long as the connection.
pub fn connect(address: &str) -> anyhow::Result<TcpStream> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let doing = || format!("connect to {address}");
    let socket = address.parse().with_context(doing)?;
    let stream = TcpStream::connect_timeout(&socket, PATIENCE).with_context(doing)?;
    stream.set_read_timeout(Some(PATIENCE)).with_context(doing)?;
    Ok(stream)
}

/// Fetches a path over plain HTTP from a server on this machine; fails unless the status is 200.
pub fn answers_http(address: &str, path: &str) -> anyhow::Result<()> {
    use std::io::{Read, Write};
    /// More than any status line; the rest of the answer does not matter.
    const ANSWER_BYTES: u64 = 4096;
    let doing = || format!("GET http://{address}{path}");
    let mut stream = connect(address).with_context(doing)?;
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes())
        .with_context(doing)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES).read_to_end(&mut answer).with_context(doing)?;
    let text = String::from_utf8_lossy(&answer);
    let status = text.lines().next().unwrap_or_default();
    anyhow::ensure!(status.split(' ').nth(1) == Some("200"), "{}: {status}", doing());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::command;

    #[test]
    fn a_part_that_ends_is_not_waited_for() {
        let state = std::env::temp_dir().join(format!("sluice-part-{}", std::process::id()));
        let part = Part {
            daemon: Daemon::new(&state, "short-lived"),
            address: String::new(),
            probe: Box::new(|| anyhow::bail!("no answer")),
        };
        let began = std::time::Instant::now();
        let mut what = command("sh");
        what.args(["-c", "echo the reason; sleep 0.2"]);
        let failure = part.ensure(&what, Duration::from_mins(1)).unwrap_err().to_string();
        assert!(began.elapsed() < Duration::from_secs(10));
        assert!(failure.contains("short-lived ended") && failure.contains("| the reason"), "{failure}");
        std::fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn every_failure_beside_others_is_told() {
        let fails =
            |text: &'static str| -> Task<'static> { (text, Box::new(move || anyhow::bail!("{text} broke"))) };
        let failure =
            beside(vec![fails("a"), ("fine", Box::new(|| Ok(()))), fails("b")]).unwrap_err().to_string();
        assert_eq!(failure, "a: a broke\nb: b broke");
    }
}
