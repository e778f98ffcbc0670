//! `e2e-bench memory`: the gateway's memory budget under the kernel's own limit.
//!
//! ```text
//! topic filled with batches of a size -> gateway in a memory group -> front that is slow or gone -> null sink -> counts
//! ```
//!
//! Every scenario runs the real program as a process in its own memory cgroup. The cgroup's limit is the one in the config; swap is not
//! allowed, and page cache does not count. What must hold: no OOM kill, no early exit, no span lost or doubled, the resident set under the
//! limit. Within 5 s of the sink's return, the gateway is at full speed again, if the backlog is long enough to measure that. Topics,
//! groups and cgroups are removed, also after a failure; configs and logs are kept then.

mod course;
mod front;
mod gateway;
pub(crate) mod group;
mod load;
mod pace;
mod report;
mod scenario;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::command::{FileArgs, is_wanted, kept_in, on_stack};
use crate::outcomes::Outcomes;
use course::Course;
use e2e_stack::kafka::HOST_ADDRESS;
use e2e_stack::paths::create_folder;
use e2e_stack::process::interrupt;
use e2e_stack::say;
pub(crate) use front::{Behaviour, Front};
pub(crate) use gateway::{Gateway, Usage, kib_in};
use load::Load;
pub use report::Outcome;
use scenario::{Scenario, Size};

/// Spans of the oversized scenarios beside the batch itself: enough that every partition has several batches.
const OVERSIZED_SPANS: u64 = 500_000;

/// Which scenarios run, and their load.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct MemoryArgs {
    /// Run only scenarios whose name contains this; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// List the scenarios and run none
    #[arg(long)]
    list: bool,

    /// Spans of backlog
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    spans: u64,

    /// Seconds for which the sink is slow or unreachable
    #[arg(long, value_name = "SECONDS", default_value_t = 45, value_parser = clap::value_parser!(u64).range(1..=600))]
    outage: u64,

    /// Whether the gateway has a queue volume while the sink is slow or unreachable
    #[arg(long, value_enum, default_value_t)]
    queue: QueueMode,

    #[command(flatten)]
    files: FileArgs,
}

/// The gateway's `queue.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
pub enum QueueMode {
    /// With a queue volume, the default: the gateway continues to read.
    #[default]
    Spill,
    /// Without one: the gateway stops reading when all blocks in memory are used.
    Disabled,
}

const AFTER_HELP: &str = "\
Needs root, to create memory cgroups. It uses a running local stack and keeps it running; otherwise it starts one and
stops it at the end. Every scenario fills a topic, or reads the topic of the scenario before it again. It starts the
gateway in a cgroup without swap whose limit is the one in the gateway's config, makes the sink slow or unreachable
once a quarter is read, and then restores it.

Columns:
  peak MiB   the kernel's peak of the resident set, mapped files included
  anon MiB   the largest anonymous memory, sampled every 20 ms
  kills      processes that the kernel OOM-killed
  lost       spans without a row; expected only for the batch that must not pass in the oversized scenarios
  kspans/s   thousands of rows inserted per second before the sink's outage, or in the whole of a steady run
  back s     from the sink's return until 0.8 of that rate again; more than 5 is a failure
  -          unknown: the rest of the backlog was too short, or the run did not finish

Exit codes:
  0  every scenario held all limits
  1  otherwise";

/// Runs the scenarios and prints their results. An error comes after everything that the command started is stopped.
pub fn run(args: &MemoryArgs) -> Result<ExitCode> {
    let chosen = chosen(&args.only);
    if args.list {
        for scenario in &chosen {
            say::line(&format!("{:<18} {}", scenario.name(), scenario.describe()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!chosen.is_empty(), "no scenario has such a name; --list shows all");
    interrupt::watch()?;
    let program = args.files.program()?;
    let (broker, outage) = (HOST_ADDRESS.to_owned(), Duration::from_secs(args.outage));
    let plan = Plan { program, broker, queue: args.queue, spans: args.spans, outage };
    on_stack(plan.run(&chosen))?.show(args.files.json.as_deref())
}

fn chosen(only: &[String]) -> Vec<Scenario> {
    Scenario::all().into_iter().filter(|scenario| is_wanted(&scenario.name(), only)).collect()
}

/// The programs, servers and load of the scenarios.
#[derive(Debug)]
pub struct Plan {
    /// The gateway, in release form.
    pub program: PathBuf,
    /// `host:port` of the broker.
    pub broker: String,
    pub queue: QueueMode,
    /// Spans of backlog.
    pub spans: u64,
    /// How long the sink is slow or unreachable.
    pub outage: Duration,
}

impl Plan {
    /// Runs the scenarios with exactly these names.
    pub async fn check(self, names: &[&str]) -> Result<Outcomes<Outcome>> {
        let all = Scenario::all().into_iter();
        let chosen: Vec<Scenario> =
            all.filter(|scenario| names.contains(&scenario.name().as_str())).collect();
        ensure!(chosen.len() == names.len(), "some of {names:?} are no scenarios");
        self.run(&chosen).await
    }

    async fn run(self, scenarios: &[Scenario]) -> Result<Outcomes<Outcome>> {
        let folder = std::env::temp_dir().join(format!("sluice-memory-{}", std::process::id()));
        let folder = create_folder(folder)?;
        let course = Course { plan: self, folder };
        let mut laid: Option<(Size, Load)> = None;
        let outcome = run_all(&course, scenarios, &mut laid).await;
        if let Some((_, load)) = laid {
            load.topic.delete().await?;
        }
        let outcomes = outcome.with_context(|| kept_in(&course.folder))?;
        outcomes.remove_or_keep("memory", &course.folder)?;
        Ok(outcomes)
    }
}

async fn run_all(
    course: &Course,
    scenarios: &[Scenario],
    laid: &mut Option<(Size, Load)>,
) -> Result<Outcomes<Outcome>> {
    let mut outcomes = Outcomes { runs: Vec::new() };
    for scenario in scenarios {
        let name = scenario.name();
        let outcome = match scenario {
            Scenario::Oversized(codec) => course.oversized(&name, codec, OVERSIZED_SPANS).await,
            Scenario::Backlog(size, outage) => {
                let load = laid_for(&course.plan, size, laid).await?;
                course.backlog(&name, size, outage, load).await
            }
        };
        outcomes.add(outcome, |error| Outcome::ended(scenario, error))?;
    }
    Ok(outcomes)
}

/// The topic of a size: the existing one, or a new one in its place.
async fn laid_for<'a>(plan: &Plan, size: &Size, laid: &'a mut Option<(Size, Load)>) -> Result<&'a Load> {
    if laid.as_ref().is_none_or(|(other, _)| other != size) {
        if let Some((_, old)) = laid.take() {
            old.topic.delete().await?;
        }
        let load = Load::create(&plan.broker, size.partitions, &size.filling).await?;
        let (_, load) = laid.insert((*size, load));
        let spans = (plan.spans / size.spans_divisor).max(1);
        say::progress(size.name, &format!("{spans} spans to {}", load.topic.name()));
        load.fill(&size.filling, spans).await?;
    }
    laid.as_ref().map(|(_, load)| load).context("there is a topic by now")
}
