//! Processes that outlive the command that started them ([`Daemon`]), processes that a command waits for ([`Job`]), and Ctrl-C
//! ([`interrupt`]). Everything here blocks its thread: within a runtime, call it from a blocking task. Any thread may call it.
//!
//! A process is always addressed by its id together with its start time, never by name: the kernel may give its id to a later process.

pub mod daemon;
pub mod identity;
pub mod interrupt;
pub mod job;
pub mod port;
pub mod usage;
pub mod wait;

pub use daemon::Daemon;
pub use identity::Process;
pub use job::Job;
pub use port::Port;
pub use rustix::process::Signal;

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// Folders of administrators' programs; the `PATH` of an ordinary user often lacks them.
const ADMINISTRATOR_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// `PATH` with the administrator's folders added.
pub fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(ADMINISTRATOR_PATH);
    path
}

/// The first executable file called `name` on [`search_path`].
pub fn find_program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A command that finds its program on [`search_path`].
pub fn command(program: impl AsRef<Path>) -> Command {
    let program = program.as_ref();
    let found = program.to_str().filter(|name| !name.contains('/')).and_then(find_program);
    let mut command = Command::new(found.as_deref().unwrap_or(program));
    command.env("PATH", search_path());
    command
}

/// A command that runs `inner`, with its environment, by the words of `outer`.
pub fn run_by(mut outer: Command, inner: &Command) -> Command {
    outer.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Lets a command write its output to a file, which is replaced, and read nothing.
pub fn log_to<'a>(what: &'a mut Command, log: &Path) -> anyhow::Result<&'a mut Command> {
    let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let file_too = file.try_clone().with_context(|| format!("open {} twice", log.display()))?;
    Ok(what.stdin(Stdio::null()).stdout(file).stderr(file_too))
}

/// Runs a short command to its end and returns what it printed. For commands that end within seconds; use a [`Job`] for longer ones. If it
/// ends with another code than 0, the error contains its last output.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let name =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().with_context(|| format!("start {name}"))?;
    if !done.status.success() {
        let arguments: Vec<_> = command.get_args().map(|text| text.to_string_lossy()).collect();
        let said =
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        bail!("{name} {} ended with {}: {}", arguments.join(" "), done.status, said.trim());
    }
    String::from_utf8(done.stdout).with_context(|| format!("output of {name} is not UTF-8"))
}
