//! Which paths a JSON object already has.
//!
//! Job: answer "is this path new?" exactly, for objects that are open at the same time, without allocating once warm.
//! Place in the flow: inside [`crate::json::JsonObject`]. Owner: the worker thread that owns the row buffer. Why it
//! matters: a path that occurs twice in one binary `JSON` value makes the server refuse the **whole INSERT** (code
//! 117), and its own setting against that (`type_json_skip_duplicated_paths`) corrupts binary input.
//!
//! The paths themselves are not copied: they are compared where they already lie, in the row buffer. Open objects
//! form a stack; an object may only add paths while it is the innermost one.
//!
//! Cost: up to [`LINEAR_PATHS_MAX`] paths an object keeps a list and compares one 64-bit digest per path, then bytes
//! where digests agree. Above, it keeps a table keyed by a seeded hash, so that neither many keys nor keys chosen to
//! collide make it quadratic. Memory: 24 bytes a path, 16 to 32 more in a table, released down to
//! [`KEPT_PATHS_MAX`] paths when the outermost object ends.

use std::hash::{BuildHasher, RandomState};

/// Paths up to which a list of digests is searched, the usual span having 5 to 20. Chosen: 32 digests are four cache
/// lines, and building a table costs more than searching them.
pub const LINEAR_PATHS_MAX: usize = 32;

/// Paths whose memory is kept between rows. Chosen: 4,096 paths are about 250 KiB, far above what spans carry; a row
/// with 100,000 must not leave its 6 MB behind in every worker.
pub const KEPT_PATHS_MAX: usize = 4_096;

/// An unused slot of a table.
const FREE: usize = usize::MAX;

/// Where a path lies in the row buffer.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
}

/// The paths of all open objects. Reused from row to row.
#[derive(Debug, Default)]
pub struct JsonPaths {
    /// One digest per path of every open object, the innermost object's last.
    digests: Vec<u64>,
    /// Beside `digests`.
    places: Vec<Place>,
    /// The open-addressed tables of those open objects that have one, the innermost object's last. A slot holds the
    /// path's number within its object, or [`FREE`].
    slots: Vec<usize>,
    seed: RandomState,
}

/// The part of [`JsonPaths`] that belongs to one open object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathScope {
    /// Where its paths begin in `digests` and `places`.
    first_path: usize,
    /// Where its table begins in `slots`; it is the rest of `slots` when `has_table`.
    first_slot: usize,
    has_table: bool,
}

impl JsonPaths {
    /// Empty scratch; it allocates on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets objects that were never finished, as after a malformed message.
    pub fn clear(&mut self) {
        self.close(&PathScope { first_path: 0, first_slot: 0, has_table: false });
    }

    /// Opens the scope of an object inside all that are open.
    #[inline]
    pub(crate) fn open(&mut self) -> PathScope {
        PathScope { first_path: self.digests.len(), first_slot: self.slots.len(), has_table: false }
    }

    /// Paths that the innermost scope holds.
    #[inline]
    pub(crate) fn count(&self, scope: &PathScope) -> usize {
        self.digests.len() - scope.first_path
    }

    /// Adds the path `buffer[start..]` to the innermost scope, or returns false when it has that path already.
    #[inline]
    pub(crate) fn add(&mut self, scope: &mut PathScope, buffer: &[u8], start: usize) -> bool {
        let path = &buffer[start..];
        let digest = digest(path);
        if scope.has_table {
            return self.add_to_table(scope, buffer, Place { start, end: buffer.len() });
        }
        let known = self.digests[scope.first_path..]
            .iter()
            .zip(&self.places[scope.first_path..])
            .any(|(known, place)| *known == digest && &buffer[place.start..place.end] == path);
        if known {
            return false;
        }
        self.digests.push(digest);
        self.places.push(Place { start, end: buffer.len() });
        if self.count(scope) > LINEAR_PATHS_MAX {
            scope.has_table = true;
            self.rebuild_table(scope, buffer);
        }
        true
    }

