//! Cargo in this workspace, started by a program that cargo itself started.

use std::path::PathBuf;
use std::process::Command;

use crate::paths::workspace;
use crate::process::command;

/// A cargo command with these arguments. It removes the variables that cargo set for this program's package, because the build would read
/// them as its settings.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = command(std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from));
    cargo.current_dir(workspace()).args(arguments);
    for (name, _) in std::env::vars_os() {
        let own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(own) {
            cargo.env_remove(name);
        }
    }
    cargo
}

pub fn target_folder() -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    workspace().join(target)
}
