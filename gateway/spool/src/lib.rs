//! The queue volume of a gateway.
//!
//! A gateway claims its volume when it starts: it must be there, writable by this user, and used by nobody else. A volume
//! that cannot be used stops the gateway before it reads its first message, not when ClickHouse is away for the first
//! time.
//!
//! On the volume is the queue: finished blocks, kept while ClickHouse is slower than the source or away. Its format is
//! written down in `format`; [`Queue`] says what it promises.
//!
//! ```text
//!  files <--- segment <--- queue ---> body (read by whoever sends it)
//!               |            ^
//!             record       open, recover: what the run before has left
//!               |
//!             format
//! ```
//!
//! Beside the queue's files whoever has the volume may keep small ones of its own, by other names: each is whole or absent ([`whole_file`]).

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod body;
mod entry;
mod files;
pub mod format;
mod identity;
mod open;
mod queue;
mod record;
mod recover;
mod recovered;
mod segment;
mod volume;
pub mod whole_file;

pub use body::{Body, BodyError, Damage};
pub use entry::{BlockId, Coordinates, PartitionName, Sent};
pub use files::{Directory, Fatal, FileAt, Files, is_full};
pub use identity::Identity;
pub use open::OpenError;
pub use queue::{AppendError, Full, Held, Options, Queue, ReadError, Unfit, Usage};
pub use record::BlockHead;
pub use recovered::{Cut, Lost, Recovered, SetAside};
pub use volume::{Error, Space, Volume};
