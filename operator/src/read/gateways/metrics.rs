//! What one gateway exports at `/metrics`, as facts.

pub mod counted;
pub mod delivery;
pub mod exposition;
pub mod gateway;
pub mod messages;
pub mod report;
pub mod transactions;
