//! Drives everything from outside: demo, verify, throughput, the local stack. Only reads the command line and ends with a code; the work
//! is in the library.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use e2e::demo::{self, DemoArgs};
use e2e::faults::{self, FaultsArgs};
use e2e::fuzz::{self, FuzzArgs};
use e2e::memory::{self, MemoryArgs};
use e2e::operator_scale::{self, OperatorScaleArgs};
use e2e::say;
use e2e::schema_bench::{self, SchemaBenchArgs};
use e2e::simulate::{self, SimulateArgs};
use e2e::stack::command::StackCommand;
use e2e::stack::images::{self, ImagesArgs};
use e2e::throughput::{self, ThroughputArgs, witness};
use e2e::verify::{self, VerifyArgs};

/// Sluice's harness: demo, verify, and the local stack
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything from nothing to an answered query; stays up until Ctrl-C
    Demo(DemoArgs),

    /// Everything that CI checks; the last line counts
    Verify(VerifyArgs),

    /// Spans a CPU-second of the gateway, and of peers beside it
    Throughput(ThroughputArgs),

    /// The gateway's memory budget under the kernel's own limit
    Memory(MemoryArgs),

    /// Kills, stops and cuts everything under load, and counts what is lost or doubled
    Faults(FaultsArgs),

    /// Searches for bytes that break a promise of the gateway's readers
    Fuzz(FuzzArgs),

    /// A day of the scaling decision, and of others' rules beside it
    Simulate(SimulateArgs),

    /// What hundreds of pipelines cost the operator and the API server
    OperatorScale(OperatorScaleArgs),

    /// What each layout and order of the table costs, and how fast its answers are
    SchemaBench(SchemaBenchArgs),

    /// Runs one command for `throughput` and reports what it cost
    #[command(hide = true)]
    Witness(witness::WitnessArgs),

    /// The images as files, for kind and for registries
    Images(ImagesArgs),

    /// A local Kubernetes, Kafka and ClickHouse
    #[command(subcommand)]
    Stack(StackCommand),
}

fn main() -> ExitCode {
    say::begin();
    // Warnings of the libraries; what a command does is said by `say`.
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let done = match Arguments::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Throughput(args) => throughput::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Faults(args) => faults::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::OperatorScale(args) => operator_scale::run(&args),
        Command::SchemaBench(args) => schema_bench::run(&args),
        Command::Witness(args) => witness::run(&args),
        Command::Images(args) => images::run(&args),
        Command::Stack(stack) => stack.run(),
    };
    done.unwrap_or_else(|failure| {
        say::error(&format!("error: {failure:#}"));
        ExitCode::from(e2e::stack::exit_code())
    })
}
