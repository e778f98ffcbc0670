//! What every room uses: librdkafka's settings with TLS and SASL, the clock, the cluster's id, and how a thread is woken.

pub mod clock;
pub mod cluster;
pub mod refusal;
pub mod security;
pub mod settings;
pub mod wake;
