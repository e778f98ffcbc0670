//! Creates a topic through a client that exists already.
//!
//! Why here is unsafe code: as in [`crate::questions::admin_call`].

#![expect(unsafe_code, reason = "the Rust client makes topics through a client of its own alone")]

use crate::questions::admin_call::{AdminAnswer, AdminCall, refused, sorted, unexpected};
use rdkafka::{
    bindings as rd,
    client::{Client, ClientContext},
    error::{KafkaResult, RDKafkaErrorCode},
};
use std::{ffi::CString, ptr, time::Duration};

/// A topic to create.
struct NewTopic(*mut rd::rd_kafka_NewTopic_t);

/// Creates a topic with this many partitions, and waits for the answer; `replicas` -1 leaves their number to the brokers. Blocks for up to
/// `timeout` and a second.
///
/// # Errors
/// The brokers' error for the topic, or that none answers.
pub fn make_topic<C: ClientContext>(
    client: &Client<C>,
    name: &str,
    partitions: i32,
    replicas: i32,
    timeout: Duration,
) -> KafkaResult<()> {
    let mut topic = NewTopic::new(name, partitions, replicas)?;
    let operation = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_CREATETOPICS;
    let answer = AdminCall::new(client, operation, timeout).ask(|options, answers| {
        // SAFETY: client, topic, options and queue live until the call returns, which copies what it needs. The array has one topic.
        unsafe { rd::rd_kafka_CreateTopics(client.native_ptr(), &raw mut topic.0, 1, options, answers) }
    })?;
    of_first(&answer)
}

/// The error of the only topic.
fn of_first(answer: &AdminAnswer<'_>) -> KafkaResult<()> {
    let mut count = 0;
    // SAFETY: the event is alive. `result` is null if it is of another kind, and is then not used further. The topics live as long as the
    // event, and `count` is their number.
    let error = unsafe {
        let result = rd::rd_kafka_event_CreateTopics_result(answer.event());
        if result.is_null() {
            return Err(unexpected());
        }
        let topics = rd::rd_kafka_CreateTopics_result_topics(result, &raw mut count);
        if count == 0 {
            return Ok(());
        }
        rd::rd_kafka_topic_result_error(*topics)
    };
    sorted(error)
}

impl NewTopic {
    fn new(name: &str, partitions: i32, replicas: i32) -> KafkaResult<Self> {
        let invalid = || refused(RDKafkaErrorCode::InvalidTopic);
        let name = CString::new(name).map_err(|_| invalid())?;
        // SAFETY: the name is zero-terminated and copied. No error text is requested.
        let topic =
            unsafe { rd::rd_kafka_NewTopic_new(name.as_ptr(), partitions, replicas, ptr::null_mut(), 0) };
        if topic.is_null() { Err(invalid()) } else { Ok(Self(topic)) }
    }
}

impl Drop for NewTopic {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed only here.
        unsafe { rd::rd_kafka_NewTopic_destroy(self.0) }
    }
}
