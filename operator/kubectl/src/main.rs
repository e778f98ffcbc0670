//! kubectl runs this program as `kubectl sluice`. This file only starts and stops it; the work begins in `lib.rs`.

use clap::Parser as _;
use sluice_kubectl::{
    Terminal,
    args::{Command, PluginArgs},
    exit_codes::{EXIT_UNAVAILABLE, EXIT_USAGE},
    plan, run,
};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

fn main() -> ExitCode {
    let args = match PluginArgs::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // If the text cannot be written, neither can an error about it.
            error.print().ok();
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}"), EXIT_UNAVAILABLE),
    };
    if let Command::Plan(asked) = &args.command {
        let (context, namespace) = (args.context.as_deref(), args.namespace.as_deref());
        return runtime.block_on(plan::run(asked, context, namespace));
    }
    let (mut out, mut told) = (io::stdout(), io::stderr());
    let mut terminal = Terminal { out: &mut out, told: &mut told };
    match runtime.block_on(run(&args, &mut terminal)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(&error.to_string(), error.exit_code()),
    }
}

fn failed(message: &str, code: u8) -> ExitCode {
    // As above.
    writeln!(io::stderr(), "{message}").ok();
    ExitCode::from(code)
}
