//! What only a real Kafka can show of this package. The gateway's own tests cover the rest.
//!
//! Run by `cargo verify` once its Kafka is up, or by hand:
//!
//! ```text
//! SLUICE_KAFKA=127.0.0.1:29092 cargo test -p sluice-kafka --test live
//! ```

#![allow(clippy::unwrap_used, reason = "tests may unwrap")]

mod headers;
