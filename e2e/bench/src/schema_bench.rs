//! `cargo run --release -p e2e-bench -- schema-bench`: the costs of each layout of the table and each sorting key, and the speed of typical
//! queries.
//!
//! ```text
//! topic made and filled -> for each variant: table made by `ddl print` -> gateway inserts all -> merged -> questions -> removed
//! ```
//!
//! Job: the figures that decide the defaults of `spec.sink.clickhouse.schema`. Place in the flow: a command of its own, which starts the
//! local stack if it does not run; and, with few spans, a step of verify. CPU times are the server's own (`system.query_log`), since wall
//! times on shared cores say little; an insert's time does not include merges. Every variant gets the same spans from the same topic: an
//! hour of a web shop. Limits: one variant at a time.

mod question;
mod report;
mod table;
mod variant;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::json;

use crate::command::{FileArgs, is_wanted, kept_in, on_stack};
use crate::throughput::stack_server;
use crate::throughput::witness::Watched;
use crate::waiting::{STALL, until_committed};
use e2e_fixtures::gateway::{self, Orders};
use e2e_fixtures::pipeline::merged;
use e2e_fixtures::produce::{Compression, Feed, Producer, Topic};
use e2e_fixtures::spans::{Encoding, Run, Shape};
use e2e_stack::paths::{create_folder, remove_folder};
use e2e_stack::process::interrupt;
use e2e_stack::say;
use e2e_stack::{clickhouse::HOST_URL, kafka::HOST_ADDRESS};
pub(crate) use question::NAMES;
pub(crate) use report::Answer;
use report::{Report, VariantReport};
pub(crate) use sluice_gateway_config::Layout;
pub(crate) use table::Table;
use variant::VARIANTS;
pub(crate) use variant::{SERVICE_FIRST, TIME_FIRST, TRACE_FIRST, Variant, plain};

/// Partitions of the topic. Chosen: the usual number of one gateway.
const PARTITIONS: i32 = 4;

/// The spans cover an hour, one slice after the other, so that a query with a time range can skip some of them.
const SLICES: u64 = 30;
const SLICE_NS: u64 = 120_000_000_000;

/// Spans of `--short`: a little more than one message of every slice.
const SHORT_SPANS: u64 = 3_000;

/// The load, and the output.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct SchemaBenchArgs {
    /// Number of spans; figures are stable from a million on
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    spans: u64,

    /// Runs of each query; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    times: u32,

    /// Measure only variants whose name contains this; may be given several times
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,

    #[command(flatten)]
    files: FileArgs,

    /// Run every variant and every query once, with few spans: fails if a table stays empty or a query finds no row. The figures mean nothing
    #[arg(long, conflicts_with_all = ["spans", "times", "only", "json"])]
    short: bool,
}

const AFTER_HELP: &str = "\
It uses a running local stack and keeps it running; otherwise it starts one and stops it at the end.

JSON: {spans, server, variants: [{name, layout, orderBy, insertCpuSeconds, insertCpuMicrosPerRow, inserts, insertMilliseconds,
syncsPerInsert, bytesPerRow, viewBytesPerRow, questions: [{name, milliseconds, cpuMilliseconds, readRows, readBytes}]}]}
  insertCpuSeconds     user and system CPU time of the server for all inserts, with those into views, without merges
  insertMilliseconds   server time, mean of all inserts; merges and other programs of the machine slow it down
  syncsPerInsert       files and directories that the server synced for an insert, mean
  bytesPerRow          bytes on disk of the table's parts, merged into one a day, divided by its rows
  viewBytesPerRow      bytes on disk of the tables that views fill, divided by the rows of the main table
  milliseconds         server time, median of all runs
  cpuMilliseconds      CPU time of the server, median
  readRows, readBytes  rows and bytes that the server read, uncompressed

Exit codes:
  0  all variants were measured
  1  otherwise";

/// Measures and prints. An error comes after everything that the command made, except logs, is removed.
pub fn run(args: &SchemaBenchArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    let gateway = args.files.program()?;
    if args.short {
        return short(args, &gateway).map(|()| ExitCode::SUCCESS);
    }
    let mut report = Report { spans: args.spans, ..Report::default() };
    let outcome = on_stack(measure(args, &gateway, &mut report));
    // If a variant fails, the figures of the variants before it are still shown.
    say::lines(&report.lines());
    args.files.write(&report)?;
    outcome.map(|()| ExitCode::SUCCESS)
}

fn short(args: &SchemaBenchArgs, gateway: &Path) -> Result<()> {
    let args = SchemaBenchArgs { spans: SHORT_SPANS, times: 1, ..args.clone() };
    let mut report = Report::default();
    on_stack(measure(&args, gateway, &mut report))?;
    ensure!(report.variants.len() == VARIANTS.len(), "{} variants were measured", report.variants.len());
    for variant in &report.variants {
        ensure!(variant.bytes_per_row > 0.0, "{} has no rows", variant.name);
        ensure!(variant.insert_cpu_seconds > 0.0, "the inserts of {} cost nothing", variant.name);
        for name in NAMES {
            let answer = variant.questions.iter().find(|answer| answer.name == name);
            let rows = answer.map_or(0, |answer| answer.read_rows);
            ensure!(rows > 0, "{}: {name} read no row", variant.name);
        }
    }
    Ok(())
}

