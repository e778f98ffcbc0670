//! The producer of the edge: messages for one topic, each answered once all in-sync replicas have it.
//!
//! Place in the flow: the edge's workers [send](Producer::send) the messages of a request; the request is answered once its
//! [`RequestReceipt`] says that the brokers have all of them.
//!
//! ```text
//!  worker -- Outgoing --> room (bytes) --> librdkafka (idempotent, acks=all, zstd) --> topic
//!    |                                        |
//!    `-- RequestReply (one ticket a message) -'--- acknowledged, or NotStored ---> RequestReceipt --> the client's answer
//! ```
//!
//! | thread | does |
//! | --- | --- |
//! | `io` (a task) | takes acknowledgements and errors when librdkafka signals them |
//! | `upkeep` | gives librdkafka new tokens, replaces a producer after a fatal error, drops producers |
//! | `topic` | asks for the topic's partitions every 10 s, each second while no broker answers, and more often while a producer waits for its id; for the largest batch every hour and after a refusal |
//!
//! # Keys and partitions
//!
//! The caller names partition and key of a message. [`partition_of`] is the default partitioner of Kafka's Java client: murmur2 of the key. So
//! equal keys of other programs go to the same partition.
//!
//! # Limits
//!
//! Messages under way have at most [`ProducerLimits::queue_bytes`], each with [`MESSAGE_OVERHEAD_BYTES`]. Above that [`Producer::room`]
//! waits. A message that is not acknowledged within [`ProducerLimits::timeout`] is answered with [`NotStored`], and may be stored later all
//! the same: delivery is at least once.

mod acknowledgements;
mod connection_errors;
mod id_wait;
mod murmur2;
mod not_stored;
mod produce;
mod producer_id;
mod reply;
mod sender;
mod settings;
mod signal;
mod size_limits;
mod topic_watch;
mod upkeep;

pub use murmur2::partition_of;
pub use not_stored::NotStored;
pub use reply::{RequestReceipt, RequestReply, request};
pub use sender::{Outgoing, Producer, ProducerLimits, Room, StartError};
pub use size_limits::{BATCH_OVERHEAD_BYTES, SizeLimits, TOPIC_BYTES_DEFAULT};

/// Bytes that a message takes beside key and value, at most: librdkafka's own structure, and its ticket. Chosen: 300 bytes, rounded up.
pub const MESSAGE_OVERHEAD_BYTES: usize = 512;
