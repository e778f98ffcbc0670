//! A process that outlives the command that started it: own session, a pid file with id and start time, a log file. Any later
//! command finds it by its pid file and stops exactly that process.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal};

use super::{Process, command, run_by};
use crate::paths::create_parent;

/// Lines of a log that an error shows.
pub const LOG_TAIL_LINES: usize = 15;

/// A log larger than this (bytes) is renamed when its process is started again, so that logs do not grow with every `up`.
const LOG_KEEP_BYTES: u64 = 16 << 20;

/// Only this much (bytes) of a log's end is read for its last lines.
const LOG_TAIL_BYTES: u64 = 16 << 10;

/// How long a process may take to disappear after SIGKILL; only the kernel can delay it.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Daemon {
    name: &'static str,
    pid_file: PathBuf,
    log_file: PathBuf,
}

impl Daemon {
    /// The process `name` whose pid file and log live below the folder `state`.
    pub fn new(state: &Path, name: &'static str) -> Self {
        let pid_file = state.join("pid").join(name);
        let log_file = state.join("log").join(format!("{name}.log"));
        Self { name, pid_file, log_file }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn process(&self) -> Option<Process> {
        fs::read_to_string(&self.pid_file).ok().and_then(|text| Process::recorded(&text))
    }

    /// Starts it unless it lives; returns whether it was started. It gets its own session, so that neither a terminal's Ctrl-C nor the
    /// terminal's end stops it.
    pub fn start(&self, what: &Command) -> anyhow::Result<bool> {
        if self.process().is_some() {
            return Ok(false);
        }
        let log = self.open_log()?;
        let log_too = log.try_clone().with_context(|| format!("open {} twice", self.log_file.display()))?;
        // `setsid` runs the program in its own process unless it must fork. A new child need not fork, so the id stays.
        let mut spawned = run_by(command("setsid"), what);
        spawned.stdin(Stdio::null()).stdout(log).stderr(log_too).current_dir("/");
        let child = spawned.spawn().with_context(|| format!("start {}", self.name))?;
        let pid = Pid::from_child(&child);
        let process =
            Process::of(pid).with_context(|| format!("{} ended at once{}", self.name, self.log_tail()))?;
        create_parent(&self.pid_file)?;
        fs::write(&self.pid_file, process.to_string())
            .with_context(|| format!("write {}", self.pid_file.display()))?;
        Ok(true)
    }

    /// Sends `signal` and waits at most `patience`, then sends SIGKILL. Returns whether a process was running.
    pub fn stop(&self, signal: Signal, patience: Duration) -> anyhow::Result<bool> {
        let process = self.process();
        if let Some(process) = process {
            process.signal(signal).with_context(|| format!("signal {}", self.name))?;
            if !process.ended_within(patience) {
                process.signal(Signal::KILL).with_context(|| format!("kill {}", self.name))?;
                anyhow::ensure!(
                    process.ended_within(KILL_PATIENCE),
                    "{} ({process}) outlives SIGKILL",
                    self.name
                );
            }
        }
        if self.pid_file.exists() {
            fs::remove_file(&self.pid_file).with_context(|| format!("remove {}", self.pid_file.display()))?;
        }
        Ok(process.is_some())
    }

    /// The error of a failed probe: says if the process has ended, and shows the end of its log.
    pub fn explain(&self, failure: &anyhow::Error) -> anyhow::Error {
        let state = if self.process().is_some() { "runs but does not answer" } else { "ended" };
        anyhow::anyhow!("{} {state}: {failure:#}{}", self.name, self.log_tail())
    }

    fn open_log(&self) -> anyhow::Result<File> {
        create_parent(&self.log_file)?;
        if self.log_file.metadata().is_ok_and(|found| found.len() > LOG_KEEP_BYTES) {
            let aside = self.log_file.with_extension("log.old");
            fs::rename(&self.log_file, &aside)
                .with_context(|| format!("put {} aside", self.log_file.display()))?;
        }
        let opened = OpenOptions::new().create(true).append(true).open(&self.log_file);
        opened.with_context(|| format!("open {}", self.log_file.display()))
    }

    fn log_tail(&self) -> String {
        log_tail(&self.log_file)
    }
}

/// The name of a log file and its last lines, for an error message.
pub fn log_tail(log: &Path) -> String {
    let lines = last_lines(log).unwrap_or_default();
    format!("\n  log: {}\n{lines}", log.display())
}

fn last_lines(log: &Path) -> std::io::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(LOG_TAIL_LINES);
    Ok(lines[first..].iter().flat_map(|line| ["  | ", line, "\n"]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("sluice-daemon-{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn sleeper() -> Command {
        let mut sleep = command("sleep");
        sleep.arg("600");
        sleep
    }

    #[test]
    fn a_daemon_is_started_once_and_stopped_by_its_pid_file() {
        let state = scratch("once");
        let daemon = Daemon::new(&state, "sleeper");
        assert!(daemon.start(&sleeper()).unwrap());
        let first = daemon.process().unwrap();
        assert!(!Daemon::new(&state, "sleeper").start(&sleeper()).unwrap(), "it already runs");
        assert_eq!(daemon.process(), Some(first));
        assert!(Daemon::new(&state, "sleeper").stop(Signal::TERM, Duration::from_secs(5)).unwrap());
        assert!(!first.lives());
        assert!(!daemon.stop(Signal::TERM, Duration::from_secs(5)).unwrap(), "nothing left to stop");
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn a_stale_pid_file_stops_nobody() {
        let state = scratch("stale");
        let daemon = Daemon::new(&state, "sleeper");
        fs::create_dir_all(state.join("pid")).unwrap();
        // our own id with a start time that is not ours: signalling it would end this test
        fs::write(state.join("pid/sleeper"), format!("{} 1", std::process::id())).unwrap();
        assert!(daemon.process().is_none());
        assert!(!daemon.stop(Signal::KILL, Duration::from_secs(1)).unwrap());
        assert!(!state.join("pid/sleeper").exists());
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn an_error_shows_the_end_of_the_log() {
        let state = scratch("log");
        let log = state.join("x.log");
        let text = (0..40).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        fs::write(&log, text).unwrap();
        let tail = log_tail(&log);
        assert!(
            tail.contains("| line 39\n") && tail.contains("| line 25\n") && !tail.contains("line 24"),
            "{tail}"
        );
        fs::remove_dir_all(state).unwrap();
    }
}
