//! One value of a `JSON` column in `RowBinary`.
//!
//! Job: writes attributes as a binary `JSON` value whose paths are unique by construction. Place in the flow: the row encoder opens one
//! [`JsonObject`] per attribute column (and per event and link), names a path, writes its value, and finishes it. Owner: the worker
//! thread that owns the row buffer.
//!
//! | bytes | meaning |
//! |---|---|
//! | varuint | number of paths |
//! | then per path: varuint length, bytes | the path, nested keys joined by dots |
//! | tag | type of the value, [`crate::rowbinary::tag`] |
//! | value | as in a column of that type |
//!
//! Values of paths that the column's type declares (`JSON(a UInt32)`) have no tag: [`crate::json_type`] knows them,
//! [`crate::typed_value`] writes them. Paths may be in any order. Arrays are in [`crate::json_array`].
//!
//! A `Map` of text has the same bytes, with a string for each tag and value: the encoder writes it through the same object,
//! so that its keys are unique too.
//!
//! The count comes first but is known last. One byte is reserved for it, and an object of more than 127 paths is moved by one or two
//! bytes when it ends. That costs one copy of such an object and nothing for all others.
//!
//! Limits: [`JSON_PATHS_MAX`] paths, in all objects that are open together; further ones are left out and counted in
//! [`JsonSummary`].
//!
//! Source: values that ClickHouse 26.7 read back, and
//! <https://clickhouse.com/docs/interfaces/formats/RowBinary#json>.

use crate::json_array::{ArrayKind, put_array_header};
use crate::json_limits::JsonLimits;
use crate::json_paths::{JsonPaths, PathScope};
use crate::room::NoRoom;
use crate::rowbinary::{
    put_f64, put_i64, put_len, put_string, put_u8, put_u64, put_varuint, tag, varuint_bytes,
};

/// Paths in one JSON value. Specified: the server's `format_binary_max_object_size`, 100,000 since 25.12; a value with
/// more makes the server refuse the whole INSERT.
pub const JSON_PATHS_MAX: usize = 100_000;

/// The largest count that fits the one byte left for it.
const ONE_BYTE_COUNT_MAX: usize = 127;

/// An object being written at the end of `out`. [`JsonObject::finish`] must be called: without it the count is 0 and
/// the row is not readable.
#[derive(Debug)]
#[must_use = "an object that is not finished leaves a row that nobody can read"]
pub struct JsonObject<'a> {
    out: &'a mut Vec<u8>,
    paths: &'a mut JsonPaths,
    scope: PathScope,
    /// The position of the byte reserved for the count.
    count_at: usize,
    /// Paths that are taken but not written.
    stood_in: usize,
    duplicates: usize,
    over_limit: usize,
}

/// What happened to the paths of one object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JsonSummary {
    /// Paths written.
    pub paths: usize,
    /// Paths left out because the object had them already.
    pub duplicates: usize,
    /// Paths left out because the object, with those that contain it, had [`JSON_PATHS_MAX`].
    pub over_limit: usize,
}

impl<'a> JsonObject<'a> {
    /// Begins an object at the end of `out`. Objects may be nested, the inner one being finished first.
    #[inline]
    pub fn begin(out: &'a mut Vec<u8>, paths: &'a mut JsonPaths) -> Self {
        let (count_at, scope) = (out.len(), paths.open());
        out.push(0);
        Self { out, paths, scope, count_at, stood_in: 0, duplicates: 0, over_limit: 0 }
    }

