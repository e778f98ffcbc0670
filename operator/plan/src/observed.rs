//! Facts that are read before anything is decided, one file per source of facts.
//!
//! The operator reads objects and asks Kafka; here those answers are turned into the few facts that a decision needs.

mod apply_failure;
mod edge;
pub(crate) mod field_managers;
mod full_volume;
mod gateway;
mod holder;
pub mod inserts;
mod job;
mod memory;
pub mod message_window;
mod messages;
mod missing_table;
pub(crate) mod proved_template;
mod readers;
mod schema;
mod secret;
mod servers;
mod silent;
mod source;
mod storage;
mod termination;
mod transactions;
mod unconnected;
mod unusable_table;
mod volumes;
mod workload;

pub use apply_failure::ReconcileFailure;
pub use edge::EdgeSeen;
pub use field_managers::scaled_by_others;
pub use full_volume::{FULL_SECONDS, FullVolumeSeen};
pub use gateway::GatewaySeen;
pub use holder::{Emptied, HolderSeen};
pub use memory::{MemorySeen, Wait};
pub use messages::{MessagesSeen, Share, Unreadable};
pub(crate) use missing_table::GATEWAYS_MISS;
pub use missing_table::MissingTable;
pub use readers::{UNREAD_NAMED_MAX, UNREAD_SECONDS, UnreadSeen};
pub(crate) use schema::is_said_by_the_job;
pub use schema::{SaidBy, SchemaFailed, SchemaFailure, SchemaSeen};
pub use secret::{KeptVersion, KeptVersions, SecretSeen, Secrets};
pub use servers::ServersSeen;
pub use silent::{SILENT_SECONDS, Silence, SilentSeen, hanging_words};
pub(crate) use silent::{hanging_cause, hanging_remedy};
pub use source::{Partitions, SourceFailure, TopicSeen};
pub use storage::StorageClassSeen;
pub(crate) use termination::EXIT_KILLED;
pub use termination::Termination;
pub use transactions::{OPEN_SECONDS_MAX, OpenTransaction, OpenTransactions};
pub use unconnected::{UNCONNECTED_SECONDS, UnconnectedSeen};
pub(crate) use unusable_table::{GATEWAYS_WAIT, OF_SINK};
pub use unusable_table::{UnusableTable, table_error};
pub use volumes::{ClaimSeen, DrainJobSeen, DrainJobState, TemplateSeen, VolumesSeen};
pub use workload::{FailedSeen, GoingSeen, PodSeen, ProvedSeen, WorkloadSeen};
