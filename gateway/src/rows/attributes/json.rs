//! Writes attributes into a `JSON` column.
//!
//! | `AnyValue` | JSON value |
//! | --- | --- |
//! | string | String, in UTF-8 ([`crate::rows::utf8`]) |
//! | bool, int, double | Bool, Int64, Float64 (NaN and infinities kept) |
//! | bytes | String, base64 (RFC 4648, padded), as in OTLP's JSON encoding |
//! | array of one scalar type | Array(Nullable(T)) |
//! | array of key-value lists | Array(JSON) |
//! | any other array | Array(Dynamic) |
//! | key-value list | its members under dotted paths |
//! | empty | absent; an element of an array is null |
//!
//! Paths are unique by construction. The first of two equal paths is kept, so lists under equal keys are merged. A literal key `a.b` always
//! takes precedence over `b` in a list `a`: lists are therefore written after everything else. Values that are left out are still
//! checked, so that whether a message is malformed does not depend on the table.
//!
//! A path that the column's type declares gets the value in that type, if the value can be converted: `sluice_clickhouse::typed_value`
//! has the list. A declared String accepts every value as [`crate::rows::value_text`] writes it, except a key-value list, whose members
//! have their own paths. A value that cannot be converted is stored under [`UNCONVERTED`] and its path, as if the path were not declared.
//! The declared path then has its default, even if the same key follows again. Paths that the type skips are not sent.
//!
//! Limits: lists and arrays nest to [`DEPTH_MAX`]; deeper values are written as JSON text in a String. Writing fails before the member or
//! element that would exceed the row's limit.

mod arrays;

use super::{Error, Set, all_stored, scalar_bytes, value_bytes};
use crate::rows::{
    carry::{Carried, ORIGINAL_BYTES, SetCarry, Source},
    json_text,
    utf8::mended,
    value_text,
};
use sluice_clickhouse::{
    json::{
        JsonObject, put_empty_object, put_tagged_bool, put_tagged_double, put_tagged_int, put_tagged_null,
        put_tagged_string,
    },
    json_limits::JsonLimits,
    json_paths::JsonPaths,
    json_type::{JsonType, PathRule},
    room::{self, KEPT_BYTES_MAX, NoRoom, let_go},
    rowbinary::put_len,
    typed_value::TypedValue,
};
use sluice_otlp::{Attributes, Scalar, Value};

/// How deep lists and arrays nest in a value before the rest is written as text. Chosen: instrumentation nests 2 to 3 deep; each level
/// makes paths longer, and the server limits the complexity of a type.
pub const DEPTH_MAX: usize = 8;

/// The path prefix of values that declared paths cannot hold: `sluice.unconverted.http.status_code`. It cannot be declared
/// (`sluice_clickhouse::json_type`).
pub const UNCONVERTED: &[u8] = b"sluice.unconverted";

/// Writes `JSON` values; reuses its buffers.
#[derive(Default)]
pub struct JsonWriter {
    paths: JsonPaths,
    scratch: Scratch,
}

/// Buffers for the pieces of a value.
#[derive(Default)]
struct Scratch {
    /// Path of the list that is being written.
    prefix: Vec<u8>,
    /// Text of a value that has no binary form here.
    text: Vec<u8>,
    /// A value in a declared type other than text.
    typed: Vec<u8>,
}

impl JsonWriter {
    /// Frees the memory of a huge row.
    pub fn let_go(&mut self) {
        let Scratch { prefix, text, typed } = &mut self.scratch;
        [prefix, text, typed].into_iter().for_each(let_go);
    }

    /// Memory in use, in bytes, for the budget.
    pub fn memory_bytes(&self) -> usize {
        let Scratch { prefix, text, typed } = &self.scratch;
        self.paths.memory_bytes() + prefix.capacity() + text.capacity() + typed.capacity()
    }

