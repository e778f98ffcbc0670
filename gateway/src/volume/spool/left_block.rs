//! A block that an earlier run has left on the volume: what its record says of it, and how it is sent.
//!
//! Owner: [`Leftovers`](super::Leftovers) until its partition takes it over, then the one who sends it. Its bytes stay on the volume.

use crate::{
    blocks::{block::Block, message_rows::MessageRows, spool_metadata::SpoolMetadata},
    ground::{account::RowAccount, route::Route},
    volume::{
        block_frames::BlockFrames,
        only_copy::BlockFacts,
        ready_block::{BlockWithFrames, Ready},
    },
};
use sluice_ranges::{
    ClusterNumber, Destination, Generation, OffsetRange, PartitionId, RefusedParts, Release, SpooledRange,
    Token,
};
use sluice_spool::{BlockHead, BlockId, BodyError, Directory, Fatal, Held, Queue, ReadError, Sent};
use std::sync::Arc;

/// A block that an earlier run has left.
pub struct LeftBlock {
    pub(super) id: BlockId,
    pub(super) head: BlockHead,
    sent: Sent,
    appended_ms: u64,
    pub(super) only_copy: Option<InWriting>,
    /// Whether Kafka had its messages when its partition was about to start before them: then they are read again.
    pub(super) is_read_again: bool,
    relied_on: Option<bool>,
    pub(super) spool_metadata: Option<SpoolMetadata>,
}

/// Which blocks a partition may take over.
#[derive(Debug, Clone, Copy)]
pub struct Takeable<'a> {
    /// The Kafka cluster's id.
    pub cluster: &'a str,
    /// Its [former](sluice_kafka::Beginning::former_cluster) id, as a number.
    pub former: Option<ClusterNumber>,
    /// The number of the columns that they must be encoded for.
    pub columns: u64,
}

/// The volume's record that a block is the only copy of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InWriting {
    /// Its rows that are, or may be, elsewhere too.
    pub rows_elsewhere: u64,
    /// Whether it was found in this run.
    pub is_new: bool,
}

impl LeftBlock {
    /// Reads a block on the volume, and the message of each of its rows, if that is known. `None` if its header cannot be read any more;
    /// an error if the volume has failed.
    pub(super) fn read(
        queue: &Queue<Directory>,
        held: &Held<'_>,
    ) -> Result<Option<(Self, Option<MessageRows>)>, Fatal> {
        let (header, mut content) = match queue.read(held.id) {
            Ok(read) => read,
            Err(ReadError::Failed(fatal)) => return Err(fatal),
            Err(ReadError::Absent(_) | ReadError::Damaged(_)) => return Ok(None),
        };
        let mut metadata = vec![0; usize::try_from(header.metadata_bytes).unwrap_or(0)];
        let is_read = match content.read(&mut metadata) {
            Ok(_) => true,
            Err(BodyError::Damaged(_)) => false,
            Err(BodyError::Failed(fatal)) => return Err(fatal),
        };
        let range = OffsetRange { first: header.first, next: header.next };
        let (spool_metadata, messages) = SpoolMetadata::decode(&metadata, range).filter(|_| is_read).unzip();
        let Held { id, sent, appended_ms, relied_on, .. } = *held;
        let only_copy = held.only_copy.map(|rows_elsewhere| InWriting { rows_elsewhere, is_new: false });
        let is_read_again = false;
        let block =
            Self { id, head: header, sent, appended_ms, only_copy, is_read_again, relied_on, spool_metadata };
        Ok(Some((block, messages)))
    }

    /// Whether this program can read its metadata.
    pub(super) fn has_passport(&self) -> bool {
        self.spool_metadata.is_some()
    }

    /// Its range, if it can be taken over: read from the cluster, encoded for the columns.
    pub(super) fn kept(&self, takeable: Takeable<'_>) -> Option<SpooledRange> {
        let Takeable { cluster, former, columns } = takeable;
        let of = &*self.spool_metadata.as_ref()?.cluster;
        let is_renamed = of != cluster && former == Some(ClusterNumber::of(of));
        let fits = (of == cluster || is_renamed) && self.head.columns == columns && self.token().is_some();
        let kept = self.spool_metadata.as_ref()?.kept.filter(|_| fits)?;
        Some(SpooledRange { is_renamed, ..kept })
    }

    /// The record that it is the only copy of its rows, if there is one.
    pub fn in_writing(&self) -> Option<InWriting> {
        self.only_copy
    }

    pub fn record(&self) -> BlockId {
        self.id
    }

    pub fn partition(&self) -> PartitionId {
        PartitionId { topic: self.head.topic.clone(), partition: self.head.partition }
    }

    /// Its offsets.
    pub fn range(&self) -> OffsetRange {
        OffsetRange { first: self.head.first, next: self.head.next }
    }

