//! `cargo verify`, `cargo demo` and `cargo stack`: only reads the command line and ends with a code.
//!
//! This package is small on purpose: it checks the machine before anything large is compiled, and then compiles the rest itself, in parallel
//! with the parts of the stack. It depends on no client of Kubernetes or Kafka.

mod demo;
mod fuzz;
mod stack_command;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use e2e_stack::images::{self, ImagesArgs};
use e2e_stack::publish::{self, PublishArgs};
use e2e_stack::{clients, requirements, say};
use fuzz::FuzzArgs;
use stack_command::StackCommand;
use verify::VerifyArgs;

/// Sluice's checks, demo and local stack
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything that CI checks; the last line has the counts
    Verify(VerifyArgs),

    /// Start the stack, run a pipeline and query its rows; runs until Ctrl-C
    #[command(disable_help_flag = true)]
    Demo(demo::DemoWords),

    /// Start, stop or show a local Kubernetes, Kafka and ClickHouse
    #[command(subcommand)]
    Stack(StackCommand),

    /// Search for inputs that break a promise of the gateway's parsers
    Fuzz(FuzzArgs),

    /// Fetch and compile the clients of OTLP for the live tests; prints the variable that names their folder
    Clients,

    /// Write the images to files, for kind and for registries
    Images(ImagesArgs),

    /// Push the images and the chart to a registry
    Publish(PublishArgs),
}

fn main() -> ExitCode {
    say::begin();
    e2e_stack::conclude(match Arguments::parse().command {
        Command::Verify(args) => verify::run(&args),
        Command::Demo(words) => demo::run(&words),
        Command::Stack(stack) => stack.run(),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Clients => clients(),
        Command::Images(args) => images::run(&args),
        Command::Publish(args) => publish::run(&args),
    })
}

fn clients() -> anyhow::Result<ExitCode> {
    requirements::ensure_clients()?;
    say::line(&format!("{}={}", clients::FOLDER_VARIABLE, clients::folder()?.display()));
    Ok(ExitCode::SUCCESS)
}
