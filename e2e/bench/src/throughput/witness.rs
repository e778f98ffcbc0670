//! The resources that a process and all its descendants used, by the kernel's own accounting at their end.
//!
//! Job: run one command as the only child of a process of its own: the witness, which is this same program. When the last child has ended,
//! the witness asks the kernel for the usage of its children and writes it to a file. Each run has its own witness, because the kernel
//! keeps the memory peak of all children that a process ever had. Place in the flow: around the gateway and each peer. Limits: the peak is
//! that of the largest single process, not the sum.

use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper, wait as wait_for_child,
};
use tokio::signal::unix::{SignalKind, signal};

use e2e_fixtures::gateway::Listening;
use e2e_stack::process::daemon::log_tail;
pub use e2e_stack::process::usage::Usage;
use e2e_stack::process::{log_to, run_by, usage, wait};

/// How long a process may take to end after SIGTERM: more than the 50 s that the gateway gives its blocks in flight.
const END_PATIENCE: Duration = Duration::from_secs(70);

/// The exit code of a process that SIGTERM ended: 128 and the signal's number.
pub const ENDED_BY_SIGTERM: i32 = 128 + 15;

/// Arguments of the witness.
#[derive(Args, Clone, Debug)]
pub struct WitnessArgs {
    /// Where the usage goes
    #[arg(long, value_name = "FILE")]
    report: PathBuf,

    /// The command to run
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the command to its end, waits for all processes that it started, and reports.
pub fn run(args: &WitnessArgs) -> Result<ExitCode> {
    // SIGTERM goes to the whole process group. It ends the command; the witness runs until the end, without a thread of its own.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().context("watch signals")?;
    let entered = runtime.enter();
    let _terminate = signal(SignalKind::terminate()).context("watch SIGTERM")?;
    let _interrupt = signal(SignalKind::interrupt()).context("watch SIGINT")?;
    drop(entered);
    // Orphans of a shell become children of the witness, so that their usage is counted.
    set_child_subreaper(Some(getpid())).context("become the parent of orphans")?;
    let (program, arguments) = args.command.split_first().context("there is no command")?;
    let mut child =
        Command::new(program).args(arguments).spawn().with_context(|| format!("start {program}"))?;
    let status = child.wait().with_context(|| format!("wait for {program}"))?;
    loop {
        match wait_for_child(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => break,
            Err(error) => return Err(error).context("wait for what the command started"),
        }
    }
    let exit_code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    let usage = usage::of_children(exit_code)?;
    let text = serde_json::to_string(&usage).context("write the usage as JSON")?;
    fs::write(&args.report, text).with_context(|| format!("write {}", args.report.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// A command under a witness. If it is dropped while they run, both are killed.
pub struct Watched {
    witness: Child,
    report: PathBuf,
    log: PathBuf,
    listening: Listening,
    since: Instant,
}

impl Watched {
    /// Starts `command` with its files in `folder`, which must exist.
    pub fn start(command: &Command, folder: &Path) -> Result<Watched> {
        let (report, log) = (folder.join("usage.json"), folder.join("output.log"));
        let program = std::env::current_exe().context("find this program's file")?;
        let listening = Listening::of(&log);
        let mut witness = Command::new(program);
        witness.arg("witness").arg("--report").arg(&report).arg("--");
        let mut witness = run_by(witness, command);
        let witness = log_to(&mut witness, &log)?.process_group(0).spawn().context("start the witness")?;
        Ok(Watched { witness, report, log, listening, since: Instant::now() })
    }

    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// The process id of the witness, under which the command and all that it starts are found.
    pub fn id(&self) -> u32 {
        self.witness.id()
    }

    /// Fails if the command has exited; the error quotes the end of its output.
    pub fn check(&mut self) -> Result<()> {
        if self.witness.try_wait().context("look for the witness")?.is_some() {
            bail!("it ended by itself{}", log_tail(&self.log));
        }
        Ok(())
    }

    /// Sends SIGTERM, waits until the end, and returns the usage.
    pub fn stop(mut self) -> Result<Usage> {
        kill_process_group(self.group(), Signal::TERM).context("send SIGTERM")?;
        let ended = || self.witness.try_wait().context("wait for the witness")?.context("it runs");
        wait::while_allowed(END_PATIENCE, || Ok(()), ended).with_context(|| {
            format!("it did not end within {END_PATIENCE:?} of SIGTERM{}", log_tail(&self.log))
        })?;
        let text = fs::read_to_string(&self.report)
            .with_context(|| format!("the witness left no usage{}", log_tail(&self.log)))?;
        serde_json::from_str(&text).with_context(|| format!("understand {}", self.report.display()))
    }

    /// As [`Self::stop`], without blocking the runtime.
    pub async fn end(self) -> Result<Usage> {
        let stopped = tokio::task::spawn_blocking(move || self.stop());
        stopped.await.context("the thread that stops a process ended")?
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.witness)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Until this process has waited for the witness, its id names only its own group.
        if matches!(self.witness.try_wait(), Ok(None)) {
            kill_process_group(self.group(), Signal::KILL).ok();
            self.witness.wait().ok();
        }
    }
}
