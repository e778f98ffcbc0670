//! `e2e-bench operator-scale`: measures the requests and memory of the operator with hundreds of pipelines, and checks that it writes nothing
//! at rest.
//!
//! ```text
//! namespace, topic, account -> operator -> pipelines -> all applied -> all Ready -> rest -> a quiet minute, counted
//! ```
//!
//! The gateways of some pipelines may be silent. That must not delay the work on the other pipelines (`edit`).
//!
//! The pipelines are not alike (`kinds`): some have Secrets, some are scaled by load, some have queue volumes.
//!
//! Job: the figures of one operator with so many pipelines on a real API server. The operator is the real program as a process with the
//! chart's rights; a proxy counts all of its requests. A node without a kubelet takes the pods of its `StatefulSets` and reports them
//! ready, and their volumes have no disk. Real: API server, etcd, all controllers, Kafka. Not real: the gateways.
//!
//! Owner: the run. Limits: everything is removed at the end, also after a failure or Ctrl-C. An operator that manages all namespaces must
//! not run at the same time.

mod edit;
mod kinds;
mod report;
mod rest;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_crds::TracePipeline;
use sluice_crds::status::condition as kind;

use crate::command::{code, in_runtime, named, on_stack, write_json};
use e2e_fixtures::cluster::{Cluster, Namespace, Operator};
use e2e_fixtures::local_operator::{
    LocalOperator, Node, Orders, POD_CORES, Silent, Volumes, ensure_definition,
};
use e2e_fixtures::pipeline::{Settings, condition, merged};
use e2e_fixtures::produce::Topic;
use e2e_stack::TargetArgs;
use e2e_stack::images::Programs;
use e2e_stack::paths::{create_folder, remove_folder};
use e2e_stack::process::interrupt;
use e2e_stack::programs::Form;
use e2e_stack::say;
use e2e_stack::target::Resolved;
use kinds::Kind;
pub use report::Report;

const PARTITIONS: i32 = 4;

/// Pipelines that are made at the same time.
const CREATES_MAX: usize = 16;

/// Least speed of the pipelines: an applied one costs the API server a dozen writes, a Ready one twice as many.
const PIPELINES_A_SECOND_MIN: f64 = 1.0;

/// Least time to wait, for a run with few pipelines.
const PATIENCE_MIN: Duration = Duration::from_mins(3);

/// Interval of the check for Ctrl-C.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Number of pipelines, and the cluster.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct OperatorScaleArgs {
    /// Number of pipelines
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pipelines: u32,

    /// Seconds at rest for which requests are counted; the operator reconciles every pipeline every 30 s
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(30..=3_600))]
    quiet: u64,

    /// Percentage of the gateways that are ready and do not answer
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=90))]
    silent: u32,

    /// Write the figures to a file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Operator program to run; default: compiled from this checkout
    #[arg(long, value_name = "FILE")]
    operator: Option<PathBuf>,

    /// The cluster.
    #[command(flatten)]
    target: TargetArgs,
}

const AFTER_HELP: &str = "\
It uses a running local stack and keeps it running; otherwise it starts one and stops it at the end. No operator that
watches all namespaces may run meanwhile. The operator runs as a process with the chart's service account; a proxy
between it and the API server counts its requests. API server, etcd, StatefulSet controller and Kafka are those of the
cluster. No gateway runs: a node without a kubelet takes their pods and reports them ready, and this program answers
/state for them.
Every second pipeline has credentials in its own Secret, every third has scaling.mode Auto, and every fifth has a queue
volume, which Kubernetes binds and which has no disk. Of 30 pipelines each combination occurs once.

Output:
  created, applied, Ready   seconds from the first pipeline's creation until all pipelines are in that state
  requests                  of the operator by verb, until all pipelines were Ready and the operator was at rest
  at rest                   requests within the quiet time, and objects of the namespace that changed meanwhile
  memory                    the operator's largest resident set
  edits                     the longest time from an edit of a pipeline whose gateway answers until it is applied

Exit codes:
  0  at rest, only the Lease was written and no object changed; edits were applied within 5 s
  1  otherwise";

