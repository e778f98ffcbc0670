//! The store of a block's frames, in chunks of the [pool](crate::blocks::buffers).
//!
//! Owner: the worker of an open block; then the INSERTs that send them.

use crate::blocks::buffers::{BLOCK_CHUNKS_MAX, CHUNK_BYTES, Chunk, Pool, Purpose, StoreError};
use bytes::Bytes;
use sluice_clickhouse::row_frames::FrameStore;
use std::ops::Range;

/// Appends the frames of one block.
pub struct ChunkStore<'a> {
    pool: &'a Pool,
    chunks: &'a mut Chunks,
    purpose: Purpose,
}

/// The chunks of one block, in order; all but the last are full.
#[derive(Debug, Default)]
pub struct Chunks {
    list: Vec<Chunk>,
    len: usize,
    sharer: usize,
}

impl Chunks {
    /// For a block of this sharer.
    pub fn of(sharer: usize) -> Self {
        Self { sharer, ..Self::default() }
    }

    /// The frames as an insert sends them; the chunks return to the pool when the last copy is dropped.
    pub fn into_bytes(self) -> Vec<Bytes> {
        self.list.into_iter().map(Bytes::from_owner).collect()
    }

    /// Stored bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A store that appends to these chunks.
    pub fn store<'a>(&'a mut self, pool: &'a Pool, purpose: Purpose) -> ChunkStore<'a> {
        ChunkStore { pool, chunks: self, purpose }
    }
}

impl FrameStore for ChunkStore<'_> {
    type Error = StoreError;

    fn append(&mut self, frame: &[u8]) -> Result<(), StoreError> {
        let before = self.chunks.len;
        // The last frame may exceed the limit: a block that could not be sealed could never be sent.
        if self.purpose == Purpose::Fill && before + frame.len() > BLOCK_CHUNKS_MAX * CHUNK_BYTES {
            return Err(StoreError::BlockFull);
        }
        let mut rest = frame;
        while !rest.is_empty() {
            let room = self.chunks.list.len() * CHUNK_BYTES - self.chunks.len;
            if room == 0 {
                match self.pool.take(self.purpose, self.chunks.sharer) {
                    Ok(chunk) => self.chunks.list.push(chunk),
                    Err(error) => {
                        self.truncate(before);
                        return Err(error);
                    }
                }
                continue;
            }
            let (now, later) = rest.split_at(room.min(rest.len()));
            let last = self.chunks.list.last_mut().expect("there is room in the last chunk");
            last.bytes.extend_from_slice(now);
            self.chunks.len += now.len();
            rest = later;
        }
        Ok(())
    }

    fn len(&self) -> usize {
        self.chunks.len
    }

    fn truncate(&mut self, len: usize) {
        self.chunks.list.truncate(len.div_ceil(CHUNK_BYTES));
        self.chunks.len = len;
        if let Some(last) = self.chunks.list.last_mut() {
            let full = len.is_multiple_of(CHUNK_BYTES);
            last.bytes.truncate(if full { CHUNK_BYTES } else { len % CHUNK_BYTES });
        }
    }

    fn read(&self, range: Range<usize>, out: &mut Vec<u8>) {
        let mut at = range.start;
        while at < range.end {
            let within = at % CHUNK_BYTES;
            let end = (within + range.end - at).min(CHUNK_BYTES);
            out.extend_from_slice(&self.chunks.list[at / CHUNK_BYTES].bytes[within..end]);
            at += end - within;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_gateway_config::budget::BLOCK_BYTES_MAX;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_block_has_a_largest_size() {
        let pool = Pool::new(64 * MIB, 2, 1);
        let mut chunks = Chunks::default();
        let frame = vec![1; 1 << 20];
        for _ in 0..BLOCK_BYTES_MAX / MIB {
            chunks.store(&pool, Purpose::Fill).append(&frame).unwrap();
        }
        let mut store = chunks.store(&pool, Purpose::Fill);
        assert_eq!(store.append(&[1]), Err(StoreError::BlockFull));
        assert_eq!(store.len() as u64, BLOCK_BYTES_MAX);
    }

    proptest! {
        /// Compares the store with a plain vector: append, truncate at the end of an earlier frame, read.
        #[test]
        fn a_store_is_a_vector_in_pieces(sizes in prop::collection::vec(1usize..150_000, 1..20), back in 0usize..20) {
            let pool = Pool::new(64 * MIB, 1, 1);
            let mut chunks = Chunks::default();
            let mut store = chunks.store(&pool, Purpose::Fill);
            let (mut model, mut ends) = (Vec::new(), vec![0]);
            for (number, size) in sizes.iter().enumerate() {
                let frame = vec![u8::try_from(number).unwrap(); *size];
                store.append(&frame).unwrap();
                model.extend_from_slice(&frame);
                ends.push(model.len());
            }
            let end = ends[back.min(ends.len() - 1)];
            store.truncate(end);
            model.truncate(end);
            store.append(b"after").unwrap();
            model.extend_from_slice(b"after");
            prop_assert_eq!(store.len(), model.len());
            let mut read = Vec::new();
            store.read(0..model.len(), &mut read);
            prop_assert_eq!(&read, &model);
            let mut tail = Vec::new();
            store.read(end / 2..model.len(), &mut tail);
            prop_assert_eq!(&tail[..], &model[end / 2..]);
            let sent: Vec<u8> = chunks.into_bytes().concat();
            prop_assert_eq!(sent, model);
        }
    }
}
