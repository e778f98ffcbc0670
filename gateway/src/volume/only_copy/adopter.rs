//! Makes ready what must be inserted although nobody owns its partition here, and counts what that may double.

use super::{Fits, Tables, Unsendable};
use crate::{
    delivery::{held::Ready, route::Route},
    signals::{account::RowAccount, metrics::Metrics},
    volume::spool::{InWriting, LeftBlock, Spool},
};
use std::sync::Arc;

/// A block that is the only copy of its rows, or of some, as the volume has it in writing.
pub struct Adoptee {
    block: LeftBlock,
    /// Rows of it that are in the table or are read again, or may be.
    rows_elsewhere: u64,
    /// Whether it could not be sent at once.
    has_waited: bool,
}

impl Adoptee {
    /// A block of which that was written down.
    pub fn new(block: LeftBlock, InWriting { rows_elsewhere, is_new }: InWriting) -> Self {
        Self { block, rows_elsewhere, has_waited: !is_new }
    }

    /// The block.
    pub fn block(&self) -> &LeftBlock {
        &self.block
    }

    /// It cannot be sent now.
    #[must_use]
    pub fn waiting(self) -> Self {
        Self { has_waited: true, ..self }
    }

    /// Whether someone may have sent it since it was found: an owner that had read its messages before Kafka had them no more. Of blocks
    /// whose offsets may be committed it is known who has.
    fn may_be_sent_since(&self) -> bool {
        self.has_waited && !self.block.is_enqueued()
    }
}

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
    /// A block, to be sent; `fits` are what this look at the table has found of others.
    pub async fn ready(&self, adoptee: &Adoptee, fits: &mut Fits) -> Result<Ready, Unsendable> {
        let block = &adoptee.block;
        // Before its columns: whoever gave the table those would have mended nothing.
        let token = block.token().ok_or(Unsendable::Foreign)?;
        let epoch = block.routing_epoch().unwrap_or(self.route.epoch());
        let place = self.route.place_of(epoch, &block.partition());
        let columns = fits.of(block, place, (&self.spool, &self.tables)).await?;
        let parts = self.spool.noted(token, block.range());
        let mut ready = block.only_copy((token, parts), self.route, &self.account);
        ready.columns = columns;
        ready.release.is_inherited |= adoptee.may_be_sent_since();
        let may_be_elsewhere = block.may_be_elsewhere(self.route);
        ready.rows_elsewhere = if may_be_elsewhere { block.rows() } else { adoptee.rows_elsewhere };
        Ok(ready)
    }
}
