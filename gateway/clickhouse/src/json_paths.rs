//! Which paths a JSON object already has.
//!
//! Job: answers "is this path new?" exactly, for objects that are open at the same time, without allocating once warm. Place in the flow:
//! inside [`crate::json::JsonObject`]. Owner: the worker thread that owns the row buffer. Why it matters: a repeated path in one binary
//! `JSON` value makes the server refuse the **whole INSERT** (code 117), and its own setting against that
//! (`type_json_skip_duplicated_paths`) corrupts binary input.
//!
//! The paths are not copied: they are compared in the row buffer. Open objects form a stack; only the innermost one may add paths.
//!
//! Cost: a path's 64-bit digest selects one of [`SEEN_BITS`] bits. If the bit is not set, the path is new; most paths need no more.
//! Otherwise an object with up to [`LINEAR_PATHS_MAX`] paths searches a list of digests, and compares bytes if digests are equal. A
//! larger object has a table with a seeded hash, so that neither many keys nor colliding keys make it quadratic. Memory: 16 bytes a path,
//! 8 to 16 more in a table, reduced to [`KEPT_PATHS_MAX`] paths when the outermost object ends. All open objects together have at most
//! [`OPEN_PATHS_MAX`] paths: at most [`MEMORY_BYTES_MAX`].

use crate::room::{self, NoRoom};
use crate::rowbinary::{put_len, put_string, varuint_bytes};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Paths up to which a list of digests is searched, the usual span having 5 to 20. Chosen: 32 paths are twelve cache
/// lines, and building a table costs more than searching them.
pub const LINEAR_PATHS_MAX: usize = 32;

/// Bits that distinguish most new paths from known ones. Chosen: with the 8 paths of a usual span, one new path in 70 is searched for.
pub const SEEN_BITS: usize = u64::BITS as usize * SEEN_WORDS;

const SEEN_WORDS: usize = 4;

/// Maximum number of paths of all open objects. Chosen: as many as one object may have; otherwise objects in arrays of arrays, eight
/// deep, could have eight times as many.
pub const OPEN_PATHS_MAX: usize = crate::json::JSON_PATHS_MAX;

/// Number of paths whose memory is kept between rows. Chosen: 4,096 paths are 128 KiB, far above real spans; a row with 100,000 must not
/// leave its 3 MB in every worker.
pub const KEPT_PATHS_MAX: usize = 4_096;

/// Slots of all tables: a table has at most four for each of its paths.
const SLOTS_MAX: usize = OPEN_PATHS_MAX * 4;

/// Maximum memory of paths and tables, including the copy while one grows.
pub const MEMORY_BYTES_MAX: usize =
    (OPEN_PATHS_MAX + KEPT_PATHS_MAX) * size_of::<Path>() + 2 * SLOTS_MAX * size_of::<Slot>();

/// Memory of the paths and tables that is kept between rows.
pub const KEPT_MEMORY_BYTES_MAX: usize = KEPT_PATHS_MAX * (size_of::<Path>() + 4 * size_of::<Slot>());

/// A path's number within its object.
type Slot = u32;

/// An unused slot of a table.
const FREE: Slot = Slot::MAX;

/// A path of an open object.
#[derive(Debug, Clone, Copy)]
struct Path {
    digest: u64,
    /// Its position in the row buffer; its length precedes it.
    at: u32,
    /// Its bytes without the length.
    len: u32,
}

impl Path {
    #[inline]
    fn new(digest: u64, at: usize, len: usize) -> Self {
        debug_assert!(u32::try_from(at + len).is_ok(), "a row buffer is shorter than 4 GiB");
        #[expect(clippy::cast_possible_truncation, reason = "a row has a few MiB; asking is 1 ns a path")]
        Self { digest, at: at as u32, len: len as u32 }
    }

    fn bytes<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        &buffer[self.range()]
    }

    /// Where its bytes are in the row buffer, without the length.
    fn range(&self) -> Range<usize> {
        let start = self.at as usize + varuint_bytes(self.len.into());
        start..start + self.len as usize
    }

    fn is(&self, digest: u64, path: &[u8], buffer: &[u8]) -> bool {
        self.digest == digest && self.bytes(buffer) == path
    }
}

/// The paths of all open objects. Reused from row to row.
#[derive(Debug, Default)]
pub struct JsonPaths {
    /// The paths of every open object, the innermost object's last.
    paths: Vec<Path>,
    /// The open-addressed tables of those open objects that have one, the innermost object's last. A slot holds the
    /// path's number within its object, or [`FREE`].
    slots: Vec<Slot>,
    seed: RandomState,
}

