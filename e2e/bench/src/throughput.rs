//! `cargo throughput`: measures spans per CPU-second of the gateway, and of other programs.
//!
//! ```text
//! topic made and filled -> [ gateway, each peer ] x runs -> table, JSON
//! ```
//!
//! Every run reads the same topic of the real broker from the earliest offset to the end, with a consumer group and a sink of its
//! own. What counts is the kernel's accounting of the whole process from its start to its end ([`witness`]); wall times on shared
//! cores say little. The gateway runs with 192 MiB (256 MiB for JSON), two workers and every partition active, and checks every
//! record's checksum.
//!
//! A stack that ran before is left running; topic, groups and databases are removed, also after a failure; configs and logs are
//! kept then.

mod course;
mod entrant;
mod frames;
mod kind;
mod report;
mod rows;
mod server;
mod sink;
mod spool;
mod tally;
mod threads;
pub mod witness;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use sluice_gateway_config::Layout;

use crate::command::{FileArgs, code, kept_in, on_stack};
pub(crate) use crate::figures::{float, ratio, rounded};
use course::{Course, Finish};
use e2e_fixtures::spans::{Encoding, Shape};
use e2e_stack::paths::Paths;
use e2e_stack::process::{Job, command, interrupt};
use e2e_stack::say;
pub(crate) use entrant::InsertFormat;
use entrant::{Entrant, Peer};
use report::Report;
pub(crate) use rows::Columns;
pub(crate) use server::{Engine, Sink, stack_server};
pub(crate) use sink::{NullSink, put_length, serve_connection, stored};
use spool::{Comparison, Spool};
pub(crate) use tally::Stored;
pub(crate) use threads::thread_time;

/// What to measure, with which load and which sinks.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ThroughputArgs {
    /// Shape of the spans
    #[arg(long, value_enum)]
    shape: Shape,

    /// Encoding of the messages; with `otlp-json`, whose record batches are up to three times as large, the gateway has 256 MiB
    #[arg(long, value_enum, default_value_t = Encoding::OtlpProto)]
    encoding: Encoding,

    /// Spans to put into the topic; figures are steady from a million `rich` and four million `loadgen` on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    spans: u64,

    /// Partitions of the topic, all read at the same time
    #[arg(long, value_name = "P", default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..=1024))]
    partitions: i32,

    /// Format of the gateway's inserts; may be given twice, to measure both
    #[arg(long = "format", value_enum, default_values_t = [InsertFormat::RowBinary])]
    formats: Vec<InsertFormat>,

    /// Layout of attributes in the gateway's table; may be given several times, to measure each
    #[arg(long = "layout", value_enum, default_values_t = [TableLayout::Json])]
    layouts: Vec<TableLayout>,

    /// Sink of the gateway's rows
    #[arg(long, value_enum, default_value_t = SinkChoice::Null)]
    sink: SinkChoice,

    /// Sink of the peers' rows: most send other queries too, which the null sink does not answer
    #[arg(long, value_enum, default_value_t = SinkChoice::Clickhouse)]
    peer_sink: SinkChoice,

    /// Another program to measure; may be given several times
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<Peer>,

    /// Compare the queue volume with the live path, into the null sink
    #[arg(long, value_enum, conflicts_with_all = ["sink", "peers"])]
    spool: Option<Spool>,

    /// Runs of each, in turn
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Also print CPU time by thread
    #[arg(long)]
    threads: bool,

    #[command(flatten)]
    files: FileArgs,
}

const AFTER_HELP: &str = "\
Examples:
  cargo throughput --shape rich --spans 1000000 --runs 3
  cargo throughput --shape loadgen --spans 4000000 --spool drain

A run starts a process with its own consumer group. The process reads the topic from the earliest offset until the
group has committed the end of every partition, and is then ended by SIGTERM. All runs read one topic, which is filled
once by an idempotent producer: zstd, record batches of up to 1,000,000 bytes before compression, 20 ms linger.
It uses a running local stack and keeps it running; otherwise it starts one and stops it at the end.

Sinks:
  null        a server in this program that accepts inserts of RowBinary, keeps the bytes in a temporary file
              and counts the rows by their numbers after the run; it answers only the gateway's queries
  clickhouse  the local stack's server, into a table with the Null engine and then one with MergeTree; rows,
              bytes and CPU time are from the server's query log, and with MergeTree lost and doubled from the
              table; with --sink null a peer runs into the Null engine alone

With --format native the gateway has 256 MiB, and needs --sink clickhouse: the null sink reads only rows.

Peers are run by `sh -c` with BROKERS, TOPIC, GROUP and SINK (URL) in their environment, and with DATABASE,
TABLE and ENGINE if there is a table with the gateway's (first) layout. They read TOPIC as GROUP from the earliest
offset and commit; at the end they get SIGTERM. All processes that they start count as theirs. A script
build.sh beside a peer's program is run before the measurement. Ready to use (e2e/bench/peers/README.md):
  --peer otelcol=e2e/bench/peers/otel-collector/run.sh

