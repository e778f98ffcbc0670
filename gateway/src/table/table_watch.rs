//! Checks the table after the server has refused rows.
//!
//! Place in the flow: delivery uses it only after a refusal that the table's columns may have caused. Owner: shared by the inserts.
//! Limits: one question at a time; blocks that are refused meanwhile share its answer.
//!
//! | the table | what happens |
//! | --- | --- |
//! | fits as before, or has further optional columns | the columns are not the cause; the block is retried |
//! | does not fit | the reason is logged when it changes, `sluice_gateway_table_fits` is 0; blocks wait, and are inserted once it is fixed |
//! | fits, with other columns | the process ends, and the next one encodes the uncommitted messages for them |
//!
//! The process ends because sealed blocks hold rows for the old columns. Encoding them again needs their messages, which only Kafka has. A
//! start reads them again from the committed offset, as every restart does.

use crate::{
    ground::metrics::Metrics,
    table::sink::{Error, Sink},
};
use sluice_clickhouse::column::TableColumns;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use tokio::sync::Mutex;

/// The table's columns are no longer those that rows are encoded for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the columns of table {table} have changed ({found}; rows are encoded for {encoded}): the gateway restarts to use them"
)]
pub struct TableChanged {
    table: String,
    found: String,
    encoded: String,
}

/// The result of a look at the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Described {
    /// It has the columns that rows are encoded for.
    Unchanged,
    /// It has not, or it is gone: someone must fix it, or a restart encodes for its new columns.
    Unfit,
    /// No server answered.
    Unknown,
}

/// The table was not looked at.
const NOTHING: Seen = Seen { looked: None, described: Described::Unknown, reason: String::new() };

/// Checks the table after refusals.
pub struct TableWatch {
    sink: Sink,
    columns: TableColumns,
    metrics: Arc<Metrics>,
    /// Called once when only a restart helps.
    changed: Box<dyn Fn(TableChanged) + Send + Sync>,
    seen: Mutex<Seen>,
    /// Whether the table did not fit at the last look, and has accepted no rows since.
    is_unfit: AtomicBool,
    /// Whether it fits with other columns, so that the process ends.
    has_changed: AtomicBool,
}

/// The last result.
struct Seen {
    /// When the question started.
    looked: Option<Instant>,
    described: Described,
    /// The last logged reason; empty while the table fits.
    reason: String,
}

impl TableWatch {
    /// Watches a table that fitted with these columns. `changed` must not block.
    pub fn new(
        sink: Sink,
        columns: TableColumns,
        metrics: Arc<Metrics>,
        changed: impl Fn(TableChanged) + Send + Sync + 'static,
    ) -> Self {
        metrics.table_fits.set(1);
        let (changed, seen) = (Box::new(changed), Mutex::new(NOTHING));
        let (is_unfit, has_changed) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { sink, columns, metrics, changed, seen, is_unfit, has_changed }
    }

    /// The state of the table after `refused`, the moment of a refusal: asks, or waits for another block's question, unless one was asked
    /// since.
    pub async fn described(&self, refused: Instant) -> Described {
        let mut seen = self.seen.lock().await;
        if seen.looked.is_none_or(|looked| looked < refused) {
            self.look(&mut seen).await;
        }
        seen.described
    }

    async fn look(&self, seen: &mut Seen) {
        // The answer describes the moment of the question.
        seen.looked = Some(Instant::now());
        seen.described = match self.sink.check_table().await {
            // An optional column that was added since, or that another shard lacks, is filled from the next start on.
            Ok(fit) if fit.columns.limited_to(self.columns.optional) == self.columns => {
                seen.reason.clear();
                Described::Unchanged
            }
            Ok(fit) => {
                self.tell_changed(&fit.columns);
                Described::Unfit
            }
            Err(error) if error.is_about_the_table() => {
                tell_reason(seen, &error);
                Described::Unfit
            }
            Err(error) => {
                tracing::debug!(%error, "the table cannot be described after a refusal");
                Described::Unknown
            }
        };
        if seen.described != Described::Unknown {
            self.metrics.table_fits.set(i64::from(seen.described == Described::Unchanged));
            self.is_unfit.store(seen.described == Described::Unfit, Ordering::Relaxed);
        }
    }

    /// Records that rows were inserted.
    pub fn accepted(&self) {
        self.metrics.table_fits.set(1);
        self.is_unfit.store(false, Ordering::Relaxed);
    }

    /// Whether new rows may be encoded for columns that the table no longer has. Then Kafka must keep their messages, and the next start
    /// makes rows that fit.
    pub fn is_unfit(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed) || self.is_unfit.load(Ordering::Relaxed)
    }

    fn tell_changed(&self, found: &TableColumns) {
        if !self.has_changed.swap(true, Ordering::Relaxed) {
            (self.changed)(TableChanged {
                table: self.sink.table_name(),
                found: found.text(),
                encoded: self.columns.text(),
            });
        }
    }
}

fn tell_reason(seen: &mut Seen, error: &Error) {
    let reason = error.to_string();
    if reason != seen.reason {
        tracing::error!("rows wait: {reason}; they are inserted once the table is fixed");
        seen.reason = reason;
    }
}