    /// Closes the innermost scope.
    #[inline]
    pub(crate) fn close(&mut self, scope: &PathScope) {
        self.digests.truncate(scope.first_path);
        self.places.truncate(scope.first_path);
        self.slots.truncate(scope.first_slot);
        if scope.first_path == 0 && self.digests.capacity() > KEPT_PATHS_MAX {
            self.digests.shrink_to(KEPT_PATHS_MAX);
            self.places.shrink_to(KEPT_PATHS_MAX);
            self.slots.shrink_to(KEPT_PATHS_MAX * 4);
        }
    }

    fn add_to_table(&mut self, scope: &PathScope, buffer: &[u8], place: Place) -> bool {
        let path = &buffer[place.start..place.end];
        let digest = digest(path);
        let table = &mut self.slots[scope.first_slot..];
        let mask = table.len() - 1;
        let mut at = slot_of(&self.seed, path) & mask;
        while table[at] != FREE {
            let number = scope.first_path + table[at];
            let known = self.places[number];
            if self.digests[number] == digest && &buffer[known.start..known.end] == path {
                return false;
            }
            at = (at + 1) & mask;
        }
        table[at] = self.digests.len() - scope.first_path;
        self.digests.push(digest);
        self.places.push(place);
        // Kept at most half full, so that a search ends after two slots on average.
        if self.count(scope) * 2 > self.slots.len() - scope.first_slot {
            self.rebuild_table(scope, buffer);
        }
        true
    }

    /// Makes a table of four slots a path and puts every path of the scope into it.
    fn rebuild_table(&mut self, scope: &PathScope, buffer: &[u8]) {
        let slots = (self.count(scope) * 4).next_power_of_two();
        self.slots.truncate(scope.first_slot);
        self.slots.resize(scope.first_slot + slots, FREE);
        let table = &mut self.slots[scope.first_slot..];
        for (number, place) in self.places[scope.first_path..].iter().enumerate() {
            let mut at = slot_of(&self.seed, &buffer[place.start..place.end]) & (slots - 1);
            while table[at] != FREE {
                at = (at + 1) & (slots - 1);
            }
            table[at] = number;
        }
    }
}

/// The seeded hash of a path: senders choose keys, and must not be able to choose collisions.
fn slot_of(seed: &RandomState, path: &[u8]) -> usize {
    let hash = seed.hash_one(path).to_le_bytes();
    usize::from_le_bytes(hash)
}

/// A cheap digest: length, first and last eight bytes. Equal paths have equal digests; the converse is checked by
/// comparing bytes.
#[inline]
fn digest(path: &[u8]) -> u64 {
    let (head, tail) = match (path.first_chunk::<8>(), path.last_chunk::<8>()) {
        (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
        _ => (path.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)), 0),
    };
    // An odd multiplier spreads the head over all bits, so that head and tail do not cancel out.
    (head ^ path.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Adds `path` to the buffer and the scope; takes it out of the buffer again when it is known.
    fn add(paths: &mut JsonPaths, scope: &mut PathScope, buffer: &mut Vec<u8>, path: &[u8]) -> bool {
        let start = buffer.len();
        buffer.extend_from_slice(path);
        let new = paths.add(scope, buffer, start);
        if !new {
            buffer.truncate(start);
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
    fn a_row_with_many_paths_does_not_keep_its_memory() {
        let (mut paths, mut buffer) = (JsonPaths::new(), Vec::new());
        let mut scope = paths.open();
        for n in 0..50_000 {
            assert!(add(&mut paths, &mut scope, &mut buffer, format!("{n}").as_bytes()));
        }
        paths.close(&scope);
        assert!(paths.digests.capacity() <= KEPT_PATHS_MAX);
        assert!(paths.places.capacity() <= KEPT_PATHS_MAX);
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
