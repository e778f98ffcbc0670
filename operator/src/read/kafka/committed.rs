//! Reads the committed offsets of any consumer group.
//!
//! Place in the flow: one of the requests of [`super::Client`]. It blocks the calling thread until the answer or the timeout.
//!
//! Why there is unsafe code: the Rust client reads committed offsets only of its own group, and does not wrap librdkafka's
//! `ListConsumerGroupOffsets`, which reads those of any group. This file calls librdkafka's public interface (rdkafka.h of 2.12) through the
//! bindings of the Rust client. Each object of librdkafka is owned by a value here, which destroys it.
//!
//! The caller must observe three rules, or librdkafka 2.12 crashes the process:
//!
//! - The client has a group. If a broker answers that the coordinator has moved, librdkafka looks for the coordinator of the client's own
//!   group, and does not check that there is one (librdkafka#5040).
//! - A request does not time out inside librdkafka while it waits for a coordinator: once the coordinator is back, librdkafka would use the
//!   request after freeing it (librdkafka#3663, #4605). So the timeout is kept here, the request stays pending in librdkafka, and the caller
//!   closes the client within [`PENDING_SECONDS_MAX`].
//! - librdkafka remembers the coordinators of some groups, also after they have moved. Then the caller closes the client, too
//!   ([`Error::is_clients_end`]).
//!
//! Cost: one request to the coordinator, some 40 bytes a partition; one more to find the coordinator, unless the group is one of the
//! eleven that a client remembers.

#![expect(unsafe_code, reason = "the Rust client has no call for ListConsumerGroupOffsets")]

use rdkafka::{
    TopicPartitionList, bindings as rd,
    client::{Client, ClientContext},
    error::RDKafkaErrorCode,
    types::RDKafkaRespErr,
};
use std::{
    collections::HashMap,
    ffi::{CStr, CString},
    ptr,
    time::Duration,
};

/// A client with a pending request must be closed within this many seconds: the longest timeout that librdkafka allows for a request, and
/// far more than the last request of a client takes.
pub const PENDING_SECONDS_MAX: u16 = 3_600;

/// Offsets by topic and partition.
pub type Offsets = HashMap<(String, i32), i64>;

/// Why there are no offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The group's name contains a NUL byte.
    #[error("the group name contains a NUL byte")]
    Name,
    /// No answer in time; the request is still pending.
    #[error("no answer in time")]
    Late,
    /// The answer is an error.
    #[error("{0}")]
    Refused(RDKafkaErrorCode),
}

impl Error {
    /// The Kafka error code, if there is one.
    pub fn code(self) -> Option<RDKafkaErrorCode> {
        match self {
            Self::Name => None,
            Self::Late => Some(RDKafkaErrorCode::OperationTimedOut),
            Self::Refused(code) => Some(code),
        }
    }

    /// Whether the client must be closed; see the module's rules.
    pub fn is_clients_end(self) -> bool {
        use RDKafkaErrorCode::{CoordinatorNotAvailable, NotCoordinator};
        matches!(self, Self::Late | Self::Refused(NotCoordinator | CoordinatorNotAvailable))
    }
}

/// The group's committed offsets of these partitions, at least one. Partitions without a committed offset are not in the answer.
/// Blocks for up to `timeout`.
///
/// # Errors
/// If there is no answer, or it is an error. A partition with an error of its own is left out.
pub fn committed<C: ClientContext>(
    client: &Client<C>,
    group: &str,
    partitions: &TopicPartitionList,
    timeout: Duration,
) -> Result<Offsets, Error> {
    let group = CString::new(group).map_err(|_| Error::Name)?;
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    Question::new(client, &group, partitions).ask(client, millis)?.offsets()
}

/// A request, and the queue of its answer. No pointer is null: librdkafka aborts the process when it is out of memory.
struct Question {
    group: *mut rd::rd_kafka_ListConsumerGroupOffsets_t,
    options: *mut rd::rd_kafka_AdminOptions_t,
    answers: *mut rd::rd_kafka_queue_t,
}

