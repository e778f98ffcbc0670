//! A gateway of a scenario: the real program as a process, which scenarios kill, stop and query.
//!
//! Job: one process, addressed by its id. Place in the flow: between the fronts. Owner: the scene; killed when dropped. Limits: none
//! of its own.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::admin::Admin;
use e2e_fixtures::cluster::metric_sum;
use e2e_fixtures::gateway;
use e2e_stack::process::daemon::log_tail;
use e2e_stack::process::{Port, interrupt};

/// Time between two checks whether the process has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long a killed process may take to end.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Orders {
    pub program: PathBuf,
    pub config: PathBuf,
    /// The pod's name, which makes it a static member of its group; none for a dynamic member.
    pub member: Option<String>,
    /// Port of its admin server, which is the same after each start.
    pub admin: Arc<Port>,
    pub environment: Vec<(String, PathBuf)>,
    /// Its log file; a later process of the same name appends to it.
    pub log: PathBuf,
}

/// A process, running or ended.
pub struct Gateway {
    orders: Orders,
    child: Child,
    /// The signals that this harness sent.
    sent: Vec<Signal>,
}

impl Gateway {
    pub fn start(orders: Orders) -> Result<Gateway> {
        let log = OpenOptions::new().create(true).append(true).open(&orders.log);
        let log = log.with_context(|| format!("open {}", orders.log.display()))?;
        let log_too = log.try_clone().with_context(|| format!("open {} twice", orders.log.display()))?;
        let mut command = gateway::command(&orders.program, &orders.config);
        if let Some(member) = &orders.member {
            command.env("POD_NAME", member);
        }
        for (name, value) in &orders.environment {
            command.env(name, value);
        }
        let child =
            command.stdin(Stdio::null()).stdout(log).stderr(log_too).spawn().context("start a gateway")?;
        Ok(Gateway { orders, child, sent: Vec::new() })
    }

    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    pub fn admin(&self) -> Admin {
        Admin::new(&self.orders.admin.address())
    }

    pub fn log(&self) -> &Path {
        &self.orders.log
    }

    /// The sum of one of its metrics over all labels; `None` while it does not answer, or does not have the metric.
    pub async fn metric(&self, name: &str) -> Option<f64> {
        let answer = gateway::metrics_text(&self.orders.admin.address()).await?;
        metric_sum(&answer, name)
    }

    /// As [`Self::metric`], for several metrics of one answer.
    pub async fn metrics<const COUNT: usize>(&self, names: [&str; COUNT]) -> Option<[f64; COUNT]> {
        let answer = gateway::metrics_text(&self.orders.admin.address()).await?;
        let mut values = [0.0; COUNT];
        for (value, name) in values.iter_mut().zip(names) {
            *value = metric_sum(&answer, name)?;
        }
        Some(values)
    }

    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        // A child that was not waited for keeps its id, so the signal cannot reach another process.
        if let Some(status) = self.ended()? {
            bail!("the gateway has ended already ({status}){}", log_tail(&self.orders.log));
        }
        self.sent.push(signal);
        kill_process(Pid::from_child(&self.child), signal).with_context(|| format!("send {signal:?}"))
    }

    /// Whether it was sent SIGTERM or SIGKILL.
    pub fn was_told_to_end(&self) -> bool {
        self.sent.iter().any(|sent| [Signal::TERM, Signal::KILL].contains(sent))
    }

    /// Kills it and waits until it has ended.
    pub async fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.end_within(KILL_PATIENCE).await.map(drop)
    }

    /// Its exit status, if it has ended. It is an error if a signal ended it that this harness did not send: the gateway aborted, or another
    /// program killed it.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait().context("look for a gateway")?;
        if let Some(signal) = status.and_then(|status| status.signal()) {
            let is_sent = self.sent.iter().any(|sent| sent.as_raw() == signal);
            ensure!(is_sent, "a gateway was ended by signal {signal}, unsent{}", log_tail(&self.orders.log));
        }
        Ok(status)
    }

    /// Waits until it ends and returns its code, or 128 and the signal.
    pub async fn end_within(&mut self, patience: Duration) -> Result<i32> {
        let log = self.orders.log.clone();
        let waited = tokio::time::timeout(patience, async {
            loop {
                if let Some(status) = self.ended()? {
                    return Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()));
                }
                interrupt::check()?;
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        });
        waited
            .await
            .with_context(|| format!("a gateway did not end within {patience:?}{}", log_tail(&log)))?
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// A process that runs a shell script and ignores its other arguments.
    fn process(script: &str) -> Gateway {
        let child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        let orders = Orders {
            program: PathBuf::new(),
            config: PathBuf::new(),
            member: None,
            admin: Arc::new(Port::hold().unwrap()),
            environment: Vec::new(),
            log: PathBuf::from("/nonexistent"),
        };
        Gateway { orders, child, sent: Vec::new() }
    }

    #[tokio::test]
    async fn a_process_that_aborts_fails_whoever_looks_at_it() {
        let mut gateway = process("kill -ABRT $$");
        let words = gateway.end_within(PATIENCE).await.unwrap_err().to_string();
        assert!(words.contains("ended by signal 6, unsent"), "{words}");
        assert!(
            gateway.ended().is_err() && gateway.signal(Signal::TERM).is_err() && !gateway.was_told_to_end()
        );
    }

    #[tokio::test]
    async fn one_that_was_sent_the_signal_has_ended_as_it_was_told() {
        let mut gateway = process("exec sleep 60");
        gateway.kill().await.unwrap();
        assert!(gateway.ended().unwrap().is_some() && gateway.was_told_to_end());
        let mut gateway = process("exit 69");
        assert_eq!(gateway.end_within(PATIENCE).await.unwrap(), 69);
        assert!(!gateway.was_told_to_end(), "it has ended by itself");
    }
}
