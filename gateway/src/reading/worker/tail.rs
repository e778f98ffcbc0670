//! Log entries behind the last message that are not messages: the end of a transaction, or an aborted transaction.
//!
//! A consumer gets no message for them. If they were not committed, a partition whose producer uses transactions would show a lag until the
//! next message, and alerts would fire.
//!
//! Once the broker has no more messages, librdkafka is asked for its position. All messages in front of it are in open or ended blocks, so
//! the rest belongs to the range that ends next, or to one without messages.
//!
//! A log of this process has nothing behind its last message but messages that cannot be read, whose offsets are to be committed as well.
//!
//! Limits: each worker asks once per [`LOOK_INTERVAL`], for all its partitions.

use super::{Worker, partition::Owned};
use sluice_kafka::PartitionQueue;
use std::time::{Duration, Instant};

/// Chosen: the interval of offset commits; each question wakes a thread of librdkafka.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Worker {
    /// Asks for the position behind the last messages of partitions that were read to the end.
    pub(super) fn look_behind(&mut self, now: Instant) {
        if self.looked_behind.is_some_and(|last| now.duration_since(last) < LOOK_INTERVAL) {
            return;
        }
        let Some(first) = self.partitions.iter().find(|owned| owned.reading.may_end_later()) else { return };
        self.looked_behind = Some(now);
        // All partitions of a process are of one kind.
        let positions = match &first.queue {
            PartitionQueue::Kafka(_) => match first.queue.positions() {
                None => return,
                positions => positions,
            },
            PartitionQueue::Log(_) => None,
        };
        let ended = self.partitions.iter_mut().filter(|owned| owned.reading.may_end_later());
        for Owned { queue, reading } in ended {
            reading.polled_up_to(match &positions {
                Some(positions) => positions.of(&reading.place.id),
                None => queue.position(),
            });
        }
    }
}