/// Measures and prints the figures. An error comes after everything that the command made is removed.
pub fn run(args: &OperatorScaleArgs) -> Result<ExitCode> {
    interrupt::watch()?;
    let program = match &args.operator {
        Some(file) => named(file)?,
        None => Programs::compiled(Form::Release)?.operator,
    };
    let target = args.target.target()?;
    let resolved = target.resolve()?;
    let (quiet, silent) = (Duration::from_secs(args.quiet), Silent(args.silent));
    let order = Order { pipelines: args.pipelines, quiet, silent };
    let work = measure(&order, &resolved, &program);
    let report = if target.needs_stack() { on_stack(work) } else { in_runtime(work) }?;
    say::lines(&report.lines());
    write_json(args.json.as_deref(), &report)?;
    Ok(code(report.holds()))
}

#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub pipelines: u32,
    /// How long requests at rest are counted.
    pub quiet: Duration,
    /// Share of the gateways that answer nothing.
    pub silent: Silent,
}

/// Measures, and removes everything that it made. No operator of all namespaces may run.
pub async fn measure(order: &Order, target: &Resolved, program: &Path) -> Result<Report> {
    let cluster = Cluster::connect(&target.kubeconfig).await?;
    alone(&cluster).await?;
    ensure_definition(&cluster).await?;
    let name = format!("sluice-scale-{:x}", std::process::id());
    let folder = create_folder(std::env::temp_dir().join(&name))?;
    let namespace = Namespace::create(&cluster, &name).await?;
    let mut ground = Ground { namespace, topic: None, node: None, volumes: None, folder };
    let measured = tokio::select! {
        measured = on(&mut ground, order, target, program) => measured,
        never = interrupted() => never,
    };
    let removed = ground.remove(measured.is_ok()).await;
    let report = measured?;
    removed.map(|()| report)
}

/// Fails if an operator that manages all namespaces runs: it would write the same objects.
async fn alone(cluster: &Cluster) -> Result<()> {
    let Some(operator) = Operator::installed(cluster).await? else { return Ok(()) };
    let pods = operator.pods().list().await?.len();
    ensure!(
        pods == 0,
        "an installed operator would reconcile the same pipelines; remove it: helm uninstall sluice -n sluice-system"
    );
    Ok(())
}

async fn interrupted() -> Result<Report> {
    while !interrupt::requested() {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    bail!("interrupted")
}

/// The objects and fixtures of a run.
struct Ground {
    namespace: Namespace,
    topic: Option<Topic>,
    node: Option<Node>,
    volumes: Option<Volumes>,
    folder: PathBuf,
}

impl Ground {
    /// Removes everything; files only if `with_files`. Continues after a failure and returns the first.
    async fn remove(self, with_files: bool) -> Result<()> {
        say::progress("scale", "removing the objects of the run");
        // The node goes last, because it ends the pods.
        let mut removed = self.namespace.delete().await;
        if let Some(node) = self.node {
            removed = removed.and(node.remove().await);
        }
        if let Some(volumes) = self.volumes {
            removed = removed.and(volumes.remove().await);
        }
        if let Some(topic) = self.topic {
            removed = removed.and(topic.delete().await);
        }
        if with_files {
            removed = removed.and(remove_folder(&self.folder));
        } else {
            say::progress("scale", &format!("the operator's log is kept in {}", self.folder.display()));
        }
        removed.context("remove the objects of the run")
    }
}

async fn on(ground: &mut Ground, order: &Order, target: &Resolved, program: &Path) -> Result<Report> {
    let name = ground.namespace.name().to_owned();
    ground.topic = Some(Topic::create(&target.kafka.host, &name, PARTITIONS).await?);
    let node = Node::start_with_silent(&ground.namespace, &target.kubeconfig, order.silent).await?;
    ground.node = Some(node);
    let class = ground.volumes.insert(Volumes::start(&ground.namespace).await?).class().to_owned();
    let orders = Orders {
        kubeconfig: &target.kubeconfig,
        namespace: &ground.namespace,
        program,
        gateway_image: "sluice.local/none:0",
        identity: "operator",
    };
    let mut operator = LocalOperator::start(orders, &ground.folder).await?;
    say::progress("scale", &format!("{} pipelines in namespace {name}", order.pipelines));
    let plain = Plain { manifest: manifest(target, &name), class };
    let times = become_ready(&ground.namespace, order, &plain).await;
    operator.program.check()?;
    let times = times?;
    let measured = rest::observe(&ground.namespace, &mut operator, order.quiet).await?;
    let edited = edit::longest(&ground.namespace, order).await?;
    operator.program.stop().await?;
    Ok(Report::new(order, times, measured, edited))
}

/// What the pipelines have in common.
struct Plain {
    manifest: Value,
    /// Storage class of those that have volumes.
    class: String,
}

impl Plain {
    /// Makes pipeline `number`, and its Secret if it has one.
    async fn make(&self, namespace: &Namespace, number: u32) -> Result<()> {
        let (kind, name) = (Kind::of(number), format!("scale-{number}"));
        if kind.secret {
            namespace.apply_credentials(&name, "nobody", "none").await?;
        }
        let change = json!({"metadata": {"name": name}, "spec": kind.change(&name, &self.class)});
        let object =
            serde_json::from_value(merged(&self.manifest, &change)).context("describe a pipeline")?;
        let made = namespace.api::<TracePipeline>().create(&PostParams::default(), &object).await;
        made.map(drop).with_context(|| format!("make pipeline {number}"))
    }
}

/// A pipeline that needs only Kafka: no table, no volume, no credentials. It has its own consumer group.
fn manifest(target: &Resolved, topic: &str) -> Value {
    let settings = Settings {
        name: String::new(),
        brokers: vec![target.kafka.host.clone()],
        topic: topic.to_owned(),
        clickhouse: target.clickhouse.host.clone(),
        database: "none".to_owned(),
        image: "sluice.local/none:0".to_owned(),
        storage_class: None,
    };
    let change = json!({"spec": {
        "source": {"kafka": {"consumerGroup": null}},
        "sink": {"clickhouse": {"credentials": null, "schema": {"management": "None"}}},
        "gateway": {"resources": {"cpuRequest": POD_CORES}},
        "queue": {"mode": "Disabled", "size": null},
    }});
    merged(&settings.manifest(), &change)
}

/// Seconds from the first pipeline's creation until all pipelines had reached a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    pub created_s: f64,
    /// Every object of the pipeline was applied.
    pub applied_s: f64,
    pub ready_s: f64,
}