    /// Names the next path. If this returns true, exactly one value must be written next. If it returns false, the object has that path
    /// already (the first one wins) or is full, and the value must be skipped.
    #[expect(
        clippy::inline_always,
        reason = "out of line, a call per attribute: see the row encoder's figures"
    )]
    #[inline(always)]
    #[must_use = "a value may only be written after a path that was taken"]
    pub fn path(&mut self, path: &[u8]) -> bool {
        let Self { out, paths, scope, .. } = self;
        let new = paths.add(scope, out, path, out.len());
        if new {
            put_string(out, path);
        } else {
            self.note_left_out();
        }
        new
    }

    /// Like [`JsonObject::path`], for the path of `parts` joined by dots (`[b"http.request", b"method"]` is `http.request.method`), which
    /// is only assembled in the row.
    #[inline]
    #[must_use = "a value may only be written after a path that was taken"]
    pub fn path_parts(&mut self, parts: &[&[u8]]) -> bool {
        let before = self.out.len();
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>() + parts.len().saturating_sub(1);
        put_len(self.out, bytes);
        let start = self.out.len();
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                self.out.push(b'.');
            }
            self.out.extend_from_slice(part);
        }
        let Self { out, paths, scope, .. } = self;
        let new = paths.add(scope, &out[..before], &out[start..], before);
        if !new {
            out.truncate(before);
            self.note_left_out();
        }
        new
    }

    /// Like [`JsonObject::path_parts`], for a path that replaces another one: `prefix`, a dot, and the path of `parts`. It is taken only
    /// if the object has neither. The object has both afterwards: a later value with the path of `parts` is left out.
    #[cold]
    #[must_use = "a value may only be written after a path that was taken"]
    pub fn path_in_place_of(&mut self, prefix: &[u8], parts: &[&[u8]]) -> bool {
        let Self { out, paths, scope, stood_in, .. } = self;
        let before = out.len();
        let part_bytes = parts.iter().map(|part| part.len() + 1).sum::<usize>();
        put_len(out, prefix.len() + part_bytes);
        let start = out.len();
        out.extend_from_slice(prefix);
        for part in parts {
            out.push(b'.');
            out.extend_from_slice(part);
        }
        let other_at = start + prefix.len() + 1;
        let new = paths.have_room_for(2)
            && !paths.has(scope, &out[..before], &out[other_at..])
            && paths.add(scope, &out[..before], &out[start..], before);
        if new {
            // Paths are compared as if their own length stood right before them; a longer path's length takes at least as many bytes.
            let other = &out[other_at..];
            let at = other_at - varuint_bytes(other.len() as u64);
            let added = paths.add(scope, out, other, at);
            assert!(added, "the object was asked for the path just now");
            *stood_in += 1;
        } else {
            out.truncate(before);
            self.note_left_out();
        }
        new
    }

    /// Counts a path that the object has already or has no room for.
    #[cold]
    fn note_left_out(&mut self) {
        if self.paths.have_room_for(1) {
            self.duplicates += 1;
        } else {
            self.over_limit += 1;
        }
    }

    /// Writes a `String` value.
    #[inline]
    pub fn string(&mut self, value: &[u8]) {
        put_tagged_string(self.out, value);
    }

    /// Writes a `Bool` value.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        put_tagged_bool(self.out, value);
    }

    /// Writes an `Int64` value.
    #[inline]
    pub fn int(&mut self, value: i64) {
        put_tagged_int(self.out, value);
    }

    /// Writes a `UInt64` value. If the same path has `Int64` elsewhere, it has two types; for numbers that senders chose, use
    /// [`JsonObject::int`].
    #[inline]
    pub fn uint(&mut self, value: u64) {
        put_u8(self.out, tag::UINT64);
        put_u64(self.out, value);
    }

    /// Writes a `Float64` value. NaN keeps its type and prints as null.
    #[inline]
    pub fn double(&mut self, value: f64) {
        put_tagged_double(self.out, value);
    }

    /// Writes a null. The path then reads as absent, so leaving it out takes fewer bytes for the same result.
    #[inline]
    pub fn null(&mut self) {
        put_tagged_null(self.out);
    }

    /// Writes the header of an array of `len` elements. The caller then writes these through `kind` into [`JsonObject::buffer`], or
    /// through [`JsonObject::element_object`].
    #[inline]
    pub fn array(&mut self, kind: ArrayKind, len: usize, elements: JsonLimits) {
        put_array_header(self.out, kind, len, elements);
    }

    /// Starts an object that is an element of an array of [`ArrayKind::Objects`] (which has no tag of its own).
    #[inline]
    pub fn element_object(&mut self) -> JsonObject<'_> {
        JsonObject::begin(self.out, self.paths)
    }

    /// The row buffer, for a value that none of the methods above writes.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Ends the object: writes the number of its paths.
    #[expect(
        clippy::inline_always,
        reason = "out of line, the object is copied first: 8 of 98 ns a loadgen span"
    )]
    #[inline(always)]
    pub fn finish(self) -> JsonSummary {
        let Self { out, paths, scope, count_at, stood_in, duplicates, over_limit } = self;
        let count = paths.count(&scope) - stood_in;
        if count <= ONE_BYTE_COUNT_MAX {
            // A count of up to 127 is its own varuint.
            out[count_at] = count.to_le_bytes()[0];
        } else {
            write_long_count(out, count_at, count);
        }
        paths.close(&scope);
        JsonSummary { paths: count, duplicates, over_limit }
    }

    /// Like [`JsonObject::finish`], and appends the paths as a column of their own: an array of strings in the order of their bytes. Paths
    /// that another one replaces ([`JsonObject::path_in_place_of`]) are among them, since the object's source has them.
    ///
    /// # Errors
    /// [`NoRoom`] if the buffer would be longer than `limit`. The object is not closed then: its row is given up, and [`JsonPaths::clear`]
    /// must be called.
    #[inline(never)]
    pub fn finish_with_paths(self, limit: usize) -> Result<JsonSummary, NoRoom> {
        let Self { out, paths, scope, count_at, stood_in, duplicates, over_limit } = self;
        let count = paths.count(&scope) - stood_in;
        let before = out.len();
        if count <= ONE_BYTE_COUNT_MAX {
            out[count_at] = count.to_le_bytes()[0];
        } else {
            write_long_count(out, count_at, count);
        }
        let moved = out.len() - before;
        paths.put_sorted(&scope, out, (moved, limit))?;
        paths.close(&scope);
        Ok(JsonSummary { paths: count, duplicates, over_limit })
    }
}