impl Question {
    fn new<C: ClientContext>(client: &Client<C>, group: &CStr, partitions: &TopicPartitionList) -> Self {
        let operation = rd::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS;
        let millis = i32::from(PENDING_SECONDS_MAX) * 1_000;
        // SAFETY: the client and the list live as long as their references. The name is a string that ends with zero; it and the list are
        // copied. No text of an error is asked for: librdkafka takes this timeout, which is the longest that it documents.
        unsafe {
            let group = rd::rd_kafka_ListConsumerGroupOffsets_new(group.as_ptr(), partitions.ptr());
            let options = rd::rd_kafka_AdminOptions_new(client.native_ptr(), operation);
            rd::rd_kafka_AdminOptions_set_request_timeout(options, millis, ptr::null_mut(), 0);
            Self { group, options, answers: rd::rd_kafka_queue_new(client.native_ptr()) }
        }
    }

    fn ask<C: ClientContext>(&self, client: &Client<C>, millis: i32) -> Result<Answer, Error> {
        let mut groups = [self.group];
        // SAFETY: what is handed over is owned by `self`, and read before the calls return; the number of groups is that of the array. The event
        // is ours, and destroyed once.
        let event = unsafe {
            rd::rd_kafka_ListConsumerGroupOffsets(
                client.native_ptr(),
                groups.as_mut_ptr(),
                groups.len(),
                self.options,
                self.answers,
            );
            rd::rd_kafka_queue_poll(self.answers, millis)
        };
        if event.is_null() { Err(Error::Late) } else { Ok(Answer(event)) }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed only here. An answer that comes later finds the queue gone, which librdkafka allows for.
        unsafe {
            rd::rd_kafka_queue_destroy(self.answers);
            rd::rd_kafka_AdminOptions_destroy(self.options);
            rd::rd_kafka_ListConsumerGroupOffsets_destroy(self.group);
        }
    }
}

/// An event, not null.
struct Answer(*mut rd::rd_kafka_event_t);

impl Answer {
    fn offsets(&self) -> Result<Offsets, Error> {
        let mut count = 0;
        // SAFETY: the event is alive. `result` is null when it is none of this kind, which is not asked any further; the groups live as
        // long as the event, and are as many as `count` says. An error that is null has no code, and reads as none.
        let group = unsafe {
            sorted(rd::rd_kafka_event_error(self.0))?;
            let result = rd::rd_kafka_event_ListConsumerGroupOffsets_result(self.0);
            if result.is_null() {
                return Err(Error::Refused(RDKafkaErrorCode::InvalidType));
            }
            let groups = rd::rd_kafka_ListConsumerGroupOffsets_result_groups(result, &raw mut count);
            if count == 0 {
                return Err(Error::Refused(RDKafkaErrorCode::InvalidType));
            }
            let group = *groups;
            sorted(rd::rd_kafka_error_code(rd::rd_kafka_group_result_error(group)))?;
            group
        };
        // SAFETY: the group lives as long as the event, and its partitions with it.
        let list = unsafe { rd::rd_kafka_group_result_partitions(group) };
        if list.is_null() {
            return Ok(Offsets::new());
        }
        // SAFETY: the list is not null, and no code writes to it any more.
        let (first, count) = unsafe { ((*list).elems, usize::try_from((*list).cnt).unwrap_or(0)) };
        // SAFETY: the list has `count` partitions one after another.
        Ok((0..count).filter_map(|at| Self::offset(unsafe { first.add(at) })).collect())
    }

    /// Of one of an event's partitions, while the event is there.
    fn offset(partition: *const rd::rd_kafka_topic_partition_t) -> Option<((String, i32), i64)> {
        // SAFETY: the partition lives as long as its event, which the caller has; so does its topic, a string that ends with zero. The error
        // is the broker's own number, which need not be one that the bindings know, and so is read as a number.
        let (topic, number, offset, error) = unsafe {
            let topic = CStr::from_ptr((*partition).topic);
            let error = (&raw const (*partition).err).cast::<i32>().read();
            (topic, (*partition).partition, (*partition).offset, error)
        };
        // Offsets below zero are librdkafka's way to say that there is none.
        (error == 0 && offset >= 0).then(|| ((topic.to_string_lossy().into_owned(), number), offset))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: it is ours, and destroyed only here.
        unsafe { rd::rd_kafka_event_destroy(self.0) }
    }
}

fn sorted(error: RDKafkaRespErr) -> Result<(), Error> {
    match error {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        error => Err(Error::Refused(error.into())),
    }
}
