//! Seals ended ranges into blocks and sends them to delivery.

use super::{
    Worker,
    partition::{Owned, Reading, State},
};
use crate::blocks::{
    block::{Block, OpenBlock, Place},
    buffers::StoreError,
};
use sluice_kafka::{Renew, Report};
use sluice_ranges::OffsetRange;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

impl Worker {
    /// Handles partitions without new messages. Ends ranges that have reached their maximum age, or whose memory another worker waits for, and ranges
    /// whose cut lies in front of the log's end. Restarts partitions that are to restart.
    pub(super) fn advance(&mut self, now: Instant) {
        let mut partitions = std::mem::take(&mut self.partitions);
        let mut leaving = Vec::new();
        self.unsealed = false;
        for (index, Owned { reading, .. }) in partitions.iter_mut().enumerate() {
            let due = |block: &OpenBlock| {
                self.parts.age_max.time_left(block.age(now), now).is_zero() || self.holds_room(block, now)
            };
            let is_due = reading.block.as_ref().is_some_and(due);
            let sealed =
                self.catch_up(reading).and_then(|()| if is_due { self.flush(reading) } else { Ok(()) });
            if is_due && reading.block.is_none() {
                self.parts.age_max.closed(Instant::now());
            }
            if sealed.is_err() {
                self.unsealed = true;
                tracing::debug!(partition = %reading.place.id, "no memory to seal a block; the worker tries again");
            } else if reading.cutter.is_holding() && matches!(reading.state, State::Polling) {
                leaving.push((index, Renew::Rule));
            } else if let State::Leaving(renew) = reading.state {
                leaving.push((index, renew));
            }
        }
        self.partitions = partitions;
        self.renew(leaving);
    }

    /// Releases partitions that restart; `leaving` has ascending indexes.
    pub(super) fn renew(&mut self, leaving: Vec<(usize, Renew)>) {
        for (index, renew) in leaving.into_iter().rev() {
            let Owned { queue, reading } = self.partitions.swap_remove(index);
            // Dropped before the release is reported: for librdkafka, the next generation has the same queue.
            drop(queue);
            self.release(reading, Some(renew));
        }
    }

    /// Ends the ranges whose cut lies in front of the log's end, once everything was read.
    fn catch_up(&mut self, reading: &mut Reading) -> Result<(), StoreError> {
        self.seal_closing(reading)?;
        while reading.caught_up
            && let Some(closed) = reading.cutter.caught_up(reading.log_end)
        {
            reading.closing = Some(closed);
            self.seal_closing(reading)?;
        }
        Ok(())
    }

    /// Ends and seals the open range, unless it must not end here.
    pub(super) fn flush(&mut self, reading: &mut Reading) -> Result<(), StoreError> {
        self.seal_closing(reading)?;
        reading.closing = reading.cutter.flush();
        self.seal_closing(reading)
    }

    pub(super) fn seal_all(&mut self) {
        self.advance(Instant::now() + Duration::from_hours(1));
    }

    /// Seals the block of the ended range, if there is one, and returns its row buffer.
    pub(super) fn seal_closing(&mut self, reading: &mut Reading) -> Result<(), StoreError> {
        let Some(closed) = &reading.closing else { return Ok(()) };
        let sealed = match &mut reading.block {
            Some(open) => Some(open.seal(&self.parts.pool, &reading.place, closed)?),
            None => None,
        };
        self.row_buffers.extend(reading.block.take().map(|open| open.rows));
        let closed = reading.closing.take().expect("it was there just now");
        let Place { id, generation, .. } = reading.place.clone();
        let rows = sealed.as_ref().map_or(0, |block| block.rows);
        let has_rows = rows > 0;
        if closed.doubtful && has_rows {
            let OffsetRange { first, next } = closed.range;
            tracing::warn!(
                partition = %id, first, next, rows,
                "an earlier owner of the partition may have inserted these rows under another token, in a longer range or with another id of the \
                 Kafka cluster: they may be in the table twice, and count in possible_duplicate_rows_total"
            );
        }
        // The block is sent first: a release of the partition must not overtake it.
        match sealed {
            Some(block) if has_rows => self.send(block),
            Some(empty) => empty.account.settled(),
            None => {}
        }
        self.report(Report::Closed { id, generation, closed, has_rows });
        if !reading.cutter.is_replaying() {
            self.yield_replay(reading);
        }
        Ok(())
    }

    fn send(&mut self, block: Block) {
        let before = Instant::now();
        self.parts.metrics.blocks_in_flight.inc();
        let unsent = match self.parts.blocks.try_send(block) {
            Ok(()) => None,
            Err(refused) => {
                // While the worker waits here, all of its partitions wait.
                self.parts.shortage.say(true);
                self.parts.blocks.blocking_send(refused.into_inner()).err()
            }
        };
        if let Some(mpsc::error::SendError(block)) = unsent {
            // Delivery has ended, so the process is ending: the messages are read again.
            self.parts.metrics.blocks_in_flight.dec();
            block.account.abandon();
        }
        let handing = before.elapsed();
        self.handing += handing;
        self.parts.seconds.sink.inc_by(handing.as_secs_f64());
    }
}
