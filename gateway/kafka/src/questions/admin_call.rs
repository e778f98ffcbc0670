//! One request through librdkafka's admin interface, on a client that exists already.
//!
//! The Rust `AdminClient` opens a client of its own with a thread, and waits for the answer and for the client's end
//! without a limit. Here the caller sets the limit, and no client has to end afterwards.
//!
//! Why here is unsafe code: it calls librdkafka's public interface (rdkafka.h of 2.12) through the bindings of the
//! Rust client. Each object that librdkafka returns is owned by a value here, and destroyed with it. None is null:
//! librdkafka aborts the process when it has no memory.

#![expect(unsafe_code, reason = "the Rust client has no admin interface without a client of its own")]

use rdkafka::{
    bindings as rd,
    client::{Client, ClientContext},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    types::RDKafkaRespErr,
};
use std::{marker::PhantomData, ptr, time::Duration};

/// How much longer than the brokers' time limit to wait for an answer. librdkafka then returns its own timeout error,
/// which says what it waited for.
const ANSWER_SLACK: Duration = Duration::from_secs(1);

/// The options of a request, and the queue where its answer arrives.
pub struct AdminCall<'a> {
    options: *mut rd::rd_kafka_AdminOptions_t,
    answers: *mut rd::rd_kafka_queue_t,
    timeout: Duration,
    /// Queue and options belong to the client.
    client: PhantomData<&'a ()>,
}

impl<'a> AdminCall<'a> {
    /// Brokers have `timeout` to answer. An operation with a time limit of its own gets the same time to complete.
    pub fn new<C: ClientContext>(
        client: &'a Client<C>,
        operation: rd::rd_kafka_admin_op_t,
        timeout: Duration,
    ) -> Self {
        let millis = millis(timeout);
        // SAFETY: the client lives as long as its reference. No error text is requested. If librdkafka refuses the
        // timeout, or the operation has none, its own default of a minute stays in force.
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

    /// Sends the request and waits for the answer. `ask` passes the request to librdkafka with these options and this
    /// queue, which live until this returns.
    ///
    /// # Errors
    /// When no broker answers in time, or when none supports the operation.
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
        // SAFETY: made by `new` and destroyed only here. librdkafka allows an answer that arrives after its queue is
        // destroyed.
        unsafe {
            rd::rd_kafka_queue_destroy(self.answers);
            rd::rd_kafka_AdminOptions_destroy(self.options);
        }
    }
}

/// A non-null event without an error.
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

/// The error for an answer of another kind than requested.
pub fn unexpected() -> KafkaError {
    refused(RDKafkaErrorCode::InvalidType)
}

pub fn refused(code: RDKafkaErrorCode) -> KafkaError {
    KafkaError::AdminOp(code)
}

/// Converts librdkafka's error code into a result.
///
/// # Errors
/// The error, if the code is one.
pub fn sorted(error: RDKafkaRespErr) -> KafkaResult<()> {
    match error {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        error => Err(refused(error.into())),
    }
}

fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}
