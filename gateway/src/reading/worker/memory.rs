//! Reports a worker's use of its parts of the memory budget as metrics.
//!
//! Owner: the worker thread, once a turn; never per span. Workers share a gauge, so each adds the change of its own use.

use super::Worker;
use sluice_gateway_config::budget::{LETTER_QUEUE_BYTES, LETTERS_BYTES, ROW_BUFFER_BYTES};

/// The values that were reported last, in bytes.
#[derive(Debug, Default)]
pub(super) struct Told {
    rows: i64,
    scratch: i64,
}

impl Worker {
    /// Reports the worker's memory and that of all letters.
    pub(super) fn tell_memory(&mut self) {
        let count = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let rows = count((self.row_buffers_made as u64).saturating_mul(ROW_BUFFER_BYTES));
        let scratch = count(self.scratch.memory_bytes() as u64);
        let parts = &self.parts.metrics.memory_parts;
        parts.rows.add(rows - self.told.rows);
        parts.workers.add(scratch - self.told.scratch);
        parts
            .letters
            .set(count(self.parts.dead_letters.bytes().saturating_mul(LETTERS_BYTES / LETTER_QUEUE_BYTES)));
        self.told = Told { rows, scratch };
    }
}
