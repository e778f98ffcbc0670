//! The thread `upkeep`: does what may block. It gives librdkafka new tokens, replaces a producer after a fatal error, and drops producers.
//!
//! It polls nothing: acknowledgements and errors come on `io` ([`acknowledgements`](crate::producer::acknowledgements)). librdkafka's own events
//! for tokens are not used, so tokens are in time while `io` is busy. Limits: a look each [`LOOK_INTERVAL`].

use crate::producer::{acknowledgements::Acknowledgements, sender::Shared, signal};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use rdkafka::{
    ClientConfig,
    producer::{BaseProducer, Producer as _},
};
use sluice_login::Renewal;
use std::{
    convert::Infallible,
    sync::{Arc, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How often the thread looks for a new token, a fatal error, and producers to drop.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long to wait before a producer is replaced again, if there is none.
const REPLACE_AGAIN: Duration = Duration::from_secs(1);

/// At how many looks others may still have a producer after the end: 30 s. Chosen: the thread `topic` holds it for some seconds while it
/// asks brokers. After that, its last owner drops it.
const LAST_LOOKS_MAX: u32 = 300;

/// The thread's state.
pub(super) struct Upkeep {
    pub(super) shared: Arc<Shared>,
    pub(super) config: ClientConfig,
    pub(super) context: Acknowledgements,
    pub(super) renewal: Renewal,
    pub(super) ended: Receiver<Infallible>,
}

impl Upkeep {
    /// Works until all handles are dropped, and then drops the last producer.
    pub(super) fn run(self) {
        let mut unused = Vec::new();
        self.renewal.begin(self.shared.current().client());
        while self.ended.recv_timeout(LOOK_INTERVAL) != Err(RecvTimeoutError::Disconnected) {
            drop_unused(&mut unused);
            let producer = self.shared.current();
            self.renewal.renew(producer.client());
            if let Some((code, why)) = producer.client().fatal_error() {
                tracing::warn!(%code, why, topic = self.shared.topic, "replacing the producer after a fatal error");
                unused.extend(self.replace());
            }
        }
        unused.push(self.shared.current());
        drop(self.shared);
        for _ in 0..LAST_LOOKS_MAX {
            drop_unused(&mut unused);
            if unused.is_empty() {
                break;
            }
            thread::sleep(LOOK_INTERVAL);
        }
        drop(unused);
        // The task on `io` finds that nothing is left, and ends.
        self.context.signal().raise();
    }

    /// Puts a new producer in place of one that can do nothing more, and returns that. Its messages are answered when it is dropped.
    pub(super) fn replace(&self) -> Option<Arc<BaseProducer<Acknowledgements>>> {
        match self.config.create_with_context(self.context.clone()) {
            Ok(producer) => {
                let producer: Arc<BaseProducer<Acknowledgements>> = Arc::new(producer);
                signal::enable(producer.client());
                self.renewal.begin(producer.client());
                let replaced = {
                    let mut current = self.shared.producer.write().unwrap_or_else(PoisonError::into_inner);
                    std::mem::replace(&mut *current, producer)
                };
                // What it had to say before is served from now on.
                self.context.signal().raise();
                self.shared.state.replaced(Instant::now());
                Some(replaced)
            }
            Err(error) => {
                tracing::error!(%error, topic = self.shared.topic, "cannot create a producer; trying again");
                if self.ended.recv_timeout(REPLACE_AGAIN).is_err() {
                    // The time is over, or all handles are dropped, which the caller's next look finds as well.
                }
                None
            }
        }
    }
}

/// Drops what was replaced or is left, once no sender holds it any more. A producer takes half a second or more to end, which must not be on a
/// thread that sends, such as one of `io`.
fn drop_unused<T>(unused: &mut Vec<Arc<T>>) {
    unused.retain(|unused| Arc::strong_count(unused) > 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_ends_here_once_no_sender_has_it() {
        let (unused, sent_with) = (Arc::new(1), Arc::new(2));
        let sender = sent_with.clone();
        let mut replaced = vec![unused, sent_with];
        drop_unused(&mut replaced);
        assert_eq!(replaced, [Arc::new(2)]);
        drop(sender);
        drop_unused(&mut replaced);
        assert!(replaced.is_empty());
    }
}
