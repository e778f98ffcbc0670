//! `e2e-bench load`: a gateway with `source.otlp` under more load than ClickHouse takes.
//!
//! ```text
//! 100 clients, each request after the answer before -> gateway in a memory group of 1,000 MiB, with its volume
//!     -> front that takes 3 s for an INSERT, or is gone -> ClickHouse -> rows counted
//! ```
//!
//! It is modelled on a published benchmark, in which a memory limit that was a percentage of the pod's caused 6 OOM kills. The real program
//! runs as a process in its own cgroup, with the config that the operator writes for a pipeline with defaults. What must hold in every
//! case: no OOM kill, no failed request, no span lost or doubled, the resident set under the limit. With defaults, every request is
//! accepted at the first try. Clients, gateway and ClickHouse share the cores of the machine, so times and requests a second are those of
//! all three. Databases, volumes and cgroups are removed, also after a failure; configs and logs are kept then.

mod case;
mod clients;
mod config;
mod course;
mod otlp_request;
mod report;
mod tally;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use crate::command::{FileArgs, on_stack};
use crate::outcomes::Outcomes;
use case::Case;
use course::Course;
use e2e_stack::process::interrupt;
use e2e_stack::say;
pub use report::Outcome;

const ALL: &str = "all";

/// Which case runs, and its load.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct LoadArgs {
    /// Case to run, or `all`
    #[arg(long, value_name = "NAME", required_unless_present = "list")]
    case: Option<String>,

    /// List the cases and run none
    #[arg(long)]
    list: bool,

    /// Seconds for which clients begin requests
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,

    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,

    #[command(flatten)]
    files: FileArgs,
}

const AFTER_HELP: &str = "\
Needs root, to create memory cgroups. It uses a running local stack and keeps it running; otherwise it starts one and
stops it at the end. A gateway with source.otlp runs in a cgroup of 1000 MiB without swap, with the config that the
operator writes for a pipeline with defaults. ClickHouse takes 3 s for an INSERT. Each client sends a request over
OTLP/HTTP with JSON, waits for the answer, and sends the next one. What 429, 502, 503, 504 or no answer says, it sends
again after Retry-After, at most 10 s. A request that is not accepted within 2 minutes after the clients' time has
failed. Then ClickHouse is fast, the gateway is drained, and the rows are counted.
Clients, gateway and ClickHouse share the cores: compare times and requests a second within one machine only.

Cases:
  heavy          50 traces, 467 spans, 3.6 MB a request
  light          one trace, 6 to 8 spans, 8 KB a request
Each also as:
  -100ms, -1s    the age at which a block closes, insert.maxInterval
  -small-volume  a volume of 512 MiB instead of 10 GiB
  -large-volume  a volume of 40 GiB
  -away          ClickHouse refuses connections until the clients' time is over

Columns:
  requests       requests that were sent
  first          accepted by the first answer
  retried        accepted after they were sent again
  failed         never accepted
  req/s          accepted requests a second, within the clients' time
  p50 ms ...     from the first time that a request was sent until it was accepted
  peak MiB       the kernel's peak of the resident set
  kills          processes that the kernel OOM-killed
  rows           rows in the table
  lost           spans of accepted requests without a row
  doubled        rows beyond the first of a span
  -              unknown: the case did not run, or the gateway did not insert all that it had

JSON: {runs: [{case, requests, accepted_first, retried, failed, req_per_s, p50_ms, p90_ms, p95_ms, max_ms, peak_mib,
kills, rows, lost, doubled, failures}]}

Exit codes:
  0  every case had 0 kills, 0 failed, 0 lost, 0 doubled and a peak under the limit; with defaults, all first
  1  otherwise";

/// Runs the cases and prints their results. An error comes after everything that the command started is stopped.
pub fn run(args: &LoadArgs) -> Result<ExitCode> {
    if args.list {
        for case in Case::all() {
            say::line(&format!("{:<18} {}", case.name(), case.describe()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = chosen(args.case.as_deref().unwrap_or(ALL));
    ensure!(!chosen.is_empty(), "no case has this name; --list shows all");
    interrupt::watch()?;
    let program = args.files.program()?;
    let folder = std::env::temp_dir().join(format!("sluice-load-{}", std::process::id()));
    let course = Course { program, folder, clients: args.clients, time: Duration::from_secs(args.seconds) };
    on_stack(run_all(&course, &chosen))?.show(args.files.json.as_deref())
}

fn chosen(name: &str) -> Vec<Case> {
    Case::all().into_iter().filter(|case| name == ALL || case.name() == name).collect()
}

async fn run_all(course: &Course, cases: &[Case]) -> Result<Outcomes<Outcome>> {
    let mut outcomes = Outcomes { runs: Vec::new() };
    for case in cases {
        outcomes.add(course.run(case).await, |error| Outcome::ended(case, error))?;
    }
    outcomes.remove_or_keep("load", &course.folder)?;
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_chosen_by_its_whole_name() {
        let names = |name| chosen(name).iter().map(Case::name).collect::<Vec<_>>();
        assert_eq!(names("light"), ["light"]);
        assert_eq!(names("heavy-away"), ["heavy-away"]);
        assert_eq!(names("all").len(), 12);
        assert!(names("heav").is_empty());
    }
}
