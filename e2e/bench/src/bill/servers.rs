//! The broker of the command, and the `ClickHouse` of a case.
//!
//! Job: servers without another load, on data that nothing else wrote. The programs are the stack's; folders, ports and processes are this
//! command's own. Place in the flow: under every case. Owner: the command, or the case. When dropped, they are killed and their data is
//! removed; configs and logs stay. Limits: a server's CPU time and peak are those of its whole process since its start.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::param::clock_ticks_per_second;

use crate::memory::kib_in;
use crate::throughput::thread_time;
use e2e_fixtures::oracle::Server;
use e2e_stack::clickhouse::{self, ClickHouse, Listeners};
use e2e_stack::kafka::{self, Kafka, Node};
use e2e_stack::paths::{Paths, remove_folder};
use e2e_stack::process::{Port, Signal};
use e2e_stack::say;

/// A second address of the loopback interface: servers listen on two, and no pod is here.
const SECOND_HOST: &str = "127.0.0.2";

/// Longest time for one query. Chosen: several times what reading a map of 20 million rows takes on two busy cores.
const QUERY_TIMEOUT: Duration = Duration::from_mins(5);

/// The broker, running.
pub struct Broker {
    kafka: Kafka,
    folder: PathBuf,
    ports: [Port; 3],
}

impl Broker {
    /// Installs Kafka, unless it is there, starts a broker with its files in `folder`, and waits until it answers.
    pub async fn start(folder: &Path) -> Result<Broker> {
        let paths = Paths::from_environment()?;
        let ports = Port::hold_all()?;
        let [host, pods, controller] = &ports;
        let node = Node {
            number: 1,
            host: host.address(),
            pods_listen: pods.address(),
            pods: pods.address(),
            controllers: vec![controller.address()],
        };
        let kafka = Kafka::beside(&paths, folder.to_owned(), node);
        let broker = Broker { kafka: kafka.clone(), folder: folder.to_owned(), ports };
        say::progress("kafka", &format!("starting a broker in {}", folder.display()));
        blocking(move || {
            kafka::build(&paths)?;
            kafka.start()?;
            kafka.wait_ready()
        })
        .await?;
        Ok(broker)
    }

    /// `host:port` for programs of this machine.
    pub fn address(&self) -> String {
        let [host, ..] = &self.ports;
        host.address()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let stopped = self.kafka.stop(Signal::KILL);
        say_failure(stopped.and_then(|()| remove_folder(&self.folder.join("data"))));
    }
}

/// The server of a case, running.
pub struct CaseServer {
    clickhouse: ClickHouse,
    folder: PathBuf,
    ports: [Port; 2],
    pub client: Server,
}

impl CaseServer {
    /// Installs `ClickHouse`, unless it is there, starts a server with its files in `folder`, and waits until it answers.
    pub async fn start(folder: &Path) -> Result<CaseServer> {
        let paths = Paths::from_environment()?;
        let ports = Port::hold_all()?;
        let [http, native] = &ports;
        let listeners = Listeners {
            pods_host: SECOND_HOST.to_owned(),
            http_port: http.number(),
            native_port: native.number(),
        };
        let clickhouse = ClickHouse::beside(&paths, folder.to_owned(), listeners).measured();
        let client = Server::new(&format!("http://{}", http.address()), "default", "");
        let client = client.with_timeout(QUERY_TIMEOUT);
        let server = CaseServer { clickhouse: clickhouse.clone(), folder: folder.to_owned(), ports, client };
        blocking(move || {
            clickhouse::build(&paths)?;
            clickhouse.start()?;
            clickhouse.wait_ready()
        })
        .await?;
        Ok(server)
    }

    pub fn url(&self) -> String {
        let [http, _] = &self.ports;
        format!("http://{}", http.address())
    }

    /// What its process has used until now.
    pub fn reading(&self) -> Result<Reading> {
        let pid = self.clickhouse.pid().context("the ClickHouse of the case has ended")?;
        let read = |name: &str| {
            let file = format!("/proc/{pid}/{name}");
            fs::read_to_string(&file).with_context(|| format!("read {file}"))
        };
        let reading = reading_of(&read("stat")?, &read("status")?, clock_ticks_per_second());
        reading.with_context(|| format!("understand what the kernel says about process {pid}"))
    }
}

impl Drop for CaseServer {
    fn drop(&mut self) {
        let stopped = self.clickhouse.stop(Signal::KILL);
        say_failure(stopped.and_then(|()| remove_folder(&self.folder.join("data"))));
    }
}

fn say_failure(done: Result<()>) {
    if let Err(failure) = done {
        say::error(&format!("cannot remove a server of the run: {failure:#}"));
    }
}

/// What a process has used since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// User and system time of all its threads, microseconds.
    pub cpu_us: u64,
    /// Largest resident set, bytes.
    pub peak_bytes: u64,
}

/// Reads the kernel's line and text about a process (`stat` and `status` below `/proc/PID`).
fn reading_of(stat: &str, status: &str, ticks_per_second: u64) -> Option<Reading> {
    let time = thread_time(stat, ticks_per_second)?;
    let peak_kib = kib_in(status, "VmHWM:")?;
    Some(Reading { cpu_us: time.user_us + time.system_us, peak_bytes: peak_kib << 10 })
}

async fn blocking(work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    tokio::task::spawn_blocking(work).await.context("the thread that starts a server ended")?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_all_threads_and_the_peak_are_read() {
        let stat = "7 (clickhouse) S 1 7 7 0 -1 4194304 10 20 30 40 1250 50 5 6 20 0 3 0 99";
        let status = "VmPeak:\t 9 kB\nVmHWM:\t  2048 kB\nVmRSS:\t 1 kB\n";
        let expected = Reading { cpu_us: 13_000_000, peak_bytes: 2 << 20 };
        assert_eq!(reading_of(stat, status, 100), Some(expected));
        assert_eq!(reading_of(stat, "", 100), None);
        assert_eq!(reading_of("7 (clickhouse) S 1", status, 100), None);
    }
}