    /// Appends one value for a column of this type; fails beyond the length `limit`.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        column: &JsonType,
        &Set { attributes, originals, keys, carry, .. }: &Set<'_>,
        limit: usize,
    ) -> Result<(), Error> {
        if attributes.is_empty() && originals.is_empty() {
            put_empty_object(out);
            if keys {
                put_len(out, 0);
            }
            return Ok(());
        }
        let Self { paths, scratch } = self;
        scratch.prefix.clear();
        let object = JsonObject::begin(out, paths);
        let rules = column.has_rules().then_some(column);
        let elements = column.limits().in_array();
        let mut members = Members { object, rules, elements, root: 0, scratch, limit };
        let written = match carry {
            None => members.write(attributes, 0),
            Some(carry) => members.write_carried(attributes, carry),
        };
        let outcome = written.and_then(|()| {
            for (path, nanos) in originals {
                members.room(path.len())?;
                if members.object.path(path) {
                    members.object.uint(*nanos);
                }
            }
            all_stored(if keys {
                members.object.finish_with_paths(members.limit)?
            } else {
                members.object.finish()
            })
        });
        if outcome.is_err() {
            // The open objects belong to the rejected row.
            paths.clear();
        }
        outcome
    }
}

/// The members of one JSON object, and the state for writing them.
struct Members<'a> {
    object: JsonObject<'a>,
    /// The column's type if it declares or skips paths; it does not apply to objects in arrays.
    rules: Option<&'a JsonType>,
    /// The limits of objects in its arrays.
    elements: JsonLimits,
    /// The depth of this object's own members, which have no prefix.
    root: usize,
    scratch: &'a mut Scratch,
    /// Length of the buffer at which writing fails; reduced by the paths that were left out.
    limit: usize,
}

