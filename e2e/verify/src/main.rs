//! `cargo verify`, `cargo demo` and `cargo stack`: only reads the command line and ends with a code.
//!
//! This package is small on purpose: it prepares the machine and says what is missing before anything large is compiled, and it compiles
//! the rest itself, beside what else is built. It names no client of Kubernetes or Kafka.

mod demo;
mod fuzz;
mod stack_command;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use e2e_stack::images::{self, ImagesArgs};
use e2e_stack::say;
use fuzz::FuzzArgs;
use stack_command::StackCommand;
use verify::VerifyArgs;

/// Sluice's checks: verify, demo, and the local stack
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything that CI checks; the last line counts
    Verify(VerifyArgs),

    /// Everything from nothing to an answered query; stays up until Ctrl-C
    #[command(disable_help_flag = true)]
    Demo(demo::DemoWords),

    /// A local Kubernetes, Kafka and ClickHouse
    #[command(subcommand)]
    Stack(StackCommand),

    /// Searches for bytes that break a promise of the gateway's readers
    Fuzz(FuzzArgs),

    /// The images as files, for kind and for registries
    Images(ImagesArgs),
}

fn main() -> ExitCode {
    say::begin();
    e2e_stack::conclude(match Arguments::parse().command {
        Command::Verify(args) => verify::run(&args),
        Command::Demo(words) => demo::run(&words),
        Command::Stack(stack) => stack.run(),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Images(args) => images::run(&args),
    })
}
