//! How many bytes the rows of one message may take before they are compressed.
//!
//! Job: keep what a worker writes for a message within a multiple of what it has read. Each row has a copy of what the spans of its
//! scope share, so that a message of half a large resource and half spans of two bytes would else write a thousand times its size, and
//! as it compresses well, the limit of a compressed block comes late: a megabyte could write six gigabytes. Place in the flow:
//! [`crate::rows::span_row`] counts down, row by row. Owner: a worker.
//!
//! The limit depends on the message alone, so that whoever reads it rejects it, or does not: [`MESSAGE_RAW_BYTES_MIN`] and
//! [`RAW_BYTES_PER_MESSAGE_BYTE`] for each byte of it (of OTLP/JSON, of what it is on the wire), and no more than a block may have.
//!
//! | message | writes, for a byte of it |
//! | --- | --- |
//! | `rich` and `loadgen` spans, as the bench has them | 2 |
//! | spans of 400 bytes under a resource of 4 KiB, which is what a Kubernetes pod has with all of its labels and annotations | 12 |
//! | the same under a resource of 24 KiB, as a long class path in `process.command_args` makes one | 63 |
//! | the same under a resource of 32 KiB, up to 3 MiB of them | 84, within what every message may write |

/// Bytes that the rows of every message may take. Chosen: 2,000 spans with a resource of 32 KiB, and a tenth of a second of a worker.
pub const MESSAGE_RAW_BYTES_MIN: u64 = 64 << 20;

/// Bytes that its rows may take beside that for each byte of a message. Chosen: six times what a Kubernetes pod's spans write.
pub const RAW_BYTES_PER_MESSAGE_BYTE: u64 = 64;

/// Bytes that the rows of a block may take. Chosen: what a message of the default `insert.maxBytes` may write; the server keeps as much
/// while it takes the INSERT. At nine bytes to one, which spans compress to, a block reaches its compressed size at a fifth of this.
pub const BLOCK_RAW_BYTES_MAX: u64 = 1 << 30;

/// What a message may still write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawLimit {
    bytes_left: u64,
}

/// The message would write more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawLimitPassed;

impl RawLimit {
    /// Of a message of so many bytes on the wire.
    pub const fn of_message(bytes: usize) -> Self {
        let by_size = (bytes as u64).saturating_mul(RAW_BYTES_PER_MESSAGE_BYTE);
        let bytes = by_size.saturating_add(MESSAGE_RAW_BYTES_MIN);
        Self { bytes_left: if bytes < BLOCK_RAW_BYTES_MAX { bytes } else { BLOCK_RAW_BYTES_MAX } }
    }

    /// Of so many bytes.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self { bytes_left: bytes }
    }

    /// What is left of it.
    pub const fn bytes_left(self) -> u64 {
        self.bytes_left
    }

    /// Takes down that so many bytes are written.
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
