//! Gitopscheck, compiled from its Go module: Argo CD's own Lua, differences and syncs, and kstatus.
//!
//! It is not part of the local stack: `cargo verify` compiles it when it is missing from the cache (160 CPU-seconds once Go has
//! compiled its own library).

use std::path::PathBuf;

use crate::gomodule::GoModule;

const FILES: &[&str] = &[
    "go.mod",
    "go.sum",
    "main.go",
    "settings.go",
    "health.go",
    "actions.go",
    "difference.go",
    "sync.go",
    "ignored.go",
];

/// The program, compiled if it is not in the cache.
pub fn path() -> anyhow::Result<PathBuf> {
    GoModule::named("gitopscheck", ".", FILES).program()
}
