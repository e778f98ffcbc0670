//! The Sluice operator: keeps gateways in line with `TracePipeline` objects. This file starts and stops; the story is in
//! `run.rs` and `reconcile.rs`.

use anyhow::Context;
use clap::error::ErrorKind;
use sluice_operator::{
    args::{Args, Invocation, LogFormat, PlanArgs},
    plan_command::{Assumed, outline, violations_json},
    run::{Ending, run},
};
use sluice_plan::Server;
use std::{
    io::{Read, Write},
    process::ExitCode,
};
use tracing::error;
use tracing_subscriber::{EnvFilter, filter::ParseError};

/// Exit status for arguments that cannot be right (`EX_USAGE` of sysexits.h).
const EXIT_USAGE: u8 = 64;

/// Exit status for a file that cannot be read (`EX_NOINPUT` of sysexits.h).
const EXIT_NO_INPUT: u8 = 66;

fn main() -> ExitCode {
    let args = match Invocation::try_parse_from(std::env::args_os()) {
        Ok(Invocation::Run(args)) => args,
        Ok(Invocation::Plan(args)) => return plan(&args),
        Err(error) => return usage(&error),
    };
    if let Err(error) = start_log(&args) {
        let error = clap::Error::raw(ErrorKind::ValueValidation, format!("--log-level: {error}\n"));
        return usage(&error);
    }
    let ended = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")
        .and_then(|runtime| {
            let ended = runtime.block_on(run(&args));
            // Questions to a Kafka that is away may still wait on their threads; nobody reads their answers any more.
            runtime.shutdown_background();
            Ok(ended?)
        });
    match ended {
        Ok(Ending::Asked) => ExitCode::SUCCESS,
        Ok(Ending::LeaseLost(reason)) => {
            error!(%reason, "no longer leading: ending, so that only one operator works");
            ExitCode::FAILURE
        }
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Help and version are answers, everything else is a mistake.
fn usage(error: &clap::Error) -> ExitCode {
    // Where nobody reads the text there is nobody to tell either.
    error.print().ok();
    if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
}

/// Prints a plan to standard output, or what is wrong: for people on standard error, for programs as JSON on standard output.
fn plan(args: &PlanArgs) -> ExitCode {
    let text = match read(args) {
        Ok(text) => text,
        Err(error) => {
            let told = writeln!(std::io::stderr(), "cannot read {}: {error}", args.file.display());
            return if told.is_ok() { ExitCode::from(EXIT_NO_INPUT) } else { ExitCode::FAILURE };
        }
    };
    let server = args.clickhouse_memory.zip(args.clickhouse_cores);
    let assumed = Assumed {
        partitions: args.partitions,
        server: server.map(|(gib, cores)| Server { memory_bytes: u64::from(gib) << 30, cores }),
        gateway_image: args.gateway_image.clone(),
    };
    let planned = outline(&text, &assumed);
    let is_valid = planned.is_ok();
    let written = match planned {
        Ok(outline) if args.json => print(serde_json::to_string(&outline)),
        Ok(outline) => print(outline.to_yaml()),
        Err(found) if args.json => writeln!(std::io::stdout(), "{}", violations_json(&found)),
        Err(found) => writeln!(std::io::stderr(), "{found}"),
    };
    match (written, is_valid) {
        (Err(_), _) => ExitCode::FAILURE,
        (Ok(()), true) => ExitCode::SUCCESS,
        (Ok(()), false) => ExitCode::from(EXIT_USAGE),
    }
}

fn read(args: &PlanArgs) -> std::io::Result<String> {
    if args.file.as_os_str() != "-" {
        return std::fs::read_to_string(&args.file);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map(|_| text)
}

fn print<E: std::error::Error + Send + Sync + 'static>(text: Result<String, E>) -> std::io::Result<()> {
    let text = text.map_err(std::io::Error::other)?;
    writeln!(std::io::stdout(), "{}", text.trim_end())
}

fn start_log(args: &Args) -> Result<(), ParseError> {
    // It logs every failed attempt as an error; what fails is told by whoever asked, once.
    let filter =
        EnvFilter::builder().parse(&args.log_level)?.add_directive("kube_client::client=off".parse()?);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
        }
        LogFormat::Text => log.init(),
    }
    Ok(())
}
