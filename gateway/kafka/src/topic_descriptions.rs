//! Which topics these are, and how many partitions they have: a topic that is deleted and made again has its name and another id (KIP-516).
//!
//! Place in the flow: the commit thread asks when a partition begins, and every few seconds for all that are owned. Owner: whoever asks; it
//! waits for the answer.
//!
//! Why here is unsafe code: the Rust client has no call for librdkafka's `DescribeTopics`. What is called is librdkafka's public
//! interface (rdkafka.h of 2.12), by the bindings that the Rust client has itself; each object that it gives is owned by a value here, and
//! destroyed with it.
//!
//! Cost: one metadata request to one broker, some 40 bytes a partition.

#![expect(unsafe_code, reason = "the Rust client has no call for DescribeTopics")]

use crate::ranges::TopicId;
use rdkafka::{
    bindings as rd,
    client::{Client, ClientContext},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};
use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
    ptr,
    sync::Arc,
    time::Duration,
};

/// What brokers say of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Its id; none where brokers (before 2.8) give topics none.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: usize,
}

/// What is said of each topic, by its name.
pub type Descriptions = BTreeMap<Arc<str>, KafkaResult<Description>>;

/// Asks what topics these are; each of them is in the answer. Blocks for up to `timeout`.
///
/// # Errors
/// When no broker answers. That a topic is not there is said of the topic.
pub fn describe<C: ClientContext>(
    client: &Client<C>,
    topics: &[Arc<str>],
    timeout: Duration,
) -> KafkaResult<Descriptions> {
    let names: Vec<CString> = topics.iter().filter_map(|topic| CString::new(&**topic).ok()).collect();
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let event = Question::new(client, &names, millis).ask(client, millis)?;
    let mut described = event.descriptions()?;
    for topic in topics {
        let unknown = || Err(refused(RDKafkaErrorCode::UnknownTopicOrPartition));
        described.entry(topic.clone()).or_insert_with(unknown);
    }
    Ok(described)
}

fn refused(code: RDKafkaErrorCode) -> KafkaError {
    KafkaError::AdminOp(code)
}

/// What is asked, and where the answer arrives. None of it is null: librdkafka ends the process when it has no memory.
struct Question {
    topics: *mut rd::rd_kafka_TopicCollection_t,
    options: *mut rd::rd_kafka_AdminOptions_t,
    answers: *mut rd::rd_kafka_queue_t,
}

impl Question {
    fn new<C: ClientContext>(client: &Client<C>, names: &[CString], millis: i32) -> Self {
        let mut names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let operation = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        // SAFETY: the client lives as long as its reference. The names are strings that end with zero, and are copied; so many are told as
        // there are. No text of an error is asked for: any timeout that librdkafka refuses leaves its own, of a minute, in force.
        unsafe {
            let topics = rd::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
            let options = rd::rd_kafka_AdminOptions_new(client.native_ptr(), operation);
            rd::rd_kafka_AdminOptions_set_request_timeout(options, millis, ptr::null_mut(), 0);
            Self { topics, options, answers: rd::rd_kafka_queue_new(client.native_ptr()) }
        }
    }

    fn ask<C: ClientContext>(&self, client: &Client<C>, millis: i32) -> KafkaResult<Answer> {
        // SAFETY: what is handed over is owned by `self`, and read before the calls return. The event is ours, and destroyed once.
        let event = unsafe {
            rd::rd_kafka_DescribeTopics(client.native_ptr(), self.topics, self.options, self.answers);
            rd::rd_kafka_queue_poll(self.answers, millis)
        };
        if event.is_null() { Err(refused(RDKafkaErrorCode::OperationTimedOut)) } else { Ok(Answer(event)) }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed only here. An answer that comes later finds the queue gone, which librdkafka allows for.
        unsafe {
            rd::rd_kafka_queue_destroy(self.answers);
            rd::rd_kafka_AdminOptions_destroy(self.options);
            rd::rd_kafka_TopicCollection_destroy(self.topics);
        }
    }
}

/// An event, not null.
struct Answer(*mut rd::rd_kafka_event_t);

impl Answer {
    fn descriptions(&self) -> KafkaResult<Descriptions> {
        let mut count = 0;
        // SAFETY: the event is alive. `result` is null when it is none of this kind, which is not asked any further; the topics live as
        // long as the event, and are as many as `count` says.
        let described = unsafe {
            sorted(rd::rd_kafka_event_error(self.0))?;
            let result = rd::rd_kafka_event_DescribeTopics_result(self.0);
            if result.is_null() {
                return Err(refused(RDKafkaErrorCode::InvalidType));
            }
            let topics = rd::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
            if count == 0 { &[] } else { std::slice::from_raw_parts(topics, count) }
        };
        Ok(described.iter().map(|topic| Self::description(*topic)).collect())
    }

    /// Of one of an event's topics, while the event is there.
    fn description(topic: *const rd::rd_kafka_TopicDescription_t) -> (Arc<str>, KafkaResult<Description>) {
        let mut partitions = 0;
        // SAFETY: the topic lives as long as its event, which the caller has; so does its name, a string that ends with zero, and its id.
        // Neither is null; the error is where there is none. Of the partitions only their number is looked at.
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
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: it is ours, and destroyed only here.
        unsafe { rd::rd_kafka_event_destroy(self.0) }
    }
}

fn sorted(error: RDKafkaRespErr) -> KafkaResult<()> {
    match error {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        error => Err(refused(error.into())),
    }
}
