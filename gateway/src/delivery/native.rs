//! Blocks that go as columns: `sink.clickhouse.insert.format: Native`.
//!
//! Job: turn a block's rows into columns right before they are sent, off the I/O threads. Place in the flow: a shipment asks for it per try;
//! what is kept in memory, on the queue volume and for parts stays rows. Owner: all shipments of the process share it.
//!
//! A block that cannot be turned goes as rows, under the same token: ClickHouse takes either for the same block
//! ([`sluice_clickhouse::native`]). So does what comes from the queue volume, which leaves without being decoded.
//!
//! Limits: one block is turned at a time, in [`NATIVE_TURN_BYTES`] of memory; its frames are at most [`NATIVE_FRAMES_BYTES`].
//!
//! **Cost**: a frame's rows are decompressed, read value by value, and columns compressed; 1.3 µs of CPU a `rich` span (`cargo throughput --format
//! native`, 23 November 2026), so that one gateway turns 0.75 million a second at the most.

use crate::ground::metrics::Metrics;
use sluice_clickhouse::{
    body::InsertBody,
    column::TableColumns,
    native::{self, NativeShape, Unfit},
};
use sluice_gateway_config::{
    InsertFormat,
    budget::{NATIVE_FRAMES_BYTES, NATIVE_TURN_BYTES},
};
use std::{sync::Arc, time::Instant};
use tokio::sync::Semaphore;

const _: () = assert!(
    native::MEMORY_BYTES_MAX as u64 <= NATIVE_TURN_BYTES
        && native::FRAMES_BYTES_MAX as u64 <= NATIVE_FRAMES_BYTES,
    "a block as columns needs more than the budget counts"
);

/// Turns blocks into columns.
#[derive(Clone)]
pub struct Native {
    shape: Arc<NativeShape>,
    turn: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Native {
    /// For rows of these columns, if the config asks for it and they can be turned.
    pub fn of(format: InsertFormat, columns: &TableColumns, metrics: &Arc<Metrics>) -> Option<Self> {
        if format == InsertFormat::RowBinary {
            return None;
        }
        match NativeShape::of(columns) {
            Ok(shape) => Some(Self {
                shape: Arc::new(shape),
                turn: Arc::new(Semaphore::new(1)),
                metrics: metrics.clone(),
            }),
            Err(column) => {
                tracing::warn!(
                    column,
                    "insert.format is Native, but this column's type can only be sent as rows: all blocks are sent as rows"
                );
                None
            }
        }
    }

    /// The block as columns. `None` when it goes as rows: it lies on the queue volume, or cannot be turned.
    pub async fn body(&self, rows: &InsertBody) -> Option<InsertBody> {
        let chunks = rows.chunks()?.to_vec();
        let asked = Instant::now();
        let turn = self.turn.clone().acquire_owned().await.expect("the semaphore is never closed");
        let shape = self.shape.clone();
        let turned = tokio::task::spawn_blocking(move || {
            let turned = native::turned(&shape, &chunks);
            // With the work, and not with whoever waits for it: that may be given up.
            drop(turn);
            turned
        });
        let turned = turned.await.expect("a panic ends the process");
        self.metrics.turn_seconds.observe(asked.elapsed().as_secs_f64());
        turned.map_err(|unfit| self.note(&unfit)).ok().map(InsertBody::native)
    }

    /// One line for each reason, and a number.
    fn note(&self, unfit: &Unfit) {
        let count = self.metrics.blocks_not_turned.with_label_values(&[unfit.word()]);
        if count.get() == 0 {
            tracing::warn!(%unfit, "insert.format is Native, but a block is sent as rows; more of this reason are counted, not logged");
        }
        count.inc();
    }
}