    /// The epoch of the route on which its range was first sent, if that was recorded.
    pub fn routing_epoch(&self) -> Option<u32> {
        self.head.routing_epoch
    }

    pub fn rows(&self) -> u64 {
        self.head.rows
    }

    /// The number of the columns that it was encoded for.
    pub fn columns(&self) -> u64 {
        self.head.columns
    }

    /// The cluster that its messages were read from, if that is known.
    pub fn cluster(&self) -> Option<&str> {
        self.spool_metadata
            .as_ref()
            .map(|spool_metadata| &*spool_metadata.cluster)
            .filter(|cluster| !cluster.is_empty())
    }

    /// Its deduplication token; `None` for a token of another version.
    pub fn token(&self) -> Option<Token> {
        std::str::from_utf8(&self.head.token).ok().and_then(Token::parse)
    }

    /// Whether its offsets may be committed while it is on the volume.
    pub fn is_enqueued(&self) -> bool {
        // Its metadata may be another version's.
        self.spool_metadata
            .as_ref()
            .map_or(self.relied_on == Some(true), |spool_metadata| spool_metadata.is_enqueued)
    }

    /// The facts for [`row_location`](crate::volume::only_copy::row_location).
    pub fn subject(&self) -> BlockFacts<'_> {
        BlockFacts { range: self.range(), cluster: self.cluster(), is_enqueued: self.is_enqueued() }
    }

    /// Whether it may be on another shard than its current one: it may have been sent, and the destination was not recorded.
    pub fn may_be_elsewhere(&self, route: Route) -> bool {
        let may_be_sent = self.is_marked() || (self.is_enqueued() && self.sent != Sent::Sole);
        may_be_sent && self.head.routing_epoch.is_none() && route.shards() > 1
    }

    /// Whether an earlier owner may have sent some of its messages under another token.
    pub fn is_doubtful(&self) -> bool {
        self.spool_metadata.as_ref().is_some_and(|spool_metadata| spool_metadata.is_doubtful)
    }

    /// Whether it was sent, or may have been.
    pub fn is_marked(&self) -> bool {
        self.sent.is_marked()
    }

    /// Whether the end of its range follows from the log alone.
    pub fn is_derivable(&self) -> bool {
        self.spool_metadata
            .as_ref()
            .and_then(|spool_metadata| spool_metadata.kept)
            .is_some_and(|kept| kept.is_derivable)
    }

    /// Prepares it to be inserted regardless of who owns its partition, because no process reads its messages again; `parts` is its
    /// progress if it was sent in parts.
    pub fn only_copy(
        &self,
        (token, parts): (Token, Option<RefusedParts>),
        route: Route,
        account: &RowAccount,
    ) -> Ready {
        let spool_metadata = self.spool_metadata.clone().unwrap_or_default();
        // No generation of a partition has this number.
        let block = sealed(self, (&self.partition(), Generation(0)), (token, spool_metadata), account);
        let sealed = BlockWithFrames { block, frames: BlockFrames::only_copy(self.id, self.is_marked()) };
        let first_sent = match self.sent {
            Sent::At(ms) => ms / 1_000,
            // The commit for which it was appended may not have been stored: then another owner has sent it, later than its append.
            Sent::Never | Sent::Sole => self.appended_ms / 1_000,
            // The time is unknown: the token counts as forgotten.
            Sent::Doubtful => 0,
        };
        let release = Release {
            range: self.range(),
            first_sent,
            is_inherited: self.is_marked() || (self.is_enqueued() && self.sent != Sent::Sole),
            parts,
            routing_epoch: self.head.routing_epoch.unwrap_or(route.epoch()),
            destination: self.head.destination.and_then(Destination::of_number),
        };
        Ready { sealed, release, generation: Arc::default(), columns: None, rows_elsewhere: 0 }
    }
}

#[cfg(test)]
impl LeftBlock {
    /// The same block with a token that another version of this program may have given it.
    pub(crate) fn under_a_foreign_token(mut self) -> Self {
        self.head.token = Box::from(&b"of another version"[..]);
        self
    }
}

/// The block, for a generation of its partition.
pub(super) fn sealed(
    left: &LeftBlock,
    (id, generation): (&PartitionId, Generation),
    (token, spool_metadata): (Token, SpoolMetadata),
    account: &RowAccount,
) -> Block {
    let head = &left.head;
    let mut open = account.open();
    // An earlier run has read them.
    open.walked(head.rows);
    Block {
        id: id.clone(),
        generation,
        range: OffsetRange { first: head.first, next: head.next },
        token,
        rows: head.rows,
        account: open.seal(head.rows),
        // They are read with the frames if the server refuses rows.
        messages: MessageRows::default(),
        raw_bytes: head.raw_bytes,
        frames: Vec::new(),
        bytes: 0,
        span_end_nanos_max: head.span_end_nanos_max,
        spool_metadata,
    }
}
