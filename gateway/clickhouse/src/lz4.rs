//! LZ4 blocks, written fast for rows that repeat one another.
//!
//! Job: compresses the rows of one frame. Place in the flow: under [`crate::frame`], which adds header and checksum; it is the most
//! expensive step for a span. Owner: the worker thread, whose encoder keeps one [`Lz4Encoder`]. `lz4_flex` decodes, with all its checks:
//! data that is read may be damaged, data that is written here is our own.
//!
//! A block is sequences, one after the other, each of them literals (bytes as they are) and a match (bytes that stood
//! before, as a distance back and a length). The last sequence has literals alone.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | token: high four bits the literals, low four bits the match's length − 4; 15 in either: more follows |
//! | 0… | when there are 15 literals or more: bytes to add to the 15, the first below 255 being the last |
//! | … | the literals |
//! | 2 | distance back, little-endian, 1 to 65,535 |
//! | 0… | when the match's length − 4 is 15 or more: bytes to add, as above |
//!
//! The last five bytes are literals, and no match begins in the last twelve ([`SEARCH_END_BYTES`] is stricter). Source:
//! <https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>. The same input makes the same bytes, whatever was
//! encoded before. Limits: as many bytes as fit memory in, at most [`block_bytes_max`] out, [`TABLE_BYTES`] of table.
//!
//! **What makes it fast**
//! - The table has two bytes a position, the low 16 bits. The distance follows from them by one subtraction, and one that
//!   is too far cannot come out: there is no branch for it, and the table takes a third of a core's first-level cache.
//!   An entry from further back than 65,535 names some other place in reach, where the comparison then fails.
//! - The search takes what is left of 65,536 when the distance is taken away: that is the subtraction the other way round, and the place
//!   before follows from it without another one. A distance of 0 becomes 65,536, which four equal bytes lead to seldom; only then is it
//!   looked at.
//! - The positions that one pace of the search looks at have an end of their own: one comparison for each.
//! - Matches are compared in words up to 32 bytes, where most end, and then in steps of 32. A `rich` row has one match of 540 bytes, which is
//!   its resource. Where the last step differs is found without a branch: by words, the program takes 1 % longer.
//! - Seven bytes are hashed: fewer and longer matches than with four or five, which is fewer mispredicted branches.
//! - Two positions of each match, its third byte and its last but one, go into the table: 1 % fewer bytes, no time.
//!
//! With this search and these comparisons, the stage `lz4-256k` takes 3,025 instructions a `rich` span (3,644 before) and 1,321 a
//! `loadgen` span (1,492), for the same bytes out. The CPU time of `path` fell less, by 2.2 % of both (30 November 2026, ten runs in
//! turn): it goes into branches that are guessed wrong.
//!
//! **What did not help**: lengths and comparisons without branches, in words of 8, 16 or 32 bytes (20 to 90 ns a `rich`
//! span more: a guessed branch lets the next search begin before this match's length is known); trying the last
//! distance first; a table of 16,384 entries (`rich` 1 % fewer bytes, the same time) or 4,096 (2 % more bytes); the literals that belong to a
//! match found by one comparison of eight bytes (`loadgen` 4 % longer).
//!
//! **Measured**, CPU ns and bytes a span, `rich` / `loadgen`, rows in pieces of 256 KiB (21 November 2026, two shared cores
//! of an AMD EPYC; `cargo bench -p sluice-gateway --bench path -- --spans 100000 --stage lz4-256k --stage lz4-flex`): 304 / 74
//! and 98.9 / 42.9; `lz4_flex` 478 / 112 and 102.2 / 43.8. Pieces of 512 KiB take the same time and 95.8 / 42.7 bytes.
//!
//! **`unsafe`** is in the three functions at the end and in their calls: two loads and one copy without bounds checks.
//! They buy 15 to 20 %: 343 / 71 ns a span with them, 392 / 88 with the same loads and copies checked (one run over other
//! `rich` rows, best of 7 rounds). Every other access is checked; lengths of matches need no `unsafe`, since slices that are divided into
//! arrays take no check for each word.

/// Bits of a hash. 8,192 entries: half the size costs 2 % more bytes, twice the size saves 1 %.
const HASH_BITS: u32 = 13;

/// Positions remembered.
const TABLE_ENTRIES: usize = 1 << HASH_BITS;

/// Memory of an encoder.
pub const TABLE_BYTES: usize = TABLE_ENTRIES * size_of::<u16>();

/// Bytes that are hashed, measured on both load shapes: with six `rich` takes 7 % longer, with eight `loadgen` takes 5 %
/// more bytes, since its numbers change within eight bytes.
const HASHED_BYTES: u32 = 7;

/// An odd number whose bits are well mixed: 2^64 divided by the golden ratio, as in the LZ4 library.
const HASH_FACTOR: u64 = 0x9e37_79b1_85eb_ca87;

