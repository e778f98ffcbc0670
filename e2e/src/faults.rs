//! `e2e faults`: everything that can die, stop or lie does so under load; then spans are counted by their numbers.
//!
//! ```text
//! load -> own broker -> front -> gateway -> front -> own ClickHouse -> counts
//!                         ^         ^         ^            ^
//!                         '---------'-- scenario ----------'
//! ```
//!
//! Servers are this run's own ([`servers`]), so that nobody else notices. Steps of the gateway are seen from outside, by what passes the
//! fronts ([`kafka_front`], [`sink_front`]): the program has no hook for this. What must hold in each round: not one span lost or doubled
//! but those that a scenario predicts exactly; no gateway ends by itself but where a scenario says so, and with that code, and none panics;
//! and at its end every gateway that it leaves alive says that no row is missing in its account and none is in doubt. Servers, processes and data end with the run, also after a failure or Ctrl-C; configs and logs are
//! kept then.

mod admin;
mod course;
mod failing_disk;
mod foreign_commit;
mod gate;
mod gateway;
mod kafka_front;
mod kafka_wire;
mod report;
mod scenario;
mod scene;
mod second_shard;
mod segments;
mod servers;
mod sink_front;
mod small_volume;
mod wall_clock;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::process::interrupt;
use crate::stack::paths::remove_folder;
use crate::{say, throughput};
pub use kafka_front::Way;
pub use report::{Outcome, Report, Round};
use scenario::Scenario;
use scene::{FORMER, Stage};
use servers::Servers;
pub use sink_front::{Leg, SinkFront, Verdict as SinkVerdict};

/// What `verify` runs: a death where a plan alone knows the cut, one where the server alone knows the rows, members that come and go
/// with either protocol. None of them waits long.
const SHORT: [&str; 5] = [
    "kill-after-plan-commit",
    "kill-after-server-commit",
    "format-change",
    "rebalance-storm",
    "kip-848-kill-before-plan-commit",
];

/// Which scenarios run, and how often.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct FaultsArgs {
    /// Rounds of each scenario; those that take long have a most of their own
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,

    /// How long ClickHouse is away in the long outage
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(5..=86_400))]
    outage_s: u64,

    /// Only scenarios whose name contains this, or the one of this very name, which a long one needs; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Name the scenarios with their rounds at the most, and run none
    #[arg(long)]
    list: bool,

    /// Write the outcomes to a file, after each scenario
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// A gateway program to run instead of the one that is compiled from this checkout
    #[arg(long, value_name = "FILE")]
    gateway: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Needs no running stack: brokers and a ClickHouse of the run's own are started from the programs that the stack
installs (`cargo stack up` once, or this command fetches them), and removed at the end.

`--list` says how many rounds of a scenario are played at the most, whatever --rounds says; one that takes many minutes
is \"long\", and runs only when it is named.

Columns:
  spans       numbered spans that Kafka acknowledged, in all rounds
  lost        those of them without a row; behind it, how many must be: Kafka itself had lost them
  doubled     rows beyond the first of a span; behind it, how many must be: the server had forgotten their token
  recovery s  from the death, or the fault's end, until a gateway is told of an insert; the longest of all rounds

What was not played to its end because something failed is in the table and in the file as well, as a failure.

Exit codes: 0 every count is the expected one in every round, and no gateway has ended but as it must; 1 otherwise.";

/// Runs the scenarios and prints what came of them.
///
/// # Errors
/// What failed; by then what the command started is stopped.
pub fn run(args: &FaultsArgs) -> Result<ExitCode> {
    let mut chosen = chosen(&args.only);
    if !args.list {
        chosen.retain(|scenario| !scenario.is_long || args.only.iter().any(|name| name == scenario.name));
    }
    ensure!(!chosen.is_empty(), "no scenario is named like that; --list names them");
    if args.list {
        for line in list(&chosen) {
            say::line(&line);
        }
        return Ok(ExitCode::SUCCESS);
    }
    interrupt::watch()?;
    let program = match &args.gateway {
        Some(file) => std::path::absolute(file).with_context(|| format!("find {}", file.display()))?,
        None => throughput::compiled()?,
    };
    if args.gateway.is_none() && chosen.iter().any(Scenario::needs_former) {
        throughput::compiled_example(FORMER)?;
    }
    let mut report = Report::default();
    let whole = Whole {
        program: &program,
        rounds: args.rounds,
        outage: Duration::from_secs(args.outage_s),
        json: args.json.as_deref(),
    };
    let ran = run_all(&whole, &chosen, &mut report);
    report.table().iter().for_each(|line| say::line(line));
    // Only now: what was measured before something failed is worth as much as without that.
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

/// The scenarios that these name: a whole name stands for one, a part of it for all that have it.
fn chosen(only: &[String]) -> Vec<Scenario> {
    let all = scenario::all();
    let is_whole = |part: &String| all.iter().any(|scenario| scenario.name == part);
    let names = |part: &String, name: &str| if is_whole(part) { name == part } else { name.contains(part) };
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| names(part, name));
    all.iter().filter(|scenario| wanted(scenario.name)).copied().collect()
}

