//! Limits how many bytes the rows of one message may take before compression.
//!
//! Job: keeps what a worker writes for a message within a multiple of what it has read. Each row has a copy of what the spans of its scope
//! share. A message that is half a large resource and half two-byte spans would otherwise write a thousand times its size. Because it
//! compresses well, the limit of a compressed block would stop it late: a megabyte could write six gigabytes. Place in the flow:
//! [`crate::rows::span_row`] counts down, row by row. Owner: a worker.
//!
//! The limit depends only on the message, so that every reader makes the same decision: [`MESSAGE_RAW_BYTES_MIN`], plus
//! [`RAW_BYTES_PER_MESSAGE_BYTE`] for each byte of it (for OTLP/JSON, of its protobuf form), and at most what a block may have.
//! | message | writes, for a byte of it |
//! | --- | --- |
//! | `rich` and `loadgen` spans of the benchmarks | 2 |
//! | spans of 400 bytes with a resource of 4 KiB, such as that of a Kubernetes pod with all of its labels and annotations | 12 |
//! | the same with a resource of 24 KiB, such as a long class path in `process.command_args` | 63 |
//! | the same with a resource of 32 KiB, up to 3 MiB of them | 84, within what every message may write |

/// Bytes that the rows of every message may take. Chosen: 2,000 spans with a resource of 32 KiB, or a tenth of a second of a worker.
pub const MESSAGE_RAW_BYTES_MIN: u64 = 64 << 20;

/// Additional bytes that the rows may take for each byte of the message. Chosen: six times what a Kubernetes pod's spans write.
pub const RAW_BYTES_PER_MESSAGE_BYTE: u64 = 64;

/// Bytes that the rows of a block may take. Chosen: what a message of the default `insert.maxBytes` may write; the server needs as much
/// memory during the INSERT. Spans compress nine to one, so a block reaches its compressed size at a fifth of this.
pub const BLOCK_RAW_BYTES_MAX: u64 = 1 << 30;

/// The bytes that a message may still write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawLimit {
    bytes_left: u64,
}

/// The message would write more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawLimitPassed;

impl RawLimit {
    /// The limit of a message of this size in protobuf.
    pub const fn of_message(bytes: usize) -> Self {
        let by_size = (bytes as u64).saturating_mul(RAW_BYTES_PER_MESSAGE_BYTE);
        let bytes = by_size.saturating_add(MESSAGE_RAW_BYTES_MIN);
        Self { bytes_left: if bytes < BLOCK_RAW_BYTES_MAX { bytes } else { BLOCK_RAW_BYTES_MAX } }
    }

    /// A limit of this many bytes.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self { bytes_left: bytes }
    }

    /// What is left of it.
    pub const fn bytes_left(self) -> u64 {
        self.bytes_left
    }

    /// Counts bytes that are written.
    #[inline]
    pub const fn write(&mut self, bytes: usize) -> Result<(), RawLimitPassed> {
        match self.bytes_left.checked_sub(bytes as u64) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => Err(RawLimitPassed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_may_write_in_proportion_to_its_bytes_and_no_more_than_a_block() {
        let table = [(0, 64 << 20), (1 << 20, 128 << 20), (14 << 20, 960 << 20), (15 << 20, 1 << 30)];
        for (bytes, limit) in table {
            assert_eq!(RawLimit::of_message(bytes).bytes_left(), limit, "{bytes} bytes");
        }
        assert_eq!(RawLimit::of_message(usize::MAX).bytes_left(), BLOCK_RAW_BYTES_MAX);
    }

    #[test]
    fn what_is_written_counts_to_the_last_byte() {
        let mut limit = RawLimit::of_bytes(10);
        assert_eq!(limit.write(7), Ok(()));
        assert_eq!(limit.write(4), Err(RawLimitPassed));
        assert_eq!(limit.write(3), Ok(()), "what did not fit is not counted");
        assert_eq!(limit.write(1), Err(RawLimitPassed));
    }
}
