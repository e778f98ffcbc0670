//! Prepares only copies for their insert, and counts their possible duplicates.

use super::{Fits, Tables, Unsendable};
use crate::{
    ground::{account::RowAccount, metrics::Metrics, route::Route},
    volume::{
        ready_block::Ready,
        spool::{InWriting, LeftBlock, Spool},
    },
};
use sluice_ranges::OffsetRange;
use std::sync::Arc;

/// A block that the volume records as the only copy of all or some of its rows.
pub struct OnlyCopyBlock {
    block: LeftBlock,
    /// Its rows that are, or may be, in the table or are read again.
    rows_elsewhere: u64,
    /// Whether it could not be sent at once.
    has_waited: bool,
}

impl OnlyCopyBlock {
    /// A block with its record.
    pub fn new(block: LeftBlock, InWriting { rows_elsewhere, is_new }: InWriting) -> Self {
        Self { block, rows_elsewhere, has_waited: !is_new }
    }

    pub fn block(&self) -> &LeftBlock {
        &self.block
    }

    /// Records that it cannot be sent now.
    #[must_use]
    pub fn waiting(self) -> Self {
        Self { has_waited: true, ..self }
    }

    /// Whether an owner that read its messages before Kafka deleted them may have sent it since it was found. For blocks whose offsets
    /// may be committed, the volume records the senders.
    fn may_be_sent_since(&self) -> bool {
        self.has_waited && !self.block.is_enqueued()
    }
}

/// What is needed to insert only copies.
#[derive(Clone)]
pub struct OnlyCopySender {
    /// The volume that they are on.
    pub spool: Spool,
    /// Counts their rows.
    pub account: RowAccount,
    /// Counts lost rows, and blocks that wait until someone acts.
    pub metrics: Arc<Metrics>,
    /// The shard of each block.
    pub route: Route,
    /// The tables to check their columns against.
    pub tables: Tables,
}

impl OnlyCopySender {
    /// Prepares a block to be sent; `fits` has the results of this check for other blocks.
    pub async fn ready(&self, only_copy: &OnlyCopyBlock, fits: &mut Fits) -> Result<Ready, Unsendable> {
        let block = &only_copy.block;
        // Checked before the columns: with a foreign token, adding columns to the table would not help.
        let token = block.token().ok_or(Unsendable::Foreign)?;
        let epoch = block.routing_epoch().unwrap_or(self.route.epoch());
        let place = self.route.place_of(epoch, &block.partition());
        let columns = fits.of(block, place, (&self.spool, &self.tables)).await?;
        let noted = self.spool.noted(token, block.range()).await;
        let is_unknown = noted.is_damaged();
        let mut ready = block.only_copy((token, noted.whole()), self.route, &self.account);
        ready.columns = columns;
        ready.release.is_inherited |= only_copy.may_be_sent_since();
        let may_be_elsewhere = block.may_be_elsewhere(self.route) || is_unknown;
        ready.rows_elsewhere = if may_be_elsewhere { block.rows() } else { only_copy.rows_elsewhere };
        if is_unknown {
            say_unknown(block);
        }
        Ok(ready)
    }
}

/// Logs that it is unknown which parts of a block are stored.
fn say_unknown(block: &LeftBlock) {
    let OffsetRange { first, next } = block.range();
    tracing::error!(
        partition = %block.partition(),
        first,
        next,
        rows = block.rows(),
        "the file that records the sent parts of a block is damaged; the block is sent from its start, and its rows may be duplicated"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ground::metrics::reference,
        volume::{
            spool::Note,
            test_volume::{TestTable, Volume, sealed},
        },
    };
    use sluice_ranges::RefusedParts;
    use std::time::Duration;
    use std::time::Instant;

    /// A volume on which an earlier run has left the offsets from 20 to 30, and its progress with them in parts.
    async fn left_in_parts(volume: &Volume) -> (Spool, RefusedParts) {
        let mut test = TestTable::new(&volume.open(64 << 20));
        let added = test.table.add(sealed(&test.pool, 20, false), 9, 0, Instant::now());
        let block = added.block;
        let parts =
            RefusedParts { check: block.token.check(), rows: 90, height: 2, code: 117, refused: vec![0, 3] };
        test.spool.note(Note { token: block.token, range: block.range, parts: parts.clone() }).await;
        block.account.settled();
        assert!(test.spill(&added.frames));
        test.arrive().await;
        assert!(test.spool.close(Duration::from_mins(1)));
        (volume.open(64 << 20), parts)
    }

    /// The parts with which its only block continues, and its possible duplicates. It is the only copy of all of its rows.
    async fn ready(spool: &Spool) -> (Option<RefusedParts>, u64) {
        let block = spool.left().take_all().remove(0);
        let columns = block.columns();
        let found = OnlyCopyBlock::new(block, InWriting { rows_elsewhere: 0, is_new: true });
        let metrics = Arc::new(reference::metrics());
        let sender = OnlyCopySender {
            spool: spool.clone(),
            account: RowAccount::default(),
            metrics: metrics.clone(),
            route: Route::new(1),
            tables: Tables { columns, shards: Vec::new() },
        };
        let ready = sender.ready(&found, &mut Fits::default()).await.unwrap();
        ready.sealed.block.account.settled();
        (ready.release.parts, ready.rows_elsewhere)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_block_in_parts_is_gone_on_with_and_may_be_doubled_where_nobody_knows_how_far_it_is() {
        let volume = Volume::new("adopted");
        let (spool, parts) = left_in_parts(&volume).await;
        assert_eq!(ready(&spool).await, (Some(parts), 0));
        assert!(spool.close(Duration::from_mins(1)));
        let is_note = |path: &&std::path::PathBuf| path.to_string_lossy().contains("/parts-");
        let note = volume.files().iter().find(is_note).unwrap().clone();
        let text = std::fs::read_to_string(&note).unwrap();
        std::fs::write(note, &text[..text.len() - 1]).unwrap();
        assert_eq!(ready(&volume.open(64 << 20)).await, (None, 7), "all of its rows");
    }
}
