//! The measurements on the command line. Only reads it and ends with a code; the work is in the library.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use e2e_bench::memory::{self, MemoryArgs};
use e2e_bench::operator_scale::{self, OperatorScaleArgs};
use e2e_bench::schema_bench::{self, SchemaBenchArgs};
use e2e_bench::throughput::{self, ThroughputArgs, witness};
use e2e_stack::say;

/// Measures throughput, memory, schemas, and the operator's scale
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Spans a CPU-second of the gateway, and of peers beside it
    Throughput(ThroughputArgs),

    /// The gateway's memory budget under the kernel's own limit
    Memory(MemoryArgs),

    /// What hundreds of pipelines cost the operator and the API server
    OperatorScale(OperatorScaleArgs),

    /// What each layout and order of the table costs, and how fast its answers are
    SchemaBench(SchemaBenchArgs),

    /// Runs one command for `throughput` and reports what it cost
    #[command(hide = true)]
    Witness(witness::WitnessArgs),
}

fn main() -> ExitCode {
    say::begin();
    // Warnings of the libraries; what a command does is said by `say`.
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    e2e_stack::conclude(match Arguments::parse().command {
        Command::Throughput(args) => throughput::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::OperatorScale(args) => operator_scale::run(&args),
        Command::SchemaBench(args) => schema_bench::run(&args),
        Command::Witness(args) => witness::run(&args),
    })
}
