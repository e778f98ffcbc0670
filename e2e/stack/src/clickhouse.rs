//! One ClickHouse server as a process of this machine. The engine is the shared library of the npm package below. A small launcher in C
//! runs it with its own HTTP and native TCP servers. Other servers can run beside it, with their own folder and ports
//! ([`ClickHouse::beside`]).
//!
//! This server lacks Keeper and replicated tables, server-side async inserts (it accepts them and inserts at once), TLS, and a graceful end
//! at SIGTERM (no data is lost: acknowledged inserts survive SIGKILL).
//!
//! Other processes than the one that started it can stop and start it again: they find it by its pid file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::kubernetes::NODE_ADDRESS;
use crate::part::{Part, answers_http};
use crate::paths::{Paths, content_hash, fill_once, put, remove_folder, render, sources};
use crate::process::{Daemon, Job, Signal, command};

/// Version of the npm package; the engine calls itself 26.7.2.1.
pub const VERSION: &str = "26.7.3-stable.1";

const PACKAGE: &str = "@chdb/lib-linux-x64-gnu";

/// The integrity that npm reports for the package's file; the version is fixed, so the contents must be too.
const INTEGRITY: &str =
    "sha512-XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw==";

/// Its URL for programs of this machine: user `default`, no password.
pub const HOST_URL: &str = "http://127.0.0.1:8123";

/// Its URL for pods: user [`USER`], password [`PASSWORD`].
pub const PODS_URL: &str = "http://clickhouse.sluice-stack.svc.cluster.local:8123";

/// The user for gateways.
pub const USER: &str = "gateway";

/// The password of [`USER`]. No secret: this server listens on loopback and on the pod bridge only.
pub const PASSWORD: &str = "sluice-local-only";

const HTTP_PORT: u16 = 8123;
const NATIVE_PORT: u16 = 9000;

/// Starts both servers, then runs a query that never ends, so that the program does not exit.
const QUERY: &str = "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; SELECT sleepEachRow(3) FROM system.numbers FORMAT Null \
     SETTINGS max_block_size=1, max_threads=1, max_execution_time=0";

/// It answers 0.1 to 0.6 s after its start. If there are many parts, it reads them before it answers.
const START_PATIENCE: Duration = Duration::from_mins(1);

/// After SIGTERM, it ended within 1.9 s in every observed case.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// The configuration of servers for tests. Their tables live for a minute. With the server's own base of 5, merging their parts took a tenth
/// of the CPU time of the check.
const FOR_TESTS: &str = "<merge_tree><merge_selector_base>50</merge_selector_base></merge_tree>";

/// The configuration of servers whose merges are measured: the server's own rule of merges, and a log of views.
const MEASURED: &str = "<query_views_log><database>system</database><table>query_views_log</table>\
     <flush_interval_milliseconds>1000</flush_interval_milliseconds></query_views_log>";

const CONFIGURATION: &str = include_str!("../clickhouse/config.xml");
const USERS: &str = include_str!("../clickhouse/users.xml");
const LAUNCHER: &str = include_str!("../clickhouse/launcher.c");

#[derive(Clone, Debug)]
pub struct Listeners {
    /// The second address that it listens on, beside 127.0.0.1: the address for pods.
    pub pods_host: String,
    pub http_port: u16,
    pub native_port: u16,
}

impl Listeners {
    fn of_stack() -> Listeners {
        Listeners { pods_host: NODE_ADDRESS.to_owned(), http_port: HTTP_PORT, native_port: NATIVE_PORT }
    }

    fn http_address(&self) -> String {
        format!("127.0.0.1:{}", self.http_port)
    }
}

/// A local server, running or not.
#[derive(Clone, Debug)]
pub struct ClickHouse {
    state: PathBuf,
    library: PathBuf,
    launcher: PathBuf,
    listeners: Listeners,
    /// Its time zone; `None`: this machine's.
    zone: Option<String>,
    /// Whether its merges are measured; otherwise it merges less, for tests.
    is_measured: bool,
}

pub fn is_built(paths: &Paths) -> bool {
    library(paths).is_dir() && launcher(paths).is_dir()
}

/// Fetches the library and compiles the launcher, unless the cache has them.
pub fn build(paths: &Paths) -> anyhow::Result<()> {
    fill_once(&library(paths), |partial| fetch(paths, partial))?;
    fill_once(&launcher(paths), |partial| {
        let mut cc = command("cc");
        cc.args(["-O2", "-Wall", "-o"])
            .arg(partial.join("clickhouse"))
            .arg(sources().join("clickhouse/launcher.c"))
            .arg("-ldl");
        Job { part: "clickhouse", doing: "compile the launcher", log: paths.build_log("clickhouse-launcher") }
            .run(&mut cc)
    })
}

fn fetch(paths: &Paths, folder: &Path) -> anyhow::Result<()> {
    let log = paths.build_log("clickhouse");
    let mut npm = command("npm");
    // With --json, npm prints name and integrity of the file. npm has already compared the integrity with the registry's.
    npm.args(["pack", "--json", "--loglevel=error", &format!("{PACKAGE}@{VERSION}")]).current_dir(folder);
    let doing = format!("fetch ClickHouse {VERSION}");
    Job { part: "clickhouse", doing: &doing, log: log.clone() }.run(&mut npm)?;
    let said = fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
    anyhow::ensure!(
        said.contains(INTEGRITY),
        "{PACKAGE}@{VERSION} is not {INTEGRITY}: see {}",
        log.display()
    );
    let packed = packed_file(folder)?;
    let mut tar = command("tar");
    tar.args(["--extract", "--gzip", "--strip-components=1", "--file"])
        .arg(&packed)
        .arg("--directory")
        .arg(folder);
    tar.arg("package/libchdb.so");
    Job { part: "clickhouse", doing: "unpack ClickHouse", log: paths.build_log("clickhouse-unpack") }
        .run(&mut tar)?;
    fs::remove_file(&packed).with_context(|| format!("remove {}", packed.display()))
}