/// The shortest match (specified).
const MATCH_BYTES_MIN: usize = 4;

/// Bytes at the end that are literals (specified).
const END_LITERAL_BYTES: usize = 5;

/// No match begins this close to the end. Specified are 12; with 32, both wide copies of literals stay within the input.
const SEARCH_END_BYTES: usize = COPY_BYTES_MAX;

/// A length in a token that says that more follows (specified).
const TOKEN_LENGTH_MAX: usize = 15;

/// A byte of a length that says that more follows (specified).
const LENGTH_BYTE_MAX: usize = 255;

/// Literals are copied in one piece of one of these sizes, past their end, when they fit it; the next sequence writes over
/// what was too much.
const COPY_BYTES: usize = 16;
const COPY_BYTES_MAX: usize = 32;

/// The search looks at every position, and after each 32 without a match at one fewer (the LZ4 library has 64).
const PATIENCE: usize = 32;

/// The distance behind the longest one: it has the same low 16 bits as 0.
const REACH: usize = 1 << 16;

/// Bytes of a match that are compared by words, and then bytes that are compared in one step.
const WIDE_BYTES: usize = 32;

/// Bytes that a block of `raw` bytes takes at most: all of them literals, and the bytes of their length.
pub const fn block_bytes_max(raw: usize) -> usize {
    raw + raw / LENGTH_BYTE_MAX + 16
}

/// Encodes blocks, one after the other, which know nothing of each other.
pub struct Lz4Encoder {
    /// For each hash, the low 16 bits of the position that last had it.
    ///
    /// Invariant within a block: each is that of a position before the one being looked at, or 0. So below position
    /// 65,536 the distance to it is at most the position, and above it is at most 65,535: it never leads before byte 0.
    table: Box<[u16; TABLE_ENTRIES]>,
}

/// A block in the making.
struct Block<'a> {
    raw: &'a [u8],
    /// Has [`block_bytes_max`] bytes at least.
    out: &'a mut [u8],
    /// Bytes written to `out`. Invariant between sequences: at most `anchor + anchor / 255`. A sequence adds its literals, at most
    /// one byte for each 255 literals, and at most four bytes for token, distance and the first length byte. Its match covers at
    /// least these four bytes. A match with length bytes of its own covers more bytes than these add.
    written: usize,
    /// Where the bytes of `raw` begin that no sequence has yet.
    anchor: usize,
}

/// Four bytes, at least, that also stand `distance` before.
#[derive(Clone, Copy)]
struct Match {
    /// At most [`SEARCH_END_BYTES`] before the end.
    start: usize,
    /// 1 to 65,535, and at most `start`.
    distance: usize,
}

/// How fast a search goes.
struct Pace {
    /// Bytes from one position that is looked at to the next.
    step: usize,
    /// The last position that may be looked at in this pace.
    end: usize,
}

impl Default for Lz4Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Lz4Encoder {
    /// An encoder, with its table.
    pub fn new() -> Self {
        Self { table: Box::new([0; TABLE_ENTRIES]) }
    }

    /// Writes the block of `raw` to the front of `out`; returns its bytes.
    ///
    /// # Panics
    /// When `out` has fewer than [`block_bytes_max`] bytes.
    pub fn encode(&mut self, raw: &[u8], out: &mut [u8]) -> usize {
        let needed = block_bytes_max(raw.len());
        assert!(out.len() >= needed, "a block of {} bytes needs {needed}, not {}", raw.len(), out.len());
        self.table.fill(0);
        let mut block = Block { raw, out, written: 0, anchor: 0 };
        // Position 0 has nothing before it, and an empty entry already means it.
        let mut at = 1;
        while let Some(found) = self.find(raw, at) {
            at = block.sequence(found);
            if at + SEARCH_END_BYTES > raw.len() {
                break;
            }
            self.remember(raw, found.start + 2);
            self.remember(raw, at - 2);
        }
        block.last_literals();
        block.written
    }

    /// The next match that begins at `at`, which is 1 at least, or later.
    #[inline]
    fn find(&mut self, raw: &[u8], mut at: usize) -> Option<Match> {
        let search_end = raw.len().checked_sub(SEARCH_END_BYTES).filter(|end| at <= *end)?;
        let mut pace = Pace::of(1, at, search_end);
        loop {
            // SAFETY: 32 bytes follow `at`, which is at most `search_end`; eight are loaded.
            let here = unsafe { load8(raw, at) };
            let entry = &mut self.table[hash(here)];
            let short_of_reach = usize::from(entry.wrapping_sub(low_bits(at)));
            *entry = low_bits(at);
            // SAFETY: this is `at` less a distance of 1 to `REACH`. One below `REACH` is at most `at` (the table's invariant). `REACH`
            // stands for 0, which is the distance of no entry below position 65,536. Four bytes follow `at` or any place before.
            let before = unsafe { load4(raw, at + short_of_reach - REACH) };
            if before == first_four(here) {
                if short_of_reach > 0 {
                    return Some(Match { start: at, distance: REACH - short_of_reach });
                }
                out_of_reach();
            }
            at += pace.step;
            if at > pace.end {
                if at > search_end {
                    return None;
                }
                pace = pace.slower(at, search_end);
            }
        }
    }

