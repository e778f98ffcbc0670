//! The gateway as a process in a memory cgroup: starts, watches, queries and ends it.
//!
//! Job: one process of the real program, whose memory the kernel limits. Place in the flow: between load and front. Owner: the run. A
//! thread of its own samples the memory. Limits: the process is killed when this is dropped.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sluice_gateway_config::Remaining;

use super::QueueMode;
use super::group::MemoryGroup;
use super::scenario::Size;
use e2e_fixtures::gateway::{self, Listening, Orders};
use e2e_fixtures::pipeline::merged;
use e2e_stack::paths::create_folder;
use e2e_stack::process::daemon::log_tail;
use e2e_stack::process::{log_to, wait};

/// Time between two samples of the memory. The kernel's own peak (`VmHWM`) also has what happens between two samples.
const SAMPLE: Duration = Duration::from_millis(20);

/// How long the process may take to end after SIGTERM: more than the 50 s that the gateway gives its blocks in flight.
const END_PATIENCE: Duration = Duration::from_secs(70);

pub struct Gateway {
    child: Child,
    group: MemoryGroup,
    log: PathBuf,
    listening: Listening,
    client: Client<HttpConnector, Empty<Bytes>>,
    peaks: Arc<Peaks>,
    sampler: Option<JoinHandle<()>>,
}

/// The largest sampled values, bytes.
#[derive(Debug, Default)]
struct Peaks {
    over: AtomicBool,
    resident: AtomicU64,
    anonymous: AtomicU64,
}

/// The resources that a run of the process used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The kernel's peak of the resident set, bytes: anonymous memory and mapped files.
    pub resident_peak: u64,
    /// The largest anonymous memory of the cgroup, bytes, sampled every 20 ms.
    pub anonymous_peak: u64,
    /// Processes that the kernel killed for memory.
    pub kills: u64,
    /// Exit code, or 128 and the signal.
    pub exit_code: i32,
}

impl Gateway {
    /// Starts the program with this config in its own cgroup with this limit; its log is a file of the folder.
    pub fn start(program: &Path, config: &Path, limit_mib: u64, folder: &Path) -> Result<Gateway> {
        let group = MemoryGroup::create(limit_mib << 20)?;
        let log = folder.join("gateway.log");
        let listening = Listening::of(&log);
        let mut entering = group.inside(&gateway::command(program, config));
        let child = log_to(&mut entering, &log)?.spawn().context("start the gateway")?;
        let peaks = Arc::new(Peaks::default());
        let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let mut gateway = Gateway { child, group, log, listening, client, peaks, sampler: None };
        gateway.sampler = Some(gateway.sample()?);
        Ok(gateway)
    }

    fn sample(&self) -> Result<JoinHandle<()>> {
        let (peaks, status) = (Arc::clone(&self.peaks), format!("/proc/{}/status", self.child.id()));
        let anonymous_bytes = self.group.anonymous_bytes();
        let sampling = move || {
            while !peaks.over.load(Ordering::Relaxed) {
                let text = fs::read_to_string(&status).unwrap_or_default();
                if let Some(resident) = kib_in(&text, "VmHWM:") {
                    peaks.resident.fetch_max(resident << 10, Ordering::Relaxed);
                }
                if let Ok(anonymous) = anonymous_bytes() {
                    peaks.anonymous.fetch_max(anonymous, Ordering::Relaxed);
                }
                std::thread::sleep(SAMPLE);
            }
        };
        std::thread::Builder::new().name("sampler".into()).spawn(sampling).context("start the sampler")
    }

    /// Fails if the process has exited; the error quotes the end of its log.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("look for the gateway")? {
            let kills = self.group.kills().unwrap_or_default();
            bail!(
                "the gateway exited ({status}, {kills} OOM kills, at most {} MiB resident){}",
                self.peaks.resident.load(Ordering::Relaxed) >> 20,
                log_tail(&self.log)
            );
        }
        Ok(())
    }

    /// The text of `/metrics`; empty while it does not listen yet.
    pub async fn metrics(&self) -> String {
        self.asked(Method::GET, "/metrics").await
    }

    /// `host:port` where it accepts OTLP over HTTP; `None` while it does not.
    pub fn otlp_http(&self) -> Option<String> {
        self.listening.otlp_http()
    }

    /// Drains it: it refuses requests, and inserts what it has. Returns what is left; `None` if it did not answer.
    pub async fn drain(&self) -> Option<Remaining> {
        serde_json::from_str(&self.asked(Method::POST, "/drain").await).ok()
    }

    /// What is left to drain; `None` if it did not answer.
    pub async fn remaining(&self) -> Option<Remaining> {
        serde_json::from_str(&self.asked(Method::GET, "/drainz").await).ok()
    }

    /// The text of an answer of its admin port; empty without an answer.
    async fn asked(&self, method: Method, path: &str) -> String {
        let Some(admin) = self.listening.address() else { return String::new() };
        let request = Request::builder().method(method).uri(format!("http://{admin}{path}"));
        let Ok(request) = request.body(Empty::new()) else { return String::new() };
        let Ok(response) = self.client.request(request).await else { return String::new() };
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes);
        String::from_utf8_lossy(&body.unwrap_or_default()).into_owned()
    }

    pub fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("read {}", self.log.display()))
    }

    /// Sends SIGTERM unless it has exited, waits until it ends, and returns what it used.
    pub async fn end(self) -> Result<Usage> {
        let stopped = tokio::task::spawn_blocking(move || self.stop());
        stopped.await.context("the thread that stops a process ended")?.context("stop the gateway")
    }

    fn stop(mut self) -> Result<Usage> {
        if self.child.try_wait().context("look for the gateway")?.is_none() {
            kill_process(Pid::from_child(&self.child), Signal::TERM).context("send SIGTERM")?;
        }
        let ended = || self.child.try_wait().context("wait for the gateway")?.context("it runs");
        let status = wait::while_allowed(END_PATIENCE, || Ok(()), ended).with_context(|| {
            format!("the gateway did not exit within {END_PATIENCE:?} of SIGTERM{}", log_tail(&self.log))
        })?;
        Ok(Usage {
            resident_peak: self.peaks.resident.load(Ordering::Relaxed),
            anonymous_peak: self.peaks.anonymous.load(Ordering::Relaxed),
            kills: self.group.kills()?,
            exit_code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
        })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.peaks.over.store(true, Ordering::Relaxed);
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().ok();
            self.child.wait().ok();
        }
        if let Some(sampler) = self.sampler.take() {
            sampler.join().ok();
        }
    }
}

/// A number of KiB in the kernel's text about a process (`/proc/PID/status`).
pub fn kib_in(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

/// Writes the config file. A queue volume is a folder beside it.
pub fn write_config(
    orders: &Orders<'_>,
    size: &Size,
    queue_mode: QueueMode,
    folder: &Path,
) -> Result<PathBuf> {
    let queue = create_folder(folder.join("queue"))?;
    let change = json!({
        "queue": {"mode": queue_mode, "path": queue},
        "source": {"kafka": {
            "partitionsActiveMax": size.active,
            "recordBatchBytesMax": format!("{}MiB", size.record_batch_mib),
        }},
        "memory": {"limit": format!("{}MiB", size.limit_mib)},
    });
    let file = folder.join("gateway.yaml");
    gateway::write_config(&merged(&orders.config(), &change), &file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_what_the_kernel_says() {
        assert_eq!(kib_in("VmPeak:\t 9 kB\nVmHWM:\t  1234 kB\n", "VmHWM:"), Some(1234));
    }
}
