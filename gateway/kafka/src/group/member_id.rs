//! Whether a client is a member of its group, as far as the client itself knows.
//!
//! With the classic protocol, librdkafka 2.12 has a member id from the coordinator's first answer until it sends `LeaveGroup`. A client that
//! is closed before that does not send it as a static member.
//!
//! Why here is unsafe code: the Rust client has no call for librdkafka's `rd_kafka_memberid` (rdkafka.h of 2.12). The text that it returns is
//! freed here.

#![expect(unsafe_code, reason = "the Rust client has no call for the member id")]

use rdkafka::{
    bindings as rd,
    client::{Client, ClientContext},
};

/// Whether the client has a member id. Waits for librdkafka's main thread, and for no broker.
pub fn is_member<C: ClientContext>(client: &Client<C>) -> bool {
    // SAFETY: the client lives as long as its reference. What is returned is null or a text that ends in 0, which is freed once, with the
    // function that librdkafka names for it.
    unsafe {
        let id = rd::rd_kafka_memberid(client.native_ptr());
        if id.is_null() {
            return false;
        }
        let has_id = *id != 0;
        rd::rd_kafka_mem_free(client.native_ptr(), id.cast());
        has_id
    }
}
