//! `e2e-bench otlp`: measures what accepts OTLP, an edge or a gateway with `source.otlp`, beside a Collector that does the same.
//!
//! ```text
//! process started -> clients send -> every span is stored -> SIGTERM -> usage -> spans counted
//! [ gateway, Collector ]: at full speed, then at half of the rate that it has reached -> table, JSON
//! ```
//!
//! Each run has its own process, and its own topic or table. What counts is the kernel's accounting of the whole process from its start to
//! its end ([`witness`](crate::throughput::witness)); wall times on shared cores say little. The gateway runs in a cgroup with the memory
//! limit of its config. A stack that ran before is left running; topics and databases are removed, also after a failure; configs and logs
//! are kept then.

mod course;
mod entrant;
mod load;
mod report;
mod sync;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::command::{FileArgs, code, kept_in, named, on_stack};
use course::Course;
use e2e_stack::process::interrupt;
use e2e_stack::say;
use entrant::Entrant;
use report::Report;

/// What is measured, and with which load.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct OtlpArgs {
    /// Role of the gateway
    #[arg(long, value_enum)]
    role: Role,

    /// Spans of a run at full speed
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    spans: u64,

    /// Seconds of a run at half of the rate
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,

    /// Clients, each with a connection of its own and one request under way
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=150))]
    clients: u64,

    /// Collector to measure; default: built from Go modules
    #[arg(long, value_name = "FILE")]
    collector: Option<PathBuf>,

    #[command(flatten)]
    files: FileArgs,
}

const AFTER_HELP: &str = "\
Examples:
  cargo run --release -p e2e-bench -- otlp --role source
  cargo run --release -p e2e-bench -- otlp --role edge --spans 1000000 --json edge.json

Needs root, to create memory cgroups, and Go with its module proxy for the Collector. It uses a running local stack and
keeps it running; otherwise it starts one and stops it at the end. The clients send OTLP/gRPC: 200 spans of the shape
`rich` a request, without compression. The first run of each program is at full speed, the second one at half of the
rate that the first one has reached. Every span is counted once all are stored, and the processes get SIGTERM then.

Roles:
  edge    OTLP to Kafka; answers once all replicas in sync have the spans. The Collector: receiver otlp, exporter kafka
          with the edge's keys and partitions, zstd, acks of all, no queue
  source  OTLP to the disk, then to ClickHouse; answers once a request is synced to the disk. The Collector: receiver
          otlp, exporter clickhouse, its queue on the disk (file_storage, fsync: true), batches of 10,000 to 20,000 spans

Columns:
  load          full, or the spans per second that clients send
  again         requests that were answered that the client should come again; they are sent again
  spans/s       from the first request until every span is stored
  CPU s         user and system time of the process, from start to end, by the kernel's accounting
  p50, p99 ms   from the time when a request is due until its answer; at full speed from its first byte
  peak MiB      the largest resident set of the process

Required, of the gateway:
  at least 5 times the Collector's spans per CPU-second, at full speed
  p99 under 50 ms at half of the rate; the time of one sync of the disk is printed beside it
  peak memory under 192 MiB as an edge, under 256 MiB as a source

Exit codes:
  0  every span was stored exactly once in every run, and the gateway is as fast and as small as required
  1  otherwise";

/// The role of a gateway, and of the Collector that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// From clients to Kafka
    Edge,
    /// From clients to rows
    Source,
}

impl Role {
    /// The memory limit of the gateway, MiB: that of the config, and that of its cgroup.
    fn limit_mib(self) -> u64 {
        match self {
            Role::Edge => 192,
            Role::Source => 256,
        }
    }
}

/// Measures and prints. An error comes after everything that the command started is stopped.
pub fn run(args: &OtlpArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    let gateway = args.files.program()?;
    let collector = match &args.collector {
        Some(file) => named(file)?,
        None => entrant::build_collector(args.role)?,
    };
    let mut course = Course::lay(args.role, &gateway, args.clients)?;
    let mut report = Report::new(args.role, sync::median(course.folder())?);
    let entrants = [Entrant::Gateway(gateway), Entrant::Collector(collector)];
    let outcome = on_stack(measure(args, &entrants, &mut course, &mut report));
    // If a run fails, the figures of the runs before it are still shown.
    say::lines(&report.lines());
    args.files.write(&report)?;
    outcome.with_context(|| kept_in(course.folder()))?;
    course.remove()?;
    Ok(code(report.is_reached()))
}

async fn measure(
    args: &OtlpArgs,
    entrants: &[Entrant],
    course: &mut Course,
    report: &mut Report,
) -> Result<()> {
    for entrant in entrants {
        let full = course.run(entrant, args.spans, None).await?;
        let half = full.spans_per_s / 2.0;
        report.push(full);
        let spans = load::spans_in(half, args.seconds);
        report.push(course.run(entrant, spans, Some(half)).await?);
    }
    Ok(())
}
