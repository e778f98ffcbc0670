//! The crane program, compiled from its Go module: it pushes image archives to registries, and is a small registry itself
//! (`crane registry serve`), for tests.

use std::path::PathBuf;

use crate::gomodule::GoModule;

/// The program, compiled if it is not in the cache (34 CPU-seconds with nothing in Go's build cache).
pub fn path() -> anyhow::Result<PathBuf> {
    let package = "github.com/google/go-containerregistry/cmd/crane";
    GoModule::named("crane", package, &["go.mod", "go.sum"]).program()
}
