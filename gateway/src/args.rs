//! The command line.

use crate::commands::audit::Moment;
use clap::{Args, Parser, Subcommand};
use sluice_gateway_config::Duration;
use std::path::PathBuf;

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
  1   an error while running; `ddl diff`: the table differs; `drain`: a person must act, or rows are lost; `dead-letter replay`: some
      letters were not replayed
  64  the config or the command line is wrong; every violation is named with its field
  65  `audit`: spans are missing or doubled; `ddl apply`: rows can be written, but something differs that may not be changed
  66  `audit`: spans have no row, but none is certainly lost: the table's TTL deleted them, or the audit cannot see them; or
      Kafka no longer has offsets from --since on
  69  Kafka or ClickHouse is away or refuses; `audit`: a record batch cannot be read; `run`: start it again, because the table or a
      topic has changed, or give the container more memory, because its limit is too small for the config
  75  `ddl apply`: some servers did not answer; the others are done";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read from Kafka and insert until SIGTERM; then insert or keep what was read, commit, and leave the group.
    Run(ConfigFile),
    /// Accept OTLP, write it to a pipeline's topic and answer once Kafka has stored it, until SIGTERM; then answer the requests under way. The
    /// config is that of an edge.
    Edge(ConfigFile),
    /// Check the config, its memory budget, Kafka, ClickHouse and the table; change nothing.
    Check {
        /// The config.
        #[command(flatten)]
        file: ConfigFile,
        /// Print the findings as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Compare what Kafka has with the table, span by span; change nothing.
    Audit(AuditArguments),
    /// Empty a queue volume whose gateway is gone: insert rows that exist nowhere else, drop the rest.
    Drain(DrainArguments),
    /// Print, compare or create the table.
    #[command(subcommand)]
    Ddl(DdlCommand),
    /// List, show or replay messages in the dead-letter topic.
    #[command(subcommand)]
    DeadLetter(DeadLetterCommand),
}

/// Compare what Kafka has with the table, span by span; change nothing.
///
/// Every span must have as many rows as copies in Kafka. A span is identified by trace id, span id and timestamp. Below the
/// committed offset, a span with fewer rows is missing. A span with more rows is doubled. At or above that offset, a span without
/// a row is waiting. Rejected messages have no rows and are counted separately. Spans in the dead-letter topic need no row.
#[derive(Debug, Args)]
#[command(after_help = AUDIT_HELP)]
pub struct AuditArguments {
    /// The config.
    #[command(flatten)]
    pub file: ConfigFile,
    /// Only this topic. Default: all topics of the config.
    #[arg(long)]
    pub topic: Option<String>,
    /// Only this partition; may be repeated. Default: all partitions.
    #[arg(long = "partition", value_name = "P")]
    pub partitions: Vec<i32>,
    /// Start here: an offset (1200), a time (2026-11-21T18:00:00Z) or an age (90m). Default: the oldest message in Kafka.
    #[arg(long, value_name = "OFFSET|TIME|DURATION")]
    pub since: Option<Moment>,
    /// Stop before this message, in the same form. Default: the current end.
    #[arg(long, value_name = "OFFSET|TIME|DURATION")]
    pub until: Option<Moment>,
    /// Print the result as JSON, with every range of every partition.
    #[arg(long)]
    pub json: bool,
    /// List at most N missing and N doubled spans; all are counted.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
}

const AUDIT_HELP: &str = "\
Cost:
  A million spans take 2 CPU-seconds of ClickHouse and 110 MB of its memory. They take more if the table has many other rows of the
  same minutes: each question about 250,000 spans reads the ids of all rows of those minutes.
  Memory: 250 MB for any range; run it in a pod of its own rather than in a gateway's.
  Exact for up to 50 million spans a run; above that, it names the number of spans that it could compare within one range only.

Limits:
  Rows that a person deleted count as missing. Rows that the table's TTL deleted are expired, or unseen if the audit cannot evaluate
  the TTL. A span sent once inside and once outside the range counts as doubled: start earlier.

Exit codes:
  0   nothing is missing or doubled
  64  the config or the command line is wrong
  65  spans are missing or doubled
  66  spans have no row, but none is certainly lost; or Kafka no longer has offsets from --since on, and the report names them
  69  Kafka or ClickHouse is away or refuses; or a record batch cannot be read, and the report names its partition";

/// Empty a queue volume whose gateway is gone: insert rows that exist nowhere else, drop the rest.
///
/// The volume is at `queue.path` of the config, for any `queue.mode`. The command does not join the consumer group and commits nothing.
#[derive(Debug, Args)]
#[command(after_help = DRAIN_HELP)]
pub struct DrainArguments {
    /// The config.
    #[command(flatten)]
    pub file: ConfigFile,
    /// Stop after this time without progress because Kafka or ClickHouse is away or refuses. A large volume may take longer, as long
    /// as blocks are inserted.
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub timeout: Duration,
    /// Give up damaged records whose rows exist nowhere else. Their files are kept.
    #[arg(long)]
    pub give_up_damaged: bool,
    /// Print the result as JSON. Progress goes to standard error either way.
    #[arg(long)]
    pub json: bool,
}

