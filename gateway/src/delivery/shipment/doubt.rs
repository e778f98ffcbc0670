//! Blocks in doubt: asks whether they are stored, and counts possible duplicates.
//!
//! Owner: the shipment's task.

use super::Shipment;
use crate::delivery::tries::Next;
use sluice_clickhouse::{fate::Lost, outcome::Class};

impl Shipment {
    /// Asks the servers of its shard whether it is stored.
    pub(super) async fn ask_fate(&mut self) -> Next {
        self.permit = None;
        let query_id_start = self.shard.query_ids.start(&self.sending.token);
        let lost = Lost {
            query_id_start: &query_id_start,
            attempts: self.sending.tries.begun(),
            rows: self.sending.rows,
            since: self.sending.tries.first_sent(),
        };
        let fate = self.shard.delivery.sink.fate(&lost).await;
        let at = self.at();
        let Some(fate) = fate else {
            self.count_unanswered();
            return self.sending.tries.untold(&at);
        };
        tracing::info!(partition = %self.block.id, ?fate, "the outcome of a block in doubt was looked up");
        self.sending.tries.told(fate, &at)
    }

    /// Counts a try that ended before it was sent: the block is in doubt, and no server answers the question that the next send depends
    /// on. If ClickHouse is away, this becomes true of all blocks that may be sent, and no other metric would show that none is stored.
    pub(super) fn count_unanswered(&self) {
        self.shard.delivery.metrics.insert_failures.with_label_values(&[Class::InDoubt.label()]).inc();
    }

    /// Counts rows that are, or may be, elsewhere too, once. If a server takes inserts, they are counted before they are sent to it: this
    /// process may be killed before the answer, and Kafka may delete the messages before the next process reads them. Otherwise they are
    /// counted when they are stored.
    pub(super) fn count_elsewhere(&mut self) {
        let rows = std::mem::take(&mut self.rows_uncounted);
        self.shard.delivery.metrics.guarantee.possible_duplicate_rows.inc_by(rows);
    }

    /// Counts rows that are sent again although they may be stored.
    pub(super) fn count_double(&self, may_double: bool) {
        // Rows that may be elsewhere are counted on their own.
        if may_double && self.rows_elsewhere == 0 {
            self.shard.delivery.metrics.guarantee.possible_duplicate_rows.inc_by(self.sending.rows);
            tracing::warn!(
                partition = %self.block.id,
                rows = self.sending.rows,
                "rows are sent again after the server may have stored them and forgotten their token: they may be duplicated"
            );
        }
    }

    /// Reports since when it is in doubt, or that it no longer is.
    pub(super) fn tell_doubt(&mut self) {
        match (self.sending.tries.doubt_since(), self.doubt) {
            (Some(since), None) => {
                self.doubt = Some(self.shard.delivery.standing.enter_doubt(self.shard.place, since));
            }
            (None, Some(_)) => self.leave_doubt(),
            _ => {}
        }
    }

    /// Reports that it is no longer in doubt, or no longer this process's block.
    pub(super) fn leave_doubt(&mut self) {
        if let Some(number) = self.doubt.take() {
            self.shard.delivery.standing.leave_doubt(number);
        }
    }
}
