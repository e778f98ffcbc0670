//! Blocks that are sent as columns: `sink.clickhouse.insert.format: Native`.
//!
//! Job: transposes a block's rows into columns just before a try, off the I/O threads. Place in the flow: a shipment asks for it at each
//! try. Memory, the queue volume and parts always hold rows. Owner: shared by all shipments of the process.
//!
//! A block that cannot be transposed is sent as rows under the same token: ClickHouse accepts either as the same block
//! ([`sluice_clickhouse::native`]). Blocks on the queue volume are also sent as rows, because they are not decoded.
//!
//! Limits: one block is transposed at a time, in [`NATIVE_TURN_BYTES`] of memory; its frames are at most [`NATIVE_FRAMES_BYTES`].
//!
//! **Cost**: 1.3 µs of CPU per `rich` span, to decompress a frame's rows, read each value and compress the columns (`cargo throughput
//! --format native`, 23 November 2026). So one gateway transposes at most 0.75 million spans a second.

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

/// Transposes blocks into columns.
#[derive(Clone)]
pub struct Native {
    shape: Arc<NativeShape>,
    turn: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

impl Native {
    /// For rows of these columns; `None` unless the config asks for it and the columns support it.
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

    /// The block as columns. `None` if it is sent as rows: it is on the queue volume, or cannot be transposed.
    pub async fn body(&self, rows: &InsertBody) -> Option<InsertBody> {
        let chunks = rows.chunks()?.to_vec();
        let asked = Instant::now();
        let turn = self.turn.clone().acquire_owned().await.expect("the semaphore is never closed");
        let shape = self.shape.clone();
        let turned = tokio::task::spawn_blocking(move || {
            let turned = native::turned(&shape, &chunks);
            // Held by the work, not by the waiting shipment, which may be cancelled.
            drop(turn);
            turned
        });
        let turned = turned.await.expect("a panic ends the process");
        self.metrics.turn_seconds.observe(asked.elapsed().as_secs_f64());
        turned.map_err(|unfit| self.note(&unfit)).ok().map(InsertBody::native)
    }

    /// Logs each reason once, and counts every block.
    fn note(&self, unfit: &Unfit) {
        let count = self.metrics.blocks_not_turned.with_label_values(&[unfit.word()]);
        if count.get() == 0 {
            tracing::warn!(%unfit, "insert.format is Native, but a block is sent as rows; more of this reason are counted, not logged");
        }
        count.inc();
    }
}
