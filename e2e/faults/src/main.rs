//! The command line of the fault scenarios. The work is in the library.

use std::process::ExitCode;

use clap::Parser as _;
use e2e_faults::FaultsArgs;
use e2e_stack::say;

fn main() -> ExitCode {
    say::begin();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    e2e_stack::conclude(e2e_faults::run(&FaultsArgs::parse()))
}
