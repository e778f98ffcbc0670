//! Makes ready what must be inserted although nobody owns its partition here, and counts what that may double.

use super::{Fits, Logs, OnlyCopy, Tables, Unsendable};
use crate::{
    delivery::{held::Ready, route::Route},
    signals::{account::RowAccount, metrics::Metrics},
    volume::{
        passport::Passport,
        spool::{LeftBlock, Spool},
    },
};
use std::sync::Arc;

/// What it takes to insert only copies.
#[derive(Clone)]
pub struct Adopter {
    /// The volume that they are on.
    pub spool: Spool,
    /// Where their rows are accounted for.
    pub account: RowAccount,
    /// Where what may be doubled is counted.
    pub metrics: Arc<Metrics>,
    /// Which shard they go to.
    pub route: Route,
    /// Where it is looked whether they fit.
    pub tables: Tables,
}

impl Adopter {
    /// A block, to be sent; `fits` are what this question has found of others.
    pub async fn ready(
        &self,
        (block, only): (&LeftBlock, OnlyCopy),
        logs: &Logs,
        fits: &mut Fits,
    ) -> Result<Ready, Unsendable> {
        let columns = fits.of(block, &self.spool, &self.tables).await?;
        let (id, range) = (block.partition(), block.range());
        let noted = block.token().and_then(|token| self.spool.noted(token, range));
        let parts = noted.or_else(|| logs.parts(&id, range));
        let ready = block.only_copy(parts, self.route, &self.account);
        let ready =
            ready.ok_or_else(|| Unsendable::Unfit("their tokens are none of this program's".to_owned()))?;
        // Another owner may have had them in flight: the same ranges, where they are known to everybody.
        let is_known =
            block.is_enqueued() || block.is_marked() || block.is_derivable() || logs.is_cut(&id, range.next);
        let is_known = is_known && !block.may_be_elsewhere(self.route);
        let others = if is_known { self.rows_of_others(block, only).await } else { block.rows() };
        self.metrics.guarantee.possible_duplicate_rows.inc_by(others);
        Ok(Ready { columns, ..ready })
    }

    /// Rows of messages that are in the table, or are read again, although others of the block are not.
    async fn rows_of_others(&self, block: &LeftBlock, only: OnlyCopy) -> u64 {
        if only.alone == block.range() {
            return 0;
        }
        let metadata = match self.spool.open(block.record()).await {
            Ok(record) => record.metadata().await.ok(),
            Err(_) => None,
        };
        let messages = metadata.and_then(|bytes| Passport::decode(&bytes, block.range()));
        // What cannot be told may be.
        let alone = messages.map_or(0, |(_, messages)| messages.rows_within(only.alone));
        block.rows().saturating_sub(alone)
    }
}
