//! Entry point of the plugin: the operator's program under the file name `kubectl-sluice`, which kubectl runs as `kubectl sluice`. One
//! program for both, so that plugin and operator of an installation have the same version and need one build.

use super::{
    EXIT_UNAVAILABLE, EXIT_USAGE, Terminal,
    args::{Command, PluginArgs},
};
use crate::plan_command;
use clap::Parser as _;
use std::{
    ffi::{OsStr, OsString},
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

/// File name under which the program is the plugin.
pub const NAME: &str = "kubectl-sluice";

/// Whether the program was called as [`NAME`]; `words` is the command line, with the program's name first.
pub fn is_called(words: &[OsString]) -> bool {
    words.first().and_then(|word| Path::new(word).file_name()) == Some(OsStr::new(NAME))
}

/// Runs the command of the command line and returns the exit status that `--help` lists.
pub fn start(words: &[OsString]) -> ExitCode {
    let args = match PluginArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            // If the text cannot be written, neither can an error about it.
            error.print().ok();
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    if let Command::Plan(asked) = &args.command {
        return plan_command::run(asked, args.namespace.as_deref());
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}"), EXIT_UNAVAILABLE),
    };
    let (mut out, mut told) = (io::stdout(), io::stderr());
    let mut terminal = Terminal { out: &mut out, told: &mut told };
    match runtime.block_on(super::run(&args, &mut terminal)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(&error.to_string(), error.exit_code()),
    }
}

fn failed(message: &str, code: u8) -> ExitCode {
    // As above.
    writeln!(io::stderr(), "{message}").ok();
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_decides_wherever_the_program_lies() {
        for (words, expected) in [
            (&["kubectl-sluice", "status"][..], true),
            (&["/usr/local/bin/kubectl-sluice"], true),
            (&["/usr/bin/sluice-operator", "kubectl-sluice"], false),
            (&[], false),
        ] {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            assert_eq!(is_called(&words), expected, "{words:?}");
        }
    }
}
