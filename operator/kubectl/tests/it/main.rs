//! The plugin as a person runs it, against files and against API servers that answer what a test says.

#![allow(clippy::unwrap_used, reason = "tests may unwrap; the lint knows test functions, not their helpers")]

mod admission;
mod api_server;
mod audit;
mod program;
mod restarts;
mod told_once;
