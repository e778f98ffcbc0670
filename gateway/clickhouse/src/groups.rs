//! Attributes in typed groups, in `RowBinary`.
//!
//! Job: collects the attributes of one set, drops repeated keys, and writes them group by group. Place in the flow: the row encoder, for
//! sets of [`crate::column::Layout::Nested`]. Owner: the worker thread that owns the row buffer; buffers are reused for the next set.
//!
//! | set | bytes per group, in the order of [`Group::ALL`] |
//! |---|---|
//! | of a resource or span ([`Groups::put_columns`]) | varuint n, n keys; varuint n, n values |
//! | of an event or link ([`Groups::put_pairs`]) | varuint n, then n times key and value, into the group's own buffer |
//!
//! Keys are strings; values are `UInt8` (bool), `Float64`, `Int64` and strings. Limits: [`ATTRIBUTES_MAX`] per set; more are left out,
//! and [`Groups::is_over_limit`] reports it.

use crate::column::Group;
use crate::json_paths::{JsonPaths, PathScope};
use crate::room::{self, KEPT_BYTES_MAX, NoRoom};
use crate::rowbinary::{put_f64, put_i64, put_len, put_string, put_u8, varuint_bytes};

/// Attributes in one set. Chosen: the same as paths in one JSON value.
pub const ATTRIBUTES_MAX: usize = crate::json::JSON_PATHS_MAX;

/// Number of attributes whose positions are kept from set to set.
const KEPT_ENTRIES_MAX: usize = KEPT_BYTES_MAX / size_of::<Entry>();

/// Collects the attributes of one set.
#[derive(Debug, Default)]
pub struct Groups {
    /// Key and value of each attribute, encoded, one after the other.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    counts: [usize; Group::ALL.len()],
    keys: JsonPaths,
    scope: PathScope,
    /// Whether an attribute was left out because there were [`ATTRIBUTES_MAX`].
    is_over_limit: bool,
}

/// The position of an attribute in the bytes; it ends where the next one begins.
#[derive(Debug, Clone, Copy)]
struct Entry {
    group: Group,
    start: u32,
    key_end: u32,
}

/// Memory for the positions of [`ATTRIBUTES_MAX`] attributes.
pub const ENTRIES_BYTES_MAX: usize = (ATTRIBUTES_MAX + KEPT_ENTRIES_MAX) * size_of::<Entry>();