/// Runs a short selection, one round each, with this gateway.
///
/// # Errors
/// When a server cannot be started, or one line for each count that is not the expected one.
pub fn short(program: &Path) -> Result<()> {
    let chosen: Vec<Scenario> =
        scenario::all().into_iter().filter(|scenario| SHORT.contains(&scenario.name)).collect();
    let mut report = Report::default();
    let whole = Whole { program, rounds: 1, outage: Duration::ZERO, json: None };
    run_all(&whole, &chosen, &mut report).with_context(|| report.table().join("\n"))?;
    ensure!(report.holds(), "{}", report.table().join("\n"));
    Ok(())
}

/// What all scenarios of a run share.
struct Whole<'a> {
    program: &'a Path,
    rounds: u32,
    outage: Duration,
    /// Where the outcomes so far are written after each scenario.
    json: Option<&'a Path>,
}

/// Runs these scenarios. What came of them is in `report` also when something fails on the way, up to the scenario that it failed in.
fn run_all(whole: &Whole<'_>, scenarios: &[Scenario], report: &mut Report) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("sluice-faults-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    let kept = format!("configs and logs are in {}", folder.display());
    runtime.block_on(play(whole, &folder, scenarios, report)).with_context(|| kept.clone())?;
    if report.holds() {
        remove_folder(&folder)?;
    } else {
        say::progress("faults", &kept);
    }
    Ok(())
}

async fn play(whole: &Whole<'_>, folder: &Path, scenarios: &[Scenario], report: &mut Report) -> Result<()> {
    let mut on_stage: Option<(u32, Stage)> = None;
    for scenario in scenarios {
        let mut outcome = Outcome::new(scenario.name);
        let played = async {
            let stage = stage(&mut on_stage, whole, folder, scenario.brokers).await?;
            play_one(stage, scenario, whole.rounds, &mut outcome).await
        };
        let played = played.await;
        report.add(outcome, &played);
        if let Some(file) = whole.json {
            report.write(file)?;
        }
        played?;
    }
    Ok(())
}

/// Servers with so many brokers, started anew unless those are there.
async fn stage<'a>(
    on_stage: &'a mut Option<(u32, Stage)>,
    whole: &Whole<'_>,
    folder: &Path,
    brokers: u32,
) -> Result<&'a Stage> {
    if on_stage.as_ref().is_none_or(|(there, _)| *there != brokers) {
        // The old servers go first: two clusters need not have room beside each other.
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
                say::progress(scenario.name, &format!("round {}: {said}{}", number + 1, round.words()));
                round.failures.iter().for_each(|failure| say::progress(scenario.name, failure));
                outcome.add(number, &round);
            }
            Err(failure) => {
                interrupt::check()?;
                say::progress(scenario.name, &format!("round {} FAILED: {failure:#}", number + 1));
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
        let names = |only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(|part| (*part).to_owned()).collect();
            chosen(&only).iter().map(|scenario| scenario.name).collect()
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
    fn the_short_selection_names_scenarios() {
        let names: Vec<&str> = scenario::all().iter().map(|scenario| scenario.name).collect();
        assert!(SHORT.iter().all(|name| names.contains(name)), "{SHORT:?}");
        let long: Vec<Scenario> = scenario::all().into_iter().filter(|scenario| scenario.is_long).collect();
        assert!(long.iter().all(|scenario| !SHORT.contains(&scenario.name)), "{long:?}");
    }
}
