//! Attributes into a `Map(LowCardinality(String), String)`, as the OpenTelemetry Collector's exporter writes them.
//!
//! | `AnyValue` | text |
//! | --- | --- |
//! | every one | [`crate::value_text`] |
//! | key-value list | JSON text under its own key: nothing is flattened |
//! | empty | the empty string; the key is kept |
//!
//! Keys are unique: the first of two equal ones wins, which is also the one that `m['key']` would find.
//!
//! Limits: a row that passes the limit of its buffer is given up at once.

use super::{Error, all_stored, let_go, row_limit};
use crate::value_text;
use sluice_clickhouse::{
    json::{JsonObject, put_empty_object},
    json_paths::JsonPaths,
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

    /// Appends one map. `extra` is written last, unless the attributes have its key.
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        attributes: &Attributes<'_>,
        extra: Option<(&[u8], u64)>,
    ) -> Result<(), Error> {
        if attributes.is_empty() && extra.is_none() {
            put_empty_object(out);
            return Ok(());
        }
        let Self { keys, text } = self;
        let limit = row_limit(out);
        // A map has the bytes of an object, with strings for values.
        let mut map = JsonObject::begin(out, keys);
        let outcome = put_members(&mut map, text, attributes, limit);
        if outcome.is_err() {
            // The map is given up with the row.
            keys.clear();
            return outcome;
        }
        if let Some((key, value)) = extra.filter(|(key, _)| map.path(key)) {
            debug_assert!(!key.is_empty());
            text.clear();
            value_text::put_uint(text, value);
            put_string(map.buffer(), text);
        }
        let outcome = all_stored(map.finish());
        if outcome.is_err() {
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
            if map.path(key) {
                put_scalar(map.buffer(), text, scalar);
            }
            within_limit(map, limit)?;
        }
        let Some(attribute) = attributes_left.next() else { break };
        let KeyValue { key, value } = attribute?;
        if map.path(key) {
            text.clear();
            value_text::put(text, value)?;
            put_string(map.buffer(), text);
        }
        within_limit(map, limit)?;
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

#[inline]
fn within_limit(map: &mut JsonObject<'_>, limit: usize) -> Result<(), Error> {
    if map.buffer().len() > limit { Err(Error::RowTooLarge) } else { Ok(()) }
}
