//! Rules for all of the source.

#![allow(clippy::unwrap_used, reason = "tests may unwrap; the lint knows test functions, not their helpers")]

mod links;
mod rooms;
