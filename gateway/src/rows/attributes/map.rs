//! Writes attributes into a `Map(LowCardinality(String), String)`, as the OpenTelemetry Collector's exporter does.
//!
//! | `AnyValue` | text |
//! | --- | --- |
//! | all values | [`crate::rows::value_text`] |
//! | key-value list | JSON text under its own key: nothing is flattened |
//! | empty | the empty string; the key is kept |
//!
//! Keys are unique: the first of two equal ones is kept, which is also the one that `m['key']` would find.
//!
//! Limits: writing fails before the key and value that would exceed the row's limit.

use super::{Error, Set, all_stored, scalar_bytes};
use crate::rows::{
    carry::{Carried, ORIGINAL_BYTES, Source},
    utf8::mended,
    value_text,
};
use sluice_clickhouse::{
    json::{JsonObject, put_empty_object},
    json_paths::JsonPaths,
    room::{self, KEPT_BYTES_MAX, let_go},
    rowbinary::{put_len, put_string},
};
use sluice_otlp::Scalar;

/// Writes maps; reuses its buffers.
#[derive(Default)]
pub struct MapWriter {
    keys: JsonPaths,
    text: Vec<u8>,
}

impl MapWriter {
    /// Frees the memory of a huge row.
    pub fn let_go(&mut self) {
        let_go(&mut self.text);
    }

    /// Memory in use, in bytes, for the budget.
    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.text.capacity()
    }

    /// Appends one map; fails beyond the length `limit`.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        &Set { attributes, originals, keys: has_keys, carry, .. }: &Set<'_>,
        limit: usize,
    ) -> Result<(), Error> {
        if attributes.is_empty() && originals.is_empty() {
            put_empty_object(out);
            if has_keys {
                put_len(out, 0);
            }
            return Ok(());
        }
        let Self { keys, text } = self;
        // A map has the same bytes as an object with string values.
        let mut map = JsonObject::begin(out, keys);
        let written = match carry {
            None => put_members(&mut map, text, attributes.iter(), limit),
            Some(carry) => put_members(&mut map, text, Carried::new(attributes, carry), limit),
        };
        let outcome = written.and_then(|()| {
            for (key, nanos) in originals {
                room::make(map.buffer(), key.len(), limit)?;
                if map.path(key) {
                    text.clear();
                    value_text::put_uint(text, *nanos);
                    put_string(map.buffer(), text);
                }
            }
            Ok(())
        });
        let outcome = outcome
            .and_then(|()| all_stored(if has_keys { map.finish_with_paths(limit)? } else { map.finish() }));
        if outcome.is_err() {
            // The map belongs to the rejected row.
            keys.clear();
        }
        outcome
    }
}

fn put_members<'a>(
    map: &mut JsonObject<'_>,
    text: &mut Vec<u8>,
    mut attributes_left: impl Source<'a>,
    limit: usize,
) -> Result<(), Error> {
    loop {
        while let Some((key, scalar)) = attributes_left.next_usual() {
            room::make(map.buffer(), key.len() + scalar_bytes(&scalar), limit)?;
            if map.path(key) {
                put_scalar(map.buffer(), text, scalar);
                if let Some(bytes) = attributes_left.truncated() {
                    put_original_bytes(map, text, (key, bytes), limit)?;
                }
            }
        }
        let Some(attribute) = attributes_left.next_any() else { break };
        let (key, value) = attribute?;
        let key = mended(key, limit.saturating_sub(map.buffer().len()))?;
        room::make(map.buffer(), key.len(), limit)?;
        if map.path(&key) {
            text.clear();
            value_text::put(text, value, limit.saturating_sub(map.buffer().len()))?;
            room::make(map.buffer(), text.len(), limit)?;
            put_string(map.buffer(), text);
            if text.capacity() > KEPT_BYTES_MAX {
                let_go(text);
            }
            if let Some(bytes) = attributes_left.truncated() {
                put_original_bytes(map, text, (&*key, bytes), limit)?;
            }
        } else {
            // Checked although it is not stored: whether a message is malformed must not depend on the table.
            value.check()?;
        }
    }
    Ok(())
}

/// Writes the length that a truncated value had.
#[cold]
fn put_original_bytes(
    map: &mut JsonObject<'_>,
    text: &mut Vec<u8>,
    (key, bytes): (&[u8], usize),
    limit: usize,
) -> Result<(), Error> {
    room::make(map.buffer(), ORIGINAL_BYTES.len() + 1 + key.len(), limit)?;
    if map.path_parts(&[ORIGINAL_BYTES, key]) {
        text.clear();
        value_text::put_uint(text, bytes as u64);
        put_string(map.buffer(), text);
    }
    Ok(())
}

#[inline]
fn put_scalar(out: &mut Vec<u8>, text: &mut Vec<u8>, scalar: Scalar<'_>) {
    text.clear();
    match scalar {
        Scalar::String(value) => return put_string(out, value),
        Scalar::Bool(value) => return put_string(out, if value { b"true" } else { b"false" }),
        Scalar::Int(value) => value_text::put_int(text, value),
        Scalar::Double(value) => value_text::put_double(text, value),
    }
    put_string(out, text);
}