async fn become_ready(namespace: &Namespace, order: &Order, plain: &Plain) -> Result<Times> {
    let began = Instant::now();
    let patience = Duration::from_secs_f64(f64::from(order.pipelines) / PIPELINES_A_SECOND_MIN);
    let watched = watch_until_ready(namespace, order.pipelines, began);
    let watched = tokio::time::timeout(patience.max(PATIENCE_MIN), watched);
    let (created, watched) = tokio::join!(create(namespace, order.pipelines, plain, began), watched);
    let (applied_s, ready_s) = watched.context("the pipelines do not become Ready in time")??;
    Ok(Times { created_s: created?, applied_s, ready_s })
}

async fn create(namespace: &Namespace, count: u32, plain: &Plain, began: Instant) -> Result<f64> {
    stream::iter(0..count)
        .map(|number| plain.make(namespace, number))
        .buffer_unordered(CREATES_MAX)
        .try_collect::<Vec<()>>()
        .await?;
    let seconds = began.elapsed().as_secs_f64();
    say::progress("scale", "all are created");
    Ok(seconds)
}

/// Waits; returns the seconds until all are applied, and until all are Ready. The operator writes the number of gateways into the status
/// once everything was applied.
async fn watch_until_ready(namespace: &Namespace, count: u32, began: Instant) -> Result<(f64, f64)> {
    let pipelines: Api<TracePipeline> = namespace.api();
    let mut changes =
        watcher(pipelines, watcher::Config::default()).default_backoff().applied_objects().boxed();
    let (mut seen, mut applied_at) = (BTreeMap::new(), None);
    let count = usize::try_from(count).context("count the pipelines")?;
    while let Some(change) = changes.next().await {
        // If the watch breaks, it starts again.
        let Ok(pipeline) = change else { continue };
        let status = pipeline.status.clone().unwrap_or_default();
        let is_ready = condition(&status, kind::READY).is_some_and(|ready| ready.status == "True");
        seen.insert(pipeline.name_any(), (status.desired_replicas.is_some(), is_ready));
        let all = |of: fn(&(bool, bool)) -> bool| seen.len() == count && seen.values().all(of);
        if applied_at.is_none() && all(|(applied, _)| *applied) {
            applied_at = Some(began.elapsed().as_secs_f64());
            say::progress("scale", "all are applied");
        }
        if let (Some(applied), true) = (applied_at, all(|(_, ready)| *ready)) {
            say::progress("scale", "all are Ready");
            return Ok((applied, began.elapsed().as_secs_f64()));
        }
    }
    bail!("the watch of the pipelines ended")
}