The queue volume (--spool; the volume is a folder beside the run's config, on a real file system): three runs over the
same spans, each a process of its own, in turn:
  live        the sink accepts everything: read, encode, insert
  spill       the sink refuses every INSERT: read, encode, append to the volume. The process is ended once every span is
              read, and writes the blocks in memory to the volume while it shuts down
  drain       the sink accepts everything again, and the same group continues with that volume; all that Kafka has is
              on it, too, except blocks that the shutdown closed
CPU time is that of the whole process, as in all other runs: with the start, refused inserts and the shutdown, without
the kernel's own writes to the disk. Rows are counted after drain: none may be lost or doubled.
Required, relative to the live run's spans per CPU-second: spill at least 0.9, drain at least 5.

Columns:
  wall s        from the start of the process until the end of every partition is committed (spill: until every
                span is read), to a quarter second
  CPU s         user and system time of the process and its children, from start to end, by the kernel's accounting;
                the gateway's start, its wait for the group and its shutdown take about 20 ms of it
  B/span        compressed bytes of the inserts' bodies
  peak MiB      the largest resident set of one process
  switches      voluntary and involuntary context switches
  server CPU s  user and system time of the server's threads for this run's inserts, with views and the writing of
                parts, without background merges (the Null engine has none)
  -             unknown

Exit codes:
  0  in every run each span arrived exactly once and nothing else did, every process that had committed all of them
     exited with 0 (a peer also by the signal), and with --spool the volume is as fast as required
  1  otherwise";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableLayout {
    /// One column of JSON a set: every value in its type
    Json,
    /// One map of text a set
    Map,
    /// Groups of keys and values a set, one for each type
    Nested,
}

impl TableLayout {
    pub(crate) fn layout(self) -> Layout {
        match self {
            TableLayout::Json => Layout::Json,
            TableLayout::Map => Layout::Map,
            TableLayout::Nested => Layout::Nested,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SinkChoice {
    /// Accepts inserts and counts rows
    Null,
    /// The real server
    Clickhouse,
}

impl ThroughputArgs {
    /// The measured programs: the gateway with each layout and format, then the peers.
    fn entrants(&self, gateway: &Path) -> Vec<Entrant> {
        let mut entrants = Vec::new();
        for layout in &self.layouts {
            let formats = self.formats.iter();
            entrants.extend(formats.map(|format| Entrant::Gateway(gateway.to_owned(), *format, *layout)));
        }
        // There is at least one layout: the default.
        if let Some(first) = self.layouts.first() {
            entrants.extend(self.peers.iter().map(|peer| Entrant::Peer(peer.clone(), *first)));
        }
        entrants
    }

    /// The sinks of an entrant's rows, one run after the other.
    fn finishes(&self, entrant: &Entrant) -> &'static [Finish] {
        match (entrant, self.sink, self.peer_sink) {
            (Entrant::Gateway(..), SinkChoice::Null, _) | (Entrant::Peer(..), _, SinkChoice::Null) => {
                &[Finish::NullSink]
            }
            (Entrant::Peer(..), SinkChoice::Null, SinkChoice::Clickhouse) => &[Finish::Server(Engine::Null)],
            (_, SinkChoice::Clickhouse, _) => {
                &[Finish::Server(Engine::Null), Finish::Server(Engine::MergeTree)]
            }
        }
    }
}

/// Measures and prints. An error comes after everything that the command started is stopped.
pub fn run(args: &ThroughputArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        args.sink == SinkChoice::Clickhouse || !args.formats.contains(&InsertFormat::Native),
        "--format native needs --sink clickhouse: the null sink reads only rows"
    );
    anyhow::ensure!(
        args.spool.is_none() || args.layouts.len() == 1,
        "--spool compares the runs of one layout: use --layout once"
    );
    interrupt::watch()?;
    let gateway = args.files.program()?;
    args.peers.iter().try_for_each(build)?;
    let mut report = Report { shape: args.shape, runs: Vec::new(), spool: None };
    let outcome = on_stack(measure(args, &gateway, &mut report));
    report.spool = args.spool.and_then(|asked| Comparison::of(asked, &report.runs));
    // If a run fails, the figures of the runs before it are still shown.
    show(args, &report);
    args.files.write(&report)?;
    outcome?;
    Ok(code(report.is_reached()))
}

fn show(args: &ThroughputArgs, report: &Report) {
    say::lines(&report.table());
    if report.spool.is_some() {
        say::line("");
        say::lines(&report.spool_table());
    }
    if args.threads {
        say::line("");
        say::lines(&report.threads_table());
    }
}

fn build(peer: &Peer) -> anyhow::Result<()> {
    let Some(script) = peer.build_script() else { return Ok(()) };
    let log = Paths::from_environment()?.build_log(&peer.name);
    Job { part: &peer.name, doing: "build, unless it is built already", log }.run(&mut command(script))
}

async fn measure(args: &ThroughputArgs, gateway: &Path, report: &mut Report) -> anyhow::Result<()> {
    let mut course = Course::lay(gateway, (args.shape, args.encoding), args.spans, args.partitions).await?;
    let outcome = rounds(args, &args.entrants(gateway), &mut course, report).await;
    let outcome = outcome.with_context(|| kept_in(course.folder()));
    let removed = course.remove(outcome.is_ok()).await;
    outcome?;
    removed
}

/// Runs all programs in turn, so that other work of the machine affects all of them alike.
async fn rounds(
    args: &ThroughputArgs,
    entrants: &[Entrant],
    course: &mut Course,
    report: &mut Report,
) -> anyhow::Result<()> {
    for _ in 0..args.runs {
        for entrant in entrants {
            if args.spool.is_some() {
                for run in course.run_spooled(entrant).await? {
                    say_run(&run.name, &run);
                    report.runs.push(run);
                }
                continue;
            }
            for finish in args.finishes(entrant) {
                let run = course.run(entrant, *finish).await?;
                say_run(entrant.name(), &run);
                report.runs.push(run);
            }
        }
    }
    Ok(())
}

fn say_run(name: &str, run: &report::RunReport) {
    let layout = run.layout.as_ref().map(|layout| format!("{layout}: ")).unwrap_or_default();
    let figures = format!("{layout}{:.1} s, {:.0} spans a CPU-second", run.wall_s, run.spans_per_cpu_s);
    say::progress(name, &figures);
}
