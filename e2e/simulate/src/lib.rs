//! `cargo simulate`: how the operator's scaling decision, and the rules of other autoscalers, control the gateways of a simulated day.
//!
//! Job: compare control laws on one plant that is the same for all of them; deterministic. Place in the flow: the only user of
//! `operator/plan` here. Needs no stack. `verify` runs a selection and checks its limits.

mod chance;
mod course;
mod limits;
mod load;
mod numbers;
mod plant;
mod plot;
mod requests;
mod rules;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

use course::{Course, Run};
use e2e_stack::say;
use load::{Load, Trace};
use plant::Queue;
use rules::{Name, Tuning};

pub use limits::check;

/// A day of the scaling decision, and of the rules of others beside it
#[derive(Parser, Clone, Debug)]
#[command(version)]
pub struct SimulateArgs {
    /// Who decides; may be given several times
    #[arg(long, value_enum, default_values = ["ours", "keda", "hpa", "flink", "numaflow"])]
    policy: Vec<Name>,

    /// What arrives; may be given several times
    #[arg(long, value_enum, default_values = ["steady", "diurnal", "burst", "sink-outage", "skew", "poison", "slow-leak"])]
    load: Vec<Load>,

    /// Partitions; may be given several times
    #[arg(long, default_values = ["8", "24", "96", "1000"], value_parser = clap::value_parser!(u32).range(1..=10_000))]
    partitions: Vec<u32>,

    /// Whether gateways have a queue volume
    #[arg(long, value_enum, default_value_t)]
    queue: Queue,

    /// Hours
    #[arg(long, default_value_t = 24.0, value_parser = hours)]
    hours: f64,

    /// Arrivals from a file instead of `--load`: lines of SECONDS,RATE
    #[arg(long, value_name = "FILE", conflicts_with = "load")]
    trace: Option<PathBuf>,

    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw gateways and lag over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    /// Other partitions and other noise; 0 is the plant that the figures to reach come from
    #[arg(long, default_value_t = 0)]
    seed: u32,

    /// Only hold our decision to the limits that `verify` holds it to
    #[arg(long)]
    check: bool,

    /// Values of our policy to try.
    #[command(flatten)]
    tuning: Tuning,
}

/// A run longer than a week shows nothing new.
const HOURS_MAX: f64 = 168.0;

fn hours(text: &str) -> Result<f64, String> {
    let hours: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if hours > 0.0 && hours <= HOURS_MAX { Ok(hours) } else { Err(format!("not within 0 and {HOURS_MAX}")) }
}

/// Runs every combination, prints the table, and writes the requested files.
pub fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    if args.check {
        check()?;
        say::line("within all limits");
        return Ok(ExitCode::SUCCESS);
    }
    let (trace, loads) = match &args.trace {
        Some(file) => (read(file)?, vec![Load::Trace]),
        None => (Trace::default(), args.load.clone()),
    };
    let SimulateArgs { queue, hours, seed, ref tuning, .. } = *args;
    say::line(table::HEADER);
    let mut runs = Vec::new();
    for load in loads {
        for partitions in &args.partitions {
            for policy in &args.policy {
                let (policy, partitions, trace) = (*policy, *partitions, &trace);
                let run = Course { policy, load, partitions, queue, hours, seed, trace, tuning }.run();
                say::line(&table::line(&run));
                runs.push(run);
            }
        }
    }
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "runs": runs }))?;
        write(file, &(text + "\n"))?;
    }
    if let Some(file) = &args.plot {
        write(file, &plot::plot(&runs))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &PathBuf) -> anyhow::Result<Trace> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    Trace::read(&text).with_context(|| format!("read {}", file.display()))
}

fn write(file: &PathBuf, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("write {}", file.display()))
}
