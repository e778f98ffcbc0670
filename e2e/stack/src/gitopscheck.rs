//! Gitopscheck, compiled from its Go module: Argo CD's own Lua, differences and syncs, and kstatus.
//!
//! It is not part of the local stack: `cargo verify` compiles it when it is missing from the cache (160 CPU-seconds once Go has
//! compiled its own library).

use std::path::PathBuf;

use crate::gomodule::GoModule;
use crate::paths::Paths;

/// The program, compiled if it is not in the cache.
pub fn path() -> anyhow::Result<PathBuf> {
    let module = GoModule {
        name: "gitopscheck",
        folder: "gitopscheck",
        files: &[
            "go.mod",
            "go.sum",
            "main.go",
            "settings.go",
            "health.go",
            "actions.go",
            "difference.go",
            "sync.go",
            "ignored.go",
        ],
        package: ".",
        link_flags: String::new(),
        aliases: &[],
    };
    Ok(module.build(&Paths::from_environment()?)?.join("gitopscheck"))
}
