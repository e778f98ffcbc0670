//! `cargo faults`: injects faults into gateways, brokers, servers, clocks and disks under load, then counts spans by their numbers.
//!
//! ```text
//! load -> own broker -> front -> gateway -> front -> own ClickHouse -> counts
//!                         ^         ^         ^            ^
//!                         '---------'-- scenario ----------'
//! clients ------------------------> gateway with source.otlp -> front -> own ClickHouse -> counts
//! ```
//!
//! Each run has its own servers ([`servers`]), so that faults affect nothing else. With `--side-by-side`, each thread has servers and a folder
//! of its own, and takes scenarios from one list ([`turns`]). Scenarios observe the gateway's steps from outside, by what passes the fronts
//! ([`kafka_front`], [`sink_front`]): the program has no hook for this.
//!
//! What must hold in each round:
//! - No span is lost or doubled, except exactly those that a scenario predicts. With `source.otlp`, that holds for spans of requests that were
//!   answered with success; those of other requests are there once at the most.
//! - A gateway exits only where a scenario expects it, with the expected code, and none panics.
//! - At the end, every living gateway reports that its account misses no row and that no range is in doubt.
//!
//! Servers, processes and data are removed at the end of the run, also after a failure or Ctrl-C; then configs and logs are kept.

mod admin;
mod course;
mod failing_disk;
mod foreign_commit;
mod front;
mod gate;
mod gateway;
mod kafka_front;
mod kafka_wire;
mod otlp_clients;
mod preload;
mod report;
mod scenario;
mod scene;
mod second_shard;
mod segments;
mod servers;
mod sink_front;
mod small_volume;
mod turns;
mod wall_clock;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use e2e_stack::paths::remove_folder;
use e2e_stack::process::interrupt;
use e2e_stack::programs::{self, Form};
use e2e_stack::say;
pub use front::Way;
pub use report::{Outcome, Report, Round};
use scenario::Scenario;
use scene::{FORMER, Stage};
use servers::Servers;
pub use sink_front::{Leg, SinkFront, Verdict as SinkVerdict};
use turns::Turns;

/// Injects faults into gateways, brokers and servers under load, and counts lost and doubled rows
#[derive(Parser, Clone, Debug)]
#[command(version, after_help = AFTER_HELP)]
pub struct FaultsArgs {
    /// Rounds of each scenario; slow scenarios have a lower limit of their own
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,

    /// Seconds for which ClickHouse is unreachable in the long outage
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(5..=86_400))]
    outage_s: u64,

    /// Run the scenario of this name, or all whose name contains this; long ones run only by their whole name. May be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Run only a part of the scenarios, such as 2/5: every fifth, from the second. Prints a line for each, as for a test
    #[arg(long, value_name = "K/N", value_parser = part, conflicts_with = "only")]
    part: Option<Part>,

    /// Scenarios that run at the same time, each on servers of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    side_by_side: u32,

    /// List the scenarios with their largest number of rounds, and run none
    #[arg(long)]
    list: bool,

    /// Write the results to a file after each scenario, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Gateway program to run; default: compiled from this checkout
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Needs no running stack. It starts its own brokers and ClickHouse from the programs that the stack installs (after one
`cargo stack up`, or fetched by this command), and removes them at the end.

`--list` shows the largest number of rounds of each scenario, which limits --rounds. A scenario that takes many minutes
is \"long\", and runs only if --only has its whole name. Scenarios with the fewest rounds run first: they take longest.

Columns:
  spans       numbered spans that Kafka acknowledged, or a gateway with source.otlp accepted, in all rounds
  lost        spans without a row; then the expected number: Kafka itself had lost these
  doubled     rows beyond the first of a span; then the expected number: the server had forgotten their token
  recovery s  from the death, or the fault's end, until a gateway's next successful insert; the longest of all rounds

A scenario that did not run to its end because something failed is in the table and in the file, as a failure.

Exit codes:
  0  every count is as expected in every round, and every gateway ended as expected
  1  otherwise";

