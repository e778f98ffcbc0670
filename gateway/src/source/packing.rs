//! A request is packed before it waits for the disk.
//!
//! Owner: a thread that checks requests has one packer. It needs no memory beside its own and the request's: the request is packed where it is. What it
//! does not need any more is given back at once, so more requests fit the memory while they wait.
//!
//! Cost: `Lz4Encoder` has about 1.5 GB/s on a core (`gateway/clickhouse/src/lz4.rs`), which is some microseconds for a request of 8 KB. The log's
//! thread sums and writes fewer bytes for it, and the disk syncs fewer.

use bytes::Bytes;
use sluice_clickhouse::lz4::{Lz4Encoder, TABLE_BYTES, block_bytes_max};
use sluice_gateway_config::budget::PACKING_BYTES;
use sluice_spool::log::packed::{self, PACK_BYTES_MIN, PIECE_BYTES};

const _: () = assert!(
    (block_bytes_max(PIECE_BYTES) + TABLE_BYTES) as u64 <= PACKING_BYTES,
    "the budget has room for it"
);

/// Packs requests.
pub struct Packer {
    lz4: Lz4Encoder,
    /// A piece in the making.
    block: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Self {
        Self { lz4: Lz4Encoder::new(), block: vec![0; block_bytes_max(PIECE_BYTES)] }
    }
}

impl Packer {
    /// What is stored of the message, and the bytes that it had before if it is packed.
    pub fn pack(&mut self, message: Bytes) -> (Bytes, Option<u32>) {
        // A message that others have too would be copied, and its permit has no room for that.
        if message.len() < PACK_BYTES_MIN || !message.is_unique() {
            return (message, None);
        }
        let raw_bytes = u32::try_from(message.len()).ok();
        let mut bytes: Vec<u8> = message.into();
        let Self { lz4, block } = self;
        match packed::pack(&mut bytes, block, |piece, block| lz4.encode(piece, block)) {
            Some(size) => {
                bytes.truncate(size);
                bytes.shrink_to_fit();
                (bytes.into(), raw_bytes)
            }
            None => (bytes.into(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_spool::{
        Directory,
        log::{Log, LogOptions, Payload, Read},
    };

    /// Bytes that do not repeat.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u8::try_from(state >> 56).unwrap()
        };
        (0..bytes).map(next).collect()
    }

    /// Stores messages in a log on the real file system, and reads them back.
    fn stored_and_read(messages: &[Vec<u8>]) -> (Vec<bool>, Vec<Vec<u8>>) {
        let path = std::env::temp_dir().join(format!("sluice-packing-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let options = LogOptions { takes_packed: true, ..LogOptions::new(7, 0, "otlp", 1 << 30) };
        let (mut log, _offsets, _) = Log::open(Directory::open(&path).unwrap(), options).unwrap();
        let mut packer = Packer::default();
        let stored: Vec<_> = messages.iter().map(|message| packer.pack(message.clone().into())).collect();
        let payloads = stored.iter().map(|(bytes, raw_bytes)| Payload { bytes, raw_bytes: *raw_bytes });
        log.append_payloads(&payloads.collect::<Vec<_>>(), 1, u64::MAX).unwrap();
        log.sync().unwrap();
        let (mut cursor, mut read) = (log.view().read_from(0), Vec::new());
        while let Read::Message(message) = cursor.read().unwrap() {
            read.push(message.payload);
        }
        std::fs::remove_dir_all(&path).unwrap();
        (stored.iter().map(|(_, raw_bytes)| raw_bytes.is_some()).collect(), read)
    }

    #[test]
    fn a_log_reads_what_the_packer_wrote() {
        let text =
            |bytes: usize| b"service.name=checkout;".iter().copied().cycle().take(bytes).collect::<Vec<u8>>();
        let messages = [
            text(PACK_BYTES_MIN - 1),
            text(PACK_BYTES_MIN),
            text(PIECE_BYTES),
            text(PIECE_BYTES + 1),
            text(3 * PIECE_BYTES - 1),
            // The second piece does not become smaller, so it is stored as it came.
            [text(PIECE_BYTES), noise(PIECE_BYTES), text(100)].concat(),
            noise(2 * PIECE_BYTES),
        ];
        let (packed, read) = stored_and_read(&messages);
        assert_eq!(packed, [false, true, true, true, true, true, false]);
        assert!(read == messages, "lengths {:?}", read.iter().map(Vec::len).collect::<Vec<_>>());
    }

    #[test]
    fn a_large_request_is_packed_and_gives_the_rest_back() {
        let message: Vec<u8> = b"service.name=checkout;".repeat(20_000);
        let bytes = message.len();
        let (packed, raw_bytes) = Packer::default().pack(message.into());
        assert_eq!(raw_bytes, u32::try_from(bytes).ok());
        assert!(packed.len() < bytes / 50, "{} of {bytes}", packed.len());
        let packed: Vec<u8> = packed.into();
        assert_eq!(packed.capacity(), packed.len());
    }

    #[test]
    fn a_small_request_and_one_that_others_have_stay_as_they_came() {
        let mut packer = Packer::default();
        let small = Bytes::from(vec![7; PACK_BYTES_MIN - 1]);
        assert_eq!(packer.pack(small.clone()), (small, None));
        let large = Bytes::from(vec![7; 2 * PACK_BYTES_MIN]);
        let other = large.clone();
        assert_eq!(packer.pack(large), (other, None));
    }

    #[test]
    fn the_same_packer_packs_one_request_after_another() {
        let mut packer = Packer::default();
        let message = Bytes::from(b"abc".repeat(3_000));
        let first = packer.pack(Bytes::copy_from_slice(&message));
        assert_eq!(packer.pack(Bytes::copy_from_slice(&message)), first);
        assert_eq!(first.1, Some(9_000));
    }
}
