//! How librdkafka says that events wait in a producer's queue: acknowledgements, errors, log lines.
//!
//! librdkafka writes to a descriptor, an eventfd, when an event comes into an empty queue (`rd_kafka_q_io_event`). It writes at most once until
//! the queue is polled again. An event that joins others writes nothing: the reader polls until the queue is empty.
//!
//! Why here is unsafe code: the Rust client has no call for the signal of a queue, nor for its length, and tokio cannot check that a
//! descriptor stays open.

#![expect(
    unsafe_code,
    reason = "the Rust client has no call for a queue's signal, nor for its length; tokio takes a descriptor on trust"
)]

use crate::producer::acknowledgements::Acknowledgements;
use rdkafka::{
    bindings::{self as rd, rd_kafka_queue_t},
    client::Client,
};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::Arc,
};
use tokio::io::{Interest, unix::AsyncFd};

/// The descriptor. It is closed with the last clone.
#[derive(Clone)]
pub(super) struct Signal(Arc<OwnedFd>);

impl Signal {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// The signal as something that a task can wait for. Call it inside a runtime with tokio's I/O.
    pub(super) fn registered(self) -> io::Result<AsyncFd<Self>> {
        // SAFETY: the descriptor is always the same one, and is open for as long as a clone of the signal lives.
        Ok(unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) }?)
    }

    /// Wakes the reader, as librdkafka does.
    pub(super) fn raise(&self) {
        if rustix::io::write(&self.0, &ONE).is_err() {
            // The count is at its end, so the signal is raised.
        }
    }

    /// Takes the signal. Call it before a look at the queue: an event that comes after the look then raises it again.
    pub(super) fn lower(&self) {
        if rustix::io::read(&self.0, &mut [0_u8; ONE.len()]).is_err() {
            // It was not raised.
        }
    }
}

impl AsRawFd for Signal {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// What is added to the count of the eventfd.
const ONE: [u8; 8] = 1_u64.to_ne_bytes();

/// Has librdkafka raise the signal of the client's context. Events that wait already raise nothing: [raise](Signal::raise) it once.
pub(super) fn enable(client: &Client<Acknowledgements>) {
    let descriptor = client.context().signal().as_raw_fd();
    with_queue(client, |queue| {
        // SAFETY: the queue is one of `with_queue`. librdkafka copies the payload. It writes to the descriptor until the client is destroyed,
        // which joins all of its threads. The client's context has a clone of the signal for its whole life. The client drops its context after
        // librdkafka's part (rdkafka 0.39, the order of the fields of `Client`). So the descriptor is closed after the last write.
        unsafe { rd::rd_kafka_queue_io_event_enable(queue, descriptor, ONE.as_ptr().cast(), ONE.len()) };
    });
}

/// Whether events wait in the client's queue.
pub(super) fn has_events(client: &Client<Acknowledgements>) -> bool {
    // SAFETY: the queue is one of `with_queue`. The call locks the queue and reads its length.
    with_queue(client, |queue| unsafe { rd::rd_kafka_queue_length(queue) }) > 0
}

/// Calls with the queue that a poll of the client serves. The pointer must not leave the call.
fn with_queue<T>(client: &Client<Acknowledgements>, call: impl FnOnce(*mut rd_kafka_queue_t) -> T) -> T {
    // SAFETY: the client lives as long as its reference. librdkafka returns a new handle, and never null.
    let queue = unsafe { rd::rd_kafka_queue_get_main(client.native_ptr()) };
    let found = call(queue);
    // SAFETY: the handle is the one above and is not used again. The queue itself belongs to the client.
    unsafe { rd::rd_kafka_queue_destroy(queue) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(signal: &Signal) -> Option<u64> {
        let mut count = [0_u8; ONE.len()];
        rustix::io::read(&signal.0, &mut count).ok().map(|_| u64::from_ne_bytes(count))
    }

    #[test]
    fn a_signal_is_there_once_until_it_is_taken() {
        let signal = Signal::new().unwrap();
        signal.lower();
        signal.clone().raise();
        signal.raise();
        assert_eq!(count(&signal), Some(2));
        signal.raise();
        signal.lower();
        assert_eq!(count(&signal), None);
    }
}