/// The part of [`JsonPaths`] that belongs to one open object.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PathScope {
    /// Where its paths begin in `paths`.
    first_path: usize,
    /// Where its table begins in `slots`, if it has one; it is the rest of `slots` then.
    first_slot: usize,
    /// The length of `paths` from which on a path is not added to the list: the object has a table, or is full.
    list_end: usize,
    /// The bits of its paths' digests.
    seen: [u64; SEEN_WORDS],
}

impl JsonPaths {
    /// Empty scratch; it allocates on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets objects that were never finished, as after a malformed message.
    pub fn clear(&mut self) {
        self.close(&PathScope::default());
    }

    /// Opens the scope of an object inside all open ones.
    #[inline]
    pub(crate) fn open(&mut self) -> PathScope {
        let (first_path, first_slot) = (self.paths.len(), self.slots.len());
        let list_end = (first_path + LINEAR_PATHS_MAX).min(OPEN_PATHS_MAX);
        PathScope { first_path, first_slot, list_end, seen: [0; SEEN_WORDS] }
    }

    /// Paths that the innermost scope holds.
    #[inline]
    pub(crate) fn count(&self, scope: &PathScope) -> usize {
        self.paths.len() - scope.first_path
    }

    /// Whether all scopes together have room for this many more paths.
    #[inline]
    pub(crate) fn have_room_for(&self, paths: usize) -> bool {
        self.paths.len() + paths <= OPEN_PATHS_MAX
    }

    /// Memory held, in bytes: for the budget.
    pub fn memory_bytes(&self) -> usize {
        self.paths.capacity() * size_of::<Path>() + self.slots.capacity() * size_of::<Slot>()
    }

    /// Adds a path to the innermost scope. Returns false if that scope has the path already, or there is no room. An added path is in
    /// `buffer[at..]`, after its length, or is written there next.
    #[expect(
        clippy::inline_always,
        reason = "out of line, a call per attribute: 170 of 3,820 instructions a rich span"
    )]
    #[inline(always)]
    pub(crate) fn add(&mut self, scope: &mut PathScope, buffer: &[u8], path: &[u8], at: usize) -> bool {
        if self.paths.len() >= scope.list_end {
            return self.have_room_for(1) && self.add_to_table(scope, buffer, path, at);
        }
        let digest = digest(path);
        let (word, bit) = seen_bit(digest);
        if scope.seen[word] & bit != 0 && self.is_listed(scope, buffer, path, digest) {
            return false;
        }
        scope.seen[word] |= bit;
        self.paths.push(Path::new(digest, at, path.len()));
        true
    }

    /// Whether the innermost scope has this path.
    #[cold]
    pub(crate) fn has(&self, scope: &PathScope, buffer: &[u8], path: &[u8]) -> bool {
        let digest = digest(path);
        let table = &self.slots[scope.first_slot..];
        if table.is_empty() {
            return self.is_listed(scope, buffer, path, digest);
        }
        let mask = table.len() - 1;
        let mut slot = slot_of(&self.seed, path) & mask;
        while table[slot] != FREE {
            if self.paths[scope.first_path + table[slot] as usize].is(digest, path, buffer) {
                return true;
            }
            slot = (slot + 1) & mask;
        }
        false
    }

    /// Appends the innermost scope's paths to the buffer that has them: an array of strings in the order of their bytes. They lie `moved`
    /// bytes behind where they were added. The scope can only be closed then.
    ///
    /// # Errors
    /// [`NoRoom`] if the buffer would be longer than `limit`; nothing is appended then.
    #[inline(never)]
    pub(crate) fn put_sorted(
        &mut self,
        scope: &PathScope,
        buffer: &mut Vec<u8>,
        (moved, limit): (usize, usize),
    ) -> Result<(), NoRoom> {
        let paths = self.sorted(scope, buffer, moved);
        room::make(buffer, strings_bytes(paths), limit)?;
        put_len(buffer, paths.len());
        for path in paths {
            put_len(buffer, path.len as usize);
            buffer.extend_from_within(path.range());
        }
        Ok(())
    }

    /// Like [`Self::put_sorted`], for paths in another buffer than `out`.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` would be longer than `limit`; nothing is appended then.
    pub(crate) fn put_sorted_from(
        &mut self,
        scope: &PathScope,
        buffer: &[u8],
        (out, limit): (&mut Vec<u8>, usize),
    ) -> Result<(), NoRoom> {
        let paths = self.sorted(scope, buffer, 0);
        room::make(out, strings_bytes(paths), limit)?;
        put_len(out, paths.len());
        for path in paths {
            put_string(out, path.bytes(buffer));
        }
        Ok(())
    }

    /// The innermost scope's paths in the order of their bytes. Most objects have few, in the order in which their writer always has them.
    fn sorted(&mut self, scope: &PathScope, buffer: &[u8], moved: usize) -> &[Path] {
        let paths = &mut self.paths[scope.first_path..];
        for path in &mut *paths {
            *path = Path::new(path.digest, path.at as usize + moved, path.len as usize);
        }
        paths.sort_unstable_by(|one, other| one.bytes(buffer).cmp(other.bytes(buffer)));
        paths
    }

    /// Closes the innermost scope.
    #[inline]
    pub(crate) fn close(&mut self, scope: &PathScope) {
        self.paths.truncate(scope.first_path);
        self.slots.truncate(scope.first_slot);
        if self.paths.capacity() > KEPT_PATHS_MAX {
            self.shrink();
        }
    }

    /// Frees the memory of an object with very many paths, if no object is open.
    #[cold]
    fn shrink(&mut self) {
        if self.paths.is_empty() {
            self.paths.shrink_to(KEPT_PATHS_MAX);
            self.slots.shrink_to(KEPT_PATHS_MAX * 4);
        }
    }

    #[cold]
    fn is_listed(&self, scope: &PathScope, buffer: &[u8], path: &[u8], digest: u64) -> bool {
        self.paths[scope.first_path..].iter().any(|known| known.is(digest, path, buffer))
    }

    #[cold]
    fn add_to_table(&mut self, scope: &PathScope, buffer: &[u8], path: &[u8], at: usize) -> bool {
        let digest = digest(path);
        let number = self.count(scope);
        // Kept at most half full, so that a search ends after two slots on average.
        if number * 2 >= self.slots.len() - scope.first_slot {
            self.rebuild_table(scope, buffer);
        }
        let table = &mut self.slots[scope.first_slot..];
        let mask = table.len() - 1;
        let mut slot = slot_of(&self.seed, path) & mask;
        while table[slot] != FREE {
            if self.paths[scope.first_path + table[slot] as usize].is(digest, path, buffer) {
                return false;
            }
            slot = (slot + 1) & mask;
        }
        table[slot] = slot_number(number);
        if self.paths.len() == self.paths.capacity() && self.paths.len() >= KEPT_PATHS_MAX {
            self.paths.reserve_exact(OPEN_PATHS_MAX.saturating_sub(self.paths.len()));
        }
        self.paths.push(Path::new(digest, at, path.len()));
        true
    }

    /// Makes a table of four slots a path and puts every path of the scope into it.
    fn rebuild_table(&mut self, scope: &PathScope, buffer: &[u8]) {
        let slots = (self.count(scope) * 4).next_power_of_two();
        self.slots.truncate(scope.first_slot);
        self.slots.reserve_exact(slots);
        self.slots.resize(scope.first_slot + slots, FREE);
        let table = &mut self.slots[scope.first_slot..];
        for (number, path) in self.paths[scope.first_path..].iter().enumerate() {
            let mut at = slot_of(&self.seed, path.bytes(buffer)) & (slots - 1);
            while table[at] != FREE {
                at = (at + 1) & (slots - 1);
            }
            table[at] = slot_number(number);
        }
    }
}

