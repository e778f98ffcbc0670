//! A command that may take minutes. Its output goes to a log file, and progress is printed every few seconds. Ctrl-C ends it together with the
//! processes that it started, which share its process group.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::daemon::log_tail;
use super::{interrupt, log_to};
use crate::paths::create_parent;
use crate::say;

/// Interval of progress lines of a running job.
const STILL_RUNNING: Duration = Duration::from_secs(15);

/// Time between two checks whether a job has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Time limit of a job. The longest one, a cold build of Kubernetes, took seven minutes on two shared cores.
const PATIENCE: Duration = Duration::from_mins(40);

/// Time for a job to exit after SIGTERM.
const END_PATIENCE: Duration = Duration::from_secs(5);

pub struct Job<'a> {
    /// The part of the stack that it builds, as in progress lines.
    pub part: &'a str,
    /// What it does, as in progress lines: "compile Kubernetes".
    pub doing: &'a str,
    /// Where its output goes; a file from an earlier run is replaced.
    pub log: PathBuf,
}

impl Job<'_> {
    /// Runs it to its end, for at most 40 minutes. An error names the log file and shows its end.
    pub fn run(&self, what: &mut Command) -> anyhow::Result<()> {
        interrupt::check()?;
        say::progress(self.part, self.doing);
        create_parent(&self.log)?;
        let child = log_to(what, &self.log)?
            .process_group(0)
            .spawn()
            .with_context(|| format!("{}: start {}", self.doing, what.get_program().display()))?;
        let status = self.wait(child)?;
        if !status.success() {
            bail!("{}: {status}{}", self.doing, log_tail(&self.log));
        }
        Ok(())
    }

    fn wait(&self, mut child: Child) -> anyhow::Result<ExitStatus> {
        let began = Instant::now();
        let mut said = began;
        loop {
            if let Some(status) = child.try_wait().with_context(|| format!("wait: {}", self.doing))? {
                return Ok(status);
            }
            let late = began.elapsed() > PATIENCE;
            if interrupt::requested() || late {
                end_group(&mut child);
                interrupt::check()?;
                bail!(
                    "{}: not done within {} minutes{}",
                    self.doing,
                    PATIENCE.as_secs() / 60,
                    log_tail(&self.log)
                );
            }
            if said.elapsed() >= STILL_RUNNING {
                said = Instant::now();
                say::progress(
                    self.part,
                    &format!(
                        "{}: {} s so far{}",
                        self.doing,
                        began.elapsed().as_secs(),
                        last_line(&self.log)
                    ),
                );
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// Ends a child and the processes that it started: SIGTERM to its group, then SIGKILL.
fn end_group(child: &mut Child) {
    let group = Pid::from_child(child);
    kill_process_group(group, Signal::TERM).ok();
    let end = Instant::now() + END_PATIENCE;
    while Instant::now() < end && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(LOOK_AGAIN);
    }
    // Also if the child has ended: its own children may still run. An empty group is no error.
    kill_process_group(group, Signal::KILL).ok();
    child.wait().ok();
}

/// The last line of a job's output. Compilers and downloads print there what they are doing.
fn last_line(log: &Path) -> String {
    let tail = log_tail(log);
    let line =
        tail.lines().filter_map(|line| line.strip_prefix("  | ")).rfind(|line| !line.trim().is_empty());
    line.map(|line| format!(" ({})", line.trim())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::process::command;

    fn job(name: &str) -> Job<'static> {
        let log = std::env::temp_dir().join(format!("sluice-job-{name}-{}.log", std::process::id()));
        Job { part: "test", doing: "try", log }
    }

    #[test]
    fn a_failed_job_names_its_log_and_shows_its_end() {
        let job = job("failed");
        let failure =
            job.run(command("sh").args(["-c", "echo why it failed; exit 3"])).unwrap_err().to_string();
        assert!(failure.contains("exit status: 3") && failure.contains("| why it failed"), "{failure}");
        assert!(failure.contains(job.log.to_str().unwrap()), "{failure}");
        fs::remove_file(job.log).unwrap();
    }

    #[test]
    fn a_job_that_works_leaves_its_output_in_the_log() {
        let job = job("works");
        job.run(command("echo").arg("done")).unwrap();
        assert_eq!(fs::read_to_string(&job.log).unwrap(), "done\n");
        fs::remove_file(job.log).unwrap();
    }
}
