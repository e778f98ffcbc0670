//! The queue volume of a gateway.
//!
//! A gateway claims its volume when it starts: it must be there, writable by this user, and used by nobody else. A volume
//! that cannot be used stops the gateway before it reads its first message, not when ClickHouse is away for the first
//! time.
//!
//! Blocks are not spooled yet; what stands here is the volume itself: its lock, its identity and its size.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod identity;
mod volume;

pub use identity::Identity;
pub use volume::{Error, Space, Volume};