fn packed_file(folder: &Path) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    files.find(|file| file.extension().is_some_and(|kind| kind == "tgz")).context("npm wrote no package file")
}

fn library(paths: &Paths) -> PathBuf {
    paths.cache.join("clickhouse").join(VERSION)
}

fn launcher(paths: &Paths) -> PathBuf {
    paths.cache.join("clickhouse").join(format!("launcher-{}", content_hash([LAUNCHER.as_bytes()])))
}

impl ClickHouse {
    pub fn new(paths: &Paths) -> Self {
        Self::beside(paths, paths.clickhouse(), Listeners::of_stack())
    }

    /// Another server. It uses the programs that [`build`] put into the cache; everything else is below the folder `state`.
    pub fn beside(paths: &Paths, state: PathBuf, listeners: Listeners) -> Self {
        let (library, launcher) = (library(paths), launcher(paths));
        Self { state, library, launcher, listeners, zone: None, is_measured: false }
    }

    /// The same server; from its next start on, in this time zone.
    #[must_use]
    pub fn in_zone(self, zone: &str) -> Self {
        Self { zone: Some(zone.to_owned()), ..self }
    }

    /// The same server; from its next start on, it merges by the server's own rule and logs what views cost.
    #[must_use]
    pub fn measured(self) -> Self {
        Self { is_measured: true, ..self }
    }

    pub fn local() -> anyhow::Result<Self> {
        Ok(Self::new(&Paths::from_environment()?))
    }

    /// Starts it unless it runs; does not wait until it answers.
    pub fn start(&self) -> anyhow::Result<()> {
        self.configure()?;
        self.daemon().start(&self.server()).map(drop)
    }

    /// Waits until it answers over HTTP.
    pub fn wait_ready(&self) -> anyhow::Result<()> {
        self.part().answers_within(START_PATIENCE)
    }

    /// Sends it `signal` and waits until it has ended (SIGKILL after 15 s). Its data stays.
    pub fn stop(&self, signal: Signal) -> anyhow::Result<()> {
        self.daemon().stop(signal, STOP_PATIENCE).map(drop)
    }

    pub fn runs(&self) -> bool {
        self.daemon().process().is_some()
    }

    pub fn pid(&self) -> Option<i32> {
        self.daemon().process().map(|process| process.pid())
    }

    /// Starts it, waits until it answers, and restarts it if it hangs.
    pub(super) fn ensure(&self) -> anyhow::Result<()> {
        self.configure()?;
        self.part().ensure(&self.server(), START_PATIENCE)
    }

    pub(super) fn part(&self) -> Part {
        let address = self.listeners.http_address();
        let asked = address.clone();
        Part { daemon: self.daemon(), address, probe: Box::new(move || answers_http(&asked, "/ping")) }
    }

    fn daemon(&self) -> Daemon {
        Daemon::new(&self.state, "clickhouse")
    }

    fn configure(&self) -> anyhow::Result<()> {
        let native_port = self.listeners.native_port.to_string();
        let values = [
            ("NODE_ADDRESS", &*self.listeners.pods_host),
            ("NATIVE_PORT", &*native_port),
            ("PASSWORD", PASSWORD),
            ("PURPOSE", if self.is_measured { MEASURED } else { FOR_TESTS }),
        ];
        put(&self.state.join("config.xml"), &render(CONFIGURATION, &values))?;
        put(&self.state.join("users.xml"), &render(USERS, &values))?;
        if !self.runs() {
            // The database `system` is in memory, but its log tables leave folders that block a new one. So there is no query_log, and
            // SYSTEM FLUSH LOGS hangs.
            remove_folder(&self.data().join("data/system"))?;
        }
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.state.join("data")
    }

    fn server(&self) -> Command {
        let mut server = command(self.launcher.join("clickhouse"));
        server.env("CHDB_LIB", self.library.join("libchdb.so")).env("CHDB_DAEMON", "1");
        if let Some(zone) = &self.zone {
            server.env("TZ", zone);
        }
        server.arg("--path").arg(self.data()).arg("--config-file").arg(self.state.join("config.xml"));
        let Listeners { http_port, native_port, .. } = &self.listeners;
        server.args(["--http_port", &http_port.to_string(), "--tcp_port", &native_port.to_string()]);
        server.args(["--log-level", "warning", "--logger.log"]).arg(self.state.join("log/server.log"));
        server.args(["--query", QUERY]);
        server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_leave_no_place_unfilled() {
        for (template, purpose) in [(CONFIGURATION, FOR_TESTS), (CONFIGURATION, MEASURED), (USERS, "")] {
            let values = [
                ("NODE_ADDRESS", NODE_ADDRESS),
                ("NATIVE_PORT", "9000"),
                ("PASSWORD", PASSWORD),
                ("PURPOSE", purpose),
            ];
            let text = render(template, &values);
            assert!(!text.contains('@'), "{text}");
            assert!(text.contains(purpose), "{text}");
        }
    }
}
