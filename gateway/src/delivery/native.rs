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
//! **Cost**, see the benchmark's `native` stage: the rows of a frame are decompressed, read value by value, and columns compressed.

use crate::signals::metrics::Metrics;
use sluice_clickhouse::{
    body::InsertBody,
    column::TableColumns,
    native::{self, NativeShape},
};
use sluice_gateway_config::{
    InsertFormat,
    budget::{NATIVE_FRAMES_BYTES, NATIVE_TURN_BYTES},
};
use std::sync::Arc;
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
                    "insert.format is Native, but this column's type is sent as rows only: all blocks go as rows"
                );
                None
            }
        }
    }

    /// The block as columns. `None` when it goes as rows: it lies on the queue volume, or cannot be turned.
    pub async fn body(&self, rows: &InsertBody) -> Option<InsertBody> {
        let chunks = rows.chunks()?.to_vec();
        let _turn = self.turn.acquire().await.expect("the semaphore is never closed");
        let shape = self.shape.clone();
        let turned = tokio::task::spawn_blocking(move || native::turned(&shape, &chunks)).await;
        match turned.expect("a panic ends the process") {
            Ok(frames) => Some(InsertBody::native(frames)),
            Err(unfit) => {
                tracing::debug!(%unfit, "a block goes as rows");
                self.metrics.blocks_not_turned.with_label_values(&[unfit.word()]).inc();
                None
            }
        }
    }
}
