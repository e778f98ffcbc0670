//! The ids and partition counts of topics. A topic that is deleted and created again has the same name and another id (KIP-516).
//!
//! Place in the flow: the commit thread asks when a partition starts, and every few seconds for all owned partitions. Owner: the calling
//! thread, which waits for the answer.
//!
//! Why here is unsafe code: the Rust client has no call for librdkafka's `DescribeTopics`; the rest is as in [`crate::questions::admin_call`].
//!
//! Cost: one metadata request to one broker, some 40 bytes a partition.

#![expect(unsafe_code, reason = "the Rust client has no call for DescribeTopics")]

use crate::questions::admin_call::{AdminAnswer, AdminCall, refused, sorted, unexpected};
use rdkafka::{
    bindings as rd,
    client::{Client, ClientContext},
    error::{KafkaResult, RDKafkaErrorCode},
};
use sluice_ranges::TopicId;
use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
    sync::Arc,
    time::Duration,
};

/// The brokers' description of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Its id; none from brokers before 2.8, which have no topic ids.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: usize,
}

/// The description of each topic, by name.
pub type Descriptions = BTreeMap<Arc<str>, KafkaResult<Description>>;

/// Reads the descriptions of these topics; each of them is in the answer. Blocks for up to `timeout` and a second.
///
/// # Errors
/// If no broker answers. A missing topic is an error of its own entry.
pub fn describe<C: ClientContext>(
    client: &Client<C>,
    topics: &[Arc<str>],
    timeout: Duration,
) -> KafkaResult<Descriptions> {
    let names: Vec<CString> = topics.iter().filter_map(|topic| CString::new(&**topic).ok()).collect();
    let asked = Topics::new(&names);
    let operation = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    let answer = AdminCall::new(client, operation, timeout).ask(|options, answers| {
        // SAFETY: client, topics, options and queue live until the call returns, which copies what it needs.
        unsafe { rd::rd_kafka_DescribeTopics(client.native_ptr(), asked.0, options, answers) }
    })?;
    let mut described = descriptions(&answer)?;
    for topic in topics {
        let unknown = || Err(refused(RDKafkaErrorCode::UnknownTopicOrPartition));
        described.entry(topic.clone()).or_insert_with(unknown);
    }
    Ok(described)
}

/// The topics of a request.
struct Topics(*mut rd::rd_kafka_TopicCollection_t);

impl Topics {
    fn new(names: &[CString]) -> Self {
        let mut names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: the names are zero-terminated strings and are copied; the length is their number.
        Self(unsafe { rd::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len()) })
    }
}

impl Drop for Topics {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed only here.
        unsafe { rd::rd_kafka_TopicCollection_destroy(self.0) }
    }
}

fn descriptions(answer: &AdminAnswer<'_>) -> KafkaResult<Descriptions> {
    let mut count = 0;
    // SAFETY: the event is alive. `result` is null if it is of another kind, and is then not used further. The topics live as long as the
    // event, and `count` is their number.
    let described = unsafe {
        let result = rd::rd_kafka_event_DescribeTopics_result(answer.event());
        if result.is_null() {
            return Err(unexpected());
        }
        let topics = rd::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        if count == 0 { &[] } else { std::slice::from_raw_parts(topics, count) }
    };
    Ok(described.iter().map(|topic| description(*topic)).collect())
}

/// One topic of an event, while the event is alive.
fn description(topic: *const rd::rd_kafka_TopicDescription_t) -> (Arc<str>, KafkaResult<Description>) {
    let mut partitions = 0;
    // SAFETY: the topic lives as long as its event, which the caller has; so do its name, a zero-terminated string, and its id. Neither
    // is null; the error may be. Of the partitions only the number is used.
    let (name, error, [most, least]) = unsafe {
        let name = CStr::from_ptr(rd::rd_kafka_TopicDescription_name(topic));
        let error = rd::rd_kafka_error_code(rd::rd_kafka_TopicDescription_error(topic));
        let id = rd::rd_kafka_TopicDescription_topic_id(topic);
        let halves =
            [rd::rd_kafka_Uuid_most_significant_bits(id), rd::rd_kafka_Uuid_least_significant_bits(id)];
        rd::rd_kafka_TopicDescription_partitions(topic, &raw mut partitions);
        (name, error, halves)
    };
    let mut id = [0; 16];
    id[..8].copy_from_slice(&most.to_be_bytes());
    id[8..].copy_from_slice(&least.to_be_bytes());
    let id = Some(id).filter(|id| *id != [0; 16]);
    (name.to_string_lossy().into(), sorted(error).map(|()| Description { id, partitions }))
}
