//! The local stack: a one-node Kubernetes with real pods, a Kafka broker and a ClickHouse server. It needs only package registries, and
//! leaves nothing behind.
//!
//! [`up`] builds in parallel what the cache lacks, then starts what does not run. [`down`] stops it. [`status`] shows it.
//! One stack per machine; a lock lets only one command at a time change it. All functions block; none needs a runtime.
//!
//! The local parts cannot test: Keeper and replicated tables, server-side async inserts, enforcement of network policies, growth of
//! volumes.
//!
//! The package also has what every command needs to run programs: [`process`], [`say`], [`cargo`], [`paths`] and [`requirements`]. It depends
//! on no client of Kubernetes or Kafka, so that it compiles in seconds.

pub mod cargo;
pub mod clickhouse;
pub mod clickhouse_connect;
pub mod clients;
pub mod crane;
pub mod definitions;
pub mod gitopscheck;
pub mod gomodule;
pub mod helm;
pub mod images;
pub mod install;
pub mod kafka;
pub mod kubernetes;
mod maven;
pub mod part;
pub mod paths;
pub mod process;
pub mod programs;
pub mod publish;
mod python;
pub mod requirements;
pub mod rulecheck;
pub mod say;
mod session;
pub mod target;

pub use clickhouse::ClickHouse;
pub use kafka::Kafka;
pub use kubernetes::Kubernetes;
pub use session::session;
pub use target::{Target, TargetArgs};

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use crate::process::{Daemon, Signal, interrupt};
use crate::programs::Form;
use part::{Part, PartStatus, State, beside};
use paths::{Paths, remove_folder};

/// Time for a process to end when an `up` that failed stops what it started.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// What an `up` found and did.
#[derive(Clone, Debug)]
pub struct Up {
    /// Whether any part already ran. Then another command or user owns the stack, and the caller should keep it running.
    pub ran_before: bool,
    pub kubeconfig: PathBuf,
}

/// Starts the stack: keeps parts that run and answer, starts the others, and builds what the cache lacks, and programs in this form.
/// The error lists everything that is missing on the machine, or the parts that failed. After an error or an interrupt, this call ends
/// every process that it started. If no part ran before, it stops the whole stack.
pub fn up(form: Form) -> anyhow::Result<Up> {
    let paths = Paths::from_environment()?;
    requirements::ensure(&paths)?;
    let _lock = paths.lock()?;
    let kubernetes = Kubernetes::new(&paths)?;
    let ran: Vec<&'static str> = running(&paths, &kubernetes);
    let began = build(&paths, form).and_then(|pause| start(&paths, &kubernetes, &pause));
    if let Err(failure) = began {
        say::progress("stack", "failed; stopping what this command started");
        return Err(match undo(&paths, &kubernetes, &ran) {
            Ok(()) => failure,
            Err(second) => failure.context(format!("and then: {second:#}")),
        });
    }
    Ok(Up { ran_before: !ran.is_empty(), kubeconfig: kubernetes.kubeconfig() })
}

/// Removes the remains of an interrupted stack: objects, containers and claims. Does nothing if a process of the stack runs.
pub fn discard_leftovers() -> anyhow::Result<()> {
    let paths = Paths::from_environment()?;
    // Without root, [`up`] reports that together with everything else that is missing.
    if !paths.state.exists() || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let lock = paths.lock()?;
    if !running(&paths, &Kubernetes::new(&paths)?).is_empty() {
        return Ok(());
    }
    stop_all(&paths)?;
    remove_folder(&paths.state)?;
    lock.remove()
}

/// Builds all parts that the cache lacks and, at the same time, the project's programs in this form; returns the pause image.
pub fn build(paths: &Paths, form: Form) -> anyhow::Result<images::Image> {
    let pause = std::sync::OnceLock::new();
    beside(vec![
        ("programs", Box::new(move || programs::compile(form))),
        ("parts", Box::new(|| build_parts(paths).map(|image| drop(pause.set(image))))),
    ])?;
    pause.into_inner().context("the pause image was not made")
}

/// Builds all parts that the cache lacks, but helm: downloads run while the compiler works. Returns the pause image.
pub fn build_parts(paths: &Paths) -> anyhow::Result<images::Image> {
    let pause = std::sync::OnceLock::new();
    beside(vec![
        ("kubernetes", Box::new(|| kubernetes::programs::build(paths).map(drop))),
        ("kafka", Box::new(|| kafka::build(paths))),
        ("clickhouse", Box::new(|| clickhouse::build(paths))),
        ("pause", Box::new(|| images::pause::build(paths).map(|image| drop(pause.set(image))))),
    ])?;
    pause.into_inner().context("the pause image was not made")
}

