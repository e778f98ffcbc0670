//! How a block is sent: as rows or transposed into columns, and for which columns of the table.
//!
//! Owner: the shipment's task. A block that an earlier run has left on the queue volume may have been encoded for other columns than new
//! rows. It is sent with the current names and types of its columns ([`sluice_clickhouse::table::check_encoded`]), and waits while the
//! table lacks them.

use super::Shipment;
use crate::table::{
    sink::{Sink, Targets},
    table_watch::Described,
};
use sluice_clickhouse::{
    body::InsertBody,
    column::TableColumns,
    insert::InsertError,
    outcome::{self, Class},
    row_ends::RowShape,
};
use std::sync::Arc;

/// The columns that a block was encoded for, if they are not those of new rows.
pub(super) struct Encoded {
    columns: Arc<TableColumns>,
    targets: Targets,
    shape: Arc<RowShape>,
}

impl Encoded {
    /// For these columns, with the table's names of their types.
    pub fn new(sink: &Sink, columns: Arc<TableColumns>) -> Self {
        let targets = targets(sink, &columns);
        Self { targets, shape: Arc::new(RowShape::of(&columns)), columns }
    }

    /// Checks whether the table still has them, and the current names of their types.
    async fn look(&mut self, sink: &Sink) -> Described {
        match sink.check_encoded(&self.columns).await {
            Ok(columns) => {
                self.targets = targets(sink, &columns);
                Described::Unchanged
            }
            Err(error) if error.is_about_the_table() => {
                tracing::debug!(%error, "a block with other columns does not fit the table");
                Described::Unfit
            }
            Err(error) => {
                tracing::debug!(%error, "the table cannot be described after a refusal");
                Described::Unknown
            }
        }
    }
}

fn targets(sink: &Sink, columns: &TableColumns) -> Targets {
    sink.targets(columns).expect("the sink has made targets of this user and timeout before")
}

impl Shipment {
    /// The statements and servers for its INSERTs.
    pub(super) fn targets(&self) -> &Targets {
        self.encoded.as_ref().map_or(&self.shard.delivery.targets, |encoded| &encoded.targets)
    }

    /// How to find the rows in its body.
    pub(super) fn shape(&self) -> Arc<RowShape> {
        self.encoded.as_ref().map_or(&self.shard.delivery.shape, |encoded| &encoded.shape).clone()
    }

    /// Checks the table after a refusal that its columns may have caused.
    pub(super) async fn look_at_table(&mut self) -> Described {
        let Self { encoded, shard, refused, .. } = self;
        match encoded {
            Some(encoded) => encoded.look(&shard.delivery.sink).await,
            None => shard.delivery.watch.described(*refused).await,
        }
    }

    /// The body of this try as columns. `None` if it is sent as rows: parts, and blocks that were found not to fit columns. Also `None`
    /// if its generation ends meanwhile.
    pub(super) async fn native(&mut self, rows: &InsertBody) -> Option<InsertBody> {
        if self.is_in_parts || self.goes_as_rows {
            return None;
        }
        let native = self.shard.delivery.native.clone()?;
        let body = tokio::select! {
            body = native.body(rows) => body,
            () = self.over() => return None,
        };
        self.goes_as_rows = body.is_none() && rows.chunks().is_some();
        body
    }

    /// Handles a refusal of the block as columns, which says nothing about its rows. The rows are sent next, whole and under the same
    /// token, and that answer counts.
    pub(super) fn refused_as_columns(&mut self, error: &mut InsertError) {
        if !outcome::is_servers(error.code) || error.class == Class::BackPressure {
            return;
        }
        self.goes_as_rows = true;
        self.shard.delivery.metrics.blocks_not_turned.with_label_values(&["refused"]).inc();
        if matches!(error.class, Class::Poison | Class::RefreshSchema | Class::Halt) {
            error.class = Class::Retry;
        }
    }
}
