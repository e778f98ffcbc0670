//! The dead-letter topic: messages and rows that cannot be delivered, with their origin and the reason.
//!
//! Place in the flow: workers (malformed messages) and delivery (rows that ClickHouse refuses) [send](DeadLetters::send) a [`Letter`]. A
//! range settles only once the [`Receipt`] says that the brokers have it. Owner: a thread of its own, which creates a producer for the
//! first letter.
//!
//! ```text
//!  worker, delivery -- Letter --> queue (bounded) -> thread: topic there? -> producer (acks=all) -> <topic>.dead-letter
//!         ^                                            |                        |
//!         `------------------ Receipt <----------------'------------------------'
//! ```
//!
//! # The format, version 1
//!
//! A letter is a Kafka message. Key and headers are those of the original message; the value is described by [`LetterValue`]. Further
//! text headers describe the original:
//!
//! | header | value |
//! | --- | --- |
//! | `sluice.dev/letter` | the version of this format: `1`. A message without it is no letter |
//! | `sluice.dev/topic` | the topic that the original was read from |
//! | `sluice.dev/partition` | its partition |
//! | `sluice.dev/offset` | its offset |
//! | `sluice.dev/row` | which span of the message, from 0 in the order of the walk; absent for a whole message |
//! | `sluice.dev/reason` | why, from a closed list: `malformed`, `row_refused`, … |
//! | `sluice.dev/text` | why, in words |
//! | `sluice.dev/code` | ClickHouse's exception code; absent without one |
//! | `sluice.dev/gateway-version` | the program that wrote the letter |
//! | `sluice.dev/timestamp` | the original's timestamp, ms since 1970; absent without one |
//! | `sluice.dev/value` | what the value is: `message`, `span`, `null`, `left-out`, `gone` |
//! | `sluice.dev/value-bytes` | size of what the value is or would be; absent for `null` and `gone` |
//! | `sluice.dev/format` | how the value is encoded: `OtlpProto` or `OtlpJson`. A span, and a message from which rules have dropped attributes, is always `OtlpProto` |
//! | `sluice.dev/headers` | `left-out` when key and headers of the original had to be left out, too; else absent |
//!
//! A replayed message has one header more, `sluice.dev/replayed`: the letter's topic, partition and offset. It is carried along
//! when such a message becomes a letter again; all other headers of this list are not.
//!
//! The letter's own timestamp is the time of writing: with the original's timestamp, the topic's retention might delete the letter at
//! once.
//!
//! The same letter may exist twice, after a crash between the brokers' answer and the commit of the range. Topic, partition, offset and
//! row ([`Coordinates`]) are then equal.
//!
//! # Without Kafka
//!
//! With `source.otlp`, letters go to a log on the queue volume ([`LetterStore`]): the same key, headers and value, as [`read_stored`] reads them.
//! If the log has no room, the letter is refused, as by a topic that takes none.
//!
//! # Limits
//!
//! [`LETTER_BYTES_MAX`] a letter, [`LETTERS_MAX`] letters and [`LETTER_QUEUE_BYTES`] under way. A value that is too large for that or for
//! the topic is left out, and so is one that must not be in letters (`attributes` of the config); the coordinates still point to the
//! message in Kafka.

mod answers;
mod headers;
mod letter;
mod log_sender;
mod outcome;
mod queue;
mod replay;
mod sender;
mod settings;
mod stored;
mod topic;

pub use answers::Answers;
pub use headers::{Coordinates, Head, NotALetter, REPLAYED, is_own};
pub use letter::{Letter, LetterValue};
pub use log_sender::{LetterStore, NoRoom};
pub use outcome::{Delivered, Refused};
pub use queue::{DeadLetters, Full, Receipt, StartError};
pub use replay::{REPLAY_TIMEOUT, ReplayError, Replayed, Replayer};
pub use stored::{STORED_TOPIC, read_stored};
pub use topic::TOPIC_PARTITIONS_MAX;

pub use sluice_gateway_config::budget::LETTER_QUEUE_BYTES;

/// Maximum number of letters under way. Chosen: a letter without a value takes about 1 KiB, here and in librdkafka.
pub const LETTERS_MAX: usize = 512;

/// Maximum size of a letter. Chosen: a little above Kafka's default limit of a topic, 1 MiB, so that in most clusters the topic's limit
/// decides.
pub const LETTER_BYTES_MAX: u64 = (1 << 20) + (64 << 10);

const _: () = assert!(LETTER_BYTES_MAX <= LETTER_QUEUE_BYTES, "the largest letter must fit an empty queue");

/// The dead-letter topic of a source topic, unless the config names another one.
pub fn default_topic(source: &str) -> String {
    format!("{source}{}", sluice_gateway_config::DEAD_LETTER_SUFFIX)
}