/// Runs the scenarios and prints their results.
pub fn run(args: &FaultsArgs) -> Result<ExitCode> {
    let mut chosen = chosen(&args.only);
    if let Some(part) = args.part {
        chosen = part.of(chosen);
    }
    if !args.list {
        chosen.retain(|scenario| !scenario.is_long || args.only.contains(&scenario.name));
    }
    ensure!(!chosen.is_empty(), "no scenario has such a name; --list shows all");
    if args.list {
        for line in list(&chosen) {
            say::line(&line);
        }
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::watch()?;
    let program = match &args.gateway {
        Some(file) => std::path::absolute(file).with_context(|| format!("find {}", file.display()))?,
        None => programs::release_gateway()?,
    };
    if args.gateway.is_none() && chosen.iter().any(Scenario::needs_former) {
        programs::gateway_example(FORMER, Form::Release)?;
    }
    let whole = Whole {
        program: &program,
        rounds: args.rounds,
        outage: Duration::from_secs(args.outage_s),
        json: args.json.as_deref(),
        is_counted: args.part.is_some(),
        turns: Turns::of(chosen),
        report: Mutex::default(),
    };
    let ran = run_all(&whole, args.side_by_side);
    let report = whole.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.table().iter().for_each(|line| say::line(line));
    // Return the error only now: the results before it are valid, and were printed.
    ran?;
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line for each scenario: its name, its rounds at the most, what happens.
fn list(scenarios: &[Scenario]) -> Vec<String> {
    let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or_default();
    let lines = scenarios.iter().map(|scenario| {
        let Scenario { name, describe, .. } = scenario;
        format!("{name:<width$}  {:<9}  {describe}", scenario.rounds())
    });
    let heading = format!("{:<width$}  {:<9}  what happens", "scenario", "rounds");
    std::iter::once(heading).chain(lines).collect()
}

/// The scenarios of these names: a whole name selects one, a part of a name all that contain it.
fn chosen(only: &[String]) -> Vec<Scenario> {
    let all = scenario::all();
    let is_whole = |part: &String| all.iter().any(|scenario| scenario.name == *part);
    let names = |part: &String, name: &str| if is_whole(part) { name == part } else { name.contains(part) };
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| names(part, name));
    all.iter().filter(|scenario| wanted(&scenario.name)).cloned().collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// From 1.
    number: usize,
    of: usize,
}

fn part(text: &str) -> Result<Part, String> {
    let parsed = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
    match parsed {
        Some((number, of)) if (1..=of).contains(&number) => Ok(Part { number, of }),
        _ => Err("a part is K/N with K from 1 to N".to_owned()),
    }
}

impl Part {
    /// Every N-th scenario.
    fn of(self, scenarios: Vec<Scenario>) -> Vec<Scenario> {
        scenarios.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }
}

fn say_counted(outcome: &Outcome, took: Duration) {
    let (name, holds) = (&outcome.name, outcome.failures.is_empty());
    say::line(&format!("took faults::{name} {:.1}", took.as_secs_f64()));
    if !holds {
        say::line(&format!("cause faults::{name} {}", outcome.failures.join("; ").replace('\n', " ")));
    }
    say::line(&format!("test faults::{name} ... {}", if holds { "ok" } else { "FAILED" }));
    say::line(&format!("test result: {} passed", u8::from(holds)));
}

/// The parts that all scenarios of a run share.
struct Whole<'a> {
    program: &'a Path,
    rounds: u32,
    outage: Duration,
    /// Where the outcomes so far are written after each scenario.
    json: Option<&'a Path>,
    /// Whether each scenario prints a line with its result and duration, for `cargo verify`.
    is_counted: bool,
    turns: Turns,
    /// Locked briefly after each scenario.
    report: Mutex<Report>,
}

impl Whole<'_> {
    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the outcome of a scenario, even if an error ended it, to the report, its file and the output.
    fn add(&self, outcome: Outcome, played: &Result<()>, took: Duration) -> Result<()> {
        let mut report = self.report();
        report.add(outcome, played);
        if let (true, Some(outcome)) = (self.is_counted, report.scenarios.last()) {
            say_counted(outcome, took);
        }
        self.json.map_or(Ok(()), |file| report.write(file))
    }
}

/// Runs the scenarios on this many stages. If something fails, the report still has the outcomes until then. If the servers of a stage
/// fail, that stage ends, and the others take the remaining scenarios.
fn run_all(whole: &Whole<'_>, side_by_side: u32) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("sluice-faults-{}", std::process::id()));
    let kept = format!("configs and logs are in {}", folder.display());
    let ran = std::thread::scope(|scope| {
        let begin = |number: u32| {
            let folder = folder.join(format!("stage-{number}"));
            scope.spawn(move || run_stage(whole, &folder))
        };
        // All of them begin before the first is waited for.
        let stages: Vec<_> = (1..=side_by_side).map(begin).collect();
        let ends = stages.into_iter().map(|stage| {
            stage.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread that plays scenarios panicked")))
        });
        ends.fold(Ok(()), Result::and)
    });
    ran.with_context(|| kept.clone())?;
    if whole.report().holds() {
        remove_folder(&folder)?;
    } else {
        say::progress("faults", &kept);
    }
    Ok(())
}

