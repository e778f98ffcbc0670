//! One question of librdkafka's admin interface, through a client that is there already.
//!
//! The Rust client asks such questions through an `AdminClient`: a client of its own, with a thread beside it, whose answer and whose end are
//! both waited for without a limit. Here the wait is as long as the caller says, and nothing has to end behind it.
//!
//! Why here is unsafe code: what is called is librdkafka's public interface (rdkafka.h of 2.12), by the bindings that the Rust client has
//! itself; each object that it gives is owned by a value here, and destroyed with it. None of them is null: librdkafka ends the process when
//! it has no memory.

#![expect(unsafe_code, reason = "the Rust client has no admin interface without a client of its own")]

use rdkafka::{
    bindings as rd,
    client::{Client, ClientContext},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};
use std::{marker::PhantomData, ptr, time::Duration};

/// How much longer than brokers may take an answer is waited for: librdkafka then says itself what it waited for in vain.
const ANSWER_SLACK: Duration = Duration::from_secs(1);

/// What a question is asked with, and where its answer arrives.
pub struct AdminCall<'a> {
    options: *mut rd::rd_kafka_AdminOptions_t,
    answers: *mut rd::rd_kafka_queue_t,
    timeout: Duration,
    /// Queue and options belong to the client.
    client: PhantomData<&'a ()>,
}

impl<'a> AdminCall<'a> {
    /// Brokers have `timeout` to answer, and where the operation has a time of its own, as long to carry it out.
    pub fn new<C: ClientContext>(
        client: &'a Client<C>,
        operation: rd::rd_kafka_admin_op_t,
        timeout: Duration,
    ) -> Self {
        let millis = millis(timeout);
        // SAFETY: the client lives as long as its reference. No text of an error is asked for: a timeout that librdkafka refuses, or that the
        // operation does not have, leaves its own, of a minute, in force.
        unsafe {
            let options = rd::rd_kafka_AdminOptions_new(client.native_ptr(), operation);
            rd::rd_kafka_AdminOptions_set_request_timeout(options, millis, ptr::null_mut(), 0);
            rd::rd_kafka_AdminOptions_set_operation_timeout(options, millis, ptr::null_mut(), 0);
            Self {
                options,
                answers: rd::rd_kafka_queue_new(client.native_ptr()),
                timeout,
                client: PhantomData,
            }
        }
    }

    /// Asks, and waits for the answer. `ask` gives the question to librdkafka with these options and this queue, which live until this returns.
    ///
    /// # Errors
    /// When no broker answers in time, or none knows the operation.
    pub fn ask(
        &self,
        ask: impl FnOnce(*const rd::rd_kafka_AdminOptions_t, *mut rd::rd_kafka_queue_t),
    ) -> KafkaResult<AdminAnswer<'a>> {
        ask(self.options, self.answers);
        // SAFETY: the queue is owned by `self`. The event is ours, and destroyed once.
        let event = unsafe { rd::rd_kafka_queue_poll(self.answers, millis(self.timeout + ANSWER_SLACK)) };
        if event.is_null() {
            return Err(refused(RDKafkaErrorCode::OperationTimedOut));
        }
        let answer = AdminAnswer(event, PhantomData);
        // SAFETY: the event is alive.
        sorted(unsafe { rd::rd_kafka_event_error(answer.0) }).map(|()| answer)
    }
}

impl Drop for AdminCall<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new` and destroyed only here. An answer that comes later finds the queue gone, which librdkafka allows for.
        unsafe {
            rd::rd_kafka_queue_destroy(self.answers);
            rd::rd_kafka_AdminOptions_destroy(self.options);
        }
    }
}

/// An event that is no error, and not null.
pub struct AdminAnswer<'a>(*mut rd::rd_kafka_event_t, PhantomData<&'a ()>);

impl AdminAnswer<'_> {
    /// The event, which lives as long as this value.
    pub fn event(&self) -> *mut rd::rd_kafka_event_t {
        self.0
    }
}

impl Drop for AdminAnswer<'_> {
    fn drop(&mut self) {
        // SAFETY: it is ours, and destroyed only here.
        unsafe { rd::rd_kafka_event_destroy(self.0) }
    }
}

/// An answer of another kind than was asked for.
pub fn unexpected() -> KafkaError {
    refused(RDKafkaErrorCode::InvalidType)
}

pub fn refused(code: RDKafkaErrorCode) -> KafkaError {
    KafkaError::AdminOp(code)
}

/// librdkafka's error as one, unless it is none.
///
/// # Errors
/// That error.
pub fn sorted(error: RDKafkaRespErr) -> KafkaResult<()> {
    match error {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        error => Err(refused(error.into())),
    }
}

fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}
