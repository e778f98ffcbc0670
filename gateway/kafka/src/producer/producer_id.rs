//! Whether a producer has the id that brokers tell its messages apart by. Without one, librdkafka sends no message.
//!
//! Why here is unsafe code: librdkafka has no call for it. `src/producer_id.c` reads its state.

#![expect(unsafe_code, reason = "librdkafka has no call for the id of a producer")]

use rdkafka::{
    bindings as rd,
    client::{Client, ClientContext},
};
use std::ffi::c_int;

unsafe extern "C" {
    fn sluice_has_producer_id(client: *mut rd::rd_kafka_t) -> c_int;
}

/// Whether an idempotent producer can send with its id now. Takes a lock of librdkafka, and waits for no broker.
pub(super) fn has_id<C: ClientContext>(client: &Client<C>) -> bool {
    // SAFETY: the client lives as long as its reference. The call locks the client's state, reads it, and keeps nothing.
    unsafe { sluice_has_producer_id(client.native_ptr()) != 0 }
}
