//! Chooses the segment for the next record, and removes files if there is no room.
//!
//! Owner: [`Queue`]. Its limits are enforced here: bytes, blocks and segments.

use super::{AppendError, Full, Queue, Unfit};
use crate::{
    files::{Fatal, Files},
    format::{
        BODY_BYTES_MAX, Kind, METADATA_BYTES_MAX, QUEUE_BLOCKS_MAX, RECORD_HEADER_BYTES, RECORDS_AT,
        SEGMENTS_MAX, TOKEN_BYTES_MAX, TOPIC_BYTES_MAX, name,
    },
    record::BlockHead,
    segment::Segment,
};

impl<F: Files> Queue<F> {
    /// Whether this queue could ever accept a block.
    pub(super) fn fits(&self, head: &BlockHead, body_bytes: u64) -> Result<(), Unfit> {
        if head.topic.is_empty() || head.topic.len() > TOPIC_BYTES_MAX {
            return Err(Unfit::Topic);
        }
        if head.token.len() > TOKEN_BYTES_MAX {
            return Err(Unfit::Token);
        }
        let metadata_bytes = u64::from(head.metadata_bytes);
        if metadata_bytes > METADATA_BYTES_MAX.min(body_bytes) {
            return Err(Unfit::Metadata(head.metadata_bytes));
        }
        let alone = body_bytes.saturating_add(RECORD_HEADER_BYTES as u64).saturating_add(RECORDS_AT);
        if body_bytes > BODY_BYTES_MAX || alone > self.options.bytes_max {
            return Err(Unfit::Bytes(body_bytes));
        }
        Ok(())
    }

    /// The sequence of the segment for a record of this many bytes.
    pub(super) fn make_room(&mut self, record_bytes: u64) -> Result<u64, AppendError> {
        let newest = self.segments.last_key_value().map(|(sequence, segment)| (*sequence, segment.live));
        match self.room(record_bytes) {
            Ok(Some(sequence)) => return Ok(sequence),
            Ok(None) => {}
            Err(full) => {
                // The newest segment stays open after all its blocks are settled. It is removed if its space is needed.
                let emptied = newest.filter(|(_, live)| *live == 0);
                if emptied.is_none() && self.removed_bytes == 0 {
                    return Err(full.into());
                }
                if let Some((sequence, _)) = emptied {
                    self.end_segment(sequence)?;
                }
                self.sync_directory()?;
                if let Some(sequence) = self.room(record_bytes)? {
                    return Ok(sequence);
                }
            }
        }
        if let Some((sequence, _)) = newest {
            self.end_segment(sequence)?;
        }
        let sequence = self.next;
        // Also if creating it fails: a draft that was removed could return under the next segment's name.
        self.next = self.next.saturating_add(1);
        self.directory_dirty = true;
        let segment = Segment::create(&self.files, &self.options, sequence)?;
        self.segments.insert(sequence, segment);
        Ok(sequence)
    }

    /// The segment for a record, or `None` if a new one is needed.
    fn room(&self, record_bytes: u64) -> Result<Option<u64>, Full> {
        let entries = self.segments.values().map(|segment| segment.entries.len()).sum::<usize>();
        if entries >= QUEUE_BLOCKS_MAX {
            return Err(Full::Blocks);
        }
        let newest = self.segments.values().next_back();
        let open = newest.filter(|segment| segment.takes(record_bytes, self.options.segment_bytes));
        let fixed = if open.is_some() { 0 } else { RECORDS_AT };
        let bytes = self.file_bytes().saturating_add(record_bytes).saturating_add(fixed);
        if bytes > self.options.bytes_max {
            return Err(Full::Bytes);
        }
        if open.is_none() && self.segments.len() >= SEGMENTS_MAX {
            return Err(Full::Segments);
        }
        Ok(open.map(|segment| segment.sequence))
    }

    /// Seals a segment.
    fn end_segment(&mut self, sequence: u64) -> Result<(), Fatal> {
        if let Some(segment) = self.segments.get_mut(&sequence) {
            segment.seal()?;
        }
        self.remove_if_empty(sequence)
    }

    /// Removes a segment without unsettled blocks, or forgets it if its file is damaged.
    pub(crate) fn remove_if_empty(&mut self, sequence: u64) -> Result<(), Fatal> {
        let Some(segment) = self.segments.get_mut(&sequence).filter(|segment| segment.live == 0) else {
            return Ok(());
        };
        if segment.damaged {
            segment.sync()?;
            self.kept_bytes = self.kept_bytes.saturating_add(segment.end);
        } else {
            self.files.remove(&segment.name).map_err(Fatal::of("remove", &segment.name))?;
            self.removed_bytes = self.removed_bytes.saturating_add(segment.end);
            self.directory_dirty = true;
        }
        self.segments.remove(&sequence);
        self.partitions.prune();
        Ok(())
    }

    /// Renames the file of a damaged segment.
    pub(crate) fn rename_damaged(&mut self, sequence: u64) -> Result<(), Fatal> {
        let Some(segment) = self.segments.get_mut(&sequence) else { return Ok(()) };
        segment.damaged = true;
        let place = name(sequence, Kind::Damaged);
        if segment.name != place {
            self.files.rename(&segment.name, &place).map_err(Fatal::of("rename", &segment.name))?;
            segment.name = place;
            self.directory_dirty = true;
        }
        Ok(())
    }

    /// Makes the names of files durable.
    pub(crate) fn sync_directory(&mut self) -> Result<(), Fatal> {
        if self.directory_dirty {
            self.files.sync_directory().map_err(Fatal::of("sync", "the directory"))?;
            self.directory_dirty = false;
            self.removed_bytes = 0;
        }
        Ok(())
    }

    /// Bytes of all files, including removed ones that may return.
    pub(super) fn file_bytes(&self) -> u64 {
        let bytes = self.segments.values().map(|segment| segment.end).sum::<u64>();
        bytes.saturating_add(self.kept_bytes).saturating_add(self.removed_bytes)
    }
}
