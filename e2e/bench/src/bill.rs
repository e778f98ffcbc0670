//! `e2e-bench bill`: the whole cost of spans until their rows are merged.
//!
//! ```text
//! for each case: own ClickHouse -> gateway or Collector starts -> spans at a fixed rate through Kafka -> all committed -> SIGTERM
//!     -> merges are quiet -> the server's logs and /proc -> queries -> ClickHouse and its data removed
//! ```
//!
//! Job: one sum of the gateway's CPU and the server's CPU for inserts, views and merges, by layout, format, block size and sorting key. Merges
//! are the largest part of the cost, and no other command counts them. Place in the flow: a command of its own, with its own broker and, for
//! each case, its own server on an empty data folder, so that cases do not mix. The server merges by its own rule, and not like the servers of
//! tests. All cases insert the same spans. CPU time is the kernel's and the server's accounting, since wall times on shared cores say little.
//! Data is removed, also after a failure; configs and logs are kept then.

mod account;
mod case;
mod course;
mod plot;
mod quiet;
mod report;
mod servers;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, ValueEnum};

use crate::collector;
use crate::command::{FileArgs, in_runtime, kept_in, named};
use crate::outcomes::Outcomes;
use crate::throughput::{InsertFormat, TableLayout};
use case::{BlockSize, Case, Order};
use course::{Course, Plan};
use e2e_fixtures::spans::{Run, Shape};
use e2e_stack::process::interrupt;
use e2e_stack::say;
use report::Outcome;
use servers::Broker;

/// What is inserted, how fast, and into which tables.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct BillArgs {
    /// Spans of each case; on fewer, merges do not reach the parts' final size
    #[arg(long, value_name = "N", default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    spans: u64,

    /// Spans per second
    #[arg(long, value_name = "N", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,

    /// Shape of the spans
    #[arg(long, value_enum, default_value_t = ShapeChoice::All)]
    shape: ShapeChoice,

    /// Layout of attributes in the gateway's table; may be given several times
    #[arg(long = "layout", value_enum, default_values_t = [TableLayout::Json])]
    layouts: Vec<TableLayout>,

    /// Format of the gateway's inserts; may be given several times
    #[arg(long = "format", value_enum, default_values_t = [InsertFormat::RowBinary])]
    formats: Vec<InsertFormat>,

    /// Rows of the gateway's blocks, or `default`; may be given several times
    #[arg(long = "block-rows", value_name = "N|default", default_value = "default")]
    blocks: Vec<BlockSize>,

    /// Sorting key of the gateway's table; may be given several times
    #[arg(long = "order-by", value_enum, default_values_t = [Order::Service])]
    orders: Vec<Order>,

    /// Give the gateway's table its two views, of operations and of the times of traces
    #[arg(long)]
    views: bool,

    /// Measure a Collector with its own tables too
    #[arg(long, value_name = "on|off", hide_possible_values = true, action = ArgAction::Set, value_parser = BoolishValueParser::new(), default_value = "on")]
    collector: bool,

    /// Partitions of the topic, all read at the same time
    #[arg(long, value_name = "P", default_value_t = 8, value_parser = clap::value_parser!(i32).range(1..=1024))]
    partitions: i32,

    /// Seconds without a merge after which merges are quiet; the server looks for merges every 10 s or more
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    quiet: u64,

    /// Longest wait in seconds until merges are quiet
    #[arg(long, value_name = "SECONDS", default_value_t = 1_800, value_parser = clap::value_parser!(u64).range(1..))]
    quiet_max: u64,

    /// Runs of each query; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    times: u32,

    /// List the cases and run none
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    files: FileArgs,

    /// Write a drawing of the CPU time to a file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Folder for the data of Kafka and ClickHouse, about 15 GB with 20 million `rich` spans; default: that for temporary files
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  e2e-bench bill --shape rich --format row-binary --format native --json bill.json --plot bill.svg
  e2e-bench bill --shape rich --block-rows 2000 --block-rows 30000 --order-by service --order-by trace --collector off

Needs Kafka's jars and ClickHouse, which it fetches if they are missing, and with --collector on also Go and its module
proxy. It starts a broker, and for each case a ClickHouse with an empty data folder; it uses no local stack. A producer
sends the spans at the rate to Kafka. When all are committed, the gateway or Collector gets SIGTERM. The case then waits
until merges are quiet: no merge has run or begun for --quiet seconds. The cost of that last wait is not counted, nor is
that of the questions whether merges run.
Every case inserts the same spans. Choose a rate that the machine sustains: with 30,000 spans/s, two cores are busy.

Blocks: with `default`, a block closes after 1 s or 16 MiB of messages. With a number, it closes at that many rows, with
whole messages (1,000 spans of `rich`, 8,192 of `loadgen`), but after at most 60 s or 16 MiB of messages, which are
36,000 spans of `rich`. Rows/insert is what was reached.

The Collector runs twice, with its own tables (create_schema) in JSON and in map columns: kafkareceiver and
clickhouseexporter, batches of 10,000 to 20,000 spans, GOGC=400 (e2e/bench/peers/README.md).

