//! What every room uses: librdkafka's settings with TLS and SASL, the clock, the cluster's id, how a thread is woken, and how often a log line is
//! repeated.

pub mod clock;
pub mod cluster;
pub mod login;
pub mod refusal;
pub mod security;
pub mod settings;
pub mod throttle;
pub mod wake;