fn start(paths: &Paths, kubernetes: &Kubernetes, pause: &images::Image) -> anyhow::Result<()> {
    // First of all, because Kafka and ClickHouse listen on the bridge too.
    kubernetes::network::ensure(&paths.kubernetes())?;
    let ready = |part: &'static str, address: &str| say::progress(part, &format!("answers on {address}"));
    beside(vec![
        // Compiled here, because the servers mostly wait for each other. It shares most of its packages with Kubernetes.
        ("helm", Box::new(|| helm::module().build(paths).map(drop))),
        ("kubernetes", Box::new(|| kubernetes.start(pause))),
        ("kafka", Box::new(|| Kafka::new(paths).ensure().map(|()| ready("kafka", kafka::HOST_ADDRESS)))),
        (
            "clickhouse",
            Box::new(|| ClickHouse::new(paths).ensure().map(|()| ready("clickhouse", clickhouse::HOST_URL))),
        ),
    ])
}

/// All processes of the stack, in the order in which they start.
fn parts(paths: &Paths, kubernetes: &Kubernetes) -> Vec<Part> {
    let mut parts = kubernetes.parts();
    parts.push(Kafka::new(paths).part());
    parts.push(ClickHouse::new(paths).part());
    parts
}

fn running(paths: &Paths, kubernetes: &Kubernetes) -> Vec<&'static str> {
    let daemons = parts(paths, kubernetes).into_iter().map(|part| part.daemon);
    daemons.filter(|daemon| daemon.process().is_some()).map(|daemon| daemon.name()).collect()
}

/// Ends what a failed `up` has started.
fn undo(paths: &Paths, kubernetes: &Kubernetes, ran: &[&str]) -> anyhow::Result<()> {
    if ran.is_empty() {
        return stop_all(paths);
    }
    let started: Vec<Daemon> = parts(paths, kubernetes).into_iter().map(|part| part.daemon).collect();
    let started = started.iter().rev().filter(|daemon| !ran.contains(&daemon.name()));
    started.into_iter().try_for_each(|daemon| daemon.stop(Signal::TERM, STOP_PATIENCE).map(drop))
}

/// Stops the stack and removes its processes, containers, mounts, bridge, rules and network namespaces. With `purge`, it also removes state
/// and data; the cache of built parts stays. It is no error if nothing runs. The error lists what could not be stopped or removed; everything
/// else is stopped and removed.
pub fn down(purge: bool) -> anyhow::Result<()> {
    let paths = Paths::from_environment()?;
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "stopping the local stack needs root, like starting it"
    );
    let lock = paths.lock_to_stop()?;
    stop_all(&paths)?;
    say::progress("stack", "stopped");
    if purge {
        remove_folder(&paths.state)?;
        lock.remove()?;
        say::progress("stack", "state and data removed");
    }
    Ok(())
}

fn stop_all(paths: &Paths) -> anyhow::Result<()> {
    let kafka = Kafka::new(paths);
    let clickhouse = ClickHouse::new(paths);
    let mut failures = Vec::new();
    let mut step =
        |result: anyhow::Result<()>| failures.extend(result.err().map(|failure| format!("{failure:#}")));
    // In parallel: they do not depend on each other, and pods are killed, not drained.
    std::thread::scope(|scope| {
        let servers = [
            scope.spawn(move || kafka.stop(Signal::TERM)),
            scope.spawn(move || clickhouse.stop(Signal::TERM)),
        ];
        step(kubernetes::teardown::run(&paths.kubernetes()));
        for server in servers {
            step(server.join().unwrap_or_else(|_| Err(anyhow::anyhow!("stopping a server panicked"))));
        }
    });
    anyhow::ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// The current status of every part of the stack.
pub fn status() -> anyhow::Result<Vec<PartStatus>> {
    let paths = Paths::from_environment()?;
    let parts = parts(&paths, &Kubernetes::new(&paths)?);
    // In parallel: a part that hangs takes seconds to fail its probe.
    let answers = std::thread::scope(|scope| {
        let asked: Vec<_> = parts.iter().map(|part| scope.spawn(|| part.status())).collect();
        asked.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Result<Vec<_>, _>>()
    });
    answers.map_err(|_| anyhow::anyhow!("asking a part panicked"))
}

pub fn is_up(parts: &[PartStatus]) -> bool {
    parts.iter().all(|part| part.state == State::Up)
}

pub fn exit_code() -> u8 {
    if interrupt::requested() { interrupt::EXIT_CODE } else { 1 }
}

/// The exit code of a program after its work; prints the failure, if there was one.
pub fn conclude(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|failure| {
        say::error(&format!("error: {failure:#}"));
        ExitCode::from(exit_code())
    })
}