Columns; CPU s/M are seconds of CPU time per million spans:
  program       CPU s/M of the gateway or the Collector, from its start to its end, by the kernel's accounting
  inserts       CPU s/M of the server for INSERT statements without views
  views         CPU s/M of the server for views; merges of their tables are under merges
  merges        CPU s/M of the server for merges of all tables of the case
  other         CPU s/M of the server for other statements, and for merges of its own logs
  unattributed  CPU s/M of the server's process that its logs do not name: threads that write logs, look for merges and
                delete parts, connections; it is negative if the logs name more than the kernel counted
  whole         CPU s/M of program and server, by the kernel's accounting
  spans/s       from the first span until all are committed; lower than the rate if the case did not keep up
  rows/insert   mean
  amplified     write amplification: bytes of new parts and of merged parts, divided by those of new parts
  written B     bytes of new and merged parts per span, all tables
  stored B      bytes on disk of the active parts per span, all tables
  max parts     the largest number of active parts of the table in one partition at any time
  program MiB   the largest resident set of the gateway or Collector
  server MiB    the largest resident set of the server, until merges are quiet
  trace, tag    CPU milliseconds of the server for one trace, and for spans with a rare http.route; afterwards, median
  -             unknown: the case failed, or the shape has no such attribute

JSON: {runs: [{case, bill: {spans, spans_per_s, rows_per_insert, cpu_s_per_million: {program, inserts, views, merges,
other, unattributed,
server, whole}, new_bytes_per_span, merged_bytes_per_span, written_bytes_per_span, stored_bytes_per_span,
write_amplification, merges, rewrites_per_row, merge_cpu_s_per_million_rows, parts_max, parts_end, program_peak_mib,
server_peak_mib, questions: [as schema-bench]}, failures}]}
  rewrites_per_row              how often merges wrote a row of the table again, mean
  merge_cpu_s_per_million_rows  CPU seconds of all merges per million rows of the table that they wrote

Exit codes:
  0  every case stored every span exactly once, by its number, its program exited with 0, and its merges became quiet
  1  otherwise";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShapeChoice {
    /// Services of a web shop
    Rich,
    /// A load generator
    Loadgen,
    /// Both
    All,
}

impl BillArgs {
    fn shapes(&self) -> &'static [Shape] {
        match self.shape {
            ShapeChoice::Rich => &[Shape::Rich],
            ShapeChoice::Loadgen => &[Shape::Loadgen],
            ShapeChoice::All => &[Shape::Rich, Shape::Loadgen],
        }
    }

    /// The cases: for each shape every table of the gateway, then those of the Collector.
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for shape in self.shapes() {
            for layout in &self.layouts {
                for format in &self.formats {
                    for block in &self.blocks {
                        let settings = self.orders.iter().map(|order| case::Settings {
                            layout: *layout,
                            format: *format,
                            block: *block,
                            order: *order,
                            has_views: self.views,
                        });
                        cases.extend(settings.map(|settings| Case::of_gateway(*shape, settings)));
                    }
                }
            }
            if self.collector {
                cases.extend(Case::of_collector(*shape));
            }
        }
        cases
    }

    fn plan(&self) -> Plan {
        Plan {
            spans: self.spans,
            spans_per_second: self.rate,
            partitions: self.partitions,
            quiet: Duration::from_secs(self.quiet),
            quiet_max: Duration::from_secs(self.quiet_max),
            times: self.times,
        }
    }
}

/// Runs the cases and prints their results. An error comes after everything that the command started is stopped.
pub fn run(args: &BillArgs) -> Result<ExitCode> {
    let cases = args.cases();
    if args.list {
        for case in &cases {
            say::line(&format!("{:<40} {}", case.name(), case.describe()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::watch()?;
    let gateway = args.files.program()?;
    let collector = args.collector.then(collector::build).transpose()?;
    let folder = named(&args.folder.clone().unwrap_or_else(std::env::temp_dir))?;
    let folder = folder.join(format!("sluice-bill-{}", std::process::id()));
    let mut outcomes = Outcomes { runs: Vec::new() };
    let ran = in_runtime(async {
        let broker = Broker::start(&folder.join("kafka")).await?;
        let course = Course {
            gateway,
            collector,
            folder: folder.clone(),
            broker,
            run: Run::fresh(),
            plan: args.plan(),
        };
        run_all(&course, &cases, &mut outcomes).await
    });
    // If the command is interrupted, the figures of the cases before are still shown.
    let shown = outcomes.show(args.files.json.as_deref())?;
    if let Some(file) = &args.plot {
        fs::write(file, plot::plot(&outcomes.runs)).with_context(|| format!("write {}", file.display()))?;
    }
    ran.with_context(|| kept_in(&folder))?;
    outcomes.remove_or_keep("bill", &folder)?;
    Ok(shown)
}

async fn run_all(course: &Course, cases: &[Case], outcomes: &mut Outcomes<Outcome>) -> Result<()> {
    for case in cases {
        outcomes.add(course.run(case).await, |error| Outcome::ended(case.name(), error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BillArgs,
    }

    fn names(options: &str) -> Vec<String> {
        let words = ["bill"].into_iter().chain(options.split_ascii_whitespace());
        Line::parse_from(words).args.cases().iter().map(Case::name).collect()
    }

    #[test]
    fn by_default_the_gateway_and_two_tables_of_the_collector_are_measured_with_each_shape() {
        assert_eq!(
            names(""),
            [
                "rich-json-row-binary-service",
                "rich-collector-json",
                "rich-collector-map",
                "loadgen-json-row-binary-service",
                "loadgen-collector-json",
                "loadgen-collector-map",
            ]
        );
    }

    #[test]
    fn every_combination_is_a_case_with_a_name_of_its_own() {
        let all = names(
            "--layout json --layout map --format row-binary --format native --block-rows default --block-rows 10000 \
             --order-by service --order-by time --order-by trace --shape rich --collector off",
        );
        let different: BTreeSet<&String> = all.iter().collect();
        assert_eq!((all.len(), different.len()), (24, 24), "{all:?}");
        assert_eq!(
            names("--shape loadgen --block-rows 9000 --views --collector off"),
            ["loadgen-json-row-binary-service-9000-views"]
        );
    }
}
