//! What has become of the table, after the server refused rows.
//!
//! Place in the flow: delivery asks after a refusal that the table's columns may be the cause of; never otherwise. Owner: the
//! inserts share one. Limits: one question at a time; blocks that are refused while it is asked share its answer.
//!
//! | the table | what happens |
//! | --- | --- |
//! | fits as it did | the columns are not the cause; the block is tried on |
//! | does not fit | the reason is logged when it changes, `sluice_gateway_table_fits` is 0; blocks wait, and go in once it is mended |
//! | fits, with other columns | the process ends, and the next one encodes for them what was not committed |
//!
//! Why the process ends: sealed blocks hold rows for the old columns, and encoding them anew needs their messages, which
//! are Kafka's. A start reads them again from the committed offset: one way to do it, which every restart proves.

use crate::{
    ground::metrics::Metrics,
    table::{
        sink::{Error, Sink},
        table_watch::Described,
    },
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

/// The table's columns are others than those that rows are encoded for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the columns of table {table} have changed ({found}; rows are encoded for {encoded}): the gateway restarts to use them"
)]
pub struct TableChanged {
    table: String,
    found: String,
    encoded: String,
}

/// What was found when the table was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Described {
    /// It is as rows are encoded for.
    Unchanged,
    /// It is not, or it is gone: someone mends it, or a new start encodes for what it is now.
    Unfit,
    /// Nobody answered.
    Unknown,
}

/// The table was not looked at.
const NOTHING: Seen = Seen { looked: None, described: Described::Unknown, reason: String::new() };

/// Looks at the table after refusals.
pub struct TableWatch {
    sink: Sink,
    columns: TableColumns,
    metrics: Arc<Metrics>,
    /// Is told once, when nothing else can be done.
    changed: Box<dyn Fn(TableChanged) + Send + Sync>,
    seen: Mutex<Seen>,
    /// The table did not fit when it was looked at, and has taken no rows since.
    is_unfit: AtomicBool,
    /// It fits with other columns: the process ends.
    has_changed: AtomicBool,
}

/// What was seen last.
struct Seen {
    /// When the question began.
    looked: Option<Instant>,
    described: Described,
    /// What was said last; empty while the table fits.
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

    /// The table as it is after `refused`, the moment of a refusal: looks, or waits for the look of another block, unless
    /// that was done since.
    pub async fn described(&self, refused: Instant) -> Described {
        let mut seen = self.seen.lock().await;
        if seen.looked.is_none_or(|looked| looked < refused) {
            self.look(&mut seen).await;
        }
        seen.described
    }

    async fn look(&self, seen: &mut Seen) {
        // The answer is about the moment of the question.
        seen.looked = Some(Instant::now());
        seen.described = match self.sink.check_table().await {
            Ok(fit) if fit.columns == self.columns => {
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

    /// Takes down that rows went in.
    pub fn accepted(&self) {
        self.metrics.table_fits.set(1);
        self.is_unfit.store(false, Ordering::Relaxed);
    }

    /// Whether rows that are encoded now may be encoded for columns that the table does not have any more: Kafka must keep their messages,
    /// of which the next start makes rows that fit.
    pub fn is_unfit(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed) || self.is_unfit.load(Ordering::Relaxed)
    }

    fn tell_changed(&self, found: &TableColumns) {
        if !self.has_changed.swap(true, Ordering::Relaxed) {
            (self.changed)(TableChanged {
                table: self.sink.table_name(),
                found: found.to_string(),
                encoded: self.columns.to_string(),
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
