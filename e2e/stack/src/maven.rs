//! Maven, which fetches jars.

use std::path::Path;
use std::process::Command;

use crate::process::command;

/// The command that copies the dependencies of a pom to a folder.
pub fn jars(pom: &Path, folder: &Path) -> Command {
    let mut maven = command("mvn");
    maven.args(["--batch-mode", "--no-transfer-progress", "dependency:copy-dependencies"]);
    maven.arg(format!("-DoutputDirectory={}", folder.display())).arg("--file").arg(pom);
    maven
}
