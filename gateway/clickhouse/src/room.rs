//! Growth of a row's buffers: only up to what the row may still use.
//!
//! Job: answers "do this many bytes still fit?" before they are written. Place in the flow: the row encoder asks per member, element or
//! string, with all of its bytes. Owner: the thread that owns the buffer. Why it matters: a vector doubles when it grows, beyond every
//! limit, and a check afterwards would be too late. Senders, who choose the content of rows, would choose a worker's memory.
//!
//! A buffer of up to [`KEPT_BYTES_MAX`] doubles. A larger one grows by a quarter; once it reaches half of its limit, it gets the full
//! limit. So a buffer never has more capacity than its limit, and while it is moved, the old copy is at most half of the limit.
//!
//! Cost: one comparison if there is capacity.

/// Bytes of a scratch buffer that are kept from row to row, and up to which it grows as usual. Chosen: far above real spans; 14 such
/// buffers of each worker take 448 KiB.
pub const KEPT_BYTES_MAX: usize = 32 << 10;

/// Bytes that may be written beyond the requested ones: tags, lengths and counts around one value, the counts of objects that it ends,
/// and columns of fixed size behind it. Chosen: up to 35 around a value, 3 for each of eight objects, 60 for the groups of a set, 36 for
/// the columns behind attributes.
pub const AROUND_BYTES: usize = 160;

/// The row has no room for the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

/// Ensures that `bytes` and [`AROUND_BYTES`] can be appended without the buffer growing. `limit` is the maximum length of the row;
/// buffers above [`KEPT_BYTES_MAX`] keep to it exactly.
///
/// # Errors
/// [`NoRoom`] if that would be exceeded; the buffer is then unchanged.
#[inline]
pub fn make(out: &mut Vec<u8>, bytes: usize, limit: usize) -> Result<(), NoRoom> {
    if out.capacity() - out.len() >= bytes + AROUND_BYTES { Ok(()) } else { grow(out, bytes, limit) }
}

#[cold]
fn grow(out: &mut Vec<u8>, bytes: usize, limit: usize) -> Result<(), NoRoom> {
    let needed = out.len().saturating_add(bytes);
    if needed > limit {
        return Err(NoRoom);
    }
    let limit = limit.saturating_add(AROUND_BYTES);
    let needed = needed + AROUND_BYTES;
    let capacity = if needed <= KEPT_BYTES_MAX {
        needed.next_power_of_two()
    } else if needed > limit / 2 {
        limit
    } else {
        needed + needed / 4
    };
    out.reserve_exact(capacity - out.len());
    Ok(())
}

/// Appends bytes, if the row has room for them.
///
/// # Errors
/// [`NoRoom`] if it has not; nothing is appended then.
#[inline]
pub fn append(out: &mut Vec<u8>, bytes: &[u8], limit: usize) -> Result<(), NoRoom> {
    make(out, bytes.len(), limit)?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// Empties a scratch buffer, and frees the extra memory of a huge row.
#[inline]
pub fn let_go(scratch: &mut Vec<u8>) {
    scratch.clear();
    if scratch.capacity() > KEPT_BYTES_MAX {
        *scratch = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    #[test]
    fn a_buffer_never_has_more_capacity_than_its_limit() {
        for piece in [1, 1_000, 70_000, LIMIT / 2 - 1, LIMIT / 2 + 1, LIMIT] {
            let mut out = Vec::new();
            while append(&mut out, &vec![1; piece], LIMIT).is_ok() {
                assert!(out.capacity() <= LIMIT + AROUND_BYTES, "{piece}");
                assert!(
                    out.capacity() <= (out.len() + AROUND_BYTES) * 2
                        || out.capacity() == LIMIT + AROUND_BYTES
                );
            }
            assert!(out.len() <= LIMIT + AROUND_BYTES && out.len() + piece > LIMIT, "{piece}");
            let_go(&mut out);
            assert!(out.is_empty() && out.capacity() <= KEPT_BYTES_MAX);
        }
    }

    #[test]
    fn what_moves_is_at_most_half_of_what_it_becomes_or_may_become() {
        let mut out = Vec::new();
        let (mut before, mut moves) = (0, 0);
        while append(&mut out, &[1; 100], LIMIT).is_ok() {
            if out.capacity() != before {
                assert!(before <= LIMIT / 2 + LIMIT / 8, "{before} bytes moved");
                (before, moves) = (out.capacity(), moves + 1);
            }
        }
        assert!(moves < 30, "{moves} times");
    }

    #[test]
    fn nothing_is_too_long_to_be_asked_for() {
        let mut out = vec![1; 10];
        assert_eq!(make(&mut out, usize::MAX / 2, LIMIT), Err(NoRoom));
        assert_eq!(make(&mut out, LIMIT, LIMIT), Err(NoRoom));
    }
}
