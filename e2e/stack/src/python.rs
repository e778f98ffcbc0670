//! Python and its package installer, for tests with clients in Python.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::process::{command, output};

/// The version of this machine's Python, as a part of a folder's name: packages are compiled for one version of Python. `what` needs it.
pub fn version(what: &str) -> anyhow::Result<String> {
    let print = "import sys; print('%d.%d' % sys.version_info[:2])";
    let version = output(command("python3").args(["-c", print]))
        .with_context(|| format!("find Python for {what}: apt-get install python3 python3-pip"))?;
    Ok(format!("python{}", version.trim()))
}

/// The command that installs packages into this folder, without compiling any; its last arguments are missing.
pub fn pip(folder: &Path) -> Command {
    let mut pip = command("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    pip.arg("--target").arg(folder);
    pip
}