const DRAIN_HELP: &str = "\
What happens to a block:
  Below the group's committed offset: its rows are in the table; the block is dropped.
  Written with delivery.commit AfterEnqueue: it is inserted, because its offset was committed once it was on the volume.
  At or above that offset, and Kafka has its messages: the owner of the partition reads them; the block is dropped.
  Kafka no longer has its messages: it is inserted under its old deduplication token. Its rows are counted as possibly doubled if the
  server may have forgotten the token.

The command names each damaged record with its partition, its offsets and what happens to it. You may kill it and run it again.

With --json: {volume, found, settled, inKafka, inserted, lost, left: {blocks, rows}, possibleDuplicateRows, deadLetteredRows,
skippedRows, damaged: [{file, reason, partition, first, next, rows, fate}], problem: {why, text}}; fate is Settled, InKafka, Nowhere,
GivenUp, Lost or Unknown, why is unavailable, byHand or lost; without a problem the volume is empty.

Exit codes:
  0   the volume is empty
  1   a person must act, rows are lost, or the volume cannot be used: a gateway uses it, or it failed
  64  the config or the command line is wrong
  69  blocks are left because Kafka or ClickHouse is away or refuses; run it again";

/// What to do with the table's definition.
#[derive(Debug, Subcommand)]
pub enum DdlCommand {
    /// Print the statements that `apply` would run for a missing table; asks no server.
    Print(DdlArguments),
    /// Compare the table with the config; change nothing. Exit code 0 when nothing differs, 1 when something does.
    #[command(after_help = DIFF_HELP)]
    Diff(DdlArguments),
    /// Create what is missing, as far as `schema.management` allows, and compare the rest.
    #[command(after_help = APPLY_HELP)]
    Apply(DdlArguments),
}

/// Which table, and how the result is printed.
#[derive(Debug, Args)]
pub struct DdlArguments {
    /// The config.
    #[command(flatten)]
    pub file: ConfigFile,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

const DIFF_HELP: &str = "\
Compares only what the config names: columns, layout, order or TTL that it leaves open are not compared. Progress goes to standard
error.

With --json: {table, columns, created, statements, differences: [{what, wanted, found, change, would, message, servers}], unreachable};
change is Create, AddColumn, ModifySetting or ByHand; would has the statements that end the difference, or advice for a person.

Exit codes:
  0   the table is as the config asks for
  1   it differs, or is missing
  64  the config or the command line is wrong
  69  ClickHouse is away or refuses";

const APPLY_HELP: &str = "\
The field schema.management says what may be changed. None and Validate change nothing. CreateIfMissing creates the database, table
and views that are missing. Evolve also adds columns and sets the settings for durability. The command never drops, rewrites or copies
rows; it names what would need that. A second run changes nothing. Progress goes to standard error; --json prints what `diff --json`
does, with the statements that were run.

Exit codes:
  0   the table is as the config asks for
  64  the config or the command line is wrong
  65  rows can be written, but something differs that may not be changed; the last line says it as JSON
  69  ClickHouse is away or refuses, or rows cannot be written to the table; the last line says it as JSON
  75  some servers did not answer; the others are done; the last line says it as JSON";

/// What to do with dead letters. No command removes them.
#[derive(Debug, Subcommand)]
pub enum DeadLetterCommand {
    /// Print one line per letter: origin, reason, size.
    List(Letters),
    /// Print all headers of each letter, and its spans as text.
    Show(Letters),
    /// Produce the letters to their source topics again; with source.otlp, append them to the queue volume while no gateway uses it. Running it
    /// twice stores the rows twice.
    Replay {
        /// Which letters.
        #[command(flatten)]
        letters: Letters,
        /// Show what would be replayed; replay nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Which letters.
#[derive(Debug, Args)]
pub struct Letters {
    /// The config.
    #[command(flatten)]
    pub file: ConfigFile,
    /// The dead-letter topic to read, instead of those that the config leads to.
    #[arg(long)]
    pub topic: Option<String>,
    /// Only letters from this source partition.
    #[arg(long)]
    pub partition: Option<i32>,
    /// Only letters from this source offset.
    #[arg(long, requires = "partition")]
    pub offset: Option<i64>,
    /// Only letters written within this time, such as 90m or 24h.
    #[arg(long, value_name = "TIME")]
    pub since: Option<Duration>,
    /// At most this many letters.
    #[arg(long)]
    pub limit: Option<u64>,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
}

/// Where the config is.
#[derive(Debug, Args)]
pub struct ConfigFile {
    /// The config file (YAML).
    #[arg(long, value_name = "FILE", default_value = "/etc/sluice/gateway.yaml")]
    pub config: PathBuf,
}
