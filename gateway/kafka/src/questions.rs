//! What brokers are asked beside the consumer group: topic ids and configs, retention, the age of a message, and what `check` and `audit` ask.
//!
//! | file | asked by | question |
//! | --- | --- | --- |
//! | [`admin_call`] | the three below | one request of librdkafka's admin interface, and its answer |
//! | [`topic_descriptions`], [`first_seen`] | the commit thread | which id and partitions a topic has, now and at the start |
//! | [`new_topic`] | the thread of dead letters | to create the dead-letter topic |
//! | [`topic_limits`] | a thread of its own | retention and the largest batch of each topic |
//! | [`past`], [`retention`] | the poll thread | how old a message is, and when Kafka deletes it |
//! | [`oversize`] | the poll thread | whether a batch is larger than what is received |
//! | [`probe`] | `check` | whether brokers can be reached, and what topics take |
//! | [`topic_reader`] | `audit`, `drain`, `dead-letter` | messages and committed offsets, without joining the group |

pub mod admin_call;
pub mod first_seen;
pub mod new_topic;
pub mod oversize;
pub mod past;
pub mod probe;
pub mod retention;
pub mod topic_descriptions;
pub mod topic_limits;
pub mod topic_reader;
