//! The demo on the command line. Only reads it and ends with a code; the work is in the library.

use std::process::ExitCode;

use clap::Parser as _;
use e2e_demo::DemoArgs;
use e2e_stack::say;

fn main() -> ExitCode {
    say::begin();
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    e2e_stack::conclude(e2e_demo::run(&DemoArgs::parse()))
}
