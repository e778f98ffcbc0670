//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Exit code for a config or a command line that is wrong (sysexits.h, `EX_USAGE`).
pub const EXIT_CONFIG: u8 = 64;

/// Exit code for a server that cannot be reached, or refuses (sysexits.h, `EX_UNAVAILABLE`).
pub const EXIT_UNAVAILABLE: u8 = 69;

/// Reads OTLP traces from Kafka and inserts them into ClickHouse.
#[derive(Debug, Parser)]
#[command(name = "sluice-gateway", version, about, after_help = AFTER_HELP)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Exit codes:
  0   done
  1   ended by an error while running
  64  the config or the command line is wrong; every violation is named with its field
  69  Kafka or ClickHouse cannot be reached, or refuses";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read and insert until SIGTERM; then finish what was read, commit, and leave.
    Run(ConfigFile),
    /// Check the config, its memory budget, Kafka, ClickHouse and the table; change nothing.
    Check {
        /// The config.
        #[command(flatten)]
        file: ConfigFile,
        /// Print the findings as JSON.
        #[arg(long)]
        json: bool,
    },
    /// The table's definition.
    #[command(subcommand)]
    Ddl(DdlCommand),
}

/// What to do with the table's definition.
#[derive(Debug, Subcommand)]
pub enum DdlCommand {
    /// Print the statements that `apply` would run for a missing table.
    Print(ConfigFile),
    /// Create what is missing, as far as `schema.management` allows, and check that the columns fit.
    Apply(ConfigFile),
}

/// Where the config is.
#[derive(Debug, Args)]
pub struct ConfigFile {
    /// The config, YAML.
    #[arg(long, value_name = "FILE", default_value = "/etc/sluice/gateway.yaml")]
    pub config: PathBuf,
}
