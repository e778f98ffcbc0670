//! What one gateway says of itself at `/state`, as facts.

pub mod brokers;
pub mod counted;
pub mod delivery;
pub mod gateway;
pub mod messages;
pub mod report;
pub mod transactions;
