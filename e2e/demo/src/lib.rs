//! `cargo demo`: starts the stack, runs a pipeline and queries its rows, with progress on the terminal.
//!
//! ```text
//! stack up -> images -> operator by its chart -> sample applied -> spans produced -> rows counted -> query answered
//! ```
//!
//! It runs until Ctrl-C, or with `--exit` until the query. At the end, also after a failure, it stops what it started. A stack that ran before
//! keeps running.

mod look;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use serde_json::{Value, json};
use sluice_crds::{ClickHouseSink, TracePipeline};

use e2e_fixtures::cluster::{Cluster, Namespace};
use e2e_fixtures::files;
use e2e_fixtures::login::Login;
use e2e_fixtures::oracle::{Database, Oracle, Verdict};
use e2e_fixtures::pipeline::merged;
use e2e_fixtures::produce::{Compression, Feed, Load, Producer, Topic};
use e2e_fixtures::spans::{Encoding, Run, Shape};
use e2e_stack::TargetArgs;
use e2e_stack::install::{self, ImageArgs};
use e2e_stack::process::interrupt;
use e2e_stack::programs::Form;
use e2e_stack::say;
use e2e_stack::target::Resolved;

const NAMESPACE: &str = "sluice-demo";

/// The sample that is applied, below the workspace.
const SAMPLE: &str = "config/samples/tracepipeline.yaml";

/// Partitions of the demo's topic: two gateways of four.
const PARTITIONS: i32 = 8;

/// Longest time from the sample to ready gateways: images are loaded, so that it is volumes, one Job and two pods.
const READY_DEADLINE: Duration = Duration::from_mins(3);

/// Everything from nothing to an answered query; stays up until Ctrl-C
#[derive(Parser, Clone, Debug)]
#[command(version)]
pub struct DemoArgs {
    /// Spans to produce
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub spans: u64,

    /// Count, tear down, and exit: with 0 only if every span was counted
    #[arg(long)]
    pub exit: bool,

    /// Write the counts to a file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    #[command(flatten)]
    pub target: TargetArgs,

    #[command(flatten)]
    pub images: ImageArgs,
}

/// Runs the demo.
///
/// # Errors
/// What failed, after stopping everything that the demo started.
pub fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    interrupt::watch()?;
    let target = args.target.target()?;
    let ran_before = if target.needs_stack() { e2e_stack::up(Form::Checked)?.ran_before } else { true };
    let outcome = target.resolve().and_then(|resolved| on(args, &resolved));
    if !ran_before {
        say::progress("demo", "stopping the stack; its data stays");
        e2e_stack::down(false)?;
    }
    let verdict = outcome?;
    let whole = verdict.lost == 0 && verdict.rows >= verdict.spans;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn on(args: &DemoArgs, resolved: &Resolved) -> anyhow::Result<Verdict> {
    let images = install::images(resolved, &args.images, Form::Checked)?;
    install::operator(&resolved.kubeconfig, &images)?;
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    let outcome = runtime.block_on(show(args, resolved));
    let removed = runtime.block_on(remove(resolved)).and_then(|()| install::remove(&resolved.kubeconfig));
    let verdict = outcome?;
    removed?;
    Ok(verdict)
}

/// Applies, produces, counts, asks, and waits for Ctrl-C.
async fn show(args: &DemoArgs, resolved: &Resolved) -> anyhow::Result<Verdict> {
    let sample = sample(resolved)?;
    let topic = field(&sample, "/spec/source/kafka/topics/0")?;
    let name = field(&sample, "/metadata/name")?;

    let cluster = Cluster::connect(&resolved.kubeconfig).await?;
    let namespace = Namespace::create(&cluster, NAMESPACE).await?;
    let topic = Topic::ensure(&resolved.kafka.host, &topic, PARTITIONS).await?;
    say::progress("kafka", &format!("topic {} with {} partitions", topic.name(), topic.partitions()));
    let secret = field(&sample, "/spec/sink/clickhouse/credentials/secretRef/name")?;
    let Login { user, password, .. } = Login::of_gateways(&resolved.clickhouse)?;
    namespace.apply_credentials(&secret, &user, &password).await?;
    say::progress("pipeline", &format!("kubectl apply -f {SAMPLE}"));
    namespace.apply(&sample).await?;
    watch::until_ready(&namespace, &name, READY_DEADLINE).await?;

    let pipeline: TracePipeline = namespace.api().get(&name).await.context("get the pipeline")?;
    let ClickHouseSink { database, table, .. } = pipeline.spec.sink.clickhouse;
    let server = Login::of(&resolved.clickhouse.host)?.server();
    let run = Run::fresh();
    let oracle = Database::existing(&server, &database).oracle(&table, run);
    let verdict = produce(args, resolved, &topic, &oracle).await?;
    report(args, &verdict)?;
    look::answer(&server, &database, &table, run).await?;
    look::around(resolved, &database, &table);
    if !args.exit {
        while !interrupt::requested() {
            tokio::time::sleep(watch::LOOK).await;
        }
    }
    Ok(verdict)
}

async fn produce(
    args: &DemoArgs,
    resolved: &Resolved,
    topic: &Topic,
    oracle: &Oracle,
) -> anyhow::Result<Verdict> {
    let producer = Producer::new(&resolved.kafka.host, Compression::Zstd, oracle.run())?;
    let feed = Feed {
        topic: topic.name().to_owned(),
        partitions: topic.partitions(),
        shape: Shape::Rich,
        encoding: Encoding::OtlpProto,
        spans_per_second: None,
    };
    let load = Load::start_numbers(&producer, feed, 0..args.spans);
    watch::counted(load, oracle).await
}

fn report(args: &DemoArgs, verdict: &Verdict) -> anyhow::Result<()> {
    let Verdict { spans, rows, lost, doubled, seconds, .. } = verdict;
    say::progress(
        "counted",
        &format!("{spans} spans, {rows} rows, {lost} lost, {doubled} doubled, {seconds:.1} s"),
    );
    if let Some(file) = &args.json {
        let text = serde_json::to_string(verdict).context("write the counts as JSON")?;
        std::fs::write(file, text + "\n").with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

async fn remove(resolved: &Resolved) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&resolved.kubeconfig).await?;
    say::progress("pipeline", &format!("removing namespace {NAMESPACE}"));
    Namespace::named(&cluster, NAMESPACE).delete().await
}

/// The sample with the addresses of the target, which for the local stack are the sample's own.
fn sample(resolved: &Resolved) -> anyhow::Result<Value> {
    let sample = files::yaml(SAMPLE)?;
    let endpoint = Login::of(&resolved.clickhouse.pods)?.url;
    let addresses = json!({"spec": {
        "source": {"kafka": {"bootstrapServers": [resolved.kafka.pods]}},
        "sink": {"clickhouse": {"endpoints": [endpoint]}},
    }});
    Ok(merged(&sample, &addresses))
}

fn field(sample: &Value, pointer: &str) -> anyhow::Result<String> {
    let found = sample.pointer(pointer).and_then(Value::as_str);
    found.map(str::to_owned).with_context(|| format!("{SAMPLE} has no {pointer}"))
}
