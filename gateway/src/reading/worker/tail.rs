//! What lies behind the last message of a log and is none: the end of a transaction, or one that was aborted.
//!
//! A consumer gets no message for it. Were it not committed all the same, a partition whose producer uses transactions would lag by it for
//! as long as no message follows, and alerts would say that something waits.
//!
//! Once the broker has no more, librdkafka is asked up to where was polled. All messages in front of that are in blocks, open or ended, so
//! that the rest belongs to the range that ends next, or to one without messages.
//!
//! Limits: asked once every [`LOOK_INTERVAL`] by each worker, for all its partitions.

use super::{Worker, partition::Owned};
use std::time::{Duration, Instant};

/// Chosen: how often offsets are committed; asking wakes a thread of librdkafka.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Worker {
    /// Looks for what lies behind the last messages of partitions of which everything is read.
    pub(super) fn look_behind(&mut self, now: Instant) {
        if self.looked_behind.is_some_and(|last| now.duration_since(last) < LOOK_INTERVAL) {
            return;
        }
        let Some(first) = self.partitions.iter().find(|owned| owned.reading.may_end_later()) else { return };
        self.looked_behind = Some(now);
        let Some(positions) = first.queue.positions() else { return };
        let ended = self.partitions.iter_mut().filter(|owned| owned.reading.may_end_later());
        for Owned { reading, .. } in ended {
            reading.polled_up_to(positions.of(&reading.place.id));
        }
    }
}
