//! Starts `cargo demo`: checks the machine, builds the missing parts of the stack in parallel with the demo's programs, and then executes the
//! demo itself (`e2e/demo`).

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::Args;
use e2e_stack::paths::Paths;
use e2e_stack::process::interrupt;
use e2e_stack::programs::{self, Form};
use e2e_stack::{requirements, say};

/// The demo's arguments, passed on unchanged.
#[derive(Args, Clone, Debug)]
pub struct DemoWords {
    /// See `cargo demo --help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Options that choose another cluster. With them, no part of the local stack is built.
const OF_ANOTHER_CLUSTER: [&str; 2] = ["--kubeconfig", "--kind"];

/// Prepares and runs the demo, and exits with its code.
pub fn run(DemoWords { words }: &DemoWords) -> anyhow::Result<ExitCode> {
    let is_asked = |option: &str| {
        words.iter().any(|word| word.to_str().is_some_and(|word| word.split('=').next() == Some(option)))
    };
    let needs_stack = !OF_ANOTHER_CLUSTER.into_iter().any(is_asked) && !is_asked("--help") && !is_asked("-h");
    interrupt::watch()?;
    let paths = Paths::from_environment()?;
    if needs_stack {
        requirements::ensure(&paths)?;
        say::progress("demo", "builds what is missing, then: stack, operator, pipeline, spans, a query");
        e2e_stack::build(&paths, Form::Checked)?;
    } else {
        requirements::ensure_compiler()?;
        programs::compile(Form::Checked)?;
    }
    interrupt::check()?;
    let program = programs::DEMO.file(Form::Checked);
    // `exec` replaces this process: Ctrl-C reaches the demo, and its exit code is that of this process.
    let failure = Command::new(&program).args(words).envs([say::clock_for_child()]).exec();
    Err(failure).with_context(|| format!("start {}", program.display()))
}
