//! A chunk of a partition: consecutive messages and their spans, which one question to ClickHouse covers.
//!
//! Owner: the audit's thread; one chunk is in memory at a time, and its buffers are reused. Limits: [`CHUNK_SPANS`], plus the spans of one
//! message.

use sluice_clickhouse::lookup::SpanKeys;
use std::collections::HashMap;
use twox_hash::XxHash3_128;

/// Number of spans at which a chunk is complete. Chosen: 250,000 keys cost 30 MB here and 60 MB in the server. A question has a fixed cost
/// (the server reads all rows of that time), so smaller chunks would be slower.
pub const CHUNK_SPANS: usize = 250_000;

/// A span's key, hashed: trace id, span id, and the row's timestamp.
pub type KeyHash = u128;

/// Hashes a key, in a reused buffer. Includes the lengths, since ids may have any length.
fn hash(buffer: &mut Vec<u8>, (trace_id, span_id): (&[u8], &[u8]), timestamp_nanos: i64) -> KeyHash {
    buffer.clear();
    buffer.extend_from_slice(&(trace_id.len() as u64).to_le_bytes());
    buffer.extend_from_slice(trace_id);
    buffer.extend_from_slice(span_id);
    buffer.extend_from_slice(&timestamp_nanos.to_le_bytes());
    XxHash3_128::oneshot(buffer)
}

/// One span in Kafka.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurrence {
    /// The key's number in its chunk.
    pub key: u32,
    /// The span's number in the message, from 0 in the order of the walk.
    pub row: u32,
    /// The message's offset.
    pub offset: i64,
}

/// Spans of a chunk.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The keys, each once.
    pub keys: SpanKeys,
    /// Their hashes, in the same order.
    pub hashes: Vec<KeyHash>,
    /// The timestamps of their rows in ns since 1970, in the same order.
    pub timestamps: Vec<i64>,
    /// Every span, in the order of the log.
    pub occurrences: Vec<Occurrence>,
    numbers: HashMap<KeyHash, u32>,
    buffer: Vec<u8>,
}

impl Chunk {
    /// Adds a span.
    pub fn add(&mut self, (offset, row): (i64, u32), ids: (&[u8], &[u8]), timestamp_nanos: i64) {
        let hash = hash(&mut self.buffer, ids, timestamp_nanos);
        let next = u32::try_from(self.hashes.len()).expect("a chunk has fewer spans than 4 billion");
        let key = *self.numbers.entry(hash).or_insert(next);
        if key == next {
            self.hashes.push(hash);
            self.timestamps.push(timestamp_nanos);
            self.keys.push(ids.0, ids.1, timestamp_nanos);
        }
        self.occurrences.push(Occurrence { key, row, offset });
    }

    /// Whether the chunk is complete.
    pub fn is_full(&self) -> bool {
        self.occurrences.len() >= CHUNK_SPANS
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.hashes.clear();
        self.timestamps.clear();
        self.occurrences.clear();
        self.numbers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_occurs_twice_is_asked_for_once() {
        let mut chunk = Chunk::default();
        for _ in 0..2 {
            chunk.add((5, 0), (b"t", b"s"), 1);
            chunk.add((5, 1), (b"ts", b""), 1);
            chunk.add((6, 0), (b"t", b"s"), 1);
            chunk.add((6, 1), (b"t", b"s"), 2);
            let keys: Vec<u32> = chunk.occurrences.iter().map(|occurrence| occurrence.key).collect();
            assert_eq!((keys, chunk.keys.len(), chunk.hashes.len()), (vec![0, 1, 0, 2], 3, 3));
            assert_eq!(chunk.keys.ids(1), (&b"ts"[..], &b""[..]));
            chunk.clear();
        }
    }
}
