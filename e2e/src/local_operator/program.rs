//! The operator as a process: started, looked at, ended.
//!
//! Owner: the run; killed when dropped. Limits: what it used is read from `/proc`, so this needs Linux.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, kill_process};

use crate::gateway::free_address;
use crate::process::daemon::log_tail;

/// How long it may take to end after SIGTERM: reconciles under way have 20 s, the Lease 5 s.
const END_PATIENCE: Duration = Duration::from_secs(40);

/// How often its end is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What it is told.
pub struct Orders<'a> {
    /// The program.
    pub program: &'a Path,
    /// Where the API server is.
    pub kubeconfig: &'a Path,
    /// The namespace to look after.
    pub namespace: &'a str,
    /// Name of the Lease in it.
    pub lease: &'a str,
    /// Image of the gateways.
    pub gateway_image: &'a str,
    /// Who it is in the Lease.
    pub identity: &'a str,
    /// Where it writes.
    pub log: PathBuf,
}

/// The process.
pub struct Program {
    child: Child,
    log: PathBuf,
}

/// What it used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Largest resident set, bytes.
    pub resident_peak_bytes: u64,
    /// CPU time in user space and kernel, seconds.
    pub cpu_seconds: f64,
}

impl Program {
    /// Starts it.
    pub fn start(orders: &Orders<'_>) -> Result<Program> {
        let log = File::create(&orders.log).with_context(|| format!("create {}", orders.log.display()))?;
        let log_too = log.try_clone().with_context(|| format!("open {} twice", orders.log.display()))?;
        let mut command = Command::new(orders.program);
        command.env("KUBECONFIG", orders.kubeconfig);
        let flags = [
            ("--gateway-image", orders.gateway_image),
            ("--watch-namespaces", orders.namespace),
            ("--namespace", orders.namespace),
            ("--lease-name", orders.lease),
            ("--identity", orders.identity),
            ("--listen", &free_address()?),
            ("--log-format", "text"),
        ];
        command.args(flags.iter().flat_map(|(flag, value)| [*flag, value]));
        command.stdin(Stdio::null()).stdout(log).stderr(log_too);
        let child = command.spawn().with_context(|| format!("start {}", orders.program.display()))?;
        Ok(Program { child, log: orders.log.clone() })
    }

    /// An error when it has ended by itself, with the end of its log.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("look for the operator")? {
            bail!("the operator ended by itself ({status}){}", log_tail(&self.log));
        }
        Ok(())
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("look for the operator")
    }

    /// What it has written so far.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("read {}", self.log.display()))
    }

    /// What it used so far.
    pub fn usage(&mut self) -> Result<Usage> {
        self.check()?;
        let folder = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = fs::read_to_string(folder.join("status")).context("read the operator's status")?;
        let times = fs::read_to_string(folder.join("stat")).context("read the operator's times")?;
        let usage = usage(&status, &times);
        usage.context("the kernel does not say what the operator used")
    }

    /// Sends SIGTERM and waits for its end, which must be a good one.
    pub async fn stop(mut self) -> Result<()> {
        self.check()?;
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("send SIGTERM to the operator")?;
        let asked = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("wait for the operator")? {
                ensure!(status.success(), "the operator ended with {status}{}", log_tail(&self.log));
                return Ok(());
            }
            ensure!(asked.elapsed() < END_PATIENCE, "the operator did not end within {END_PATIENCE:?}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// From `/proc/ID/status` and `/proc/ID/stat` (proc(5): fields 14 and 15 are the times in clock ticks; the name before them may
/// hold spaces and closing brackets).
fn usage(status: &str, times: &str) -> Option<Usage> {
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let peak_kib: u64 = peak.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    let fields: Vec<&str> = times.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks: u32 = fields.get(11)?.parse::<u32>().ok()?.checked_add(fields.get(12)?.parse().ok()?)?;
    let a_second = u32::try_from(clock_ticks_per_second()).ok()?;
    Some(Usage { resident_peak_bytes: peak_kib << 10, cpu_seconds: f64::from(ticks) / f64::from(a_second) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_numbers_are_found() {
        let times = "77 (sluice) (x) S 1 77 77 0 -1 4194304 1 0 0 0 150 50 0 0 20 0 9 0 1 2 3";
        let found = usage("VmPeak:\t 9 kB\nVmHWM:\t  2048 kB\n", times).unwrap();
        assert_eq!(found.resident_peak_bytes, 2 << 20);
        let a_second = f64::from(u32::try_from(clock_ticks_per_second()).unwrap());
        assert!((found.cpu_seconds * a_second - 200.0).abs() < 0.001, "{found:?}");
        assert_eq!(usage("", times), None);
    }
}
