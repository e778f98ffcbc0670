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
  1   ended by an error while running; `ddl diff`: the table differs; `drain`: something is left that someone must see to, or rows are lost;
      `dead-letter replay`: letters were not replayed
  64  the config or the command line is wrong; every violation is named with its field
  65  `audit` found spans that are missing or doubled; `ddl apply` left something that differs
  66  `audit` found spans without a row, and none that is lost for certain: the table's TTL deleted them, or the audit cannot see them
  69  Kafka or ClickHouse cannot be reached, or refuses
  75  `ddl apply`: some servers did not answer; the others are done";

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
    /// Compare what Kafka has with the table, span by span; change nothing.
    Audit(AuditArguments),
    /// Empty a queue volume whose gateway is gone: insert what is nowhere else, drop the rest.
    Drain(DrainArguments),
    /// The table's definition.
    #[command(subcommand)]
    Ddl(DdlCommand),
    /// What could not be delivered, and was put into the dead-letter topic.
    #[command(subcommand)]
    DeadLetter(DeadLetterCommand),
}

/// Compare what Kafka has with the table, span by span; change nothing.
///
/// Every span of the range must have as many rows as it is in Kafka, told by trace id, span id and timestamp. Spans in front of
/// the group's committed offset that have fewer are missing; any that have more are doubled. Spans beyond it that have no row
/// are waiting. Messages that the gateway rejects give no rows and are counted apart, and what is in the dead-letter topic needs
/// none.
#[derive(Debug, Args)]
#[command(after_help = AUDIT_HELP)]
pub struct AuditArguments {
    /// The config.
    #[command(flatten)]
    pub file: ConfigFile,
    /// The topic; all topics of the config when it is left out.
    #[arg(long)]
    pub topic: Option<String>,
    /// A partition; may be given several times. All of them when it is left out.
    #[arg(long = "partition", value_name = "P")]
    pub partitions: Vec<i32>,
    /// The first message: an offset (1200), a time (2026-11-21T18:00:00Z) or how long ago (90m). The oldest that Kafka has when
    /// it is left out.
    #[arg(long, value_name = "OFFSET|TIME|DURATION")]
    pub since: Option<Moment>,
    /// The first message that is not compared any more, in the same way. The end, as it is now, when it is left out.
    #[arg(long, value_name = "OFFSET|TIME|DURATION")]
    pub until: Option<Moment>,
    /// Print the result as JSON, with every range of every partition.
    #[arg(long)]
    pub json: bool,
    /// How many missing and how many doubled spans are listed; all are counted.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
}

const AUDIT_HELP: &str = "\
Cost and limits:
  A million spans take 2 CPU-seconds of ClickHouse and 110 MB of its memory, more where the rows of the same minutes are many
  more than the spans: each question about 250,000 spans reads the ids of all of them.
  Memory: 250 MB, whatever the range; run it in a pod of its own rather than in a gateway's.
  Exact for up to 50 million spans a run; beyond, it says how many it could compare within one range only.

What it cannot know:
  Rows that a TTL or a person has deleted are missing. A span that its producer sent twice, once inside and once outside
  of the range, is doubled: begin earlier.

Exit codes:
  0   nothing is missing or doubled
  64  the config or the command line is wrong
  65  spans are missing or doubled
  69  Kafka or ClickHouse cannot be reached, or refuses";

/// Empty a queue volume whose gateway is gone: insert what is nowhere else, drop the rest.
///
/// The volume is the one at `queue.path` of the config, whatever `queue.mode` says. No group is joined and nothing is committed.
#[derive(Debug, Args)]
#[command(after_help = DRAIN_HELP)]
pub struct DrainArguments {
    /// The config.
    #[command(flatten)]
    pub file: ConfigFile,
    /// How long to go on while nothing gets on, because Kafka or ClickHouse is away or refuses. A volume that takes longer than
    /// this is no matter as long as blocks get in.
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub timeout: Duration,
    /// Give up records that cannot be read and whose rows are nowhere else. Their files are kept all the same.
    #[arg(long)]
    pub give_up_damaged: bool,
    /// Print the result as JSON. Progress goes to standard error either way.
    #[arg(long)]
    pub json: bool,
}

