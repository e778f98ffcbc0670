//! The Sluice operator: runs the gateways of `TracePipeline` objects. This file only starts and stops the process; the work begins in
//! `run.rs` and `reconcile.rs`.

use anyhow::Context;
use clap::error::ErrorKind;
use sluice_operator::{
    args::{Args, Invocation, LogFormat},
    read::kafka::clients::blocking_threads_max,
    ready_command,
    run::{Ending, run},
};
use std::{io::IsTerminal as _, process::ExitCode};
use tracing::error;
use tracing_subscriber::{EnvFilter, filter::ParseError};

/// Exit status for invalid arguments (`EX_USAGE` of sysexits.h).
const EXIT_USAGE: u8 = 64;

fn main() -> ExitCode {
    // Must come first. Otherwise librdkafka makes OpenSSL free itself at exit, while librdkafka's threads still shake hands with brokers: a
    // third of such exits ended with SIGSEGV. This call installs no exit handler (OPENSSL_INIT_NO_ATEXIT).
    openssl_sys::init();
    let args = match Invocation::try_parse_from(std::env::args_os()) {
        Ok(Invocation::Run(args)) => *args,
        Ok(Invocation::Ready(args)) => return ready_command::run(&args),
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
            // Requests to an unreachable Kafka may still block their threads. Do not wait for them: their answers are not needed.
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

/// Prints help, version or an error. Help and version exit with 0, errors with [`EXIT_USAGE`].
fn usage(error: &clap::Error) -> ExitCode {
    // If the text cannot be written, neither can an error about it.
    error.print().ok();
    if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
}

fn start_log(args: &Args) -> Result<(), ParseError> {
    let filter = log_filter(&args.log_level)?;
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

/// kube's client logs each failed attempt as an error, and its watcher each refused attempt as a warning, about one a second for each kind. The
/// callers log a failure once.
fn log_filter(level: &str) -> Result<EnvFilter, ParseError> {
    let filter = EnvFilter::builder().parse(level)?;
    Ok(filter
        .add_directive("kube_client::client=off".parse()?)
        .add_directive("kube_runtime::watcher=off".parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::{Level, enabled, subscriber::with_default};

    #[test]
    fn lines_of_the_client_library_that_the_operator_has_words_for_are_left_out() {
        for level in ["info", "trace"] {
            let log = tracing_subscriber::fmt().with_env_filter(log_filter(level).unwrap()).finish();
            with_default(log, || {
                assert!(enabled!(target: "sluice_operator", Level::INFO), "{level}");
                assert!(!enabled!(target: "kube_client::client", Level::ERROR), "{level}");
                assert!(!enabled!(target: "kube_runtime::watcher", Level::WARN), "{level}");
            });
        }
    }
}