/// Bytes of the paths as strings, each with its length.
fn strings_bytes(paths: &[Path]) -> usize {
    paths.iter().map(|path| varuint_bytes(path.len.into()) + path.len as usize).sum()
}

fn slot_number(number: usize) -> Slot {
    Slot::try_from(number).expect("an object has fewer than 2^32 paths")
}

/// The seeded hash of a path: senders choose keys, and must not be able to choose collisions.
fn slot_of(seed: &RandomState, path: &[u8]) -> usize {
    let hash = seed.hash_one(path).to_le_bytes();
    usize::from_le_bytes(hash)
}

/// The bit of a digest, by its word. The high bits of a product depend on all bits of its factors.
#[inline]
fn seen_bit(digest: u64) -> (usize, u64) {
    let [.., bit, word] = digest.to_le_bytes();
    (usize::from(word) % SEEN_WORDS, 1 << (bit % 64))
}

/// A cheap digest: length, first and last eight bytes. Equal paths have equal digests; the converse is checked by
/// comparing bytes.
#[inline]
fn digest(path: &[u8]) -> u64 {
    // An odd multiplier spreads a word over all higher bits, so that head and tail do not cancel out.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (head, tail) = match (path.first_chunk::<8>(), path.last_chunk::<8>()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => (path.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)), 0),
    };
    ((head ^ path.len() as u64).wrapping_mul(SPREAD) ^ tail).wrapping_mul(SPREAD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rowbinary::put_string;
    use std::collections::HashSet;

    /// Adds `path` to the buffer and the scope; removes it from the buffer again if it is known.
    fn add(paths: &mut JsonPaths, scope: &mut PathScope, buffer: &mut Vec<u8>, path: &[u8]) -> bool {
        let new = paths.add(scope, buffer, path, buffer.len());
        if new {
            put_string(buffer, path);
        }
        new
    }

    #[test]
    fn a_known_path_is_found_among_any_number() {
        let (mut paths, mut buffer) = (JsonPaths::new(), Vec::new());
        let mut scope = paths.open();
        let mut model = HashSet::new();
        for n in 0..20_000_u32 {
            let path = format!("key.{}", n.wrapping_mul(2_654_435_761) % 7_000);
            let new = add(&mut paths, &mut scope, &mut buffer, path.as_bytes());
            assert_eq!(new, model.insert(path));
        }
        assert_eq!(paths.count(&scope), model.len());
    }

    #[test]
    fn has_says_what_add_would_say_and_adds_nothing() {
        let (mut paths, mut buffer) = (JsonPaths::new(), Vec::new());
        let mut scope = paths.open();
        for n in 0..100 {
            let path = format!("key.{n}");
            assert!(!paths.has(&scope, &buffer, path.as_bytes()));
            assert!(add(&mut paths, &mut scope, &mut buffer, path.as_bytes()));
            assert!((0..=n).all(|known| paths.has(&scope, &buffer, format!("key.{known}").as_bytes())));
        }
    }

    #[test]
    fn paths_of_equal_digest_are_still_told_apart() {
        // the digest sees the first and the last eight bytes and the length: these differ in the middle only
        let (mut paths, mut buffer) = (JsonPaths::new(), Vec::new());
        let mut scope = paths.open();
        for n in 0..200 {
            let path = format!("http.req.{n:04}.response");
            assert_eq!(digest(path.as_bytes()), digest(b"http.req.9999.response"));
            assert!(add(&mut paths, &mut scope, &mut buffer, path.as_bytes()));
            assert!(!add(&mut paths, &mut scope, &mut buffer, path.as_bytes()));
        }
    }

    #[test]
    fn an_inner_scope_has_its_own_paths_and_leaves_the_outer_one_as_it_was() {
        let (mut paths, mut buffer) = (JsonPaths::new(), Vec::new());
        let mut outer = paths.open();
        for n in 0..50 {
            assert!(add(&mut paths, &mut outer, &mut buffer, format!("o{n}").as_bytes()));
        }
        let mut inner = paths.open();
        for n in 0..50 {
            assert!(add(&mut paths, &mut inner, &mut buffer, format!("o{n}").as_bytes()));
        }
        paths.close(&inner);
        assert_eq!(paths.count(&outer), 50);
        assert!(!add(&mut paths, &mut outer, &mut buffer, b"o49"));
        assert!(add(&mut paths, &mut outer, &mut buffer, b"o50"));
    }

    #[test]
    fn paths_are_appended_sorted_wherever_they_lie() {
        let (mut paths, mut buffer) = (JsonPaths::new(), b"row ".to_vec());
        let outer = paths.open();
        let mut scope = paths.open();
        for path in [&b"b"[..], b"", b"ab", b"a", b"\xff", &[b'x'; 200]] {
            assert!(add(&mut paths, &mut scope, &mut buffer, path));
        }
        let expected = [&b"\x06\x00\x01a\x02ab\x01b\xc8\x01"[..], &[b'x'; 200], b"\x01\xff"].concat();
        let mut out = Vec::new();
        assert_eq!(paths.put_sorted_from(&scope, &buffer, (&mut out, 100)), Err(NoRoom));
        paths.put_sorted_from(&scope, &buffer, (&mut out, 1_000)).unwrap();
        assert_eq!(out, expected);
        // Three bytes were put in front of them since.
        let mut moved = [b"+++", &buffer[..]].concat();
        let before = moved.len();
        paths.put_sorted(&scope, &mut moved, (3, 1_000)).unwrap();
        assert_eq!(moved[before..], expected);
        paths.close(&scope);
        assert_eq!(paths.count(&outer), 0);
    }

    #[test]
    fn a_row_with_many_paths_does_not_keep_its_memory() {
        let (mut paths, mut buffer) = (JsonPaths::new(), Vec::new());
        let mut scope = paths.open();
        for n in 0..50_000 {
            assert!(add(&mut paths, &mut scope, &mut buffer, format!("{n}").as_bytes()));
        }
        paths.close(&scope);
        assert!(paths.paths.capacity() <= KEPT_PATHS_MAX);
        assert!(paths.slots.capacity() <= KEPT_PATHS_MAX * 4);
    }

    #[test]
    fn short_paths_differ_by_length_and_bytes() {
        let (mut paths, mut buffer) = (JsonPaths::new(), Vec::new());
        let mut scope = paths.open();
        for path in [&b""[..], b"\0", b"\0\0", b"a", b"ab", b"ba", b"abcdefg", b"abcdefgh", b"abcdefghi"] {
            assert!(add(&mut paths, &mut scope, &mut buffer, path), "{path:?}");
            assert!(!add(&mut paths, &mut scope, &mut buffer, path), "{path:?}");
        }
    }
}