impl Groups {
    /// Removes all attributes.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.counts = [0; Group::ALL.len()];
        self.is_over_limit = false;
        self.keys.clear();
        self.scope = self.keys.open();
    }

    /// Removes all attributes, and frees the extra memory of a huge set.
    pub fn let_go(&mut self) {
        self.clear();
        room::let_go(&mut self.bytes);
        if self.entries.capacity() > KEPT_ENTRIES_MAX {
            self.entries = Vec::new();
        }
    }

    /// Memory held, in bytes: for the budget.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>() + self.keys.memory_bytes()
    }

    /// Bytes collected.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Ensures that an attribute of this many bytes, key and value, can be added to a set of at most `limit` bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if the set would be larger.
    #[inline]
    pub fn make_room(&mut self, bytes: usize, limit: usize) -> Result<(), NoRoom> {
        room::make(&mut self.bytes, bytes, limit)
    }

    /// Whether attributes were left out because there were too many.
    #[inline]
    pub fn is_over_limit(&self) -> bool {
        self.is_over_limit
    }

    /// Adds a boolean, unless the key is known: of two equal keys the first wins, whatever their types.
    #[inline]
    pub fn bool(&mut self, key: &[u8], value: bool) {
        self.add(Group::Bool, b"", key, |out| put_u8(out, u8::from(value)));
    }

    /// Adds a double, unless the key is known.
    #[inline]
    pub fn double(&mut self, key: &[u8], value: f64) {
        self.add(Group::Double, b"", key, |out| put_f64(out, value));
    }

    /// Adds an integer, unless the key is known.
    #[inline]
    pub fn int(&mut self, key: &[u8], value: i64) {
        self.add(Group::Int, b"", key, |out| put_i64(out, value));
    }

    /// Adds text, unless the key is known.
    #[inline]
    pub fn string(&mut self, key: &[u8], value: &[u8]) {
        self.add(Group::String, b"", key, |out| put_string(out, value));
    }

    /// Adds the text of a value of another type, unless the key is known; `prefix` goes before its key.
    #[inline]
    pub fn complex(&mut self, prefix: &[u8], key: &[u8], text: &[u8]) {
        self.add(Group::Complex, prefix, key, |out| put_string(out, text));
    }

    #[inline]
    fn add(&mut self, group: Group, prefix: &[u8], key: &[u8], put_value: impl FnOnce(&mut Vec<u8>)) {
        if self.entries.len() >= ATTRIBUTES_MAX {
            self.is_over_limit = true;
            return;
        }
        let start = self.bytes.len();
        put_len(&mut self.bytes, prefix.len() + key.len());
        self.bytes.extend_from_slice(prefix);
        // Keys are compared without their prefix, as if their own length stood right before them; the length of key and prefix takes at
        // least as many bytes.
        let key_at = self.bytes.len() - varuint_bytes(key.len() as u64);
        if !self.keys.add(&mut self.scope, &self.bytes, key, key_at) {
            self.bytes.truncate(start);
            return;
        }
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        put_value(&mut self.bytes);
        if self.entries.len() == self.entries.capacity() && self.entries.len() >= KEPT_ENTRIES_MAX {
            self.entries.reserve_exact(ATTRIBUTES_MAX - self.entries.len());
        }
        let short = |n: usize| u32::try_from(n).expect("a set is shorter than 4 GiB");
        self.entries.push(Entry { group, start: short(start), key_end: short(key_end) });
        self.counts[group as usize] += 1;
    }

    /// Appends keys and values of every group to a row, which may have at most `limit` bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if it would be longer; nothing is appended then.
    pub fn put_columns(&self, out: &mut Vec<u8>, limit: usize) -> Result<(), NoRoom> {
        room::make(out, self.bytes.len(), limit)?;
        for (group, count) in Group::ALL.into_iter().zip(self.counts) {
            if count == 0 {
                // No key, no value.
                out.extend_from_slice(&[0, 0]);
                continue;
            }
            put_len(out, count);
            for (key, _) in self.of(group) {
                out.extend_from_slice(key);
            }
            put_len(out, count);
            for (_, value) in self.of(group) {
                out.extend_from_slice(value);
            }
        }
        Ok(())
    }

    /// Appends the keys of all groups, without prefixes, to a row: an array of strings in the order of their bytes. Until the next
    /// [`Self::clear`], nothing may be added.
    ///
    /// # Errors
    /// [`NoRoom`] if the row would have more than `limit` bytes; nothing is appended then.
    pub fn put_keys(&mut self, out: &mut Vec<u8>, limit: usize) -> Result<(), NoRoom> {
        self.keys.put_sorted_from(&self.scope, &self.bytes, (out, limit))
    }

    /// Appends the pairs of every group to the buffer of its column, which may have at most `limit` bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if one would be longer; the pairs of some groups are appended then.
    pub fn put_pairs(&self, columns: &mut [Vec<u8>; Group::ALL.len()], limit: usize) -> Result<(), NoRoom> {
        for ((group, count), out) in Group::ALL.into_iter().zip(self.counts).zip(columns) {
            room::make(out, 0, limit)?;
            put_len(out, count);
            if count > 0 {
                for (key, value) in self.of(group) {
                    room::make(out, key.len() + value.len(), limit)?;
                    out.extend_from_slice(key);
                    out.extend_from_slice(value);
                }
            }
        }
        Ok(())
    }

    /// Key and value of each attribute of a group.
    #[inline]
    fn of(&self, group: Group) -> impl Iterator<Item = (&[u8], &[u8])> {
        let of_group = self.entries.iter().enumerate().filter(move |(_, entry)| entry.group == group);
        of_group.map(|(number, entry)| {
            let (start, key_end) = (entry.start as usize, entry.key_end as usize);
            // Only for attributes of the group: every group passes over all attributes, twice.
            let end = self.entries.get(number + 1).map_or(self.bytes.len(), |next| next.start as usize);
            (&self.bytes[start..key_end], &self.bytes[key_end..end])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn filled() -> Groups {
        let mut groups = Groups::default();
        groups.clear();
        groups.string(b"s", b"text");
        groups.bool(b"b", true);
        groups.int(b"i", -1);
        groups.double(b"d", 0.5);
        groups.complex(Group::BYTES_PREFIX, b"c", b"AA==");
        groups.string(b"t", b"");
        // Known keys, of any type.
        groups.int(b"s", 7);
        groups.string(b"c", b"second");
        groups.complex(Group::MAP_PREFIX, b"c", b"{}");
        groups
    }

    #[test]
    fn columns_are_keys_and_values_of_each_group() {
        let mut out = Vec::new();
        filled().put_columns(&mut out, LIMIT).unwrap();
        let expected = [
            &b"\x01\x01b\x01\x01"[..],
            b"\x01\x01d\x01",
            &0.5_f64.to_le_bytes(),
            b"\x01\x01i\x01",
            &(-1_i64).to_le_bytes(),
            b"\x02\x01s\x01t\x02\x04text\x00",
            b"\x01\x08@bytes@c\x01\x04AA==",
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn pairs_go_to_the_column_of_their_group() {
        let mut columns = <[Vec<u8>; 5]>::default();
        let mut groups = filled();
        groups.put_pairs(&mut columns, LIMIT).unwrap();
        groups.clear();
        groups.bool(b"b", false);
        groups.put_pairs(&mut columns, LIMIT).unwrap();
        assert_eq!(columns[0], b"\x01\x01b\x01\x01\x01b\x00");
        assert_eq!(columns[3], b"\x02\x01s\x04text\x01t\x00\x00");
        assert_eq!(columns[4], b"\x01\x08@bytes@c\x04AA==\x00");
    }

    #[test]
    fn keys_of_all_groups_are_sorted_and_have_no_prefix() {
        let mut out = Vec::new();
        let mut groups = filled();
        assert_eq!(groups.put_keys(&mut out, 5), Err(NoRoom));
        groups.put_keys(&mut out, LIMIT).unwrap();
        assert_eq!(out, b"\x06\x01b\x01c\x01d\x01i\x01s\x01t");
        groups.clear();
        groups.put_keys(&mut out, LIMIT).unwrap();
        assert_eq!(out.last(), Some(&0));
    }

    #[test]
    fn a_set_for_which_there_is_no_room_is_not_appended() {
        let mut out = Vec::new();
        assert_eq!(filled().put_columns(&mut out, 20), Err(NoRoom));
        assert!(out.is_empty());
        assert_eq!(Groups::default().make_room(2_000, 1_000), Err(NoRoom));
    }

    #[test]
    fn a_set_without_attributes_is_empty_arrays() {
        let mut out = Vec::new();
        let mut groups = Groups::default();
        groups.clear();
        groups.put_columns(&mut out, LIMIT).unwrap();
        assert_eq!(out, [0; 10]);
    }
}
