//! Attributes into a `Map(LowCardinality(String), String)`, as the OpenTelemetry Collector's exporter writes them.
//!
//! | `AnyValue` | text |
//! | --- | --- |
//! | every one | [`crate::rows::value_text`] |
//! | key-value list | JSON text under its own key: nothing is flattened |
//! | empty | the empty string; the key is kept |
//!
//! Keys are unique: the first of two equal ones wins, which is also the one that `m['key']` would find.
//!
//! Limits: a row is given up before the key and value with which it would pass its limit.

use super::{Error, Set, all_stored, scalar_bytes};
use crate::rows::{utf8::mended, value_text};
use sluice_clickhouse::{
    json::{JsonObject, put_empty_object},
    json_paths::JsonPaths,
    room::{self, KEPT_BYTES_MAX, let_go},
    rowbinary::put_string,
};
use sluice_otlp::{Attributes, KeyValue, Scalar};

/// Writes maps; keeps its buffers from call to call.
#[derive(Default)]
pub struct MapWriter {
    keys: JsonPaths,
    text: Vec<u8>,
}

impl MapWriter {
    /// Gives back what a huge row took.
    pub fn let_go(&mut self) {
        let_go(&mut self.text);
    }

    /// Memory held, in bytes: for the budget.
    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.text.capacity()
    }

    /// Appends one map; beyond the length `limit` the row is given up.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        &Set { attributes, originals, .. }: &Set<'_>,
        limit: usize,
    ) -> Result<(), Error> {
        if attributes.is_empty() && originals.is_empty() {
            put_empty_object(out);
            return Ok(());
        }
        let Self { keys, text } = self;
        // A map has the bytes of an object, with strings for values.
        let mut map = JsonObject::begin(out, keys);
        let outcome = put_members(&mut map, text, attributes, limit).and_then(|()| {
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
        let outcome = outcome.and_then(|()| all_stored(map.finish()));
        if outcome.is_err() {
            // The map is given up with the row.
            keys.clear();
        }
        outcome
    }
}

fn put_members(
    map: &mut JsonObject<'_>,
    text: &mut Vec<u8>,
    attributes: &Attributes<'_>,
    limit: usize,
) -> Result<(), Error> {
    let mut attributes_left = attributes.iter();
    loop {
        while let Some((key, scalar)) = attributes_left.next_usual() {
            room::make(map.buffer(), key.len() + scalar_bytes(&scalar), limit)?;
            if map.path(key) {
                put_scalar(map.buffer(), text, scalar);
            }
        }
        let Some(attribute) = attributes_left.next() else { break };
        let KeyValue { key, value } = attribute?;
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
        } else {
            // A message is malformed whatever the table is like.
            value.check()?;
        }
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