    /// Makes the bytes at `at` known. The search goes on behind `at`, and eight bytes follow it.
    #[inline]
    fn remember(&mut self, raw: &[u8], at: usize) {
        debug_assert!(at + 8 <= raw.len());
        // SAFETY: `encode` calls this with a position before the next one to be looked at, which 32 bytes follow.
        let here = unsafe { load8(raw, at) };
        self.table[hash(here)] = low_bits(at);
    }
}

impl Block<'_> {
    /// Writes the literals before `found` and the match, as long as it can be; returns where it ends.
    #[inline]
    fn sequence(&mut self, found: Match) -> usize {
        let raw = self.raw;
        let Match { mut start, distance } = found;
        let end = match_end(raw, found);
        // Skipped positions, and those whose seven bytes reach into the literals, belong to the match as well.
        while start > self.anchor && start > distance && raw[start - 1] == raw[start - 1 - distance] {
            start -= 1;
        }
        let token = self.written;
        let literals = self.literals(start);
        self.out[self.written..self.written + 2].copy_from_slice(&low_bits(distance).to_le_bytes());
        self.written += 2;
        self.out[token] = literals << 4 | self.length(end - start - MATCH_BYTES_MIN);
        self.anchor = end;
        end
    }

    /// Leaves a byte for the token and writes the literals up to `end`, which 32 bytes follow; returns the token's part.
    #[inline]
    fn literals(&mut self, end: usize) -> u8 {
        let (raw, start) = (self.raw, self.anchor);
        let bytes = end - start;
        self.written += 1;
        if bytes < TOKEN_LENGTH_MAX {
            // SAFETY: 32 bytes of `raw` follow `end` and so `start`. Before this sequence at most start + start / 255
            // bytes were written (the field's invariant) and now one more; start + 32 <= raw.len(), so that 16 more end
            // before raw.len() + raw.len() / 255 + 16, which `out` has.
            unsafe { copy::<COPY_BYTES>(raw, start, self.out, self.written) };
            self.written += bytes;
            return low_byte(bytes);
        }
        let in_token = self.length(bytes);
        if bytes <= COPY_BYTES_MAX {
            // SAFETY: as above, with two bytes written and 32 more, which end at start + start / 255 + 34 at most; that
            // is within raw.len() + raw.len() / 255 + 2.
            unsafe { copy::<COPY_BYTES_MAX>(raw, start, self.out, self.written) };
        } else {
            self.out[self.written..self.written + bytes].copy_from_slice(&raw[start..end]);
        }
        self.written += bytes;
        in_token
    }

    /// Writes what of a length does not fit the token, which is often nothing; returns the token's part.
    #[inline]
    fn length(&mut self, length: usize) -> u8 {
        if length < TOKEN_LENGTH_MAX {
            return low_byte(length);
        }
        let mut rest = length - TOKEN_LENGTH_MAX;
        while rest >= LENGTH_BYTE_MAX {
            self.out[self.written] = 255;
            self.written += 1;
            rest -= LENGTH_BYTE_MAX;
        }
        self.out[self.written] = low_byte(rest);
        self.written += 1;
        15
    }

    /// Writes everything that is left as literals.
    fn last_literals(&mut self) {
        let literals = &self.raw[self.anchor..];
        let token = self.written;
        self.written += 1;
        self.out[token] = self.length(literals.len()) << 4;
        self.out[self.written..self.written + literals.len()].copy_from_slice(literals);
        self.written += literals.len();
    }
}

impl Pace {
    fn of(step: usize, at: usize, search_end: usize) -> Self {
        Self { step, end: search_end.min(at + (PATIENCE - 1) * step) }
    }

    /// The next pace, from `at` on. Out of line: else the compiler makes a loop of each pace, with six counters to keep beside `at`.
    #[cold]
    #[inline(never)]
    fn slower(&self, at: usize, search_end: usize) -> Self {
        Self::of(self.step + 1, at, search_end)
    }
}

/// Four bytes are equal at a distance of 65,536, which no sequence can name. The search goes on.
#[cold]
#[inline(never)]
fn out_of_reach() {}

/// Where a match ends, its first four bytes being known to be equal.
#[inline]
fn match_end(raw: &[u8], found: Match) -> usize {
    let Match { start, distance } = found;
    let at = start + MATCH_BYTES_MIN;
    let limit = raw.len() - END_LITERAL_BYTES;
    at + equal_bytes(&raw[at..limit], &raw[at - distance..limit - distance])
}