const DRAIN_HELP: &str = "\
What becomes of a block:
  It lies below the group's committed offset: its rows are in the table, and it is dropped. One that was written with
  delivery.commit AfterEnqueue is inserted: being on the volume was enough for its offset to be committed.
  It lies there or above, and Kafka has its messages: whoever owns the partition reads them, and it is dropped.
  Kafka no longer has them: it is inserted under the deduplication token that it always had. Rows that may be doubled because
  the server may have forgotten that token are counted.

A record that is damaged is named with its partition, its offsets and what becomes of it. It may be ended at any time, and run again.

With --json: {volume, found, settled, inKafka, inserted, lost, left: {blocks, rows}, possibleDuplicateRows, deadLetteredRows,
skippedRows, damaged: [{file, reason, partition, first, next, rows, fate}], problem: {why, text}}; fate is Settled, InKafka, Nowhere,
GivenUp, Lost or Unknown, why is unavailable, byHand or lost; without a problem the volume is empty.

Exit codes:
  0   the volume is empty
  1   something is left that someone must see to, rows are lost, or the volume cannot be used: a gateway has it, or it has failed
  64  the config or the command line is wrong
  69  something is left because Kafka or ClickHouse cannot be reached, or refuses; run it again";

/// What to do with the table's definition.
#[derive(Debug, Subcommand)]
pub enum DdlCommand {
    /// Print the statements that `apply` would run for a missing table; nobody is asked.
    Print(DdlArguments),
    /// Compare the table with the config; change nothing. Exit code 0 when nothing differs, 1 when something does.
    #[command(after_help = DIFF_HELP)]
    Diff(DdlArguments),
    /// Make what is missing, as far as `schema.management` allows, and compare the rest.
    #[command(after_help = APPLY_HELP)]
    Apply(DdlArguments),
}

/// Which table, and how it is told.
#[derive(Debug, Args)]
pub struct DdlArguments {
    /// The config.
    #[command(flatten)]
    pub file: ConfigFile,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const DIFF_HELP: &str = "\
Only what the config asks for is compared: a layout, an order or a TTL that it leaves open is right as it is, and so are columns that
it does not name. Progress goes to standard error.

With --json: {table, columns, created, statements, differences: [{what, wanted, found, change, would, message, servers}], unreachable};
change is Create, AddColumn or ByHand, would has the statements that end the difference, or words.

Exit codes:
  0   the table is as the config asks for
  1   it differs, or is missing
  64  the config or the command line is wrong
  69  ClickHouse cannot be reached, or refuses";

const APPLY_HELP: &str = "\
What may be done is in the config: schema.management None and Validate change nothing, CreateIfMissing makes the database, the table
and the views that are missing, Evolve also adds columns. What would drop, rewrite or copy rows is never done, but named. A second run
changes nothing. Progress goes to standard error; --json prints what `diff --json` does, with the statements that were run.

Exit codes:
  0   the table is as the config asks for
  64  the config or the command line is wrong
  65  rows can be written, but something else differs that may not be changed; it is named, and in the last line as JSON
  69  ClickHouse cannot be reached, refuses, or the table cannot be written to; the last line says why as JSON
  75  some servers did not answer, and the others are done; they are named, and in the last line as JSON";

/// What to do with dead letters. They stay where they are, whatever is done.
#[derive(Debug, Subcommand)]
pub enum DeadLetterCommand {
    /// One line a letter: what it is about, why, and how large it is.
    List(Letters),
    /// Everything that is known about each letter, and its spans as text.
    Show(Letters),
    /// Produce the letters' values to the topics that they came from. Twice stores twice.
    Replay {
        /// Which letters.
        #[command(flatten)]
        letters: Letters,
        /// Say what would be replayed, and replay nothing.
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
    /// Only what came from this partition of its source.
    #[arg(long)]
    pub partition: Option<i32>,
    /// Only what came from this offset of its source.
    #[arg(long, requires = "partition")]
    pub offset: Option<i64>,
    /// Only letters that were written within this time, such as 90m or 24h.
    #[arg(long, value_name = "TIME")]
    pub since: Option<Duration>,
    /// No more than so many letters.
    #[arg(long)]
    pub limit: Option<u64>,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
}

/// Where the config is.
#[derive(Debug, Args)]
pub struct ConfigFile {
    /// The config, YAML.
    #[arg(long, value_name = "FILE", default_value = "/etc/sluice/gateway.yaml")]
    pub config: PathBuf,
}
