//! The command line of the measurements. The work is in the library.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use e2e_bench::throughput::{self, witness};
use e2e_bench::{bill, load, memory, operator_scale, otlp, schema_bench};
use e2e_stack::say;

/// Measures throughput, the cost of merges, memory, OTLP and load, table layouts, and the operator at scale
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure spans per CPU-second of the gateway, and of other programs
    Throughput(throughput::ThroughputArgs),

    /// Measure the CPU time and the written bytes of spans until their rows are merged
    Bill(bill::BillArgs),

    /// Check the gateway's memory budget under a cgroup limit
    Memory(memory::MemoryArgs),

    /// Check a gateway with source.otlp under more load than ClickHouse takes
    Load(load::LoadArgs),

    /// Measure an edge, or a gateway with source.otlp, beside an OpenTelemetry Collector
    Otlp(otlp::OtlpArgs),

    /// Measure the requests and memory of the operator with hundreds of pipelines
    OperatorScale(operator_scale::OperatorScaleArgs),

    /// Measure inserts, disk space and queries of each table layout and sorting key
    SchemaBench(schema_bench::SchemaBenchArgs),

    /// Run one command for `throughput` and report its cost
    #[command(hide = true)]
    Witness(witness::WitnessArgs),
}

fn main() -> ExitCode {
    say::begin();
    // Only warnings of the libraries: the commands print their own progress with `say`.
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    e2e_stack::conclude(match Arguments::parse().command {
        Command::Throughput(args) => throughput::run(&args),
        Command::Bill(args) => bill::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Otlp(args) => otlp::run(&args),
        Command::OperatorScale(args) => operator_scale::run(&args),
        Command::SchemaBench(args) => schema_bench::run(&args),
        Command::Witness(args) => witness::run(&args),
    })
}
