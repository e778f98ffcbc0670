//! The queue volume of a gateway.
//!
//! A gateway claims its volume when it starts. The volume must exist, be writable by this user, and be used by no other process.
//! Otherwise the gateway ends before it reads its first message, not at ClickHouse's first outage.
//!
//! The volume contains the queue: finished blocks, stored while ClickHouse is away or slower than the source. `format` describes the
//! files; [`Queue`] lists the guarantees.
//!
//! ```text
//!  files <--- segment <--- queue ---> body (read by the sender)
//!               |            ^
//!             record       open, recover: what an earlier run left
//!               |
//!             format
//! ```
//!
//! A gateway that accepts OTLP itself keeps requests in a [`log`] there, which has the same segments.
//!
//! The caller may store small files of its own beside the queue's, with other names. Each is whole or absent ([`whole_file`]).

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

mod body;
mod entry;
mod failure;
mod files;
pub mod format;
mod identity;
pub mod log;
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
pub use files::{Directory, Fatal, FileAt, Files, is_full, is_of_disk};
pub use identity::Identity;
pub use open::OpenError;
pub use queue::{AppendError, Full, Held, Options, Queue, ReadError, Unfit, Usage};
pub use record::BlockHead;
pub use recovered::{Cut, Lost, Recovered, SetAside};
pub use volume::{Error, Space, Volume};
