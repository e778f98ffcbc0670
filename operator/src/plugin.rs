//! `kubectl sluice`: pipelines as a person at a terminal wants to see them, and what such a person may ask of gateways.
//!
//! Place in the flow: beside the operator, with the rights of whoever runs it; the operator need not run. Asks the API server, and
//! gateways through its pod proxy. Texts are made from what was read by functions that read nothing (`status`, `lag`, `spool`).
//! Changes nothing, but for `drain` and for what `dead-letter replay` does. Limits: [`cluster`]'s.

pub mod args;
pub mod cluster;
mod dead_letter;
mod drain;
mod lag;
pub mod program;
mod spool;
mod status;
mod table;

pub use cluster::{Cluster, Error, Listed};

use args::{Command, PluginArgs};
use serde::Serialize;
use std::io::Write;

/// Exit status when all was done, and all is well.
pub const EXIT_WELL: u8 = 0;
/// Exit status when something is not as it should be: a pipeline that is not ready, a gateway that gives no answer or holds
/// something still.
pub const EXIT_NOT_WELL: u8 = 1;
/// Exit status for a command line or a pipeline that is wrong (`EX_USAGE` of sysexits.h).
pub const EXIT_USAGE: u8 = 64;
/// Exit status for a pipeline, a pod or a file that there is not (`EX_NOINPUT` of sysexits.h).
pub const EXIT_MISSING: u8 = 66;
/// Exit status for a cluster that cannot be reached, or refuses (`EX_UNAVAILABLE` of sysexits.h).
pub const EXIT_UNAVAILABLE: u8 = 69;

/// Where texts go: answers, and what is told beside them.
pub struct Terminal<'a> {
    /// Answers, and nothing else.
    pub out: &'a mut dyn Write,
    /// Progress, and what went wrong.
    pub told: &'a mut dyn Write,
}

impl Terminal<'_> {
    /// An answer as a text, or as JSON.
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

/// Does what was asked for; gives the exit status. [`Command::Plan`] needs no cluster and is not for here.
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
        Command::DeadLetter(asked) => dead_letter::run(&cluster, asked, terminal).await,
        Command::Plan(_) => Ok(EXIT_USAGE),
    }
}
