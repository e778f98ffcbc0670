//! `kubectl sluice`: shows pipelines at a terminal, drains gateways, handles dead letters, and audits tables.
//!
//! Place in the flow: beside the operator, with the rights of its user; the operator need not run. [`cluster`] sends all requests, to the
//! API server and through it to gateways. `status`, `lag` and `spool` format what was read, and send no request. Only `drain`,
//! `dead-letter replay` and `audit` change something: an audit is a pod for a time. Limits: those of [`cluster`].

pub mod admission;
pub mod args;
mod audit;
pub mod cluster;
mod dead_letter;
mod drain;
mod exchange;
mod kubeconfig;
mod lag;
pub mod plan;
mod request_error;
mod spool;
mod status;
mod table;

pub use audit::run_until as audit_until;
pub use cluster::{Cluster, Error, Listed};

use args::{Command, PluginArgs};
use serde::Serialize;
use std::io::Write;

/// Exit status after a command that succeeded and found everything healthy.
pub const EXIT_WELL: u8 = 0;
/// Exit status if something is unhealthy: a pipeline is not ready, or a gateway does not answer or still holds something.
pub const EXIT_NOT_WELL: u8 = 1;
/// Exit status if an argument or a pipeline is invalid (`EX_USAGE` of sysexits.h).
pub const EXIT_USAGE: u8 = 64;
/// Exit status if a pipeline, a pod or a file does not exist (`EX_NOINPUT` of sysexits.h).
pub const EXIT_MISSING: u8 = 66;
/// Exit status after Ctrl-C, as a shell reports it: 128 and the number of `SIGINT`.
pub const EXIT_INTERRUPTED: u8 = 130;
/// Exit status if the cluster is unreachable or refuses a request (`EX_UNAVAILABLE` of sysexits.h).
pub const EXIT_UNAVAILABLE: u8 = 69;

/// Standard output and standard error.
pub struct Terminal<'a> {
    /// Standard output: answers only.
    pub out: &'a mut dyn Write,
    /// Standard error: progress and errors.
    pub told: &'a mut dyn Write,
}

impl Terminal<'_> {
    /// Writes an answer as a text, or as JSON.
    fn answer(&mut self, json: bool, value: &impl Serialize, text: &str) -> Result<(), Error> {
        let text = if json {
            serde_json::to_string(value).map_err(std::io::Error::other).map_err(Error::Write)?
        } else {
            text.trim_end().to_owned()
        };
        writeln!(self.out, "{text}").map_err(Error::Write)
    }

    fn tell(&mut self, line: &str) -> Result<(), Error> {
        writeln!(self.told, "{line}").map_err(Error::Write)
    }
}

/// Runs a command and returns the exit status. [`Command::Plan`] needs no cluster: `main.rs` runs it.
pub async fn run(args: &PluginArgs, terminal: &mut Terminal<'_>) -> Result<u8, Error> {
    let cluster = Cluster::connect(args.context.as_deref(), args.namespace.as_deref()).await?;
    match &args.command {
        Command::Status { name, json } => {
            let found = match name {
                Some(name) => Listed { pipelines: vec![cluster.pipeline(name).await?], unread: Vec::new() },
                None => cluster.pipelines().await?,
            };
            for line in &found.unread {
                terminal.tell(line)?;
            }
            let stories: Vec<_> = found.pipelines.iter().map(status::Story::of).collect();
            if stories.is_empty() && found.unread.is_empty() {
                if *json {
                    terminal.answer(true, &stories, "")?;
                }
                return Err(cluster.missing("pipeline".into()));
            }
            let text = stories.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            terminal.answer(*json, &stories, &text)?;
            let is_well = found.unread.is_empty() && stories.iter().all(|story| story.ready);
            Ok(if is_well { EXIT_WELL } else { EXIT_NOT_WELL })
        }
        Command::Lag(named) => {
            let pipeline = cluster.pipeline(&named.name).await?;
            let topics = pipeline.status.as_ref().map_or(&[][..], |status| &status.topics);
            let lag = lag::PipelineLag::of(topics, &cluster.metrics(&pipeline).await?);
            terminal.answer(named.json, &lag, &lag.to_string())?;
            Ok(if lag.is_whole() { EXIT_WELL } else { EXIT_NOT_WELL })
        }
        Command::Spool(named) => {
            let pipeline = cluster.pipeline(&named.name).await?;
            let spools = spool::Spools::of(&cluster.metrics(&pipeline).await?);
            terminal.answer(named.json, &spools, &spools.to_string())?;
            Ok(if spools.is_whole() { EXIT_WELL } else { EXIT_NOT_WELL })
        }
        Command::Drain(asked) => drain::run(&cluster, asked, terminal).await,
        Command::Audit(asked) => audit::run(&cluster, asked, terminal).await,
        Command::DeadLetter(asked) => dead_letter::run(&cluster, asked, terminal).await,
        Command::Plan(_) => Ok(EXIT_USAGE),
    }
}
