//! Partitions that a worker stops reading: their next batch cannot be read, or waits for a letter.

use super::{
    Worker,
    partition::{Reading, State},
};
use crate::{blocks::block::Place, reading::reject::BadBatch};
use sluice_kafka::{BatchRemedy, KafkaError, QueueProblem, Renew, Report};

impl Worker {
    /// Handles an error of the queue. Stops the partition if its next batch still cannot be read after the last refetch.
    pub(super) fn heed(&mut self, reading: &mut Reading, error: &KafkaError) {
        let batch = match QueueProblem::of(error, self.parts.sizing.record_batch_bytes_max.get()) {
            QueueProblem::ReadAgain => return,
            QueueProblem::OutOfRange => {
                tracing::warn!(
                    partition = %reading.place.id,
                    offset = reading.cutter.position(),
                    "Kafka no longer has the next offset; the gateway looks up where the log starts"
                );
                reading.leave(Renew::OutOfRange);
                return;
            }
            QueueProblem::Passing => {
                tracing::warn!(partition = %reading.place.id, %error, "Kafka reports a problem with the partition");
                return;
            }
            problem @ (QueueProblem::Undecompressed { .. } | QueueProblem::Unreadable) => {
                BadBatch::of(problem).expect("the problem concerns a batch")
            }
        };
        let (id, position) = (&reading.place.id, reading.cutter.position());
        if batch.may_be_read_again() && self.refetches.fetches(id, position) {
            tracing::warn!(
                partition = %id,
                offset = position,
                reason = %batch,
                "the record batch cannot be read; the worker fetches it once more"
            );
            reading.begin_anew(Renew::Batch);
            return;
        }
        self.refetches.forget(id);
        self.parts.metrics.messages.stop_at_batch(batch.label());
        batch.log(id, position, &self.parts.sizing, reading.cutter.held());
        self.stop(reading, batch.remedy(&self.parts.sizing));
    }

    /// Stops a partition: the poll thread pauses it, and the worker reads the others. `remedy` lets its next batch be read.
    pub(super) fn stop(&mut self, reading: &mut Reading, remedy: BatchRemedy) {
        self.stand(reading);
        reading.state = State::Stopped;
        self.parts.metrics.partitions_stopped.inc();
        let Place { id, generation, .. } = reading.place.clone();
        self.report(Report::Stopped { id, generation, remedy });
    }

    /// Stops reading a partition for now. Messages that were read before are inserted if their range may end here; otherwise their rows are
    /// dropped and they are read again. `true` when rows were dropped.
    pub(super) fn stand(&mut self, reading: &mut Reading) -> bool {
        if self.flush(reading).is_err() {
            tracing::debug!(partition = %reading.place.id, "no memory to seal a block; the worker tries again");
        }
        let is_empty = reading.cutter.fill().messages == 0;
        let stays_open = reading.cutter.is_replaying() || is_empty;
        let mut gave_back = false;
        if stays_open
            && reading.closing.is_none()
            && let Some(open) = reading.block.take()
        {
            // The buffer would stay allocated for as long as the partition is stopped.
            self.row_buffers_made -= 1;
            open.abandon();
            gave_back = !is_empty;
        }
        self.yield_replay(reading);
        gave_back
    }
}
