//! Decides where the rows of blocks are, and lets the volume record the only copies before anything depends on it.
//!
//! ```text
//!  block -- Kafka's answers --> settled, or in Kafka ------------------------------> dropped
//!               |
//!               `---> only copy --> recorded, synced ---> OnlyCopyBlock --> inserted, however long that takes
//!                                           ^
//!  an earlier record -----------------------'   (whatever Kafka answers now)
//! ```
//!
//! The first record counts. Asked again, Kafka may answer differently: the partition's owner starts above the gap that made the block an
//! only copy. Once it has committed beyond the gap, the block looks settled, and the owner's plan does not have its parts.
//!
//! Owner: the process that asks about blocks. The volume records the results of all blocks of a question together.

use super::{Logs, OnlyCopy, OnlyCopyBlock, RowLocation};
use crate::{
    blocks::{message_rows::MessageRows, spool_metadata::SpoolMetadata},
    volume::spool::{InWriting, LeftBlock, Note, Spool},
};
use sluice_spool::BlockId;

/// The record that a block is the only copy of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub record: BlockId,
    /// Its rows that are, or may be, in the table or are read again.
    pub rows_elsewhere: u64,
    /// The progress of an owner of its partition that has sent it in parts.
    pub note: Option<Note>,
}

/// The results for blocks.
#[derive(Default)]
pub struct Judged {
    /// Their rows are in the table.
    pub settled: Vec<LeftBlock>,
    /// The owner of their partition reads their messages.
    pub in_kafka: Vec<LeftBlock>,
    /// The only copies of their rows, as recorded on the volume.
    pub only_copies: Vec<OnlyCopyBlock>,
}

impl Finding {
    /// For a block that is an only copy. `messages` has the message of each of its rows; `None` if unknown.
    pub fn of(block: &LeftBlock, only: OnlyCopy, messages: Option<&MessageRows>, logs: &Logs) -> Self {
        let rows_elsewhere = if only.is_late || !is_range_known(block, logs) || logs.may_be_renamed(block) {
            block.rows()
        } else if only.alone == block.range() {
            0
        } else {
            // If it is unknown, all of its rows may be elsewhere too.
            let alone = messages.map_or(0, |messages| messages.rows_within(only.alone));
            block.rows().saturating_sub(alone)
        };
        let parts = logs.parts(&block.partition(), block.range());
        let note = block.token().zip(parts).map(|(token, parts)| Note { token, range: block.range(), parts });
        Self { record: block.record(), rows_elsewhere, note }
    }
}

/// Whether every owner of the partition makes the same range, so that no rows of it are sent under another token.
fn is_range_known(block: &LeftBlock, logs: &Logs) -> bool {
    let (id, range) = (block.partition(), block.range());
    let is_cut = logs.is_cut(&id, range.next);
    let is_doubtful = block.is_doubtful() || logs.is_doubtful(&id, range);
    !is_doubtful && (block.is_enqueued() || block.is_marked() || block.is_derivable() || is_cut)
}

/// Decides where the rows of blocks are by Kafka's answers. Only copies are recorded when this returns.
pub async fn judge(blocks: Vec<LeftBlock>, logs: &Logs, spool: &Spool) -> Judged {
    let mut found = Vec::with_capacity(blocks.len());
    for block in &blocks {
        let finding = match logs.row_location(block) {
            RowLocation::OnlyCopy(only) => Some(find(block, only, logs, spool).await),
            RowLocation::Settled | RowLocation::InKafka => None,
        };
        found.push((block.record(), finding));
    }
    let written_before = spool.write_only_copies(found.clone()).await;
    let mut judged = Judged::default();
    for ((block, (_, finding)), before) in blocks.into_iter().zip(found).zip(written_before) {
        // Also new: a record that was written after the block was listed, when its partition was about to start.
        let is_new = |rows_elsewhere| InWriting { rows_elsewhere, is_new: true };
        let found = before.or(finding.map(|finding| finding.rows_elsewhere)).map(is_new);
        match (block.in_writing().or(found), logs.row_location(&block)) {
            (Some(in_writing), _) => judged.only_copies.push(OnlyCopyBlock::new(block, in_writing)),
            (None, RowLocation::Settled) => judged.settled.push(block),
            (None, _) => judged.in_kafka.push(block),
        }
    }
    judged
}

/// Reads the messages of rows only if they are needed.
async fn find(block: &LeftBlock, only: OnlyCopy, logs: &Logs, spool: &Spool) -> Finding {
    if only.alone == block.range() || !is_range_known(block, logs) {
        return Finding::of(block, only, None, logs);
    }
    let metadata = match spool.open(block.record()).await {
        Ok(record) => record.metadata().await.ok(),
        Err(_) => None,
    };
    let messages = metadata.and_then(|bytes| SpoolMetadata::decode(&bytes, block.range()));
    Finding::of(block, only, messages.as_ref().map(|(_, messages)| messages), logs)
}

#[cfg(test)]
mod tests;