/// Plays scenarios until none is left, in its own thread and runtime, because some steps of a scenario block.
fn run_stage(whole: &Whole<'_>, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    tokio::runtime::Runtime::new().context("start the runtime")?.block_on(play(whole, folder))
}

async fn play(whole: &Whole<'_>, folder: &Path) -> Result<()> {
    let mut on_stage: Option<(u32, Stage)> = None;
    while let Some(scenario) = whole.turns.take() {
        let mut outcome = Outcome::new(&scenario.name);
        let began = Instant::now();
        let played = async {
            let stage = stage(&mut on_stage, whole, folder, scenario.brokers).await?;
            play_one(stage, scenario, whole.rounds, &mut outcome).await
        };
        let played = played.await;
        whole.add(outcome, &played, began.elapsed())?;
        played?;
    }
    Ok(())
}

/// Servers with this many brokers; started anew unless they already run.
async fn stage<'a>(
    on_stage: &'a mut Option<(u32, Stage)>,
    whole: &Whole<'_>,
    folder: &Path,
    brokers: u32,
) -> Result<&'a Stage> {
    if on_stage.as_ref().is_none_or(|(there, _)| *there != brokers) {
        // The old servers end first: there may be no room for two clusters.
        drop(on_stage.take());
        let servers = Servers::start(&folder.join(format!("servers-{brokers}")), brokers).await?;
        let (program, folder) = (whole.program.to_owned(), folder.to_owned());
        *on_stage = Some((brokers, Stage { servers, program, folder, outage: whole.outage }));
    }
    let (_, stage) = on_stage.as_ref().context("the servers are started")?;
    Ok(stage)
}

async fn play_one(stage: &Stage, scenario: &Scenario, rounds: u32, outcome: &mut Outcome) -> Result<()> {
    for number in 0..rounds.min(scenario.rounds_max) {
        interrupt::check()?;
        match course::round(stage, scenario, number).await {
            Ok(round) => {
                let said = if round.holds() { "" } else { "FAILED: " };
                say::progress(&scenario.name, &format!("round {}: {said}{}", number + 1, round.words()));
                round.failures.iter().for_each(|failure| say::progress(&scenario.name, failure));
                outcome.add(number, &round);
            }
            Err(failure) => {
                interrupt::check()?;
                say::progress(&scenario.name, &format!("round {} FAILED: {failure:#}", number + 1));
                outcome.failures.push(format!("round {}: {failure:#}", number + 1));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_stands_for_one_scenario_and_a_part_for_all_that_have_it() {
        let names = |only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(|part| (*part).to_owned()).collect();
            chosen(&only).into_iter().map(|scenario| scenario.name).collect()
        };
        assert_eq!(names(&["slow", "kill-before-send"]), ["kill-before-send", "slow"]);
        assert_eq!(names(&["kill-before-s"]), ["kill-before-send", "kip-848-kill-before-send"]);
        assert_eq!(names(&[]).len(), scenario::all().len());
        assert!(names(&["no-such"]).is_empty());
    }

    #[test]
    fn the_list_says_how_many_rounds_and_what_is_long() {
        let lines = list(&chosen(&[
            "volume-outage-long".to_owned(),
            "low-traffic-96".to_owned(),
            "volume-lost".to_owned(),
        ]));
        let begins = |start: &str| lines.iter().any(|line| line.starts_with(start));
        assert!(begins("scenario            rounds "), "{lines:?}");
        assert!(begins("low-traffic-96      1 "), "{lines:?}");
        assert!(begins("volume-lost         any "), "{lines:?}");
        assert!(begins("volume-outage-long  1, long "), "{lines:?}");
    }

    #[test]
    fn the_parts_of_the_scenarios_are_all_of_them_once() {
        let all = scenario::all();
        let mut played: Vec<String> = Vec::new();
        for number in 1..=10 {
            let part = Part { number, of: 10 }.of(all.clone());
            assert!(part.len().abs_diff(all.len() / 10) <= 1, "{} of {}", part.len(), all.len());
            played.extend(part.into_iter().map(|scenario| scenario.name));
        }
        played.sort_unstable();
        let mut names: Vec<String> = all.into_iter().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        assert_eq!(played, names);
        assert!(part("3/5").is_ok() && part("6/5").is_err() && part("0/5").is_err() && part("x").is_err());
    }
}
