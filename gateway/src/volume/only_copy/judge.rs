//! Finds out what is true of blocks, and has the volume write down of which it has the only copy, before anybody goes by it.
//!
//! ```text
//!  block -- what Kafka says --> settled, or in Kafka ------------------------------> dropped
//!               |
//!               `---> nowhere else --> written down, synced --> OnlyCopyBlock --> inserted, however long that takes
//!                                           ^
//!  a mark of before ------------------------'   (whatever Kafka says by now)
//! ```
//!
//! What was written down first stands. Asked again, Kafka may say something else: whoever owns the partition begins above the gap that made
//! the block an only copy, and once they have committed behind it, it looks settled. Their plan does not know its parts then either.
//!
//! Owner: whoever asks about blocks. The volume writes in one go what was found of all of them.

use super::{Logs, OnlyCopy, OnlyCopyBlock, RowLocation};
use crate::{
    blocks::{message_rows::MessageRows, spool_metadata::SpoolMetadata},
    volume::spool::{InWriting, LeftBlock, Note, Spool},
};
use sluice_spool::BlockId;

/// That a block is the only copy of its rows, as it is to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its record.
    pub record: BlockId,
    /// Rows of it that are in the table or are read again, or may be.
    pub rows_elsewhere: u64,
    /// How far an owner of its partition has sent it in parts.
    pub note: Option<Note>,
}

/// What was found of blocks.
#[derive(Default)]
pub struct Judged {
    /// Their rows are in the table.
    pub settled: Vec<LeftBlock>,
    /// Whoever owns their partition reads their messages.
    pub in_kafka: Vec<LeftBlock>,
    /// Their rows are nowhere else; the volume has that in writing.
    pub only_copies: Vec<OnlyCopyBlock>,
}

impl Finding {
    /// Of a block of which `only` is true. `messages` says which message each of its rows is of; `None` where nobody knows.
    pub fn of(block: &LeftBlock, only: OnlyCopy, messages: Option<&MessageRows>, logs: &Logs) -> Self {
        let rows_elsewhere = if only.is_late || !is_range_known(block, logs) {
            block.rows()
        } else if only.alone == block.range() {
            0
        } else {
            // What cannot be told may be.
            let alone = messages.map_or(0, |messages| messages.rows_within(only.alone));
            block.rows().saturating_sub(alone)
        };
        let parts = logs.parts(&block.partition(), block.range());
        let note = block.token().zip(parts).map(|(token, parts)| Note { token, range: block.range(), parts });
        Self { record: block.record(), rows_elsewhere, note }
    }
}

/// Whether every owner of the partition makes the same range: then none has sent, or sends, rows of it under another token.
fn is_range_known(block: &LeftBlock, logs: &Logs) -> bool {
    let is_cut = logs.is_cut(&block.partition(), block.range().next);
    block.is_enqueued() || block.is_marked() || block.is_derivable() || is_cut
}

/// Finds out what is true of blocks by what Kafka says. What is an only copy is written down once this has returned.
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
        // What was written down since the block was listed, as its partition was about to begin, is new too.
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

/// Reads which message each row is of only where that is asked.
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
