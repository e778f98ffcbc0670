//! The queue on a model disk beside a naive one, and on the real file system.

#![allow(clippy::unwrap_used, reason = "tests may unwrap; the lint knows test functions, not their helpers")]

mod course;
mod crash;
mod damage;
mod failures;
mod log_crash;
mod log_damage;
mod log_faults;
mod log_in_doubt;
mod log_model;
mod log_packed;
mod log_sealed;
mod model_disk;
mod naive;
mod random;
mod real;
mod revision;
mod whole_file;