/// Writes an empty object, for a row without attributes.
#[inline]
pub fn put_empty_object(out: &mut Vec<u8>) {
    put_u8(out, 0);
}

/// Appends tag and value of a `String`.
#[inline]
pub fn put_tagged_string(out: &mut Vec<u8>, value: &[u8]) {
    // A length of up to 127 is its own varuint.
    if let Ok(len @ ..=0x7f) = u8::try_from(value.len()) {
        out.extend_from_slice(&[tag::STRING, len]);
    } else {
        put_u8(out, tag::STRING);
        put_len(out, value.len());
    }
    out.extend_from_slice(value);
}

/// Appends tag and value of a `Bool`.
#[inline]
pub fn put_tagged_bool(out: &mut Vec<u8>, value: bool) {
    put_u8(out, tag::BOOL);
    put_u8(out, u8::from(value));
}

/// Appends tag and value of an `Int64`.
#[inline]
pub fn put_tagged_int(out: &mut Vec<u8>, value: i64) {
    put_u8(out, tag::INT64);
    put_i64(out, value);
}

/// Appends tag and value of a `Float64`.
#[inline]
pub fn put_tagged_double(out: &mut Vec<u8>, value: f64) {
    put_u8(out, tag::FLOAT64);
    put_f64(out, value);
}

/// Appends the tag of a null, which has no value.
#[inline]
pub fn put_tagged_null(out: &mut Vec<u8>) {
    put_u8(out, tag::NOTHING);
}

/// Moves the object to make room for a count of more than one byte, and writes the count.
#[cold]
fn write_long_count(out: &mut Vec<u8>, count_at: usize, count: usize) {
    let end = out.len();
    let more = varuint_bytes(count as u64) - 1;
    out.resize(end + more, 0);
    out.copy_within(count_at + 1..end, count_at + 1 + more);
    let mut bytes = Vec::new();
    put_varuint(&mut bytes, count as u64);
    out[count_at..=count_at + more].copy_from_slice(&bytes);
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