async fn measure(args: &SchemaBenchArgs, gateway: &Path, report: &mut Report) -> Result<()> {
    let run = Run::fresh();
    let name = format!("sluice-schema-bench-{:x}", run.id);
    let folder = create_folder(std::env::temp_dir().join(&name))?;
    let topic = Topic::create(HOST_ADDRESS, &name, PARTITIONS).await?;
    let bench = Bench { gateway, folder: &folder, topic: &topic, run, args };
    let outcome = bench.all(report).await;
    let removed = topic.delete().await;
    if outcome.is_ok() {
        remove_folder(&folder)?;
    }
    outcome.with_context(|| kept_in(&folder)).and(removed)
}

/// What all variants share.
struct Bench<'a> {
    gateway: &'a Path,
    folder: &'a Path,
    topic: &'a Topic,
    run: Run,
    args: &'a SchemaBenchArgs,
}

impl Bench<'_> {
    async fn all(&self, report: &mut Report) -> Result<()> {
        self.fill().await?;
        for variant in VARIANTS.iter().filter(|variant| is_wanted(variant.name, &self.args.only)) {
            interrupt::check()?;
            let measured = self.variant(variant).await.with_context(|| variant.name.to_owned())?;
            say::progress(variant.name, &measured.summary());
            report.variants.push(measured);
        }
        report.server = table::version().await?;
        Ok(())
    }

    /// Produces an hour of spans.
    async fn fill(&self) -> Result<()> {
        say::progress("topic", &format!("{} spans to {}", self.args.spans, self.topic.name()));
        let each = self.args.spans.div_ceil(SLICES).next_multiple_of(Shape::Rich.message_spans());
        let started = self.run.start_ns - SLICES * SLICE_NS;
        for slice in 0..SLICES {
            interrupt::check()?;
            let numbers = slice * each..((slice + 1) * each).min(self.args.spans);
            if numbers.is_empty() {
                break;
            }
            let of_slice = Run { start_ns: started + slice * SLICE_NS, ..self.run };
            let producer = Producer::new(HOST_ADDRESS, Compression::Zstd, of_slice)?;
            let feed = Feed {
                topic: self.topic.name().to_owned(),
                partitions: PARTITIONS,
                shape: Shape::Rich,
                encoding: Encoding::OtlpProto,
                spans_per_second: None,
            };
            let wanted = numbers.end - numbers.start;
            let sent = producer.produce(&feed, numbers).await?;
            ensure!(sent.acked.count() == wanted, "the broker did not take all: {:?}", sent.failure);
        }
        Ok(())
    }

    async fn variant(&self, variant: &Variant) -> Result<VariantReport> {
        let folder = create_folder(self.folder.join(variant.name))?;
        let database = format!("sluice_schema_bench_{:x}_{}", self.run.id, variant.name.replace('-', "_"));
        let (topic, group) = (self.topic.name(), group(self.topic, variant));
        let orders =
            Orders { broker: HOST_ADDRESS, topic, group: &group, sink: HOST_URL, database: &database };
        let schema = json!({"sink": {"clickhouse": {"schema": variant.schema()}}});
        let file = folder.join("gateway.yaml");
        gateway::write_config(&merged(&orders.config(), &schema), &file)?;
        let statements = gateway::table_statements(self.gateway, &file)?;
        let table = Table::create(&stack_server(), &database, &statements).await?;
        let outcome = self.insert_and_ask(variant, &table, &file, &folder).await;
        table.delete().await;
        self.topic.delete_group(&group).await.ok();
        outcome
    }

    async fn insert_and_ask(
        &self,
        variant: &Variant,
        table: &Table,
        config: &Path,
        folder: &Path,
    ) -> Result<VariantReport> {
        say::progress(variant.name, "the gateway inserts");
        self.insert(variant, config, folder).await?;
        let inserts = table.inserts().await?;
        ensure!(inserts.rows == self.args.spans, "{} of {} rows", inserts.rows, self.args.spans);
        table.merge().await?;
        let sizes = table.sizes().await?;
        let questions = table.ask(variant, &NAMES, self.args.times).await?;
        Ok(VariantReport::new(variant, &inserts, &sizes, questions))
    }

    /// Runs the gateway until its group has committed everything.
    async fn insert(&self, variant: &Variant, config: &Path, folder: &Path) -> Result<()> {
        let mut process = Watched::start(&gateway::command(self.gateway, config), folder)?;
        until_committed(self.topic, &group(self.topic, variant), STALL, || process.check()).await?;
        process.end().await.map(drop)
    }
}

fn group(topic: &Topic, variant: &Variant) -> String {
    format!("{}-{}", topic.name(), variant.name)
}
