//! The search for faults on the command line. Only reads it and ends with a code; the work is in the library.

use std::process::ExitCode;

use clap::Parser;
use e2e_faults::FaultsArgs;
use e2e_stack::say;

/// Kills, stops and cuts everything under load, and counts what is lost or doubled
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    faults: FaultsArgs,
}

fn main() -> ExitCode {
    say::begin();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    e2e_stack::conclude(e2e_faults::run(&Arguments::parse().faults))
}