impl Members<'_> {
    /// Writes all values that are not lists first, so that literal paths take precedence; then the lists.
    fn write(&mut self, attributes: &Attributes<'_>, depth: usize) -> Result<(), Error> {
        let lists = self.write_values(attributes.iter(), depth)?;
        if lists { self.write_lists(attributes.iter(), depth) } else { Ok(()) }
    }

    /// The same for attributes of an outermost object that a config changes.
    fn write_carried(&mut self, attributes: &Attributes<'_>, carry: SetCarry<'_>) -> Result<(), Error> {
        let lists = self.write_values(Carried::new(attributes, carry), self.root)?;
        if lists { self.write_lists(Carried::lists(attributes, carry), self.root) } else { Ok(()) }
    }

    /// Writes all values that are not lists. Returns whether there are lists.
    fn write_values<'a>(
        &mut self,
        mut attributes_left: impl Source<'a>,
        depth: usize,
    ) -> Result<bool, Error> {
        let mut lists = false;
        let is_plain = depth == self.root && self.rules.is_none();
        loop {
            let mut before = self.object.buffer().len();
            while let Some((key, scalar)) = attributes_left.next_usual() {
                if is_plain {
                    self.plain_member(key, scalar)?;
                } else {
                    self.member(key, scalar.into(), depth)?;
                }
                if let Some(bytes) = attributes_left.truncated() {
                    self.original_bytes(key, bytes, before)?;
                }
                before = self.object.buffer().len();
            }
            let Some(attribute) = attributes_left.next_any() else { break };
            let (key, value) = attribute?;
            match value {
                Value::Empty => {}
                Value::KeyValues(_) if depth < DEPTH_MAX => lists = true,
                value => self.unusual_member(key, value, depth)?,
            }
            if let Some(bytes) = attributes_left.truncated() {
                self.original_bytes(key, bytes, before)?;
            }
        }
        Ok(lists)
    }

    /// Writes the length that a truncated value had, if the value was written: the object is longer than before.
    #[cold]
    fn original_bytes(&mut self, key: &[u8], bytes: usize, before: usize) -> Result<(), Error> {
        if self.object.buffer().len() == before {
            return Ok(());
        }
        let key = mended(key, self.bytes_left())?;
        self.room(ORIGINAL_BYTES.len() + 1 + key.len())?;
        if self.object.path_parts(&[ORIGINAL_BYTES, &key]) {
            self.object.int(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        Ok(())
    }

    fn write_lists<'a>(&mut self, mut attributes: impl Source<'a>, depth: usize) -> Result<(), Error> {
        while let Some(attribute) = attributes.next_any() {
            let (key, Value::KeyValues(list)) = attribute? else { continue };
            let before = self.scratch.prefix.len();
            self.push_prefix(key, depth)?;
            self.write(&list, depth + 1)?;
            self.scratch.prefix.truncate(before);
        }
        Ok(())
    }

    /// Sets the prefix for a list's members.
    fn push_prefix(&mut self, key: &[u8], depth: usize) -> Result<(), NoRoom> {
        let key = mended(key, self.limit)?;
        // If the path is longer than the row may be, none of its members fits.
        room::make(&mut self.scratch.prefix, key.len() + 1, self.limit)?;
        if depth > self.root {
            self.scratch.prefix.push(b'.');
        }
        self.scratch.prefix.extend_from_slice(&key);
        Ok(())
    }

    /// Writes a member whose strings may not be UTF-8, or whose value is not a scalar.
    fn unusual_member(&mut self, key: &[u8], value: Value<'_>, depth: usize) -> Result<(), Error> {
        let key = mended(key, self.bytes_left())?;
        match value {
            Value::String(text) => {
                let text = mended(text, self.bytes_left().saturating_sub(key.len()))?;
                self.member(&key, Value::String(&text), depth)
            }
            value => self.member(&key, value, depth),
        }
    }

    /// Writes a scalar under its own key, without prefix and without rules: nearly all members.
    #[expect(clippy::inline_always, reason = "the only caller is the loop over the attributes of every span")]
    #[inline(always)]
    fn plain_member(&mut self, key: &[u8], scalar: Scalar<'_>) -> Result<(), NoRoom> {
        room::make(self.object.buffer(), key.len() + scalar_bytes(&scalar), self.limit)?;
        if self.object.path(key) {
            match scalar {
                Scalar::String(text) => self.object.string(text),
                Scalar::Bool(value) => self.object.bool(value),
                Scalar::Int(value) => self.object.int(value),
                Scalar::Double(value) => self.object.double(value),
            }
        }
        Ok(())
    }

    fn member(&mut self, key: &[u8], value: Value<'_>, depth: usize) -> Result<(), Error> {
        self.room(key.len() + value_bytes(&value))?;
        match self.rule(key, depth) {
            PathRule::Dynamic if self.name(key, depth)? => self.value(value, depth),
            PathRule::Dynamic => Ok(value.check()?),
            PathRule::Skipped => {
                self.leave_out()?;
                Ok(value.check()?)
            }
            PathRule::Typed(typed) => self.typed_member(typed, key, value, depth),
        }
    }

    /// Requests room for this many bytes below the path of the current list.
    #[inline]
    fn room(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let bytes = bytes + self.scratch.prefix.len();
        room::make(self.object.buffer(), bytes, self.limit)
    }

    #[inline]
    fn rule(&mut self, key: &[u8], depth: usize) -> PathRule {
        match self.rules {
            None => PathRule::Dynamic,
            Some(column) if depth == self.root => column.rule(key),
            Some(column) => {
                let prefix = &mut self.scratch.prefix;
                let before = prefix.len();
                prefix.push(b'.');
                prefix.extend_from_slice(key);
                let rule = column.rule(prefix);
                prefix.truncate(before);
                rule
            }
        }
    }

    /// Writes the path of a member. `false` if the object already has this path.
    fn name(&mut self, key: &[u8], depth: usize) -> Result<bool, NoRoom> {
        if depth == self.root {
            return Ok(self.object.path(key));
        }
        let taken = self.object.path_parts(&[&self.scratch.prefix, key]);
        if !taken {
            self.leave_out()?;
        }
        Ok(taken)
    }

    /// Counts left out paths as written. Otherwise many equal keys behind a long path would each cost the length of the path, which is
    /// quadratic in the message.
    fn leave_out(&mut self) -> Result<(), NoRoom> {
        self.limit = self.limit.saturating_sub(self.scratch.prefix.len());
        if self.object.buffer().len() > self.limit { Err(NoRoom) } else { Ok(()) }
    }

    fn typed_member(
        &mut self,
        typed: TypedValue,
        key: &[u8],
        value: Value<'_>,
        depth: usize,
    ) -> Result<(), Error> {
        if typed.is_text() {
            return self.text_member(typed, key, value, depth);
        }
        self.scratch.typed.clear();
        if put_typed(&mut self.scratch.typed, typed, &value) {
            if self.name(key, depth)? {
                self.object.buffer().extend_from_slice(&self.scratch.typed);
            }
            return Ok(());
        }
        self.room(UNCONVERTED.len() + key.len() + value_bytes(&value))?;
        // The first value of a path is kept, whether it can be converted or not.
        let kept = if depth == self.root {
            self.object.path_in_place_of(UNCONVERTED, &[key])
        } else {
            self.object.path_in_place_of(UNCONVERTED, &[&self.scratch.prefix, key])
        };
        if kept {
            return self.value(value, depth);
        }
        self.leave_out()?;
        Ok(value.check()?)
    }

    /// Writes a value under a path that is declared as text, which accepts every value.
    fn text_member(
        &mut self,
        typed: TypedValue,
        key: &[u8],
        value: Value<'_>,
        depth: usize,
    ) -> Result<(), Error> {
        if let Value::String(text) = value {
            if self.name(key, depth)? {
                put_text(self.object.buffer(), typed, text);
            }
            return Ok(());
        }
        let bytes = self.bytes_left().saturating_sub(key.len());
        self.scratch.text.clear();
        value_text::put(&mut self.scratch.text, value, bytes)?;
        self.room(key.len() + self.scratch.text.len())?;
        if self.name(key, depth)? {
            put_text(self.object.buffer(), typed, &self.scratch.text);
        }
        self.let_go_of_text();
        Ok(())
    }

    #[inline]
    fn let_go_of_text(&mut self) {
        if self.scratch.text.capacity() > KEPT_BYTES_MAX {
            let_go(&mut self.scratch.text);
        }
    }

    /// Bytes that the row may still have.
    fn bytes_left(&mut self) -> usize {
        self.limit.saturating_sub(self.object.buffer().len())
    }

    /// Writes a value with its type tag.
    fn value(&mut self, value: Value<'_>, depth: usize) -> Result<(), Error> {
        let out = self.object.buffer();
        match value {
            Value::Empty => put_tagged_null(out),
            Value::String(text) => put_tagged_string(out, text),
            Value::Bool(value) => put_tagged_bool(out, value),
            Value::Int(value) => put_tagged_int(out, value),
            Value::Double(value) => put_tagged_double(out, value),
            Value::Bytes(bytes) => put_tagged_string(out, value_text::base64(&mut self.scratch.text, bytes)),
            Value::Array(array) if depth < DEPTH_MAX => return self.array(array, depth + 1),
            Value::Array(_) | Value::KeyValues(_) => {
                self.json_text(value)?;
                put_tagged_string(self.object.buffer(), &self.scratch.text);
            }
        }
        self.let_go_of_text();
        Ok(())
    }

    /// Makes the JSON text of a value, and requests room for it.
    fn json_text(&mut self, value: Value<'_>) -> Result<(), Error> {
        let bytes = self.bytes_left();
        self.scratch.text.clear();
        json_text::put(&mut self.scratch.text, value, bytes)?;
        Ok(self.room(self.scratch.text.len())?)
    }
}

/// Writes text as a declared type that accepts all text.
fn put_text(out: &mut Vec<u8>, typed: TypedValue, text: &[u8]) {
    let fits = typed.put_text(out, text);
    debug_assert!(fits, "{typed:?} is text");
}

/// Writes a value as a declared type other than text. `false` if it cannot be converted.
fn put_typed(out: &mut Vec<u8>, typed: TypedValue, value: &Value<'_>) -> bool {
    match *value {
        Value::String(value) => typed.put_text(out, value),
        Value::Bool(value) => typed.put_bool(out, value),
        Value::Int(value) => typed.put_int(out, value),
        Value::Double(value) => typed.put_double(out, value),
        Value::Empty | Value::Bytes(_) | Value::Array(_) | Value::KeyValues(_) => false,
    }
}
