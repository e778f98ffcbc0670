//! How long a worker without work waits, and for what.

use super::Worker;
use std::time::{Duration, Instant};

/// The longest wait. A token wakes the worker when a queue has messages; this only bounds what a lost token costs.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// How often a worker without memory checks for free memory.
const ROOM_WAIT: Duration = Duration::from_millis(10);

impl Worker {
    /// Waits until there may be work again.
    pub(super) fn wait(&self, now: Instant) {
        let (wait, waited_for) = if self.out_of_room {
            (ROOM_WAIT, &self.parts.seconds.buffers)
        } else {
            let open = self.partitions.iter().filter_map(|owned| owned.reading.block.as_ref());
            let left = open.map(|block| self.parts.age_max.time_left(block.age(now), now));
            // A block that must not end yet stays due.
            let due = left.filter(|left| !left.is_zero()).min();
            let seconds = &self.parts.seconds;
            // A worker that reads on while blocks wait in delivery would otherwise look idle.
            let is_behind = self.parts.metrics.sink_behind.get() > 0;
            let cause = if is_behind { &seconds.sink } else { &seconds.source };
            (due.unwrap_or(WAIT_MAX).min(WAIT_MAX), cause)
        };
        if self.parts.wake.recv_timeout(wait).is_err() {
            // Time is up, or the poll thread has gone, which the next turn sees.
        }
        waited_for.inc_by(now.elapsed().as_secs_f64());
    }
}
