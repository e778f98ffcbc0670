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
pub mod exit_codes;
mod kubeconfig;
mod lag;
pub mod plan;
mod request_error;
mod spool;
mod status;
mod table;
pub mod terminal;

pub use audit::run_until as audit_until;
pub use cluster::{Cluster, Error, Listed};
pub use terminal::Terminal;

use args::{Command, PluginArgs};
use exit_codes::{EXIT_NOT_WELL, EXIT_USAGE, EXIT_WELL};
use sluice_crds::TracePipeline;
use spool::{Volumes, blocks::QueuedBlocks, logs::Logs};

/// Runs a command and returns the exit status. [`Command::Plan`] can do without a cluster: `main.rs` runs it.
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
            let mut stories: Vec<_> = found.pipelines.iter().map(status::Story::of).collect();
            // The gateways of one pipeline are asked, not those of a whole namespace.
            if name.is_some()
                && let ([pipeline], Some(story)) = (&found.pipelines[..], stories.pop())
            {
                stories.push(with_services(story, pipeline, &cluster, terminal).await?);
            }
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
            let said = cluster.metrics(&pipeline).await?;
            let lag = match &pipeline.spec.source.otlp {
                Some(_) => lag::PipelineLag::of_logs(&said),
                None => lag::PipelineLag::of(topics, &said),
            };
            terminal.answer(named.json, &lag, &lag.to_string())?;
            Ok(if lag.is_whole() { EXIT_WELL } else { EXIT_NOT_WELL })
        }
        Command::Spool(named) => {
            let pipeline = cluster.pipeline(&named.name).await?;
            let said = cluster.metrics(&pipeline).await?;
            let is_whole = if pipeline.spec.source.otlp.is_some() {
                let volumes = Volumes::<Logs>::of(&said);
                terminal.answer(named.json, &volumes, &volumes.to_string())?;
                volumes.is_whole()
            } else {
                let spools = Volumes::<QueuedBlocks>::of(&said);
                terminal.answer(named.json, &spools, &spools.to_string())?;
                spools.is_whole()
            };
            if let Some(left_out) = spool::left_out(pipeline.status.as_ref()) {
                terminal.tell(&left_out)?;
            }
            Ok(if is_whole { EXIT_WELL } else { EXIT_NOT_WELL })
        }
        Command::Drain(asked) => drain::run(&cluster, asked, terminal).await,
        Command::Audit(asked) => audit::run(&cluster, asked, terminal).await,
        Command::DeadLetter(asked) => dead_letter::run(&cluster, asked, terminal).await,
        Command::Plan(_) => Ok(EXIT_USAGE),
    }
}

/// The summary with the services that send most. It does not need gateways, so it is shown without them if they cannot be found.
async fn with_services(
    story: status::Story,
    pipeline: &TracePipeline,
    cluster: &Cluster,
    terminal: &mut Terminal<'_>,
) -> Result<status::Story, Error> {
    match cluster.states(pipeline).await {
        Ok(said) => Ok(story.with_services(&said)),
        Err(error) => {
            terminal.tell(&format!("which services send most is not known: {error}"))?;
            Ok(story)
        }
    }
}
