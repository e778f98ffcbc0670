//! Rulecheck, compiled from its Go module: Prometheus's own parsers and engine for rules, their unit tests and queries.
//!
//! It is not part of the local stack: `cargo verify` compiles it when it is missing from the cache (102 CPU-seconds
//! with nothing in Go's build cache), and runs it without any server.

use std::path::PathBuf;

use crate::gomodule::GoModule;

/// The program, compiled if it is not in the cache.
pub fn path() -> anyhow::Result<PathBuf> {
    let files = &["go.mod", "go.sum", "main.go", "queries.go", "unittest.go"];
    GoModule::named("rulecheck", ".", files).program()
}
