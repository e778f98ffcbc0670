//! The Sluice operator: keeps gateways in line with `TracePipeline` objects. This file starts and stops; the story is in
//! `run.rs` and `reconcile.rs`.

use anyhow::Context;
use clap::error::ErrorKind;
use sluice_operator::{
    args::{Args, Invocation, LogFormat},
    kafka::clients::blocking_threads_max,
    plan_command,
    plugin::program,
    run::{Ending, run},
};
use std::{io::IsTerminal as _, process::ExitCode};
use tracing::error;
use tracing_subscriber::{EnvFilter, filter::ParseError};

/// Exit status for arguments that cannot be right (`EX_USAGE` of sysexits.h).
const EXIT_USAGE: u8 = 64;

fn main() -> ExitCode {
    // First of all, and for good: librdkafka would have OpenSSL freed at the process's exit, while its threads still shake hands
    // with brokers; a third of such ends were SIGSEGV. This asks for no exit handler (OPENSSL_INIT_NO_ATEXIT).
    openssl_sys::init();
    let words: Vec<_> = std::env::args_os().collect();
    if program::is_called(&words) {
        return program::start(&words);
    }
    let args = match Invocation::try_parse_from(words) {
        Ok(Invocation::Run(args)) => args,
        Ok(Invocation::Plan(args)) => return plan_command::run(&args, None),
        Err(error) => return usage(&error),
    };
    if let Err(error) = start_log(&args) {
        let error = clap::Error::raw(ErrorKind::ValueValidation, format!("--log-level: {error}\n"));
        return usage(&error);
    }
    let ended = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(blocking_threads_max(args.kafka_clients_max))
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
            error!(%reason, "lost the Lease: the operator exits, so that only one leads");
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

fn start_log(args: &Args) -> Result<(), ParseError> {
    // It logs every failed attempt as an error; what fails is told by whoever asked, once.
    let filter =
        EnvFilter::builder().parse(&args.log_level)?.add_directive("kube_client::client=off".parse()?);
    let is_seen = std::io::stderr().is_terminal();
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_seen);
    match args.log_format {
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
        }
        LogFormat::Text => log.init(),
    }
    Ok(())
}
