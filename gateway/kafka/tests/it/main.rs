//! Tests that need a process of their own: librdkafka has one limit for all consumers.

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod batch_limit;
mod batch_zstd;
mod own_fence;
