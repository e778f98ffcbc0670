//! Passes a message to librdkafka, which refers to its value.
//!
//! The Rust client has librdkafka copy every value. Here the ticket of a message owns the value. Without the flags `F_COPY` and `F_FREE`,
//! librdkafka 2.12 only reads a value, and not after the report of its message (rdkafka.h, `rd_kafka_produce`). With the report it gives
//! the ticket back, which frees the value. A ticket that does not come back is never freed.
//!
//! Why here is unsafe code: the Rust client has no call without a copy.

#![expect(unsafe_code, reason = "the Rust client copies every value")]

use crate::producer::{acknowledgements::Acknowledgements, reply::Ticket};
use rdkafka::{
    bindings::{self as rd, rd_kafka_resp_err_t, rd_kafka_vtype_t},
    error::KafkaError,
    producer::{BaseProducer, Producer as _},
};
use std::ffi::CStr;

/// Passes the message of a ticket to a partition of a topic. Returns the ticket if librdkafka does not take it.
pub(super) fn produce(
    producer: &BaseProducer<Acknowledgements>,
    (topic, partition): (&CStr, i32),
    key: &[u8],
    ticket: Box<Ticket>,
) -> Result<(), (KafkaError, Box<Ticket>)> {
    let (value, value_bytes) = (ticket.value().as_ptr(), ticket.value().len());
    let ticket = Box::into_raw(ticket);
    // SAFETY: the producer lives as long as its reference. Each name is followed by what librdkafka reads for it, and the last one ends the
    // list. Topic and key are copied. The value has its own memory, which lives until the ticket is dropped. The task on `io` makes a box of
    // this pointer once, as the context's type for it says, and by then librdkafka does not read the value any more.
    let code = unsafe {
        rd::rd_kafka_producev(
            producer.client().native_ptr(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_TOPIC,
            topic.as_ptr(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION,
            partition,
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE,
            value,
            value_bytes,
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY,
            key.as_ptr(),
            key.len(),
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_OPAQUE,
            ticket,
            rd_kafka_vtype_t::RD_KAFKA_VTYPE_END,
        )
    };
    if code == rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    // SAFETY: librdkafka has not taken the message, so this pointer is still the only one.
    let ticket = unsafe { Box::from_raw(ticket) };
    Err((KafkaError::MessageProduction(code.into()), ticket))
}
