//! Simulated days on the command line. Only reads the command line and sets the exit code; the work is in the library.

use std::process::ExitCode;

use clap::Parser as _;
use e2e_simulate::SimulateArgs;
use e2e_stack::say;

fn main() -> ExitCode {
    say::begin();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    e2e_stack::conclude(e2e_simulate::run(&SimulateArgs::parse()))
}