/// How many bytes two pieces of one length have in common at their start. Four comparisons in a row, which need no counter, are enough for
/// most matches.
#[inline]
fn equal_bytes(here: &[u8], before: &[u8]) -> usize {
    let Some(((here, here_rest), (before, before_rest))) =
        here.split_first_chunk::<WIDE_BYTES>().zip(before.split_first_chunk::<WIDE_BYTES>())
    else {
        return last_equal_bytes(here, before);
    };
    let words = here.as_chunks::<8>().0.iter().zip(before.as_chunks::<8>().0);
    for (word, (here, before)) in words.enumerate() {
        let differs = u64::from_le_bytes(*here) ^ u64::from_le_bytes(*before);
        if differs != 0 {
            return word * 8 + (differs.trailing_zeros() / 8) as usize;
        }
    }
    WIDE_BYTES + more_equal_bytes(here_rest, before_rest)
}

/// The same for the rest of a long match: in wide steps, which compile to vector instructions.
#[inline(never)]
fn more_equal_bytes(here: &[u8], before: &[u8]) -> usize {
    let wide = here.as_chunks::<WIDE_BYTES>().0.iter().zip(before.as_chunks::<WIDE_BYTES>().0);
    let mut at = 0;
    for (here, before) in wide {
        if here != before {
            return at + first_difference(here, before);
        }
        at += WIDE_BYTES;
    }
    at + last_equal_bytes(&here[at..], &before[at..])
}

/// Where two pieces that are not equal differ first. Without a branch, which would be guessed wrong as often as not.
#[inline]
fn first_difference(here: &[u8; WIDE_BYTES], before: &[u8; WIDE_BYTES]) -> usize {
    let (here, before) = (here.as_chunks::<8>().0, before.as_chunks::<8>().0);
    let mut first = (0, 0);
    for word in (0..here.len()).rev() {
        let differs = u64::from_le_bytes(here[word]) ^ u64::from_le_bytes(before[word]);
        first = std::hint::select_unpredictable(differs != 0, (differs, word), first);
    }
    let (differs, word) = first;
    word * 8 + (differs.trailing_zeros() / 8) as usize
}

#[cold]
#[inline(never)]
fn last_equal_bytes(here: &[u8], before: &[u8]) -> usize {
    here.iter().zip(before).take_while(|(here, before)| here == before).count()
}

/// Where in the table the first bytes of these eight belong.
#[inline]
fn hash(bytes: u64) -> usize {
    ((bytes << (64 - 8 * HASHED_BYTES)).wrapping_mul(HASH_FACTOR) >> (64 - HASH_BITS)) as usize
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
fn low_bits(position: usize) -> u16 {
    position as u16
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is wanted")]
fn low_byte(length: usize) -> u8 {
    length as u8
}

#[inline]
fn first_four(bytes: u64) -> u32 {
    (bytes & 0xffff_ffff) as u32
}

/// Eight bytes from `at`, the first as the lowest.
///
/// # Safety
/// `at + 8 <= bytes.len()`.
#[inline]
unsafe fn load8(bytes: &[u8], at: usize) -> u64 {
    debug_assert!(at <= bytes.len() && bytes.len() - at >= 8);
    // SAFETY: the caller keeps the eight bytes inside `bytes`; the read asks for no alignment.
    u64::from_le(unsafe { bytes.as_ptr().add(at).cast::<u64>().read_unaligned() })
}

/// Four bytes from `at`, the first as the lowest.
///
/// # Safety
/// `at + 4 <= bytes.len()`.
#[inline]
unsafe fn load4(bytes: &[u8], at: usize) -> u32 {
    debug_assert!(at <= bytes.len() && bytes.len() - at >= 4);
    // SAFETY: the caller keeps the four bytes inside `bytes`; the read asks for no alignment.
    u32::from_le(unsafe { bytes.as_ptr().add(at).cast::<u32>().read_unaligned() })
}

/// Copies `BYTES` bytes from `from[start]` to `to[at]`.
///
/// # Safety
/// `start + BYTES <= from.len()` and `at + BYTES <= to.len()`.
#[inline]
unsafe fn copy<const BYTES: usize>(from: &[u8], start: usize, to: &mut [u8], at: usize) {
    debug_assert!(start <= from.len() && from.len() - start >= BYTES);
    debug_assert!(at <= to.len() && to.len() - at >= BYTES);
    // SAFETY: the caller keeps both pieces inside their slices, which cannot overlap, one being borrowed mutably.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().add(start), to.as_mut_ptr().add(at), BYTES) };
}

impl std::fmt::Debug for Lz4Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lz4Encoder").field("table_bytes", &TABLE_BYTES).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "lz4_tests.rs"]
mod tests;
